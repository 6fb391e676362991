//! `polynya doctor DIR`: examines a data directory or a backup, also while a server has the directory open.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use indicatif::ProgressBar;
use serde_json::Value;
use types::{Error, Kind, Result};
use vfs::Env;

use crate::client::HttpClient;
use crate::config::Config;
use crate::doctor::{self, Examination, Severity};
use crate::job;
use crate::output::{self, Table};
use crate::remote;
use crate::units::{ByteSize, counted, grouped};

#[derive(Debug, Args)]
#[command(
    long_about = "Check every checksum and invariant of a data directory: the log, the manifest, every segment, the order \
                  of row ids, deletes, keys, counts, and that all referenced files exist. Changes nothing. A running server \
                  examines its own directory at the lowest priority, beside its readers and writers.\n\nA backup is \
                  recognised: every file is compared with its checksum, as a restore does, and every row is checked; nothing is \
                  written into it.\n\nExit code 0: sound. 1: damage was found. 2: the directory could not be checked.",
    after_help = "Examples:\n  polynya doctor                       check ./polynya-data\n  polynya doctor /mnt/copy/polynya     \
                  check a copy\n  polynya doctor /mnt/backups/monday   check a backup\n  polynya doctor --json | jq .findings"
)]
pub struct Options {
    /// Data directory or backup [default: the data directory of the settings]
    dir: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let dir = options.dir.as_ref().unwrap_or(&config.server.data);
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let started = Instant::now();
    let show = |what: &str| bar.set_message(format!("checking {what}"));
    let examined = match remote::uri(dir) {
        Some(uri) => Err(Error::invalid(format!("{uri} is not a folder on this machine"))
            .hint(format!("`polynya restore {uri} NEW_DIRECTORY` compares every file of a backup"))),
        None => doctor::examine(&Env::real(), dir, warehouse(config, dir).as_deref(), &mut |what| show(what)),
    };
    let outcome = match examined {
        Err(error) if error.kind() == Kind::InUse => {
            examine_by_server(dir, &show).map_err(|asked| match asked.kind() {
                // A program that uses the library has the directory open, and has no control socket.
                Kind::Closed => error,
                _ => asked,
            })
        }
        outcome => outcome,
    };
    bar.finish_and_clear();
    let examination = match outcome {
        Ok(examination) => examination,
        Err(error) => {
            eprintln!("polynya: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    if options.json {
        let mut value = serde_json::to_value(&examination).unwrap_or_default();
        value["sound"] = examination.is_sound().into();
        output::print(&format!("{value}\n"));
    } else {
        output::print(&report(&examination, started.elapsed()));
    }
    Ok(if examination.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the directory of the lakes of a data directory; `None` if they are in an object store or a catalog.
fn warehouse(config: &Config, dir: &Path) -> Option<PathBuf> {
    let warehouse = Path::new(&config.lake.warehouse);
    let is_elsewhere = !config.lake.catalog.is_empty() || remote::uri(warehouse).is_some();
    let path = if config.lake.warehouse.is_empty() { dir.join("lake") } else { warehouse.to_owned() };
    (!is_elsewhere).then_some(path)
}

/// Asks the process that has the directory open to examine it.
fn examine_by_server(dir: &Path, show: &dyn Fn(&str)) -> Result<Examination> {
    let found = super::block_on(async {
        let mut client = HttpClient::socket(dir);
        let tell = &mut |told: &Value| show(told.as_str().unwrap_or_default());
        job::run(&mut client, Method::POST, "/examinations", &Value::Null, tell).await
    })?;
    serde_json::from_value(found)
        .map_err(|error| Error::internal("the server's findings cannot be read").caused_by(error))
}

fn report(examination: &Examination, took: Duration) -> String {
    let mut table = Table::new(["table", "rows", "deleted", "segments", "bytes", "rows in the log"])
        .right(|title| title != "table");
    for report in &examination.tables {
        table.push([
            types::name::short_table_name(&report.name).to_owned(),
            grouped(report.rows),
            grouped(report.deleted),
            grouped(report.segments as u64),
            ByteSize(report.segment_bytes).to_string(),
            grouped(report.head_rows),
        ]);
    }
    let mut out = table.render();
    for finding in &examination.findings {
        let mark = match finding.severity {
            Severity::Damage => "DAMAGE",
            Severity::Note => "note",
        };
        out += &format!("{mark}: {}\n", finding.what);
    }
    let damages = examination.findings.iter().filter(|f| f.severity == Severity::Damage).count() as u64;
    let verdict = match (damages, examination.backup) {
        (0, false) => "Sound".to_owned(),
        (0, true) => "This is a backup, and it is sound".to_owned(),
        (count, false) => format!("{} found", counted(count, "damage")),
        (count, true) => format!("This is a backup, and {} found in it", counted(count, "damage")),
    };
    let size = if examination.backup {
        ByteSize(examination.tables.iter().map(|table| table.segment_bytes).sum()).to_string()
    } else {
        format!("{} of log", ByteSize(examination.log_bytes))
    };
    out += &format!(
        "{verdict}: lsn {}, {} in {}, {size}, {}, checked in {:.1} s\n",
        examination.lsn,
        counted(examination.tables.iter().map(|t| t.rows).sum(), "row"),
        counted(examination.tables.len() as u64, "table"),
        counted(examination.keys as u64, "key"),
        took.as_secs_f64()
    );
    out
}
