//! Files of positions and manifests, merged with older ones on the way.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use types::Result;

use super::{Changed, NewDeletes, Work};
use crate::delete_file::{self, Positions};
use crate::files;
use crate::manifest::{self, Content, Entry, Status};
use crate::metadata::Metadata;
use crate::state::Manifest;
use crate::tiers;

/// The smallest size class of files of positions, in rows.
const DELETES_UNIT_ROWS: u64 = 64;
/// Files of so many positions and manifests of so many files are not merged further.
const DELETES_FULL_ROWS: u64 = 4 << 20;
const MANIFEST_FULL_FILES: u64 = 16 << 10;

impl Work<'_> {
    /// Writes the new positions, together with older files of them that are to be merged. Files whose data files are all
    /// gone are dropped.
    pub(super) fn write_positions(&mut self, changed: &Changed) -> Result<(NewDeletes, u64)> {
        let base = self.base;
        let count: u64 = changed.positions.iter().map(|(_, of)| of.positions.len() as u64).sum();
        let mut new: Vec<Positions> = changed.positions.iter().map(|(_, of)| of.clone()).collect();
        let mut out = NewDeletes::default();
        let mut sizes: Vec<u64> = base.deletes.iter().map(|d| d.entry.file.rows).collect();
        if count > 0 {
            sizes.push(count);
        }
        let merged = tiers::pick(&sizes, DELETES_UNIT_ROWS, DELETES_FULL_ROWS).unwrap_or(0..0);
        let paths: HashSet<&str> = base.data.iter().map(|live| &*live.path).collect();
        let live = |path: &str| !changed.removed.contains(path) && paths.contains(path);
        // Positions in files that were written anew mean nothing any more.
        let moot = |positions: &[Positions]| positions.iter().all(|of| !live(&of.path));
        let mut of_merged: Vec<Positions> = Vec::new();
        for (at, deletes) in base.deletes.iter().enumerate() {
            let in_merge = merged.contains(&at);
            if !in_merge && changed.removed.is_empty() {
                continue;
            }
            let positions = base.positions(deletes)?;
            if in_merge || moot(&positions) {
                out.dropped.push(deletes.entry.file.path.clone());
                of_merged.extend(positions.into_iter().filter(|of| live(&of.path)));
            }
        }
        new.extend(of_merged);
        let mut by_path: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        for of in new {
            by_path.entry(of.path).or_default().extend(of.positions);
        }
        if !by_path.is_empty() {
            let all = by_path.into_iter().map(|(path, mut positions)| {
                positions.sort_unstable();
                positions.dedup();
                Positions { path, positions }
            });
            let (path, location) = self.new_file("data", "deletes.parquet");
            self.made.push(path.clone());
            let file = delete_file::write(&base.env, path, location, all.collect())?;
            (self.tick)(file.bytes)?;
            out.added.push(self.added(file));
        }
        Ok((out, count))
    }

    /// The manifests of one kind that the new snapshot has. Those without a removed file stay, unless they are merged.
    pub(super) fn write_manifests(
        &mut self,
        content: Content,
        mut entries: Vec<Entry>,
        is_removed: &dyn Fn(&Entry) -> bool,
        metadata: &Metadata,
    ) -> Result<Vec<Arc<Manifest>>> {
        let old: Vec<&Arc<Manifest>> =
            self.base.manifests.iter().filter(|m| m.file.content == content).collect();
        let mut sizes: Vec<u64> = old.iter().map(|m| m.file.live_files()).collect();
        sizes.push(entries.len() as u64);
        let merged = tiers::pick(&sizes, 1, MANIFEST_FULL_FILES).unwrap_or(0..0);
        let mut kept = Vec::with_capacity(old.len() + 1);
        let mut carried = Vec::new();
        for (at, manifest) in old.into_iter().enumerate() {
            let affected = manifest.entries.iter().any(is_removed);
            if !affected && !merged.contains(&at) {
                kept.push(manifest.clone());
                continue;
            }
            for entry in &manifest.entries {
                let mut entry = entry.clone();
                entry.status = Status::Existing;
                if is_removed(&entry) {
                    (entry.status, entry.snapshot_id) = (Status::Deleted, self.snapshot_id);
                }
                carried.push(entry);
            }
        }
        entries.splice(0..0, carried);
        if entries.is_empty() {
            return Ok(kept);
        }
        let schema_id = metadata.current_schema_id;
        let schema = metadata.schema().map(ToString::to_string).unwrap_or_default();
        let (path, location) = self.new_file("metadata", "avro");
        self.made_metadata.push(path.clone());
        let sequence = self.base.metadata.last_sequence_number + 1;
        let (bytes, file) =
            manifest::write(location, content, &entries, &schema, schema_id, self.snapshot_id, sequence);
        files::write(&self.base.env, &path, &bytes)?;
        entries.retain(|entry| entry.status != Status::Deleted);
        kept.push(Arc::new(Manifest { file, entries }));
        Ok(kept)
    }
}
