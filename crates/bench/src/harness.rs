//! Measures work inside this process in the same way as work over HTTP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use types::Result;

use crate::latency::Latency;
use crate::pace::{self, Due, Pace};
use crate::random::{Random, WorkHash};
use crate::run::{self, BenchRun, Tally, Timing};

/// The result of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationResult {
    /// The number of rows, events or documents: the units of throughput.
    pub units: u64,
    /// A value that changes when the operation's result does, such as a sum over the rows found. Only [`Harness::count`] uses it.
    pub result: u64,
}

/// Measures closures. Set the fields, then call [`Harness::measure`] for a time or [`Harness::count`] for a number.
#[derive(Clone, Debug)]
pub struct Harness {
    pub seed: u64,
    pub threads: usize,
    pub pace: Pace,
    pub timing: Timing,
    /// The directory in which fsync latency is measured before and after the work.
    pub data: Option<PathBuf>,
}

impl Default for Harness {
    fn default() -> Self {
        Harness { seed: 1, threads: 1, pace: Pace::Closed, timing: Timing::default(), data: None }
    }
}

impl Harness {
    /// Calls `make(thread, random)` for each thread and runs the returned closure there for the configured time. The closure
    /// receives the number of the operation within its thread. An error of the closure fails the run.
    pub fn measure<W, M>(&self, name: &str, make: M) -> Result<BenchRun>
    where
        W: FnMut(u64) -> Result<OperationResult> + Send,
        M: Fn(usize, Random) -> Result<W>,
    {
        let mut workers: Vec<run::Worker<'_>> = Vec::new();
        for thread in 0..self.threads.max(1) {
            let mut work = make(thread, Random::part(self.seed, thread as u64))?;
            workers.push(Box::new(move |context| {
                pace::sleep_precisely();
                let (mut tally, mut schedule) = (Tally::default(), context.schedule());
                let mut number = 0;
                while !context.stopped() {
                    let now = Instant::now();
                    match schedule.due(now) {
                        Due::Never => break,
                        Due::At(at) => std::thread::sleep(at - now),
                        Due::Now(intended) if now >= context.give_up => {
                            context.record_unsent(&mut tally, intended, now)
                        }
                        Due::Now(intended) => {
                            let done = work(number).map_err(|error| error.to_string())?;
                            number += 1;
                            context.record_done(&mut tally, intended, now, Instant::now(), done.units);
                        }
                    }
                }
                Ok(tally)
            }));
        }
        let stream = run::ReadyStream { name: name.to_owned(), pace: self.pace, connections: 0, workers };
        let monitor = run::MonitorOptions { data: self.data.as_deref(), ..run::MonitorOptions::default() };
        run::run_streams(name, self.timing, monitor, vec![stream])
    }

    /// Runs exactly `operations` operations in this thread, without a warm-up, and hashes their results: the same seed must
    /// always give the same hash. Meant for small inputs in ordinary tests, and for timed set-up.
    pub fn count(
        &self,
        operations: u64,
        mut work: impl FnMut(u64, &mut Random) -> Result<OperationResult>,
    ) -> Result<CountedRun> {
        let mut random = Random::new(self.seed);
        let (mut latency, mut hash, mut units) = (Latency::default(), WorkHash::default(), 0);
        let started = Instant::now();
        for number in 0..operations {
            let before = Instant::now();
            let done = work(number, &mut random)?;
            latency.record(before.elapsed());
            units += done.units;
            hash.add(&done.units.to_le_bytes());
            hash.add(&done.result.to_le_bytes());
        }
        Ok(CountedRun { latency, units, seconds: started.elapsed().as_secs_f64(), hash: hash.finish() })
    }
}

/// The result of [`Harness::count`].
#[derive(Clone, Debug)]
pub struct CountedRun {
    pub latency: Latency,
    pub units: u64,
    pub seconds: f64,
    /// Hash over the units and result of every operation, in order.
    pub hash: String,
}

impl CountedRun {
    /// Renders the figures of a run: `NAME_per_s`, `NAME_p50_ms`, `NAME_p99_ms`, `NAME_longest_ms`.
    pub fn figures(&self, name: &str) -> BTreeMap<String, f64> {
        let summary = self.latency.summary();
        BTreeMap::from([
            (format!("{name}_per_s"), self.units as f64 / self.seconds.max(1e-9)),
            (format!("{name}_p50_ms"), summary.p50_ms),
            (format!("{name}_p99_ms"), summary.p99_ms),
            (format!("{name}_longest_ms"), summary.longest_ms),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn quick() -> Harness {
        let timing = Timing {
            warm: Duration::from_millis(30),
            measure: Duration::from_millis(150),
            grace: Duration::from_secs(5),
        };
        Harness { timing, ..Harness::default() }
    }

    #[test]
    fn warm_up_and_measurement_are_told_apart() {
        let _limit = testkit::limit(30);
        let harness = Harness { pace: Pace::Open { per_second: 1000.0 }, threads: 2, ..quick() };
        let run = harness
            .measure("nothing", |_, _| Ok(|_| Ok(OperationResult { units: 3, result: 0 })))
            .expect("no failure");
        assert!(run.failures.is_empty());
        let stream = run.stream("nothing");
        assert_eq!((stream.cold.count, stream.warm.count), (30, 150));
        assert_eq!(stream.units_in_all, 540);
    }

    #[test]
    fn a_stall_inside_the_process_is_charged_to_what_it_delayed() {
        let _limit = testkit::limit(30);
        let harness = Harness { pace: Pace::Open { per_second: 1000.0 }, ..quick() };
        let run = harness
            .measure("stall", |_, _| {
                Ok(|number| {
                    if number == 50 {
                        std::thread::sleep(Duration::from_millis(80));
                    }
                    Ok(OperationResult::default())
                })
            })
            .expect("no failure");
        let stream = run.stream("stall");
        assert!(stream.warm.longest_ms >= 80.0, "{stream:?}");
        // About 80 of the 150 operations waited; measured from the moment of sending, only one was slow.
        assert!(stream.warm.p50_ms > 1.0, "{stream:?}");
        assert!(stream.warm_from_sent.p90_ms < stream.warm.p90_ms, "{stream:?}");
    }

    #[test]
    fn an_error_fails_the_run_and_stops_every_thread() {
        let _limit = testkit::limit(30);
        let harness = Harness {
            threads: 2,
            timing: Timing { measure: Duration::from_secs(60), ..quick().timing },
            ..quick()
        };
        let started = Instant::now();
        let run = harness
            .measure("broken", |thread, _| {
                Ok(move |number| {
                    if thread == 1 && number == 5 {
                        Err(types::Error::invalid("no"))
                    } else {
                        Ok(OperationResult::default())
                    }
                })
            })
            .expect("the run itself works");
        assert_eq!(run.failures, ["broken: no"]);
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_fixed_number_of_operations_hashes_the_same_for_the_same_seed_only() {
        let _limit = testkit::limit(30);
        let hash = |seed| {
            let harness = Harness { seed, ..Harness::default() };
            let work = |_, random: &mut Random| Ok(OperationResult { units: 1, result: random.word() });
            harness.count(100, work).expect("no failure").hash
        };
        assert_eq!(hash(7), hash(7));
        assert_ne!(hash(7), hash(8));
    }
}
