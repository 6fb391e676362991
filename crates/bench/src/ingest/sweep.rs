//! `polynya bench ingest --full`: measures every goal of ingest in one command.
//!
//! Each part has a server and a directory of its own, so that no part pays for leftovers of another: running seals and
//! compactions, files to remove. A part that fails is reported, and the others are measured all the same.

use std::time::Duration;

use types::{Error, Result};

use super::goals;
use super::{CONNECTIONS, Options as Ingest};
use crate::ProgressSink;
use crate::child::{self, Home};
use crate::pace::Pace;
use crate::report::{Claim, Report};
use crate::run::{BenchRun, Timing};
use crate::target::LoadTarget;

#[derive(Clone, Debug)]
pub struct Options {
    pub child: child::Options,
    pub connections: Vec<usize>,
    /// Events per request of the bulk parts.
    pub batch: usize,
    pub timing: Timing,
    pub seed: u64,
    pub pool_events: usize,
    pub threads: usize,
    /// Rest between two parts.
    pub settle: Duration,
}

impl Options {
    pub fn new(child: child::Options) -> Options {
        let like = Ingest::new(LoadTarget::new("127.0.0.1:1").expect("loopback"));
        Options {
            child,
            connections: CONNECTIONS.to_vec(),
            batch: like.batch,
            timing: like.timing,
            seed: like.seed,
            pool_events: like.pool_events,
            threads: like.threads,
            settle: Duration::from_secs(2),
        }
    }

    /// Builds the options of one part.
    fn ingest_options(&self, target: LoadTarget, batch: usize, rate: Option<f64>) -> Ingest {
        Ingest {
            batch,
            rate,
            timing: self.timing,
            seed: self.seed,
            pool_events: self.pool_events,
            threads: self.threads,
            ..Ingest::new(target)
        }
    }
}

struct SweepPart {
    name: String,
    connections: usize,
    batch: usize,
    rate: Option<f64>,
    /// Milliseconds added to each fsync.
    delay_ms: u64,
}

/// Measures all parts. The goals, the results and their verdicts are the report's claims.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("ingest, everything wanted", options.seed);
    let pool = options.ingest_options(LoadTarget::new("127.0.0.1:1")?, options.batch, None).pool()?;
    report.work_hash = pool.hash().to_owned();
    report.set("batch", options.batch);
    report.set("connections", format!("{:?}", options.connections));
    report.set("warm", format!("{:?}", options.timing.warm));
    report.set("measure", format!("{:?}", options.timing.measure));
    report.set("pool", format!("{} events of {:.1} bytes", options.pool_events, pool.bytes_per_event()));
    let mut sweep = Sweep { options, progress, runs: Vec::new(), failures: Vec::new() };
    let claims = sweep.run_all();
    let (single, bulk): (Vec<BenchRun>, Vec<BenchRun>) =
        sweep.runs.iter().cloned().partition(|run| run.name == SINGLE);
    report.sheets.push(goals::sheet("In bulk, each part with a server of its own", &bulk));
    report.sheets.push(goals::sheet("Single events, likewise", &single));
    (report.runs, report.failures, report.claims) = (sweep.runs, sweep.failures, claims);
    Ok(report)
}

struct Sweep<'a, 'p> {
    options: &'a Options,
    progress: ProgressSink<'p>,
    runs: Vec<BenchRun>,
    failures: Vec<String>,
}

impl Sweep<'_, '_> {
    fn run_all(&mut self) -> Vec<Claim> {
        let batch = self.options.batch;
        let bulk = self.closed_loops("bulk", batch);
        let mut claims = goals::judge_closed_loops(batch, &bulk);
        if let Some(best) = goals::best(&bulk) {
            let rate = (goals::events_per_s(best) * goals::OPEN_SHARE).max(1.0).floor();
            let open = SweepPart {
                name: format!("open loop, {:.0} %", goals::OPEN_SHARE * 100.0),
                connections: best.stream("events").connections,
                batch,
                rate: Some(rate),
                delay_ms: 0,
            };
            claims.extend(self.measure(&open).map(|run| goals::judge_open_loop(&run)));
        }
        let singles = self.closed_loops(SINGLE, 1);
        claims.extend(goals::judge_closed_loops(1, &singles));
        // The largest number of connections stands in for 500 if those were not measured.
        let many = bulk
            .iter()
            .find(|run| run.stream("events").connections == goals::MANY_CONNECTIONS)
            .or(bulk.last());
        if let Some(many) = many {
            for delay_ms in goals::DELAYS_MS {
                let delayed = SweepPart {
                    name: format!("bulk, fsync + {delay_ms} ms"),
                    connections: many.stream("events").connections,
                    batch,
                    rate: None,
                    delay_ms,
                };
                claims.extend(self.measure(&delayed).map(|run| goals::judge_delay(delay_ms, &run, many)));
            }
        }
        claims
    }

    fn closed_loops(&mut self, name: &str, batch: usize) -> Vec<BenchRun> {
        let each = |connections: &usize| SweepPart {
            name: name.to_owned(),
            connections: *connections,
            batch,
            rate: None,
            delay_ms: 0,
        };
        let parts: Vec<SweepPart> = self.options.connections.iter().map(each).collect();
        parts.iter().filter_map(|part| self.measure(part)).collect()
    }

    /// Measures one part. Returns `None` if it failed; the failure is recorded.
    fn measure(&mut self, part: &SweepPart) -> Option<BenchRun> {
        let pace = match part.rate {
            Some(per_second) => Pace::Open { per_second }.describe(),
            None => Pace::Closed.describe(),
        };
        (self.progress)(&format!("ingest: {}, {} connections, {pace}", part.name, part.connections));
        if !self.runs.is_empty() {
            std::thread::sleep(self.options.settle);
        }
        match measure(self.options, part) {
            Ok(mut run) => {
                run.name.clone_from(&part.name);
                let line = format!("  {} events/s", crate::markdown::thousands(goals::events_per_s(&run)));
                (self.progress)(&line);
                self.runs.push(run.clone());
                run.failures.is_empty().then_some(run)
            }
            Err(error) => {
                self.failures.push(format!("{}, {} connections: {error}", part.name, part.connections));
                None
            }
        }
    }
}

fn measure(options: &Options, part: &SweepPart) -> Result<BenchRun> {
    let mut child = options.child.clone();
    if part.delay_ms > 0 {
        child.env.retain(|(name, _)| name != SYNC_DELAY);
        child.env.push((SYNC_DELAY.into(), format!("{} ms", part.delay_ms)));
    }
    let mut home = Home::new(child)?;
    let mut server = home.start()?;
    let ingest = options.ingest_options(server.target().clone(), part.batch, part.rate);
    let run = super::run_once(&ingest, part.connections)?;
    server.stop(options.child.stop_within).map_err(|error: Error| error.with("part", &part.name))?;
    Ok(run)
}

const SINGLE: &str = "single";
const SYNC_DELAY: &str = "POLYNYA_BENCH_SYNC_DELAY";
