//! Materializers: a small one holds the contract of all of them, and faulty ones break it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use table::Snapshot;
use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress, Published};
use types::{Error, Principal, ROW_ID, Result, RowId, TableDef};
use vfs::{Access, Env};

use super::support::{batch, contents, keyed};
use crate::contract::ContractTest;
use crate::{DatabaseRoot, Engine, MaterializerPhase, Mode, Op, Options, Step, Transaction};

/// Keeps the `v` of each live row by row id, in a file that each step rewrites.
#[derive(Default)]
pub struct Listing {
    /// A fault, to see whether the contract notices it.
    fault: Option<ListingFault>,
    files: AtomicU64,
    /// Number of steps that panic.
    panics: AtomicU64,
    /// Number of times that the files of a table that is gone cannot be removed.
    pub stays: AtomicU64,
    /// Action of another thread during the removal of files of a table that is gone.
    pub beside: std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Rows that readers may lack; 0: any number.
    lag_rows: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum ListingFault {
    ForgetsDeletes,
    SkipsARow,
    KeepsWhatWasDropped,
}

type ListedRows = BTreeMap<RowId, i64>;

impl Materializer for Listing {
    fn name(&self) -> &'static str {
        "listing"
    }

    fn follows(&self, def: &TableDef) -> bool {
        def.name != "main.other"
    }

    fn lag(&self, table: &Snapshot, position: &Position) -> f64 {
        match self.lag_rows {
            0 => 0.0,
            most => (table.next_row().0 - 1 - position.checkpoint.row.0) as f64 / most as f64,
        }
    }

    fn open(&self, place: &MaterializerDir, _: &Arc<Snapshot>, checkpoint: &Checkpoint) -> Result<Published> {
        let name = String::from_utf8(checkpoint.state.clone()).unwrap();
        self.files.fetch_max(name.parse::<u64>().unwrap() + 1, Ordering::Relaxed);
        let failed = |e| Error::io("reading a listing", e);
        let file = place.env.disk.open(&place.dir.join(name), Access::Read).map_err(failed)?;
        let mut bytes = vec![0; file.len().map_err(failed)? as usize];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        let (numbers, crc) = bytes.split_at_checked(bytes.len().wrapping_sub(4)).unwrap_or_default();
        if crc != crc32c::crc32c(numbers).to_le_bytes() {
            return Err(Error::damaged("a listing's checksum"));
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let rows = numbers.chunks(16).map(|pair| (RowId(word(&pair[..8])), word(&pair[8..]) as i64));
        Ok(Arc::new(rows.collect::<ListedRows>()))
    }

    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        let left = self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a step that panics, as the test wants it");
        let v = table.def().schema.column_named("v").unwrap().id;
        let checkpoint = from.map(|from| &from.checkpoint);
        let delta = table.delta(checkpoint, budget.rows.min(17), &table.projection(&[ROW_ID, v])?)?;
        let mut rows =
            from.map(|from| (*from.published::<ListedRows>().unwrap()).clone()).unwrap_or_default();
        if from.is_some() && delta.inserted.iter().all(|b| b.num_rows() == 0) && delta.deleted.is_empty() {
            return Ok(Progress::UpToDate);
        }
        if !budget.urgent && delta.inserted.iter().map(|b| b.num_rows()).sum::<usize>() < 3 {
            return Ok(Progress::Later(Duration::from_millis(50)));
        }
        if self.fault != Some(ListingFault::ForgetsDeletes) {
            rows.retain(|row, _| delta.deleted.binary_search(row).is_err());
        }
        for batch in &delta.inserted {
            let ids = batch.column(0).as_primitive::<Int64Type>();
            let values = batch.column(1).as_primitive::<Int64Type>();
            rows.extend(ids.values().iter().map(|id| RowId(*id as u64)).zip(values.values().iter().copied()));
        }
        if self.fault == Some(ListingFault::SkipsARow) && delta.row.0 > 20 {
            rows.pop_first();
        }
        let name = self.files.fetch_add(1, Ordering::Relaxed).to_string();
        self.write(&place.env, place, &name, &rows).map_err(|e| Error::io("writing a listing", e))?;
        (budget.tick)(rows.len() as u64)?;
        let checkpoint = Checkpoint { row: delta.row, lsn: delta.lsn, state: name.into_bytes() };
        Ok(Progress::Advanced(Position::new(checkpoint, Arc::new(rows))))
    }

    fn clean(&self, place: &MaterializerDir, newest: &Arc<Position>) -> Result<()> {
        let failed = |e| Error::io("removing listings", e);
        for entry in place.env.disk.list(&place.dir).map_err(failed)? {
            if entry.name.as_bytes() != newest.checkpoint.state {
                place.env.disk.remove(&place.dir.join(entry.name)).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn dropped(&self, place: &MaterializerDir) -> Result<()> {
        if self.fault == Some(ListingFault::KeepsWhatWasDropped) {
            return Ok(());
        }
        if let Some(beside) = self.beside.get() {
            beside();
        }
        let failed = |e| Error::io("removing listings", e);
        if self.stays.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(failed(std::io::ErrorKind::PermissionDenied.into()));
        }
        for entry in place.env.disk.list(&place.dir).map_err(failed)? {
            place.env.disk.remove(&place.dir.join(entry.name)).map_err(failed)?;
        }
        Ok(())
    }
}

impl Listing {
    fn write(
        &self,
        env: &Env,
        place: &MaterializerDir,
        name: &str,
        rows: &ListedRows,
    ) -> std::io::Result<()> {
        let path = place.dir.join(name);
        if env.disk.exists(&path)? {
            env.disk.remove(&path)?;
        }
        let file = env.disk.create(&path)?;
        let mut bytes: Vec<u8> = Vec::new();
        rows.iter().for_each(|(row, v)| {
            bytes.extend(row.0.to_le_bytes());
            bytes.extend(v.to_le_bytes());
        });
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        file.write_at(&[IoSlice::new(&bytes)], 0)?;
        file.sync()?;
        env.disk.sync_dir(&place.dir)
    }
}

/// The rows that a reader sees through a listing and the tail.
fn observe(table: &Arc<Snapshot>, position: &Position) -> Result<ListedRows> {
    let mut rows = (*position.published::<ListedRows>().unwrap()).clone();
    for row in table.deleted_since(&position.checkpoint)? {
        rows.remove(&row);
    }
    let tail = contents(table).into_iter().filter(|(row, _)| *row > position.checkpoint.row);
    rows.extend(tail.map(|(row, (_, v))| (row, v)));
    Ok(rows)
}

fn trial(make: &dyn Fn() -> Arc<dyn Materializer>) -> ContractTest<'_, ListedRows> {
    ContractTest {
        make,
        table: keyed("t"),
        rows: &|rng, count| {
            let rows: BTreeMap<i64, i64> =
                (0..count).map(|_| (rng.below(40) as i64, rng.below(1000) as i64)).collect();
            batch(&rows.into_iter().collect::<Vec<_>>())
        },
        observe: &observe,
        keeps_old_positions: true,
    }
}

#[test]
fn a_materializer_killed_at_any_step_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(300);
    trial(&|| Arc::new(Listing::default())).run(testkit::seeds(60));
}

#[test]
fn the_contract_notices_a_materializer_that_forgets_something() {
    let _limit = testkit::limit(300);
    for fault in [ListingFault::ForgetsDeletes, ListingFault::SkipsARow, ListingFault::KeepsWhatWasDropped] {
        let make = move || -> Arc<dyn Materializer> {
            Arc::new(Listing { fault: Some(fault), ..Listing::default() })
        };
        let caught = std::panic::catch_unwind(|| trial(&make).run(0..60));
        assert!(caught.is_err(), "a fault goes unnoticed");
    }
}

/// Waits until the listing of a table has all its rows.
fn wait_for(engine: &Engine, table: &str) -> (Arc<DatabaseRoot>, Arc<Position>) {
    let start = Instant::now();
    loop {
        let root = engine.root();
        let snapshot = root.table(table).unwrap();
        if let Some(position) = root.derived("listing", snapshot.def().id)
            && observe(snapshot, position).unwrap() == *position.published::<ListedRows>().unwrap()
        {
            let position = position.clone();
            return (root, position);
        }
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "the listing does not come: {:?}",
            engine.materializer_progress(snapshot)
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_is_derived_follows_its_table_over_restarts_and_goes_with_it() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let open = || {
        let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
        engine.register(Arc::new(Listing::default())).unwrap();
        engine
    };
    let me = Principal::local();
    let engine = open();
    engine
        .commit(&me, Transaction::new(vec![Op::CreateTable { def: keyed("t"), if_absent: false }]))
        .unwrap();
    let insert = |engine: &Engine, rows: &[(i64, i64)]| {
        engine.commit(&me, Transaction::insert("t", batch(rows), Mode::Upsert)).unwrap();
    };
    insert(&engine, &(0..100).map(|i| (i, i)).collect::<Vec<_>>());
    let (_, position) = wait_for(&engine, "main.t");
    assert_eq!(position.published::<ListedRows>().unwrap().len(), 100);
    insert(&engine, &[(1, -1), (2, -2), (3, -3)]);
    let (root, position) = wait_for(&engine, "main.t");
    assert_eq!(position.published::<ListedRows>().unwrap().len(), 100);
    let id = root.table("main.t").unwrap().def().id;
    engine.close().unwrap();
    drop((engine, root, position));

    let engine = open();
    let (_, position) = wait_for(&engine, "main.t");
    let values: BTreeSet<i64> = position.published::<ListedRows>().unwrap().values().copied().collect();
    assert!(values.contains(&-3) && !values.contains(&3), "{values:?}");
    drop(position);

    let derived = dir.path().join("derived/listing").join(id.to_string());
    assert!(derived.is_dir());
    engine
        .commit(&me, Transaction::new(vec![Op::DropTable { table: "t".into(), if_exists: false }]))
        .unwrap();
    assert!(engine.root().derived("listing", id).is_none());
    let start = Instant::now();
    while derived.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "what was derived stays");
        // Another commit makes the pool look again once the last reader has gone.
        let _ =
            engine.commit(&me, Transaction::new(vec![Op::CreateTable { def: keyed("u"), if_absent: true }]));
        std::thread::sleep(Duration::from_millis(20));
    }
    engine.close().unwrap();
}

/// Takes its time to clean up, and counts the steps that begin meanwhile.
#[derive(Default)]
struct SlowCleaner {
    listing: Listing,
    cleaning: AtomicBool,
    cleaned: AtomicU64,
    met: AtomicU64,
}

impl Materializer for SlowCleaner {
    fn name(&self) -> &'static str {
        self.listing.name()
    }

    fn follows(&self, def: &TableDef) -> bool {
        self.listing.follows(def)
    }

    fn open(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        checkpoint: &Checkpoint,
    ) -> Result<Published> {
        self.listing.open(place, table, checkpoint)
    }

    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        self.met.fetch_add(u64::from(self.cleaning.load(Ordering::SeqCst)), Ordering::SeqCst);
        self.listing.step(place, table, from, budget)
    }

    fn clean(&self, place: &MaterializerDir, newest: &Arc<Position>) -> Result<()> {
        self.cleaning.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        let cleaned = self.listing.clean(place, newest);
        self.cleaning.store(false, Ordering::SeqCst);
        self.cleaned.fetch_add(1, Ordering::SeqCst);
        cleaned
    }

    fn dropped(&self, place: &MaterializerDir) -> Result<()> {
        self.listing.dropped(place)
    }
}

/// Files of the next step, which no checkpoint named yet, were removed with those that the last step had replaced.
#[test]
fn a_step_begins_when_what_the_last_one_replaced_is_gone() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let tidy = Arc::new(SlowCleaner::default());
    engine.register(tidy.clone()).unwrap();
    let me = Principal::local();
    engine
        .commit(&me, Transaction::new(vec![Op::CreateTable { def: keyed("t"), if_absent: false }]))
        .unwrap();
    // A step takes 17 rows: there is always another one to do.
    let rows: Vec<(i64, i64)> = (0..600).map(|i| (i, i)).collect();
    engine.commit(&me, Transaction::insert("t", batch(&rows), Mode::Upsert)).unwrap();
    wait_for(&engine, "main.t");
    assert!(tidy.cleaned.load(Ordering::SeqCst) >= 30);
    assert_eq!(tidy.met.load(Ordering::SeqCst), 0, "steps that began while files were removed");
    engine.close().unwrap();
}

#[test]
fn an_idle_database_does_not_look_at_its_materializers() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    engine.register(Arc::new(Listing::default())).unwrap();
    let me = Principal::local();
    engine
        .commit(&me, Transaction::new(vec![Op::CreateTable { def: keyed("t"), if_absent: false }]))
        .unwrap();
    engine.commit(&me, Transaction::insert("t", batch(&[(1, 1), (2, 2), (3, 3)]), Mode::Upsert)).unwrap();
    wait_for(&engine, "main.t");
    std::thread::sleep(Duration::from_millis(500));
    let lsn = engine.root().lsn();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(engine.root().lsn(), lsn, "nothing is logged while nothing happens");
    engine.close().unwrap();
}

/// A step that always fails left the writers of its table refused for good, and one that panicked did not even report why.
#[test]
fn writers_do_not_wait_for_a_materializer_that_fails_and_it_says_so_until_it_works_again() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("engine");
    let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
    let listing = Arc::new(Listing { lag_rows: 50, ..Listing::default() });
    engine.register(listing.clone()).unwrap();
    let me = Principal::local();
    engine
        .commit(&me, Transaction::new(vec![Op::CreateTable { def: keyed("t"), if_absent: false }]))
        .unwrap();
    let insert = |first: i64| {
        let rows: Vec<_> = (first..first + 40).map(|i| (i, i)).collect();
        engine.commit(&me, Transaction::insert("t", batch(&rows), Mode::Upsert)).map(|_| ())
    };
    let standing = || engine.materializer_progress(engine.root().table("main.t").unwrap()).remove(0);
    insert(0).unwrap();
    wait_for(&engine, "main.t");
    assert!(standing().error.is_none());

    listing.panics.store(u64::MAX, Ordering::Relaxed);
    let start = Instant::now();
    // Writes before the first failure may be refused: until then the materializer is only slow.
    let mut next = 1_000;
    while standing().error.is_none() {
        let _ = insert(next);
        next += 40;
        assert!(start.elapsed() < Duration::from_secs(60), "its failure is not told");
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = standing().error.unwrap().to_string();
    assert!(error.contains("met a bug"), "{error}");
    for i in 0..10 {
        insert(100_000 + 40 * i).unwrap();
    }
    assert!(standing().lag > 1.0 && standing().state == MaterializerPhase::Building);
    assert_eq!(engine.pace_of("t"), Duration::ZERO);

    listing.panics.store(0, Ordering::Relaxed);
    wait_for(&engine, "main.t");
    let start = Instant::now();
    while standing().state != MaterializerPhase::Following {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", standing());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(standing().error.is_none());
    engine.close().unwrap();
}

/// Index builds went on until no room was left for the log.
#[test]
fn where_the_disk_has_little_room_nothing_is_derived_until_it_has_more() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let env = Env { disk: machine.env().disk, ..Env::real() };
    let engine = Engine::open(env, Path::new("db"), Options::default()).unwrap();
    engine.register(Arc::new(Listing::default())).unwrap();
    let me = Principal::local();
    engine
        .commit(&me, Transaction::new(vec![Op::CreateTable { def: keyed("t"), if_absent: false }]))
        .unwrap();
    let insert = |part: i64| {
        let rows: Vec<_> = (100 * part..100 * part + 100).map(|id| (id, id)).collect();
        engine.commit(&me, Transaction::insert("t", batch(&rows), Mode::Append)).unwrap();
    };
    let standing = || engine.materializer_progress(engine.root().table("main.t").unwrap()).remove(0);
    insert(1);
    wait_for(&engine, "main.t");
    machine.disk.set_free_bytes(Some(100 << 20));
    insert(2);
    let start = Instant::now();
    while standing().error.is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", standing());
        std::thread::yield_now();
    }
    let error = standing().error.unwrap();
    assert_eq!(error.kind(), types::Kind::DiskFull);
    assert!(error.to_string().contains("128 MiB"), "{error}");
    insert(3);
    machine.disk.set_free_bytes(None);
    wait_for(&engine, "main.t");
    assert!(standing().error.is_none());
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 300);
    engine.close().unwrap();
}

/// The hurried materializer never stopped hurrying under a steady stream: there was always a row that had come meanwhile.
#[test]
fn who_was_in_a_hurry_waits_for_what_was_there_and_for_no_more() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(6);
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), Options::default()).unwrap();
    engine.register(Arc::new(Listing::default())).unwrap();
    let submit = |op: Op| {
        engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
            result.unwrap();
        });
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    let insert = |id: i64| {
        submit(Op::Insert { table: "t".into(), batch: batch(&[(id, id)]), mode: Mode::Append });
    };
    let table = || engine.root().table("main.t").unwrap().def().id;
    let stands = || engine.root().derived("listing", table()).map(|position| position.checkpoint.lsn);
    submit(Op::CreateTable { def: keyed("t"), if_absent: false });
    insert(1);
    let settle =
        || while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {};
    settle();
    assert_eq!(stands(), None, "it waits for three rows");
    let asked = engine.root().table("main.t").unwrap().lsn();
    engine.hurry("listing", table());
    for id in 2..10 {
        engine.step(Step::Background);
        insert(id);
        if stands().is_some() {
            break;
        }
    }
    assert_eq!(stands(), Some(asked));
    settle();
    assert_eq!(stands(), Some(asked), "a row that came since is waited for no more");
}

/// A materializer that has nothing to do now although it is hurried, as while a reader holds files that it is to remove.
#[derive(Default)]
struct IdleMaterializer {
    steps: AtomicU64,
}

impl Materializer for IdleMaterializer {
    fn name(&self) -> &'static str {
        "waiting"
    }

    fn follows(&self, _: &TableDef) -> bool {
        true
    }

    fn open(&self, _: &MaterializerDir, _: &Arc<Snapshot>, _: &Checkpoint) -> Result<Published> {
        Ok(Arc::new(()))
    }

    fn step(
        &self,
        _: &MaterializerDir,
        _: &Arc<Snapshot>,
        _: Option<&Arc<Position>>,
        _: &mut Budget<'_>,
    ) -> Result<Progress> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        Ok(Progress::Later(Duration::from_millis(50)))
    }

    fn clean(&self, _: &MaterializerDir, _: &Arc<Position>) -> Result<()> {
        Ok(())
    }

    fn dropped(&self, _: &MaterializerDir) -> Result<()> {
        Ok(())
    }
}

/// It was asked again at once, for as long as the reader held the files.
#[test]
fn who_says_later_although_hurried_is_asked_again_later() {
    let machine = sim::SimEnv::new(7);
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), Options::default()).unwrap();
    let waiting = Arc::new(IdleMaterializer::default());
    engine.register(waiting.clone()).unwrap();
    let submit = |op: Op| {
        engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
            result.unwrap();
        });
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    submit(Op::CreateTable { def: keyed("t"), if_absent: false });
    let table = engine.root().table("main.t").unwrap().def().id;
    engine.hurry("waiting", table);
    let steps = || {
        (0..20).for_each(|_| {
            engine.step(Step::Background);
        });
        waiting.steps.load(Ordering::Relaxed)
    };
    assert_eq!(steps(), 1);
    machine.clock.advance(Duration::from_millis(60));
    assert_eq!(steps(), 2);
    // A second call of `hurry` while it waits makes it step at once.
    engine.hurry("waiting", table);
    assert_eq!(steps(), 3);
    // Its pause ends with the table, and wakes the pool no more.
    submit(Op::DropTable { table: "t".into(), if_exists: false });
    machine.clock.advance(Duration::from_millis(60));
    assert_eq!(steps(), 3);
    assert!(engine.shared_weak().upgrade().unwrap().background.lock().pauses.is_empty());
}

/// Derived data of rows that cannot be read was rebuilt, from the first row on, after each failure.
#[test]
fn where_rows_cannot_be_read_nothing_is_built_anew_for_it() {
    let machine = sim::SimEnv::new(8);
    let options = || Options { seal_rows: 100, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options()).unwrap();
    let settle = |engine: &Engine| {
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    let rows: Vec<(i64, i64)> = (0..200).map(|id| (id, id)).collect();
    for op in [
        Op::CreateTable { def: keyed("t"), if_absent: false },
        Op::Insert { table: "t".into(), batch: batch(&rows), mode: Mode::Append },
    ] {
        engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
            result.unwrap();
        });
        settle(&engine);
    }
    let table = engine.root().table("main.t").unwrap().def().id;
    engine.close().unwrap();
    drop(engine);
    let is_rows = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "arrow");
    let path = machine.disk.files().into_iter().find(is_rows).expect("a segment's rows");
    for offset in (0..machine.disk.contents(&path).unwrap().len() as u64).step_by(64) {
        machine.disk.flip_bit(&path, offset);
    }
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options()).unwrap();
    engine.register(Arc::new(Listing::default())).unwrap();
    settle(&engine);
    let snapshot = engine.root().table("main.t").unwrap().clone();
    let error = engine.materializer_progress(&snapshot).remove(0).error.expect("it failed");
    assert_eq!(error.kind(), types::Kind::Damaged, "{error}");
    assert!(snapshot.segments().any(|segment| segment.is_damaged()));
    let shared = engine.shared_weak().upgrade().unwrap();
    assert!(!shared.background.lock().rebuild.contains(&(table, "listing")));
}
