//! Adopts a commit of another program that rewrites files: its data files replace ours if they have the same rows.
//!
//! Nothing in such a commit is trusted. Its manifests provide only names. The rows of the replaced and of the new files are
//! read and compared: ids one by one, values by a hash of each column ([`RowComparison`]), deleted positions directly. Then the lake
//! makes the commit itself, with manifests, position delete files and a summary of its own, at its present position (K1),
//! under the snapshot id that the program chose. So mistakes in another program's manifests, partition values or counts
//! cannot get in, and a kill leaves the same as in any commit. The statistics and page indexes in its data files are
//! compared with the values, because readers use them to skip data.
//!
//! The adopted data files stay in place and are synced before anything names them. The other program's manifests, manifest
//! list and position delete files become garbage with the commit. After a refusal all its files stay, for that program to
//! remove.

mod file;
mod offered_snapshot;
mod pages;
mod statistics;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use iceberg::manifest::Entry;
use iceberg::schema::Columns;
use roaring::RoaringTreemap;
use table::Snapshot;
use types::{Error, Result, RowId};

use super::new_rows::SCAN_BYTES;
use super::{CommitBuilder, Purpose, SnapshotChanges};
use crate::catalog::{TableMetadata, requirement};
use crate::delete_file;
use crate::digest::Digest;
use crate::live_rows::LiveRows;
use crate::options::Options;
use crate::replacement::Replacement;
use crate::row_ids::ids_of;
use crate::state::{DeleteFile, Lake};

use offered_snapshot::{OfferedSnapshot, refusal_from, refused};

/// Rows that one commit may replace. The ids of rows not yet found in the new files are in memory, at up to 2 bytes each.
const ROWS_MAX: u64 = 128 << 20;

/// Summary keys that are copied from another program's snapshot.
const SUMMARY_KEYS: [&str; 6] =
    ["engine-name", "engine-version", "app-id", "app-name", "spark.app.id", "iceberg-version"];
const SUMMARY_VALUE_BYTES_MAX: usize = 256;

/// Commits another program's replacement of files if it has the same rows. The table's definition must be that of `base`.
/// An error of kind [`types::Kind::Conflict`] gives the reason of a refusal; nothing was committed then.
pub(crate) fn adopt(
    base: &Arc<Lake>,
    table: &Snapshot,
    columns: &Arc<Columns>,
    options: &Options,
    replacement: &Replacement,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Lake> {
    let mut work = CommitBuilder::begin(base, table, columns, options, Purpose::Adopt, tick)?;
    let outcome = work.adopt(replacement);
    if outcome.is_err() {
        work.remove_made_files();
    }
    outcome
}

/// Deleted positions by data file.
type ByFile = BTreeMap<Arc<str>, Vec<u64>>;

impl CommitBuilder<'_> {
    fn adopt(&mut self, replacement: &Replacement) -> Result<Lake> {
        let base = self.base;
        self.check_claims(replacement)?;
        let offered = OfferedSnapshot::read(base, &replacement.manifest_list)?;
        let mut named = base.named_files()?;
        named.extend(base.garbage.paths());

        let removed: HashSet<Arc<str>> = base
            .data
            .iter()
            .filter(|live| !offered.data.contains_key(&*live.path))
            .map(|live| live.path.clone())
            .collect();
        let known: HashSet<&str> = base.data.iter().map(|live| &*live.path).collect();
        let added: Vec<&Entry> =
            offered.data.iter().filter(|(path, _)| !known.contains(path.as_str())).map(|(_, e)| e).collect();
        for entry in &added {
            let path = base.local(&entry.file.path)?;
            if named.contains(&path) {
                // The file would be removed when that snapshot expires.
                return Err(refused(format!("{} is a file of an older snapshot", entry.file.path)));
            }
        }
        let leftover = self.check_positions(&offered, &removed, &named)?;
        let replaced = self.check_rows(&removed, &added)?;
        self.make_durable(&added)?;

        // Position delete files and manifests that the program merged are merged by this commit, too.
        let dropped = self.dropped_deletes(&offered);
        self.delete_files_to_merge =
            dropped.iter().map(|deletes| deletes.entry.file.path.as_str().into()).collect();
        let has_all = base.manifests.iter().all(|m| offered.manifests.contains(m.file.path.as_str()));
        self.merges_manifests = removed.is_empty() && self.delete_files_to_merge.is_empty() && !has_all;
        self.snapshot_id = replacement.snapshot_id;
        self.next.add_adopted(replacement.snapshot_id);
        let is_copied = |(key, value): &(&String, &String)| {
            SUMMARY_KEYS.contains(&key.as_str()) && value.len() <= SUMMARY_VALUE_BYTES_MAX
        };
        let copied = replacement.summary.iter().filter(is_copied);
        self.extra_summary = copied.map(|(key, value)| (key.clone(), value.clone())).collect();
        let replaced = replaced.into_iter().map(|file| self.added(file)).collect();
        let changed = SnapshotChanges { added: Vec::new(), replaced, removed, positions: Vec::new() };
        let lake = self.land(changed, base.row, base.lsn, false)?;
        let leftover = offered.metadata.into_iter().filter(|path| !named.contains(path)).chain(leftover);
        leftover.for_each(|path| lake.garbage.push(path));
        Ok(lake)
    }

    /// Checks the commit's requirements, parent, sequence number and snapshot id against the table.
    fn check_claims(&self, replacement: &Replacement) -> Result<()> {
        let metadata = &self.base.metadata;
        requirement::check(&replacement.requirements, &TableMetadata::parse(&metadata.to_bytes()?)?)?;
        let text = |id: Option<i64>| id.map_or("none".to_owned(), |id| id.to_string());
        let (found, said) = (metadata.current_snapshot_id, replacement.parent);
        if found != said {
            let (found, said) = (text(found), text(said));
            return Err(refused(format!(
                "the current snapshot is {found}, and the new one's parent is {said}"
            )));
        }
        let next = metadata.last_sequence_number + 1;
        if replacement.sequence != next {
            return Err(refused(format!(
                "its sequence number is {}, and the next is {next}",
                replacement.sequence
            )));
        }
        if replacement.snapshot_id <= 0 || metadata.snapshot(replacement.snapshot_id).is_some() {
            return Err(refused(format!("no new snapshot can have the id {}", replacement.snapshot_id)));
        }
        Ok(())
    }

    fn dropped_deletes(&self, offered: &OfferedSnapshot) -> Vec<&Arc<DeleteFile>> {
        let is_dropped = |d: &&Arc<DeleteFile>| !offered.deletes.contains_key(d.entry.file.path.as_str());
        self.base.deletes.iter().filter(is_dropped).collect()
    }

    /// Checks that exactly the same rows are deleted in the data files that stay. Returns the paths of the program's
    /// position delete files.
    fn check_positions(
        &self,
        offered: &OfferedSnapshot,
        removed: &HashSet<Arc<str>>,
        named: &BTreeSet<PathBuf>,
    ) -> Result<Vec<PathBuf>> {
        let base = self.base;
        let stays: HashMap<&str, &Arc<str>> = base
            .data
            .iter()
            .filter(|live| !removed.contains(&live.path))
            .map(|live| (&*live.path, &live.path))
            .collect();
        let known: HashSet<&str> = base.deletes.iter().map(|d| d.entry.file.path.as_str()).collect();
        let sorted = |mut by_file: ByFile| {
            for positions in by_file.values_mut() {
                positions.sort_unstable();
                positions.dedup();
            }
            by_file
        };
        let (mut before, mut rows_left) = (ByFile::new(), 0);
        for deletes in self.dropped_deletes(offered) {
            rows_left += deletes.entry.file.rows;
            for of in base.positions(deletes)?.into_iter().filter(|of| stays.contains_key(&*of.path)) {
                before.entry(of.path).or_default().extend(of.positions);
            }
        }
        let (mut after, mut files) = (ByFile::new(), Vec::new());
        for (called, entry) in offered.deletes.iter().filter(|(path, _)| !known.contains(path.as_str())) {
            let path = base.local(called)?;
            if named.contains(&path) {
                return Err(refused(format!("{called} is a file of an older snapshot")));
            }
            // A rewrite of position delete files has no more positions than there were.
            rows_left = rows_left.checked_sub(entry.file.rows).ok_or_else(|| {
                refused("its position delete files delete more rows than the files that they replace")
            })?;
            let bytes = offered_snapshot::read(base, &path, called)?;
            let found =
                delete_file::read_up_to(bytes, entry.file.rows).map_err(|e| refusal_from(e, called))?;
            for of in found {
                let of_path = offered.lake_path(&of.path);
                match stays.get(of_path) {
                    Some(path) => after.entry((*path).clone()).or_default().extend(of.positions),
                    // Positions in a file that is gone have no meaning.
                    None if !offered.data.contains_key(of_path) => {}
                    None => {
                        return Err(refused(format!("it deletes rows of {of_path}, which it adds itself")));
                    }
                }
            }
            files.push(path);
        }
        let (before, after) = (sorted(before), sorted(after));
        if before != after {
            let differs = |path: &&Arc<str>| before.get(&**path) != after.get(&**path);
            let path = before.keys().chain(after.keys()).find(differs).map_or("", |path| path);
            return Err(refused(format!("it deletes other rows of {path} than were deleted there")));
        }
        Ok(files)
    }

    /// Checks that the added files have exactly the live rows of the removed files. Returns their descriptions for our
    /// manifests.
    fn check_rows(
        &mut self,
        removed: &HashSet<Arc<str>>,
        added: &[&Entry],
    ) -> Result<Vec<iceberg::manifest::DataFile>> {
        let base = self.base;
        let goes = || base.data.iter().filter(|live| removed.contains(&live.path));
        let before: u64 = goes().map(|live| live.entry.file.rows - live.deleted).sum();
        let after = added.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.file.rows));
        if before != after {
            return Err(refused(format!("it has {after} rows instead of {before}")));
        }
        if before > ROWS_MAX {
            return Err(refused(format!("it rewrites {before} rows, and one commit may rewrite {ROWS_MAX}")));
        }
        let mut rows = RowComparison::new(self.columns);
        let mut deleted = self.deleted_positions(removed)?;
        for live in goes() {
            let mut positions = deleted.remove(&live.path).unwrap_or_default();
            positions.sort_unstable();
            positions.dedup();
            let in_file = |e: Error| e.with("file", &live.path);
            let bytes = base.data_file(live)?;
            let mut source =
                LiveRows::open(bytes, self.columns.clone(), positions, SCAN_BYTES).map_err(in_file)?;
            while let Some(batch) = source.next().map_err(in_file)? {
                rows.add_removed(&batch).map_err(in_file)?;
                (self.tick)(0)?;
            }
        }
        let mut files = Vec::with_capacity(added.len());
        for entry in added {
            files.push(self.check_file(entry, &mut rows)?);
        }
        rows.finish()?;
        Ok(files)
    }

    /// Syncs files that another program wrote, because it may not have synced them. Also checks that they can be removed
    /// later.
    fn make_durable(&self, added: &[&Entry]) -> Result<()> {
        let (store, data) = (&self.base.store, self.base.dir.join("data"));
        let mut dirs: BTreeSet<&Path> = BTreeSet::new();
        let paths =
            added.iter().map(|entry| self.base.local(&entry.file.path)).collect::<Result<Vec<_>>>()?;
        for path in &paths {
            store.sync(path)?;
            dirs.extend(path.ancestors().skip(1).take_while(|dir| dir.starts_with(&data)));
        }
        for dir in dirs {
            if dir != data && !store.is_remote() {
                // A probe left by a kill is swept like any file that nothing names.
                let probe = dir.join(format!("{:016x}.probe.parquet", self.unique));
                store.write(&probe, Vec::new()).and(store.remove(&probe)).map_err(|error| {
                    refused(format!("files in {} could not be removed again: {error}", dir.display()))
                })?;
            }
            store.sync_dir(dir)?;
        }
        Ok(())
    }
}

/// Compares the rows of the removed files with those of the added ones.
struct RowComparison {
    /// Ids in the removed files that were not found in the added ones so far.
    ids: RoaringTreemap,
    removed: Digest,
    added: Digest,
}

impl RowComparison {
    fn new(columns: &Columns) -> RowComparison {
        let none = Digest::of_columns(&columns.arrow);
        RowComparison { ids: RoaringTreemap::new(), removed: none.clone(), added: none }
    }

    fn add_removed(&mut self, batch: &RecordBatch) -> Result<()> {
        for id in ids_of(batch.column(0))? {
            if !self.ids.insert(*id as u64) {
                return Err(Error::damaged(format!("row {id} is in two files of the lake")));
            }
        }
        self.removed.add(batch, u64::MAX)
    }

    fn add_added(&mut self, batch: &RecordBatch) -> Result<()> {
        for id in ids_of(batch.column(0))? {
            if !self.ids.remove(*id as u64) {
                return Err(refused(format!(
                    "row {id} is in it twice, or was in none of the files that it replaces"
                )));
            }
        }
        self.added.add(batch, u64::MAX)
    }

    fn finish(self) -> Result<()> {
        if let Some(row) = self.ids.min() {
            let more = match self.ids.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            return Err(refused(format!("row {}{more} is not in it", RowId(row))));
        }
        let differences = self.removed.differences(&self.added, ["what it replaces", "the replacement"]);
        match differences.first() {
            None => Ok(()),
            Some(first) => Err(refused(first)),
        }
    }
}
