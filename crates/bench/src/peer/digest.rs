//! The digest of an answer: its number of rows, and a hash that changes with every value.

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
}

/// Row count and hash of an answer, into which every value of every row is read. Rows may come in any order; the order of values
/// within a row counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    pub rows: u64,
    /// Sum of the rows' hashes.
    pub hash: u64,
    /// The rows themselves, if the caller keeps them.
    cells: Option<Vec<Vec<Cell>>>,
}

/// The initial hash of a row.
const INITIAL_HASH: u64 = 0x9E37_79B9_7F4A_7C15;
const NULL_HASH: u64 = 0x6A09_E667_F3BC_C909;

/// Adds an integer to the hash of a row.
#[inline]
pub fn hash_int(hash: u64, value: i64) -> u64 {
    (hash ^ value as u64).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(29)
}

/// Adds a float to the hash of a row, by its bits.
#[inline]
pub fn hash_float(hash: u64, value: f64) -> u64 {
    hash_int(hash, value.to_bits() as i64)
}

/// Adds a string to the hash of a row: its length, its first and its last 8 bytes. That reads the bytes that a caller would look
/// at, and is cheap enough not to hide the database's own cost.
#[inline]
pub fn hash_text(hash: u64, value: &str) -> u64 {
    let bytes = value.as_bytes();
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    let first = word(&bytes[..bytes.len().min(8)]);
    let last = word(&bytes[bytes.len().saturating_sub(8)..]);
    hash_int(hash_int(hash, (first ^ bytes.len() as u64) as i64), last as i64)
}

impl Digest {
    /// Creates a digest that also keeps the rows.
    pub fn with_rows() -> Digest {
        Digest { cells: Some(Vec::new()), ..Digest::default() }
    }

    pub fn keeps_rows(&self) -> bool {
        self.cells.is_some()
    }

    pub const fn initial_hash() -> u64 {
        INITIAL_HASH
    }

    /// Adds a row whose hash the caller has computed.
    #[inline]
    pub fn add_row_hash(&mut self, hash: u64) {
        self.rows += 1;
        self.hash = self.hash.wrapping_add(hash ^ (hash >> 32));
    }

    /// Adds a row by its values.
    pub fn add_row(&mut self, cells: Vec<Cell>) {
        let hash = cells.iter().fold(INITIAL_HASH, |hash, cell| match cell {
            Cell::Null => hash_int(hash, NULL_HASH as i64),
            Cell::Int(value) => hash_int(hash, *value),
            Cell::Float(value) => hash_float(hash, *value),
            Cell::Text(value) => hash_text(hash, value),
        });
        self.add_row_hash(hash);
        if let Some(kept) = &mut self.cells {
            kept.push(cells);
        }
    }

    /// Returns the rows, or none if they were not kept.
    pub fn into_rows(self) -> Vec<Vec<Cell>> {
        self.cells.unwrap_or_default()
    }
}

/// Compares two values. Floats may differ in their last digits, because sums are added in any order.
pub(crate) fn same_value(found: &Cell, expected: &Cell) -> bool {
    match (found, expected) {
        (Cell::Float(a), Cell::Float(b)) => a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => found == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[&[Cell]]) -> Digest {
        let mut digest = Digest::default();
        rows.iter().for_each(|row| digest.add_row(row.to_vec()));
        digest
    }

    #[test]
    fn rows_count_in_any_order_and_values_in_theirs() {
        let (a, b) = ([Cell::Int(1), Cell::Text("x".into())], [Cell::Int(2), Cell::Null]);
        assert_eq!(of(&[&a, &b]), of(&[&b, &a]));
        assert_ne!(of(&[&[Cell::Int(1), Cell::Int(2)]]).hash, of(&[&[Cell::Int(2), Cell::Int(1)]]).hash);
        assert_ne!(of(&[&a]).hash, of(&[&a, &a]).hash);
    }

    #[test]
    fn a_change_of_any_value_changes_the_hash() {
        let texts = ["", "a", "b", "cust_1", "cust_12", "cust_123456789", "cust_123456780", "dust_1"];
        let hashes: std::collections::BTreeSet<u64> =
            texts.iter().map(|value| of(&[&[Cell::Text((*value).into())]]).hash).collect();
        assert_eq!(hashes.len(), texts.len());
        assert_ne!(of(&[&[Cell::Float(1.0)]]).hash, of(&[&[Cell::Float(1.0 + f64::EPSILON)]]).hash);
        assert_ne!(of(&[&[Cell::Null]]).hash, of(&[&[Cell::Int(0)]]).hash);
    }

    #[test]
    fn sums_may_differ_in_their_last_digits() {
        assert!(same_value(&Cell::Float(1e15), &Cell::Float(1e15 + 0.125)));
        assert!(!same_value(&Cell::Float(1.0), &Cell::Float(1.0001)));
        assert!(!same_value(&Cell::Int(1), &Cell::Float(1.0)));
    }
}
