//! Imports data of other programs as rows of a table: an Iceberg table at one snapshot, or Parquet files.
//!
//! Before anything is changed, the import finds all files and checks that each can be read and that its columns fit the
//! table. Then [`crate::ingest`] sends the rows in pieces. Each piece is one commit together with the position that it
//! reaches, so that an interrupted import resumes there and imports each row once.

mod columns;
mod iceberg;
mod source;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::Value;
use types::{Error, Kind, Result};

use crate::config::Config;
use crate::connection::DataConnection;
use crate::ingest::parquet::Parquet;
use crate::ingest::{
    self, CsvOptions, Format, IngestJob, IngestOutcome, ResolvedTable, ResumePoint, SourceKind,
};
use columns::SourceColumn;
use source::ImportSource;

/// The request to import one source.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    pub source: String,
    pub table: String,
    /// Old and new names of columns.
    pub renames: Vec<(String, String)>,
    /// True to import from the beginning, even if a part of the source was imported before.
    pub again: bool,
}

/// Remarks for people about the import, found before the first row is sent.
pub type Notes = Vec<String>;

/// Imports a source. `report` is called with each note before the first row, and with the result of each file or table.
pub async fn run(
    config: &Config,
    connection: &mut DataConnection,
    request: &ImportRequest,
    bar: &ProgressBar,
    report: &mut dyn FnMut(ImportEvent<'_>),
) -> Result<()> {
    types::name::full_table_name(&request.table)?;
    let found = source::find(config, connection.client(), &request.source).await?;
    let existing = columns::describe_table(connection, &request.table).await?;
    let target = TargetTable { table: ResolvedTable::new(&request.table, existing.as_ref())?, existing };
    match found {
        ImportSource::Iceberg(location) => {
            let outcome = iceberg::run(connection, request, &target, location, bar, report).await?;
            report(ImportEvent::Done(&outcome));
        }
        ImportSource::Parquet(root, files) => {
            for (path, renames) in parquet(connection, request, &target, &root, files, report).await? {
                let job = IngestJob {
                    path,
                    table: Some(request.table.clone()),
                    format: Some(Format::Parquet),
                    again: request.again,
                    csv: CsvOptions::default(),
                    renames,
                };
                let outcome = ingest::file(connection, &job, bar).await?;
                report(ImportEvent::Done(&outcome));
            }
        }
    }
    Ok(())
}

/// The table that receives the rows.
struct TargetTable {
    table: ResolvedTable,
    /// Its description; `None` if the table does not exist yet.
    existing: Option<TableDescription>,
}

/// A report of the import for the user.
pub enum ImportEvent<'a> {
    Note(&'a str),
    Done(&'a IngestOutcome),
}

/// Old and new names of columns.
type Renames = Vec<(String, String)>;

/// A table's description, as the server answers it.
type TableDescription = Value;

/// Checks all files against the table, and returns each with the columns to rename. Fails with `schema` if a column does
/// not fit the table, or has different types in two files.
async fn parquet(
    connection: &mut DataConnection,
    request: &ImportRequest,
    target: &TargetTable,
    root: &Path,
    files: Vec<PathBuf>,
    report: &mut dyn FnMut(ImportEvent<'_>),
) -> Result<Vec<(PathBuf, Renames)>> {
    let mut all: Vec<(SourceColumn, PathBuf)> = Vec::new();
    let mut planned = Vec::with_capacity(files.len());
    let mut notes: Vec<String> = Vec::new();
    // The files of an import usually have the same columns, which are compared with the table's only once.
    let mut fitting: Option<Vec<SourceColumn>> = None;
    for path in files {
        let file = Parquet::open(&path, 0, &[])?;
        let given: Vec<SourceColumn> = file.schema().fields().iter().map(SourceColumn::of_arrow).collect();
        source::check_partitions(root, &path, &given)?;
        let in_file = |e: Error| e.with("file", path.display());
        let (renames, mut of_file) = columns::plan_renames(&given, &request.renames).map_err(in_file)?;
        if fitting.as_ref() != Some(&given) {
            of_file.extend(columns::check(&given, &renames, target).map_err(in_file)?);
            fitting = Some(given.clone());
        }
        for note in of_file {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        if let Some(control) = connection.control() {
            let content = SourceKind::Parquet(&renames);
            ResumePoint::find(control, &path, &target.table, content, request.again).await?;
        }
        for column in given {
            match all.iter().find(|(known, _)| known.name() == column.name()) {
                None => all.push((column, path.clone())),
                Some((known, _)) if known.field == column.field => {}
                Some((known, first)) => {
                    return Err(Error::new(
                        Kind::Schema,
                        format!(
                            "column `{}` is {} in {} and {} in {}",
                            column.name(),
                            known.type_name(),
                            first.display(),
                            column.type_name(),
                            path.display()
                        ),
                    )
                    .hint("import the files of each kind by themselves, into tables of their own"));
                }
            }
        }
        planned.push((path, renames));
    }
    // The columns of all files together must fit one table too: by their names and by their number.
    let given: Vec<SourceColumn> = all.into_iter().map(|(given, _)| given).collect();
    let (renames, _) = columns::plan_renames(&given, &request.renames)?;
    columns::check(&given, &renames, target)?;
    notes.iter().for_each(|note| report(ImportEvent::Note(note)));
    Ok(planned)
}
