//! Tests unique indexes against a model, through crashes, damage and rebuilds. No two live rows are equal once an index
//! is enforced; only writes that would break it are refused; an index over equal rows is never enforced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use engine::{DatabaseRoot, Engine, Mode, Op, Options, Step, Transaction};
use sim::{Rng, SimEnv};
use table::materializer::Materializer;
use types::{DataType, Kind, NewIndex, Principal, RowId, TableDef, TableId, UniqueState, Value};

use crate::column::ColumnMaterializer;

const DIR: &str = "db";
const TABLE: &str = "main.t";
const FLOATS: [Option<f64>; 6] = [None, Some(0.0), Some(-0.0), Some(f64::NAN), Some(1.5), Some(-1.5)];

/// A row of the test table. `a` and `b` are unique together, `n` by itself; `a` and `b` are indexes into lists of
/// values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    id: i64,
    a: usize,
    b: usize,
    n: Option<i64>,
}

type RowsById = BTreeMap<i64, Row>;

fn text(a: usize) -> Option<String> {
    match a {
        0 => None,
        1 => Some("x".into()),
        // A value longer than an index entry can hold.
        a => Some("long ".repeat(300) + &a.to_string()),
    }
}

impl Row {
    fn random(rng: &mut Rng, distinct: bool) -> Row {
        let wide = if distinct { 1_000_000 } else { 14 };
        Row {
            id: rng.below(40) as i64,
            a: rng.below(5) as usize,
            b: if distinct { 0 } else { rng.below(6) as usize },
            n: (!rng.one_in(6)).then(|| rng.below(wide) as i64),
        }
    }

    /// Returns a string that is equal for rows that are equal in the columns of an index, or `None` if one of these is
    /// null.
    fn claim(&self, index: &str) -> Option<String> {
        match index {
            "n" => self.n.map(|n| n.to_string()),
            _ => {
                let b = FLOATS[self.b]? + 0.0;
                Some(format!("{} {b}", text(self.a)?))
            }
        }
    }
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.id)))),
        ("a", Arc::new(StringArray::from_iter(rows.iter().map(|r| text(r.a))))),
        ("b", Arc::new(Float64Array::from_iter(rows.iter().map(|r| FLOATS[r.b])))),
        ("n", Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.n)))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn def() -> TableDef {
    let mut def = TableDef::new(TableId(0), TABLE);
    for (name, data_type) in
        [("id", DataType::Int64), ("a", DataType::String), ("b", DataType::Float64), ("n", DataType::Int64)]
    {
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def.set_primary_key(&["id".into()]).unwrap();
    def
}

fn unique(name: &str) -> NewIndex {
    let columns: &[&str] = if name == "n" { &["n"] } else { &["a", "b"] };
    let columns = columns.iter().map(|c| (*c).to_owned()).collect();
    NewIndex { name: name.into(), kind: "column".into(), columns, unique: true, ..NewIndex::default() }
}

/// Reads all rows of the table, by `id`, with their row ids.
fn contents(root: &DatabaseRoot) -> BTreeMap<i64, (RowId, Row)> {
    let table = root.table(TABLE).unwrap();
    let mut rows = BTreeMap::new();
    for piece in table.pieces() {
        let batch = piece.read(table.all_columns()).unwrap();
        for at in 0..batch.num_rows() {
            let value = |column: &str, data_type: &DataType| {
                Value::from_array(batch.column_by_name(column).unwrap(), data_type, at)
            };
            let int = |column: &str| match value(column, &DataType::Int64) {
                Value::Int64(n) => Some(n),
                _ => None,
            };
            let a = value("a", &DataType::String);
            let a = (0..5).find(|n| text(*n).map_or(Value::Null, Value::String) == a).unwrap();
            let bits = |b: Option<f64>| b.map(f64::to_bits);
            let b = match value("b", &DataType::Float64) {
                Value::Float64(b) => Some(b),
                _ => None,
            };
            let b = (0..6).find(|n| bits(FLOATS[*n]) == bits(b)).unwrap();
            let row = Row { id: int("id").unwrap(), a, b, n: int("n") };
            assert!(rows.insert(row.id, (RowId(int("_row_id").unwrap() as u64), row)).is_none());
        }
    }
    rows
}

fn states(root: &DatabaseRoot) -> BTreeMap<String, UniqueState> {
    let def = root.table(TABLE).unwrap().def();
    def.indexes.iter().map(|index| (index.name.clone(), index.unique.clone().unwrap())).collect()
}

fn checked(root: &DatabaseRoot) -> Vec<String> {
    let is_checked = |state: &UniqueState| !matches!(state, UniqueState::Failed(_));
    states(root).into_iter().filter(|(_, state)| is_checked(state)).map(|(name, _)| name).collect()
}

fn has_equal<'r>(rows: impl Iterator<Item = &'r Row>, index: &str) -> bool {
    let mut seen = BTreeSet::new();
    rows.filter_map(|row| row.claim(index)).any(|claim| !seen.insert(claim))
}

#[derive(Clone, Debug)]
enum Effect {
    Insert(Vec<Row>, Mode),
    /// Replaces the rows of these keys, whatever their values are.
    Update(Vec<Row>),
    Delete(Vec<i64>),
}

/// Applies an effect to the model. Returns `None` if a write must be refused because of these indexes or the primary
/// key.
fn applied(rows: &RowsById, effect: &Effect, indexes: &[String]) -> Option<RowsById> {
    let mut next = rows.clone();
    let taken = |rows: &RowsById, row: &Row, but: &BTreeSet<i64>| {
        indexes.iter().any(|index| {
            let claim = row.claim(index);
            claim.is_some()
                && rows.values().any(|other| !but.contains(&other.id) && other.claim(index) == claim)
        })
    };
    match effect {
        Effect::Delete(ids) => next.retain(|id, _| !ids.contains(id)),
        Effect::Insert(new, Mode::InsertIfAbsent) => {
            for row in new {
                if !next.contains_key(&row.id) && !taken(&next, row, &BTreeSet::new()) {
                    next.insert(row.id, *row);
                }
            }
        }
        Effect::Insert(new, mode) => {
            // If several rows have one key, the last one counts.
            let last: RowsById = new.iter().map(|row| (row.id, *row)).collect();
            let is_append = *mode == Mode::Append;
            if is_append && (last.len() < new.len() || new.iter().any(|row| next.contains_key(&row.id))) {
                return None;
            }
            return replaced(next, &last, &taken, indexes);
        }
        Effect::Update(new) => {
            return replaced(next, &new.iter().map(|row| (row.id, *row)).collect(), &taken, indexes);
        }
    }
    Some(next)
}

fn replaced(
    mut rows: RowsById,
    new: &RowsById,
    taken: &dyn Fn(&RowsById, &Row, &BTreeSet<i64>) -> bool,
    indexes: &[String],
) -> Option<RowsById> {
    let ended: BTreeSet<i64> = new.keys().copied().collect();
    if indexes.iter().any(|index| has_equal(new.values(), index)) {
        return None;
    }
    if new.values().any(|row| taken(&rows, row, &ended)) {
        return None;
    }
    rows.extend(new.iter().map(|(id, row)| (*id, *row)));
    Some(rows)
}

type WriteOutcome = Arc<Mutex<Option<Result<(), Kind>>>>;

/// One run of an engine between two crashes, with the model of its table.
struct EngineRun<'m> {
    machine: &'m SimEnv,
    engine: Engine,
    /// The rows as the commit thread sees them.
    rows: RowsById,
    /// Submitted writes, each with the indexes that were being checked or enforced when it was prepared.
    queue: Vec<(Effect, WriteOutcome, Vec<String>)>,
    /// Number of refused writes.
    refused: u64,
    distinct: bool,
}

fn open(machine: &SimEnv, rng: &mut Rng) -> types::Result<Engine> {
    let mut options = Options {
        seal_rows: 30,
        seal_bytes: 1 << 20,
        log_files_max: 3,
        step_rows: 1 + rng.below(40) as usize,
        unique_at_once_rows: if rng.one_in(3) { 1_000 } else { 0 },
        ..Options::default()
    };
    (options.log.file_bytes, options.log.spare_files) = (64 << 10, 1);
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options)?;
    engine.register(ColumnMaterializer::new())?;
    Ok(engine)
}

impl EngineRun<'_> {
    fn submit(&self, ops: Vec<Op>) -> WriteOutcome {
        let outcome = WriteOutcome::default();
        let told = outcome.clone();
        self.engine.submit(&Principal::local(), Transaction::new(ops), move |result| {
            *told.lock().unwrap() = Some(result.map(drop).map_err(|e| e.kind()));
        });
        outcome
    }

    fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.published() == self.rows
    }

    fn published(&self) -> RowsById {
        contents(&self.engine.root()).into_iter().map(|(id, (_, row))| (id, row)).collect()
    }

    fn write(&mut self, rng: &mut Rng) {
        let count = 1 + rng.below(4) as usize;
        let mut new: Vec<Row> = (0..count).map(|_| Row::random(rng, self.distinct)).collect();
        // Values are nearly always distinct, so that an index can hold; now and then one is taken already.
        if self.distinct && rng.one_in(6) && !self.rows.is_empty() {
            let there: Vec<i64> = self.rows.keys().copied().collect();
            new[0].n = self.rows[rng.pick(&there)].n;
        }
        let table = || TABLE.to_owned();
        let insert =
            |mode: Mode| (Op::Insert { table: table(), batch: batch(&new), mode: mode.clone() }, mode);
        let (op, effect) = match rng.below(9) {
            0..=2 => {
                let (op, mode) = insert(Mode::Append);
                (op, Effect::Insert(new, mode))
            }
            3 | 4 => {
                let (op, mode) = insert(Mode::Upsert);
                (op, Effect::Insert(new, mode))
            }
            // While an index is being checked, the rows that it skips depend on how many it knows by then, which the
            // model cannot tell.
            5 if !states(&self.engine.root()).values().any(|state| *state == UniqueState::Checking) => {
                let (op, mode) = insert(Mode::InsertIfAbsent);
                (op, Effect::Insert(new, mode))
            }
            6 if self.is_quiet() => {
                let there: Vec<(RowId, Row)> = contents(&self.engine.root()).into_values().collect();
                if there.is_empty() {
                    return;
                }
                let picked: BTreeMap<i64, RowId> =
                    (0..count).map(|_| *rng.pick(&there)).map(|(row_id, row)| (row.id, row_id)).collect();
                let new: Vec<Row> =
                    picked.keys().map(|id| Row { id: *id, ..Row::random(rng, self.distinct) }).collect();
                let old = picked.values().copied().collect();
                (Op::Update { table: table(), old, batch: batch(&new) }, Effect::Update(new))
            }
            _ => {
                let ids: Vec<i64> = new.iter().map(|row| row.id).collect();
                let keys = ids.iter().map(|id| vec![Value::Int64(*id)]).collect();
                (Op::DeleteKeys { table: table(), keys }, Effect::Delete(ids))
            }
        };
        let is_update = matches!(effect, Effect::Update(_));
        let checked = checked(&self.engine.root());
        let outcome = self.submit(vec![op]);
        self.queue.push((effect, outcome, checked));
        if is_update {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let before = states(&self.engine.root());
        self.engine.step(Step::Commit);
        if self.machine.disk.is_dead() || self.engine.status().write_error.is_some() {
            return;
        }
        // An index may have changed its state within this commit group. Only indexes that were enforced before are sure
        // to be.
        let enforced = before.into_iter().filter(|(_, state)| *state == UniqueState::Enforced);
        let enforced: Vec<String> = enforced.map(|(name, _)| name).collect();
        for (effect, outcome, maybe) in std::mem::take(&mut self.queue) {
            let told = *outcome.lock().unwrap();
            let must_pass = applied(&self.rows, &effect, &maybe);
            match told {
                Some(Err(kind)) => {
                    assert!(must_pass.is_none(), "{effect:?} was refused ({kind:?}), over {:?}", self.rows);
                    assert_eq!(kind, Kind::Exists, "{effect:?}");
                    self.refused += 1;
                }
                _ => {
                    let next = applied(&self.rows, &effect, &enforced);
                    let next = next.unwrap_or_else(|| panic!("{effect:?} was taken, over {:?}", self.rows));
                    self.rows = next;
                }
            }
        }
    }

    /// Drops or adds an index, if no write is pending.
    fn change_indexes(&mut self, rng: &mut Rng) {
        if !self.is_quiet() {
            return;
        }
        let name = *rng.pick(&["n", "ab"]);
        let known = states(&self.engine.root());
        let is_there = known.contains_key(name);
        let (drop, add) = if is_there { (vec![name.into()], vec![]) } else { (vec![], vec![unique(name)]) };
        let rows = self.rows.clone();
        let outcome = self.submit(vec![Op::AlterIndexes { table: TABLE.into(), drop, add }]);
        self.engine.step(Step::Commit);
        while self.engine.step(Step::Sync) {}
        if let Some(Err(kind)) = *outcome.lock().unwrap() {
            if self.machine.disk.is_dead() {
                return;
            }
            assert_eq!(kind, Kind::Exists);
            assert!(has_equal(rows.values(), name));
        }
    }

    fn check(&self) {
        let root = self.engine.root();
        let rows = contents(&root);
        for (index, state) in states(&root) {
            let is_equal = has_equal(rows.values().map(|(_, row)| row), &index);
            assert!(!(state == UniqueState::Enforced && is_equal), "{index} over {rows:?}");
        }
    }
}

fn run_with_crashes(seed: u64, seen: &Mutex<BTreeMap<&'static str, u64>>) {
    let mut rng = Rng::new(seed);
    let mut machine = SimEnv::new(seed);
    for _ in 0..3 {
        let distinct = rng.one_in(2);
        let engine = loop {
            if rng.one_in(3) {
                machine.disk.crash_at(machine.disk.calls() + 1 + rng.below(60));
            }
            match open(&machine, &mut rng) {
                Ok(engine) if !machine.disk.is_dead() => break engine,
                Ok(engine) => drop(engine),
                Err(error) => assert!(machine.disk.is_dead(), "{error}"),
            }
            machine = machine.crash(&mut rng);
        };
        machine.disk.crash_at(machine.disk.calls() + 1 + rng.below(600));
        let mut run = EngineRun {
            machine: &machine,
            engine,
            rows: RowsById::new(),
            queue: Vec::new(),
            refused: 0,
            distinct,
        };
        if run.engine.root().table(TABLE).is_none() {
            run.submit(vec![Op::CreateTable { def: def(), if_absent: false }]);
            run.engine.step(Step::Commit);
            while run.engine.step(Step::Sync) {}
        }
        if !machine.disk.is_dead() {
            run.check();
            run.rows = run.published();
        }
        for _ in 0..400 {
            if machine.disk.is_dead() {
                break;
            }
            match rng.below(20) {
                0..=8 => run.write(&mut rng),
                9..=11 => run.commit(),
                12 | 13 => drop(run.engine.step(Step::Sync)),
                14 => run.change_indexes(&mut rng),
                _ => drop(run.engine.step(Step::Background)),
            }
            if machine.disk.is_dead() || run.engine.status().write_error.is_some() {
                break;
            }
            run.check();
            let mut seen = seen.lock().unwrap();
            for state in states(&run.engine.root()).into_values() {
                let name = match state {
                    UniqueState::Checking => "checking",
                    UniqueState::Enforced => "enforced",
                    UniqueState::Failed(_) => "failed",
                };
                *seen.entry(name).or_default() += 1;
            }
        }
        *seen.lock().unwrap().entry("refused").or_default() += run.refused;
        drop(run);
        machine = machine.crash(&mut rng);
        if rng.one_in(4) {
            for file in machine.disk.files() {
                if file.extension().is_some_and(|e| e == "run") {
                    machine.env().disk.remove(&file).unwrap();
                }
            }
        } else if rng.one_in(3) {
            for file in machine.disk.files() {
                let len = machine.disk.contents(&file).map_or(0, |bytes| bytes.len() as u64);
                if file.extension().is_some_and(|e| e == "run") && len > 0 {
                    machine.disk.flip_bit(&file, rng.below(len));
                }
            }
        }
    }
}

#[test]
fn no_two_rows_are_equal_under_an_enforced_index_and_nothing_else_is_refused() {
    let _limit = testkit::limit(900);
    let seen = Mutex::new(BTreeMap::new());
    testkit::for_each_seed(60, |seed| run_with_crashes(seed, &seen));
    let seen = seen.into_inner().unwrap();
    for what in ["checking", "enforced", "failed", "refused"] {
        assert!(seen.get(what).is_some_and(|count| *count > 50), "{what}: {seen:?}");
    }
}

#[test]
fn what_a_write_reads_for_a_unique_index_does_not_grow_with_the_table() {
    let _limit = testkit::limit(240);
    let mut def = def();
    def.add_index(&unique("n")).unwrap();
    def.indexes[0].unique = Some(UniqueState::Enforced);
    let mut bench = super::support::IndexBench::new(1, def);
    let row = |n: i64| Row { id: n, a: 0, b: 0, n: Some(n) };
    let mut last = 0;
    for size in [1_000, 10_000, 100_000i64] {
        let rows: Vec<Row> = (last..size).map(|n| row(n * 7 % 1_000_003)).collect();
        bench.append(&batch(&rows));
        bench.catch_up(20_000);
        let position = bench.position.clone().unwrap();
        let lookup = bench.column.lookup(&position.published).unwrap();
        let remembered = bench.tip.forget_uniques(&*lookup);
        assert!(remembered, "what the index has is kept in memory no longer");
        let table = bench.table();
        let key = table::unique::Key::of(table.def(), &table.def().indexes[0]).unwrap();
        let of = |n: i64| {
            let batch = table.conform(&batch(&[row(n)])).unwrap();
            let keys = key.encode(&batch).unwrap();
            table.owners(&key, Some(&*lookup), &batch, &keys).unwrap().unwrap()
        };
        let (taken, free) = (of((size - 1) * 7 % 1_000_003), of(1_000_003));
        assert_eq!(taken.rows, [Some(RowId(size as u64))]);
        assert_eq!((taken.complete, taken.compared), (true, 1));
        assert_eq!((free.rows, free.complete, free.compared), (vec![None], true, 0));
        last = size;
    }
}

/// Opens a stepped engine that builds every unique index before it enforces it, with a plain index over the same
/// column.
fn stepped_engine(machine: &SimEnv) -> Engine {
    let options = Options { unique_at_once_rows: 0, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options).unwrap();
    engine.register(ColumnMaterializer::new()).unwrap();
    let mut def = def();
    def.add_index(&NewIndex { name: "plain".into(), unique: false, ..unique("n") }).unwrap();
    submit(&engine, Op::CreateTable { def, if_absent: false });
    settle(machine, &engine);
    engine
}

fn submit(engine: &Engine, op: Op) {
    engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
        result.unwrap();
    });
}

/// Runs all pending work, and advances the clock so that no index waits for more rows.
fn settle(machine: &SimEnv, engine: &Engine) {
    for _ in 0..3 {
        while engine.step(Step::Commit) | engine.step(Step::Sync) | engine.step(Step::Background) {}
        machine.clock.advance(std::time::Duration::from_secs(60));
    }
}

fn insert(engine: &Engine, rows: &[(i64, i64)]) {
    let rows: Vec<Row> = rows.iter().map(|(id, n)| Row { id: *id, a: 0, b: 0, n: Some(*n) }).collect();
    submit(engine, Op::Insert { table: TABLE.into(), batch: batch(&rows), mode: Mode::Append });
}

fn alter(engine: &Engine, drop: &[&str], add: bool) {
    let drop = drop.iter().map(|name| (*name).to_owned()).collect();
    let add = add.then(|| unique("n")).into_iter().collect();
    submit(engine, Op::AlterIndexes { table: TABLE.into(), drop, add });
}

fn state(engine: &Engine) -> Option<UniqueState> {
    let root = engine.root();
    root.table(TABLE).unwrap().def().index_named("n").and_then(|index| index.unique.clone())
}

/// The `Equal` verdict of a failed unique index stayed with the plain index over the same columns, so a new unique
/// index failed too.
#[test]
fn an_index_that_failed_can_be_made_again_once_its_rows_are_distinct() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let engine = stepped_engine(&machine);
    insert(&engine, &[(1, 7), (2, 7), (3, 8)]);
    settle(&machine, &engine);
    for at_once in [false, true] {
        alter(&engine, &[], true);
        settle(&machine, &engine);
        assert!(matches!(state(&engine), Some(UniqueState::Failed(_))), "{:?}", state(&engine));
        submit(&engine, Op::DeleteKeys { table: TABLE.into(), keys: vec![vec![Value::Int64(2)]] });
        settle(&machine, &engine);
        if at_once {
            alter(&engine, &["n"], true)
        } else {
            alter(&engine, &["n"], false);
            settle(&machine, &engine);
            alter(&engine, &[], true);
        }
        settle(&machine, &engine);
        assert_eq!(state(&engine), Some(UniqueState::Enforced), "at once: {at_once}");
        alter(&engine, &["n"], false);
        settle(&machine, &engine);
        insert(&engine, &[(2, 7)]);
        settle(&machine, &engine);
    }
}

/// An index that was dropped and made again in one step was enforced only if no row arrived while its rows were
/// compared.
#[test]
fn an_index_that_replaces_one_of_its_name_is_enforced_while_rows_keep_coming() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(2);
    let engine = stepped_engine(&machine);
    insert(&engine, &[(1, 1), (2, 2)]);
    alter(&engine, &[], true);
    settle(&machine, &engine);
    assert_eq!(state(&engine), Some(UniqueState::Enforced));
    alter(&engine, &["n"], true);
    engine.step(Step::Commit);
    engine.step(Step::Sync);
    assert_eq!(state(&engine), Some(UniqueState::Checking));
    for id in 3..23 {
        // The insert commits before the verdict over the earlier rows does.
        insert(&engine, &[(id, id)]);
        machine.clock.advance(std::time::Duration::from_secs(60));
        engine.step(Step::Background);
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    }
    assert_eq!(state(&engine), Some(UniqueState::Enforced));
}

/// Each write reads all rows until the index is open, and merging segments first may take long.
#[test]
fn after_a_restart_the_index_that_writers_ask_comes_before_merging() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(3);
    let options = || Options { seal_rows: 10, unique_at_once_rows: 0, ..Options::default() };
    let open = || Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    let engine = open();
    engine.register(ColumnMaterializer::new()).unwrap();
    let mut def = def();
    def.add_index(&unique("n")).unwrap();
    submit(&engine, Op::CreateTable { def, if_absent: false });
    settle(&machine, &engine);
    for round in 0..6 {
        insert(&engine, &(0..10).map(|at| (round * 10 + at, round * 10 + at)).collect::<Vec<_>>());
        engine.step(Step::Commit);
        engine.step(Step::Sync);
        engine.step(Step::Background);
        if round < 3 {
            settle(&machine, &engine);
        }
    }
    let id = engine.root().table(TABLE).unwrap().def().id;
    assert!(engine.root().derived("column", id).is_some());
    engine.close().unwrap();
    let engine = open();
    engine.register(ColumnMaterializer::new()).unwrap();
    let merged = engine.status().compactions;
    assert!(engine.root().derived("column", id).is_none());
    // A file for the log and a seal come first.
    for _ in 0..8 {
        if engine.root().derived("column", id).is_some() {
            break;
        }
        engine.step(Step::Background);
        engine.step(Step::Commit);
        engine.step(Step::Sync);
    }
    assert!(engine.root().derived("column", id).is_some());
    assert_eq!(engine.status().compactions, merged);
    settle(&machine, &engine);
    assert!(engine.status().compactions > merged, "there was something to merge");
}

/// A step compares the rows of the index. A row that is being committed meanwhile is neither in the index nor in the
/// commit thread's map.
#[test]
fn a_row_that_comes_while_rows_are_compared_is_compared_too() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(1);
    let options = Options { unique_at_once_rows: 0, ..Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options).unwrap();
    engine.register(ColumnMaterializer::new()).unwrap();
    let run = EngineRun {
        machine: &machine,
        engine,
        rows: RowsById::new(),
        queue: Vec::new(),
        refused: 0,
        distinct: true,
    };
    let settle = || {
        for _ in 0..20 {
            run.engine.step(Step::Background);
            run.engine.step(Step::Commit);
            while run.engine.step(Step::Sync) {}
        }
    };
    let row = |id: i64, n: i64| Row { id, a: 0, b: 0, n: Some(n) };
    let insert = |rows: &[Row]| Op::Insert { table: TABLE.into(), batch: batch(rows), mode: Mode::Append };
    run.submit(vec![Op::CreateTable { def: def(), if_absent: false }]);
    settle();
    run.submit(vec![insert(&(0..20).map(|id| row(id, id)).collect::<Vec<_>>())]);
    settle();
    run.submit(vec![Op::AlterIndexes { table: TABLE.into(), drop: vec![], add: vec![unique("n")] }]);
    run.engine.step(Step::Commit);
    while run.engine.step(Step::Sync) {}
    assert_eq!(states(&run.engine.root())["n"], UniqueState::Checking);
    // This row is checked before the index has any rows, and committed after the index has compared all rows that it
    // knew.
    let outcome = run.submit(vec![insert(&[row(20, 3)])]);
    for _ in 0..20 {
        run.engine.step(Step::Background);
    }
    run.engine.step(Step::Commit);
    while run.engine.step(Step::Sync) {}
    assert_eq!(*outcome.lock().unwrap(), Some(Ok(())));
    assert_eq!(states(&run.engine.root())["n"], UniqueState::Checking, "not all rows were compared");
    let table = run.engine.root().table(TABLE).unwrap().def().id;
    run.engine.hurry(crate::column::NAME, table);
    settle();
    let UniqueState::Failed(why) = &states(&run.engine.root())["n"] else { panic!("two rows are equal") };
    assert!(why.starts_with("two rows have n = 3"), "{why}");
}
