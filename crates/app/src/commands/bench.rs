//! `polynya bench WORKLOAD`: runs one of the benchmarks and prints its report.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::peer::Polynya;
use bench::{
    LoadTarget, Report, child, freeze, ingest, kill9, lake_ingest, reads, soak, sql_small, tables, waits,
};
use clap::{Args, ValueEnum};
use types::{Error, Result};

use crate::config::Config;
use crate::output;
use crate::units::{ByteSize, Span};

#[derive(Debug, Args)]
#[command(
    long_about = "Measure this machine with Polynya on it. Starts a server of its own on a directory of its own (below \
                  --root, on the disk that matters) and removes both, unless --url names a running one. A run fails on \
                  any wrong answer, and when rows stored differ from rows acknowledged.",
    after_help = "Examples:\n  polynya bench ingest\n  polynya bench ingest --connections 1,50 --batch 1 --measure 5s\n  \
                  polynya bench ingest --sync-delay 10ms\n  polynya bench ingest --full --measure 60s\n  \
                  polynya bench lake --rate 500000 --measure 10m\n  polynya bench reads --json > reads.json\n  polynya bench freeze --measure 5s --repeat 2\n  polynya bench kill9 --rounds 20\n  \
                  polynya bench soak --measure 60m"
)]
pub struct Options {
    workload: Workload,
    /// Measure this running server of this machine
    #[arg(long, env = "POLYNYA_URL")]
    url: Option<String>,
    /// API key of that server
    #[arg(long, env = "POLYNYA_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Directory in which the own server's directory is made
    #[arg(long, default_value = ".", value_name = "DIR")]
    root: PathBuf,
    /// Number of connections; ingest takes several numbers, one run for each
    #[arg(long, value_delimiter = ',', value_parser = at_least_one)]
    connections: Vec<usize>,
    /// Events per request
    #[arg(long, value_parser = at_least_one)]
    batch: Option<usize>,
    /// Operations a second at even intervals, independent of the answers; for ingest and lake: events a second [default: as
    /// many as possible; lake: 500000]; for soak: a factor of its modest pace
    #[arg(long, value_parser = above_zero)]
    rate: Option<f64>,
    /// Duration of each measurement [default: 10s; lake: 10m; soak: 60m]
    #[arg(long, value_name = "TIME")]
    measure: Option<Span>,
    /// Delay added to each fsync of the own server's log, to simulate a slower disk
    #[arg(long, value_name = "TIME", conflicts_with = "url")]
    sync_delay: Option<Span>,
    /// Run all parts of ingest, each with a server of its own: all numbers of connections with large batches and with single
    /// events, an open loop, slower disks
    #[arg(long, conflicts_with_all = ["url", "batch", "rate", "sync_delay"])]
    full: bool,
    /// Run the own server without a lake
    #[arg(long, conflicts_with = "url")]
    without_lake: bool,
    /// Duration of lake's measurement without load before the run, over all its stretches; 0s: none
    #[arg(long, value_name = "TIME", default_value = "20s")]
    quiet: Span,
    /// Size of the newest rows of lake's table that stay in segments; older rows are only in the lake, which takes about half
    /// the disk space [default: all rows stay]
    #[arg(long, value_name = "SIZE")]
    hot: Option<ByteSize>,
    /// Do not remove lake's directory, so that other programs can read the table
    #[arg(long)]
    keep: bool,
    /// Number of times that the server is killed
    #[arg(long, default_value_t = 20, value_parser = at_least_one)]
    rounds: usize,
    /// Repetitions of each measurement of freeze and tables [default: 3 pairs, 7 times]
    #[arg(long, value_parser = at_least_one)]
    repeat: Option<usize>,
    /// Seed of the generated events
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of Markdown
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Ingest of events until they are acknowledged as durable
    Ingest,
    /// A steady stream of events for minutes with the lake on, then a check that the lake is right
    Lake,
    /// Point reads alone, beside writers and beside heavy SQL
    Reads,
    /// Small SQL statements alone and beside writers
    Sql,
    /// Proof that readers inside this process never wait for writers
    Waits,
    /// Readers of twelve databases of this process while all of them build indexes
    Freeze,
    /// Lookups, ranges, aggregates, scans and inserts on a table of this process
    Tables,
    /// Kill the server again and again under load; every acknowledged row must be there once
    Kill9,
    /// All kinds of work on tables at once, for an hour: memory, files and handles must not grow, every answer must be right
    Soak,
}

fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{text}` is not a whole number from 1 on"))
}

fn above_zero(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` is not a number above 0"))
}

pub fn run(_: &Config, options: &Options) -> Result<ExitCode> {
    let progress: bench::ProgressSink<'_> = &mut |line| eprintln!("{line}");
    let report = match options.workload {
        Workload::Kill9 => {
            let mut wanted = kill9::Options::new(own_server(options)?);
            wanted.rounds = options.rounds;
            wanted.seed = options.seed;
            if let Some(batch) = options.batch {
                wanted.batch = batch;
            }
            if let Some(clients) = options.connections.first() {
                wanted.clients = *clients;
            }
            kill9::run(&wanted, progress)?
        }
        Workload::Soak => {
            let wanted = soak::Options::new(end_with_parent(own_server(options)?));
            let mut wanted = match options.measure {
                Some(time) => wanted.lasting(time.0),
                None => wanted,
            };
            wanted.seed = options.seed;
            wanted.rate = options.rate.unwrap_or(wanted.rate);
            soak::run(&wanted, progress)?
        }
        Workload::Ingest if options.full => {
            let mut wanted = ingest::sweep::Options::new(end_with_parent(own_server(options)?));
            wanted.timing.measure = measure_time(options);
            wanted.seed = options.seed;
            if !options.connections.is_empty() {
                wanted.connections.clone_from(&options.connections);
            }
            ingest::sweep::run(&wanted, progress)?
        }
        Workload::Lake => {
            let mut wanted = lake_ingest::Options::new(end_with_parent(own_server(options)?));
            wanted.measure = options.measure.map_or(wanted.measure, |time| time.0);
            wanted.warm = wanted.warm.min(wanted.measure / 4);
            wanted.rate = options.rate.unwrap_or(wanted.rate);
            wanted.quiet = options.quiet.0;
            wanted.seed = options.seed;
            wanted.keep = options.keep;
            wanted.hot_bytes = options.hot.map(|size| size.0);
            wanted.batch = options.batch.unwrap_or(wanted.batch);
            wanted.connections = options.connections.first().copied().unwrap_or(wanted.connections);
            lake_ingest::run(&wanted, progress)?
        }
        Workload::Waits => {
            let mut wanted = waits::Options::new(&options.root);
            wanted.seed = options.seed;
            waits::run(&wanted, progress)?
        }
        Workload::Freeze => {
            let mut wanted = freeze::Options::new(&options.root);
            wanted.seed = options.seed;
            wanted.timing.measure = measure_time(options);
            wanted.pairs = options.repeat.unwrap_or(wanted.pairs);
            freeze::run(&wanted, &[&Polynya], progress)?
        }
        Workload::Tables => {
            let mut wanted = tables::Options::new(&options.root);
            wanted.seed = options.seed;
            wanted.repeat = options.repeat.unwrap_or(wanted.repeat);
            tables::run(&wanted, &[&Polynya], progress)?
        }
        _ => match &options.url {
            Some(url) => {
                let mut target = LoadTarget::new(url)?;
                if let Some(key) = &options.key {
                    target = target.key(key);
                }
                measure(options, target, progress)?
            }
            None => {
                let mut home = child::Home::new(own_server(options)?)?;
                let mut server = home.start()?;
                let report = measure(options, server.target().clone(), progress)?;
                server.stop(Duration::from_secs(30))?;
                report
            }
        },
    };
    print(options, &report)
}

fn measure(options: &Options, target: LoadTarget, progress: bench::ProgressSink<'_>) -> Result<Report> {
    let timing = bench::Timing { measure: measure_time(options), ..bench::Timing::default() };
    let by_reads = |mut wanted: reads::Options| {
        wanted.timing = timing;
        wanted.seed = options.seed;
        if let Some(connections) = options.connections.first() {
            wanted.connections = *connections;
        }
        if let Some(rate) = options.rate {
            wanted.rate = rate;
        }
        wanted
    };
    match options.workload {
        Workload::Reads => reads::run(&by_reads(reads::Options::new(target)), progress),
        Workload::Sql => sql_small::run(&by_reads(sql_small::options(target)), progress),
        _ => {
            let mut wanted = ingest::Options::new(target);
            wanted.timing = timing;
            wanted.seed = options.seed;
            wanted.rate = options.rate;
            if !options.connections.is_empty() {
                wanted.connections.clone_from(&options.connections);
            }
            if let Some(batch) = options.batch {
                wanted.batch = batch;
            }
            ingest::run(&wanted, progress)
        }
    }
}

fn measure_time(options: &Options) -> Duration {
    options.measure.map_or(Duration::from_secs(10), |time| time.0)
}

/// Returns the options to start this program as a server of its own.
fn own_server(options: &Options) -> Result<child::Options> {
    let program = std::env::current_exe().map_err(|error| Error::io("finding this program", error))?;
    let mut own = child::Options::new(program);
    own.root.clone_from(&options.root);
    own.env.push(("POLYNYA_LOG_LEVEL".into(), "warn".into()));
    if options.without_lake {
        own.env.push(("POLYNYA_LAKE".into(), "false".into()));
    }
    if let Some(delay) = options.sync_delay {
        own.env.push(("POLYNYA_BENCH_SYNC_DELAY".into(), delay.to_string()));
    }
    Ok(own)
}

/// Makes the server of a long run end with this process, even if this process is killed.
fn end_with_parent(mut child: child::Options) -> child::Options {
    child.args.insert(1, "--with-parent".into());
    child
}

fn print(options: &Options, report: &Report) -> Result<ExitCode> {
    output::print(&if options.json { report.to_json() + "\n" } else { report.to_markdown() });
    match report.verdict() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("polynya: {error}");
            Ok(ExitCode::FAILURE)
        }
    }
}
