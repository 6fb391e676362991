//! Runs other databases beside Polynya in the harness of `polynya-bench`: SQLite, and motedb with the feature of that name.
//!
//! - `tables` and `freeze`: the workloads of `polynya bench`, all databases in turns within one run, answers compared.
//! - `queries`: generated SQL whose answers must equal SQLite's.
//!
//! `bin/decoders.rs` is another program: it compares our JSON decoder with others, and is built without the dependencies of this
//! one.
//!
//! The crate is never shipped and is not a default member of the workspace: `cargo run --release -p polynya-compare -- tables`.

#![forbid(unsafe_code)]

#[cfg(feature = "motedb")]
mod motedb_peer;
mod queries;
mod sqlite;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::peer::{Peer, Polynya};
use bench::{Report, freeze, tables};
use clap::{Args, Parser, Subcommand};
use types::Result;

#[derive(Parser)]
#[command(about = "Polynya beside SQLite, and beside motedb if built with `--features motedb`")]
struct Command {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// One table: lookups, ranges, aggregates, scans, inserts
    Tables {
        #[command(flatten)]
        measuring: MeasureOptions,
        /// Restrict the rows to those whose name has one of these parts
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        #[arg(long)]
        rows: Option<u64>,
        #[arg(long)]
        lookup_rows: Option<u64>,
        /// Measure settled data: Polynya's rows in segments, SQLite's file analysed and checkpointed
        #[arg(long)]
        sealed: bool,
    },
    /// Readers of twelve databases while all of them build indexes
    Freeze {
        #[command(flatten)]
        measuring: MeasureOptions,
        /// Seconds of a round
        #[arg(long)]
        measure: Option<f64>,
        #[arg(long)]
        rows: Option<u64>,
        #[arg(long)]
        databases: Option<usize>,
    },
    /// Generated SQL: Polynya's answers against SQLite's
    Queries(queries::Options),
}

#[derive(Args)]
struct MeasureOptions {
    /// Parent directory of the databases; it should be on the disk to be measured
    #[arg(long, default_value = ".", value_name = "DIR")]
    root: PathBuf,
    /// Number of repetitions of each measurement
    #[arg(long)]
    repeat: Option<usize>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out these databases
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Print JSON instead of Markdown
    #[arg(long)]
    json: bool,
}

impl MeasureOptions {
    fn peers(&self) -> Vec<&'static dyn Peer> {
        let all: Vec<&'static dyn Peer> = vec![
            &Polynya,
            &sqlite::Sqlite,
            #[cfg(feature = "motedb")]
            &motedb_peer::Motedb,
        ];
        all.into_iter().filter(|peer| !self.without.iter().any(|name| name == peer.name())).collect()
    }
}

fn main() -> ExitCode {
    match run(Command::parse().workload) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("polynya-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(workload: Workload) -> Result<ExitCode> {
    let progress: bench::ProgressSink<'_> = &mut |line| eprintln!("{line}");
    match workload {
        Workload::Tables { measuring, only, rows, lookup_rows, sealed } => {
            let mut options = tables::Options::new(&measuring.root);
            options.only = only;
            options.sealed = sealed;
            options.seed = measuring.seed;
            options.repeat = measuring.repeat.unwrap_or(options.repeat);
            options.rows = rows.unwrap_or(options.rows);
            options.lookup_rows = lookup_rows.unwrap_or(options.lookup_rows);
            let report = tables::run(&options, &measuring.peers(), progress)?;
            Ok(print(&measuring, &report))
        }
        Workload::Freeze { measuring, measure, rows, databases } => {
            let mut options = freeze::Options::new(&measuring.root);
            options.seed = measuring.seed;
            options.pairs = measuring.repeat.unwrap_or(options.pairs);
            options.rows = rows.unwrap_or(options.rows);
            options.databases = databases.unwrap_or(options.databases);
            if let Some(seconds) = measure {
                options.timing.measure = Duration::from_secs_f64(seconds);
            }
            let report = freeze::run(&options, &measuring.peers(), progress)?;
            Ok(print(&measuring, &report))
        }
        Workload::Queries(options) => queries::run(&options, progress),
    }
}

fn print(measuring: &MeasureOptions, report: &Report) -> ExitCode {
    println!("{}", if measuring.json { report.to_json() } else { report.to_markdown() });
    match report.verdict() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("polynya-compare: {error}");
            ExitCode::FAILURE
        }
    }
}
