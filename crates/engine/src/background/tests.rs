use std::path::Path;

use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress, Published};
use types::{DataType, Principal, TableDef};

use super::*;
use crate::{Engine, Mode, Op, Options, Step, Transaction};

/// Debt fell only when a seal ended, by a hundred MiB at once: writers were slowed too much before and too little after.
#[test]
fn what_a_seal_has_written_is_no_debt_any_more() {
    let machine = sim::SimEnv::new(1);
    let options = Options { seal_rows: 100, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("x", &DataType::Int64, true, None).unwrap();
    let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..100));
    let batch = arrow::array::RecordBatch::try_from_iter([("x", values)]).unwrap();
    let create = Op::CreateTable { def, if_absent: false };
    let insert = Op::Insert { table: "t".into(), batch: batch.clone(), mode: Mode::Append };
    let again = Op::Insert { table: "t".into(), batch, mode: Mode::Append };
    engine.submit(&Principal::local(), Transaction::new(vec![create, insert]), |result| {
        assert!(result.is_ok(), "{result:?}");
    });
    engine.step(Step::Commit);
    engine.step(Step::Sync);
    let shared = engine.shared_weak().upgrade().unwrap();
    let head = shared.debt_bytes();
    assert!(head > 0);

    let mut sealing = SealProgress::new(&shared, head);
    sealing.add(head / 4);
    assert_eq!(shared.debt_bytes(), head - head / 4);
    // A segment may be larger than its rows were in memory.
    sealing.add(3 * head);
    assert_eq!(shared.debt_bytes(), 0);
    drop(sealing);
    assert_eq!(shared.debt_bytes(), head, "a seal that failed has paid nothing");

    while shared.counters.sealing_bytes.get() == 0 {
        assert!(engine.step(Step::Background));
    }
    assert_eq!((shared.counters.sealing_bytes.get(), shared.debt_bytes()), (head, 0), "it is written");
    engine.submit(&Principal::local(), Transaction::new(vec![again]), |result| {
        assert!(result.is_ok(), "{result:?}");
    });
    engine.step(Step::Commit);
    // Both are published together, before any writer is answered: only the rows that came since are debt.
    assert_eq!((shared.counters.sealing_bytes.get(), shared.debt_bytes()), (0, head));
    while engine.step(Step::Sync) | engine.step(Step::Background) | engine.step(Step::Commit) {}
    assert_eq!(engine.root().table("main.t").unwrap().segments().count(), 2);
    assert_eq!((shared.counters.sealing_bytes.get(), shared.debt_bytes()), (0, 0));
}

/// A merge took the disk and the cores from the seal that writers were waiting for.
#[test]
fn nothing_is_merged_while_seals_are_behind() {
    let machine = sim::SimEnv::new(2);
    let options = Options { seal_rows: 100, debt_soft_bytes: 2, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("x", &DataType::Int64, true, None).unwrap();
    let write = |create: Option<Op>| {
        let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..100));
        let batch = arrow::array::RecordBatch::try_from_iter([("x", values)]).unwrap();
        let insert = Op::Insert { table: "t".into(), batch, mode: Mode::Append };
        let ops = create.into_iter().chain([insert]).collect();
        engine.submit(&Principal::local(), Transaction::new(ops), |result| {
            assert!(result.is_ok(), "{result:?}");
        });
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    };
    let shared = engine.shared_weak().upgrade().unwrap();
    let merges = || shared.counters.compactions.get();
    let segments = || engine.root().table("main.t").unwrap().segments().count();
    let seal = || {
        assert!(engine.step(Step::Background));
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    };
    write(Some(Op::CreateTable { def, if_absent: false }));
    seal();
    while segments() < 4 {
        write(None);
        seal();
    }
    // Four are worth a merge. Meanwhile a head is full again, and its seal is under way.
    write(None);
    while engine.step(Step::Background) {}
    assert_eq!((segments(), merges()), (4, 0), "the seal is not published yet");
    engine.step(Step::Commit);
    engine.step(Step::Sync);
    while engine.step(Step::Background) {
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    }
    assert!(segments() < 5 && merges() > 0, "{} segments", segments());
}

/// While all background threads sealed, merged or landed, the log ran out of files and made one itself, with every writer
/// waiting for a tenth of a second and more.
#[test]
fn long_work_makes_way_for_a_file_of_the_log() {
    let machine = sim::SimEnv::new(3);
    let log = commitlog::Options { file_bytes: 16 << 10, spare_files: 2, ..commitlog::Options::default() };
    let options = Options { log, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let shared = engine.shared_weak().upgrade().unwrap();
    let spares = || {
        let is_spare = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "spare");
        machine.disk.files().iter().filter(|path| is_spare(path)).count()
    };
    let mut tick = tick(&shared);
    tick(1).unwrap();
    assert_eq!(spares(), 2, "those of the beginning");
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("x", &DataType::Int64, true, None).unwrap();
    let mut create = Some(Op::CreateTable { def, if_absent: false });
    while spares() == 2 {
        let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..500));
        let batch = arrow::array::RecordBatch::try_from_iter([("x", values)]).unwrap();
        let insert = Op::Insert { table: "t".into(), batch, mode: Mode::Append };
        let ops = create.take().into_iter().chain([insert]).collect();
        engine.submit(&Principal::local(), Transaction::new(ops), |result| {
            assert!(result.is_ok(), "{result:?}");
        });
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    }
    assert_eq!(spares(), 1, "the log went on in one");
    tick(1).unwrap();
    assert_eq!(spares(), 2);
    assert!(!shared.background.lock().is_running(BackgroundJob::Preallocate));
}

/// A materializer whose steps end only when they are allowed to.
#[derive(Default)]
struct Stuck {
    state: std::sync::Mutex<StuckState>,
    changed: std::sync::Condvar,
}

#[derive(Default)]
struct StuckState {
    /// Number of steps that have begun.
    begun: usize,
    may_end: bool,
}

impl Stuck {
    fn change(&self, how: impl FnOnce(&mut StuckState)) {
        how(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait(&self, is_there: impl Fn(&StuckState) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !is_there(state)).unwrap());
    }
}

impl Materializer for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn follows(&self, def: &TableDef) -> bool {
        def.name.starts_with("main.stuck")
    }

    fn open(&self, _: &MaterializerDir, _: &Arc<table::Snapshot>, _: &Checkpoint) -> Result<Published> {
        Ok(Arc::new(()))
    }

    fn step(
        &self,
        _: &MaterializerDir,
        _: &Arc<table::Snapshot>,
        _: Option<&Arc<Position>>,
        _: &mut Budget<'_>,
    ) -> Result<Progress> {
        self.change(|state| state.begun += 1);
        self.wait(|state| state.may_end);
        Ok(Progress::UpToDate)
    }

    fn clean(&self, _: &MaterializerDir, _: &Arc<Position>) -> Result<()> {
        Ok(())
    }

    fn dropped(&self, _: &MaterializerDir) -> Result<()> {
        Ok(())
    }
}

/// A merge and a lake commit held both threads for seconds: heads grew until writers were held back for half a second.
#[test]
fn however_many_are_in_long_work_a_full_head_is_sealed() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("stuck");
    let options = Options { seal_rows: 100, ..Options::default() };
    let engine = Engine::open(vfs::Env::real(), dir.path(), options).unwrap();
    let stuck = Arc::new(Stuck::default());
    engine.register(stuck.clone()).unwrap();
    let write = |table: &str, rows: i64| {
        let mut def = TableDef::new(TableId(0), format!("main.{table}"));
        def.add_column("x", &DataType::Int64, true, None).unwrap();
        let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..rows));
        let batch = arrow::array::RecordBatch::try_from_iter([("x", values)]).unwrap();
        let create = Op::CreateTable { def, if_absent: false };
        let insert = Op::Insert { table: table.into(), batch, mode: Mode::Append };
        engine.commit(&Principal::local(), Transaction::new(vec![create, insert])).unwrap();
    };
    let all = crate::pool::long_max();
    (0..=all).for_each(|nth| write(&format!("stuck{nth}"), 1));
    stuck.wait(|state| state.begun == all);
    assert!(
        matches!(LongWorkPermit::take(), LongWorkPermit::Refused),
        "one thread is left for what is urgent"
    );
    write("t", 100);
    loop {
        let root = engine.root();
        if root.table("main.t").unwrap().segments().count() == 1 {
            break;
        }
        assert!(
            engine.wait_for_commit(root.lsn(), Duration::from_secs(100)).unwrap(),
            "its head is not sealed"
        );
    }
    assert_eq!(stuck.state.lock().unwrap().begun, all);
    stuck.change(|state| state.may_end = true);
    stuck.wait(|state| state.begun > all);
    engine.close().unwrap();
}

/// While the head that writers waited for was being sealed, every other head was sealed again after each of its rows.
#[test]
fn what_is_being_sealed_is_no_reason_to_seal_a_few_rows_of_another_table() {
    let machine = sim::SimEnv::new(7);
    let options = Options { debt_soft_bytes: 4_000, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    for (name, rows) in [("main.large", 1_000), ("main.small", 1)] {
        let mut def = TableDef::new(TableId(0), name);
        def.add_column("x", &DataType::Int64, true, None).unwrap();
        let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..rows));
        let batch = arrow::array::RecordBatch::try_from_iter([("x", values)]).unwrap();
        let create = Op::CreateTable { def, if_absent: false };
        let insert = Op::Insert { table: name.into(), batch, mode: Mode::Append };
        engine.submit(&Principal::local(), Transaction::new(vec![create, insert]), |result| {
            assert!(result.is_ok(), "{result:?}");
        });
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    }
    let shared = engine.shared_weak().upgrade().unwrap();
    let (root, now) = (engine.root(), shared.env.clock.monotonic());
    let due = |background: &BackgroundState| {
        due::sealable(&shared, &root, background, now).map(|table| table.def().name.clone())
    };
    let mut background = shared.background.lock();
    assert_eq!(due(&background).as_deref(), Some("main.large"));
    let large = BackgroundJob::Seal(root.table("main.large").unwrap().def().id);
    background.begin(large);
    assert_eq!(due(&background), None);
    background.end(large);
    background.failed(large, now);
    assert_eq!(due(&background), None, "nor is what waits after a failure");
}

/// On a busy table there was always a seal or a merge under way: nothing was ever forgotten, and no erasure began.
#[test]
fn what_is_to_be_forgotten_comes_between_two_seals_and_no_merge_begins_before_it() {
    let machine = sim::SimEnv::new(8);
    let options = Options { seal_rows: 100, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("id", &DataType::Int64, true, None).unwrap();
    def.set_primary_key(&["id".into()]).unwrap();
    let submit = |op: Op| {
        engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
            assert!(result.is_ok(), "{result:?}");
        });
        while engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    let upsert = || {
        let values: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..100));
        let batch = arrow::array::RecordBatch::try_from_iter([("id", values)]).unwrap();
        submit(Op::Insert { table: "t".into(), batch, mode: Mode::Upsert });
    };
    submit(Op::CreateTable { def, if_absent: false });
    for _ in 0..6 {
        upsert();
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
    }
    // The old versions are past their time by now, and both a seal and a merge are due.
    machine.clock.advance(Duration::from_secs(3_600));
    upsert();
    let shared = engine.shared_weak().upgrade().unwrap();
    let (root, now) = (engine.root(), shared.env.clock.monotonic());
    let table = root.table("main.t").unwrap().def().id;
    assert!(root.table("main.t").unwrap().past_segments().len() > 0);
    let merge =
        |background: &mut BackgroundState| due::compactable(&shared, &root, background, now).is_some();
    shared.background.lock().compactable.insert(table);
    assert!(merge(&mut shared.background.lock()));
    shared.background.lock().begin(BackgroundJob::Seal(table));
    let due = next(&shared, &mut LongWorkPermit::Unlimited);
    assert!(
        matches!(due, None | Some(BackgroundTask::Manifest)),
        "neither can it be done, nor does a merge begin"
    );
    shared.background.lock().end(BackgroundJob::Seal(table));
    assert!(matches!(next(&shared, &mut LongWorkPermit::Unlimited), Some(BackgroundTask::Forget(_))));
    let mut background = shared.background.lock();
    background.end(BackgroundJob::Forget(table));
    // An erasure holds merges back in the same way, until its segments are rewritten.
    drop(background);
    let erasure = engine.erase(table, root.lsn()).unwrap();
    assert!(erasure.is_at_segments() && !merge(&mut shared.background.lock()));
}
