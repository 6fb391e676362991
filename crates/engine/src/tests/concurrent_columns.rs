//! Many writers that add new columns to one table at once.

use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use sim::SimEnv;
use types::{AlterAction, DataType, Kind, Principal, Value};

use super::support::plain;
use crate::{Engine, Mode, NewColumn, Op, Options, Step, Transaction};

type Answers = Arc<Mutex<Vec<types::Result<crate::Committed>>>>;

fn new_column(name: &str, data_type: DataType) -> NewColumn {
    NewColumn { name: name.into(), data_type, nullable: true, default: None }
}

/// A row with an id and a value for a column that the table may not have yet.
fn bring(id: i64, name: &str, data_type: DataType) -> Transaction {
    let value: ArrayRef = match data_type {
        DataType::Int64 => Arc::new(Int64Array::from(vec![id])),
        _ => Arc::new(StringArray::from(vec![id.to_string()])),
    };
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![id]));
    let batch = RecordBatch::try_from_iter([("id", ids), (name, value)]).unwrap();
    let columns = vec![new_column(name, data_type)];
    Transaction::new(vec![
        Op::AddColumns { table: "t".into(), columns },
        Op::Insert { table: "t".into(), batch, mode: Mode::Append },
    ])
}

fn submit(engine: &Engine, answers: &Answers, transaction: Transaction) {
    let answers = answers.clone();
    engine.submit(&Principal::local(), transaction, move |result| answers.lock().unwrap().push(result));
}

fn commit(engine: &Engine) {
    engine.step(Step::Commit);
    engine.step(Step::Sync);
}

fn values(engine: &Engine, name: &str) -> Vec<Value> {
    let root = engine.root();
    let table = root.table("main.t").unwrap();
    let column = table.def().schema.column_named(name).unwrap();
    let mut values = Vec::new();
    for piece in table.pieces() {
        let batch = piece.read(table.all_columns()).unwrap();
        let array = batch.column_by_name(name).unwrap();
        values.extend((0..batch.num_rows()).map(|row| Value::from_array(array, &column.data_type, row)));
    }
    values
}

/// Half of twelve clients that added new columns to one table at once were refused, since each was prepared for another
/// definition.
#[test]
fn writers_that_bring_new_columns_at_once_are_all_served() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), Options::default()).unwrap();
    let answers = Answers::default();
    submit(&engine, &answers, Transaction::new(vec![Op::CreateTable { def: plain("t"), if_absent: false }]));
    commit(&engine);
    // All are prepared against the same root: some columns are their own, some are shared.
    for id in 0..12 {
        submit(&engine, &answers, bring(id, &format!("own_{id}"), DataType::Int64));
        submit(&engine, &answers, bring(100 + id, &format!("shared_{}", id % 3), DataType::String));
    }
    commit(&engine);
    let answers = answers.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert_eq!(answers.len(), 25);
    answers.iter().for_each(|result| assert!(result.is_ok(), "{result:?}"));
    for id in 0..12 {
        let own = values(&engine, &format!("own_{id}"));
        assert_eq!(own.iter().filter(|v| **v == Value::Int64(id)).count(), 1);
        assert_eq!(own.iter().filter(|v| **v == Value::Null).count(), 23);
    }
    for shared in 0..3 {
        let found = values(&engine, &format!("shared_{shared}"));
        let expected: Vec<Value> =
            (0..12).filter(|id| id % 3 == shared).map(|id| Value::String((100 + id).to_string())).collect();
        assert_eq!(found.into_iter().filter(|v| *v != Value::Null).collect::<Vec<_>>(), expected);
    }
    assert_eq!(values(&engine, "id").len(), 24);
}

#[test]
fn where_more_than_columns_behind_has_changed_rows_are_read_again() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), Options::default()).unwrap();
    let answers = Answers::default();
    submit(&engine, &answers, Transaction::new(vec![Op::CreateTable { def: plain("t"), if_absent: false }]));
    commit(&engine);
    let alter = |changes| Transaction::new(vec![Op::AlterTable { table: "t".into(), changes }]);
    let rename = |from: &str, to: &str| AlterAction::RenameColumn { from: from.into(), to: to.into() };
    let cases = [
        // `v` means another column by then.
        (alter(vec![rename("v", "w")]), bring(1, "x", DataType::Int64)),
        // The name is the same, the type is another.
        (bring(2, "y", DataType::String), bring(3, "y", DataType::Int64)),
        // The names differ only by case.
        (bring(4, "z", DataType::Int64), bring(5, "Z", DataType::Int64)),
    ];
    for (first, second) in cases {
        answers.lock().unwrap().clear();
        submit(&engine, &answers, first);
        submit(&engine, &answers, second);
        commit(&engine);
        let mut answers = answers.lock().unwrap();
        let error = answers.iter().find_map(|result| result.as_ref().err()).expect("the second is refused");
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        assert!(error.context().iter().any(|(key, _)| *key == "schema"), "{error}");
        assert_eq!(answers.drain(..).filter(Result::is_ok).count(), 1);
    }
}
