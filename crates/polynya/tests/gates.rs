//! The cost of single operations in counts rather than in time: allocations, waits, fsyncs, bytes written, growth with size.
//!
//! These tests are a binary of their own, because its global allocator counts.

#![cfg(feature = "sql")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polynya::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use polynya::arrow::datatypes::{DataType as Arrow, Field, Schema};
use polynya::{DataType, Database, NewTable, Options, Value};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system allocator; counting touches a thread local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocations of this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// Returns the number of voluntary context switches of this thread.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns rows of id, customer and amount. With `customers` a tenth of the rows, each customer has 10.
fn rows(ids: std::ops::Range<i64>, customers: i64) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", Arrow::Int64, false),
        Field::new("customer", Arrow::Utf8, false),
        Field::new("amount", Arrow::Float64, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("cust_{}", id % customers)))),
        Arc::new(Float64Array::from_iter_values(ids.map(|id| (id as f64 * 1.7 + 42.0) % 1000.0))),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn orders(db: &Database, count: i64) {
    let table = NewTable::new("orders")
        .column("id", DataType::Int64)
        .column("customer", DataType::String)
        .column("amount", DataType::Float64);
    db.create_table(table.primary_key(["id"]).index(["customer"])).unwrap();
    for first in (0..count).step_by(20_000) {
        db.insert("orders", rows(first..(first + 20_000).min(count), count / 10)).unwrap();
    }
    db.wait_for_indexes("orders", Duration::from_secs(60)).unwrap();
}

const BY_KEY: &str = "SELECT amount FROM orders WHERE id = $1";
const BY_CUSTOMER: &str = "SELECT id, amount FROM orders WHERE customer = $1";

fn get(db: &Database, id: i64) {
    let row = db.get("orders", &[Value::Int64(id)]).unwrap().unwrap();
    assert_eq!(row.get("amount").unwrap(), Value::Float64((id as f64 * 1.7 + 42.0) % 1000.0));
}

fn by_key(db: &Database, id: i64) {
    assert_eq!(db.sql(BY_KEY, &[Value::Int64(id)]).unwrap().count, 1);
}

fn by_customer(db: &Database, customer: &str) {
    assert_eq!(db.sql(BY_CUSTOMER, &[customer.into()]).unwrap().count, 10);
}

/// Returns the allocations per operation, over 1,000 different ones.
fn each(count: i64, mut one: impl FnMut(i64)) -> f64 {
    (0..100).for_each(|i| one(i * 13 % count));
    let total = allocations(|| (0..1_000).for_each(|i| one(i * 7919 % count)));
    total as f64 / 1_000.0
}

#[test]
fn a_lookup_allocates_little_and_as_much_at_any_size() {
    let _limit = testkit::limit(240);
    let mut before: Option<[f64; 3]> = None;
    for count in [10_000, 40_000, 160_000] {
        let dir = testkit::temp_dir("gates");
        let db = Database::open(dir.join("db")).unwrap();
        orders(&db, count);
        let names: Vec<String> = (0..count / 10).map(|i| format!("cust_{i}")).collect();
        let found = [
            each(count, |id| get(&db, id)),
            each(count, |id| by_key(&db, id)),
            each(count / 10, |i| by_customer(&db, &names[i as usize])),
        ];
        println!("{count} rows: {found:?} allocations for a get, a key and ten rows of an index by SQL");
        assert!(found[0] <= LOOKUP_ALLOCATIONS[0], "{found:?}");
        assert!(found[1] <= LOOKUP_ALLOCATIONS[1], "{found:?}");
        assert!(found[2] <= LOOKUP_ALLOCATIONS[2], "{found:?}");
        if let Some(smaller) = before {
            let grown = found.iter().zip(smaller).map(|(now, before)| now - before);
            assert!(grown.into_iter().all(|more| more < 16.0), "{found:?} after {smaller:?}");
        }
        before = Some(found);
    }
}

/// The allocations when this was written, plus a half.
const LOOKUP_ALLOCATIONS: [f64; 3] = [10.0, 68.0, 145.0];

/// Returns the exponent with which a figure grows: the slope of the least-squares line through the logarithms.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0 / n, sum.1 + p.1 / n));
    let up: f64 = logs.iter().map(|p| (p.0 - mean.0) * (p.1 - mean.1)).sum();
    up / logs.iter().map(|p| (p.0 - mean.0).powi(2)).sum::<f64>()
}

#[test]
fn the_time_of_a_lookup_does_not_grow_like_the_table() {
    let _limit = testkit::limit(240);
    let mut times: [Vec<(f64, f64)>; 3] = Default::default();
    for count in [10_000i64, 80_000, 640_000] {
        let dir = testkit::temp_dir("gates");
        let db = Database::open(dir.join("db")).unwrap();
        orders(&db, count);
        let names: Vec<String> = (0..1_000).map(|i| format!("cust_{}", i * 7919 % (count / 10))).collect();
        // The fastest of several rounds counts, since other load only slows a round down. Rounds are long because the kernel
        // updates a thread's time every few milliseconds.
        let fastest = |one: &dyn Fn(i64)| {
            let round = |_| {
                let (start, begun, mut done) = (cpu_nanos(), Instant::now(), 0);
                while begun.elapsed() < Duration::from_millis(60) {
                    (0..100).for_each(|i| one((done + i) % 1_000));
                    done += 100;
                }
                (cpu_nanos() - start) as f64 / done as f64
            };
            (0..7).map(round).fold(f64::INFINITY, f64::min)
        };
        times[0].push((count as f64, fastest(&|i| get(&db, i * 7919 % count))));
        times[1].push((count as f64, fastest(&|i| by_key(&db, i * 7919 % count))));
        times[2].push((count as f64, fastest(&|i| by_customer(&db, &names[i as usize]))));
    }
    for (what, points) in ["get", "key by SQL", "ten rows of an index"].iter().zip(&times) {
        let exponent = exponent(points);
        println!("{what}: {points:?}, grows with the power {exponent:.2}");
        // Caches miss more often in a larger table; a scan would grow with the power 1.
        assert!(exponent < 0.5, "{what}: {points:?} grows with the power {exponent:.2}");
    }
}

#[test]
fn a_lookup_waits_for_nobody_while_rows_are_written() {
    let _limit = testkit::limit(240);
    let dir = testkit::temp_dir("gates");
    let db = Database::open(dir.join("db")).unwrap();
    orders(&db, 50_000);
    let done = AtomicBool::new(false);
    let (waited, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) {
                let first = 1_000_000 + written * 100;
                db.insert("orders", rows(first..first + 100, 5_000_000)).unwrap();
                written += 1;
            }
            written
        });
        // The first run of each is planned.
        (0..100).for_each(|id| (get(&db, id), by_key(&db, id)).1);
        let before = waits();
        let start = Instant::now();
        let mut id = 0;
        while id < 20_000 || start.elapsed() < Duration::from_secs(1) {
            get(&db, id % 50_000);
            by_key(&db, id * 7 % 50_000);
            id += 1;
        }
        let waited = waits() - before;
        done.store(true, Ordering::Relaxed);
        (waited as f64 / (2 * id) as f64, writer.join().unwrap())
    });
    assert!(written > 0);
    println!("{waited} waits a lookup beside {written} commits");
    // The only wait left is for the memory allocator's lock, which all threads share.
    assert!(waited < 0.001, "{waited} waits a lookup");
}

#[test]
fn a_commit_group_costs_one_fsync() {
    let _limit = testkit::limit(240);
    let dir = testkit::temp_dir("gates");
    let db = Database::open(dir.join("db")).unwrap();
    db.create_table(NewTable::new("n").column("i", DataType::Int64)).unwrap();
    let before = db.status();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..100 {
                    db.insert_rows("n", &["i"], [[Value::Int64(thread * 100 + i)]]).unwrap();
                }
            });
        }
    });
    let after = db.status();
    let (commits, groups) = (after.commits - before.commits, after.groups - before.groups);
    let syncs = after.log.syncs - before.log.syncs;
    println!("{commits} commits, {groups} groups, {syncs} fsyncs");
    assert_eq!(commits, 800);
    assert!(syncs <= groups + 2, "{syncs} fsyncs for {groups} groups");
    assert!(groups < commits, "{groups} groups for {commits} commits: nothing was shared");
}

#[test]
fn a_row_is_written_a_bounded_number_of_times() {
    let _limit = testkit::limit(240);
    let dir = testkit::temp_dir("gates");
    let mut options = Options::default();
    options.engine.seal_bytes = 128 << 10;
    let db = Database::open_with(dir.join("db"), options).unwrap();
    let table = NewTable::new("orders")
        .column("id", DataType::Int64)
        .column("customer", DataType::String)
        .column("amount", DataType::Float64);
    db.create_table(table.primary_key(["id"])).unwrap();
    // The waits below make the figures independent of the pool's speed: one seal per so many rows, and at least one compaction in
    // the end.
    let until = |done: &dyn Fn(&polynya::Status) -> bool| loop {
        let status = db.status();
        if done(&status) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut points = Vec::new();
    let mut inserted = 0;
    let mut first = 0;
    for size in [80_000, 320_000, 640_000] {
        while first < size {
            let batch = rows(first..first + 10_000, 30_000);
            inserted += batch.get_array_memory_size() as u64;
            db.insert("orders", batch).unwrap();
            first += 10_000;
            until(&|status| status.head_bytes < 256 << 10);
        }
        // Waits until no compaction is left to do.
        until(&|status| status.compactions > 0);
        let mut last = (0, Instant::now());
        while last.1.elapsed() < Duration::from_millis(1_500) {
            let written = db.status().background_bytes;
            if written != last.0 {
                last = (written, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = db.status();
        let written = status.log.bytes_written + status.background_bytes;
        points.push((size as f64, written as f64 / inserted as f64));
    }
    let exponent = exponent(&points);
    println!("bytes written per byte inserted: {points:.2?}, grows with the power {exponent:.2}");
    // Each row is written once to the log, once when sealed, and once per size class of segments, each four times as large as the
    // one before.
    assert!(points.iter().all(|(_, factor)| *factor < 8.0), "{points:?}");
    // The number of classes grows like the logarithm: over these sizes with a power of 0.15 to 0.3, depending on the seals. If
    // each merge rewrote the whole table it would be 0.65 and more.
    assert!(exponent < 0.5, "{points:?} grows with the power {exponent:.2}");
}

/// Returns the number of times that two readers of warm data waited for the disk while all kinds of background work ran.
fn waits_beside_work(db: &Database, count: i64, round: i64, backup: &std::path::Path) -> u64 {
    (0..count).for_each(|id| get(db, id));
    let done = AtomicBool::new(false);
    let before = db.status();
    let after = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let done = &done;
                scope.spawn(move || {
                    let mut id = reader;
                    while !done.load(Ordering::Relaxed) {
                        get(db, id * 7919 % count);
                        by_key(db, id * 31 % count);
                        id += 1;
                    }
                })
            })
            .collect();
        // Upserts replace existing rows; the next merges remove the old ones.
        for first in (0..count).step_by(5_000) {
            db.upsert("orders", rows(first..first + 5_000, count / 10)).unwrap();
        }
        if round == 0 {
            db.create_index("orders", &["amount"]).unwrap();
        }
        db.backup(backup).unwrap();
        db.wait_for_indexes("orders", Duration::from_secs(120)).unwrap();
        while db.status().compactions == before.compactions {
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = db.status();
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        after
    });
    assert!(after.seals > before.seals, "{} seals", after.seals);
    println!("{} seals, {} merges", after.seals - before.seals, after.compactions - before.compactions);
    db.status().read_major_faults - before.read_major_faults
}

/// Readers of warm data do not wait for the disk while seals, merges, an index build and a backup read and write everything.
#[test]
fn background_work_makes_no_reader_of_warm_data_wait_for_the_disk() {
    let _limit = testkit::limit(240);
    let dir = testkit::temp_dir("gates");
    let data = dir.join("db");
    let open = || {
        let mut options = Options::default();
        options.engine.seal_rows = 6_000;
        Database::open_with(&data, options).unwrap()
    };
    let db = open();
    let count = 60_000;
    orders(&db, count);
    // Some machines reclaim memory of their own accord, which is not measured here. So the median counts.
    let mut waits: Vec<u64> = Vec::new();
    let quiet = |waits: &[u64]| waits.iter().filter(|faults| **faults == 0).count();
    while quiet(&waits) < 3 {
        assert!(waits.len() < 5, "a reader of warm data waited for the disk: {waits:?} times in each round");
        let round = waits.len() as i64;
        waits.push(waits_beside_work(&db, count, round, &dir.join(format!("backup-{round}"))));
    }
    println!("waits of each round: {waits:?}");
    // The check of the counter: the same reads of data outside memory are counted as waits.
    db.close().unwrap();
    drop(db);
    let mut tried = 0;
    for _ in 0..5 {
        // Another process may hold the files for a moment.
        std::thread::sleep(Duration::from_millis(50));
        if !are_cooled(&data.join("tables")) {
            continue;
        }
        tried += 1;
        let db = open();
        let before = db.status().read_major_faults;
        (0..count).step_by(100).for_each(|id| get(&db, id));
        let faults = db.status().read_major_faults - before;
        println!("{faults} waits for what was not in memory");
        if faults > 0 {
            return;
        }
    }
    assert_eq!(tried, 0, "readers of cold data waited, and no wait was counted");
    println!("this file system keeps all in memory: what a wait counts as was not seen");
}

/// Asks the kernel to drop all files below the directory from the page cache. Returns true if it did.
fn are_cooled(dir: &std::path::Path) -> bool {
    let is_cooled = |path: std::path::PathBuf| {
        if path.is_dir() {
            return are_cooled(&path);
        }
        vfs::Disk::open(&vfs::RealDisk, &path, vfs::Access::Read).unwrap().drop_from_cache();
        let file = std::fs::File::open(&path).unwrap();
        let mut byte = [0];
        let parts = &mut [std::io::IoSliceMut::new(&mut byte)];
        let read = rustix::io::preadv2(&file, parts, 0, rustix::io::ReadWriteFlags::NOWAIT);
        matches!(read, Ok(0) | Err(rustix::io::Errno::AGAIN))
    };
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.map(is_cooled).fold(true, |all, one| all & one)
}
