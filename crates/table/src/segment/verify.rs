//! Verification: reads every byte of a segment.

use types::{Error, Result};

use super::{NeededColumns, Segment, SegmentBody, Tag, key_run, zones};

impl Segment {
    /// Compares every used byte with its checksum, without decoding any: used for copies. Returns the first error. `tick` is
    /// called after every block with its bytes; an error from it ends the work.
    pub fn verify_checksums(&self, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let body = self.body()?;
        self.check_stored_once(body)?;
        self.check_places(body)?;
        self.check_blocks(body, tick)
    }

    /// Returns true if only sections are damaged that can be rebuilt from the rows: key run, row ids or order.
    pub fn is_mendable(&self, tick: &mut dyn FnMut(u64) -> Result<()>) -> bool {
        let Ok(body) = self.body() else { return false };
        self.check_places(body).is_err()
            && self.check_stored_once(body).is_ok()
            && self.check_blocks(body, tick).is_ok()
    }

    /// Marks the segment to be rewritten, even if no reader has met its damage.
    pub fn mark_for_rewrite(&self) {
        if let Ok(body) = &self.body {
            body.rebuilt.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Checks the sections that only the sidecar has and that cannot be rebuilt.
    fn check_stored_once(&self, body: &SegmentBody) -> Result<()> {
        let packed = body.packed.is_some().then_some(Tag::Packed);
        let evicted = body.evicted.is_some().then_some(Tag::Evicted);
        self.check_sections(body, [Tag::LsnRuns, Tag::Zones].into_iter().chain(packed).chain(evicted))
    }

    /// Checks the sections that can be rebuilt from the rows.
    fn check_places(&self, body: &SegmentBody) -> Result<()> {
        let keys = (!body.layout.key.is_empty()).then_some(Tag::Keys);
        let order = (!body.in_row_order).then_some(Tag::Order);
        self.check_sections(body, [Tag::RowIds].into_iter().chain(keys).chain(order))
    }

    fn check_sections(&self, body: &SegmentBody, mut tags: impl Iterator<Item = Tag>) -> Result<()> {
        tags.try_for_each(|tag| body.sidecar.section(tag).map(drop).map_err(|e| self.in_sidecar(e)))
    }

    fn check_blocks(&self, body: &SegmentBody, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        if body.evicted.is_some() {
            return Ok(());
        }
        for (number, block) in body.table.blocks.iter().enumerate() {
            let start = block.offset as usize;
            if crc32c::crc32c(&body.arrow[start..start + block.len() as usize]) != block.crc {
                return Err(Error::damaged("a block of rows does not match its checksum")
                    .with("block", number)
                    .with("file", self.arrow_path.display()));
            }
            tick(block.len())?;
        }
        Ok(())
    }

    /// Reads and checks every byte. Returns every error that it finds, for `doctor`.
    pub fn verify(&self) -> Vec<Error> {
        let body = match self.body() {
            Ok(body) => body,
            Err(e) => return vec![e],
        };
        if body.evicted.is_some() {
            // The lake checks the rows of an evicted segment.
            let checked = [self.check_stored_once(body), self.runs().map(drop), self.row_ids().map(drop)];
            return checked.into_iter().filter_map(Result::err).collect();
        }
        let mut wrong = Vec::new();
        let mut row_ids = roaring::RoaringTreemap::new();
        let mut ordinals = Vec::new();
        let mut keys = Vec::new();
        let read_zones = body.sidecar.section(Tag::Zones);
        let all_zones = read_zones.and_then(|bytes| zones::decode(&bytes, body.table.blocks.len()));
        let all_zones = all_zones.map_err(|e| wrong.push(self.in_sidecar(e))).ok();
        for block in 0..body.table.blocks.len() {
            let stored = match self.block(block, NeededColumns::All) {
                Ok(stored) => stored,
                Err(e) => {
                    wrong.push(e);
                    continue;
                }
            };
            let damaged = |what: &str| self.in_sidecar(Error::damaged(what)).with("block", block);
            row_ids.extend(stored.row_ids().iter().map(|row| *row as u64));
            if !body.in_row_order {
                let places = body.table.blocks[block].ordinal..;
                ordinals.extend(stored.row_ids().iter().copied().zip(places));
            }
            let layout = &stored.layout;
            let zone = |(id, column): (&types::ColumnId, &arrow::array::ArrayRef)| {
                zones::of(column).map(|zone| (*id, zone))
            };
            let found: Vec<_> = layout.ids.iter().zip(stored.batch.columns()).filter_map(zone).collect();
            if all_zones.as_ref().is_some_and(|all| all[block] != found) {
                wrong.push(damaged("zone maps that do not match the rows"));
            }
            if !layout.key.is_empty() {
                let first = body.table.blocks[block].ordinal as u32;
                keys.extend(key_run::hashes(layout, &stored.batch).zip(first..));
            }
        }
        if let Err(e) = self.runs() {
            wrong.push(e);
        }
        // If a block is missing, the sections about all rows cannot be compared.
        let complete = row_ids.len() == body.table.rows();
        match self.stored_row_ids(body) {
            Ok(ids)
                if complete
                    && (ids.len() != row_ids.len() || row_ids.iter().any(|row| !ids.contains(row))) =>
            {
                wrong.push(self.in_sidecar(Error::damaged("row ids that do not match the rows")));
            }
            Ok(_) => {}
            Err(e) => wrong.push(e),
        }
        if !body.in_row_order {
            ordinals.sort_unstable();
            let found = ordinals.iter().map(|(_, ordinal)| *ordinal);
            match self.stored_order(body) {
                Ok(order) if complete && !order.iter().map(u64::from).eq(found) => {
                    wrong.push(self.in_sidecar(Error::damaged("rows at other positions than it says")));
                }
                Ok(_) => {}
                Err(e) => wrong.push(e),
            }
        }
        if !body.layout.key.is_empty() {
            keys.sort_unstable();
            match self.stored_keys(body) {
                Ok(run) if complete && !run.iter().eq(keys) => {
                    wrong.push(self.in_sidecar(Error::damaged("a key run that does not match the rows")));
                }
                Ok(_) => {}
                Err(e) => wrong.push(e),
            }
        }
        wrong
    }
}
