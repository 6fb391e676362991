//! `polynya bench lake`: sends a steady stream of events into one table for minutes, with the lake on.
//!
//! The quiet part comes first. It sends the same load to a server without a lake, in stretches that end before a head is sealed,
//! each into a table of its own. Its acknowledgements wait for the log only, so its p99.9 is the reference for the latency beside
//! seals, compactions and commits of the lake. A longer quiet run is impossible at such a rate: a head is full within a second.
//!
//! The steady part follows, on a server with default settings. During the load the benchmark samples memory, debt, the lag of the
//! lake, files and the disk (`monitor`). After the load it waits until the lake has caught up by itself and the background work
//! has ended. Only then does it divide the CPU of the whole run by the events, so that postponed work is counted too. At the end
//! the count and the sum over the rows must equal the acknowledged ones, by SQL and by the lake's own files (`verify`).

mod monitor;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use types::{Error, Kind, Result};

use crate::ProgressSink;
use crate::child::{self, Home};
use crate::events::Pool;
use crate::http::{HttpClient, excerpt};
use crate::latency::{Latency, Summary};
use crate::load::{self, Load, LoadStream, Payload, Request, Requests};
use crate::markdown::{ms, thousands};
use crate::pace::Pace;
use crate::process::ProcessSample;
use crate::report::{Claim, Report};
use crate::run::{BenchRun, Timing};
use crate::target::LoadTarget;
use crate::wire;

/// Largest CPU time of the server per event in microseconds, until the lake has the event and all background work is done.
pub const CPU_US_MAX: f64 = 2.0;
/// Largest p99.9 of acknowledgements beside seals, compactions and lake commits, as a multiple of the quiet p99.9.
pub const P999_OF_QUIET_MAX: f64 = 3.0;

const TABLE: &str = "bench_events";
/// Bytes of one event in a head. With the engine's seal size it limits the length of a quiet stretch.
const EVENT_BYTES: f64 = 115.0;
const SEAL_BYTES: f64 = 48.0 * 1_048_576.0;
const QUIET_STRETCH_MAX: Duration = Duration::from_secs(3);
/// Bytes of one event in segments. A part of the segments exists twice while neighbours are merged.
const EVENT_BYTES_IN_SEGMENTS: f64 = 125.0;
const EVENT_BYTES_IN_LAKE: f64 = 125.0;
const DISK_BYTES_LEFT_MIN: u64 = 1 << 30;
/// Time that the lake and the background work may take after the load.
const CATCH_UP_MAX: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub struct Options {
    pub child: child::Options,
    /// Rate of the load, in events per second.
    pub rate: f64,
    pub measure: Duration,
    /// Time of load before the measured time.
    pub warm: Duration,
    /// Measured quiet load over all stretches. Zero skips the quiet part and the claim on its ratio.
    pub quiet: Duration,
    pub connections: usize,
    pub batch: usize,
    pub seed: u64,
    pub pool_events: usize,
    /// Bytes of the table that stay in segments; older rows are in the lake only. `None` keeps all rows in segments.
    pub hot_bytes: Option<u64>,
    /// Keeps the directory, so that other programs can read the lake.
    pub keep: bool,
}

impl Options {
    pub fn new(child: child::Options) -> Options {
        Options {
            child,
            rate: 500_000.0,
            measure: Duration::from_secs(600),
            warm: Duration::from_secs(5),
            quiet: Duration::from_secs(20),
            connections: 50,
            batch: 100,
            seed: 1,
            pool_events: 102_400,
            hot_bytes: None,
            keep: false,
        }
    }

    fn pace(&self) -> Pace {
        Pace::Open { per_second: self.rate / self.batch as f64 }
    }

    /// Returns the length of one quiet stretch, which ends before a head is full.
    fn stretch(&self) -> Duration {
        let seconds = SEAL_BYTES / EVENT_BYTES / self.rate * 0.75;
        Duration::try_from_secs_f64(seconds).unwrap_or(QUIET_STRETCH_MAX).min(QUIET_STRETCH_MAX)
    }

    fn bytes_needed(&self) -> u64 {
        let events = self.rate * (self.measure + self.warm).as_secs_f64();
        // Up to as many bytes again may wait for their eviction.
        let hot_max = self.hot_bytes.map_or(u64::MAX, |bytes| bytes.saturating_mul(2));
        let segments = ((events * EVENT_BYTES_IN_SEGMENTS) as u64).min(hot_max);
        segments.saturating_add((events * EVENT_BYTES_IN_LAKE) as u64).saturating_add(2 * DISK_BYTES_LEFT_MIN)
    }
}

/// Runs the workload. Rows that differ from the acknowledged ones are failures, and the directory is kept then.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("lake", options.seed);
    if options.rate < options.batch as f64 || options.batch == 0 || options.connections == 0 {
        return Err(Error::invalid(format!(
            "expected at least one connection and one batch a second, found {} connections and {} events/s in batches of {}",
            options.connections, options.rate, options.batch
        )));
    }
    check_room(options)?;
    let pool = Pool::new(options.seed, options.pool_events.div_ceil(options.batch).max(1), options.batch)?;
    report.work_hash = pool.hash().to_owned();
    report.set("rate", format!("{} events/s", thousands(options.rate)));
    report.set("measure", format!("{:?}", options.measure));
    report.set("quiet", format!("{:?} in stretches of {:?}", options.quiet, options.stretch()));
    report.set("connections", options.connections);
    report.set("batch", options.batch);
    if let Some(bytes) = options.hot_bytes {
        report.set("hot", format!("{} MiB, what is older is in the lake alone", bytes >> 20));
    }
    report.set("pool", format!("{} events of {:.1} bytes", options.pool_events, pool.bytes_per_event()));
    let mut child = options.child.clone();
    child.isolated = true;
    let quiet = if options.quiet.is_zero() {
        None
    } else {
        Some(measure_quiet(options, &child, &pool, &mut report, progress)?)
    };
    let mut home = Home::new(child)?;
    let outcome = measure_steady(options, &mut home, &pool, quiet, &mut report, progress);
    if let Err(error) = outcome {
        report.failures.push(error.to_string());
    }
    if options.keep || !report.failures().is_empty() {
        let kept = home.keep();
        report.set("kept", kept.display());
        progress(&format!("the directory is kept at {}", kept.display()));
    }
    Ok(report)
}

fn check_room(options: &Options) -> Result<()> {
    let (free, needed) = (free_bytes(&options.child.root)?, options.bytes_needed());
    if free >= needed {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let message = format!(
        "{} events/s for {:?} may need {:.1} GiB, and {} has {:.1} GiB free",
        thousands(options.rate),
        options.measure,
        gib(needed),
        options.child.root.display(),
        gib(free)
    );
    Err(Error::new(Kind::DiskFull, message).hint(
        "free some, name another disk with --root, let rows leave with --hot, or take a shorter --measure",
    ))
}

fn free_bytes(root: &Path) -> Result<u64> {
    vfs::Env::real()
        .disk
        .free_bytes(root)
        .map_err(|error| Error::io(format_args!("asking how much room {} has", root.display()), error))
}

/// Counts the events acknowledged so far.
#[derive(Debug, Default)]
struct Acknowledged {
    events: AtomicU64,
    /// Sum over the events of their milliseconds after [`crate::events::FIRST_MS`].
    offsets: AtomicU64,
    /// Latencies since the last call of `take_recent`.
    recent: Mutex<Latency>,
}

impl Acknowledged {
    fn take_recent(&self) -> Summary {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *recent).summary()
    }
}

/// Sends a pool's batches into one table and counts the acknowledged events.
struct CountedRequests<'a> {
    requests: Arc<[Payload]>,
    offsets: &'a [u64],
    next: usize,
    batch: u64,
    acknowledged: &'a Acknowledged,
}

impl Requests for CountedRequests<'_> {
    fn next(&mut self) -> Request {
        let at = self.next % self.requests.len();
        self.next += 1;
        Request { bytes: self.requests[at].clone(), tag: at as u64 }
    }

    fn on_latency(&mut self, _: u64, latency: Duration) {
        self.acknowledged.recent.lock().unwrap_or_else(PoisonError::into_inner).record(latency);
    }

    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        match wire::count_in(body) {
            Some(count) if count == self.batch => {
                self.acknowledged.events.fetch_add(count, Relaxed);
                self.acknowledged.offsets.fetch_add(self.offsets[tag as usize], Relaxed);
                Ok(count)
            }
            _ => Err(format!("expected {} events acknowledged, found {}", self.batch, excerpt(body))),
        }
    }
}

/// Runs one open loop into an existing table of this name.
fn load(
    options: &Options,
    target: &LoadTarget,
    pool: &Pool,
    table: &str,
    timing: Timing,
    acknowledged: &Acknowledged,
    interrupt: &AtomicBool,
) -> Result<BenchRun> {
    let requests: Arc<[Payload]> =
        load::store_in_memory_file(pool.requests(target, &format!("/v1/tables/{table}/rows"))).into();
    let stream = LoadStream::new("events", options.connections, options.pace(), move |_| {
        let (requests, offsets) = (requests.clone(), pool.offsets());
        Box::new(CountedRequests { requests, offsets, next: 0, batch: pool.batch() as u64, acknowledged })
    });
    Load::new(target, timing).stream(stream).interrupt(interrupt).run(table)
}

fn create_table(client: &mut HttpClient, table: &str, hot_bytes: Option<u64>) -> Result<()> {
    let column = |name: &str, data_type: &str| json!({ "name": name, "type": data_type });
    let mut definition = json!({ "columns": [column("payload", "string"), column("timestamp_ms", "int64")] });
    if let Some(bytes) = hot_bytes {
        definition["retention"] = json!({ "hot": { "bytes": bytes } });
    }
    wire::recreate(client, table, &definition)
}

/// Measures the load without background work and returns its latencies.
fn measure_quiet(
    options: &Options,
    child: &child::Options,
    pool: &Pool,
    report: &mut Report,
    progress: ProgressSink<'_>,
) -> Result<Summary> {
    let mut home = Home::new(child.clone())?;
    home.env("POLYNYA_LAKE", "false");
    let mut server = home.start()?;
    // The target has no data directory here: measuring fsync before and after each stretch would take longer than the stretch.
    let mut target = server.target().clone();
    target.data = None;
    let mut client = HttpClient::new(&target);
    let warm = options.stretch().mul_f64(0.2);
    let timing = Timing { warm, measure: options.stretch() - warm, ..Timing::default() };
    let (mut latencies, mut measured, mut round) = (Latency::default(), Duration::ZERO, 0);
    progress(&format!("quiet: {} events/s, stretches of {:?}", thousands(options.rate), timing.measure));
    while measured < options.quiet {
        let table = format!("quiet_{round}");
        create_table(&mut client, &table, None)?;
        let run =
            load(options, &target, pool, &table, timing, &Acknowledged::default(), &AtomicBool::new(false))?;
        if let Some(why) = run.failures.first() {
            report.failures.push(format!("quiet: {why}"));
            break;
        }
        latencies.merge(&run.stream("events").latencies);
        client.json("DELETE", &format!("/v1/tables/{table}"), None)?;
        // The pause lets the server release the dropped table's head and log before the next stretch.
        std::thread::sleep(Duration::from_millis(300));
        (measured, round) = (measured + timing.measure, round + 1);
    }
    let metrics = wire::metrics(&mut client)?;
    let count = |name: &str| wire::metric(&metrics, name).unwrap_or_default();
    report.set(
        "behind the quiet",
        format!(
            "{} seals, {} compactions in {round} stretches",
            count("seals_total"),
            count("compactions_total")
        ),
    );
    server.stop(child.stop_within)?;
    Ok(latencies.summary())
}

/// Runs the measured part with the lake on.
fn measure_steady(
    options: &Options,
    home: &mut Home,
    pool: &Pool,
    quiet: Option<Summary>,
    report: &mut Report,
    progress: ProgressSink<'_>,
) -> Result<()> {
    let mut server = home.start()?;
    let (target, pid) = (server.target().clone(), server.pid());
    let mut client = HttpClient::new(&target).timeout(CATCH_UP_MAX + Duration::from_secs(20));
    create_table(&mut client, TABLE, options.hot_bytes)?;
    progress(&format!("{} events/s for {:?}, the lake on", thousands(options.rate), options.measure));
    let timing = Timing { warm: options.warm, measure: options.measure, ..Timing::default() };
    let (acknowledged, full) = (Acknowledged::default(), AtomicBool::new(false));
    let (over, data) = (AtomicBool::new(false), home.data());
    let watched_server = monitor::MonitoredServer { target: &target, pid, data: &data, table: TABLE };
    let before = ProcessSample::of(pid)?;
    let (run, observed) = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let monitor_thread = {
            let (watched_server, acknowledged, over, full) = (&watched_server, &acknowledged, &over, &full);
            scope.spawn(move || monitor::monitor(watched_server, options, acknowledged, over, full, &sender))
        };
        let load_thread = {
            let (acknowledged, full, over, target) = (&acknowledged, &full, &over, &target);
            scope.spawn(move || {
                let run = load(options, target, pool, TABLE, timing, acknowledged, full);
                over.store(true, Relaxed);
                run
            })
        };
        receiver.iter().for_each(|line| progress(&line));
        let panicked = |_| Error::internal("a part of the benchmark panicked");
        (
            load_thread.join().map_err(panicked).and_then(|run| run),
            monitor_thread.join().map_err(panicked).and_then(|observed| observed),
        )
    });
    let (mut run, observed) = (run?, observed?);
    run.name = "steady".into();
    if full.load(Relaxed) {
        run.failures.push(format!("ended: less than {} MiB were free", DISK_BYTES_LEFT_MIN >> 20));
    }
    if !run.failures.is_empty() {
        report.runs.push(run);
        return Ok(());
    }
    progress("waiting until the lake has everything and the background work is done");
    let since = Instant::now();
    catch_up(&mut client)?;
    let landed_after = since.elapsed();
    let idle_after = monitor::until_idle(pid, since)?;
    let usage = before.until(&ProcessSample::of(pid)?);
    let events = acknowledged.events.load(Relaxed);
    let per_event = |seconds: f64| seconds * 1e6 / events.max(1) as f64;
    let metrics = wire::metrics(&mut client)?;
    let metric = |name: &str| wire::metric(&metrics, name).unwrap_or_default();
    let mut figures = BTreeMap::from([
        ("events".to_owned(), events as f64),
        ("cpu_us_per_event_in_all".to_owned(), per_event(usage.cpu_seconds)),
        ("ack_cpu_us_per_event".to_owned(), per_event(usage.acknowledging_seconds())),
        ("behind_cpu_us_per_event".to_owned(), per_event(usage.background_seconds())),
        (
            "client_cpu_us_per_event".to_owned(),
            run.client.cpu_seconds * 1e6 / run.stream("events").units.max(1) as f64,
        ),
        ("landed_after_s".to_owned(), landed_after.as_secs_f64()),
        ("idle_after_s".to_owned(), idle_after.as_secs_f64()),
        ("seals".to_owned(), metric("seals_total")),
        ("compactions".to_owned(), metric("compactions_total")),
        ("lake_commits".to_owned(), observed.commits as f64),
    ]);
    let warm = run.stream("events").warm;
    figures.insert("p999_ms".into(), warm.p999_ms);
    if let Some(quiet) = &quiet {
        figures.insert("quiet_p99_ms".into(), quiet.p99_ms);
        figures.insert("quiet_p999_ms".into(), quiet.p999_ms);
    }
    run.figures.append(&mut figures);
    report.claims = claims(options, &run, quiet.as_ref(), &observed);
    report.sheets.push(monitor::sheet(&observed));
    report.runs.push(run);
    progress("reading everything back, by SQL and from the lake's files");
    let expected = verify::Contents { rows: events, offsets: acknowledged.offsets.load(Relaxed).into() };
    let found = verify::verify(&mut client, TABLE, &expected)?;
    report.claims.push(found.claim(&expected));
    report.failures.extend(found.failures(&expected));
    for (name, value) in found.config(&expected, options.keep) {
        report.set(name, value);
    }
    server.stop(options.child.stop_within).map(drop)
}

/// Waits for the lake without forcing a commit, because the lake's own schedule is under test.
fn catch_up(client: &mut HttpClient) -> Result<()> {
    let path = format!("/v1/tables/{TABLE}/watermarks?wait=lake&deadline_ms={}", CATCH_UP_MAX.as_millis());
    client.json("GET", &path, None).map(drop)
}

fn claims(
    options: &Options,
    run: &BenchRun,
    quiet: Option<&Summary>,
    observed: &monitor::Observations,
) -> Vec<Claim> {
    let claim = |claim: String, holds: bool, found: String| Claim { claim, holds, found };
    let stream = run.stream("events");
    let mut claims = vec![claim(
        format!("{} events/s for {:?}", thousands(options.rate), options.measure),
        stream.unsent == 0 && stream.units_per_second >= options.rate * 0.99,
        format!("{} events/s, {} unsent", thousands(stream.units_per_second), stream.unsent),
    )];
    claims.extend(observed.claims());
    let figure = |name: &str| run.figures.get(name).copied().unwrap_or_default();
    let cpu = figure("cpu_us_per_event_in_all");
    claims.push(claim(
        format!("at most {CPU_US_MAX} µs of CPU per event in all"),
        cpu <= CPU_US_MAX,
        format!(
            "{cpu:.2} µs: {:.2} up to the acknowledgement, {:.2} behind it",
            figure("ack_cpu_us_per_event"),
            figure("behind_cpu_us_per_event")
        ),
    ));
    if let Some(quiet) = quiet {
        let ratio = stream.warm.p999_ms / quiet.p999_ms.max(1e-9);
        claims.push(claim(
            format!("p99.9 of acknowledgements at most {P999_OF_QUIET_MAX} times that of the quiet"),
            ratio <= P999_OF_QUIET_MAX,
            format!(
                "{ratio:.2}: {} ms and {} ms (p99 {} and {}, longest {} and {})",
                ms(stream.warm.p999_ms),
                ms(quiet.p999_ms),
                ms(stream.warm.p99_ms),
                ms(quiet.p99_ms),
                ms(stream.warm.longest_ms),
                ms(quiet.longest_ms)
            ),
        ));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_stretch_ends_before_a_head_is_full() {
        let options = |rate| Options { rate, ..Options::new(child::Options::new("polynya")) };
        for rate in [10_000.0, 500_000.0, 2_000_000.0] {
            let bytes = options(rate).stretch().as_secs_f64() * rate * EVENT_BYTES;
            assert!(bytes < SEAL_BYTES * 0.8, "{rate}: {bytes}");
        }
        assert_eq!(options(1.0).stretch(), QUIET_STRETCH_MAX);
    }

    #[test]
    fn a_run_that_would_fill_the_disk_is_refused_with_the_figures() {
        let options = Options { rate: 1e12, ..Options::new(child::Options::new("polynya")) };
        let error = run(&options, &mut |_| {}).expect_err("nobody has that much");
        assert_eq!(error.kind(), Kind::DiskFull);
        assert!(error.message().contains("GiB free"), "{error}");
    }

    #[test]
    fn rows_that_leave_take_no_room_in_segments() {
        let needed =
            |hot_bytes| Options { hot_bytes, ..Options::new(child::Options::new("polynya")) }.bytes_needed();
        let (all, some, huge) = (needed(None), needed(Some(1 << 30)), needed(Some(u64::MAX)));
        assert!(some < all * 6 / 10 && huge == all, "{some} {all} {huge}");
    }
}
