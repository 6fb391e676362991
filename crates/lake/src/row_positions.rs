//! Locates rows: finds the data file and the position of each row id.

use std::sync::Arc;

use bytes::Bytes;
use types::{Error, Result, RowId};

use crate::row_ids::{self, MAPPED_ROWS_MAX, RowIds};
use crate::state::{Lake, LiveFile};

/// Rows of a file per requested row, from which only pages that may contain a requested row are read.
const ROWS_FOR_ONE: u64 = 64 << 10;

impl Lake {
    /// Returns the data files that contain these rows, by index, and the rows' positions in each, ascending. `rows` must
    /// ascend and be in the lake. Files with overlapping bounds are searched in order: those with cached row ids first,
    /// then the smaller ones.
    pub(crate) fn locate(&self, rows: &[RowId]) -> Result<Vec<(usize, Vec<u64>)>> {
        let within = |live: &LiveFile| {
            let from = rows.partition_point(|row| *row < live.first);
            let to = rows.partition_point(|row| *row <= live.last);
            from..to.max(from)
        };
        let mut candidates: Vec<(bool, u64, usize)> = Vec::new();
        for (at, live) in self.data.iter().enumerate() {
            if !within(live).is_empty() {
                candidates.push((self.cache.get(&live.path).is_none(), live.entry.file.rows, at));
            }
        }
        candidates.sort_unstable();
        let mut found = vec![false; rows.len()];
        let mut all: Vec<(usize, Vec<u64>)> = Vec::new();
        for (.., at) in candidates {
            let live = &self.data[at];
            let left: Vec<usize> = within(live).filter(|nth| !found[*nth]).collect();
            if left.is_empty() {
                continue;
            }
            let wanted: Vec<RowId> = left.iter().map(|nth| rows[*nth]).collect();
            let mut positions = Vec::new();
            self.find_in_file(live, &wanted, &mut |nth, position| {
                found[left[nth]] = true;
                positions.push(position);
            })?;
            if !positions.is_empty() {
                positions.sort_unstable();
                all.push((at, positions));
            }
        }
        match found.iter().position(|found| !found) {
            None => Ok(all),
            Some(at) => Err(Error::damaged(format!(
                "row {} should be in the lake and is in none of its data files",
                rows[at]
            ))
            .with("directory", self.dir.display())),
        }
    }

    /// Calls `each` with the index in `wanted` and the position of each wanted row in a file. `wanted` must ascend.
    fn find_in_file(
        &self,
        live: &LiveFile,
        wanted: &[RowId],
        each: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        let in_file = |e: Error| e.with("file", &live.path);
        let rows = live.entry.file.rows;
        let few = rows / ROWS_FOR_ONE > wanted.len() as u64;
        let unmapped = live.entry.file.sort_order.is_some() && rows > MAPPED_ROWS_MAX;
        let mut known = self.cache.get(&live.path);
        if known.is_none() && !few && !unmapped {
            known = self.read_row_ids(live).map_err(in_file)?;
        }
        if let Some(ids) = known {
            for (nth, row) in wanted.iter().enumerate() {
                if let Some(position) = ids.position(*row) {
                    each(nth, position);
                }
            }
            return Ok(());
        }
        let bytes = self.data_file(live)?;
        let look = &mut |position, row| {
            if let Ok(nth) = wanted.binary_search(&row) {
                each(nth, position);
            }
            Ok(())
        };
        row_ids::scan(bytes, Some(wanted), look).map_err(in_file)
    }

    /// Reads and caches the row ids of a file. Returns `None` for an unsorted file that is too large for a map.
    fn read_row_ids(&self, live: &LiveFile) -> Result<Option<Arc<RowIds>>> {
        let Some(ids) = RowIds::of_file(self.data_file(live)?)? else { return Ok(None) };
        if ids.rows() != live.entry.file.rows {
            return Err(Error::damaged("a data file has another number of rows than its manifest says"));
        }
        let ids = Arc::new(ids);
        self.cache.put(&live.path, ids.clone());
        Ok(Some(ids))
    }

    /// Reads a data file and compares it with its checksums.
    pub(crate) fn data_file(&self, live: &LiveFile) -> Result<Bytes> {
        self.read_verified(&live.entry.file)
    }
}
