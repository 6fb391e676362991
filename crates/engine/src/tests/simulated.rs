//! The model keeps the state after every lsn. After a crash the engine must be at an lsn between the last acknowledged one
//! and the last written one, with exactly the model's state there (L1, L2). Its change feed must replay to that state (M1),
//! and no file may be left that nothing names (G1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sim::{Rng, SimEnv};
use types::{Lsn, Principal, RowId, Value};

use super::past;
use super::support::{batch, contents, keyed, plain};
use crate::{DatabaseRoot, Engine, Mode, Op, Options, Step, Transaction};

pub(super) const DIR: &str = "db";

pub(super) fn options() -> Options {
    Options {
        log: commitlog::Options { file_bytes: 24 << 10, spare_files: 1, ..Default::default() },
        seal_rows: 40,
        seal_bytes: 1 << 20,
        log_files_max: 3,
        // A sealed segment is cold at once.
        zstd_after: Some(Duration::ZERO),
        compaction: table::compaction::Policy { compressed_bytes_min: 0, ..Default::default() },
        ..Options::default()
    }
}

/// A table of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelTable {
    keyed: bool,
    pub rows: BTreeMap<RowId, (i64, i64)>,
    next_row: u64,
}

pub(super) type State = BTreeMap<String, ModelTable>;

/// The effect of a request when its turn comes.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Create {
        table: String,
        keyed: bool,
    },
    Drop {
        table: String,
    },
    Upsert {
        tables: Vec<String>,
        rows: Vec<(i64, i64)>,
    },
    Delete {
        table: String,
        rows: Vec<RowId>,
    },
    DeleteKeys {
        table: String,
        keys: Vec<i64>,
    },
    /// A seal or compaction takes an lsn and changes no row.
    Nothing,
}

impl Effect {
    /// Returns true if it may happen on a full disk.
    fn makes_room(&self) -> bool {
        matches!(self, Effect::Drop { .. } | Effect::Delete { .. } | Effect::DeleteKeys { .. })
    }
}

impl ModelTable {
    fn insert(&mut self, rows: &[(i64, i64)]) {
        let mut last: BTreeMap<i64, usize> = BTreeMap::new();
        for (i, row) in rows.iter().enumerate() {
            last.insert(row.0, i);
        }
        for (i, row) in rows.iter().enumerate() {
            if self.keyed {
                if last[&row.0] != i {
                    continue;
                }
                self.rows.retain(|_, old| old.0 != row.0);
            }
            self.next_row += 1;
            self.rows.insert(RowId(self.next_row), *row);
        }
    }
}

/// Applies an effect. Returns false if the engine must refuse it.
fn apply(state: &mut State, effect: &Effect) -> bool {
    match effect {
        Effect::Create { table, keyed } => {
            if state.contains_key(table) {
                return false;
            }
            state.insert(table.clone(), ModelTable { keyed: *keyed, ..ModelTable::default() });
        }
        Effect::Drop { table } => return state.remove(table).is_some(),
        Effect::Upsert { tables, rows } => {
            if tables.iter().any(|table| !state.contains_key(table)) {
                return false;
            }
            tables.iter().for_each(|table| state.get_mut(table).unwrap().insert(rows));
        }
        Effect::Delete { table, rows } => {
            let Some(table) = state.get_mut(table) else { return false };
            rows.iter().for_each(|row| {
                table.rows.remove(row);
            });
        }
        Effect::DeleteKeys { table, keys } => {
            let Some(table) = state.get_mut(table) else { return false };
            table.rows.retain(|_, row| !keys.contains(&row.0));
        }
        Effect::Nothing => {}
    }
    true
}

pub(super) struct SimulatedRun {
    pub engine: Engine,
    /// The state after each lsn, from `base` on.
    pub states: Vec<State>,
    pub base: u64,
    /// Queued effects, in order.
    queue: Vec<Effect>,
    /// The highest acknowledged lsn.
    pub acknowledged: Arc<AtomicU64>,
    pub held: Vec<(Arc<DatabaseRoot>, State)>,
    /// True if a table was dropped and that is perhaps not published yet.
    drops: bool,
}

impl SimulatedRun {
    pub fn new(engine: Engine, base: u64, state: State) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(base));
        let (states, queue, held) = (vec![state], Vec::new(), Vec::new());
        SimulatedRun { engine, states, base, queue, acknowledged, held, drops: false }
    }

    pub fn at(&self, lsn: Lsn) -> &State {
        &self.states[(lsn.0 - self.base) as usize]
    }

    pub fn last(&self) -> u64 {
        self.base + self.states.len() as u64 - 1
    }

    fn submit(&mut self, ops: Vec<Op>, effect: Effect) {
        let acknowledged = self.acknowledged.clone();
        let refused = Arc::new(AtomicBool::new(false));
        let answer = refused.clone();
        self.engine.submit(&Principal::local(), Transaction::new(ops), move |result| match result {
            Ok(committed) => {
                acknowledged.fetch_max(committed.lsn.0, Ordering::Relaxed);
            }
            Err(_) => answer.store(true, Ordering::Relaxed),
        });
        // A request that was refused during preparation is not queued.
        if !refused.load(Ordering::Relaxed) {
            self.queue.push(effect);
        }
    }

    /// Writes the queue as one group. The effects are applied to the model first, so they are known if the machine crashes
    /// in the middle.
    pub fn commit(&mut self) {
        let before = (self.states.len(), self.engine.status().commits);
        let queue = std::mem::take(&mut self.queue);
        self.extend(&queue, |_| true);
        self.engine.step(Step::Commit);
        let status = self.engine.status();
        let commits = status.commits - before.1;
        // Requests that make room still happen on a full disk: first edits of background work, then the others if they fit.
        for rest in [true, false] {
            if commits > 0 && commits != (self.states.len() - before.0) as u64 {
                self.states.truncate(before.0);
                self.extend(&queue, |effect| matches!(effect, Effect::Nothing));
                self.extend(&queue, |effect| rest && effect.makes_room());
            }
        }
        if status.write_error.is_some() {
            // The outcome is unknown: the group may be on the disk.
            return;
        }
        if commits == 0 {
            // The group was refused as a whole (no room, a file that could not be made): it did not happen.
            self.states.truncate(before.0);
        }
        assert_eq!(commits, (self.states.len() - before.0) as u64, "one lsn for each that happens");
    }

    fn extend(&mut self, queue: &[Effect], happens: impl Fn(&Effect) -> bool) {
        for effect in queue.iter().filter(|effect| happens(effect)) {
            let mut state = self.states.last().unwrap().clone();
            if apply(&mut state, effect) {
                self.states.push(state);
            }
        }
    }

    /// Submits a random request for the published tables.
    pub fn write(&mut self, rng: &mut Rng) {
        let published = self.at(self.engine.root().lsn()).clone();
        // Definitions change only between groups. Other tests cover a request whose table goes away meanwhile.
        let quiet = self.queue.is_empty() && self.engine.root().lsn().0 == self.last();
        let tables: Vec<String> = published.keys().cloned().collect();
        if tables.is_empty() || (quiet && tables.len() < 3 && rng.one_in(8)) {
            if !quiet {
                return;
            }
            let table = ["a", "b", "c"].into_iter().find(|t| !published.contains_key(*t)).unwrap().to_owned();
            let keyed_table = rng.chance(0.7);
            let def = if keyed_table { keyed(&table) } else { plain(&table) };
            let op = Op::CreateTable { def, if_absent: false };
            return self.submit(vec![op], Effect::Create { table, keyed: keyed_table });
        }
        let table = rng.pick(&tables).clone();
        if quiet && rng.one_in(60) {
            let op = Op::DropTable { table: table.clone(), if_exists: false };
            self.drops = true;
            return self.submit(vec![op], Effect::Drop { table });
        }
        let model = &published[&table];
        match rng.below(10) {
            0 if !model.rows.is_empty() => {
                let ids: Vec<RowId> = model.rows.keys().copied().collect();
                let rows: Vec<RowId> = (0..rng.range(1..6)).map(|_| *rng.pick(&ids)).collect();
                let op = Op::Delete { table: table.clone(), rows: rows.clone(), must_exist: false };
                self.submit(vec![op], Effect::Delete { table, rows });
            }
            1 | 2 if model.keyed => {
                let keys: Vec<i64> = (0..rng.range(1..6)).map(|_| rng.below(60) as i64).collect();
                let values = keys.iter().map(|k| vec![Value::Int64(*k)]).collect();
                let op = Op::DeleteKeys { table: table.clone(), keys: values };
                self.submit(vec![op], Effect::DeleteKeys { table, keys });
            }
            _ => {
                let rows: Vec<(i64, i64)> =
                    (0..rng.range(1..12)).map(|_| (rng.below(60) as i64, rng.below(1_000) as i64)).collect();
                let mut targets: BTreeSet<String> = [table].into();
                if rng.one_in(4) {
                    targets.insert(rng.pick(&tables).clone());
                }
                let insert =
                    |t: &String| Op::Insert { table: t.clone(), batch: batch(&rows), mode: Mode::Upsert };
                let ops = targets.iter().map(insert).collect();
                self.submit(ops, Effect::Upsert { tables: targets.into_iter().collect(), rows });
            }
        }
    }

    pub fn step(&mut self, rng: &mut Rng) {
        match rng.below(10) {
            0..=4 => self.write(rng),
            5 | 6 => self.commit(),
            7 | 8 => {
                self.engine.step(Step::Sync);
            }
            _ => {
                let made = |engine: &Engine| {
                    let status = engine.status();
                    status.seals + status.compactions + status.forgotten
                };
                if self.drops {
                    // A seal of a table that is being dropped takes no lsn.
                    self.commit();
                    while self.engine.step(Step::Sync) {}
                    self.drops = false;
                }
                let before = made(&self.engine);
                self.engine.step(Step::Background);
                (before..made(&self.engine)).for_each(|_| self.queue.push(Effect::Nothing));
            }
        }
        if self.held.len() < 4 && rng.one_in(40) {
            let root = self.engine.root();
            let state = self.at(root.lsn()).clone();
            self.held.push((root, state));
        }
        if rng.one_in(60) {
            self.held.clear();
        }
    }

    pub fn check_held(&self) {
        self.held.iter().for_each(|(root, state)| check(root, state, "S1"));
    }
}

/// Checks that the root equals the state, row ids included, by scan, by key and by change feed.
pub(super) fn check(root: &DatabaseRoot, state: &State, what: &str) {
    let names: Vec<String> =
        root.tables().map(|t| t.def().name.strip_prefix("main.").unwrap().to_owned()).collect();
    assert_eq!(names, state.keys().cloned().collect::<Vec<_>>(), "{what}: tables at lsn {}", root.lsn());
    for (name, model) in state {
        let table = root.table(&format!("main.{name}")).unwrap();
        let found = contents(table);
        let extra: Vec<_> = found.iter().filter(|(row, v)| model.rows.get(row) != Some(v)).collect();
        let missing: Vec<_> = model.rows.iter().filter(|(row, v)| found.get(row) != Some(v)).collect();
        assert!(
            extra.is_empty() && missing.is_empty(),
            "{what}: table {name} at lsn {}: {extra:?} should not be there, {missing:?} are missing",
            root.lsn()
        );
        if model.keyed {
            for id in 0..60i64 {
                let bytes =
                    types::key::encode_values(&[types::DataType::Int64], &[Value::Int64(id)]).unwrap();
                let expected = model.rows.iter().find(|(_, row)| row.0 == id).map(|(row, _)| *row);
                assert_eq!(table.find(&bytes).unwrap(), expected, "{what}: key {id} of {name}");
            }
        }
        check_feed(table, model, what);
    }
}

/// M1: the change feed, replayed from its floor over an empty table, has the rows that the table got since then.
fn check_feed(table: &table::Snapshot, model: &ModelTable, what: &str) {
    let floor = table.history_floor();
    let mut replayed: BTreeMap<RowId, (i64, i64)> = BTreeMap::new();
    let mut after = floor;
    while after < table.lsn() {
        let changes = table.changes(after, 7, table.all_columns()).unwrap();
        assert!(changes.next > after, "{what}: the feed goes on");
        for inserted in &changes.inserted {
            let column = |i: usize| {
                let array = inserted.batch.column(i);
                (0..array.len())
                    .map(|row| match Value::from_array(array, &types::DataType::Int64, row) {
                        Value::Int64(v) => v,
                        other => panic!("{other:?}"),
                    })
                    .collect::<Vec<_>>()
            };
            for ((row, id), v) in column(0).into_iter().zip(column(2)).zip(column(3)) {
                replayed.insert(RowId(row as u64), (id, v));
            }
        }
        for (row, _) in &changes.deleted {
            replayed.remove(row);
        }
        after = changes.next;
    }
    if floor == Lsn(0) {
        assert_eq!(replayed, model.rows, "{what}: the change feed");
    } else {
        assert!(
            replayed.iter().all(|(row, values)| model.rows.get(row) == Some(values)),
            "{what}: the change feed"
        );
    }
}

/// G1 in the other direction: right after recovery there is no segment file that no table names.
fn check_no_orphans(machine: &SimEnv, root: &DatabaseRoot) {
    let known: BTreeSet<String> = root
        .tables()
        .flat_map(|t| {
            let dir = table::segment::table_dir(Path::new(DIR), t.def().id);
            t.segments()
                .chain(t.past_segments().map(|(segment, _)| segment))
                .flat_map(|s| table::segment::file_names(s.id()))
                .map(move |file| dir.join(file).display().to_string())
                .collect::<Vec<_>>()
        })
        .collect();
    let prefix = format!("{DIR}/tables/");
    let there: BTreeSet<String> = machine
        .disk
        .files()
        .iter()
        .map(|path| path.display().to_string().trim_start_matches('/').to_owned())
        .filter(|path| path.starts_with(&prefix))
        .collect();
    assert_eq!(there, known, "the files in tables/ are those that the tables name");
}

/// Opens the database after a crash, and sometimes crashes again inside recovery.
pub(super) fn reopen(mut machine: SimEnv, rng: &mut Rng) -> (SimEnv, Engine) {
    for attempt in 0.. {
        if attempt < 4 && rng.chance(0.6) {
            machine.disk.crash_at(rng.range(1..60));
        }
        match Engine::open_stepped(machine.env(), Path::new(DIR), options()) {
            Ok(engine) if !machine.disk.is_dead() => return (machine, engine),
            Ok(engine) => drop(engine),
            Err(error) => assert!(machine.disk.is_dead(), "recovery failed: {error}"),
        }
        machine = machine.crash(rng);
    }
    unreachable!("an attempt without a crash succeeds")
}

/// Runs several lives of one database, each ended by a crash.
fn lives(seed: u64, lives: usize, steps: u64, crash_within: u64) -> u64 {
    lives_with(seed, lives, steps, crash_within, |_| {}, Duration::ZERO)
}

/// Runs several lives on a machine that `prepare` changes at the beginning of each. Each step takes `pace`.
pub(super) fn lives_with(
    seed: u64,
    lives: usize,
    steps: u64,
    crash_within: u64,
    prepare: impl Fn(&SimEnv),
    pace: Duration,
) -> u64 {
    let mut rng = Rng::new(seed);
    let machine = SimEnv::new(seed);
    let (mut machine, engine) = reopen(machine, &mut rng);
    let mut run = SimulatedRun::new(engine, 0, State::new());
    // The states by lsn.
    let mut past = vec![State::new()];
    let mut now = machine.env().clock.now();
    for _ in 0..lives {
        prepare(&machine);
        machine.disk.crash_at(rng.range(1..crash_within));
        for _ in 0..steps {
            run.step(&mut rng);
            machine.clock.advance(pace);
            if machine.disk.is_dead() {
                break;
            }
        }
        run.check_held();
        now = now.max(machine.env().clock.now());
        let acknowledged = run.acknowledged.load(Ordering::Relaxed);
        let SimulatedRun { engine, states, base, held, .. } = run;
        drop((engine, held));
        let after = machine.crash(&mut rng);
        let (reopened, engine) = reopen(after, &mut rng);
        machine = reopened;
        let root = engine.root();
        let lsn = root.lsn();
        assert!(
            engine.status().write_error.is_none(),
            "a crash is no damage: {:?}",
            engine.status().write_error
        );
        assert!(lsn.0 >= acknowledged, "L1: lsn {acknowledged} was acknowledged, {lsn} recovered");
        let last = base + states.len() as u64 - 1;
        assert!(lsn.0 <= last, "L2: lsn {lsn} recovered, {last} is the last one written");
        let state = states[(lsn.0 - base) as usize].clone();
        check(&root, &state, "L2");
        check_no_orphans(&machine, &root);
        drop(root);
        past.truncate(base as usize);
        past.extend(states.into_iter().take((lsn.0 - base) as usize + 1));
        past::check(&engine, now, &past, &mut rng);
        run = SimulatedRun::new(engine, lsn.0, state);
    }
    machine.trace_hash()
}

#[test]
fn acknowledged_commits_survive_crashes_at_random_calls() {
    let _limit = testkit::limit(900);
    testkit::for_each_seed(150, |seed| {
        lives(seed, 4, 600, 400);
    });
}

#[test]
fn acknowledged_commits_survive_a_crash_at_every_single_call() {
    let _limit = testkit::limit(900);
    let seed = 4;
    let workload = |crash_at: Option<u64>| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        let opened = machine.disk.calls();
        if let Some(call) = crash_at {
            machine.disk.crash_at(call);
        }
        let mut run = SimulatedRun::new(engine, 0, State::new());
        for _ in 0..700 {
            run.step(&mut rng);
            if machine.disk.is_dead() {
                break;
            }
        }
        (machine, run, opened)
    };
    let (machine, run, opened) = workload(None);
    let status = run.engine.status();
    assert!(status.seals > 0 && status.compactions > status.compressions, "{status:?}");
    assert!(status.compressions > 0 && status.manifests > 0, "{status:?}");
    let calls = machine.disk.calls() - opened;
    drop(run);
    for call in 1..=calls {
        let (machine, run, _) = workload(Some(call));
        let acknowledged = run.acknowledged.load(Ordering::Relaxed);
        let SimulatedRun { engine, states, held, .. } = run;
        drop((engine, held));
        let mut rng = Rng::new(call);
        let (machine, engine) = reopen(machine.crash(&mut rng), &mut rng);
        let root = engine.root();
        assert!(root.lsn().0 >= acknowledged, "L1: crash at call {call} of {calls}");
        let state = states.get(root.lsn().0 as usize).unwrap_or_else(|| panic!("L2: crash at call {call}"));
        check(&root, state, &format!("crash at call {call}"));
        check_no_orphans(&machine, &root);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let _limit = testkit::limit(120);
    for seed in 0..3 {
        assert_eq!(lives(seed, 2, 300, 200), lives(seed, 2, 300, 200), "seed {seed}");
    }
}

/// Canaries: an engine in which one kind of fsync does nothing must be caught. A kind that no test catches is not tested.
#[test]
fn an_engine_that_skips_a_kind_of_fsync_is_caught() {
    let _limit = testkit::limit(300);
    type Picks = fn(&Path) -> bool;
    let kinds: [(&str, Picks); 4] = [
        ("the log", |path| path.to_string_lossy().contains("/log/")),
        ("segments", |path| path.to_string_lossy().contains("/tables/")),
        ("the manifest", |path| path.to_string_lossy().contains("manifest")),
        ("the directory of tables", |path| path.ends_with("tables")),
    ];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = kinds.map(|(_, lost)| {
        (0..200).any(|seed| {
            let lose = |machine: &SimEnv| machine.disk.lose_syncs(lost);
            std::panic::catch_unwind(|| lives_with(seed, 3, 600, 500, lose, Duration::ZERO)).is_err()
        })
    });
    std::panic::set_hook(quiet);
    for ((what, _), caught) in kinds.iter().zip(caught) {
        assert!(caught, "nobody noticed that {what} was never synced");
    }
}

/// A failed sync of `tables/` left a directory whose name was not durable. The next seal found it and took it for durable,
/// and a crash then took all segments of the table with it.
#[test]
fn a_table_directory_whose_sync_failed_is_made_again() {
    let _limit = testkit::limit(60);
    for seed in 0..40 {
        let machine = SimEnv::new(seed);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        let mut run = SimulatedRun::new(engine, 0, State::new());
        let create = Op::CreateTable { def: plain("a"), if_absent: false };
        run.submit(vec![create], Effect::Create { table: "a".into(), keyed: false });
        run.commit();
        run.engine.step(Step::Sync);
        while run.engine.step(Step::Background) {}
        for round in 0..3 {
            let rows: Vec<(i64, i64)> = (0..50).map(|i| (i, round)).collect();
            let op = Op::Insert { table: "a".into(), batch: batch(&rows), mode: Mode::Append };
            run.submit(vec![op], Effect::Upsert { tables: vec!["a".into()], rows });
            run.commit();
            run.engine.step(Step::Sync);
            if round == 0 {
                // The first sync of a table's first seal is that of `tables/`.
                machine.disk.fail_sync(1);
                run.engine.step(Step::Background);
                assert_eq!((run.engine.status().background_errors, run.engine.status().seals), (1, 0));
                machine.clock.advance(Duration::from_secs(1));
            }
            while run.engine.step(Step::Background) {
                run.engine.step(Step::Commit);
                run.engine.step(Step::Sync);
            }
        }
        let rows = contents(run.engine.root().table("main.a").unwrap());
        assert!(run.engine.status().seals > 0);
        drop(run);
        let mut rng = Rng::new(seed);
        let engine = Engine::open_stepped(machine.crash(&mut rng).env(), Path::new(DIR), options()).unwrap();
        assert_eq!(contents(engine.root().table("main.a").unwrap()), rows, "seed {seed}");
    }
}

#[test]
fn reads_and_writes_that_fail_are_reported_and_lose_nothing_acknowledged() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(100, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        let mut run = SimulatedRun::new(engine, 0, State::new());
        for step in 0..400 {
            if step == 150 {
                match rng.below(3) {
                    0 => machine.disk.fail_write(rng.range(1..40)),
                    1 => machine.disk.fail_sync(rng.range(1..20)),
                    _ => machine.disk.fail_read(rng.range(1..10)),
                }
            }
            run.step(&mut rng);
        }
        run.check_held();
        let acknowledged = run.acknowledged.load(Ordering::Relaxed);
        let published = run.engine.root();
        check(&published, run.at(published.lsn()), "after a failure");
        drop(published);
        let SimulatedRun { engine, states, held, .. } = run;
        drop((engine, held));
        let (_machine, engine) = reopen(machine.crash(&mut rng), &mut Rng::new(1));
        let lsn = engine.root().lsn();
        assert!(lsn.0 >= acknowledged, "L1: {acknowledged} acknowledged, {lsn} recovered");
        check(&engine.root(), &states[lsn.0 as usize], "after a failure and a crash");
    });
}
