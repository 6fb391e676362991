//! Helpers of the engine's tests: small batches, a table as a map, and steps to the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use types::{DataType, Lsn, Principal, RowId, TableDef, TableId, Value};

use crate::{Engine, Op, Step, Transaction};

/// A keyed table `(id int64 primary key, v int64, s string)`.
pub fn keyed(name: &str) -> TableDef {
    let mut def = plain(name);
    def.set_primary_key(&["id".into()]).unwrap();
    def
}

/// A table with the same columns and no key.
pub fn plain(name: &str) -> TableDef {
    let mut def = TableDef::new(TableId(0), format!("main.{name}"));
    def.add_column("id", &DataType::Int64, true, None).unwrap();
    def.add_column("v", &DataType::Int64, true, None).unwrap();
    def.add_column("s", &DataType::String, true, None).unwrap();
    def
}

/// Rows `(id, v)` with `s` made of both.
pub fn batch(rows: &[(i64, i64)]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(text)));
    RecordBatch::try_from_iter([("id", ids), ("v", values), ("s", texts)]).unwrap()
}

fn text(row: &(i64, i64)) -> String {
    format!("{}/{}", row.0, row.1)
}

/// The live rows `(id, v)` by row id. Checks that `s` fits them, and that row ids ascend, except in a view of the past.
pub fn contents(snapshot: &table::Snapshot) -> BTreeMap<RowId, (i64, i64)> {
    let mut rows = BTreeMap::new();
    let mut last = RowId(0);
    for piece in snapshot.pieces() {
        let batch = piece.read(snapshot.all_columns()).unwrap();
        for row in 0..batch.num_rows() {
            let int = |column: &str| match Value::from_array(
                batch.column_by_name(column).unwrap(),
                &DataType::Int64,
                row,
            ) {
                Value::Int64(v) => v,
                other => panic!("{column} is {other:?}"),
            };
            let id = RowId(int("_row_id") as u64);
            assert!(id > last || snapshot.as_of().is_some(), "row ids ascend");
            last = id;
            let pair = (int("id"), int("v"));
            let s = Value::from_array(batch.column_by_name("s").unwrap(), &DataType::String, row);
            assert_eq!(s, Value::String(text(&pair)));
            rows.insert(id, pair);
        }
    }
    assert_eq!(rows.len() as u64, snapshot.rows(), "the count of rows is the number of rows");
    rows
}

/// The live rows as a map from `id` to `v`.
pub fn by_id(snapshot: &table::Snapshot) -> BTreeMap<i64, i64> {
    contents(snapshot).into_values().collect()
}

/// Steps the engine until there is nothing left to do.
pub fn settle(engine: &Engine) {
    while engine.step(Step::Commit) | engine.step(Step::Sync) | engine.step(Step::Background) {}
}

/// Commits one operation and does everything that follows from it.
pub fn commit(engine: &Engine, op: Op) -> Lsn {
    engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| {
        result.unwrap();
    });
    settle(engine);
    engine.root().lsn()
}
