//! `polynya bench waits`: measures inside one process how often a reader waits while writers saturate the log (R1).
//!
//! Over HTTP a reader sleeps between requests, and its sleeps look like waits. Here one thread reads through the library without
//! a pause, so each time it gives up the CPU voluntarily is a wait, and the kernel counts those. Small statements are handed to
//! SQL's own threads and back, which costs a sleep or two each; the point is that writers add none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use polynya::{Database, Kind, NewTable, Value};
use types::{DataType, Error, Result};

use crate::ProgressSink;
use crate::ab::{self, Comparison, ComparisonSide};
use crate::process::{self, ProcessSample};
use crate::random::Random;
use crate::report::{Claim, Report};

/// Prefix of the names of SQL's threads.
const SQL_THREADS: &str = "polynya-sql";

#[derive(Clone, Debug)]
pub struct Options {
    /// The parent of the database's directory.
    pub root: PathBuf,
    /// Rows of the table under test.
    pub rows: u64,
    /// Point reads of each measurement, all of them warm.
    pub reads: u64,
    /// Statements of each measurement.
    pub statements: u64,
    /// Number of threads that commit continuously: one upserts rows of the table under test, the others append to another table.
    pub writers: usize,
    /// Number of pairs of a measurement alone and one beside the writers.
    pub pairs: usize,
    pub seed: u64,
}

impl Options {
    pub fn new(root: &Path) -> Options {
        Options {
            root: root.to_path_buf(),
            rows: 100_000,
            reads: 1_000_000,
            statements: 10_000,
            writers: 8,
            pairs: 3,
            seed: 1,
        }
    }
}

/// Runs the workload. A wrong row is an error, because the measurement is void then.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("waits", options.seed);
    report.set("rows", options.rows);
    report.set("reads", options.reads);
    report.set("statements", options.statements);
    report.set("writers", options.writers);
    report.set("pairs", options.pairs);
    let directory =
        tempfile::Builder::new().prefix("polynya-bench-").tempdir_in(&options.root).map_err(|error| {
            Error::io(format_args!("making a directory in {}", options.root.display()), error)
        })?;
    let db = Database::open(directory.path())?;
    progress(&format!("loading {} rows", options.rows));
    load(&db, options.rows)?;
    let before = process::read_path_locks();
    let mut pair = 0;
    report.comparisons = ab::compare("alone", "beside writers", options.pairs.max(1), |side| {
        pair += 1;
        progress(&format!("waits: {} of {}", pair, 2 * options.pairs.max(1)));
        match side {
            ComparisonSide::A => measure(&db, options, pair),
            ComparisonSide::B => beside_writers(&db, options, || measure(&db, options, pair)),
        }
    })?;
    let locks = process::read_path_locks() - before;
    report.claims = claims(&report.comparisons, locks);
    db.close()?;
    Ok(report)
}

fn load(db: &Database, rows: u64) -> Result<()> {
    db.create_table(
        NewTable::new("readings")
            .required("id", DataType::Int64)
            .column("value", DataType::Int64)
            .primary_key(["id"]),
    )?;
    db.create_table(NewTable::new("writes").column("id", DataType::Int64).column("text", DataType::String))?;
    for first in (0..rows).step_by(10_000) {
        let part = (first..(first + 10_000).min(rows)).map(|id| [int(id), int(id)]);
        db.insert_rows("readings", &["id", "value"], part)?;
    }
    Ok(())
}

fn int(value: u64) -> Value {
    Value::Int64(value as i64)
}

/// Runs `measured` while all writers commit as fast as they are acknowledged.
fn beside_writers<T>(db: &Database, options: &Options, measured: impl FnOnce() -> Result<T>) -> Result<T> {
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..options.writers.max(1))
            .map(|writer| {
                let (stop, commits) = (&stop, &commits);
                let random = Random::part(options.seed, writer as u64);
                scope.spawn(move || write(db, options, writer, random, stop, commits))
            })
            .collect();
        // Reads that begin before the first commits would have no writers beside them.
        while commits.load(Ordering::Relaxed) < 100 && !writers.iter().any(|w| w.is_finished()) {
            std::thread::yield_now();
        }
        let result = measured();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| Error::internal("a writer panicked"))??;
        }
        result
    })
}

fn write(
    db: &Database,
    options: &Options,
    writer: usize,
    mut random: Random,
    stop: &AtomicBool,
    commits: &AtomicU64,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let done = if writer == 0 {
            // The row keeps its value, so a concurrent reader can still check it.
            let ids: Vec<u64> = (0..100).map(|_| random.below(options.rows)).collect();
            let batch =
                db.to_batch("readings", &["id", "value"], ids.into_iter().map(|id| [int(id), int(id)]))?;
            db.upsert("readings", batch)
        } else {
            let rows = (0..100).map(|i| [int(i), Value::String("a row that only fills the log".repeat(3))]);
            db.insert_rows("writes", &["id", "text"], rows)
        };
        match done {
            Ok(_) => commits.fetch_add(1, Ordering::Relaxed),
            Err(error) if error.kind() == Kind::Busy => continue,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

fn measure(db: &Database, options: &Options, run: usize) -> Result<BTreeMap<String, f64>> {
    let mut random = Random::part(options.seed, 1000 + run as u64);
    let mut figures = BTreeMap::new();

    // One pass over the table warms it up.
    for id in 0..options.rows {
        read(db, id)?;
    }
    let (switches, cpu) = (process::own_voluntary_switches()?, process::own_cpu_time());
    let mut longest = std::time::Duration::ZERO;
    for _ in 0..options.reads {
        let since = Instant::now();
        read(db, random.below(options.rows))?;
        longest = longest.max(since.elapsed());
    }
    let cpu = process::own_cpu_time() - cpu;
    let switches = process::own_voluntary_switches()? - switches;
    figures.insert("switches per 1000 point reads".into(), per(switches, options.reads) * 1000.0);
    figures.insert("CPU µs per point read".into(), cpu.as_secs_f64() * 1e6 / options.reads.max(1) as f64);
    figures.insert("longest point read ms".into(), longest.as_secs_f64() * 1e3);

    let before = (ProcessSample::own()?, process::own_voluntary_switches()?);
    for _ in 0..options.statements {
        let id = random.below(options.rows);
        let value = db.sql("SELECT value FROM readings WHERE id = $1", &[int(id)])?.value()?;
        right(id, &value)?;
    }
    let own = process::own_voluntary_switches()? - before.1;
    let usage = before.0.until(&ProcessSample::own()?);
    let sql = usage.threads.iter().filter(|group| group.name.starts_with(SQL_THREADS));
    let switches = own + sql.map(|group| group.voluntary_switches).sum::<u64>();
    figures.insert("switches per small statement".into(), per(switches, options.statements));
    Ok(figures)
}

/// Reads one row on the read path: debug builds panic if it takes a lock.
fn read(db: &Database, id: u64) -> Result<()> {
    let _reading = vfs::read_path();
    let row = db.get("readings", &[int(id)])?;
    let row = row.ok_or_else(|| Error::internal(format!("row {id} is missing")))?;
    right(id, &row.get("value")?)
}

fn right(id: u64, found: &Value) -> Result<()> {
    if *found == int(id) {
        return Ok(());
    }
    Err(Error::internal(format!("expected {id} in row {id}, found {found:?}")))
}

fn per(count: u64, operations: u64) -> f64 {
    count as f64 / operations.max(1) as f64
}

fn claims(found: &[Comparison], locks: u64) -> Vec<Claim> {
    let find = |figure: &str| found.iter().find(|found| found.figure == figure).cloned().unwrap_or_default();
    let points = find("switches per 1000 point reads");
    let statements = find("switches per small statement");
    vec![
        Claim {
            claim: "R1: readers take no lock".into(),
            holds: locks == 0,
            found: format!("{locks} locks on read paths"),
        },
        Claim {
            claim: "R1: a warm point read gives up the CPU less than once in 1000 reads beside writers"
                .into(),
            holds: points.b.median < 1.0,
            found: format!("{:.3} per 1000 alone, {:.3} beside", points.a.median, points.b.median),
        },
        Claim {
            claim: "R1: writers add less than one wait to a small statement".into(),
            holds: statements.b.median < statements.a.median + 1.0,
            found: format!("{:.2} alone, {:.2} beside", statements.a.median, statements.b.median),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_take_no_lock_and_wait_for_no_writer() {
        let _limit = testkit::limit(120);
        let root = tempfile::tempdir().unwrap();
        let small =
            Options { rows: 2_000, reads: 20_000, statements: 200, pairs: 1, ..Options::new(root.path()) };
        let report = run(&small, &mut |_| {}).unwrap();
        // Waits for writers would occur with every commit, thousands of times in such a run. The machine's own waits (a page
        // fault that meets one of another thread) are a handful.
        for claim in &report.claims {
            assert!(claim.holds, "{claim:?}");
        }
    }
}
