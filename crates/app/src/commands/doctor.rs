//! `polynya doctor DIR`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use types::Result;
use vfs::Env;

use crate::config::Config;
use crate::doctor::{self, Examination, Severity};
use crate::output::{self, Table};
use crate::units::{ByteSize, counted, grouped};

#[derive(Debug, Args)]
#[command(
    long_about = "Check every checksum and invariant of a data directory: the log, the manifest, every segment, the order \
                  of row ids, deletes, keys, counts, and that everything named exists. Changes nothing. The directory \
                  must not be open: stop its server or check a copy.\n\nExit code 0: sound. 1: damage was found. 2: it \
                  could not be checked.",
    after_help = "Examples:\n  polynya doctor                    check ./polynya-data\n  polynya doctor /backup/polynya    \
                  check a copy\n  polynya doctor --json | jq .findings"
)]
pub struct Options {
    /// Data directory [default: that of the settings]
    dir: Option<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let dir = options.dir.as_ref().unwrap_or(&config.server.data);
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let started = Instant::now();
    let outcome = doctor::examine(&Env::real(), dir, &mut |what| bar.set_message(format!("checking {what}")));
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
    let verdict = match damages {
        0 => "Sound".to_owned(),
        count => format!("{} found", counted(count, "damage")),
    };
    out += &format!(
        "{verdict}: lsn {}, {} in {}, {} of log, {}, checked in {:.1} s\n",
        examination.lsn,
        counted(examination.tables.iter().map(|t| t.rows).sum(), "row"),
        counted(examination.tables.len() as u64, "table"),
        ByteSize(examination.log_bytes),
        counted(examination.keys as u64, "key"),
        took.as_secs_f64()
    );
    out
}
