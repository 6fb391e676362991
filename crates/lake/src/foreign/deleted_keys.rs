//! Keys of equality deletes: the encoded values of a row's key columns, and a set of such keys.
//!
//! Values are equal as in Iceberg's Java implementation: null equals null, all NaN are equal, 0.0 and -0.0 differ.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// A set of keys, each with the greatest sequence number of its deletes. A hash table with linear probing.
#[derive(Debug, Default)]
pub(super) struct DeletedKeys {
    /// The keys, concatenated.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The index of an entry in each slot, or [`FREE`]. The number of slots is a power of two, and at least a quarter of them
    /// is free.
    slots: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    /// The end of the key in `bytes`.
    end: usize,
    sequence: i64,
}

const FREE: u32 = u32::MAX;
const SLOTS_MIN: usize = 64;

impl DeletedKeys {
    pub fn insert(&mut self, key: &[u8], sequence: i64) -> Result<()> {
        if (self.entries.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let slot = self.slot(key);
        if let Some(entry) = self.entries.get_mut(self.slots[slot] as usize) {
            entry.sequence = entry.sequence.max(sequence);
            return Ok(());
        }
        let entry = u32::try_from(self.entries.len()).ok().filter(|entry| *entry != FREE);
        self.slots[slot] =
            entry.ok_or_else(|| Error::new(Kind::TooLarge, "more than 2^32 keys of equality deletes"))?;
        self.bytes.extend_from_slice(key);
        self.entries.push(Entry { end: self.bytes.len(), sequence });
        Ok(())
    }

    /// Returns the greatest sequence number with which a key was deleted.
    pub fn get(&self, key: &[u8]) -> Option<i64> {
        if self.slots.is_empty() {
            return None;
        }
        self.entries.get(self.slots[self.slot(key)] as usize).map(|entry| entry.sequence)
    }

    /// Bytes that the set occupies.
    pub fn memory_bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry>();
        (self.bytes.capacity() + entries + self.slots.capacity() * size_of::<u32>()) as u64
    }

    /// Frees spare capacity once the set is complete.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    fn key(&self, entry: usize) -> &[u8] {
        let begin = entry.checked_sub(1).map_or(0, |before| self.entries[before].end);
        &self.bytes[begin..self.entries[entry].end]
    }

    /// Returns the slot that holds a key, or the free one in which it belongs.
    fn slot(&self, key: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = xxh3_64(key) as usize & mask;
        while self.slots[slot] != FREE && self.key(self.slots[slot] as usize) != key {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![FREE; (self.slots.len() * 2).max(SLOTS_MIN)];
        for entry in 0..self.entries.len() {
            let slot = self.slot(self.key(entry));
            self.slots[slot] = entry as u32;
        }
    }
}

/// Appends a row's values to a key. The length of each value follows from the bytes before it, so that different rows never
/// have the same key.
pub(super) fn put(columns: &[ArrayRef], row: usize, key: &mut Vec<u8>) -> Result<()> {
    columns.iter().try_for_each(|column| put_value(column, row, key))
}

fn put_value(column: &ArrayRef, row: usize, key: &mut Vec<u8>) -> Result<()> {
    if column.is_null(row) {
        key.push(0);
        return Ok(());
    }
    key.push(1);
    match column.data_type() {
        Arrow::Boolean => key.push(column.as_boolean().value(row).into()),
        Arrow::Int64 => key.extend(column.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        Arrow::Date32 => key.extend(column.as_primitive::<Date32Type>().value(row).to_le_bytes()),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            key.extend(column.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes());
        }
        Arrow::Decimal128(..) => {
            key.extend(column.as_primitive::<Decimal128Type>().value(row).to_le_bytes());
        }
        Arrow::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            let value = if value.is_nan() { f64::NAN } else { value };
            key.extend(value.to_bits().to_le_bytes());
        }
        Arrow::FixedSizeBinary(_) => key.extend(column.as_fixed_size_binary().value(row)),
        Arrow::Utf8 => put_bytes(column.as_string::<i32>().value(row).as_bytes(), key),
        Arrow::Binary => put_bytes(column.as_binary::<i32>().value(row), key),
        other => return Err(Error::internal(format!("keys are not made of {other}"))),
    }
    Ok(())
}

fn put_bytes(bytes: &[u8], key: &mut Vec<u8>) {
    key.extend((bytes.len() as u64).to_le_bytes());
    key.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow::array::{Float64Array, StringArray};

    use super::*;

    #[test]
    fn a_set_returns_each_key_with_its_greatest_sequence_number() {
        let (mut keys, mut model) = (DeletedKeys::default(), HashMap::new());
        assert_eq!(keys.get(b""), None);
        for n in 0..5_000u64 {
            // Repeated keys, of lengths from zero on.
            let (key, sequence) = ((n * n % 3_001).to_string().repeat((n % 4) as usize), (n * 7 % 11) as i64);
            keys.insert(key.as_bytes(), sequence).unwrap();
            let newest = model.entry(key).or_insert(sequence);
            *newest = sequence.max(*newest);
        }
        keys.shrink();
        assert_eq!(keys.entries.len(), model.len());
        for (key, sequence) in &model {
            assert_eq!(keys.get(key.as_bytes()), Some(*sequence), "{key}");
        }
        assert_eq!(keys.get(b"none"), None);
        assert!(keys.memory_bytes() as usize >= keys.bytes.len() + 20 * model.len());
    }

    fn key(columns: &[ArrayRef], row: usize) -> Vec<u8> {
        let mut key = Vec::new();
        put(columns, row, &mut key).unwrap();
        key
    }

    #[test]
    fn floats_are_equal_as_java_has_it() {
        let other_nan = f64::from_bits(f64::NAN.to_bits() ^ (1 << 63) ^ 5);
        let floats: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, other_nan]))];
        assert_ne!(key(&floats, 0), key(&floats, 1));
        assert_eq!(key(&floats, 2), key(&floats, 3));
    }

    #[test]
    fn values_do_not_run_into_each_other() {
        let text = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
        let rows = [
            text(vec![Some("ab"), Some("a"), Some(""), None, Some("\0"), None]),
            text(vec![Some("c"), Some("bc"), None, Some(""), None, None]),
        ];
        let keys: std::collections::HashSet<Vec<u8>> = (0..6).map(|row| key(&rows, row)).collect();
        assert_eq!(keys.len(), 6);
    }
}
