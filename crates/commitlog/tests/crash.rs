//! Crashes a seeded workload at every call: every synced commit must be there, with equal content and no gap (L1, L2).
//!
//! With a canary feature the log breaks one promise, and each of these tests must notice.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::*;
use polynya_commitlog::Writer;
use sim::SimEnv;
use testkit::{Rng, for_each_seed};
use types::{Lsn, Result};

/// The expected state of the log, stored outside of the machine that crashes.
#[derive(Clone, Debug)]
struct Model {
    /// All frames that were appended and not cut, oldest first, trimmed ones included.
    frames: Vec<WrittenFrame>,
    /// The last commit that was acknowledged.
    acknowledged: u64,
    /// The lsn from which the log is opened: the manifest has everything below.
    from: u64,
    /// A frame whose append had not returned when the machine crashed; recovery may or may not find it.
    doubtful: Option<WrittenFrame>,
    /// The calls of the processes so far, for the message of a failing test.
    history: Vec<String>,
}

impl Model {
    fn new() -> Self {
        Model { frames: Vec::new(), acknowledged: 0, from: 1, doubtful: None, history: Vec::new() }
    }

    fn remember(&mut self, machine: &SimEnv, end: &str) {
        let from = self.history.len().saturating_sub(3);
        self.history.drain(..from);
        self.history.push(format!("a process ({end}):\n  {}", machine.disk.last_calls().join("\n  ")));
    }

    /// Returns the machine that the next process finds: the process was killed, or the power failed.
    fn next(&mut self, machine: &SimEnv, rng: &mut Rng, kill: bool) -> SimEnv {
        self.remember(machine, if kill { "killed" } else { "power lost" });
        if kill { machine.kill() } else { machine.crash(rng) }
    }

    /// Compares the recovered frames with those that must be there and those that may be. From now on the recovered ones are the
    /// expected ones.
    fn recovered(&mut self, found: Vec<WrittenFrame>, last_lsn: Lsn) {
        let mut possible = self.frames.clone();
        possible.extend(self.doubtful.take());
        let below = possible.iter().take_while(|frame| frame.last_lsn() < self.from).count();
        let (trimmed, wanted) = possible.split_at(below);
        assert!(
            wanted.starts_with(&found),
            "recovery made something up or left a gap (L2):\n{found:?}\nof {wanted:?}"
        );
        let last = found.last().map_or(self.from - 1, WrittenFrame::last_lsn);
        assert_eq!(last, last_lsn.0);
        assert!(
            last >= self.acknowledged,
            "lsn {} was acknowledged, {last} is the last (L1)",
            self.acknowledged
        );
        self.frames = trimmed.iter().cloned().chain(found).collect();
        // Recovered frames count as acknowledged: the opening process has shown them to readers.
        self.acknowledged = last;
    }
}

fn open_and_check(machine: &SimEnv, model: &mut Model) -> Result<Writer> {
    let found = catch_unwind(AssertUnwindSafe(|| find(machine, model)));
    found.unwrap_or_else(|panic| {
        model.remember(machine, "the last one");
        eprintln!("{}", model.history.join("\n"));
        std::panic::resume_unwind(panic)
    })
}

fn find(machine: &SimEnv, model: &mut Model) -> Result<Writer> {
    let (writer, recovery, found) = open(&machine.env(), model.from)?;
    assert_eq!(damage_text(recovery.damage), None, "a crash is no damage");
    model.recovered(found, recovery.last_lsn);
    Ok(writer)
}

/// Does some random steps of everything that the log can do. Returns an error when the machine crashes.
fn work(machine: &SimEnv, model: &mut Model, rng: &mut Rng, steps: u64) -> Result<()> {
    let mut writer = open_and_check(machine, model)?;
    for _ in 0..steps {
        match rng.below(12) {
            0..5 => {
                let bytes = *rng.pick(&[10, 400, 2500, 6000, 20_000]);
                let (builder, written) = random_frame(rng, writer.next_lsn(), bytes);
                model.doubtful = Some(written);
                writer.append(builder)?;
                model.frames.extend(model.doubtful.take());
            }
            5..8 => model.acknowledged = writer.syncer().sync()?.0,
            8 => writer.preallocator().prepare()?,
            9 => {
                // The manifest has some prefix of the durable commits; the log may drop those.
                model.from =
                    rng.range(model.from..model.acknowledged.max(model.from) + 2).min(model.acknowledged + 1);
                writer.trim(Lsn(model.from))?;
            }
            10 => {
                writer.close()?;
                model.acknowledged =
                    model.frames.last().map_or(0, WrittenFrame::last_lsn).max(model.acknowledged);
                writer = open_and_check(machine, model)?;
            }
            _ => {
                // A process is killed without warning, and its successor starts on the same machine.
                drop(writer);
                writer = open_and_check(machine, model)?;
            }
        }
    }
    Ok(())
}

/// Runs the seed's workload with a crash at call `at`, then recovers, sometimes crashing again during the recovery, and
/// continues. Returns true if the workload ended before call `at`.
fn crash_and_recover(seed: u64, at: u64) -> bool {
    let mut rng = Rng::new(seed);
    let mut machine = SimEnv::new(seed);
    let mut model = Model::new();
    machine.disk.crash_at(at);
    let finished = work(&machine, &mut model, &mut rng.fork(), 14).is_ok();
    let mut rng = Rng::new(seed ^ at << 32);
    for round in 0..4 {
        let kill = rng.one_in(4);
        machine = model.next(&machine, &mut rng, kill);
        let again = if round < 3 { rng.range(1..60) } else { u64::MAX };
        machine.disk.crash_at(machine.disk.calls().saturating_add(again));
        let worked = work(&machine, &mut model, &mut rng, 4);
        assert!(worked.is_ok() || machine.disk.is_dead(), "{worked:?}");
    }
    finished
}

fn check(seed: u64, at: u64) -> bool {
    let checked = catch_unwind(|| crash_and_recover(seed, at));
    checked.unwrap_or_else(|panic| {
        eprintln!("seed {seed}, crash at call {at}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
#[cfg_attr(any(feature = "canary-skip-fsync", feature = "canary-skip-checksum"), should_panic)]
fn acknowledged_commits_survive_a_crash_at_every_call() {
    let _limit = testkit::limit(300);
    for_each_seed(12, |seed| {
        let mut at = 1;
        while !check(seed, at) {
            at += 1;
        }
        assert!(at > 10, "seed {seed} makes only {at} calls");
    });
}

#[test]
#[cfg_attr(any(feature = "canary-skip-fsync", feature = "canary-skip-checksum"), should_panic)]
fn acknowledged_commits_survive_a_crash_at_some_call_of_many_workloads() {
    let _limit = testkit::limit(300);
    for_each_seed(300, |seed| {
        let seed = seed + 1000;
        let mut rng = Rng::new(!seed);
        for _ in 0..6 {
            let at = rng.range(1..120);
            check(seed, at);
        }
    });
}

#[test]
#[cfg(not(any(feature = "canary-skip-fsync", feature = "canary-skip-checksum")))]
fn crashes_that_once_lost_commits_or_brought_some_back_no_longer_do() {
    let _limit = testkit::limit(60);
    for (seed, at) in [
        // A regression: a file was recycled before the header and name of the next one were durable.
        (4, 83),
        (1065, 108),
        // A regression: an epoch was reused that the old header of a spare still had. The spare's new header was lost and its new
        // name was not, so the old header passed for the new one, with the old frames behind it.
        (23_246, 99),
    ] {
        check(seed, at);
    }
}

#[test]
#[cfg_attr(any(feature = "canary-skip-fsync", feature = "canary-skip-checksum"), should_panic)]
fn a_failing_disk_loses_nothing_that_was_acknowledged() {
    let _limit = testkit::limit(300);
    for_each_seed(300, |seed| {
        let mut rng = Rng::new(seed);
        let mut machine = SimEnv::new(seed);
        let mut model = Model::new();
        work(&machine, &mut model, &mut rng, 6).unwrap();
        for _ in 0..3 {
            machine = model.next(&machine, &mut rng, true);
            // Crashes begin once the directory exists durably: making it is up to the data directory.
            let writer = open_and_check(&machine, &mut model).unwrap();
            drop(writer);
            machine = model.next(&machine, &mut rng, true);
            if rng.one_in(2) {
                machine.disk.fail_sync(rng.range(2..12));
            } else {
                machine.disk.fail_write(rng.range(1..12));
            }
            let _ = work(&machine, &mut model, &mut rng, 12);
            let kill = rng.one_in(2);
            machine = model.next(&machine, &mut rng, kill);
        }
        work(&machine, &mut model, &mut rng, 3).unwrap();
    });
}
