//! The thread that reads the machine each second and writes the reading.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::threads::Class;
use engine::{Ack, Engine, Mode, Op, Transaction};
use types::{Error, Micros, Principal, Result};

use super::retention::Retention;
use super::{METRICS_TABLE, Machine, PROCESSES_TABLE, ROWS_PER_READING_MAX, batch};
use crate::config::Record;

/// Time between two readings.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Number of readings after which old rows are deleted.
const RETENTION_EVERY: u64 = 60;

/// A running thread that records, or only deletes old rows, until it is stopped.
pub struct Recorder {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Creates the tables if they are missing, and starts to record.
    pub fn start(engine: Engine, settings: &Record) -> Result<Self> {
        let keep = Micros::try_from(settings.keep.0.as_micros()).unwrap_or(Micros::MAX);
        let tables = [batch::metrics_table(keep)?, batch::processes_table(keep)?];
        let ops = tables.into_iter().map(|def| Op::CreateTable { def, if_absent: true }).collect();
        engine.commit(&Principal::local(), Transaction::new(ops).internal())?;
        let processes = settings.processes;
        let (stop, stopped) = mpsc::channel();
        let thread = Class::Background.spawn("recorder", move || run(&engine, keep, processes, &stopped));
        let thread = thread.map_err(|error| Error::io("starting the recorder's thread", error))?;
        Ok(Recorder { stop, thread })
    }

    /// Starts a thread that records nothing and only deletes old rows of `polynya.*` tables. It is needed because the server
    /// records its requests even if the machine is not recorded.
    pub fn start_retention(engine: Engine, settings: &Record) -> Result<Self> {
        let keep = Micros::try_from(settings.keep.0.as_micros()).unwrap_or(Micros::MAX);
        let (stop, stopped) = mpsc::channel();
        let thread = Class::Background.spawn("retention", move || {
            let mut retention = Retention::new(keep);
            let pause = READ_EVERY * RETENTION_EVERY as u32;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                retention.run(&engine, engine.env().clock.now());
            }
        });
        let thread = thread.map_err(|error| Error::io("starting the retention's thread", error))?;
        Ok(Recorder { stop, thread })
    }

    pub fn stop(self) {
        // The send fails if the thread has ended already.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn run(engine: &Engine, keep: Micros, processes_count: usize, stopped: &mpsc::Receiver<()>) {
    let clock = engine.env().clock.clone();
    let mut machine = Machine::new(engine.dir(), processes_count);
    let mut retention = Retention::new(keep);
    let mut next = clock.monotonic();
    for reading in 0_u64.. {
        if let Err(error) = record(engine, &mut machine, clock.monotonic(), clock.now()) {
            tracing::debug!(%error, "a reading was not recorded");
        }
        if reading % RETENTION_EVERY == RETENTION_EVERY - 1 {
            retention.run(engine, clock.now());
        }
        // A late reading moves the whole schedule, so that later readings do not hurry to catch up.
        next = (next + READ_EVERY).max(clock.monotonic());
        match stopped.recv_timeout(next.saturating_sub(clock.monotonic())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Takes a reading and submits it as one commit. The commit is acknowledged from memory, because telemetry is not worth an
/// fsync.
fn record(engine: &Engine, machine: &mut Machine, at: Duration, time: Micros) -> Result<()> {
    let (samples, processes) = machine.read(at);
    let rest = ROWS_PER_READING_MAX.saturating_sub(samples.len());
    let batches = [
        (METRICS_TABLE, batch::metrics(time, &samples)?),
        (PROCESSES_TABLE, batch::processes(time, &processes, rest)?),
    ];
    let insert = |(table, batch): (&str, _)| Op::Insert { table: table.into(), batch, mode: Mode::Append };
    let ops = batches.into_iter().filter(|(_, batch)| batch.num_rows() > 0).map(insert).collect();
    engine.submit(&Principal::local(), Transaction::new(ops).ack(Ack::Memory).internal(), |result| {
        if let Err(error) = result {
            tracing::debug!(%error, "a reading was not recorded");
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    #[test]
    fn readings_become_rows_and_old_ones_go() {
        let _limit = testkit::limit(120);
        let dir = tempfile::tempdir().unwrap();
        let env = vfs::Env::real();
        let engine = Engine::open(env.clone(), &dir.path().join("data"), engine::Options::default()).unwrap();
        let settings = Record { enabled: true, keep: Span(Duration::from_secs(3600)), processes: 3 };
        let recorder = Recorder::start(engine.clone(), &settings).unwrap();
        let rows = |table: &str| engine.root().table(table).map_or(0, |t| t.rows());
        let started = std::time::Instant::now();
        while (rows(METRICS_TABLE) < 30 || rows(PROCESSES_TABLE) == 0)
            && started.elapsed() < Duration::from_secs(30)
        {
            std::thread::yield_now();
        }
        recorder.stop();
        let recorded = rows(METRICS_TABLE);
        assert!(recorded >= 30 && rows(PROCESSES_TABLE) > 0, "{recorded} rows");

        // An hour and a second later, all rows are deleted.
        let mut retention = Retention::new(3_600_000_000);
        retention.run(&engine, env.clock.now());
        assert_eq!(rows(METRICS_TABLE), recorded, "nothing is old yet");
        retention.run(&engine, env.clock.now() + 3_601_000_000);
        assert_eq!((rows(METRICS_TABLE), rows(PROCESSES_TABLE)), (0, 0));
        engine.close().unwrap();
    }

    #[test]
    fn a_directory_keeps_its_tables_over_restarts() {
        let _limit = testkit::limit(60);
        let dir = tempfile::tempdir().unwrap();
        let settings = Record { enabled: true, keep: Span(Duration::from_secs(60)), processes: 0 };
        for _ in 0..2 {
            let engine =
                Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
            Recorder::start(engine.clone(), &settings).unwrap().stop();
            engine.close().unwrap();
        }
    }
}
