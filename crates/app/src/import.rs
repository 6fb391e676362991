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
use crate::ingest::{self, Declared, Format, Job, Outcome};
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
    match find::find(config, door.client(), &wanted.source).await? {
        Found::Iceberg(place) => {
            let outcome = iceberg::run(door, wanted, place, bar, told).await?;
            told(Told::Done(&outcome));
        }
        Found::Parquet(root, files) => {
            for path in parquet(door, wanted, &root, files, told).await? {
                let job = Job {
                    path: path.0,
                    table: Some(wanted.table.clone()),
                    format: Some(Format::Parquet),
                    again: wanted.again,
                    declared: Declared::default(),
                    renames: path.1,
                };
                let outcome = ingest::file(door, &job, bar).await?;
                told(Told::Done(&outcome));
            }
        }
    }
    Ok(())
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
    root: &Path,
    files: Vec<PathBuf>,
    told: &mut dyn FnMut(Told<'_>),
) -> Result<Vec<(PathBuf, Renames)>> {
    let table = columns::existing(door, &wanted.table).await?;
    let mut all: Vec<(Given, PathBuf)> = Vec::new();
    let mut planned = Vec::with_capacity(files.len());
    let mut notes: Vec<String> = Vec::new();
    for path in files {
        let file = Parquet::open(&path, 0, &[])?;
        let given: Vec<Given> = file.schema().fields().iter().map(Given::arrow).collect();
        find::check_partitions(root, &path, &given)?;
        let in_file = |e: Error| e.with("file", path.display());
        let (renames, of_file) = columns::rename(&given, &wanted.renames).map_err(in_file)?;
        let new: Vec<String> = of_file.into_iter().filter(|note| !notes.contains(note)).collect();
        notes.extend(new);
        for column in given {
            match all.iter().find(|(known, _)| known.name == column.name) {
                None => all.push((column, path.clone())),
                Some((known, _)) if known.arrow == column.arrow => {}
                Some((known, first)) => {
                    return Err(Error::new(
                        Kind::Schema,
                        format!(
                            "column `{}` is {} in {} and {} in {}",
                            column.name,
                            known.arrow,
                            first.display(),
                            column.arrow,
                            path.display()
                        ),
                    )
                    .hint("import the files of each kind by themselves, into tables of their own"));
                }
            }
        }
        planned.push((path, renames));
    }
    let given: Vec<Given> = all.into_iter().map(|(given, _)| given).collect();
    let (renames, _) = columns::rename(&given, &wanted.renames)?;
    notes.extend(columns::check(&given, &renames, table.as_ref(), &wanted.table)?);
    notes.iter().for_each(|note| told(Told::Note(note)));
    Ok(planned)
}
