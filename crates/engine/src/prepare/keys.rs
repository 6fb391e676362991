//! Keys of inserted rows: encodes them, removes repeated ones and looks them up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use types::{DataType, Error, Kind, Result, TableDef, key, name};

use super::{Key, KeyRule, key_text};

pub(crate) fn encode_keys(def: &TableDef, batch: &RecordBatch) -> Vec<Box<[u8]>> {
    let types: Vec<DataType> = def.key_columns().map(|c| c.data_type.clone()).collect();
    let columns: Vec<&dyn Array> = def
        .key_columns()
        .map(|c| batch.column_by_name(&c.name).expect("a conformed batch has every column").as_ref())
        .collect();
    let mut buffer = Vec::new();
    (0..batch.num_rows())
        .map(|row| {
            buffer.clear();
            key::encode_row(&types, &columns, row, &mut buffer);
            buffer.as_slice().into()
        })
        .collect()
}

/// Keeps one row for each key: the last one if rows replace others, the first one if rows are skipped. Under other rules a
/// repeated key is an error.
pub(super) fn distinct(
    def: &TableDef,
    batch: RecordBatch,
    keys: Vec<Box<[u8]>>,
    rule: &KeyRule,
) -> Result<(RecordBatch, Vec<Box<[u8]>>)> {
    if keys.is_sorted_by(|one, next| one < next) {
        return Ok((batch, keys));
    }
    let mut rows: HashMap<&[u8], u32> = HashMap::with_capacity(keys.len());
    let mut repeated = false;
    for (row, key) in keys.iter().enumerate() {
        match rows.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(row as u32);
            }
            Entry::Occupied(mut entry) => match rule {
                KeyRule::Replace => {
                    repeated = true;
                    entry.insert(row as u32);
                }
                KeyRule::Skip => repeated = true,
                KeyRule::Refuse | KeyRule::Expect(_) | KeyRule::Unchanged => {
                    let text = key_text(def, &batch, row);
                    return Err(Error::new(Kind::Exists, format!("two rows of the request have {text}"))
                        .with("table", name::short_table_name(&def.name)));
                }
            },
        }
    }
    if !repeated {
        return Ok((batch, keys));
    }
    let mut kept: Vec<u32> = rows.into_values().collect();
    kept.sort_unstable();
    let keys = kept.iter().map(|row| keys[*row as usize].clone()).collect();
    let batch = take_record_batch(&batch, &UInt32Array::from(kept))
        .map_err(|e| Error::internal(format!("selecting rows failed: {e}")))?;
    Ok((batch, keys))
}

pub(crate) fn find_all(base: Option<&table::Snapshot>, keys: Vec<Box<[u8]>>) -> Result<Vec<Key>> {
    let Some(base) = base else {
        return Ok(keys.into_iter().map(|bytes| Key { bytes, found: None }).collect());
    };
    let found = base.find_many(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
    Ok(keys.into_iter().zip(found).map(|(bytes, found)| Key { bytes, found }).collect())
}
