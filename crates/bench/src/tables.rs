//! `polynya bench tables`: measures queries, inserts and the size on disk of one table with 300,000 orders.
//!
//! Each repetition runs every query on every peer in turn, with the same parameters, so that any drift affects all alike.
//! Parameters vary. If a query has no parameter that could vary, the table grows by a row before the query, so that no result
//! cache can answer it. Every value of every row is read. Before the timed part, answers are compared with the expected rows;
//! each timed answer is compared again, and a wrong answer has no time.

mod orders;
mod queries;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::ProgressSink;
use crate::ab::Spread;
use crate::peer::{Cell, Digest, Peer, PeerStatement, Session, Store};
use crate::peer_figures::{self, Figure, FigureKind, WorkFigures};
use crate::random::{Random, WorkHash};
use crate::report::{Claim, Report};
use orders::{INDEXES, ORDERS, Order, Orders, SINGLES};
use queries::{TableQuery, queries};

#[derive(Clone, Debug)]
pub struct Options {
    /// The parent of the databases' directories.
    pub root: PathBuf,
    pub rows: u64,
    /// Rows of the table in which the library looks up keys without SQL.
    pub lookup_rows: u64,
    /// Number of lookups in one repetition.
    pub lookups: u64,
    pub repeat: usize,
    /// Number of times that a new table is filled.
    pub fills: usize,
    /// Rows of one commit during a fill.
    pub batch: usize,
    /// Threads that insert single rows; one measurement for each number.
    pub threads: Vec<usize>,
    /// Duration of the single inserts.
    pub inserting: Duration,
    /// True to query the rows in their final storage: in segments for Polynya, in an analysed and checkpointed file for others.
    pub sealed: bool,
    /// Parts of the names of the measurements to run; all of them if empty.
    pub only: Vec<String>,
    pub seed: u64,
}

impl Options {
    pub fn new(root: &Path) -> Options {
        Options {
            root: root.to_path_buf(),
            rows: 300_000,
            lookup_rows: 1_000_000,
            lookups: 2_000,
            repeat: 7,
            fills: 3,
            batch: 10_000,
            threads: vec![1, 2, 4, 8],
            inserting: Duration::from_secs(1),
            sealed: false,
            only: Vec::new(),
            seed: 1,
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

const FILL: &str = "bulk insert";
const BUILD: &str = "index of customer and of region";
const LOOKUP: &str = "key lookup by the library";
const SINGLE: &str = "single durable inserts";
const SIZE: &str = "size on disk, both indexes in it";

/// An open database and its directory, which is removed with it.
struct OpenDatabase {
    store: Arc<dyn Store>,
    _directory: tempfile::TempDir,
}

struct TablesBench<'a> {
    options: &'a Options,
    peers: &'a [&'a dyn Peer],
    progress: ProgressSink<'a>,
    measured: Vec<WorkFigures>,
    failures: Vec<String>,
}

/// Runs the workload. The claims concern the first peer, whose wrong answers fail the run. Wrong answers of other peers are
/// reported and have no time.
pub fn run(options: &Options, peers: &[&dyn Peer], progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("tables", options.seed);
    report.set("rows", options.rows);
    report.set("rows of the table of library lookups", options.lookup_rows);
    report.set("repetitions", options.repeat);
    report.set("rows of a commit while filled", options.batch);
    report.set("asked when the rows lie where they stay", options.sealed);
    let mut bench = TablesBench { options, peers, progress, measured: Vec::new(), failures: Vec::new() };
    let mut orders = Orders::new(options.rows);
    let queries: Vec<TableQuery> =
        queries(options.lookups).into_iter().filter(|query| options.wants(query.name)).collect();
    let mut hash = WorkHash::default();
    let mut random = Random::new(options.seed);
    for query in &queries {
        hash.add(query.statement.text.as_bytes());
        let params = query.params(&mut random, &orders);
        hash.add(format!("{params:?} {}", query.expected(&orders, &params).len()).as_bytes());
    }
    report.work_hash = hash.finish();

    let stores = bench.fill(&orders)?;
    bench.run_queries(&queries, &mut orders, &stores)?;
    stores.into_iter().try_for_each(|open| open.store.close())?;
    if options.wants(LOOKUP) {
        bench.look_up()?;
    }
    if options.wants(SINGLE) {
        bench.insert()?;
    }
    if options.wants(SIZE) {
        let besides = bench.measure_size(&orders)?;
        report.set("bytes besides, such as a log that is used again", besides);
    }
    let title = "Medians, lowest to highest. A figure against another is how many times better Polynya is.";
    report.sheets.push(peer_figures::sheet(title, &bench.measured));
    report.claims = peer_figures::claims(&bench.measured);
    report.claims.extend(own_claims(&bench.measured));
    report.failures = bench.failures;
    report.measured = bench.measured;
    Ok(report)
}

impl TablesBench<'_> {
    fn open(&self, peer: &dyn Peer, settled: Option<u64>) -> Result<OpenDatabase> {
        let root = &self.options.root;
        let directory = tempfile::Builder::new()
            .prefix("polynya-bench-")
            .tempdir_in(root)
            .map_err(|error| Error::io(format_args!("making a directory in {}", root.display()), error))?;
        let store = match settled {
            Some(rows) => peer.open_to_settle(directory.path(), rows)?,
            None => peer.open(directory.path())?,
        };
        Ok(OpenDatabase { store, _directory: directory })
    }

    /// Returns the peers' indexes, starting with another peer in each repetition.
    fn turn_order(&self, repetition: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.peers.len();
        (0..count).map(move |at| (at + repetition) % count)
    }

    fn record(
        &mut self,
        work: &str,
        unit: &str,
        is: FigureKind,
        values: Vec<Vec<f64>>,
        wrong: Vec<Option<String>>,
    ) {
        let figures =
            self.peers.iter().zip(values).zip(wrong).enumerate().map(|(at, ((peer, values), wrong))| {
                if let Some(why) = &wrong {
                    let why = format!("{}, {work}: {why}", peer.name());
                    if at == 0 {
                        self.failures.push(why);
                    } else {
                        (self.progress)(&format!("WRONG ANSWER of {why}"));
                    }
                }
                Figure { peer: peer.name().to_owned(), value: Spread::of(values), wrong }
            });
        let of = figures.collect();
        self.measured.push(WorkFigures { work: work.to_owned(), unit: unit.to_owned(), is, of });
    }

    fn no_errors(&self) -> Vec<Option<String>> {
        vec![None; self.peers.len()]
    }

    /// Fills a new table several times and builds its indexes. Returns the last database of each peer.
    fn fill(&mut self, orders: &Orders) -> Result<Vec<OpenDatabase>> {
        let batches: Vec<_> = orders.all.chunks(self.options.batch.max(1)).map(orders::columns).collect();
        let mut kept: Vec<Option<OpenDatabase>> = self.peers.iter().map(|_| None).collect();
        let mut rates = vec![Vec::new(); self.peers.len()];
        let mut builds = rates.clone();
        for fill in 0..self.options.fills.max(1) {
            for at in self.turn_order(fill) {
                (self.progress)(&format!("{}: filling, {}", self.peers[at].name(), fill + 1));
                if let Some(open) = kept[at].take() {
                    open.store.close()?;
                }
                let settled = self.options.sealed.then_some(self.options.rows);
                let open = self.open(self.peers[at], settled)?;
                open.store.create(&ORDERS)?;
                let mut session = open.store.session()?;
                let began = Instant::now();
                batches.iter().try_for_each(|batch| session.load(&ORDERS, batch))?;
                rates[at].push(orders.all.len() as f64 / began.elapsed().as_secs_f64());
                let began = Instant::now();
                open.store.build_indexes(&ORDERS, &INDEXES)?;
                builds[at].push(began.elapsed().as_secs_f64() * 1e3);
                if settled.is_some() {
                    open.store.settle()?;
                }
                kept[at] = Some(open);
            }
        }
        let none = self.no_errors();
        self.record(FILL, "rows/s", FigureKind::Rate, rates, none.clone());
        self.record(BUILD, "ms", FigureKind::OtherTime, builds, none);
        Ok(kept.into_iter().flatten().collect())
    }

    /// Runs and measures all queries.
    fn run_queries(
        &mut self,
        queries: &[TableQuery],
        orders: &mut Orders,
        stores: &[OpenDatabase],
    ) -> Result<()> {
        let mut sessions = stores.iter().map(|open| open.store.session()).collect::<Result<Vec<_>>>()?;
        let mut wrong = vec![self.no_errors(); queries.len()];
        for (number, query) in queries.iter().enumerate() {
            (self.progress)(&format!("comparing: {}", query.name));
            let mut random = Random::part(self.options.seed, number as u64);
            for _ in 0..3 {
                let params = query.params(&mut random, orders);
                let expected = query.expected(orders, &params);
                for (session, wrong) in sessions.iter_mut().zip(&mut wrong[number]) {
                    let mut answer = Digest::with_rows();
                    session.select(&query.statement, &params, &mut answer)?;
                    *wrong = wrong.take().or_else(|| query.difference(answer, &expected));
                }
            }
        }
        let mut times = vec![vec![Vec::new(); self.peers.len()]; queries.len()];
        for repetition in 0..self.options.repeat.max(1) {
            (self.progress)(&format!("asking, {} of {}", repetition + 1, self.options.repeat));
            for (number, query) in queries.iter().enumerate() {
                let part = 1_000 + (repetition * queries.len() + number) as u64;
                let mut random = Random::part(self.options.seed, part);
                let mut spent = vec![Duration::ZERO; self.peers.len()];
                for _ in 0..query.operations {
                    if query.grows {
                        grow(orders, &mut sessions, stores)?;
                    }
                    let params = query.params(&mut random, orders);
                    let expected = query.expected(orders, &params);
                    for at in self.turn_order(repetition) {
                        let mut answer = Digest::default();
                        let began = Instant::now();
                        sessions[at].select(&query.statement, &params, &mut answer)?;
                        spent[at] += began.elapsed();
                        let found = wrong[number][at].take();
                        wrong[number][at] = found.or_else(|| query.digest_difference(&answer, &expected));
                    }
                }
                for (times, spent) in times[number].iter_mut().zip(spent) {
                    times.push(spent.as_secs_f64() * 1e6 / query.operations as f64);
                }
            }
        }
        for ((query, times), wrong) in queries.iter().zip(times).zip(wrong) {
            self.record(query.name, "µs", FigureKind::Time, times, wrong);
        }
        Ok(())
    }

    /// Looks up rows of a larger table by key, without SQL if the library offers that.
    fn look_up(&mut self) -> Result<()> {
        let rows = self.options.lookup_rows;
        let customers = (rows / 10).max(1);
        let stores = self.peers.iter().map(|peer| self.open(*peer, None)).collect::<Result<Vec<_>>>()?;
        let mut sessions = stores.iter().map(|open| open.store.session()).collect::<Result<Vec<_>>>()?;
        stores.iter().try_for_each(|open| open.store.create(&ORDERS))?;
        (self.progress)(&format!("filling {rows} rows to look up"));
        for first in (1..=rows).step_by(self.options.batch.max(1)) {
            let last = (first + self.options.batch as u64 - 1).min(rows);
            let batch: Vec<Order> = (first..=last).map(|i| Order::new(i, customers)).collect();
            let columns = orders::columns(&batch);
            sessions.iter_mut().try_for_each(|session| session.load(&ORDERS, &columns))?;
        }
        let mut times = vec![Vec::new(); self.peers.len()];
        let mut wrong = self.no_errors();
        let lookups = self.options.lookups * 10;
        // The first repetition is not counted, so there is one more.
        for repetition in 0..=self.options.repeat.max(1) {
            for at in self.turn_order(repetition) {
                let mut random = Random::part(self.options.seed, 10_000 + repetition as u64);
                let keys: Vec<u64> = (0..lookups).map(|_| 1 + random.below(rows)).collect();
                let mut answer = Digest::default();
                let began = Instant::now();
                keys.iter().try_for_each(|key| sessions[at].get(&ORDERS, *key as i64, &mut answer))?;
                let spent = began.elapsed().as_secs_f64() * 1e6 / lookups as f64;
                if repetition > 0 {
                    times[at].push(spent);
                }
                let mut expected = Digest::default();
                keys.iter().for_each(|key| expected.add_row(Order::new(*key, customers).cells()));
                if answer != expected {
                    wrong[at] = Some(format!("{} rows for {} keys, not theirs", answer.rows, expected.rows));
                }
            }
        }
        drop(sessions);
        stores.into_iter().try_for_each(|open| open.store.close())?;
        let name = format!("{LOOKUP}, {rows} rows");
        self.record(&name, "µs", FigureKind::OtherTime, times, wrong);
        Ok(())
    }

    /// Inserts single rows from several threads at once, each commit durable.
    fn insert(&mut self) -> Result<()> {
        let stores = self.peers.iter().map(|peer| self.open(*peer, None)).collect::<Result<Vec<_>>>()?;
        stores.iter().try_for_each(|open| open.store.create(&SINGLES))?;
        let next = AtomicI64::new(1);
        let mut written = vec![0; self.peers.len()];
        let mut all = Vec::new();
        for threads in self.options.threads.clone() {
            (self.progress)(&format!("single inserts by {threads} threads"));
            let mut rates = vec![Vec::new(); self.peers.len()];
            for repetition in 0..self.options.fills.max(1) {
                for at in self.turn_order(repetition) {
                    let store = &stores[at].store;
                    let (count, seconds) =
                        insert_for(store.as_ref(), threads, self.options.inserting, &next)?;
                    written[at] += count;
                    rates[at].push(count as f64 / seconds);
                }
            }
            all.push((threads, rates));
        }
        let mut wrong = self.no_errors();
        for ((open, written), wrong) in stores.iter().zip(&written).zip(&mut wrong) {
            let mut answer = Digest::with_rows();
            let count = PeerStatement::new("SELECT COUNT(*) FROM singles");
            open.store.session()?.select(&count, &[], &mut answer)?;
            let found = answer.into_rows();
            if found != [[Cell::Int(*written as i64)]] {
                *wrong = Some(format!("{found:?} rows, {written} were acknowledged"));
            }
            open.store.close()?;
        }
        for (threads, rates) in all {
            let name = format!("{SINGLE}, {threads} threads");
            self.record(&name, "rows/s", FigureKind::Rate, rates, wrong.clone());
        }
        Ok(())
    }

    /// Measures the bytes per row, and describes the bytes of all other files in the directories.
    fn measure_size(&mut self, orders: &Orders) -> Result<String> {
        let (mut bytes, mut besides) = (Vec::new(), Vec::new());
        for peer in self.peers {
            (self.progress)(&format!("{}: size", peer.name()));
            let open = self.open(*peer, Some(self.options.rows))?;
            open.store.create(&ORDERS)?;
            let mut session = open.store.session()?;
            for batch in orders.all.chunks(self.options.batch.max(1)) {
                session.load(&ORDERS, &orders::columns(batch))?;
            }
            open.store.build_indexes(&ORDERS, &INDEXES)?;
            drop(session);
            open.store.settle()?;
            let (loaded, other) = open.store.disk()?;
            bytes.push(vec![loaded as f64 / orders.all.len() as f64]);
            besides.push(format!("{} {other}", peer.name()));
            open.store.close()?;
        }
        let none = self.no_errors();
        self.record(SIZE, "bytes a row", FigureKind::Size, bytes, none);
        Ok(besides.join(", "))
    }
}

/// Adds one order to every database and completes the work that it causes, before the query is timed.
fn grow(orders: &mut Orders, sessions: &mut [Box<dyn Session>], stores: &[OpenDatabase]) -> Result<()> {
    let order = orders.grow().cells();
    for (session, open) in sessions.iter_mut().zip(stores) {
        session.insert(&ORDERS, &order)?;
        open.store.settle()?;
    }
    Ok(())
}

/// Inserts rows from several threads for some time. Returns the number of rows and the seconds.
fn insert_for(store: &dyn Store, threads: usize, time: Duration, next: &AtomicI64) -> Result<(u64, f64)> {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let sessions = (0..threads.max(1)).map(|_| store.session()).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    let insert = |mut session: Box<dyn Session>| -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let mut order = Order::new(next.fetch_add(1, Ordering::Relaxed) as u64, 1_000).cells();
            order.truncate(SINGLES.columns.len());
            session.insert(&SINGLES, &order)?;
            count.fetch_add(1, Ordering::Relaxed);
            if began.elapsed() >= time {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    let insert = &insert;
    thread::scope(|scope| {
        let running: Vec<_> =
            sessions.into_iter().map(|session| scope.spawn(move || insert(session))).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Error::internal("a writer panicked"))?)
    })?;
    Ok((count.into_inner(), began.elapsed().as_secs_f64()))
}

/// Judges the claims about Polynya that need no peer.
fn own_claims(all: &[WorkFigures]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let ours = |measured: &WorkFigures| measured.of.first().map(|figure| figure.value.median);
    if let Some(lookup) = all.iter().find(|measured| measured.work.starts_with(LOOKUP)).and_then(ours) {
        claims.push(Claim {
            claim: "a key lookup by the library takes less than 1 µs".into(),
            holds: lookup < 1.0,
            found: format!("{lookup:.2} µs"),
        });
    }
    let rates: Vec<f64> =
        all.iter().filter(|measured| measured.work.starts_with(SINGLE)).filter_map(ours).collect();
    if rates.len() > 1 {
        claims.push(Claim {
            claim: "more threads insert more single rows".into(),
            holds: rates.windows(2).all(|pair| pair[1] > pair[0]),
            found: rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", "),
        });
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Polynya;

    #[test]
    fn every_answer_about_a_small_table_is_right() {
        let _limit = testkit::limit(300);
        let root = tempfile::tempdir().unwrap();
        let small = Options {
            rows: 3_000,
            lookup_rows: 2_000,
            lookups: 40,
            repeat: 2,
            fills: 1,
            batch: 1_000,
            threads: vec![1, 2],
            inserting: Duration::from_millis(100),
            ..Options::new(root.path())
        };
        let report = run(&small, &[&Polynya], &mut |_| {}).unwrap();
        report.verdict().unwrap();
        assert_eq!(report.measured.len(), 2 + 11 + 1 + 2 + 1);
        let size = &report.measured.last().unwrap().of[0].value;
        // A row consists of numbers and names, with two of its columns indexed as well.
        assert!((20.0..500.0).contains(&size.median), "{size:?} bytes a row");
        for measured in &report.measured {
            assert!(measured.of[0].value.median > 0.0, "{measured:?}");
        }
    }

    /// A database that drops one row of each answer.
    struct Forgetful;

    struct ForgetfulStore(Arc<dyn Store>);

    struct ForgetfulSession(Box<dyn Session>);

    impl Peer for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }

        fn open(&self, dir: &Path) -> Result<Arc<dyn Store>> {
            Ok(Arc::new(ForgetfulStore(Polynya.open(dir)?)))
        }
    }

    impl Store for ForgetfulStore {
        fn session(&self) -> Result<Box<dyn Session>> {
            Ok(Box::new(ForgetfulSession(self.0.session()?)))
        }

        fn create(&self, table: &crate::peer::Table) -> Result<()> {
            self.0.create(table)
        }

        fn build_indexes(&self, table: &crate::peer::Table, columns: &[&str]) -> Result<()> {
            self.0.build_indexes(table, columns)
        }

        fn drop_indexes(&self, table: &crate::peer::Table, columns: &[&str]) -> Result<()> {
            self.0.drop_indexes(table, columns)
        }

        fn disk(&self) -> Result<(u64, u64)> {
            self.0.disk()
        }

        fn close(&self) -> Result<()> {
            self.0.close()
        }
    }

    impl Session for ForgetfulSession {
        fn select(&mut self, statement: &PeerStatement, params: &[Cell], answer: &mut Digest) -> Result<()> {
            let mut whole = Digest::with_rows();
            self.0.select(statement, params, &mut whole)?;
            whole.into_rows().into_iter().skip(1).for_each(|row| answer.add_row(row));
            Ok(())
        }

        fn get(&mut self, table: &crate::peer::Table, key: i64, answer: &mut Digest) -> Result<()> {
            self.0.get(table, key, answer)
        }

        fn insert(&mut self, table: &crate::peer::Table, row: &[Cell]) -> Result<()> {
            self.0.insert(table, row)
        }

        fn load(&mut self, table: &crate::peer::Table, rows: &crate::peer::ColumnBatch) -> Result<()> {
            self.0.load(table, rows)
        }
    }

    #[test]
    fn a_wrong_answer_of_a_peer_has_no_time_and_one_of_polynya_fails_the_run() {
        let _limit = testkit::limit(300);
        let root = tempfile::tempdir().unwrap();
        let small = Options {
            rows: 1_000,
            lookups: 4,
            repeat: 1,
            fills: 1,
            only: vec!["scan".into(), "customer".into()],
            ..Options::new(root.path())
        };
        let report = run(&small, &[&Polynya, &Forgetful], &mut |_| {}).unwrap();
        report.verdict().unwrap();
        let asked: Vec<_> =
            report.measured.iter().filter(|measured| measured.is == FigureKind::Time).collect();
        assert_eq!(asked.len(), 4);
        assert!(asked.iter().all(|measured| measured.of[1].wrong.is_some()), "{asked:?}");
        assert!(report.to_markdown().contains("wrong answer"));
        assert!(run(&small, &[&Forgetful], &mut |_| {}).unwrap().verdict().is_err());
    }
}
