//! One measurement: several streams of operations at once, a warm-up, a measured time, and everything that is
//! watched beside it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

use crate::control::{Control, Hiccups};
use crate::device::Device;
use crate::fsync::{Fsync, Probe};
use crate::latency::{Latency, Summary};
use crate::pace::{Pace, Schedule};
use crate::process::{Sample, Usage};

/// How long each part of a run takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Load before the measurement; reported apart, as cold.
    pub warm: Duration,
    pub measure: Duration,
    /// How long after the end operations that were due may still be sent and answered. What an open loop could not
    /// send by then is counted as unsent, at the latency that it has reached; what was sent and has no answer fails
    /// the run.
    pub grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            warm: Duration::from_secs(2),
            measure: Duration::from_secs(10),
            grace: Duration::from_secs(30),
        }
    }
}

/// What one measurement found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub name: String,
    /// The measured time; the warm-up is not in it.
    pub seconds: f64,
    pub streams: Vec<StreamResult>,
    /// The server's process during the measured time.
    pub server: Option<Usage>,
    /// This process during the measured time: what generating the load cost.
    pub client: Usage,
    pub hiccups: Hiccups,
    /// Share of all cores' time used by neither this process nor the server, 0 to 1.
    pub elsewhere: f64,
    pub fsync: Option<Fsync>,
    /// What the device below the server's directory wrote during the measured time, for whomever.
    #[serde(default)]
    pub device_written_bytes: Option<u64>,
    /// Further figures of a workload, by name with its unit last.
    pub figures: BTreeMap<String, f64>,
    /// Why nothing here may be believed. Empty when all went well.
    pub failures: Vec<String>,
}

/// What one stream of a run found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamResult {
    pub name: String,
    /// `closed loop`, or the rate of an open loop.
    pub pace: String,
    pub threads: usize,
    /// 0 when the work is inside this process.
    pub connections: usize,
    /// Operations answered in the measured time.
    pub operations: u64,
    /// Rows, events or whatever the operations count, done in the measured time.
    pub units: u64,
    pub operations_per_second: f64,
    pub units_per_second: f64,
    /// Units of the whole run: warm-up, measured time and the answers that came after it.
    pub units_in_all: u64,
    /// Latency of operations meant for the warm-up.
    pub cold: Summary,
    /// Latency of operations meant for the measured time; from the intended time in an open loop.
    pub warm: Summary,
    /// The same operations from the moment at which they were really sent. In an open loop the difference to `warm`
    /// is the wait for a free connection; in a closed loop there is none.
    pub warm_from_sent: Summary,
    /// What `warm` is of, to be merged with others; not in a report.
    #[serde(skip)]
    pub latencies: Latency,
    /// Operations that an open loop had to start and could not: it did not keep up.
    pub unsent: u64,
    /// Answers 429 of a stream that is allowed to get them.
    pub refused: u64,
    /// Connections made again because the server closed one between answers.
    pub reconnects: u64,
}

impl Run {
    /// The stream of that name; a zero one if there is none.
    pub fn stream(&self, name: &str) -> StreamResult {
        self.streams.iter().find(|stream| stream.name == name).cloned().unwrap_or_default()
    }
}

/// What is watched beside a run, and who may end it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watching<'a> {
    pub(crate) pid: Option<u32>,
    pub(crate) data: Option<&'a Path>,
    pub(crate) interrupt: Option<&'a AtomicBool>,
}

/// Set when a stream failed, or when somebody wants the run to end.
#[derive(Clone, Copy)]
struct Stop<'a> {
    failed: &'a AtomicBool,
    interrupt: Option<&'a AtomicBool>,
}

impl Stop<'_> {
    fn is_set(self) -> bool {
        self.failed.load(Ordering::Relaxed)
            || self.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }
}

/// What a worker needs to know while it runs.
pub(crate) struct Context<'a> {
    pub(crate) start: Instant,
    pub(crate) warm_until: Instant,
    end: Instant,
    pub(crate) give_up: Instant,
    stop: Stop<'a>,
    counter: &'a Counter,
    pace: Pace,
    index: usize,
    of: usize,
}

impl Context<'_> {
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::new(self.pace, self.start, self.end, self.index, self.of)
    }

    /// Somebody failed: whatever is measured from here on has no meaning.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// One operation is done.
    pub(crate) fn done(&self, tally: &mut Tally, intended: Instant, sent: Instant, now: Instant, units: u64) {
        self.counter.operations.fetch_add(1, Ordering::Relaxed);
        self.counter.units.fetch_add(units, Ordering::Relaxed);
        self.record(tally, intended, sent, now);
    }

    /// One operation was due and never started.
    pub(crate) fn unsent(&self, tally: &mut Tally, intended: Instant, now: Instant) {
        tally.unsent += 1;
        self.record(tally, intended, now, now);
    }

    fn record(&self, tally: &mut Tally, intended: Instant, sent: Instant, now: Instant) {
        if intended < self.warm_until {
            tally.cold.record(now - intended);
        } else {
            tally.warm.record(now - intended);
            tally.warm_from_sent.record(now.saturating_duration_since(sent));
        }
    }
}

#[derive(Default)]
struct Counter {
    operations: AtomicU64,
    units: AtomicU64,
}

impl Counter {
    fn read(&self) -> (u64, u64) {
        (self.operations.load(Ordering::Relaxed), self.units.load(Ordering::Relaxed))
    }
}

/// What one worker recorded.
#[derive(Default)]
pub(crate) struct Tally {
    cold: Latency,
    warm: Latency,
    warm_from_sent: Latency,
    unsent: u64,
    pub(crate) refused: u64,
    pub(crate) reconnects: u64,
}

pub(crate) type Worker<'a> = Box<dyn FnOnce(&Context<'_>) -> Result<Tally, String> + Send + 'a>;

/// A stream before it runs: its workers are connected and wait.
pub(crate) struct Stream<'a> {
    pub(crate) name: String,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) workers: Vec<Worker<'a>>,
}

/// Runs the streams side by side, each worker in a thread of its own, and watches.
pub(crate) fn conduct(
    name: &str,
    timing: Timing,
    watching: Watching<'_>,
    streams: Vec<Stream<'_>>,
) -> Result<Run> {
    let Watching { pid, data, interrupt } = watching;
    let mut probe = data.map(Probe::new);
    let device = data.and_then(Device::of);
    if let Some(probe) = &mut probe {
        probe.measure()?;
    }
    let counters: Vec<Counter> = streams.iter().map(|_| Counter::default()).collect();
    let failed = AtomicBool::new(false);
    let stop = Stop { failed: &failed, interrupt };
    let failures = Mutex::new(Vec::new());
    let fail = |message: String| {
        failed.store(true, Ordering::Relaxed);
        failures.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    };
    // Threads need a moment to start; nobody may be late for the first operation because of that.
    let start = Instant::now() + Duration::from_millis(10);
    let warm_until = start + timing.warm;
    let end = warm_until + timing.measure;
    let give_up = end + timing.grace;

    let mut results = Vec::new();
    let watched = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (stream, counter) in streams.into_iter().zip(&counters) {
            let of = stream.workers.len();
            let mut threads = Vec::new();
            for (index, worker) in stream.workers.into_iter().enumerate() {
                let context =
                    Context { start, warm_until, end, give_up, stop, counter, pace: stream.pace, index, of };
                let (fail, name) = (&fail, stream.name.clone());
                let work = move || {
                    let guard = StopOnPanic(context.stop.failed);
                    // At once, not when somebody joins: the others must not go on for nothing.
                    let tally = worker(&context).map_err(|message| fail(format!("{name}: {message}"))).ok();
                    std::mem::forget(guard);
                    tally
                };
                let thread = std::thread::Builder::new()
                    .name(format!("bench-load-{index}"))
                    .spawn_scoped(scope, work)
                    .map_err(|error| Error::io("starting a thread for the load", error));
                match thread {
                    Ok(thread) => threads.push(thread),
                    Err(error) => fail(format!("{}: {error}", stream.name)),
                }
            }
            running.push((stream.name, stream.pace, stream.connections, threads));
        }
        let watched = watch(pid, device.as_ref(), &counters, stop, warm_until, end);
        for (name, pace, connections, threads) in running {
            let mut whole = Tally::default();
            let count = threads.len();
            for thread in threads {
                match thread.join() {
                    Ok(tally) => whole.merge(&tally.unwrap_or_default()),
                    Err(_) => fail(format!("{name}: a load thread panicked")),
                }
            }
            results.push(whole.result(name, pace, count, connections));
        }
        watched
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let watched = match watched {
        Ok(watched) => watched,
        // The server is gone: what the streams met is the better story.
        Err(error) if failures.is_empty() => return Err(error),
        Err(_) => Watched::default(),
    };
    for ((result, counter), (operations, units)) in results.iter_mut().zip(&counters).zip(&watched.done) {
        result.operations = *operations;
        result.units = *units;
        result.operations_per_second = *operations as f64 / watched.seconds.max(1e-9);
        result.units_per_second = *units as f64 / watched.seconds.max(1e-9);
        result.units_in_all = counter.read().1;
    }
    if let Some(probe) = &mut probe {
        probe.measure()?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    // A test's server lives in this process; its CPU must not be taken off twice.
    let server_cpu = match (&watched.server, pid) {
        (Some(server), Some(pid)) if pid != std::process::id() => server.cpu_seconds,
        _ => 0.0,
    };
    let ours = (server_cpu + watched.client.cpu_seconds) / (watched.seconds.max(1e-9) * cores);
    Ok(Run {
        name: name.to_owned(),
        seconds: watched.seconds,
        streams: results,
        elsewhere: (watched.hiccups.busy - ours).max(0.0),
        server: watched.server,
        client: watched.client,
        hiccups: watched.hiccups,
        fsync: probe.map(Probe::finish),
        device_written_bytes: watched.device_written_bytes,
        figures: BTreeMap::new(),
        failures,
    })
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.cold.merge(&other.cold);
        self.warm.merge(&other.warm);
        self.warm_from_sent.merge(&other.warm_from_sent);
        self.unsent += other.unsent;
        self.refused += other.refused;
        self.reconnects += other.reconnects;
    }

    fn result(&self, name: String, pace: Pace, threads: usize, connections: usize) -> StreamResult {
        StreamResult {
            name,
            pace: pace.describe(),
            threads,
            connections,
            cold: self.cold.summary(),
            warm: self.warm.summary(),
            latencies: self.warm.clone(),
            warm_from_sent: self.warm_from_sent.summary(),
            unsent: self.unsent,
            refused: self.refused,
            reconnects: self.reconnects,
            ..StreamResult::default()
        }
    }
}

/// Forgotten by a worker that returned.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Watched {
    seconds: f64,
    /// Operations and units of each stream.
    done: Vec<(u64, u64)>,
    server: Option<Usage>,
    client: Usage,
    hiccups: Hiccups,
    device_written_bytes: Option<u64>,
}

/// Reads every counter at the two ends of the measured time.
fn watch(
    pid: Option<u32>,
    device: Option<&Device>,
    counters: &[Counter],
    stop: Stop<'_>,
    warm_until: Instant,
    end: Instant,
) -> Result<Watched> {
    let read = || -> Result<_> {
        let done: Vec<_> = counters.iter().map(Counter::read).collect();
        let written = device.and_then(Device::written_bytes);
        Ok((Instant::now(), done, pid.map(Sample::of).transpose()?, Sample::own()?, written))
    };
    sleep_until(warm_until, stop);
    let control = Control::start();
    let before = read();
    sleep_until(end, stop);
    let after = read();
    let hiccups = control.stop();
    let (since, first, server, client, written) = before?;
    let (until, last, server_after, client_after, written_after) = after?;
    let done = first.iter().zip(&last).map(|(a, b)| (b.0 - a.0, b.1 - a.1)).collect();
    Ok(Watched {
        seconds: (until - since).as_secs_f64(),
        done,
        server: server.zip(server_after).map(|(before, after)| before.until(&after)),
        client: client.until(&client_after),
        hiccups,
        device_written_bytes: written.zip(written_after).map(|(before, after)| after.saturating_sub(before)),
    })
}

fn sleep_until(moment: Instant, stop: Stop<'_>) {
    while !stop.is_set() {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}
