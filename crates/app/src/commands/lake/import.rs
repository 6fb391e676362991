//! `polynya lake import SOURCE TABLE`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use types::{Error, Kind, Result};

use crate::cli::ServerArgs;
use crate::commands::ingest::{as_json, summary};
use crate::config::Config;
use crate::connection::DataConnection;
use crate::import::{self, ImportEvent, ImportRequest};
use crate::output;

#[derive(Debug, Args)]
#[command(
    long_about = "Import an existing Iceberg table, or Parquet files, as rows of a table. The table is made with fitting types if \
                  it is missing; the source stays as it is.\n\nSOURCE is a table's directory (with its metadata in `metadata`), one of its \
                  metadata files, either of them as `s3://BUCKET/…`, the name of a table in this server's Iceberg catalog, or \
                  Parquet: a file, a directory of files, a pattern in quotes.\n\nIceberg tables of format 1 to 3 are read at their current \
                  snapshot: partitions, columns that were added, renamed, widened or dropped, rows deleted by position, in \
                  deletion vectors or by equality. Encrypted files, files that are not Parquet and types that no table here \
                  holds are refused. Times of day become text, maps JSON objects; times without a zone are read as UTC. \
                  Column names lose a leading `_`; --rename gives any column another name.\n\nThe footers of all files are \
                  checked before the first row is imported. To resume an interrupted import, repeat the same command with the \
                  same --rename: each row is imported once. With --url the import starts over.",
    after_help = "Examples:\n  polynya lake import warehouse/db/trips trips\n  \
                  polynya lake import warehouse/db/trips/metadata/00012-….metadata.json trips\n  \
                  polynya lake import 'exports/2026-*/*.parquet' orders\n  \
                  polynya lake import db.trips trips --rename _id=id --rename type=kind"
)]
pub struct Options {
    /// An Iceberg table or Parquet files
    #[arg(value_name = "SOURCE")]
    source: String,
    /// The table that receives the rows
    #[arg(value_name = "TABLE")]
    table: String,
    /// Another name for a column; may be given several times
    #[arg(long = "rename", value_name = "OLD=NEW")]
    renames: Vec<String>,
    /// Start over, even if rows were imported before
    #[arg(long)]
    again: bool,
    /// Print one JSON object for each part
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let pair = |text: &String| {
        let parts = text.split_once('=').filter(|(old, new)| !old.is_empty() && !new.is_empty());
        parts.map(|(old, new)| (old.to_owned(), new.to_owned())).ok_or_else(|| {
            Error::invalid(format!("--rename {text} is not a pair of names")).hint("write --rename OLD=NEW")
        })
    };
    let wanted = ImportRequest {
        source: options.source.clone(),
        table: options.table.clone(),
        renames: options.renames.iter().map(pair).collect::<Result<_>>()?,
        again: options.again,
    };
    let ask = async |connection: &mut DataConnection| {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        let mut told = |told: ImportEvent<'_>| {
            let text = match (&told, options.json) {
                (ImportEvent::Note(note), true) => format!("{}\n", json!({ "note": note })),
                (ImportEvent::Note(note), false) => format!("{note}\n"),
                (ImportEvent::Done(outcome), true) => as_json(outcome),
                (ImportEvent::Done(outcome), false) => summary(outcome),
            };
            bar.suspend(|| output::print(&output::visible(&text)));
        };
        let outcome = tokio::select! {
            // `biased` polls the signal first, so that Ctrl-C is heard before the import begins.
            biased;
            _ = tokio::signal::ctrl_c() => {
                Err(Error::new(Kind::Timeout, "interrupted").hint(if options.server.url.is_some() {
                    "the rows sent so far are stored; the same command would send them again"
                } else {
                    "the same command goes on where it stopped"
                }))
            }
            outcome = import::run(config, connection, &wanted, &bar, &mut told) => outcome,
        };
        bar.finish_and_clear();
        outcome
    };
    super::super::block_on(async {
        DataConnection::open_or_create(config, &options.server).await?.with(ask).await
    })?;
    Ok(ExitCode::SUCCESS)
}
