//! One measurement: several streams of operations at once, a warm-up, a measured time, and everything that is observed during it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

use crate::control::{Control, Hiccups};
use crate::device::Device;
use crate::fsync::{Fsync, FsyncProbe};
use crate::latency::{Latency, Summary};
use crate::pace::{Pace, Schedule};
use crate::process::{ProcessSample, Usage};

/// Durations of the parts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Time of load before the measurement. Its operations are reported separately, as cold.
    pub warm: Duration,
    pub measure: Duration,
    /// Time after the end in which due operations may still be sent and answered. An operation that an open loop could not send
    /// by then counts as unsent, with the latency that it has reached. A request that was sent and has no answer fails the run.
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

/// The results of one measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchRun {
    pub name: String,
    /// Duration of the measurement, without the warm-up.
    pub seconds: f64,
    pub streams: Vec<StreamResult>,
    /// Resources that the server's process used during the measured time, if the process is known.
    pub server: Option<Usage>,
    /// Resources that this process used during the measured time: the cost of generating the load.
    pub client: Usage,
    pub hiccups: Hiccups,
    /// Share of all cores' time used by neither this process nor the server, 0 to 1.
    pub elsewhere: f64,
    pub fsync: Option<Fsync>,
    /// Bytes that the device below the server's directory wrote during the measured time, on behalf of all processes.
    #[serde(default)]
    pub device_written_bytes: Option<u64>,
    /// Further figures of a workload, by name with its unit last.
    pub figures: BTreeMap<String, f64>,
    /// Reasons not to believe the figures. Empty if all went well.
    pub failures: Vec<String>,
}

/// The results of one stream of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamResult {
    pub name: String,
    /// `closed loop`, or the rate of an open loop.
    pub pace: String,
    pub threads: usize,
    /// Number of connections, 0 if the work runs inside this process.
    pub connections: usize,
    /// Operations answered in the measured time.
    pub operations: u64,
    /// Rows, events or other units that the operations count, done in the measured time.
    pub units: u64,
    pub operations_per_second: f64,
    pub units_per_second: f64,
    /// Units of the whole run: of the warm-up, of the measured time and of answers after its end.
    pub units_in_all: u64,
    /// Latency of operations intended for the warm-up.
    pub cold: Summary,
    /// Latency of operations intended for the measured time. In an open loop it counts from the intended time.
    pub warm: Summary,
    /// Latency of the same operations, counted from the moment at which they were really sent. In an open loop the difference to
    /// `warm` is the wait for a free connection; in a closed loop there is none.
    pub warm_from_sent: Summary,
    /// The histogram behind `warm`, which callers may merge with others. It is not part of a report.
    #[serde(skip)]
    pub latencies: Latency,
    /// Operations that were due in an open loop and never sent, because the loop could not keep up.
    pub unsent: u64,
    /// Answers 429 in a stream whose connections rest after them, and other refusals that the stream accepts.
    pub refused: u64,
    /// Connections reopened because the server closed them between answers.
    pub reconnects: u64,
}

impl BenchRun {
    /// Returns the stream of that name, or one with zeros if there is none.
    pub fn stream(&self, name: &str) -> StreamResult {
        self.streams.iter().find(|stream| stream.name == name).cloned().unwrap_or_default()
    }
}

/// The process and directory to observe during a run, and a flag that may end the run early.
#[derive(Clone, Copy, Default)]
pub(crate) struct MonitorOptions<'a> {
    pub(crate) pid: Option<u32>,
    pub(crate) data: Option<&'a Path>,
    pub(crate) interrupt: Option<&'a AtomicBool>,
}

/// Tells the workers to stop: set when a stream failed or when the caller interrupts the run.
#[derive(Clone, Copy)]
struct StopFlags<'a> {
    failed: &'a AtomicBool,
    interrupt: Option<&'a AtomicBool>,
}

impl StopFlags<'_> {
    fn is_set(self) -> bool {
        self.failed.load(Ordering::Relaxed)
            || self.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }
}

/// The schedule, counters and stop flag that a worker uses while it runs.
pub(crate) struct Context<'a> {
    pub(crate) start: Instant,
    pub(crate) warm_until: Instant,
    end: Instant,
    pub(crate) give_up: Instant,
    stop: StopFlags<'a>,
    counter: &'a StreamCounter,
    pace: Pace,
    index: usize,
    worker_count: usize,
}

impl Context<'_> {
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::new(self.pace, self.start, self.end, self.index, self.worker_count)
    }

    /// Returns true if another worker failed or the caller ended the run; measurements from then on are meaningless.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// Counts and records one completed operation.
    pub(crate) fn record_done(
        &self,
        tally: &mut Tally,
        intended: Instant,
        sent: Instant,
        now: Instant,
        units: u64,
    ) {
        self.counter.operations.fetch_add(1, Ordering::Relaxed);
        self.counter.units.fetch_add(units, Ordering::Relaxed);
        self.record(tally, intended, sent, now);
    }

    /// Records one operation that was due and never sent.
    pub(crate) fn record_unsent(&self, tally: &mut Tally, intended: Instant, now: Instant) {
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
struct StreamCounter {
    operations: AtomicU64,
    units: AtomicU64,
}

impl StreamCounter {
    fn read(&self) -> (u64, u64) {
        (self.operations.load(Ordering::Relaxed), self.units.load(Ordering::Relaxed))
    }
}

/// The latencies and counts that one worker recorded.
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

/// A stream that is ready to run: its workers are connected and wait.
pub(crate) struct ReadyStream<'a> {
    pub(crate) name: String,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) workers: Vec<Worker<'a>>,
}

/// Runs the streams side by side, each worker in a thread of its own, and observes the server and the machine.
pub(crate) fn run_streams(
    name: &str,
    timing: Timing,
    monitor: MonitorOptions<'_>,
    streams: Vec<ReadyStream<'_>>,
) -> Result<BenchRun> {
    let MonitorOptions { pid, data, interrupt } = monitor;
    let mut probe = data.map(FsyncProbe::new);
    let device = data.and_then(Device::of);
    if let Some(probe) = &mut probe {
        probe.measure()?;
    }
    let counters: Vec<StreamCounter> = streams.iter().map(|_| StreamCounter::default()).collect();
    let failed = AtomicBool::new(false);
    let stop = StopFlags { failed: &failed, interrupt };
    let failures = Mutex::new(Vec::new());
    let fail = |message: String| {
        failed.store(true, Ordering::Relaxed);
        failures.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    };
    // Threads take a moment to start, which must not make their first operations late.
    let start = Instant::now() + Duration::from_millis(10);
    let warm_until = start + timing.warm;
    let end = warm_until + timing.measure;
    let give_up = end + timing.grace;

    let mut results = Vec::new();
    let deltas = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (stream, counter) in streams.into_iter().zip(&counters) {
            let worker_count = stream.workers.len();
            let mut threads = Vec::new();
            for (index, worker) in stream.workers.into_iter().enumerate() {
                let context = Context {
                    start,
                    warm_until,
                    end,
                    give_up,
                    stop,
                    counter,
                    pace: stream.pace,
                    index,
                    worker_count,
                };
                let (fail, name) = (&fail, stream.name.clone());
                let work = move || {
                    let guard = StopOnPanic(context.stop.failed);
                    // Reported at once, not at the join, so that the other workers stop early.
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
        let deltas = measure_counters(pid, device.as_ref(), &counters, stop, warm_until, end);
        for (name, pace, connections, threads) in running {
            let mut total = Tally::default();
            let count = threads.len();
            for thread in threads {
                match thread.join() {
                    Ok(tally) => total.merge(&tally.unwrap_or_default()),
                    Err(_) => fail(format!("{name}: a load thread panicked")),
                }
            }
            results.push(total.result(name, pace, count, connections));
        }
        deltas
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let deltas = match deltas {
        Ok(deltas) => deltas,
        // The server is gone; the failures of the streams explain more than this error.
        Err(error) if failures.is_empty() => return Err(error),
        Err(_) => CounterDeltas::default(),
    };
    for ((result, counter), (operations, units)) in results.iter_mut().zip(&counters).zip(&deltas.done) {
        result.operations = *operations;
        result.units = *units;
        result.operations_per_second = *operations as f64 / deltas.seconds.max(1e-9);
        result.units_per_second = *units as f64 / deltas.seconds.max(1e-9);
        result.units_in_all = counter.read().1;
    }
    if let Some(probe) = &mut probe {
        probe.measure()?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    // In tests the server lives in this process; its CPU must not be subtracted twice.
    let server_cpu = match (&deltas.server, pid) {
        (Some(server), Some(pid)) if pid != std::process::id() => server.cpu_seconds,
        _ => 0.0,
    };
    let ours = (server_cpu + deltas.client.cpu_seconds) / (deltas.seconds.max(1e-9) * cores);
    Ok(BenchRun {
        name: name.to_owned(),
        seconds: deltas.seconds,
        streams: results,
        elsewhere: (deltas.hiccups.busy - ours).max(0.0),
        server: deltas.server,
        client: deltas.client,
        hiccups: deltas.hiccups,
        fsync: probe.map(FsyncProbe::finish),
        device_written_bytes: deltas.device_written_bytes,
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

/// Stops the run if a worker panics; a worker that returned forgets the guard.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct CounterDeltas {
    seconds: f64,
    /// Operations and units of each stream.
    done: Vec<(u64, u64)>,
    server: Option<Usage>,
    client: Usage,
    hiccups: Hiccups,
    device_written_bytes: Option<u64>,
}

/// Reads every counter at the beginning and at the end of the measured time.
fn measure_counters(
    pid: Option<u32>,
    device: Option<&Device>,
    counters: &[StreamCounter],
    stop: StopFlags<'_>,
    warm_until: Instant,
    end: Instant,
) -> Result<CounterDeltas> {
    let read = || -> Result<_> {
        let done: Vec<_> = counters.iter().map(StreamCounter::read).collect();
        let written = device.and_then(Device::written_bytes);
        Ok((Instant::now(), done, pid.map(ProcessSample::of).transpose()?, ProcessSample::own()?, written))
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
    Ok(CounterDeltas {
        seconds: (until - since).as_secs_f64(),
        done,
        server: server.zip(server_after).map(|(before, after)| before.until(&after)),
        client: client.until(&client_after),
        hiccups,
        device_written_bytes: written.zip(written_after).map(|(before, after)| after.saturating_sub(before)),
    })
}

fn sleep_until(moment: Instant, stop: StopFlags<'_>) {
    while !stop.is_set() {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}
