//! Tables and files that others wrote, taken in as rows: an Iceberg table at one snapshot, or Parquet files.
//!
//! Everything is looked at before anything is changed: which files there are, whether all of them can be read, whether their
//! columns fit the table. Then rows go the way of [`crate::ingest`]: piece after piece, each in one commit with the place that
//! was reached, so that an interrupted import goes on there and takes each row once.

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

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub source: String,
    pub table: String,
    /// Old and new names of columns.
    pub renames: Vec<(String, String)>,
    /// From the beginning, whatever was imported before.
    pub again: bool,
}

/// What was found out before the first row, for people.
pub type Notes = Vec<String>;

/// Imports a source. `told` hears of each part of it when it is done, and of what there is to know before.
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

/// The table that rows go to.
struct Into {
    named: Named,
    /// If it is there.
    existing: Option<Table>,
}

/// What is to be told.
pub enum Told<'a> {
    Note(&'a str),
    Done(&'a Outcome),
}

type Renames = Vec<(String, String)>;

/// A table as it is described.
type Table = Value;

/// Looks at all files and the table. Each file with the columns of it that are called otherwise in the table.
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
    // Files of one import have the same columns as a rule, which need not be compared with the table's each time.
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
    // No two columns of different files may have one name either, and all together are not more than a table has.
    let given: Vec<Given> = all.into_iter().map(|(given, _)| given).collect();
    let (renames, _) = columns::rename(&given, &wanted.renames)?;
    columns::check(&given, &renames, into)?;
    notes.iter().for_each(|note| told(Told::Note(note)));
    Ok(planned)
}
