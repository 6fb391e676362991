//! `polynya lake`: shows, maintains, erases, imports and verifies the Iceberg tables of the lake.

mod act;
mod import;
mod shown;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use lake::Store;
use lake::digest::Digest;
use lake::reader::Reader;
use serde_json::{Value, json};
use types::{Error, Kind, Result};
use vfs::Env;

use crate::cli::Reach;
use crate::client::{Client, escaped, read};
use crate::config::Config;
use crate::door::Door;
use crate::output;
use crate::units::counted;
use crate::warehouse;

use super::tables::{self, number};

#[derive(Debug, Args)]
#[command(
    long_about = "Tables as Apache Iceberg, below lake/ in the data directory. Any program that reads Iceberg v2 opens them there: \
                  DuckDB, PyIceberg, Spark, Trino.",
    after_help = "Examples:\n  polynya lake                      how far each table has landed, of what it consists, and where\n  \
                  polynya lake snapshots events     the states that readers may still ask for\n  \
                  polynya lake files events         which files it has, by partition\n  \
                  polynya lake commit events        land now what was acknowledged so far\n  \
                  polynya lake maintain events      merge small files, expire old snapshots, remove unreferenced files\n  \
                  polynya lake erase people         let deletes reach history: no file or snapshot shows what was deleted\n  \
                  polynya lake import old/trips trips   take an Iceberg table or Parquet files in as rows of a table\n  \
                  polynya lake verify events        read it back from the lake's files alone and compare it with SQL",
    args_conflicts_with_subcommands = true
)]
pub struct Options {
    #[command(subcommand)]
    command: Option<What>,
    #[command(flatten)]
    status: Status,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show how far each table has landed, its files, and where its newest metadata is; the default of `polynya lake`
    Status(Status),
    /// List the snapshots of a table that are kept
    Snapshots(One),
    /// List the files of a table's current snapshot: partition, rows, size, deleted rows
    Files(One),
    /// Land now all rows acknowledged so far, and wait for it
    Commit(Named),
    /// Merge small files, delete files and manifests, expire old snapshots, remove unreferenced files
    #[command(
        long_about = "Do now the maintenance that otherwise runs little by little in the background: merge the small files of a \
                      partition, rewrite files with many deleted rows, merge delete files and manifests, expire snapshots \
                      (lake.keep), and remove files that no snapshot refers to. Readers of kept snapshots are not disturbed."
    )]
    Maintain(Named),
    /// Let deletes reach history: rows deleted so far leave all files and snapshots
    #[command(
        long_about = "Remove the rows that were deleted or replaced so far from every file. The lake's files with such rows are \
                      rewritten and its older snapshots expire. The table's own files with such rows go too, and with them the \
                      table's past (AS OF) before now. Live rows stay as they are.\n\nThe report says what was done, and where \
                      copies may remain that this command does not reach: the log's files until they are reused, its archive, \
                      backups. The command may be interrupted and repeated.",
        after_help = "Example:\n  polynya sql \"DELETE FROM people WHERE id = 7\"\n  polynya lake erase people"
    )]
    Erase(Erase),
    /// Import an Iceberg table or Parquet files as rows of a table
    Import(import::Options),
    /// Read tables back from their Iceberg metadata and Parquet alone, and compare every value with SQL
    Verify(Named),
}

#[derive(Debug, Args)]
struct Status {
    /// Show only this table
    table: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
struct One {
    table: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
struct Erase {
    /// The tables
    #[arg(value_name = "TABLE", required = true)]
    tables: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
struct Named {
    /// The tables [default: all that have a lake]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let Some(command) = &options.command else { return status(config, &options.status) };
    match command {
        What::Status(options) => status(config, options),
        What::Import(options) => import::run(config, options),
        What::Snapshots(options) => {
            let ask = async |door: &mut Door| shown::snapshots(door.client(), &options.table).await;
            let all = super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
            output::print(&if options.json { lines(&[all]) } else { shown::snapshots_table(&all) });
            Ok(ExitCode::SUCCESS)
        }
        What::Files(options) => {
            let ask = async |door: &mut Door| shown::files(door.client(), &options.table).await;
            let all = super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
            output::print(&if options.json { lines(&[all]) } else { shown::files_table(&all) });
            Ok(ExitCode::SUCCESS)
        }
        What::Maintain(options) => {
            let ask = async |door: &mut Door| {
                let tables = followed(door.client(), &options.tables).await?;
                for table in &tables {
                    let done = act::maintain(door.client(), table).await?;
                    output::print(&if options.json { lines(&[done]) } else { act::maintained(&done) });
                }
                Ok(tables.is_empty())
            };
            let none = super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
            if none && !options.json {
                output::print(&shown::status_table(&[]));
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Erase(options) => {
            let ask = async |door: &mut Door| {
                for table in &options.tables {
                    let done = act::erase(door.client(), table).await?;
                    output::print(&if options.json { lines(&[done]) } else { act::erased(&done) });
                }
                Ok(())
            };
            super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
            Ok(ExitCode::SUCCESS)
        }
        What::Commit(options) => {
            let ask = async |door: &mut Door| {
                let mut landed = Vec::new();
                for table in followed(door.client(), &options.tables).await? {
                    let mut answer = land(door.client(), &table).await?;
                    answer["table"] = json!(table);
                    landed.push(answer);
                }
                Ok(landed)
            };
            let landed =
                super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
            output::print(&if options.json {
                lines(&landed)
            } else {
                landed.iter().map(landed_line).collect()
            });
            Ok(ExitCode::SUCCESS)
        }
        What::Verify(options) => {
            let ask = async |door: &mut Door| {
                let mut reports = Vec::new();
                for table in followed(door.client(), &options.tables).await? {
                    // A table that cannot be compared does not keep the others from being compared.
                    let report = verify(config, door.client(), &table).await;
                    reports.push(report.unwrap_or_else(|error| not_compared(&table, &error)));
                }
                Ok(reports)
            };
            let reports =
                super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
            output::print(&if options.json { lines(&reports) } else { reports.iter().map(report).collect() });
            let equal = reports.iter().all(|report| report["equal"] == Value::Bool(true));
            Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn status(config: &Config, options: &Status) -> Result<ExitCode> {
    let names: Vec<String> = options.table.clone().into_iter().collect();
    let ask = async |door: &mut Door| {
        let mut all = Vec::new();
        for table in followed(door.client(), &names).await? {
            all.push(shown::status(door.client(), &table).await?);
        }
        Ok(all)
    };
    let all = super::block_on(async { Door::open(config, &options.reach).await?.with(ask).await })?;
    output::print(&if options.json { lines(&all) } else { shown::status_table(&all) });
    Ok(ExitCode::SUCCESS)
}

/// Returns the named tables, or all tables that have a lake if none is named.
async fn followed(client: &mut Client, names: &[String]) -> Result<Vec<String>> {
    if !names.is_empty() {
        return Ok(names.to_vec());
    }
    let all = tables::list(client).await?;
    let lands = |table: &&Value| {
        let derived = table["derived"].as_array().map(Vec::as_slice).unwrap_or_default();
        derived.iter().any(|derived| derived["name"] == "lake")
    };
    let tables = all["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(tables.iter().filter(lands).filter_map(|t| t["name"].as_str().map(str::to_owned)).collect())
}

/// Commits all acknowledged rows of a table to the lake and waits for it.
async fn land(client: &mut Client, table: &str) -> Result<Value> {
    let path = format!("/v1/tables/{}/commit?deadline_ms=600000", escaped(table));
    client.json(Method::POST, &path, None).await
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn landed_line(landed: &Value) -> String {
    let place = landed["metadata"].as_str().map(|path| format!(", {path}")).unwrap_or_default();
    let line = format!(
        "{}: {} in {} up to row {}, lsn {}{place}\n",
        landed["table"].as_str().unwrap_or_default(),
        counted(number(&landed["rows"]), "row"),
        counted(number(&landed["files"]), "file"),
        number(&landed["row"]),
        number(&landed["lsn"]),
    );
    output::visible(&line).into_owned()
}

/// Comparisons of a table whose rows change during each of them.
const ROUNDS: usize = 5;
/// Largest range of row ids in one statement.
const ROW_IDS: u64 = 1_000_000;
/// Bytes of one statement's answer, about, so that no answer reaches the server's limit.
const ANSWER_BYTES: u64 = 64 << 20;

/// Lands a table, reads it back from the lake, and compares it with SQL up to the last row in the lake. Fails with
/// `conflict` if its rows change during each of the [`ROUNDS`].
async fn verify(config: &Config, client: &mut Client, table: &str) -> Result<Value> {
    for _ in 0..ROUNDS {
        let landed = land(client, table).await?;
        let place = place_of(&landed)?;
        let (row, found, [files, unknown]) = match in_lake(config, table, &place, u64::MAX).await {
            Err(error) if error.kind() == Kind::Damaged => {
                return Err(with_damaged_files(config, table, &place, error).await);
            }
            found => found?,
        };
        let expected = in_sql(client, table, row).await?;
        let differences = found.differences(&expected, ["the lake", "SQL"]);
        if !differences.is_empty() {
            // A row that was deleted between the two readings is in only one of them. Then the lake changes too at its next
            // commit, and the comparison is repeated.
            let place = place_of(&land(client, table).await?)?;
            if in_lake(config, table, &place, row).await?.1 != found {
                continue;
            }
        }
        let column = |(name, digest): (&String, &lake::digest::ColumnDigest)| {
            let sum = digest.sum.map(|sum| sum.to_string());
            (
                name.clone(),
                json!({ "nulls": digest.nulls, "sum": sum, "hash": format!("{:016x}", digest.hash) }),
            )
        };
        return Ok(json!({
            "table": table,
            "equal": differences.is_empty(),
            "row": row,
            "lsn": landed["lsn"],
            "snapshot_id": landed["snapshot_id"],
            "rows": found.rows,
            "columns": found.columns.iter().map(column).collect::<serde_json::Map<_, _>>(),
            "differences": differences,
            "files": files,
            "files_without_checksums": unknown,
            "metadata": landed["metadata"],
        }));
    }
    Err(Error::new(
        Kind::Conflict,
        format!("rows of `{table}` were replaced or deleted each of the {ROUNDS} times that it was compared"),
    )
    .hint("compare it while fewer of its rows change"))
}

/// The table's directory and its metadata file.
#[derive(Clone)]
struct Place {
    dir: PathBuf,
    name: String,
}

fn place_of(landed: &Value) -> Result<Place> {
    let path = landed["metadata"].as_str().ok_or_else(|| {
        Error::new(Kind::Forbidden, "the server does not say where the lake is")
            .hint("verify on the machine of the server, with a key of scope admin or through --data")
    })?;
    // Some catalogs write paths as `file:` URIs.
    let local = path.strip_prefix("file:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
    let path = Path::new(local.unwrap_or(path));
    let name = path.file_name().and_then(|name| name.to_str());
    let dir = path.parent().filter(|parent| parent.ends_with("metadata")).and_then(Path::parent);
    match (dir, name) {
        (Some(dir), Some(name)) => Ok(Place { dir: dir.to_owned(), name: name.to_owned() }),
        _ => Err(Error::internal(format!("`{}` is no name of a metadata file", path.display()))),
    }
}

/// Replaces the error that ended a reading of the lake by one that names all damaged files, if they can be found.
async fn with_damaged_files(config: &Config, table: &str, place: &Place, error: Error) -> Error {
    let compare = |reader: &Reader| reader.compare_files().map(|found| found.damaged);
    match read_lake(config, table, place, compare).await {
        Ok(damaged) if !damaged.is_empty() => {
            let count = counted(damaged.len() as u64, "file");
            Error::damaged(format!("{count} of the lake: {}", damaged.join("; "))).hint(
                "put them back from a copy of the lake; rows that are on this machine are not touched by it",
            )
        }
        _ => error,
    }
}

/// Digests the rows up to `last` in the lake's files. Returns the last row in the lake, the digest, the number of files, and
/// the number of files without a recorded checksum.
async fn in_lake(
    config: &Config,
    table: &str,
    place: &Place,
    last: u64,
) -> Result<(u64, Digest, [usize; 2])> {
    let read = move |reader: &Reader| {
        let mut digest = Digest::of_columns(reader.schema());
        reader.read(&mut |batch| digest.add(&batch, last))?;
        Ok((reader.row.0, digest, reader.files_without_checksums().into()))
    };
    read_lake(config, table, place, read).await
}

async fn read_lake<T: Send + 'static>(
    config: &Config,
    table: &str,
    place: &Place,
    read: impl FnOnce(&Reader) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (config, place, table) = (config.clone(), place.clone(), types::name::full_table_name(table)?);
    let read = move || read(&open(&config, &table, &place)?);
    let joined = tokio::task::spawn_blocking(read).await;
    joined.map_err(|error| Error::internal("reading the lake failed").caused_by(error))?
}

fn open(config: &Config, full_name: &str, place: &Place) -> Result<Reader> {
    let (store, dir) = match place.dir.to_str().filter(|dir| dir.contains("://")) {
        None => (Store::local(&Env::real()), place.dir.clone()),
        Some(uri) => match warehouse::in_catalog(config, full_name)? {
            Some(reader) => return Ok(reader),
            None => (warehouse::to_read(config, uri)?, PathBuf::new()),
        },
    };
    Reader::open_file(&store, &dir, &place.name).map_err(|error| match error.kind() {
        Kind::Io => error.hint("the lake is read where it lies: verify on the machine of the server"),
        _ => error,
    })
}

/// Digests the rows up to `last` as SQL returns them.
async fn in_sql(client: &mut Client, table: &str, last: u64) -> Result<Digest> {
    let described = tables::describe(client, table).await?;
    let columns = described["columns"].as_array().map(Vec::as_slice).unwrap_or_default();
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names = columns.iter().filter_map(|column| column["name"].as_str()).map(quoted);
    let names: Vec<String> = ["_row_id", "_time"].map(quoted).into_iter().chain(names).collect();
    let from: Vec<String> = table.split('.').map(quoted).collect();
    let row_bytes = number(&described["bytes"]) / number(&described["rows"]).max(1);
    let row_ids = (ANSWER_BYTES / row_bytes.max(1)).clamp(1_000, ROW_IDS);
    let mut digest = Digest::default();
    let mut first = 1;
    // At least one statement, for the columns of an empty table.
    loop {
        let end = (first + row_ids - 1).min(last);
        let sql = format!(
            "SELECT {} FROM {} WHERE _row_id >= {first} AND _row_id <= {end}",
            names.join(", "),
            from.join(".")
        );
        let body = Bytes::from(json!({ "sql": sql }).to_string());
        let headers =
            [("content-type", "application/json"), ("accept", "application/vnd.apache.arrow.stream")];
        let answer = client.send(Method::POST, "/v1/sql", &headers, body).await?;
        let bytes = read(answer).await?;
        let broken = |error| Error::internal("the answer is no Arrow stream").caused_by(error);
        let reader = StreamReader::try_new(&bytes[..], None).map_err(broken)?;
        if first == 1 {
            digest = Digest::of_columns(&reader.schema());
        }
        for batch in reader {
            digest.add(&batch.map_err(broken)?, last)?;
        }
        if end >= last {
            return Ok(digest);
        }
        first = end + 1;
    }
}

fn not_compared(table: &str, error: &Error) -> Value {
    json!({ "table": table, "equal": false, "error": error.to_string() })
}

fn compared_files(files: u64, unknown: u64) -> String {
    match unknown {
        0 => format!("  {} as written\n", counted(files, "file")),
        _ => format!(
            "  {} as written; {} written before checksums were kept, or by another program\n",
            counted(files - unknown.min(files), "file"),
            counted(unknown, "file")
        ),
    }
}

/// Formats the report of a comparison for a terminal.
fn report(report: &Value) -> String {
    let table = report["table"].as_str().unwrap_or_default();
    let columns = report["columns"].as_object().map_or(0, serde_json::Map::len);
    let text = match report["equal"] == Value::Bool(true) {
        _ if report["error"].is_string() => {
            format!("{table}: NOT COMPARED\n  {}\n", report["error"].as_str().unwrap_or_default())
        }
        true => format!(
            "{table}: equal. {}, {}, every value the same in the lake and in SQL, up to row {}\n{}",
            counted(number(&report["rows"]), "row"),
            counted(columns as u64, "column"),
            number(&report["row"]),
            compared_files(number(&report["files"]), number(&report["files_without_checksums"])),
        ),
        false => {
            let differences = report["differences"].as_array().map(Vec::as_slice).unwrap_or_default();
            let lines = differences.iter().filter_map(Value::as_str).map(|line| format!("  {line}\n"));
            format!("{table}: DIFFERENT\n{}", lines.collect::<String>())
        }
    };
    output::visible(&text).into_owned()
}
