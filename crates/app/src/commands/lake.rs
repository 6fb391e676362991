//! `polynya lake`: shows, maintains, erases, imports and verifies the Iceberg tables of the lake.

mod import;
mod listing;
mod maintenance;

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

use crate::cli::ServerArgs;
use crate::client::{HttpClient, escaped, read};
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output;
use crate::units::counted;
use crate::warehouse;

use super::tables::{self, number};

#[derive(Debug, Args)]
#[command(
    long_about = "Tables as Apache Iceberg, below lake/ in the data directory. Any program that reads Iceberg v2 opens them there: \
                  DuckDB, PyIceberg, Spark, Trino.",
    after_help = "Examples:\n  polynya lake                      how far each table has landed, its files, and where they are\n  \
                  polynya lake snapshots events     the states that readers may still ask for\n  \
                  polynya lake files events         which files it has, by partition\n  \
                  polynya lake commit events        land all acknowledged rows now\n  \
                  polynya lake maintain events      merge small files, expire old snapshots, remove unreferenced files\n  \
                  polynya lake erase people         remove deleted rows from every file and snapshot\n  \
                  polynya lake import old/trips trips   take an Iceberg table or Parquet files in as rows of a table\n  \
                  polynya lake verify events        read it back from only the lake's files and compare it with SQL",
    args_conflicts_with_subcommands = true
)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Action>,
    #[command(flatten)]
    status: Status,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show how far each table has landed, its files, and where its newest metadata is; the default of `polynya lake`
    Status(Status),
    /// List the snapshots of a table that are kept
    Snapshots(TableArgs),
    /// List the files of a table's current snapshot: partition, rows, size, deleted rows
    Files(TableArgs),
    /// Land now all rows acknowledged so far, and wait for it
    Commit(TablesArgs),
    /// Merge small files, delete files and manifests, expire old snapshots, remove unreferenced files
    #[command(
        long_about = "Do now the maintenance that otherwise runs little by little in the background: merge the small files of a \
                      partition, rewrite files with many deleted rows, merge delete files and manifests, expire snapshots \
                      (lake.keep), and remove files that no snapshot refers to. Readers of kept snapshots are not disturbed."
    )]
    Maintain(TablesArgs),
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
    Verify(TablesArgs),
}

#[derive(Debug, Args)]
struct Status {
    /// Show only this table
    table: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct TableArgs {
    table: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
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
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct TablesArgs {
    /// The tables [default: all that have a lake]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let Some(command) = &options.command else { return status(config, &options.status) };
    match command {
        Action::Status(options) => status(config, options),
        Action::Import(options) => import::run(config, options),
        Action::Snapshots(options) => {
            let ask = async |connection: &mut DataConnection| {
                listing::snapshots(connection.client(), &options.table).await
            };
            let all = super::block_on(async {
                DataConnection::open(config, &options.server).await?.with(ask).await
            })?;
            output::print(&if options.json { json_lines(&[all]) } else { listing::snapshots_table(&all) });
            Ok(ExitCode::SUCCESS)
        }
        Action::Files(options) => {
            let ask = async |connection: &mut DataConnection| {
                listing::files(connection.client(), &options.table).await
            };
            let all = super::block_on(async {
                DataConnection::open(config, &options.server).await?.with(ask).await
            })?;
            output::print(&if options.json { json_lines(&[all]) } else { listing::files_table(&all) });
            Ok(ExitCode::SUCCESS)
        }
        Action::Maintain(options) => {
            let ask = async |connection: &mut DataConnection| {
                let tables = tables_to_use(connection.client(), &options.tables).await?;
                for table in &tables {
                    let done = maintenance::maintain(connection.client(), table).await?;
                    output::print(&if options.json {
                        json_lines(&[done])
                    } else {
                        maintenance::maintenance_report(&done)
                    });
                }
                Ok(tables.is_empty())
            };
            let none = super::block_on(async {
                DataConnection::open(config, &options.server).await?.with(ask).await
            })?;
            if none && !options.json {
                output::print(&listing::status_table(&[]));
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Erase(options) => {
            let ask = async |connection: &mut DataConnection| {
                for table in &options.tables {
                    let done = maintenance::erase(connection.client(), table).await?;
                    output::print(&if options.json {
                        json_lines(&[done])
                    } else {
                        maintenance::erasure_report(&done)
                    });
                }
                Ok(())
            };
            super::block_on(async { DataConnection::open(config, &options.server).await?.with(ask).await })?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Commit(options) => {
            let ask = async |connection: &mut DataConnection| {
                let mut landed = Vec::new();
                for table in tables_to_use(connection.client(), &options.tables).await? {
                    let mut answer = land(connection.client(), &table).await?;
                    answer["table"] = json!(table);
                    landed.push(answer);
                }
                Ok(landed)
            };
            let landed = super::block_on(async {
                DataConnection::open(config, &options.server).await?.with(ask).await
            })?;
            output::print(&if options.json {
                json_lines(&landed)
            } else {
                landed.iter().map(landed_line).collect()
            });
            Ok(ExitCode::SUCCESS)
        }
        Action::Verify(options) => {
            let ask = async |connection: &mut DataConnection| {
                let mut reports = Vec::new();
                for table in tables_to_use(connection.client(), &options.tables).await? {
                    // A table that cannot be compared does not keep the others from being compared.
                    let report = verify(config, connection.client(), &table).await;
                    reports.push(report.unwrap_or_else(|error| failure_report(&table, &error)));
                }
                Ok(reports)
            };
            let reports = super::block_on(async {
                DataConnection::open(config, &options.server).await?.with(ask).await
            })?;
            output::print(&if options.json {
                json_lines(&reports)
            } else {
                reports.iter().map(comparison_report).collect()
            });
            let equal = reports.iter().all(|report| report["equal"] == Value::Bool(true));
            Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn status(config: &Config, options: &Status) -> Result<ExitCode> {
    let names: Vec<String> = options.table.clone().into_iter().collect();
    let ask = async |connection: &mut DataConnection| {
        let mut all = Vec::new();
        for table in tables_to_use(connection.client(), &names).await? {
            all.push(listing::status(connection.client(), &table).await?);
        }
        Ok(all)
    };
    let all =
        super::block_on(async { DataConnection::open(config, &options.server).await?.with(ask).await })?;
    output::print(&if options.json { json_lines(&all) } else { listing::status_table(&all) });
    Ok(ExitCode::SUCCESS)
}

/// Returns the named tables, or all tables that have a lake if none is named.
async fn tables_to_use(client: &mut HttpClient, names: &[String]) -> Result<Vec<String>> {
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
async fn land(client: &mut HttpClient, table: &str) -> Result<Value> {
    let path = format!("/v1/tables/{}/commit?deadline_ms=600000", escaped(table));
    client.json(Method::POST, &path, None).await
}

fn json_lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn landed_line(landed: &Value) -> String {
    let file = landed["metadata"].as_str().map(|path| format!(", {path}")).unwrap_or_default();
    let line = format!(
        "{}: {} in {} up to row {}, lsn {}{file}\n",
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
async fn verify(config: &Config, client: &mut HttpClient, table: &str) -> Result<Value> {
    for _ in 0..ROUNDS {
        let landed = land(client, table).await?;
        let file = metadata_file(&landed)?;
        let (row, found, [files, unknown]) = match digest_lake(config, table, &file, u64::MAX).await {
            Err(error) if error.kind() == Kind::Damaged => {
                return Err(with_damaged_files(config, table, &file, error).await);
            }
            found => found?,
        };
        let expected = digest_sql(client, table, row).await?;
        let differences = found.differences(&expected, ["the lake", "SQL"]);
        if !differences.is_empty() {
            // A row that was deleted between the two readings is in only one of them. Then the lake changes too at its next
            // commit, and the comparison is repeated.
            let file = metadata_file(&land(client, table).await?)?;
            if digest_lake(config, table, &file, row).await?.1 != found {
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
struct MetadataFile {
    dir: PathBuf,
    name: String,
}

fn metadata_file(landed: &Value) -> Result<MetadataFile> {
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
        (Some(dir), Some(name)) => Ok(MetadataFile { dir: dir.to_owned(), name: name.to_owned() }),
        _ => Err(Error::internal(format!("`{}` is not the name of a metadata file", path.display()))),
    }
}

/// Replaces the error that ended a reading of the lake by one that names all damaged files, if they can be found.
async fn with_damaged_files(config: &Config, table: &str, file: &MetadataFile, error: Error) -> Error {
    let compare = |reader: &Reader| reader.compare_files().map(|found| found.damaged);
    match read_lake(config, table, file, compare).await {
        Ok(damaged) if !damaged.is_empty() => {
            let count = counted(damaged.len() as u64, "file");
            Error::damaged(format!("{count} of the lake: {}", damaged.join("; ")))
                .hint("put them back from a copy of the lake; this does not affect rows on this machine")
        }
        _ => error,
    }
}

/// Digests the rows up to `last` in the lake's files. Returns the last row in the lake, the digest, the number of files, and
/// the number of files without a recorded checksum.
async fn digest_lake(
    config: &Config,
    table: &str,
    file: &MetadataFile,
    last: u64,
) -> Result<(u64, Digest, [usize; 2])> {
    let read = move |reader: &Reader| {
        let mut digest = Digest::of_columns(reader.schema());
        reader.read(&mut |batch| digest.add(&batch, last))?;
        Ok((reader.row.0, digest, reader.files_without_checksums().into()))
    };
    read_lake(config, table, file, read).await
}

async fn read_lake<T: Send + 'static>(
    config: &Config,
    table: &str,
    file: &MetadataFile,
    read: impl FnOnce(&Reader) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (config, file, table) = (config.clone(), file.clone(), types::name::full_table_name(table)?);
    let read = move || read(&open_reader(&config, &table, &file)?);
    let joined = tokio::task::spawn_blocking(read).await;
    joined.map_err(|error| Error::internal("reading the lake failed").caused_by(error))?
}

fn open_reader(config: &Config, full_name: &str, file: &MetadataFile) -> Result<Reader> {
    let (store, dir) = match file.dir.to_str().filter(|dir| dir.contains("://")) {
        None => (Store::local(&Env::real()), file.dir.clone()),
        Some(uri) => match warehouse::open_in_catalog(config, full_name)? {
            Some(reader) => return Ok(reader),
            None => (warehouse::open_store(config, uri)?, PathBuf::new()),
        },
    };
    Reader::open_file(&store, &dir, &file.name).map_err(|error| match error.kind() {
        Kind::Io => {
            error.hint("the files of the lake are read directly: verify on the machine of the server")
        }
        _ => error,
    })
}

/// Digests the rows up to `last` as SQL returns them.
async fn digest_sql(client: &mut HttpClient, table: &str, last: u64) -> Result<Digest> {
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
        let broken = |error| Error::internal("the answer is not an Arrow stream").caused_by(error);
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

fn failure_report(table: &str, error: &Error) -> Value {
    json!({ "table": table, "equal": false, "error": error.to_string() })
}

fn files_line(files: u64, unknown: u64) -> String {
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
fn comparison_report(report: &Value) -> String {
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
            files_line(number(&report["files"]), number(&report["files_without_checksums"])),
        ),
        false => {
            let differences = report["differences"].as_array().map(Vec::as_slice).unwrap_or_default();
            let lines = differences.iter().filter_map(Value::as_str).map(|line| format!("  {line}\n"));
            format!("{table}: DIFFERENT\n{}", lines.collect::<String>())
        }
    };
    output::visible(&text).into_owned()
}
