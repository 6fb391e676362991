//! Finds ended head rows by key: the head's key map points only to the rows that replaced them.

use std::collections::HashMap;

use arrow::array::Array;
use types::key;

use super::PastView;
use crate::head::Head;

/// Row ids by the hash of their key.
pub(super) type EndedKeys = HashMap<u64, Vec<u64>>;

impl PastView {
    /// Returns the ended head rows whose key may have this hash. The map is built at first use.
    pub(crate) fn head_candidates(&self, head: &Head, hash: u64) -> &[u64] {
        if self.ended.is_empty() {
            return &[];
        }
        let keys = self.keys.get_or_init(|| Box::new(self.ended_keys(head)));
        keys.get(&hash).map_or(&[], Vec::as_slice)
    }

    fn ended_keys(&self, head: &Head) -> EndedKeys {
        let mut keys = EndedKeys::new();
        let mut bytes = Vec::new();
        for batch in head.batches() {
            let layout = &batch.stored.layout;
            let columns: Vec<&dyn Array> =
                layout.key.iter().map(|at| batch.stored.batch.column(*at).as_ref()).collect();
            let mut rows = self.ended.iter();
            rows.advance_to(batch.first);
            for row in rows.take_while(|row| *row < batch.end()) {
                bytes.clear();
                key::encode_row(&layout.key_types, &columns, (row - batch.first) as usize, &mut bytes);
                keys.entry(key::hash(&bytes)).or_default().push(row);
            }
        }
        keys
    }
}
