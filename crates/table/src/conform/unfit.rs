//! Finds the rows that a table does not accept, before they are written, so that one bad row need not cause the others to be
//! refused.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::DataType as Arrow;
use types::{Column, DataType, RejectedRow, Result, TableDef};

use super::{Misfit, NO_VALUE, each_misfit, given, to_type};

/// Returns the rows because of which [`conform`](super::conform) would refuse the batch, ascending, at most the first `max`. It
/// makes the same checks, so `conform` accepts the batch without all of these rows.
///
/// Fails with [`types::Kind::Schema`] if the fault is in the batch's columns rather than in its rows.
pub fn unfit(batch: &RecordBatch, def: &TableDef, max: usize) -> Result<Vec<RejectedRow>> {
    let mut found = BTreeMap::new();
    for (column, given) in def.schema.columns.iter().zip(given(batch, def)?) {
        let mut note = |row: usize, path: &str, what: String| {
            let name = format!("{}{path}", column.name);
            found.entry(row).or_insert_with(|| RejectedRow { row, column: Some(name), message: what });
            if found.len() > max {
                found.pop_last();
            }
        };
        match given {
            Some(at) => {
                let array = batch.column(at);
                of_column(array, column, max, &mut note).map_err(|misfit| misfit.error(&column.name, def))?;
            }
            None if column.default.is_some() || column.takes_null() => {}
            None => (0..batch.num_rows()).take(max).for_each(|row| note(row, "", NO_VALUE.into())),
        }
    }
    Ok(found.into_values().collect())
}

/// Calls `note` for the rows whose values do not fit, at least for the first `max` of them. Fails if the column's type is at
/// fault.
fn of_column(
    array: &ArrayRef,
    column: &Column,
    max: usize,
    note: &mut impl FnMut(usize, &str, String),
) -> std::result::Result<(), Misfit> {
    if !column.takes_null()
        && let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)
    {
        let missing = (0..array.len()).filter(|row| nulls.is_null(*row));
        missing.take(max).for_each(|row| note(row, "", NO_VALUE.into()));
    }
    let wanted = column.data_type.to_arrow();
    if *array.data_type() == wanted {
        each_misfit(array, &column.data_type, &mut |misfit| {
            if let Some(row) = misfit.row {
                note(row, &misfit.path, misfit.what);
            }
            true
        });
        return Ok(());
    }
    converted(array, 0, &column.data_type, &wanted, &mut { max }, note)
}

/// Converts values of another type. Where the conversion fails, halves the rows until it is known which ones do not fit.
fn converted(
    array: &ArrayRef,
    before: usize,
    data_type: &DataType,
    wanted: &Arrow,
    left: &mut usize,
    note: &mut impl FnMut(usize, &str, String),
) -> std::result::Result<(), Misfit> {
    if *left == 0 {
        return Ok(());
    }
    let misfit = match to_type(array, data_type, wanted) {
        Err(misfit) if array.is_empty() => return Err(misfit),
        Err(misfit) => misfit,
        Ok(_) => return Ok(()),
    };
    if misfit.row.is_none() {
        return Err(misfit);
    }
    if array.len() == 1 {
        note(before, &misfit.path, misfit.what);
        *left -= 1;
        return Ok(());
    }
    let half = array.len() / 2;
    converted(&array.slice(0, half), before, data_type, wanted, left, note)?;
    converted(&array.slice(half, array.len() - half), before + half, data_type, wanted, left, note)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::compute::filter_record_batch;
    use types::{ColumnId, Kind, TIMES, TableId};

    use super::super::conform;
    use super::*;

    fn def() -> TableDef {
        let mut def = TableDef::new(TableId(1), "main.t");
        for (name, data_type, nullable) in [
            ("id", "int64", false),
            ("at", "timestamp", true),
            ("n", "int32", true),
            ("days", "list<date>", true),
            ("s", "struct<t: timestamp, d: decimal(4,1)>", true),
        ] {
            let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
            def.add_column(name, &data_type, nullable, None).unwrap();
        }
        def
    }

    /// For random bad rows: `conform` accepts the batch without the rows that `unfit` finds, and refuses each of these alone.
    #[test]
    fn the_rows_that_are_found_are_those_that_are_refused() {
        let def = def();
        let rows = 64;
        let late = *TIMES.end() + 1;
        let mut seed = 11_u64;
        for round in 0..200 {
            let mut next = |n: u64| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) % n
            };
            let ids: Vec<Option<i64>> = (0..rows).map(|id| (next(9) > 0).then_some(id)).collect();
            let ats: Vec<Option<i64>> =
                (0..rows).map(|at| [Some(at), None, Some(late), Some(-at)][next(4) as usize]).collect();
            let ns: Vec<i64> = (0..rows).map(|n| if next(7) == 0 { 1 << 40 } else { n }).collect();
            let days: Vec<types::Value> = (0..rows)
                .map(|_| match next(4) {
                    0 => types::Value::Null,
                    1 => types::Value::List(vec![types::Value::Date(1), types::Value::Null]),
                    2 => types::Value::List(vec![types::Value::Date(1), types::Value::Date(i32::MAX)]),
                    _ => types::Value::List(vec![]),
                })
                .collect();
            let days = types::Value::to_array(&days, &def.schema.columns[3].data_type).unwrap();
            let at = TimestampMicrosecondArray::from(ats).with_timezone("UTC");
            let batch = RecordBatch::try_from_iter_with_nullable([
                ("ID", Arc::new(Int64Array::from(ids)) as ArrayRef, true),
                ("at", Arc::new(at), true),
                ("n", Arc::new(Int64Array::from(ns)), true),
                ("days", days, true),
            ])
            .unwrap();
            let found = unfit(&batch, &def, usize::MAX).unwrap();
            for max in [0, 1, 5] {
                assert_eq!(unfit(&batch, &def, max).unwrap(), found[..found.len().min(max)]);
            }
            assert!(found.is_sorted_by(|a, b| a.row < b.row));
            let bad: Vec<usize> = found.iter().map(|unfit| unfit.row).collect();
            for row in 0..batch.num_rows() {
                let alone = conform(&batch.slice(row, 1), &def);
                assert_eq!(alone.is_err(), bad.contains(&row), "round {round}, row {row}: {alone:?}");
                if let (Err(error), Some(unfit)) = (alone, found.iter().find(|unfit| unfit.row == row)) {
                    let said = format!("column `{}`: {}", unfit.column.as_deref().unwrap(), unfit.message);
                    assert!(error.message().ends_with(&said), "{error} / {said}");
                }
            }
            let keep = (0..batch.num_rows()).map(|row| Some(!bad.contains(&row))).collect();
            let good = filter_record_batch(&batch, &keep).unwrap();
            assert_eq!(conform(&good, &def).unwrap().num_rows(), batch.num_rows() - bad.len());
        }
    }

    #[test]
    fn a_column_of_another_type_is_no_matter_of_its_rows() {
        let def = def();
        let texts = |name: &str| {
            RecordBatch::try_from_iter([(name, Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef)])
                .unwrap()
        };
        assert_eq!(unfit(&texts("n"), &def, 9).unwrap_err().kind(), Kind::Schema);
        assert_eq!(unfit(&texts("unknown"), &def, 9).unwrap_err().kind(), Kind::Schema);
        let all = unfit(&texts("at"), &def, 9).unwrap();
        assert_eq!(all.len(), 2, "no `id` at all");
        assert_eq!((all[1].row, all[1].column.as_deref()), (1, Some("id")));
    }
}
