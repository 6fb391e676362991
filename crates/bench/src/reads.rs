//! `polynya bench reads`: point reads alone, beside a writer that saturates the log, and beside clients that continuously run
//! heavy SQL.
//!
//! Demonstrates R1 (voluntary context switches per warm read, alone and beside the writer) and R3 (p99 beside heavy SQL at most
//! the larger of twice the p99 alone and 2 ms). Runs alone and beside other load are interleaved.

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::Result;

use crate::ProgressSink;
use crate::ab::{self, Comparison, ComparisonSide};
pub use crate::dataset::ReadMethod;
use crate::dataset::{Dataset, HeavyStatements, PointReads};
use crate::events::Pool;
use crate::http::HttpClient;
use crate::ingest::{Ack, Writer};
use crate::load::{BusyPolicy, Load, LoadStream};
use crate::pace::Pace;
use crate::random::Random;
use crate::report::{Claim, Report};
use crate::run::{BenchRun, Timing};
use crate::target::LoadTarget;

#[derive(Clone, Debug)]
pub struct Options {
    pub target: LoadTarget,
    pub method: ReadMethod,
    /// Rows of the table under test, which the workload creates and drops at the end.
    pub rows: u64,
    pub table: String,
    /// Number of connections that read.
    pub connections: usize,
    /// Reads per second in the open loop that measures latency.
    pub rate: f64,
    /// Number of connections that continuously write batches of 100 events into `{table}_writes`.
    pub writers: usize,
    /// Number of clients that continuously run heavy SQL; 0 skips that part.
    pub heavy: usize,
    /// Number of pairs of a run alone and a run beside other load.
    pub pairs: usize,
    pub timing: Timing,
    pub seed: u64,
}

impl Options {
    pub fn new(target: LoadTarget) -> Options {
        Options {
            target,
            method: ReadMethod::Key,
            rows: 100_000,
            table: "bench_reads".into(),
            connections: 8,
            rate: 1000.0,
            writers: 8,
            heavy: 4,
            pairs: 2,
            timing: Timing { warm: std::time::Duration::from_secs(1), ..Timing::default() },
            seed: 1,
        }
    }
}

/// Runs the workload. Failures of the load are in the report; an error means that the measurement was impossible.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let report = Report::new("reads", options.seed);
    measure(options, report, progress)
}

/// Runs the workload of `reads` and `sql_small`, which differ in the way a row is read and in the claims.
pub(crate) fn measure(options: &Options, mut report: Report, progress: ProgressSink<'_>) -> Result<Report> {
    describe(options, &mut report);
    let mut client = HttpClient::new(&options.target);
    progress(&format!("loading {} rows into {}", options.rows, options.table));
    let data = Dataset::load(&mut client, &options.table, options.rows, options.seed)?;
    report.work_hash = data.hash.clone();
    let bench =
        ReadBench { options, data: &data, client: RefCell::new(&mut client), runs: RefCell::new(Vec::new()) };
    let measured = bench.run_all(progress);
    let runs = bench.runs.into_inner();
    let healthy = runs.iter().all(|run| run.failures.is_empty());
    report.runs = runs;
    match measured {
        Ok((comparisons, claims)) => {
            report.comparisons = comparisons;
            report.claims = claims;
        }
        // A failed run ends the comparison; the report names the run and the reason.
        Err(_) if !healthy => {}
        Err(error) => return Err(error),
    }
    if healthy {
        data.drop(&mut client)?;
        let writes = write_table(options);
        if crate::wire::exists(&mut client, &writes)? {
            client.json("DELETE", &format!("/v1/tables/{writes}"), None)?;
        }
    }
    Ok(report)
}

struct ReadBench<'a> {
    options: &'a Options,
    data: &'a Dataset,
    client: RefCell<&'a mut HttpClient>,
    runs: RefCell<Vec<BenchRun>>,
}

#[derive(Clone, Copy, PartialEq)]
enum ConcurrentLoad {
    None,
    Writer,
    HeavySql,
}

impl ReadBench<'_> {
    fn run_all(&self, progress: ProgressSink<'_>) -> Result<(Vec<Comparison>, Vec<Claim>)> {
        let options = self.options;
        progress("reads: as fast as possible");
        self.run_once("closed loop, alone", Pace::Closed, ConcurrentLoad::None)?;
        let (mut comparisons, mut claims) = (Vec::new(), Vec::new());
        if options.writers > 0 {
            progress(&format!("reads: {}/s alone and beside {} writers", options.rate, options.writers));
            comparisons.extend(self.pairs("beside a saturating writer", ConcurrentLoad::Writer)?);
        }
        if options.heavy > 0 {
            progress(&format!(
                "reads: {}/s alone and beside {} clients of heavy SQL",
                options.rate, options.heavy
            ));
            let compared = self.pairs("beside heavy SQL", ConcurrentLoad::HeavySql)?;
            claims.extend(compared.iter().filter(|compared| compared.figure == "p99_ms").map(r3));
            comparisons.extend(compared);
        }
        Ok((comparisons, claims))
    }

    fn pairs(&self, b_name: &str, concurrent: ConcurrentLoad) -> Result<Vec<Comparison>> {
        let pace = Pace::Open { per_second: self.options.rate };
        ab::compare("alone", b_name, self.options.pairs.max(1), |side| match side {
            ComparisonSide::A => self.run_once("alone", pace, ConcurrentLoad::None),
            ComparisonSide::B => self.run_once(b_name, pace, concurrent),
        })
    }

    /// Makes one run and returns its figures for the comparison. A failed run is an error here and stays among the runs.
    fn run_once(&self, name: &str, pace: Pace, concurrent: ConcurrentLoad) -> Result<BTreeMap<String, f64>> {
        let options = self.options;
        let reads = LoadStream::new("reads", options.connections, pace, |thread| {
            let mut random = Random::part(options.seed, 1000 + thread as u64);
            Box::new(PointReads::new(&options.target, self.data, options.method, &mut random))
        });
        let mut load = Load::new(&options.target, options.timing).stream(reads);
        let mut writer = None;
        match concurrent {
            ConcurrentLoad::None => {}
            ConcurrentLoad::Writer => {
                let pool = Pool::new(options.seed, 64, 100)?;
                let table = write_table(options);
                let made =
                    Writer::new(&options.target, &pool, &table, Ack::Durable, &mut self.client.borrow_mut())?;
                load = load.stream(made.stream("writes", options.writers, Pace::Closed));
                writer = Some(made);
            }
            ConcurrentLoad::HeavySql => {
                // Statements must differ from run to run, or a result cache could answer them.
                let seed = options.seed ^ ((self.runs.borrow().len() as u64) << 32);
                let heavy = LoadStream::new("heavy SQL", options.heavy, Pace::Closed, move |thread| {
                    let random = Random::part(seed, 2000 + thread as u64);
                    Box::new(HeavyStatements::new(&options.target, self.data, random))
                });
                load = load.stream(heavy.busy(BusyPolicy::Rest));
            }
        }
        let mut run = load.run(name)?;
        if let Some(writer) = writer {
            let acknowledged = run.stream("writes").units_in_all;
            writer.check(acknowledged, &mut self.client.borrow_mut(), &mut run);
        }
        if concurrent == ConcurrentLoad::HeavySql
            && run.failures.is_empty()
            && run.stream("heavy SQL").units_in_all == 0
        {
            run.failures.push("no heavy statement was answered, so nothing was beside the reads".into());
        }
        let figures = figures(&run);
        let failed = run.failures.first().cloned();
        self.runs.borrow_mut().push(run);
        match failed {
            Some(why) => Err(types::Error::invalid(why)),
            None => Ok(figures),
        }
    }
}

fn figures(run: &BenchRun) -> BTreeMap<String, f64> {
    let reads = run.stream("reads");
    let mut figures = BTreeMap::from([
        ("p50_ms".to_string(), reads.warm.p50_ms),
        ("p99_ms".to_string(), reads.warm.p99_ms),
        ("p999_ms".to_string(), reads.warm.p999_ms),
        ("longest_ms".to_string(), reads.warm.longest_ms),
        ("reads_per_s".to_string(), reads.operations_per_second),
        ("sleeper_p99_ms".to_string(), run.hiccups.late.p99_ms),
    ]);
    if let Some(server) = &run.server {
        let per_read = server.voluntary_switches as f64 / reads.operations.max(1) as f64;
        figures.insert("voluntary_switches_per_read".into(), per_read);
    }
    figures
}

/// Judges R3 by the medians of interleaved runs.
fn r3(p99: &Comparison) -> Claim {
    let (alone, beside) = (p99.a.median, p99.b.median);
    Claim {
        claim: "R3: p99 of reads beside heavy SQL is at most the larger of twice alone and 2 ms".into(),
        holds: beside <= (2.0 * alone).max(2.0),
        found: format!("{alone:.3} ms alone, {beside:.3} ms beside"),
    }
}

fn write_table(options: &Options) -> String {
    format!("{}_writes", options.table)
}

fn describe(options: &Options, report: &mut Report) {
    report.set("by", format!("{:?}", options.method));
    report.set("rows", options.rows);
    report.set("connections", options.connections);
    report.set("rate", format!("{}/s", options.rate));
    report.set("writers", options.writers);
    report.set("heavy SQL clients", options.heavy);
    report.set("pairs", options.pairs);
    report.set("warm", format!("{:?}", options.timing.warm));
    report.set("measure", format!("{:?}", options.timing.measure));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::Spread;

    #[test]
    fn r3_allows_twice_alone_or_two_milliseconds() {
        let claim = |alone: f64, beside: f64| {
            r3(&Comparison {
                a: Spread::of(vec![alone]),
                b: Spread::of(vec![beside]),
                ..Comparison::default()
            })
            .holds
        };
        assert!(claim(0.1, 1.9));
        assert!(!claim(0.1, 2.1));
        assert!(claim(3.0, 5.9));
        assert!(!claim(3.0, 6.1));
    }
}
