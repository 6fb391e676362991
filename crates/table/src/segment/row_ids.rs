//! The row ids that a segment stores.
//!
//! Format: `0` · first row id varint, for consecutive ids, as many as the segment has rows; or `1` · a Roaring treemap in its
//! portable serialisation.

use roaring::RoaringTreemap;
use types::Result;
use types::codec::{Decoder, Encoder};

#[derive(Clone, Debug)]
pub(crate) enum RowIds {
    Dense { first: u64, rows: u64 },
    Sparse(RoaringTreemap),
}

impl RowIds {
    pub fn contains(&self, row: u64) -> bool {
        match self {
            RowIds::Dense { first, rows } => row >= *first && row - first < *rows,
            RowIds::Sparse(ids) => ids.contains(row),
        }
    }

    /// Returns the number of stored rows before `row`; `None` if it is not stored.
    pub fn rank(&self, row: u64) -> Option<u64> {
        match self {
            _ if !self.contains(row) => None,
            RowIds::Dense { first, .. } => Some(row - first),
            RowIds::Sparse(ids) => Some(ids.rank(row) - 1),
        }
    }

    /// Returns the stored row with `rank` stored rows before it.
    pub fn select(&self, rank: u64) -> Option<u64> {
        match self {
            _ if rank >= self.len() => None,
            RowIds::Dense { first, .. } => Some(first + rank),
            RowIds::Sparse(ids) => ids.select(rank),
        }
    }

    /// The stored rows from `row` on, ascending.
    pub fn starting_at(&self, row: u64) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            RowIds::Dense { first, rows } => Box::new(row.max(*first)..first + rows),
            RowIds::Sparse(ids) => {
                let mut ids = ids.iter();
                ids.advance_to(row);
                Box::new(ids)
            }
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            RowIds::Dense { rows, .. } => *rows,
            RowIds::Sparse(ids) => ids.len(),
        }
    }

    pub fn to_bitmap(&self) -> RoaringTreemap {
        match self {
            RowIds::Dense { first, rows } => {
                let mut ids = RoaringTreemap::new();
                ids.insert_range(*first..first + rows);
                ids
            }
            RowIds::Sparse(ids) => ids.clone(),
        }
    }

    /// Removes the ids from `ids` that the segment does not store.
    pub fn retain_stored(&self, ids: &mut RoaringTreemap) {
        match self {
            RowIds::Dense { first, rows } => {
                ids.remove_range(..*first);
                ids.remove_range(first + rows..);
            }
            RowIds::Sparse(stored) => *ids &= stored,
        }
    }

    pub fn encode(ids: &RoaringTreemap, e: &mut Encoder) {
        match (ids.min(), ids.max()) {
            (Some(first), Some(last)) if last - first + 1 == ids.len() => {
                e.u8(0);
                e.varint(first);
            }
            (None, _) | (_, None) => {
                e.u8(0);
                e.varint(0);
            }
            _ => {
                e.u8(1);
                ids.serialize_into(&mut e.bytes).expect("a Vec takes every byte");
            }
        }
    }

    pub fn decode(bytes: &[u8], rows: u64) -> Result<RowIds> {
        let mut d = Decoder::new(bytes);
        let ids = match d.u8()? {
            0 => {
                let first = d.varint()?;
                d.finish()?;
                if first.checked_add(rows).is_none() {
                    return Err(d.damaged("row ids beyond 64 bits"));
                }
                RowIds::Dense { first, rows }
            }
            1 => {
                let ids = RoaringTreemap::deserialize_from(d.rest());
                RowIds::Sparse(ids.map_err(|e| d.damaged(format!("row ids that are not a bitmap: {e}")))?)
            }
            other => return Err(d.damaged(format!("{other} is not a known encoding of row ids"))),
        };
        if ids.len() != rows {
            return Err(d.damaged(format!("{} row ids for {rows} rows", ids.len())));
        }
        Ok(ids)
    }
}
