//! Imports data of other programs as rows of a table: an Iceberg table at one snapshot, or Parquet files.
//!
//! Before anything is changed, the import finds all files and checks that each can be read and that its columns fit the
//! table. Then [`crate::ingest`] sends the rows in pieces. Each piece is one commit together with the position that it
//! reaches, so that an interrupted import resumes there and imports each row once.

mod columns;
mod find;
mod iceberg;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::Value;
use types::{Error, Kind, Result};

use crate::config::Config;
use crate::door::Door;
use crate::ingest::parquet::Parquet;
use crate::ingest::{self, Content, Declared, Format, Job, Named, Outcome, Resumed};
use columns::Given;
use find::Found;

/// The request to import one source.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub source: String,
    pub table: String,
    /// Old and new names of columns.
    pub renames: Vec<(String, String)>,
    /// True to import from the beginning, even if a part of the source was imported before.
    pub again: bool,
}

/// Remarks for people about the import, found before the first row is sent.
pub type Notes = Vec<String>;

/// Imports a source. `told` is called with each note before the first row, and with the result of each file or table.
pub async fn run(
    config: &Config,
    door: &mut Door,
    wanted: &Wanted,
    bar: &ProgressBar,
    told: &mut dyn FnMut(Told<'_>),
) -> Result<()> {
    types::name::full_table_name(&wanted.table)?;
    let found = find::find(config, door.client(), &wanted.source).await?;
    let existing = columns::existing(door, &wanted.table).await?;
    let into = Into { named: Named::new(&wanted.table, existing.as_ref())?, existing };
    match found {
        Found::Iceberg(place) => {
            let outcome = iceberg::run(door, wanted, &into, place, bar, told).await?;
            told(Told::Done(&outcome));
        }
        Found::Parquet(root, files) => {
            for (path, renames) in parquet(door, wanted, &into, &root, files, told).await? {
                let job = Job {
                    path,
                    table: Some(wanted.table.clone()),
                    format: Some(Format::Parquet),
                    again: wanted.again,
                    declared: Declared::default(),
                    renames,
                };
                let outcome = ingest::file(door, &job, bar).await?;
                told(Told::Done(&outcome));
            }
        }
    }
    Ok(())
}

/// The table that receives the rows.
struct Into {
    named: Named,
    /// Its description; `None` if the table does not exist yet.
    existing: Option<Table>,
}

/// A report of the import for the user.
pub enum Told<'a> {
    Note(&'a str),
    Done(&'a Outcome),
}

/// Old and new names of columns.
type Renames = Vec<(String, String)>;

/// A table's description, as the server answers it.
type Table = Value;

/// Checks all files against the table, and returns each with the columns to rename. Fails with `schema` if a column does
/// not fit the table, or has different types in two files.
async fn parquet(
    door: &mut Door,
    wanted: &Wanted,
    into: &Into,
    root: &Path,
    files: Vec<PathBuf>,
    told: &mut dyn FnMut(Told<'_>),
) -> Result<Vec<(PathBuf, Renames)>> {
    let mut all: Vec<(Given, PathBuf)> = Vec::new();
    let mut planned = Vec::with_capacity(files.len());
    let mut notes: Vec<String> = Vec::new();
    // The files of an import usually have the same columns, which are compared with the table's only once.
    let mut fitting: Option<Vec<Given>> = None;
    for path in files {
        let file = Parquet::open(&path, 0, &[])?;
        let given: Vec<Given> = file.schema().fields().iter().map(Given::arrow).collect();
        find::check_partitions(root, &path, &given)?;
        let in_file = |e: Error| e.with("file", path.display());
        let (renames, mut of_file) = columns::rename(&given, &wanted.renames).map_err(in_file)?;
        if fitting.as_ref() != Some(&given) {
            of_file.extend(columns::check(&given, &renames, into).map_err(in_file)?);
            fitting = Some(given.clone());
        }
        for note in of_file {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        if let Some(control) = door.control() {
            let content = Content::Fixed(&renames);
            Resumed::find(control, &path, &into.named, content, wanted.again).await?;
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
                            known.shown(),
                            first.display(),
                            column.shown(),
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
    let given: Vec<Given> = all.into_iter().map(|(given, _)| given).collect();
    let (renames, _) = columns::rename(&given, &wanted.renames)?;
    columns::check(&given, &renames, into)?;
    notes.iter().for_each(|note| told(Told::Note(note)));
    Ok(planned)
}
