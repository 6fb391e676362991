//! Twelve databases under paced writers and readers, with or without builds of indexes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use types::{Error, Result};

use super::products::{INDEXES, ObservedAnswer, ProductQuery, Statements, TABLE, row};
use crate::latency::Latency;
use crate::pace::{self, Due, Pace};
use crate::peer::{Digest, Peer, Session, Store};
use crate::process;
use crate::random::Random;
use crate::run::{self, BenchRun, Context, Tally, Timing};

/// All databases of one peer.
pub(super) struct Fleet {
    databases: Vec<FleetDatabase>,
    statements: Statements,
    // Declared after the databases: their files lie in the directory, so it must be dropped last.
    _directory: tempfile::TempDir,
}

struct FleetDatabase {
    store: Arc<dyn Store>,
    /// Number of rows whose insertion began. Each database has one writer.
    begun: AtomicU64,
    /// Number of rows that were acknowledged.
    acknowledged: AtomicU64,
}

/// Operations per second of all databases together, and the CPU time of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) write_cpu: Duration,
    pub(super) read_cpu: Duration,
    pub(super) writes: f64,
    pub(super) reads: f64,
}

/// The results of a round.
pub(super) struct RoundResult {
    pub(super) run: BenchRun,
    pub(super) reads: Latency,
    pub(super) writes: Latency,
    pub(super) answers: Vec<ObservedAnswer>,
    /// Time that each database took to build both indexes.
    pub(super) builds: Vec<Duration>,
    pub(super) locks: u64,
}

impl FleetDatabase {
    fn insert(&self, session: &mut dyn Session) -> Result<()> {
        let n = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        session.insert(&TABLE, &row(n))?;
        self.acknowledged.store(n, Ordering::SeqCst);
        Ok(())
    }

    fn query(
        &self,
        query: ProductQuery,
        session: &mut dyn Session,
        statements: &Statements,
    ) -> Result<ObservedAnswer> {
        let least = self.acknowledged.load(Ordering::SeqCst);
        let mut answer = Digest::default();
        query.run(session, statements, &mut answer)?;
        let most = self.begun.load(Ordering::SeqCst);
        Ok(ObservedAnswer { query, rows: answer.rows, hash: answer.hash, least, most })
    }
}

impl Fleet {
    /// Opens the databases and inserts `rows` rows into each, one by one.
    pub(super) fn new(peer: &dyn Peer, root: &Path, databases: usize, rows: u64) -> Result<Fleet> {
        let directory = tempfile::Builder::new()
            .prefix("polynya-bench-")
            .tempdir_in(root)
            .map_err(|error| Error::io(format_args!("making a directory in {}", root.display()), error))?;
        let open = |number: usize| {
            let dir = directory.path().join(number.to_string());
            std::fs::create_dir(&dir).map_err(|error| Error::io("making a database's directory", error))?;
            let store = peer.open(&dir)?;
            store.create(&TABLE)?;
            Ok(FleetDatabase { store, begun: AtomicU64::new(0), acknowledged: AtomicU64::new(0) })
        };
        let databases = (0..databases).map(open).collect::<Result<Vec<_>>>()?;
        thread::scope(|scope| {
            let loads: Vec<_> = databases
                .iter()
                .map(|database| {
                    scope.spawn(move || {
                        let mut session = database.store.session()?;
                        (0..rows).try_for_each(|_| database.insert(session.as_mut()))
                    })
                })
                .collect();
            loads.into_iter().try_for_each(join)
        })?;
        Ok(Fleet { databases, statements: Statements::new(), _directory: directory })
    }

    /// Measures the CPU time of an insertion and of a query, one after the other, and derives the rates at which they use the
    /// given shares of the machine.
    pub(super) fn calibrate(&self, operations: u64, seed: u64, writing: f64, reading: f64) -> Result<Rates> {
        let mut sessions =
            self.databases.iter().map(|database| database.store.session()).collect::<Result<Vec<_>>>()?;
        let count = self.databases.len() as u64;
        let mut each = |work: &mut dyn FnMut(&FleetDatabase, &mut dyn Session) -> Result<()>| {
            let before = process::process_cpu_time();
            for n in 0..operations.max(count) {
                let at = (n % count) as usize;
                work(&self.databases[at], sessions[at].as_mut())?;
            }
            let used = process::process_cpu_time() - before;
            Ok::<_, Error>(used / u32::try_from(operations.max(count)).unwrap_or(u32::MAX))
        };
        let write_cpu = each(&mut |database, session| database.insert(session))?;
        let mut random = Random::part(seed, 7);
        let read_cpu = each(&mut |database, session| {
            database.query(ProductQuery::random(&mut random), session, &self.statements).map(|_| ())
        })?;
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let rate = |share: f64, cpu: Duration| cores * share / cpu.as_secs_f64().max(1e-7);
        Ok(Rates { write_cpu, read_cpu, writes: rate(writing, write_cpu), reads: rate(reading, read_cpu) })
    }

    /// Runs one round. With `building`, all databases build both indexes at once; once the last one is ready they drop the
    /// indexes and start again, until the round ends.
    pub(super) fn round(
        &self,
        name: &str,
        seed: u64,
        rates: &Rates,
        timing: Timing,
        building: bool,
    ) -> Result<RoundResult> {
        let (reads, writes) = (Mutex::new(Latency::default()), Mutex::new(Latency::default()));
        let answers = Mutex::new(Vec::new());
        let locks = process::read_path_locks();
        let reader = |at: usize| -> Result<run::Worker<'_>> {
            let database = &self.databases[at];
            let mut session = database.store.session()?;
            let mut random = Random::part(seed, 1000 + at as u64);
            let (latency, answers, statements) = (&reads, &answers, &self.statements);
            Ok(Box::new(move |context| {
                let mut own = Vec::new();
                let tally = run_open_loop(context, latency, |_| {
                    let answer =
                        database.query(ProductQuery::random(&mut random), session.as_mut(), statements)?;
                    own.push(answer);
                    Ok(answer.rows)
                });
                lock(answers).append(&mut own);
                tally
            }))
        };
        let writer = |at: usize| -> Result<run::Worker<'_>> {
            let database = &self.databases[at];
            let mut session = database.store.session()?;
            let latency = &writes;
            Ok(Box::new(move |context| {
                run_open_loop(context, latency, |_| database.insert(session.as_mut()).map(|()| 1))
            }))
        };
        let all = 0..self.databases.len();
        let stream = |name: &str, per_second: f64, workers| run::ReadyStream {
            name: name.to_owned(),
            pace: Pace::Open { per_second },
            connections: 0,
            workers,
        };
        let streams = vec![
            stream("reads", rates.reads, all.clone().map(reader).collect::<Result<_>>()?),
            stream("writes", rates.writes, all.map(writer).collect::<Result<_>>()?),
        ];
        let stop = AtomicBool::new(false);
        let (run, builds) = thread::scope(|scope| {
            let builder = building.then(|| scope.spawn(|| self.build_repeatedly(&stop)));
            let run = run::run_streams(name, timing, run::MonitorOptions::default(), streams);
            stop.store(true, Ordering::Relaxed);
            let builds = builder.map_or(Ok(Vec::new()), join);
            Ok::<_, Error>((run?, builds?))
        })?;
        let into_inner =
            |latency: Mutex<Latency>| latency.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(RoundResult {
            run,
            reads: into_inner(reads),
            writes: into_inner(writes),
            answers: answers.into_inner().unwrap_or_else(PoisonError::into_inner),
            builds,
            locks: process::read_path_locks() - locks,
        })
    }

    fn build_repeatedly(&self, stop: &AtomicBool) -> Result<Vec<Duration>> {
        let mut builds = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            thread::scope(|scope| {
                let build = |database: &FleetDatabase| -> Result<Duration> {
                    let began = Instant::now();
                    database.store.build_indexes(&TABLE, &INDEXES)?;
                    Ok(began.elapsed())
                };
                let running: Vec<_> =
                    self.databases.iter().map(|database| scope.spawn(move || build(database))).collect();
                running.into_iter().try_for_each(|thread| join(thread).map(|took| builds.push(took)))
            })?;
            self.databases.iter().try_for_each(|database| database.store.drop_indexes(&TABLE, &INDEXES))?;
        }
        Ok(builds)
    }

    /// Checks that every database holds each acknowledged row once and no other row. Returns the fewest rows of any database, and
    /// a description of each error.
    pub(super) fn scan(&self) -> Result<(u64, Vec<String>)> {
        let mut wrong = Vec::new();
        for (number, database) in self.databases.iter().enumerate() {
            let mut session = database.store.session()?;
            let answer = database.query(ProductQuery::Everything, session.as_mut(), &self.statements)?;
            wrong.extend(answer.check().err().map(|why| format!("database {number}: {why}")));
        }
        let rows = self.databases.iter().map(|database| database.acknowledged.load(Ordering::SeqCst));
        Ok((rows.min().unwrap_or(0), wrong))
    }

    pub(super) fn close(self) -> Result<()> {
        self.databases.iter().try_for_each(|database| database.store.close())
    }
}

/// Runs an open loop, in which each operation is measured from the moment at which it should have begun.
fn run_open_loop(
    context: &Context<'_>,
    latency: &Mutex<Latency>,
    mut work: impl FnMut(u64) -> Result<u64>,
) -> Result<Tally, String> {
    pace::sleep_precisely();
    let (mut tally, mut schedule, mut own) = (Tally::default(), context.schedule(), Latency::default());
    let mut number = 0;
    while !context.stopped() {
        let now = Instant::now();
        match schedule.due(now) {
            Due::Never => break,
            Due::At(at) => thread::sleep(at - now),
            Due::Now(intended) => {
                if now >= context.give_up {
                    context.record_unsent(&mut tally, intended, now);
                } else {
                    let units = work(number).map_err(|error| error.to_string())?;
                    number += 1;
                    context.record_done(&mut tally, intended, now, Instant::now(), units);
                }
                if intended >= context.warm_until {
                    own.record(intended.elapsed());
                }
            }
        }
    }
    lock(latency).merge(&own);
    Ok(tally)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| Error::internal("a thread of the benchmark panicked"))?
}
