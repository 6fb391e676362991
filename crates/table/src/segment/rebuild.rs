//! The sections of a sidecar that locate rows: key run, row ids and order. They are read as stored; a damaged one is rebuilt from
//! the rows. The rebuilt one is kept in memory while the segment is open; a merge of the segment writes it intact.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use types::{Error, Result};

use super::key_run::{self, KeyRun};
use super::order::Order;
use super::row_ids::RowIds;
use super::sidecar::Tag;
use super::{NeededColumns, Segment, SegmentBody};

/// Allows one rebuild at a time: it reads all rows of a segment, and its keys take up to 40 bytes a row meanwhile. Other readers
/// that need a rebuild wait.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl SegmentBody {
    fn rebuilt_or<T>(&self, read: Result<T>, damage: Error) -> Result<T> {
        self.rebuilt.fetch_or(read.is_ok(), Relaxed);
        read.map_err(|_| damage)
    }
}

impl Segment {
    pub(super) fn stored_keys(&self, body: &SegmentBody) -> Result<KeyRun> {
        let read = || KeyRun::open(body.sidecar.section(Tag::Keys)?, body.table.rows());
        read().map_err(|e| self.in_sidecar(e))
    }

    pub(super) fn stored_row_ids(&self, body: &SegmentBody) -> Result<RowIds> {
        let read = || RowIds::decode(&body.sidecar.section(Tag::RowIds)?, body.table.rows());
        read().map_err(|e| self.in_sidecar(e))
    }

    pub(super) fn stored_order(&self, body: &SegmentBody) -> Result<Order> {
        let read = || Order::open(body.sidecar.section(Tag::Order)?, body.table.rows());
        read().map_err(|e| self.in_sidecar(e))
    }

    /// Rebuilds the key run. Returns `damage` if the rows cannot be read either, or have no keys.
    pub(super) fn keys_of_rows(&self, body: &SegmentBody, damage: Error) -> Result<KeyRun> {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(keys)) = body.keys.get() {
            return Ok(keys.clone());
        }
        let read = || {
            let mut keys = Vec::with_capacity(body.table.rows() as usize);
            for (block, info) in body.table.blocks.iter().enumerate() {
                let stored = self.block(block, NeededColumns::Key)?;
                keys.extend(key_run::hashes(&stored.layout, &stored.batch).zip(info.ordinal as u32..));
            }
            KeyRun::open(key_run::encode(keys).into(), body.table.rows())
        };
        body.rebuilt_or(read(), damage)
    }

    pub(super) fn row_ids_of_rows(&self, body: &SegmentBody, damage: Error) -> Result<RowIds> {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(ids)) = body.row_ids.get() {
            return Ok(ids.clone());
        }
        let read = || {
            let ids: roaring::RoaringTreemap = self.ids_by_place(body)?.into_iter().collect();
            // Each row is stored once, so there must be as many ids as rows.
            if ids.len() == body.table.rows() { Ok(RowIds::Sparse(ids)) } else { Err(damage.clone()) }
        };
        let read = read();
        body.rebuilt_or(read, damage)
    }

    pub(super) fn order_of_rows(&self, body: &SegmentBody, damage: Error) -> Result<Order> {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(order)) = body.order.get() {
            return Ok(order.clone());
        }
        let read = || {
            let ids = self.ids_by_place(body)?;
            let mut ordinals: Vec<u32> = (0..ids.len() as u32).collect();
            ordinals.sort_unstable_by_key(|at| ids[*at as usize]);
            Order::open(Order::encode(&ordinals).into(), body.table.rows())
        };
        body.rebuilt_or(read(), damage)
    }

    fn ids_by_place(&self, body: &SegmentBody) -> Result<Vec<u64>> {
        let mut ids = Vec::with_capacity(body.table.rows() as usize);
        for block in 0..body.table.blocks.len() {
            ids.extend(self.block(block, NeededColumns::TIMES)?.row_ids().iter().map(|id| *id as u64));
        }
        Ok(ids)
    }
}
