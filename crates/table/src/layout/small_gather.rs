//! Gathers a few scattered rows, for the types that most columns have. Arrow's general `interleave` takes ten times as many
//! instructions for ten rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType as Arrow, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use types::ColumnId;

use super::Layout;

/// Number of rows up to which this module gathers them.
const ROWS_MAX: usize = 64;

/// Gathers the values of a column at these picks, each the index of a batch and of a row there. Returns `None` if
/// [`arrow::compute::interleave`] has to do it: for many rows, other types, nulls, and if a batch lacks the column or has it in
/// another type.
pub(super) fn pick<'a>(
    column: ColumnId,
    wanted: &Arrow,
    batches: impl Iterator<Item = (&'a Layout, &'a RecordBatch)>,
    picks: &[(usize, usize)],
) -> Option<ArrayRef> {
    if picks.len() > ROWS_MAX {
        return None;
    }
    let mut parts = Vec::with_capacity(picks.len());
    for (layout, batch) in batches {
        let part = batch.column(layout.position(column)?);
        if part.data_type() != wanted || part.null_count() > 0 {
            return None;
        }
        parts.push(part);
    }
    match wanted {
        Arrow::Int64 => Some(primitives::<Int64Type>(wanted, &parts, picks)),
        Arrow::Int32 => Some(primitives::<Int32Type>(wanted, &parts, picks)),
        Arrow::Float64 => Some(primitives::<Float64Type>(wanted, &parts, picks)),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            Some(primitives::<TimestampMicrosecondType>(wanted, &parts, picks))
        }
        Arrow::Utf8 => texts(&parts, picks),
        _ => None,
    }
}

fn primitives<T: ArrowPrimitiveType>(
    wanted: &Arrow,
    parts: &[&ArrayRef],
    picks: &[(usize, usize)],
) -> ArrayRef {
    let value = |(part, row): &(usize, usize)| parts[*part].as_primitive::<T>().value(*row);
    let values: Vec<T::Native> = picks.iter().map(value).collect();
    Arc::new(PrimitiveArray::<T>::new(values.into(), None).with_data_type(wanted.clone()))
}

/// Gathers texts. Returns `None` if they are too long together; Arrow then reports that.
fn texts(parts: &[&ArrayRef], picks: &[(usize, usize)]) -> Option<ArrayRef> {
    // Looks up all texts before it copies any: these loads do not wait for each other.
    let text = |(part, row): &(usize, usize)| parts[*part].as_string::<i32>().value(*row);
    let texts: Vec<&str> = picks.iter().map(text).collect();
    // Arrow's builders allocate aligned memory, which would cost more than everything else here.
    let mut bytes = Vec::with_capacity(texts.iter().map(|text| text.len()).sum());
    let mut offsets = Vec::with_capacity(texts.len() + 1);
    offsets.push(0);
    for text in texts {
        bytes.extend_from_slice(text.as_bytes());
        offsets.push(i32::try_from(bytes.len()).ok()?);
    }
    let offsets = OffsetBuffer::new(offsets.into());
    StringArray::try_new(offsets, bytes.into(), None).ok().map(|texts| Arc::new(texts) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int32Array, Int64Array, TimestampMicrosecondArray};
    use arrow::compute::interleave;
    use types::{DataType, TableDef, TableId};

    use super::*;

    #[test]
    fn a_few_rows_are_those_that_arrow_gathers() {
        let kinds =
            [DataType::Int64, DataType::Int32, DataType::Float64, DataType::Timestamp, DataType::String];
        let mut def = TableDef::new(TableId(1), "main.t");
        let columns: Vec<ColumnId> =
            kinds.iter().map(|kind| def.add_column(&format!("{kind}"), kind, false, None).unwrap()).collect();
        let layout = Layout::of(&def);
        let batch = |from: i64| {
            let numbers = from..from + 20;
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.clone()));
            let times = TimestampMicrosecondArray::from_iter_values(numbers.clone()).with_timezone("UTC");
            let texts = StringArray::from_iter_values(numbers.clone().map(|n| "é".repeat(n as usize % 7)));
            let arrays: Vec<ArrayRef> = vec![
                ids.clone(),
                Arc::new(times.clone()),
                ids,
                Arc::new(Int32Array::from_iter_values(numbers.clone().map(|n| n as i32 - 7))),
                Arc::new(Float64Array::from_iter_values(numbers.map(|n| n as f64 / 3.0))),
                Arc::new(times),
                Arc::new(texts),
            ];
            RecordBatch::try_new(layout.schema.clone(), arrays).unwrap()
        };
        let batches = [batch(0), batch(-1_000), batch(500).slice(3, 9)];
        let picks = [(2, 8), (0, 19), (1, 0), (0, 19), (2, 0)];
        for (at, column) in columns.into_iter().enumerate() {
            let wanted = layout.schema.field(at + 2).data_type();
            let sources = || batches.iter().map(|batch| (&*layout, batch));
            let picked = pick(column, wanted, sources(), &picks).expect("a plain column");
            let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(at + 2).as_ref()).collect();
            assert_eq!(&picked, &interleave(&parts, &picks).unwrap());
            assert_eq!(picked.data_type(), wanted);
            assert!(pick(column, wanted, sources(), &[(0, 0); ROWS_MAX + 1]).is_none());
            assert!(pick(column, &Arrow::Boolean, sources(), &picks).is_none());
        }
        let sources = batches.iter().map(|batch| (&*layout, batch));
        assert!(pick(ColumnId(999), &Arrow::Int64, sources, &picks).is_none());
    }
}
