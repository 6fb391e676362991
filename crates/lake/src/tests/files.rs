//! Invariants of a lake's files under every layout.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use iceberg::schema::{Columns, Leaf};
use iceberg::single_value::SingleValue;
use iceberg::spec::{self, SpecField};
use iceberg::transform;
use types::{ROW_ID, TableDef, Transform};

use crate::Lake;
use crate::live_rows::LiveRows;
use crate::order::RowOrder;
use crate::row_ids::ids_of;
use crate::state::LiveFile;

/// Checks that every row is in its file's partition, in its file's order and within its file's bounds; that no row is in two
/// files; and that counts of deleted rows are right.
pub fn check(lake: &Lake, def: &Arc<TableDef>) {
    let columns = Arc::new(Columns::of(def).unwrap());
    let mut deleted: HashSet<(Arc<str>, u64)> = HashSet::new();
    for deletes in &lake.deletes {
        let of = lake.positions(deletes).unwrap();
        assert_eq!(deletes.targets.len(), of.len());
        for (of, (path, count)) in of.into_iter().zip(&deletes.targets) {
            assert_eq!((&of.path, of.positions.len() as u64), (path, *count));
            let data = lake.data.iter().find(|live| live.path == of.path);
            if let Some(live) = data {
                let (ours, theirs) = (&deletes.entry.file, &live.entry.file);
                let same = ours.spec == theirs.spec && ours.partition == theirs.partition;
                assert!(same, "readers look for deletes of a file in its own partition");
                assert!(deletes.entry.sequence >= live.entry.sequence);
            }
            deleted.extend(of.positions.iter().map(|position| (of.path.clone(), *position)));
        }
    }
    let mut live_rows: HashSet<i64> = HashSet::new();
    for live in &lake.data {
        let rows = rows_of(lake, live, &columns);
        assert_eq!(rows.num_rows() as u64, live.entry.file.rows);
        let mut gone = 0;
        for (position, id) in ids_of(rows.column(0)).unwrap().iter().enumerate() {
            if deleted.contains(&(live.path.clone(), position as u64)) {
                gone += 1;
            } else {
                assert!(live_rows.insert(*id), "row {id} is in two files");
            }
        }
        assert_eq!(gone, live.deleted, "{}", live.path);
        check_partition(lake, live, &rows, &columns);
        check_order(lake, live, &rows, &columns);
        check_bounds(live, &rows, &columns);
    }
    assert!(lake.data.is_sorted_by_key(|live| live.first));
}

/// Returns all rows of a file, including deleted ones, with the present columns.
pub fn rows_of(lake: &Lake, live: &LiveFile, columns: &Arc<Columns>) -> RecordBatch {
    let bytes = lake.data_file(live).unwrap();
    let mut source = LiveRows::open(bytes, columns.clone(), Vec::new(), 1 << 20).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = source.next().unwrap() {
        batches.push(batch);
    }
    concat_batches(&columns.arrow, &batches).unwrap()
}

fn transform_of(field: &SpecField) -> Transform {
    let number = |text: &str| text.split(['[', ']']).nth(1).unwrap().parse().unwrap();
    match field.transform.as_str() {
        "identity" => Transform::Identity,
        "year" => Transform::Year,
        "month" => Transform::Month,
        "day" => Transform::Day,
        "hour" => Transform::Hour,
        bucket if bucket.starts_with("bucket") => Transform::Bucket(number(bucket)),
        truncate => Transform::Truncate(number(truncate)),
    }
}

fn check_partition(lake: &Lake, live: &LiveFile, rows: &RecordBatch, columns: &Columns) {
    let file = &live.entry.file;
    let spec = spec::find(&lake.specs, file.spec).unwrap();
    for (field, said) in spec.fields.iter().zip(&file.partition.values) {
        let Some(at) = place(columns, field.source) else { continue };
        let values = transform::apply(transform_of(field), rows.column(at)).unwrap();
        for row in 0..rows.num_rows() {
            let value = transform::value_at(&values, row).unwrap();
            assert_eq!(&value, said, "{} of row {row} in {}", field.name, live.path);
        }
    }
    let manifests = lake.manifests.iter().filter(|m| m.entries.iter().any(|e| e.file.path == file.path));
    for manifest in manifests {
        assert_eq!((manifest.file.spec, manifest.file.partitions.len()), (spec.id, spec.fields.len()));
        for ((field, said), value) in
            spec.fields.iter().zip(&manifest.file.partitions).zip(&file.partition.values)
        {
            match value {
                None => assert!(said.contains_null),
                Some(SingleValue::Float(value)) if value.is_nan() => assert!(said.contains_nan),
                Some(SingleValue::Bytes(_)) | Some(SingleValue::Bool(_)) => {
                    let bytes = field.result.unwrap().to_bytes(value.as_ref().unwrap());
                    assert!(said.lower.as_ref().is_some_and(|lower| *lower <= bytes));
                    assert!(said.upper.as_ref().is_some_and(|upper| *upper >= bytes));
                }
                Some(_) => assert!(said.lower.is_some() && said.upper.is_some()),
            }
        }
    }
}

fn place(columns: &Columns, source: i32) -> Option<usize> {
    let ids = types::schema::column_ids(&columns.arrow);
    ids.iter().position(|id| id.is_some_and(|id| i64::from(id.0) == i64::from(source)))
}

fn check_order(lake: &Lake, live: &LiveFile, rows: &RecordBatch, columns: &Columns) {
    let is_current = live.entry.file.sort_order == Some(lake.metadata.default_sort_order_id);
    let orders = &lake.metadata.sort_orders;
    if let Some(id) = live.entry.file.sort_order {
        assert!(orders.iter().any(|order| order["order-id"] == id), "{id} of {orders:?}");
    }
    if is_current && lake.metadata.has_layout(&columns.layout) {
        assert!(RowOrder::of(columns).unwrap().keys(rows).unwrap().ascend(), "{}", live.path);
    }
}

fn check_bounds(live: &LiveFile, rows: &RecordBatch, columns: &Columns) {
    let metrics = &live.entry.file.metrics;
    let of = |bounds: &[(i32, Vec<u8>)], id: i32| {
        bounds.iter().find(|(field, _)| *field == id).map(|(_, bytes)| bytes.clone())
    };
    let ids = ids_of(rows.column(0)).unwrap();
    let bound = |id: i64| Some(id.to_le_bytes().to_vec());
    assert_eq!(of(&metrics.lower, ROW_ID.0 as i32), bound(*ids.iter().min().unwrap()));
    assert_eq!(of(&metrics.upper, ROW_ID.0 as i32), bound(*ids.iter().max().unwrap()));
    let columns: Vec<&Leaf> = columns.leaves.iter().filter(|leaf| leaf.path.len() == 1).collect();
    for leaf in columns {
        let (lower, upper) = (of(&metrics.lower, leaf.id), of(&metrics.upper, leaf.id));
        let (Some(lower), Some(upper)) = (lower, upper) else { continue };
        let column = rows.column(leaf.path[0]);
        for row in 0..rows.num_rows() {
            if let Some(SingleValue::Bytes(value)) = transform::value_at(column, row).unwrap() {
                assert!(lower <= value && value <= upper, "{value:?} in {}", live.path);
            }
        }
    }
}
