//! The order of a segment whose rows are sorted by the table's time column: for each row, in row-id order, the ordinal at which
//! it is stored, u32.

use bytes::Bytes;
use types::codec::Decoder;
use types::{Error, Result};

/// The mapped ordinals. Each is below the segment's number of rows.
#[derive(Clone, Debug)]
pub(crate) struct Order(Bytes);

impl Order {
    pub fn encode(ordinals: &[u32]) -> Vec<u8> {
        ordinals.iter().flat_map(|ordinal| ordinal.to_le_bytes()).collect()
    }

    pub fn open(bytes: Bytes, rows: u64) -> Result<Order> {
        if bytes.len() as u64 != rows.saturating_mul(4) {
            let what = format!("places of {} rows where {rows} exist", bytes.len() / 4);
            return Err(Decoder::new(&bytes).damaged(what));
        }
        let order = Order(bytes);
        if order.iter().any(|ordinal| u64::from(ordinal) >= rows) {
            return Err(Error::damaged("a row has a position beyond the last one"));
        }
        Ok(order)
    }

    /// Returns the ordinal of the row that is the `rank`-th by row id, counted from 0.
    pub fn ordinal(&self, rank: u64) -> Option<u32> {
        let at = usize::try_from(rank).ok()?.checked_mul(4)?;
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}
