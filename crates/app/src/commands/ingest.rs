//! `polynya ingest FILE…`: reads files into a table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use types::{ColumnId, DataType, Error, Kind, Result};

use crate::cli::ServerArgs;
use crate::config::Config;
use crate::connection::DataConnection;
use crate::ingest::{self, CsvOptions, Format, IngestJob, IngestOutcome};
use crate::output;
use crate::units::{counted, grouped};

#[derive(Debug, Args)]
#[command(
    long_about = "Read files into a table. The format is recognised by the content: NDJSON, one JSON array, CSV, Parquet, \
                  or a web server's log; gzip and zstd are unpacked. The table is named after the file unless --table \
                  names one, and is made if it is missing.\n\nTo resume an interrupted run, repeat the same command. A file \
                  that has grown is read from its former end; a Parquet file that has changed is refused. --again starts \
                  over. Runs with standard input or --url always start over.",
    after_help = "Examples:\n  polynya ingest access.log\n  polynya ingest events.ndjson.gz more.ndjson --table events\n  \
                  polynya ingest people.csv --column zip:string --column born:date\n  \
                  zcat old/*.gz | polynya ingest - --table access --format access-log"
)]
pub struct Options {
    /// Files to read; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The table that receives the rows [default: the file's name up to its first dot]
    #[arg(short, long)]
    table: Option<String>,
    /// Format of the files [default: recognised by their content]
    #[arg(long)]
    format: Option<Format>,
    /// A CSV column's type: bool, int64, float64, decimal(10,2), string, date, timestamp, …
    #[arg(short, long = "column", value_name = "NAME:TYPE")]
    columns: Vec<String>,
    /// The CSV's first line is data
    #[arg(long)]
    no_header: bool,
    /// Character between the fields of CSV [default: detected]
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,
    /// Start over, even if rows were read before
    #[arg(long)]
    again: bool,
    /// Print one JSON object a file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let csv_options = csv_options(options)?;
    let ask = async |connection: &mut DataConnection| {
        for path in &options.files {
            let job = IngestJob {
                path: path.clone(),
                table: options.table.clone(),
                format: options.format,
                again: options.again,
                csv: csv_options.clone(),
                renames: Vec::new(),
            };
            let done = ingest_one(connection, &job, options).await?;
            output::print(&if options.json { as_json(&done) } else { summary(&done) });
        }
        Ok(())
    };
    super::block_on(async {
        DataConnection::open_or_create(config, &options.server).await?.with(ask).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ingests one file with a progress bar, until it is stored or the user interrupts.
async fn ingest_one(
    connection: &mut DataConnection,
    job: &IngestJob,
    options: &Options,
) -> Result<IngestOutcome> {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    let ingested = tokio::select! {
        // `biased` polls the signal first, so that Ctrl-C is heard before the file is read.
        biased;
        _ = tokio::signal::ctrl_c() => {
            let starts_over = options.server.url.is_some() || job.path.as_os_str() == "-";
            Err(Error::new(Kind::Timeout, "interrupted").hint(if starts_over {
                "the rows sent so far are stored; the same command would send them again"
            } else {
                "the same command goes on where it stopped"
            }))
        }
        ingested = ingest::file(connection, job, &bar) => ingested,
    };
    bar.finish_and_clear();
    ingested
}

fn csv_options(options: &Options) -> Result<CsvOptions> {
    let mut types = Vec::new();
    for pair in &options.columns {
        // The first colon ends the name: a type may contain colons (`struct<a: int64>`), a name rarely does.
        let (name, data_type) = pair.split_once(':').ok_or_else(|| {
            Error::invalid(format!("--column {pair} has no type")).hint("write --column zip:string")
        })?;
        types.push((name.to_owned(), DataType::parse(data_type.trim(), &mut ColumnId(0))?));
    }
    let delimiter = match options.delimiter.as_deref() {
        None => None,
        Some("\\t" | "tab") => Some(b'\t'),
        Some(text) if text.len() == 1 => text.bytes().next(),
        Some(text) => {
            return Err(
                Error::invalid(format!("`{text}` is not a delimiter")).hint("name one character, or `tab`")
            );
        }
    };
    Ok(CsvOptions { has_header: options.no_header.then_some(false), delimiter, types })
}

pub fn summary(done: &IngestOutcome) -> String {
    let mut text = match (done.rows, done.rows_before) {
        (0, 0) => format!("{}: {} holds no rows", done.table, done.file),
        (0, before) => format!(
            "{}: nothing new in {}; its {} were read before (--again reads them once more)",
            done.table,
            done.file,
            counted(before, "row")
        ),
        (rows, before) => {
            let rate = grouped((rows as f64 / done.seconds.max(1e-3)) as u64);
            let after = match before {
                0 => String::new(),
                before => format!(", after {} of an earlier run", grouped(before)),
            };
            let rows = counted(rows, "row");
            format!(
                "{}: {rows} from {} in {:.1} s ({rate} rows/s){after}",
                done.table, done.file, done.seconds
            )
        }
    };
    if let Some(note) = &done.note {
        text += &format!("; {note}");
    }
    text + "\n"
}

pub fn as_json(done: &IngestOutcome) -> String {
    let value = serde_json::json!({
        "file": done.file, "table": done.table, "rows": done.rows, "rows_before": done.rows_before,
        "seconds": done.seconds, "note": done.note,
    });
    format!("{value}\n")
}
