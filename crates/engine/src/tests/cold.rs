//! Compression of cold segments: its time, its pace, and its effect on readers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use sim::SimEnv;
use table::compaction::Policy;
use types::{DataType, Principal, TableDef, TableId, Value};

use super::support::{batch, by_id, contents, keyed};
use crate::{Engine, Mode, Op, Options, Step, Transaction};

const DIR: &str = "db";
const DAY: Duration = Duration::from_secs(86_400);

fn options(zstd_after: Option<Duration>) -> Options {
    Options {
        seal_rows: 1_000,
        zstd_after,
        compaction: Policy { compressed_bytes_min: 0, ..Policy::default() },
        ..Options::default()
    }
}

struct World {
    machine: SimEnv,
    engine: Engine,
    next: i64,
}

impl World {
    fn new(options: Options) -> World {
        let machine = SimEnv::new(1);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options).unwrap();
        let mut world = World { machine, engine, next: 0 };
        world.submit(Transaction::new(vec![Op::CreateTable { def: keyed("t"), if_absent: false }]));
        world
    }

    fn submit(&mut self, transaction: Transaction) {
        self.engine.submit(&Principal::local(), transaction, |result| assert!(result.is_ok(), "{result:?}"));
        while self.engine.step(Step::Commit) | self.engine.step(Step::Sync) {}
    }

    fn insert(&mut self, table: &str, rows: i64) {
        let values: Vec<(i64, i64)> = (self.next..self.next + rows).map(|id| (id, id % 10)).collect();
        self.next += rows;
        self.submit(Transaction::insert(table, batch(&values), Mode::Append));
    }

    fn rest(&self) {
        while self.engine.step(Step::Background)
            | self.engine.step(Step::Commit)
            | self.engine.step(Step::Sync)
        {}
    }

    fn table(&self) -> Arc<table::Snapshot> {
        self.engine.root().table("main.t").unwrap().clone()
    }

    /// Returns for each segment whether it is compressed, in row-id order.
    fn compressed(&self) -> Vec<bool> {
        self.table().segments().map(|segment| segment.is_compressed()).collect()
    }
}

#[test]
fn a_segment_is_compressed_once_its_newest_row_is_as_old_as_was_said() {
    let mut world = World::new(options(Some(DAY)));
    world.insert("t", 2_000);
    world.rest();
    world.machine.clock.advance(DAY / 2);
    world.insert("t", 2_000);
    world.rest();
    assert_eq!(world.compressed(), [false, false]);
    let before = contents(&world.table());
    let bytes = world.table().bytes();
    world.machine.clock.advance(DAY / 2 - Duration::from_secs(1));
    world.rest();
    assert_eq!(world.compressed(), [false, false], "a second too early");
    world.machine.clock.advance(Duration::from_secs(1));
    world.rest();
    assert_eq!(world.compressed(), [true, false]);
    world.machine.clock.advance(DAY / 2);
    world.rest();
    assert_eq!(world.compressed(), [true, true]);
    assert_eq!((world.engine.status().compressions, world.engine.status().compactions), (2, 2));
    assert_eq!(contents(&world.table()), before);
    assert!(world.table().bytes() * 2 < bytes, "{} of {bytes} bytes", world.table().bytes());
    let (compressed, raw) = world.table().compressed_bytes();
    assert_eq!(compressed, world.table().bytes());
    assert!(raw.abs_diff(bytes) < bytes / 10, "{raw} and {bytes} bytes before");
    assert!(!world.engine.step(Step::Background), "there is nothing more to do");
}

#[test]
fn who_holds_a_snapshot_keeps_the_file_as_it_was_and_it_goes_when_he_does() {
    let mut world = World::new(options(Some(Duration::ZERO)));
    world.insert("t", 2_000);
    while world.engine.status().seals == 0 {
        assert!(world.engine.step(Step::Background));
    }
    while world.engine.step(Step::Commit) | world.engine.step(Step::Sync) {}
    assert_eq!(world.compressed(), [false], "it was sealed a moment ago");
    let held = world.engine.root();
    let old = world.table().segments().next().unwrap().id();
    let dir = table::segment::table_dir(Path::new(DIR), world.table().def().id);
    let files = table::segment::file_names(old).map(|name| dir.join(name));
    let is_there = |world: &World| files.iter().any(|file| world.machine.disk.contents(file).is_some());
    world.rest();
    assert_eq!((world.compressed(), is_there(&world)), (vec![true], true));
    assert_eq!(by_id(held.table("main.t").unwrap()).len(), 2_000);
    assert!(!held.table("main.t").unwrap().segments().any(|s| s.is_compressed()), "S1");
    drop(held);
    // The reaper drops roots a little later, and a manifest that does not name the file comes first.
    let mut tries = 0;
    while is_there(&world) {
        world.insert("t", 500);
        world.rest();
        std::thread::sleep(Duration::from_millis(1));
        tries += 1;
        assert!(tries < 1_000, "the file that was replaced stays");
    }
}

/// Each merge made a compressed segment large again for a while, and then it was compressed again.
#[test]
fn what_was_compressed_stays_so_when_it_is_merged_unless_that_is_off_now() {
    for off in [false, true] {
        let mut world = World::new(options(Some(Duration::ZERO)));
        for _ in 0..3 {
            world.insert("t", 1_000);
            world.rest();
        }
        assert_eq!(world.compressed(), [true, true, true]);
        let World { mut machine, engine, next } = world;
        engine.close().unwrap();
        drop(engine);
        machine = machine.kill();
        let zstd_after = (!off).then_some(DAY);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options(zstd_after)).unwrap();
        let mut world = World { machine, engine, next };
        assert_eq!(world.compressed(), [true, true, true]);
        // This makes a fourth neighbour.
        world.insert("t", 1_000);
        world.rest();
        let merged = world.compressed();
        assert_eq!(merged, [false], "one of the four was plain");
        assert_eq!(by_id(&world.table()).len(), 4_000);
        let delete = (0..2_000).map(|id| vec![Value::Int64(id)]).collect();
        world.submit(Transaction::new(vec![Op::DeleteKeys { table: "t".into(), keys: delete }]));
        world.machine.clock.advance(DAY);
        world.rest();
        assert_eq!(world.compressed(), [!off]);
        let delete = (2_000..3_500).map(|id| vec![Value::Int64(id)]).collect();
        world.submit(Transaction::new(vec![Op::DeleteKeys { table: "t".into(), keys: delete }]));
        // The next seal makes the number of deleted rows visible.
        world.insert("t", 1_000);
        world.rest();
        assert_eq!(world.compressed(), [!off, false]);
        assert_eq!(world.table().segments().next().unwrap().meta().rows, 500, "rewritten without these");
        assert_eq!(by_id(&world.table()).len(), 1_500);
    }
}

/// A rewrite retains deleted rows for the past before it drops them, whatever its purpose.
#[test]
fn rows_deleted_before_a_segment_was_compressed_can_still_be_read_as_of_then() {
    let mut world = World::new(options(Some(Duration::from_secs(60))));
    world.insert("t", 1_000);
    world.rest();
    let then = world.engine.root().lsn();
    let before = contents(&world.table());
    let delete = (0..100).map(|id| vec![Value::Int64(id)]).collect();
    world.submit(Transaction::new(vec![Op::DeleteKeys { table: "t".into(), keys: delete }]));
    world.machine.clock.advance(Duration::from_secs(60));
    world.rest();
    assert_eq!(world.compressed(), [true]);
    assert_eq!(world.table().segments().next().unwrap().meta().rows, 900);
    assert_eq!(contents(&world.table().at(then).unwrap()), before);
}

#[test]
fn what_would_not_become_smaller_is_left_alone_and_not_tried_again() {
    let mut world = World::new(options(Some(DAY)));
    let mut def = TableDef::new(TableId(0), "main.noise");
    def.add_column("noise", &DataType::Binary, true, None).unwrap();
    world.submit(Transaction::new(vec![Op::CreateTable { def, if_absent: false }]));
    let mut rng = sim::Rng::new(5);
    let mut noise = || (0..400).map(|_| rng.below(256) as u8).collect();
    let noise: Vec<Value> = (0..1_000).map(|_| Value::Binary(noise())).collect();
    let noise = Value::to_array(&noise, &DataType::Binary).unwrap();
    let noise = RecordBatch::try_from_iter([("noise", noise)]).unwrap();
    world.submit(Transaction::insert("noise", noise, Mode::Append));
    world.insert("t", 1_000);
    world.rest();
    world.machine.clock.advance(DAY);
    world.rest();
    assert_eq!((world.compressed(), world.engine.status().compressions), (vec![true], 1));
    let root = world.engine.root();
    assert_eq!(root.table("main.noise").unwrap().compressed_bytes(), (0, 0));
    assert!(!world.engine.step(Step::Background), "it is not looked at again and again");
}

/// A long rewrite is followed by a rest, so that rewrites do not take up a background thread.
#[test]
fn after_each_segment_there_is_a_rest_in_proportion_to_what_it_took() {
    let slow = Duration::from_secs(2);
    let machine = SimEnv::new(1);
    let clock = machine.clock.clone();
    let mut options = options(Some(DAY));
    options.history = Duration::ZERO;
    let env = machine.env();
    let engine = Engine::open_stepped(env, Path::new(DIR), options).unwrap();
    let mut world = World { machine, engine, next: 0 };
    for name in ["t", "u"] {
        world.submit(Transaction::new(vec![Op::CreateTable { def: keyed(name), if_absent: false }]));
        world.insert(name, 1_000);
    }
    world.rest();
    clock.advance(DAY);
    let compressed = |world: &World| world.engine.status().compressions;
    // The first segment is compressed on a machine where that takes a while.
    let is_slow = Arc::new(AtomicBool::new(true));
    world.machine.disk.lose_syncs({
        let (clock, is_slow) = (clock.clone(), is_slow.clone());
        move |path| {
            if is_slow.load(Ordering::Relaxed) && path.to_string_lossy().ends_with(".arrow.tmp") {
                clock.advance(slow);
            }
            false
        }
    });
    world.rest();
    assert_eq!(compressed(&world), 1);
    is_slow.store(false, Ordering::Relaxed);
    world.rest();
    assert_eq!(compressed(&world), 1, "it rests");
    clock.advance(slow);
    world.rest();
    assert_eq!(compressed(&world), 1, "three times as long as it worked");
    clock.advance(slow * 2);
    world.rest();
    assert_eq!(compressed(&world), 2);
}
