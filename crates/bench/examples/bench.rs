//! Runs the workloads from the command line, to measure a server without the `polynya` binary:
//! `cargo run --release -p polynya-bench --example bench -- ingest 127.0.0.1:8484 --pid 4711 --data polynya-data`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use polynya_bench::{LoadTarget, Report, Timing, child, ingest, kill9, reads, sql_small};
use types::Result;

#[derive(Parser)]
struct Command {
    #[command(subcommand)]
    workload: Workload,
    /// Print the report as JSON instead of Markdown.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Workload {
    /// Insert batches of events as fast as they are acknowledged, or at a rate.
    Ingest {
        #[command(flatten)]
        server: ServerArgs,
        #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 50, 500])]
        connections: Vec<usize>,
        /// Events per request.
        #[arg(long, default_value_t = 100)]
        batch: usize,
        /// Events per second; without it, as fast as possible.
        #[arg(long)]
        rate: Option<f64>,
        #[arg(long, default_value = "bench_events")]
        table: String,
        /// Acknowledge rows before they are durable.
        #[arg(long)]
        memory: bool,
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// A second server; both are measured, interleaved.
        #[arg(long)]
        against: Option<String>,
        /// Pairs of runs in a comparison.
        #[arg(long, default_value_t = 3)]
        pairs: usize,
    },
    /// Read single rows alone, beside a saturating writer and beside heavy SQL.
    Reads {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        reads: ReadsArgs,
        /// Read by row id instead of by key.
        #[arg(long)]
        row_id: bool,
    },
    /// Run small SQL statements, alone and beside a saturating writer.
    SqlSmall {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        reads: ReadsArgs,
        /// Aggregate a group of about 100 rows instead of reading one row.
        #[arg(long)]
        group: bool,
    },
    /// Kill a server under load, again and again; every acknowledged row must be there once.
    Kill9 {
        program: PathBuf,
        /// Arguments of the program instead of `serve --data {data} --listen {listen}`.
        #[arg(last = true)]
        args: Vec<String>,
        #[arg(long, default_value_t = 20)]
        rounds: usize,
        #[arg(long, default_value_t = 8)]
        clients: usize,
        #[arg(long, default_value_t = 20)]
        batch: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The parent of the data directory.
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
}

#[derive(Args)]
struct ServerArgs {
    /// `127.0.0.1:8484`, or `start:PROGRAM` to start `PROGRAM serve` for the run.
    server: String,
    /// The server's process id, for its CPU and writes.
    #[arg(long)]
    pid: Option<u32>,
    /// The server's data directory, in which fsync is measured.
    #[arg(long)]
    data: Option<PathBuf>,
    #[arg(long)]
    key: Option<String>,
    /// Seconds before the measurement.
    #[arg(long, default_value_t = 2.0)]
    warm: f64,
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 10.0)]
    measure: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct ReadsArgs {
    #[arg(long)]
    rows: Option<u64>,
    /// Reads per second.
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long)]
    connections: Option<usize>,
    #[arg(long)]
    writers: Option<usize>,
    /// Clients that run heavy SQL.
    #[arg(long)]
    heavy: Option<usize>,
    #[arg(long)]
    pairs: Option<usize>,
}

impl ServerArgs {
    fn timing(&self) -> Timing {
        let seconds = Duration::from_secs_f64;
        Timing { warm: seconds(self.warm), measure: seconds(self.measure), ..Timing::default() }
    }

    /// Returns the server, started if the address says so. It lives as long as the second value.
    fn target(&self) -> Result<(LoadTarget, Option<(child::ServerProcess, child::Home)>)> {
        if let Some(program) = self.server.strip_prefix("start:") {
            let mut home = child::Home::new(child::Options::new(program))?;
            let server = home.start()?;
            return Ok((server.target().clone(), Some((server, home))));
        }
        let mut target = LoadTarget::new(&self.server)?;
        target.pid = self.pid;
        target.data.clone_from(&self.data);
        target.key.clone_from(&self.key);
        Ok((target, None))
    }
}

impl ReadsArgs {
    fn apply(&self, server: &ServerArgs, options: reads::Options) -> reads::Options {
        reads::Options {
            rows: self.rows.unwrap_or(options.rows),
            rate: self.rate.unwrap_or(options.rate),
            connections: self.connections.unwrap_or(options.connections),
            writers: self.writers.unwrap_or(options.writers),
            heavy: self.heavy.unwrap_or(options.heavy),
            pairs: self.pairs.unwrap_or(options.pairs),
            timing: server.timing(),
            seed: server.seed,
            ..options
        }
    }
}

fn main() -> ExitCode {
    let command = Command::parse();
    let report = match run(command.workload) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", if command.json { report.to_json() } else { report.to_markdown() });
    match report.verdict() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(workload: Workload) -> Result<Report> {
    let mut progress = |line: &str| eprintln!("{line}");
    match workload {
        Workload::Ingest { server, connections, batch, rate, table, memory, threads, against, pairs } => {
            let (target, _started) = server.target()?;
            let options = ingest::Options {
                batch,
                rate,
                table,
                threads,
                connections,
                timing: server.timing(),
                seed: server.seed,
                ack: if memory { ingest::Ack::Memory } else { ingest::Ack::Durable },
                ..ingest::Options::new(target)
            };
            let Some(against) = against else { return ingest::run(&options, &mut progress) };
            let (target, _other) =
                ServerArgs { server: against, pid: None, data: None, key: server.key.clone(), ..server }
                    .target()?;
            let other = ingest::Options { target, ..options.clone() };
            let connections = options.connections.first().copied().unwrap_or(10);
            ingest::compare(("A", &options), ("B", &other), connections, pairs, &mut progress)
        }
        Workload::Reads { server, reads: wanted, row_id } => {
            let (target, _started) = server.target()?;
            let mut options = wanted.apply(&server, reads::Options::new(target));
            if row_id {
                options.method = reads::ReadMethod::RowId;
            }
            reads::run(&options, &mut progress)
        }
        Workload::SqlSmall { server, reads: wanted, group } => {
            let (target, _started) = server.target()?;
            let mut options = wanted.apply(&server, sql_small::options(target));
            if group {
                options.method = reads::ReadMethod::SqlGroup;
            }
            sql_small::run(&options, &mut progress)
        }
        Workload::Kill9 { program, args, rounds, clients, batch, seed, root } => {
            let mut child = child::Options::new(program);
            child.root = root;
            if !args.is_empty() {
                child.args = args;
            }
            let options = kill9::Options { rounds, clients, batch, seed, ..kill9::Options::new(child) };
            kill9::run(&options, &mut progress)
        }
    }
}
