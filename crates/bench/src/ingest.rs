//! `polynya bench ingest`: inserts events, waits for their acknowledgements and counts them.
//!
//! The load consists of batches of JSON events from a pool derived from a seed, at full speed or at a rate, over 1 to 500
//! connections. A run fails on any answer but 2xx, on an answer whose count is not that of the batch, and if the table afterwards
//! does not hold exactly the acknowledged rows. The report compares the results with the goals ([`goals`]); [`sweep`] measures
//! all of them, each part with a server of its own.

pub mod goals;
pub mod sweep;

use std::sync::Arc;
use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::ProgressSink;
use crate::ab::{self, ComparisonSide};
use crate::events::Pool;
use crate::http::{HttpClient, excerpt};
use crate::load::{self, Load, LoadStream, Payload, Request, Requests};
use crate::pace::Pace;
use crate::report::Report;
use crate::run::{BenchRun, Timing};
use crate::target::LoadTarget;
use crate::wire;

/// The promise of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// The rows are durable: they survive a crash.
    #[default]
    Durable,
    /// The server has accepted the rows; they become durable and visible shortly afterwards.
    Memory,
}

/// Numbers of connections to measure, from one producer to very many.
pub const CONNECTIONS: [usize; 6] = [1, 10, 50, 100, 200, 500];

#[derive(Clone, Debug)]
pub struct Options {
    pub target: LoadTarget,
    /// The numbers of connections, with one run for each.
    pub connections: Vec<usize>,
    /// Events per request; 1 sends single objects.
    pub batch: usize,
    /// Events per second over all connections; `None` sends as fast as answers come.
    pub rate: Option<f64>,
    pub timing: Timing,
    /// The table to insert into. If it is missing, the first insert creates it and the workload drops it at the end.
    pub table: String,
    pub ack: Ack,
    pub seed: u64,
    /// Number of different events in the pool, which is sent repeatedly.
    pub pool_events: usize,
    /// Number of threads that generate load. More than one pays only on machines with spare cores.
    pub threads: usize,
    /// Rest between runs, so that background work of one run does not slow the next.
    pub settle: Duration,
}

impl Options {
    /// Options for batches of 100, as fast as possible, over each of [`CONNECTIONS`].
    pub fn new(target: LoadTarget) -> Options {
        Options {
            target,
            connections: CONNECTIONS.to_vec(),
            batch: 100,
            rate: None,
            timing: Timing::default(),
            table: "bench_events".into(),
            ack: Ack::Durable,
            seed: 1,
            pool_events: 25_600,
            threads: 1,
            settle: Duration::from_secs(1),
        }
    }

    fn pool(&self) -> Result<Pool> {
        Pool::new(self.seed, self.pool_events.div_ceil(self.batch.max(1)).max(1), self.batch)
    }
}

/// Runs the workload. Failures of the load are in the report; an error means that the measurement was impossible.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("ingest", options.seed);
    let pool = options.pool()?;
    describe(options, &pool, &mut report);
    let mut client = HttpClient::new(&options.target);
    let was_there = wire::exists(&mut client, &options.table)?;
    for (index, connections) in options.connections.iter().enumerate() {
        if index > 0 {
            std::thread::sleep(options.settle);
        }
        progress(&format!("ingest: {connections} connections, {} events a request", options.batch));
        let run = measure(options, &pool, *connections, &mut client)?;
        let failed = !run.failures.is_empty();
        report.runs.push(run);
        // The rows of a failed run are evidence and stay.
        if failed {
            break;
        }
        // Rows of the previous run would only fill the disk, and their compaction would slow this run.
        if !was_there {
            client.json("DELETE", &format!("/v1/tables/{}", options.table), None)?;
        }
    }
    report.sheets.push(goals::sheet("What each number of connections came to", &report.runs));
    if options.rate.is_none() && report.failures().is_empty() {
        report.claims = goals::judge_closed_loops(options.batch, &report.runs);
    }
    Ok(report)
}

/// Makes one run over `connections` connections and checks its row count. Comparisons use it too.
pub fn run_once(options: &Options, connections: usize) -> Result<BenchRun> {
    measure(options, &options.pool()?, connections, &mut HttpClient::new(&options.target))
}

/// Compares two servers or two configurations, interleaved: `pairs` runs each over `connections` connections. The sides should
/// differ in one thing; the hashes of their work must be equal.
pub fn compare(
    a: (&str, &Options),
    b: (&str, &Options),
    connections: usize,
    pairs: usize,
    progress: ProgressSink<'_>,
) -> Result<Report> {
    let mut report = Report::new("ingest, compared", a.1.seed);
    let pools = (a.1.pool()?, b.1.pool()?);
    if pools.0.hash() != pools.1.hash() && a.1.batch == b.1.batch {
        return Err(Error::invalid("expected the same work on both sides, found different seeds or pools"));
    }
    describe(a.1, &pools.0, &mut report);
    report.set("connections", connections);
    let mut runs = Vec::new();
    let compared = ab::compare(a.0, b.0, pairs, |side| {
        let ((name, options), pool) = if side == ComparisonSide::A { (a, &pools.0) } else { (b, &pools.1) };
        progress(&format!("{name}: {connections} connections"));
        let mut run = measure(options, pool, connections, &mut HttpClient::new(&options.target))?;
        run.name = name.to_owned();
        let mut figures = run.figures.clone();
        let warm = run.stream("events").warm;
        figures.extend([("p50_ms".to_string(), warm.p50_ms), ("p99_ms".to_string(), warm.p99_ms)]);
        let failed = run.failures.first().cloned();
        runs.push(run);
        std::thread::sleep(options.settle);
        failed.map_or(Ok(figures), |why| Err(Error::invalid(why)))
    });
    report.runs = runs;
    match compared {
        Ok(comparisons) => report.comparisons = comparisons,
        // A failed run ends the comparison; the report names the run and the reason.
        Err(_) if !report.failures().is_empty() => {}
        Err(error) => return Err(error),
    }
    Ok(report)
}

fn measure(options: &Options, pool: &Pool, connections: usize, client: &mut HttpClient) -> Result<BenchRun> {
    let writer = Writer::new(&options.target, pool, &options.table, options.ack, client)?;
    let pace = match options.rate {
        Some(events) if events > 0.0 => Pace::Open { per_second: events / options.batch as f64 },
        Some(events) => return Err(Error::invalid(format!("expected a rate above zero, found {events}"))),
        None => Pace::Closed,
    };
    let stream = writer.stream("events", connections, pace).threads(options.threads);
    let load = Load::new(&options.target, options.timing).stream(stream);
    let mut run = load.run(&format!("{connections} × {}", options.batch))?;
    let acknowledged = run.stream("events").units_in_all;
    writer.check(acknowledged, client, &mut run);
    let events = run.stream("events");
    run.figures.insert("body_bytes_per_event".into(), pool.bytes_per_event());
    run.figures.insert("events_per_s".into(), events.units_per_second);
    let per_event = 1e6 / events.units.max(1) as f64;
    run.figures.insert("mean_ms".into(), events.warm.mean_ms);
    run.figures.insert("p99_of_mean".into(), events.warm.p99_ms / events.warm.mean_ms.max(1e-9));
    run.figures.insert("client_cpu_us_per_event".into(), run.client.cpu_seconds * per_event);
    if let Some(server) = &run.server {
        run.figures.insert("server_cpu_us_per_event".into(), server.cpu_seconds * per_event);
        run.figures.insert("ack_cpu_us_per_event".into(), server.acknowledging_seconds() * per_event);
        run.figures.insert("behind_cpu_us_per_event".into(), server.background_seconds() * per_event);
    }
    let metrics = wire::metrics(client)?;
    for (quantile, figure) in [("0.5", "log_fsync_p50_ms"), ("0.99", "log_fsync_p99_ms")] {
        let name = format!("log_fsync_seconds{{quantile=\"{quantile}\"}}");
        if let Some(seconds) = wire::metric(&metrics, &name) {
            run.figures.insert(figure.into(), seconds * 1e3);
        }
    }
    Ok(run)
}

fn describe(options: &Options, pool: &Pool, report: &mut Report) {
    report.work_hash = pool.hash().to_owned();
    report.set("batch", options.batch);
    report.set("connections", format!("{:?}", options.connections));
    report.set("rate", options.rate.map_or("as fast as possible".into(), |rate| format!("{rate} events/s")));
    report.set("warm", format!("{:?}", options.timing.warm));
    report.set("measure", format!("{:?}", options.timing.measure));
    report.set("table", &options.table);
    report.set("ack", format!("{:?}", options.ack).to_lowercase());
    report.set("threads", options.threads);
    report.set("pool", format!("{} events of {:.1} bytes", options.pool_events, pool.bytes_per_event()));
}

/// Writes a pool into a table, and afterwards compares the rows stored with the rows acknowledged.
pub(crate) struct Writer {
    requests: Arc<[Payload]>,
    batch: u64,
    table: String,
    ack: Ack,
    rows_before: u64,
}

impl Writer {
    pub(crate) fn new(
        target: &LoadTarget,
        pool: &Pool,
        table: &str,
        ack: Ack,
        client: &mut HttpClient,
    ) -> Result<Writer> {
        let ack_mode = if ack == Ack::Memory { "?ack=memory" } else { "" };
        Ok(Writer {
            requests: load::store_in_memory_file(
                pool.requests(target, &format!("/v1/tables/{table}/rows{ack_mode}")),
            )
            .into(),
            batch: pool.batch() as u64,
            table: table.to_owned(),
            ack,
            rows_before: wire::count_or_none(client, table)?,
        })
    }

    pub(crate) fn stream<'a>(&self, name: &str, connections: usize, pace: Pace) -> LoadStream<'a> {
        let (requests, batch) = (self.requests.clone(), self.batch);
        LoadStream::new(name, connections, pace, move |thread| {
            // Threads start at different positions of the pool, so that they do not send the same events at the same time.
            Box::new(PoolRequests { requests: requests.clone(), next: thread * 37, batch })
        })
    }

    /// Adds a failure to the run if the table does not hold exactly the acknowledged rows. A run that has already failed is not
    /// checked, because the outcome of its requests in flight is unknown.
    pub(crate) fn check(&self, acknowledged: u64, client: &mut HttpClient, run: &mut BenchRun) {
        if !run.failures.is_empty() {
            return;
        }
        let expected = self.rows_before + acknowledged;
        match self.count_when_visible(expected, client) {
            Ok(stored) if stored == expected => {}
            Ok(stored) => run.failures.push(format!(
                "rows stored differ from rows acknowledged: {} has {stored}, expected {} before and {acknowledged} acknowledged",
                self.table, self.rows_before
            )),
            Err(error) => run.failures.push(format!("counting the rows of {} failed: {error}", self.table)),
        }
    }

    fn count_when_visible(&self, expected: u64, client: &mut HttpClient) -> Result<u64> {
        // Durable rows must be visible once they are acknowledged; a wait would hide a violation.
        let time_limit = if self.ack == Ack::Memory { Duration::from_secs(30) } else { Duration::ZERO };
        let since = Instant::now();
        loop {
            let stored = wire::count_or_none(client, &self.table)?;
            if stored >= expected || since.elapsed() >= time_limit {
                return Ok(stored);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct PoolRequests {
    requests: Arc<[Payload]>,
    next: usize,
    batch: u64,
}

impl Requests for PoolRequests {
    fn next(&mut self) -> Request {
        let bytes = self.requests[self.next % self.requests.len()].clone();
        self.next = self.next.wrapping_add(1);
        Request { bytes, tag: 0 }
    }

    fn on_answer(&mut self, _: u64, body: &[u8]) -> Result<u64, String> {
        match wire::count_in(body) {
            Some(count) if count == self.batch => Ok(count),
            _ => Err(format!("expected {} events acknowledged, found {}", self.batch, excerpt(body))),
        }
    }
}
