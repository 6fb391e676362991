//! Open transactions on a simulated machine, interleaved at random with each other, with seals and compactions, and with
//! crashes in the middle of commits, compared with a model of snapshot isolation.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sim::{Rng, SimEnv};
use types::{DataType, Kind, Principal, Result, Value, key};

use super::support::{batch, by_id, keyed};
use crate::{Engine, Mode, Op, OpenTransaction, Options, Step, Transaction, TransactionOutcome};

const DIR: &str = "db";
const TABLES: [&str; 2] = ["a", "b"];
const KEYS: u64 = 12;

fn options() -> Options {
    Options {
        log: commitlog::Options { file_bytes: 24 << 10, spare_files: 1, ..Default::default() },
        seal_rows: 8,
        ..Options::default()
    }
}

/// The value of each table and key, and the number of the write that wrote it.
type State = BTreeMap<(usize, i64), (i64, u64)>;

/// An open transaction, with the state that the model has for it.
struct ModelTransaction {
    transaction: OpenTransaction,
    began: State,
    now: State,
    savepoints: Vec<State>,
}

struct World {
    engine: Engine,
    /// The state after the last commit that was checked.
    state: State,
    writings: u64,
    open: Vec<ModelTransaction>,
    committed: usize,
    conflicts: usize,
}

fn settle(engine: &Engine) {
    while engine.step(Step::Commit) || engine.step(Step::Sync) {}
}

fn values(state: &State, table: usize) -> BTreeMap<i64, i64> {
    state.iter().filter(|((t, _), _)| *t == table).map(|((_, id), (v, _))| (*id, *v)).collect()
}

fn check_root(root: &crate::DatabaseRoot, state: &State, what: &str) {
    for (at, table) in TABLES.iter().enumerate() {
        assert_eq!(
            by_id(root.table(&format!("main.{table}")).unwrap()),
            values(state, at),
            "{what}: {table}"
        );
    }
}

/// Compares the transaction's view with the model, by a scan and by key lookups.
fn check_inside(open: &ModelTransaction) {
    let view = open.transaction.view().unwrap();
    for (at, table) in TABLES.iter().enumerate() {
        let snapshot = view.table(table).unwrap();
        let expected = values(&open.now, at);
        assert_eq!(by_id(&snapshot), expected);
        for id in 0..KEYS as i64 {
            let bytes = key::encode_values(&[DataType::Int64], &[Value::Int64(id)]).unwrap();
            let found = snapshot.get_row(&bytes).unwrap();
            let v = found.map(|row| row.value(snapshot.def().schema.columns[1].id).unwrap());
            assert_eq!(v, expected.get(&id).map(|v| Value::Int64(*v)));
        }
    }
}

impl World {
    fn new(engine: Engine) -> World {
        for table in TABLES {
            let create = Op::CreateTable { def: keyed(table), if_absent: true };
            engine.submit(&Principal::local(), Transaction::new(vec![create]), |result| {
                result.unwrap();
            });
            settle(&engine);
        }
        World { engine, state: State::new(), writings: 0, open: Vec::new(), committed: 0, conflicts: 0 }
    }

    fn begin(&mut self) {
        let transaction = self.engine.begin(&Principal::local()).unwrap();
        let (began, now) = (self.state.clone(), self.state.clone());
        self.open.push(ModelTransaction { transaction, began, now, savepoints: Vec::new() });
    }

    /// Does something inside one of the open transactions.
    fn act(&mut self, rng: &mut Rng) {
        let at = rng.below(self.open.len() as u64) as usize;
        let (table, id) = (rng.below(2) as usize, rng.below(KEYS) as i64);
        let open = &mut self.open[at];
        let name = TABLES[table].to_owned();
        self.writings += 1;
        let v = self.writings as i64;
        match rng.below(10) {
            0..=4 => {
                // Several rows are written at once; of two with one key the last counts.
                let rows: Vec<(i64, i64)> =
                    (0..rng.range(1..4)).map(|i| ((id + i as i64 * 3) % KEYS as i64, v + i as i64)).collect();
                let op = Op::Insert { table: name, batch: batch(&rows), mode: Mode::Upsert };
                open.transaction.apply(vec![op]).unwrap();
                for (id, v) in rows {
                    self.writings += 1;
                    open.now.insert((table, id), (v, self.writings));
                }
            }
            5 => {
                let op = Op::Insert { table: name, batch: batch(&[(id, v)]), mode: Mode::Append };
                match open.transaction.apply(vec![op]) {
                    Ok(_) => assert!(open.now.insert((table, id), (v, self.writings)).is_none()),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Exists);
                        assert!(open.now.contains_key(&(table, id)));
                    }
                }
            }
            6 | 7 => {
                let op = Op::DeleteKeys { table: name, keys: vec![vec![Value::Int64(id)]] };
                let written = open.transaction.apply(vec![op]).unwrap()[0];
                assert_eq!(written.deleted, u64::from(open.now.remove(&(table, id)).is_some()));
            }
            8 => {
                open.transaction.savepoint(&open.savepoints.len().to_string()).unwrap();
                open.savepoints.push(open.now.clone());
            }
            _ => {
                if !open.savepoints.is_empty() {
                    let to = rng.below(open.savepoints.len() as u64) as usize;
                    open.transaction.rollback_to(&to.to_string()).unwrap();
                    open.now = open.savepoints[to].clone();
                    open.savepoints.truncate(to + 1);
                }
            }
        }
        check_inside(open);
    }

    /// Commits one transaction. It must be refused exactly if a commit since its beginning conflicts.
    fn commit(&mut self, at: usize) {
        let open = self.open.swap_remove(at);
        let answer = submit(&open.transaction);
        settle(&self.engine);
        let answer = answer.lock().unwrap().take().expect("it was answered");
        let lost = lost(&open, &self.state);
        match (answer, lost) {
            (Ok(_), None) => {
                self.state = after(&open, &self.state);
                self.committed += 1;
            }
            (Err(error), Some((table, id))) => {
                assert_eq!(error.kind(), Kind::Conflict, "{error}");
                self.conflicts += 1;
                let text = error.to_string();
                let named = (0..KEYS as i64).any(|id| text.contains(&format!("id = {id} ")));
                assert!(named && text.contains("table "), "{text}: {} and {id} for one", TABLES[table]);
            }
            (answer, lost) => panic!("{answer:?} where the model has {lost:?}"),
        }
        check_root(&self.engine.root(), &self.state, "after a commit");
    }
}

fn submit(transaction: &OpenTransaction) -> Arc<Mutex<Option<Result<TransactionOutcome>>>> {
    let answer = Arc::new(Mutex::new(None));
    let slot = answer.clone();
    transaction.submit_commit(None, move |result| *slot.lock().unwrap() = Some(result));
    answer
}

/// Returns the first key that both the transaction and another one changed since its beginning.
fn lost(open: &ModelTransaction, state: &State) -> Option<(usize, i64)> {
    let keys = open.began.keys().chain(open.now.keys());
    keys.copied()
        .find(|key| open.began.get(key) != open.now.get(key) && open.began.get(key) != state.get(key))
}

fn after(open: &ModelTransaction, state: &State) -> State {
    let mut after = state.clone();
    for key in open.began.keys().chain(open.now.keys()) {
        if open.began.get(key) != open.now.get(key) {
            match open.now.get(key) {
                Some(value) => drop(after.insert(*key, *value)),
                None => drop(after.remove(key)),
            }
        }
    }
    after
}

#[test]
fn interleaved_transactions_are_snapshot_isolated() {
    let _limit = testkit::limit(600);
    let (mut committed, mut conflicts, mut seals) = (0, 0, 0);
    testkit::for_each_seed(40, |seed| {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let mut world = World::new(Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap());
        for _ in 0..250 {
            match rng.below(10) {
                0 | 1 if world.open.len() < 5 => world.begin(),
                2 if !world.open.is_empty() => {
                    let at = rng.below(world.open.len() as u64) as usize;
                    if rng.one_in(5) { drop(world.open.swap_remove(at)) } else { world.commit(at) }
                }
                3 => {
                    world.engine.step(Step::Background);
                    settle(&world.engine);
                    machine.clock.advance(Duration::from_millis(100));
                }
                _ if !world.open.is_empty() => world.act(&mut rng),
                _ => {}
            }
        }
        // All that are still open commit at once, in one commit group: the later ones conflict with the earlier.
        let answers: Vec<_> = world.open.iter().map(|open| submit(&open.transaction)).collect();
        settle(&world.engine);
        for (open, answer) in std::mem::take(&mut world.open).iter().zip(answers) {
            let answer = answer.lock().unwrap().take().unwrap();
            let is_lost = lost(open, &world.state).is_some();
            assert_eq!(answer.is_err(), is_lost, "{answer:?}");
            if !is_lost {
                world.state = after(open, &world.state);
            }
        }
        check_root(&world.engine.root(), &world.state, "at the end");
        assert_eq!(world.engine.status().transactions_bytes, 0);
        committed += world.committed;
        conflicts += world.conflicts;
        seals += world.engine.status().seals;
    });
    assert!(committed > 100 && conflicts > 20 && seals > 0, "{committed}, {conflicts}, {seals}");
}

#[test]
fn a_crash_in_the_middle_of_a_commit_leaves_all_of_it_or_nothing() {
    let _limit = testkit::limit(300);
    let workload = |crash_at: Option<u64>| {
        let machine = SimEnv::new(5);
        let mut world = World::new(Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap());
        let before = machine.disk.calls();
        if let Some(call) = crash_at {
            machine.disk.crash_at(call);
        }
        let mut states = vec![State::new()];
        let mut acknowledged = 0;
        for round in 0..12 {
            let Ok(transaction) = world.engine.begin(&Principal::local()) else { break };
            let mut now = world.state.clone();
            for id in 0..8 {
                for (at, table) in TABLES.iter().enumerate() {
                    let v = round * 100 + id;
                    let op =
                        Op::Insert { table: (*table).into(), batch: batch(&[(id, v)]), mode: Mode::Upsert };
                    transaction.apply(vec![op]).unwrap();
                    now.insert((at, id), (v, 0));
                }
            }
            states.push(now.clone());
            let answer = submit(&transaction);
            settle(&world.engine);
            if !matches!(*answer.lock().unwrap(), Some(Ok(_))) {
                break;
            }
            acknowledged = states.len() - 1;
            world.state = now;
            world.engine.step(Step::Background);
            settle(&world.engine);
        }
        let calls = machine.disk.calls() - before;
        (machine, world, states, acknowledged, calls)
    };
    let (_, world, states, acknowledged, calls) = workload(None);
    assert_eq!(acknowledged + 1, states.len());
    drop(world);
    for call in 1..=calls {
        let (machine, world, states, acknowledged, _) = workload(Some(call));
        drop(world);
        let mut rng = Rng::new(call);
        let engine = Engine::open_stepped(machine.crash(&mut rng).env(), Path::new(DIR), options()).unwrap();
        let root = engine.root();
        let has = |state: &State| {
            TABLES
                .iter()
                .enumerate()
                .all(|(at, table)| by_id(root.table(&format!("main.{table}")).unwrap()) == values(state, at))
        };
        let stands_at = states.iter().rposition(has);
        assert!(
            stands_at.is_some_and(|at| at >= acknowledged),
            "crash at call {call}: at {stands_at:?}, {acknowledged} acknowledged"
        );
    }
}

/// A simulator has no thread that watches the transaction: it ends at the next use.
#[test]
fn time_is_up_on_the_engines_clock() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let mut world = World::new(Engine::open_stepped(machine.env(), Path::new(DIR), options()).unwrap());
    world.begin();
    let transaction = world.open.pop().unwrap().transaction;
    machine.clock.advance(Duration::from_millis(59_900));
    transaction
        .apply(vec![Op::Insert { table: "a".into(), batch: batch(&[(1, 1)]), mode: Mode::Append }])
        .unwrap();
    assert!(world.engine.status().transactions_bytes > 0);
    machine.clock.advance(Duration::from_millis(200));
    let error = transaction.commit_error();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.message().contains("more than 60 s"), "{error}");
    assert_eq!(world.engine.status().transactions_bytes, 0);
}

impl OpenTransaction {
    fn commit_error(&self) -> types::Error {
        let answer = submit(self);
        let answer = answer.lock().unwrap().take();
        answer.expect("it is refused at once").unwrap_err()
    }
}
