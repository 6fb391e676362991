//! The simulation of `simulated.rs` with more variety. It has strings with a default, nested values, and columns that are
//! added later, renamed, widened and dropped. It uses every insert mode, updates, API keys, commits acknowledged from
//! memory, and disks that are full for a while.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use commitlog::edit::ApiKey;
use sim::{Rng, SimEnv};
use types::{AlterAction, ColumnId, DataType, Principal, RowId, Scope, TableDef, TableId, TableSet, Value};

use crate::{Ack, DatabaseRoot, Engine, Mode, Op, Options, Step, Transaction};

const DIR: &str = "db";
const KEYS: u64 = 30;

fn options() -> Options {
    Options {
        log: commitlog::Options { file_bytes: 24 << 10, spare_files: 1, ..Default::default() },
        seal_rows: 40,
        log_files_max: 3,
        ..Options::default()
    }
}

/// A row: values of all columns of the table, by column name.
type Row = BTreeMap<String, Value>;

#[derive(Clone, Debug, PartialEq)]
struct ModelColumn {
    id: u32,
    name: String,
    data_type: DataType,
    /// Value for new rows that lack the column.
    default: Value,
    /// Value in rows that are older than the column.
    initial: Value,
    refuses_null: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct ModelTable {
    /// The present name; the states know the table by its first name.
    name: String,
    keyed: bool,
    version: u64,
    columns: Vec<ModelColumn>,
    next_column: u32,
    rows: BTreeMap<RowId, Row>,
    next_row: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    tables: BTreeMap<String, ModelTable>,
    keys: BTreeMap<String, [u8; 32]>,
}

#[derive(Clone, Debug)]
enum Effect {
    Create(String, ModelTable),
    Alter {
        table: String,
        version: u64,
        change: AlterAction,
    },
    /// `as_of` is the table for which the rows were made.
    Insert {
        table: String,
        as_of: Box<ModelTable>,
        mode: Mode,
        rows: Vec<Row>,
    },
    Update {
        table: String,
        as_of: Box<ModelTable>,
        old: Vec<RowId>,
        rows: Vec<Row>,
    },
    PutKey(String, [u8; 32]),
    RemoveKey(String),
    /// A seal or compaction takes an lsn and changes no row.
    Nothing,
}

impl ModelTable {
    fn find(&self, id: &Value) -> Option<RowId> {
        self.rows.iter().find(|(_, row)| row["id"] == *id).map(|(row, _)| *row)
    }

    fn push(&mut self, row: &Row) {
        let mut whole: Row = self.columns.iter().map(|c| (c.name.clone(), c.initial.clone())).collect();
        whole.extend(row.clone());
        self.next_row += 1;
        self.rows.insert(RowId(self.next_row), whole);
    }

    fn column(&mut self, name: &str) -> &mut ModelColumn {
        self.columns.iter_mut().find(|c| c.name == name).unwrap()
    }

    /// Applies a change. Returns false if the engine must refuse it; the table is then in an undefined state.
    fn alter(&mut self, change: &AlterAction) -> bool {
        self.version += 1;
        match change.clone() {
            AlterAction::AddColumn { name, data_type, default, .. } => {
                let default = default.unwrap_or(Value::Null);
                for row in self.rows.values_mut() {
                    row.insert(name.clone(), default.clone());
                }
                // Nested fields have ids too.
                let (id, width) = (self.next_column, if data_type == nested() { 4 } else { 1 });
                self.next_column += width;
                let initial = default.clone();
                self.columns.push(ModelColumn { id, name, data_type, default, initial, refuses_null: false });
            }
            AlterAction::RenameColumn { from, to } => {
                for row in self.rows.values_mut() {
                    let value = row.remove(&from).unwrap();
                    row.insert(to.clone(), value);
                }
                self.column(&from).name = to;
            }
            AlterAction::DropColumn { name, .. } => {
                self.rows.values_mut().for_each(|row| drop(row.remove(&name)));
                self.columns.retain(|c| c.name != name);
            }
            AlterAction::Widen { name, to } => {
                let wider = |value: &mut Value| *value = value.clone().cast(&to).unwrap();
                self.rows.values_mut().for_each(|row| wider(row.get_mut(&name).unwrap()));
                let column = self.column(&name);
                wider(&mut column.default);
                wider(&mut column.initial);
                column.data_type = to;
            }
            AlterAction::SetDefault { name, value } => {
                self.column(&name).default = value.unwrap_or(Value::Null);
            }
            AlterAction::SetNotNull { name } => {
                self.column(&name).refuses_null = true;
                return self.rows.values().all(|row| row[&name] != Value::Null);
            }
            AlterAction::DropNotNull { name } => self.column(&name).refuses_null = false,
            AlterAction::RenameTable { to } => self.name = to,
            AlterAction::SetTtl { .. }
            | AlterAction::SetHot { .. }
            | AlterAction::SetTime { .. }
            | AlterAction::SetPath { .. }
            | AlterAction::SetRest { .. }
            | AlterAction::SetInput { .. }
            | AlterAction::SetPartitionBy { .. }
            | AlterAction::SetSortBy { .. } => {
                unreachable!("not among the changes of this test")
            }
        }
        true
    }

    /// Returns true if rows that were made for `as_of` may be written here.
    fn takes(&self, as_of: &ModelTable, rows: &[Row]) -> bool {
        if self.name != as_of.name {
            return false;
        }
        let (given, columns) = (as_of.columns.len(), &self.columns);
        let same = |(now, then): (&ModelColumn, &ModelColumn)| {
            (now.id, &now.name, &now.data_type) == (then.id, &then.name, &then.data_type)
        };
        let no_nulls =
            |c: &ModelColumn| !c.refuses_null || rows.iter().all(|row| row[&c.name] != Value::Null);
        let has_value =
            |c: &ModelColumn| c.default == c.initial && (c.default != Value::Null || !c.refuses_null);
        given <= columns.len()
            && columns.iter().zip(&as_of.columns).all(same)
            && columns[..given].iter().all(no_nulls)
            && columns[given..].iter().all(has_value)
    }

    /// Inserts rows. Returns false if the engine must refuse it; the table is then in an undefined state.
    fn insert(&mut self, mode: &Mode, rows: &[Row]) -> bool {
        if !self.keyed {
            rows.iter().for_each(|row| self.push(row));
            return true;
        }
        let before = self.clone();
        for (i, row) in rows.iter().enumerate() {
            let same = |other: &&Row| other["id"] == row["id"];
            let found = before.find(&row["id"]);
            match mode {
                Mode::Append if found.is_some() => return false,
                Mode::Append => {}
                Mode::Upsert if rows[i + 1..].iter().any(|other| same(&other)) => continue,
                Mode::Upsert => drop(found.map(|old| self.rows.remove(&old))),
                Mode::InsertIfAbsent if found.is_some() || rows[..i].iter().any(|r| same(&r)) => continue,
                Mode::InsertIfAbsent => {}
                Mode::CompareAndSet(expected) if expected[i] != found => return false,
                Mode::CompareAndSet(_) => drop(found.map(|old| self.rows.remove(&old))),
            }
            self.push(row);
        }
        true
    }
}

/// Returns the state after the effect, or `None` if the engine must refuse it.
fn apply(state: &State, effect: &Effect) -> Option<State> {
    let mut state = state.clone();
    match effect {
        Effect::Create(name, table) => {
            state.tables.insert(name.clone(), table.clone());
        }
        Effect::Alter { table, version, change } => {
            let table = state.tables.get_mut(table)?;
            if table.version != *version || !table.alter(change) {
                return None;
            }
        }
        Effect::Insert { table, as_of, mode, rows } => {
            let table = state.tables.get_mut(table)?;
            if !table.takes(as_of, rows) || !table.insert(mode, rows) {
                return None;
            }
        }
        Effect::Update { table, as_of, old, rows } => {
            let table = state.tables.get_mut(table)?;
            if !table.takes(as_of, rows) {
                return None;
            }
            for row in old {
                table.rows.remove(row)?;
            }
            if !table.insert(&Mode::Append, rows) {
                return None;
            }
        }
        Effect::PutKey(name, hash) => drop(state.keys.insert(name.clone(), *hash)),
        Effect::RemoveKey(name) => drop(state.keys.remove(name)?),
        Effect::Nothing => {}
    }
    Some(state)
}

struct SchemaRun {
    machine: SimEnv,
    engine: Engine,
    /// The state after each lsn, from `base` on.
    states: Vec<State>,
    base: u64,
    queue: Vec<Effect>,
    acknowledged: Arc<AtomicU64>,
    /// A root that is held for a while, with its state.
    held: Option<(Arc<DatabaseRoot>, State)>,
}

impl SchemaRun {
    fn new(machine: SimEnv, engine: Engine, base: u64, state: State) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(base));
        SchemaRun { machine, engine, states: vec![state], base, queue: Vec::new(), acknowledged, held: None }
    }

    fn published(&self) -> &State {
        &self.states[(self.engine.root().lsn().0 - self.base) as usize]
    }

    fn submit(&mut self, rng: &mut Rng, op: Op, effect: Effect) {
        let acknowledged = self.acknowledged.clone();
        let refused = Arc::new(AtomicBool::new(false));
        let answer = refused.clone();
        let ack = if rng.one_in(4) { Ack::Memory } else { Ack::Durable };
        let transaction = Transaction::new(vec![op]).ack(ack);
        self.engine.submit(&Principal::local(), transaction, move |result| match result {
            // The lsn is 0 for a commit acknowledged from memory, which promises nothing.
            Ok(committed) => drop(acknowledged.fetch_max(committed.lsn.0, Ordering::Relaxed)),
            Err(_) => answer.store(true, Ordering::Relaxed),
        });
        if !refused.load(Ordering::Relaxed) {
            self.queue.push(effect);
        }
    }

    fn commit(&mut self) {
        let before = (self.states.len(), self.engine.status().commits);
        let queue = std::mem::take(&mut self.queue);
        for effect in &queue {
            self.states.extend(apply(&self.states[self.states.len() - 1], effect));
        }
        self.engine.step(Step::Commit);
        let status = self.engine.status();
        let commits = status.commits - before.1;
        // Requests that make room still happen on a full disk: first edits of background work, then the others if they fit.
        for rest in [true, false] {
            if commits > 0 && commits != (self.states.len() - before.0) as u64 {
                self.states.truncate(before.0);
                let edits = queue.iter().filter(|effect| matches!(effect, Effect::Nothing));
                let others = queue.iter().filter(|effect| rest && matches!(effect, Effect::RemoveKey(_)));
                for effect in edits.chain(others) {
                    self.states.extend(apply(&self.states[self.states.len() - 1], effect));
                }
            }
        }
        if self.machine.disk.is_dead() {
            return;
        }
        assert!(status.write_error.is_none(), "a full disk latches nothing: {:?}", status.write_error);
        if commits == 0 {
            // The group was refused as a whole, for lack of room.
            self.states.truncate(before.0);
        }
        assert_eq!(commits, (self.states.len() - before.0) as u64, "one lsn for each");
    }

    fn write(&mut self, rng: &mut Rng) {
        let published = self.published().clone();
        if published.tables.len() < 2 {
            if !self.queue.is_empty()
                || self.engine.root().lsn().0 != self.base + self.states.len() as u64 - 1
            {
                return;
            }
            let name = ["k", "p"][published.tables.len()];
            let (def, table) = table(name, name == "k");
            let op = Op::CreateTable { def, if_absent: false };
            return self.submit(rng, op, Effect::Create(name.to_owned(), table));
        }
        if rng.one_in(12) {
            let name = format!("key{}", rng.below(4));
            if rng.one_in(3) {
                return self.submit(rng, Op::RemoveKey { name: name.clone() }, Effect::RemoveKey(name));
            }
            let hash = [rng.below(256) as u8; 32];
            let api_key = ApiKey {
                name: name.clone(),
                hash,
                scope: Scope::Write,
                tables: TableSet::Only(vec!["main.k".into()]),
                created: 7,
            };
            return self.submit(rng, Op::PutKey(api_key), Effect::PutKey(name, hash));
        }
        let name = (*rng.pick(&["k", "p"])).to_owned();
        let model = &published.tables[&name];
        if rng.one_in(15)
            && let Some(change) = change(rng, &name, model)
        {
            let op = Op::AlterTable { table: model.name.clone(), changes: vec![change.clone()] };
            return self.submit(rng, op, Effect::Alter { table: name, version: model.version, change });
        }
        // A column is left out in all rows or in none.
        let given: Vec<ModelColumn> =
            model.columns.iter().filter(|c| c.name == "id" || rng.chance(0.6)).cloned().collect();
        let count = rng.range(1..9);
        let mut rows: Vec<Row> = (0..count)
            .map(|_| given.iter().map(|column| (column.name.clone(), value(rng, column))).collect())
            .collect();
        let batch = to_batch(&given, &rows);
        for row in &mut rows {
            for column in &model.columns {
                row.entry(column.name.clone()).or_insert_with(|| column.default.clone());
            }
        }
        let (table, as_of) =
            (model.name.clone(), Box::new(ModelTable { rows: BTreeMap::new(), ..model.clone() }));
        if !model.rows.is_empty() && rng.one_in(4) {
            let ids: Vec<RowId> = model.rows.keys().copied().collect();
            let mut old: Vec<RowId> = (0..rng.range(1..4)).map(|_| *rng.pick(&ids)).collect();
            let op = Op::Update { table, old: old.clone(), batch };
            old.sort_unstable();
            old.dedup();
            return self.submit(rng, op, Effect::Update { table: name, as_of, old, rows });
        }
        let mode = match rng.below(4) {
            0 if model.keyed => Mode::InsertIfAbsent,
            1 if model.keyed => {
                let expect = |row: &Row| if rng.one_in(9) { None } else { model.find(&row["id"]) };
                Mode::CompareAndSet(rows.iter().map(expect).collect())
            }
            2 => Mode::Append,
            _ => Mode::Upsert,
        };
        let op = Op::Insert { table, batch, mode: mode.clone() };
        self.submit(rng, op, Effect::Insert { table: name, as_of, mode, rows });
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(10) {
            0..=4 => self.write(rng),
            5 | 6 => self.commit(),
            7 | 8 => drop(self.engine.step(Step::Sync)),
            _ => {
                let made = |engine: &Engine| engine.status().seals + engine.status().compactions;
                let before = made(&self.engine);
                self.engine.step(Step::Background);
                (before..made(&self.engine)).for_each(|_| self.queue.push(Effect::Nothing));
            }
        }
        if rng.one_in(60) {
            self.held = Some((self.engine.root(), self.published().clone()));
        }
        if rng.one_in(50) {
            let free = if rng.one_in(2) { Some(rng.below(60 << 10)) } else { None };
            self.machine.disk.set_free_bytes(free);
        }
        self.machine.clock.advance(Duration::from_millis(rng.below(200)));
    }
}

/// Returns a change that the engine takes in this state of the table; `None` for no change this time.
fn change(rng: &mut Rng, began_as: &str, model: &ModelTable) -> Option<AlterAction> {
    let name = format!("x{}", rng.below(6));
    let is_free = model.columns.iter().all(|c| c.name != name);
    let column = rng.pick(&model.columns).clone();
    let of = column.name.clone();
    if column.name == "id" || rng.one_in(3) {
        if rng.one_in(6) {
            let to = format!("{began_as}{}", rng.below(9));
            return (to != model.name).then_some(AlterAction::RenameTable { to });
        }
        let (data_type, default) = match rng.below(4) {
            0 => (DataType::String, Some(Value::String("later".repeat(rng.index(30))))),
            1 => (nested(), None),
            2 => (DataType::Int32, Some(Value::Int32(-5)).filter(|_| rng.one_in(2))),
            _ => (DataType::Int64, None),
        };
        let add = AlterAction::AddColumn { name, data_type, nullable: true, default, if_absent: false };
        return (is_free && model.columns.len() < 8).then_some(add);
    }
    let nulls = model.rows.values().any(|row| row[&of] == Value::Null);
    match rng.below(6) {
        0 | 1 => is_free.then_some(AlterAction::RenameColumn { from: of, to: name }),
        2 => Some(AlterAction::DropColumn { name: of, if_exists: rng.one_in(2) }),
        3 if column.data_type == DataType::Int32 => {
            Some(AlterAction::Widen { name: of, to: DataType::Int64 })
        }
        4 if matches!(column.data_type, DataType::Int64 | DataType::Int32) && !column.refuses_null => {
            let value = Value::Int64(rng.below(3) as i64).cast(&column.data_type).unwrap();
            let value = Some(value).filter(|_| rng.one_in(2));
            let same = value.clone().unwrap_or(Value::Null) == column.default;
            (!same).then_some(AlterAction::SetDefault { name: of, value })
        }
        5 if column.refuses_null => Some(AlterAction::DropNotNull { name: of }),
        5 if !nulls => Some(AlterAction::SetNotNull { name: of }),
        _ => None,
    }
}

fn nested() -> DataType {
    DataType::parse("struct<a: int64, b: list<string>>", &mut ColumnId(0)).unwrap()
}

/// `(id int64, name string default, shape struct<…>)`, for the engine and for the model.
fn table(name: &str, keyed: bool) -> (TableDef, ModelTable) {
    let mut def = TableDef::new(TableId(0), format!("main.{name}"));
    let nobody = Value::String("nobody".into());
    def.add_column("id", &DataType::Int64, true, None).unwrap();
    def.add_column("name", &DataType::String, false, Some(nobody.clone())).unwrap();
    def.add_column("shape", &nested(), true, None).unwrap();
    if keyed {
        def.set_primary_key(&["id".into()]).unwrap();
    }
    let column = |id, name: &str, data_type, default: Value| {
        let (initial, refuses_null) = (default.clone(), name == "name" || keyed && name == "id");
        ModelColumn { id, name: name.into(), data_type, default, initial, refuses_null }
    };
    let columns = vec![
        column(16, "id", DataType::Int64, Value::Null),
        column(17, "name", DataType::String, nobody),
        column(18, "shape", nested(), Value::Null),
    ];
    let (name, rows) = (name.to_owned(), BTreeMap::new());
    (def, ModelTable { name, keyed, version: 1, columns, next_column: 22, rows, next_row: 0 })
}

fn value(rng: &mut Rng, column: &ModelColumn) -> Value {
    if column.name == "id" {
        return Value::Int64(rng.below(KEYS) as i64);
    }
    // A null in a column that refuses nulls refuses all rows.
    if rng.one_in(if column.refuses_null { 100 } else { 5 }) {
        return Value::Null;
    }
    let text = |rng: &mut Rng| {
        let len = rng.index(12);
        Value::String(rng.word(len))
    };
    match &column.data_type {
        DataType::String => text(rng),
        DataType::Struct(_) => {
            let texts = (0..rng.below(4)).map(|_| text(rng)).collect();
            Value::Struct(vec![Value::Int64(rng.below(9) as i64), Value::List(texts)])
        }
        DataType::Int32 => Value::Int32(rng.below(1_000) as i32),
        _ => Value::Int64(rng.below(1_000) as i64),
    }
}

fn to_batch(columns: &[ModelColumn], rows: &[Row]) -> RecordBatch {
    let array = |c: &ModelColumn| -> (String, ArrayRef) {
        let values: Vec<Value> = rows.iter().map(|row| row[&c.name].clone()).collect();
        (c.name.clone(), Value::to_array(&values, &c.data_type).unwrap())
    };
    RecordBatch::try_from_iter(columns.iter().map(array)).unwrap()
}

fn check(root: &DatabaseRoot, state: &State, what: &str) {
    let keys: BTreeMap<String, [u8; 32]> = root.keys().iter().map(|k| (k.name.clone(), k.hash)).collect();
    assert_eq!(keys, state.keys, "{what}: API keys at lsn {}", root.lsn());
    assert_eq!(root.table_count(), state.tables.len(), "{what}");
    for (name, model) in &state.tables {
        let table = root.table(&format!("main.{}", model.name)).unwrap();
        let mut found: BTreeMap<RowId, Row> = BTreeMap::new();
        for piece in table.pieces() {
            let batch = piece.read(table.all_columns()).unwrap();
            for row in 0..batch.num_rows() {
                let Value::Int64(id) = Value::from_array(batch.column(0), &DataType::Int64, row) else {
                    panic!("a row id");
                };
                let value = |column: &types::Column| {
                    let array = batch.column_by_name(&column.name).unwrap();
                    (column.name.clone(), Value::from_array(array, &column.data_type, row))
                };
                found.insert(RowId(id as u64), table.def().schema.columns.iter().map(value).collect());
            }
        }
        assert_eq!(found, model.rows, "{what}: table {name} at lsn {}", root.lsn());
        for id in (0..KEYS as i64).map(Value::Int64).filter(|_| model.keyed) {
            let bytes = types::key::encode_values(&[DataType::Int64], std::slice::from_ref(&id)).unwrap();
            assert_eq!(table.find(&bytes).unwrap(), model.find(&id), "{what}: key {id:?}");
        }
    }
}

/// Runs several lives of one database, each ended by a crash. Returns a hash of all calls of its disk.
fn lives(seed: u64, lives: usize, steps: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let machine = SimEnv::new(seed);
    let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
    let mut run = SchemaRun::new(machine, engine, 0, State::default());
    for _ in 0..lives {
        run.machine.disk.crash_at(rng.range(1..500));
        for _ in 0..steps {
            run.step(&mut rng);
            if run.machine.disk.is_dead() {
                break;
            }
        }
        if !run.machine.disk.is_dead() {
            check(&run.engine.root(), run.published(), "alive");
        }
        if let Some((root, state)) = run.held.take() {
            check(&root, &state, "S1");
        }
        let acknowledged = run.acknowledged.load(Ordering::Relaxed);
        let SchemaRun { machine, engine, states, base, .. } = run;
        drop(engine);
        let machine = machine.crash(&mut rng);
        machine.disk.set_free_bytes(None);
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap();
        assert!(engine.status().write_error.is_none(), "a crash is no damage");
        let lsn = engine.root().lsn().0;
        assert!(lsn >= acknowledged, "L1: {acknowledged} acknowledged, {lsn} recovered");
        let state = states.get((lsn - base) as usize).unwrap_or_else(|| panic!("L2: lsn {lsn}")).clone();
        check(&engine.root(), &state, "L2");
        run = SchemaRun::new(machine, engine, lsn, state);
    }
    run.machine.trace_hash()
}

#[test]
fn every_kind_of_change_survives_crashes_and_full_disks() {
    let _limit = testkit::limit(900);
    testkit::for_each_seed(40, |seed| {
        lives(seed, 3, 600);
    });
}

#[test]
fn the_same_seed_gives_the_same_trace_of_every_kind_of_change() {
    let _limit = testkit::limit(120);
    for seed in 0..3 {
        assert_eq!(lives(seed, 2, 300), lives(seed, 2, 300), "seed {seed}");
    }
}
