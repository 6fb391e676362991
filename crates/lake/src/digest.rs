//! Digests for comparing two copies of a table: for each column the nulls, the sum and a hash over all values.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use types::{Error, Result};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A digest of a table. The order of rows does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    pub rows: u64,
    /// Digests by column name.
    pub columns: BTreeMap<String, ColumnDigest>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnDigest {
    pub nulls: u64,
    /// Hash over the values, each together with its row id.
    pub hash: u64,
    /// Sum of a column of integers or decimals, the latter in units of the last digit; `None` for other types.
    pub sum: Option<i128>,
}

impl Digest {
    /// Returns the digest of a table without rows.
    pub fn of_columns(schema: &arrow::datatypes::Schema) -> Digest {
        let columns = schema.fields().iter().map(|field| (field.name().clone(), ColumnDigest::default()));
        Digest { rows: 0, columns: columns.collect() }
    }

    /// Adds the rows with ids up to `last`. The first column must be the row id.
    pub fn add(&mut self, batch: &RecordBatch, last: u64) -> Result<()> {
        let ids = batch
            .columns()
            .first()
            .and_then(|column| column.as_primitive_opt::<Int64Type>())
            .ok_or_else(|| Error::internal("the rows to compare do not begin with their ids"))?;
        let is_wanted = |id: &i64| u64::try_from(*id).is_ok_and(|id| id <= last);
        self.rows += ids.values().iter().filter(|id| is_wanted(id)).count() as u64;
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let digest = self.columns.entry(field.name().clone()).or_default();
            let column = plain(column)?;
            for (row, id) in ids.values().iter().enumerate().filter(|(_, id)| is_wanted(id)) {
                digest.nulls += u64::from(column.is_null(row));
                let mut hasher = Xxh3::with_seed(*id as u64);
                hash_value(&column, row, &mut hasher)?;
                digest.hash = digest.hash.wrapping_add(hasher.digest());
                if let Some(value) = integer(&column, row) {
                    digest.sum = Some(digest.sum.unwrap_or(0).wrapping_add(value));
                }
            }
        }
        Ok(())
    }

    /// Adds a hash of each row under its id, for tests that need to know the differing row.
    pub fn by_row(batch: &RecordBatch, into: &mut BTreeMap<u64, u64>) -> Result<()> {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        for (row, id) in ids.values().iter().enumerate() {
            let mut hasher = Xxh3::new();
            for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                hasher.update(&xxh3_64(field.name().as_bytes()).to_le_bytes());
                hash_value(&plain(column)?, row, &mut hasher)?;
            }
            if into.insert(*id as u64, hasher.digest()).is_some() {
                return Err(Error::damaged(format!("row {id} occurs twice")));
            }
        }
        Ok(())
    }

    /// Returns the differences of two copies, as sentences; none if they are equal.
    pub fn differences(&self, other: &Digest, names: [&str; 2]) -> Vec<String> {
        let [a, b] = names;
        let mut found = Vec::new();
        if self.rows != other.rows {
            found.push(format!("{a} has {} rows, {b} {}", self.rows, other.rows));
        }
        for (name, column) in &self.columns {
            match other.columns.get(name) {
                None => found.push(format!("column `{name}` is in {a} only")),
                Some(theirs) if theirs == column => {}
                Some(theirs) if theirs.nulls != column.nulls => {
                    found.push(format!(
                        "column `{name}` has {} nulls in {a}, {} in {b}",
                        column.nulls, theirs.nulls
                    ));
                }
                Some(theirs) if theirs.sum != column.sum => {
                    let text = |sum: Option<i128>| sum.map_or("unknown".to_owned(), |sum| sum.to_string());
                    let (ours, theirs) = (text(column.sum), text(theirs.sum));
                    found.push(format!("the sum of column `{name}` is {ours} in {a}, {theirs} in {b}"));
                }
                Some(_) => found.push(format!("column `{name}` has other values in {a} than in {b}")),
            }
        }
        let only = other.columns.keys().filter(|name| !self.columns.contains_key(*name));
        found.extend(only.map(|name| format!("column `{name}` is in {b} only")));
        found
    }
}

/// Converts views and dictionaries to plain arrays.
fn plain(array: &ArrayRef) -> Result<ArrayRef> {
    let wanted = match array.data_type() {
        Arrow::Utf8View | Arrow::LargeUtf8 => Arrow::Utf8,
        Arrow::BinaryView | Arrow::LargeBinary => Arrow::Binary,
        Arrow::Dictionary(_, value) => value.as_ref().clone(),
        _ => return Ok(array.clone()),
    };
    arrow::compute::cast(array, &wanted)
        .map_err(|e| Error::internal(format!("unpacking a column to compare it: {e}")))
}

fn integer(array: &ArrayRef, row: usize) -> Option<i128> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        Arrow::Int32 => Some(array.as_primitive::<Int32Type>().value(row).into()),
        Arrow::Int64 => Some(array.as_primitive::<Int64Type>().value(row).into()),
        Arrow::Decimal128(..) => Some(array.as_primitive::<Decimal128Type>().value(row)),
        _ => None,
    }
}

/// Hashes a value independently of the type of array that holds it.
fn hash_value(array: &ArrayRef, row: usize, hasher: &mut Xxh3) -> Result<()> {
    if array.is_null(row) {
        hasher.update(&[0]);
        return Ok(());
    }
    hasher.update(&[1]);
    match array.data_type() {
        Arrow::Boolean => hasher.update(&[array.as_boolean().value(row).into()]),
        Arrow::Int32 => hasher.update(&array.as_primitive::<Int32Type>().value(row).to_le_bytes()),
        Arrow::Int64 => hasher.update(&array.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        Arrow::Float32 => {
            hasher.update(&array.as_primitive::<Float32Type>().value(row).to_bits().to_le_bytes())
        }
        Arrow::Float64 => {
            hasher.update(&array.as_primitive::<Float64Type>().value(row).to_bits().to_le_bytes())
        }
        Arrow::Date32 => hasher.update(&array.as_primitive::<Date32Type>().value(row).to_le_bytes()),
        Arrow::Timestamp(..) => {
            let times = array.as_primitive_opt::<TimestampMicrosecondType>();
            let times = times.ok_or_else(|| unknown(array.data_type()))?;
            hasher.update(&times.value(row).to_le_bytes());
        }
        Arrow::Decimal128(..) => {
            hasher.update(&array.as_primitive::<Decimal128Type>().value(row).to_le_bytes())
        }
        Arrow::Utf8 => hash_blob(array.as_string::<i32>().value(row).as_bytes(), hasher),
        Arrow::Binary => hash_blob(array.as_binary::<i32>().value(row), hasher),
        Arrow::FixedSizeBinary(_) => hash_blob(array.as_fixed_size_binary().value(row), hasher),
        Arrow::List(_) => hash_list(&array.as_list::<i32>().value(row), hasher)?,
        Arrow::FixedSizeList(..) => hash_list(&array.as_fixed_size_list().value(row), hasher)?,
        Arrow::Struct(_) => {
            for column in array.as_struct().columns() {
                hash_value(column, row, hasher)?;
            }
        }
        other => return Err(unknown(other)),
    }
    Ok(())
}

fn hash_blob(bytes: &[u8], hasher: &mut Xxh3) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn hash_list(items: &ArrayRef, hasher: &mut Xxh3) -> Result<()> {
    hasher.update(&(items.len() as u64).to_le_bytes());
    (0..items.len()).try_for_each(|at| hash_value(items, at, hasher))
}

fn unknown(arrow: &Arrow) -> Error {
    Error::internal(format!("a column of type {arrow} cannot be compared"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, ListArray, StringArray};

    use super::*;

    fn rows(ids: &[i64], n: &[Option<i64>], text: &[&str]) -> RecordBatch {
        let columns: [(&str, ArrayRef); 3] = [
            ("_row_id", Arc::new(Int64Array::from(ids.to_vec()))),
            ("n", Arc::new(Int64Array::from(n.to_vec()))),
            ("text", Arc::new(StringArray::from(text.to_vec()))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn digest(batches: &[RecordBatch]) -> Digest {
        let mut digest = Digest::of_columns(&batches[0].schema());
        batches.iter().for_each(|batch| digest.add(batch, 100).unwrap());
        digest
    }

    #[test]
    fn the_order_of_rows_and_batches_does_not_matter_and_rows_beyond_the_last_do_not_count() {
        let whole = digest(&[rows(&[1, 2, 3], &[Some(5), None, Some(-7)], &["a", "", "c"])]);
        let parts = [
            rows(&[3, 101], &[Some(-7), Some(1)], &["c", "beyond"]),
            rows(&[2, 1], &[None, Some(5)], &["", "a"]),
        ];
        assert_eq!(digest(&parts), whole);
        assert!(whole.differences(&digest(&parts), ["a", "b"]).is_empty());
        assert_eq!((whole.rows, whole.columns["n"].sum, whole.columns["n"].nulls), (3, Some(-2), 1));
    }

    #[test]
    fn each_kind_of_difference_is_told_in_words() {
        let base = || rows(&[1, 2], &[Some(5), None], &["a", "b"]);
        for (other, told) in [
            (rows(&[1], &[Some(5)], &["a"]), "the lake has 2 rows, SQL 1"),
            (rows(&[1, 2], &[Some(5), Some(0)], &["a", "b"]), "column `n` has 1 nulls in the lake, 0 in SQL"),
            (
                rows(&[1, 2], &[Some(6), None], &["a", "b"]),
                "the sum of column `n` is 5 in the lake, 6 in SQL",
            ),
            (
                rows(&[1, 2], &[Some(5), None], &["a", "c"]),
                "column `text` has other values in the lake than in SQL",
            ),
            // The values moved to other rows: sums and counts agree.
            (
                rows(&[1, 2], &[None, Some(5)], &["a", "b"]),
                "column `n` has other values in the lake than in SQL",
            ),
            (base().project(&[0, 1]).unwrap(), "column `text` is in the lake only"),
        ] {
            let found = digest(&[base()]).differences(&digest(&[other]), ["the lake", "SQL"]);
            assert!(found.iter().any(|sentence| sentence == told), "{found:?} and not {told}");
        }
    }

    #[test]
    fn lists_differ_by_where_they_end() {
        let lists = |items: &[&[i64]]| {
            let items = items.iter().map(|list| Some(list.iter().map(|n| Some(*n)).collect::<Vec<_>>()));
            let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(items));
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=lists.len() as i64));
            digest(&[RecordBatch::try_from_iter([("_row_id", ids), ("l", lists)]).unwrap()])
        };
        assert_ne!(lists(&[&[1], &[2, 3]]), lists(&[&[1, 2], &[3]]));
        assert_eq!(lists(&[&[1], &[]]), lists(&[&[1], &[]]));
    }
}
