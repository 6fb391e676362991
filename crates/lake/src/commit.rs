//! One Iceberg commit: writes the rows and deletes that a table has and its lake lacks as files, and publishes a snapshot.
//!
//! The order of writes makes a commit atomic (K1): data files and position delete files, then a sync of their directory;
//! manifests and the manifest list, then a sync of their directory; then the metadata file gets its name, which is the
//! commit. Each file is synced before another one names it. A kill before the last step leaves files that nothing names;
//! they are swept when the lake is loaded again.

mod adopt;
mod new_rows;
mod output;
mod rewrite;
mod summary;
mod write;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iceberg::checksums;
use iceberg::manifest::{self, Content, Entry, Status};
use iceberg::metadata::{self, Metadata};
use iceberg::schema::Columns;
use iceberg::spec::{Specs, specs_of};
use table::Snapshot;
use table::materializer::Checkpoint;
use types::{Kind, Lsn, Result, RowId};

use crate::erasure::ErasureStart;
use crate::expiry;
use crate::options::Options;
use crate::order::RowOrder;
use crate::rest::{self, CatalogEntry};
use crate::row_ids;
use crate::state::{DeleteFile, Garbage, Lake, LiveFile, RetainedSnapshot};

pub(crate) use adopt::adopt;
pub(crate) use new_rows::bytes_of;

/// The result of a commit.
pub(crate) struct CommitResult {
    pub lake: Lake,
    pub row: RowId,
    /// Files that were rewritten, and deleted rows that they had contained.
    pub rewritten: u64,
    pub rows_erased: u64,
    pub snapshots_dropped: u64,
    /// True if no file of the lake contains a row that was deleted when the erasure began, and no snapshot but the new one
    /// is left.
    pub is_cleared: bool,
    /// Data files that contained a deleted row before this commit; set only on the first commit of an erasure.
    pub touched: HashSet<Arc<str>>,
    /// True if every planned rewrite of the existing files was done.
    pub is_complete: bool,
}

/// The purpose of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    Land,
    /// Replaces files by those of another program.
    Adopt,
    /// Removes every file and snapshot that contains a row deleted when the erasure began. `None` if this commit begins it.
    Erase(Option<&'a ErasureStart>),
    /// Merges data files, position delete files and manifests as far as possible, whether or not that pays yet.
    Merge,
    /// Drops snapshots that have expired.
    Expire,
}

/// Lands the rows and deletes of `table` after `from`, which is the position of `base` or a later one with the same rows.
/// Returns `None` if no commit is needed and only the position advances, because the rows in between are already deleted.
pub(crate) fn commit(
    base: &Arc<Lake>,
    table: &Snapshot,
    from: &Checkpoint,
    columns: &Arc<Columns>,
    options: &Options,
    purpose: Purpose<'_>,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<CommitResult>> {
    // The run has to be registered before anything is written under its id.
    options.run_id()?;
    let mut work = CommitBuilder::begin(base, table, columns, options, purpose, tick)?;
    let outcome = work.run(from);
    if outcome.is_err() {
        work.remove_made_files();
    }
    outcome
}

/// Returns a random id that no snapshot of the table has.
fn snapshot_id(base: &Lake) -> i64 {
    loop {
        let id = (base.store.env.random.next_u64() >> 1) as i64;
        if id != 0 && base.metadata.snapshot(id).is_none() {
            return id;
        }
    }
}

/// Returns the metadata of the next commit, still without its snapshot and position.
fn next_metadata(base: &Lake, columns: &Columns) -> Metadata {
    let mut next = base.metadata.clone();
    if base.catalog_entry.is_none() {
        next.metadata_log.push(base.metadata_log_entry());
        // A database that took over the warehouse of one that is gone also takes over its tables.
        if let Some(owner) = base.store.owner() {
            next.set_database(owner);
        }
    }
    if !base.matches_definition(columns) {
        next.set_schema(&columns.iceberg, columns.last_id);
        next.set_layout(&columns.layout);
    }
    next
}

struct CommitBuilder<'a> {
    base: &'a Arc<Lake>,
    table: &'a Snapshot,
    columns: &'a Arc<Columns>,
    options: &'a Options,
    purpose: Purpose<'a>,
    tick: &'a mut dyn FnMut(u64) -> Result<()>,
    /// The order of rows in new files, and its Iceberg id, which is `None` for row-id order.
    order: Arc<RowOrder>,
    sort_order: Option<i32>,
    /// The partition specs of `next`.
    specs: Arc<Specs>,
    next: Metadata,
    snapshot_id: i64,
    /// Prefix of the new files' names.
    unique: i64,
    /// True if manifests are rewritten so that they have metrics of columns added later.
    adds_metrics: bool,
    /// Position delete files that are merged per partition, and whether all manifests are merged: both at another program's
    /// request.
    delete_files_to_merge: HashSet<Arc<str>>,
    merges_manifests: bool,
    /// Additional entries for the snapshot's summary.
    extra_summary: BTreeMap<String, String>,
    /// Number of file names assigned so far.
    files: u32,
    made: Vec<PathBuf>,
    made_metadata: Vec<PathBuf>,
}

/// Deleted positions by data file, given as its index in the base's list.
type PositionsByFile = Vec<(usize, Vec<u64>)>;

impl<'a> CommitBuilder<'a> {
    fn begin(
        base: &'a Arc<Lake>,
        table: &'a Snapshot,
        columns: &'a Arc<Columns>,
        options: &'a Options,
        purpose: Purpose<'a>,
        tick: &'a mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<CommitBuilder<'a>> {
        let next = next_metadata(base, columns);
        let snapshot_id = snapshot_id(base);
        Ok(CommitBuilder {
            base,
            table,
            columns,
            options,
            purpose,
            tick,
            order: Arc::new(RowOrder::of(columns)?),
            sort_order: (!columns.layout.sorts.is_empty()).then_some(next.default_sort_order_id),
            specs: if base.metadata.partition_specs == next.partition_specs {
                base.specs.clone()
            } else {
                Arc::new(specs_of(&next)?)
            },
            next,
            snapshot_id,
            unique: snapshot_id,
            adds_metrics: false,
            delete_files_to_merge: HashSet::new(),
            merges_manifests: false,
            extra_summary: BTreeMap::new(),
            files: 0,
            made: Vec::new(),
            made_metadata: Vec::new(),
        })
    }

    /// Removes the files of a failed commit, which nothing names. Files that cannot be removed now are swept when the lake
    /// is loaded again. Does nothing if the commit may have been published.
    fn remove_made_files(&self) {
        if self.base.outcome_unknown.load(Ordering::Acquire) {
            return;
        }
        for path in self.made.iter().chain(&self.made_metadata) {
            let _ = self.base.store.remove(path);
        }
    }
}

impl CommitBuilder<'_> {
    fn run(&mut self, from: &Checkpoint) -> Result<Option<CommitResult>> {
        let base = self.base;
        if self.is_erasure() {
            expiry::check_branches(base)?;
        }
        let is_new = !base.matches_definition(self.columns);
        let gone = base.locate(&self.deleted_rows(from)?)?;
        // New rows land first, then planned files are rewritten.
        let last = RowId(self.table.next_row().0 - 1);
        let (added, row) = self.land_rows(from.row.next(), last)?;
        let (replaced, removed, is_complete) = self.rewrite_planned(is_new, &gone, added.len())?;
        let positions: PositionsByFile =
            gone.iter().filter(|(at, _)| !removed.contains(&base.data[*at].path)).cloned().collect();
        let rewritten = removed.len() as u64;
        let rows_erased = self.deleted_in(&removed, &gone);
        let begins = self.purpose == Purpose::Erase(None);
        let touched = if begins { self.touched(&gone) } else { HashSet::new() };
        let changed = SnapshotChanges { added, replaced, removed, positions };
        let lsn = self.table.lsn();
        let clears = self.is_erasure() && is_complete;
        self.adds_metrics =
            is_new && base.data.iter().any(|live| !self.columns_without_metrics(&live.entry).is_empty());
        let merges = self.purpose == Purpose::Merge && self.has_many_files();
        let tells_otherwise =
            self.adds_metrics || merges || clears && (self.has_traces() || self.has_doubtful());
        let expires = matches!(self.purpose, Purpose::Merge | Purpose::Expire) && {
            expiry::is_due(base, self.options, base.store.env.clock.now() / 1000)
        };
        let is_same = changed.is_empty() && !tells_otherwise && !is_new && !expires;
        // An erasure also has to drop older metadata files, because they describe earlier contents.
        let is_alone = base.metadata.snapshots.len() <= 1 && base.metadata.metadata_log.is_empty();
        if is_same && (!clears || is_alone) {
            return Ok(None);
        }
        let lake = if changed.is_empty() && !tells_otherwise {
            self.metadata_only(clears)?
        } else {
            self.land(changed, row, lsn, clears)?
        };
        let count = |of: &Lake| of.metadata.snapshots.len() as u64;
        let snapshots = count(base) + u64::from(lake.snapshot_id() != base.snapshot_id());
        let snapshots_dropped = snapshots.saturating_sub(count(&lake));
        let is_cleared = clears;
        Ok(Some(CommitResult {
            lake,
            row,
            rewritten,
            rows_erased,
            snapshots_dropped,
            is_cleared,
            touched,
            is_complete,
        }))
    }

    fn is_erasure(&self) -> bool {
        matches!(self.purpose, Purpose::Erase(_))
    }

    /// Returns the columns that a data file's entry has no metrics for, because they are newer than the file. Iceberg does
    /// not require these metrics, but DuckDB 1.4 takes their absence for a file without nulls.
    fn columns_without_metrics(&self, entry: &Entry) -> Vec<i32> {
        if entry.file.content != Content::Data {
            return Vec::new();
        }
        let known: HashSet<i32> = entry.file.metrics.values.iter().map(|(id, _)| *id).collect();
        self.columns.leaves.iter().map(|leaf| leaf.id).filter(|id| !known.contains(id)).collect()
    }

    /// Returns the entry with metrics for all columns, if this commit rewrites manifests for that.
    fn with_all_metrics(&self, mut entry: Entry) -> Entry {
        let columns = if self.adds_metrics { self.columns_without_metrics(&entry) } else { Vec::new() };
        if !columns.is_empty() {
            let file = Arc::make_mut(&mut entry.file);
            columns.into_iter().for_each(|column| file.metrics.add_nulls(column, file.rows));
        }
        entry
    }

    /// Returns true if the current snapshot's manifests still name files that left the table.
    fn has_traces(&self) -> bool {
        !self.base.emptied_manifests.is_empty()
            || self.base.manifests.iter().any(|m| m.file.files[Status::Deleted as usize] > 0)
    }

    /// Returns true if there are files that a request of an earlier process may still commit. They stay until the table has
    /// moved on.
    fn has_doubtful(&self) -> bool {
        self.base.catalog_entry.as_ref().is_some_and(|entry| !entry.unconfirmed.is_empty())
    }

    /// Returns true if position delete files or manifests can be merged.
    fn has_many_files(&self) -> bool {
        has_many_files(self.base)
    }

    /// Returns the number of deleted rows in files that are rewritten.
    fn deleted_in(&self, removed: &HashSet<Arc<str>>, gone: &PositionsByFile) -> u64 {
        let is_removed = |live: &LiveFile| removed.contains(&live.path);
        let before: u64 =
            self.base.data.iter().filter(|live| is_removed(live)).map(|live| live.deleted).sum();
        let now = gone.iter().filter(|(at, _)| is_removed(&self.base.data[*at]));
        before + now.map(|(_, positions)| positions.len() as u64).sum::<u64>()
    }

    /// Returns the ids of rows that are in the lake and no longer live, ascending.
    fn deleted_rows(&self, from: &Checkpoint) -> Result<Vec<RowId>> {
        match self.table.deleted_since(from) {
            Err(error) if error.kind() == Kind::NotFound => {}
            known => return known,
        }
        // The table has forgotten older deletes, so every row of the lake is checked.
        let mut already: HashMap<Arc<str>, HashSet<u64>> = HashMap::new();
        for deletes in &self.base.deletes {
            for of in self.base.positions(deletes)? {
                already.entry(of.path).or_default().extend(of.positions);
            }
        }
        let mut gone = Vec::new();
        for live in &self.base.data {
            let deleted = already.get(&live.path);
            row_ids::scan(self.base.data_file(live)?, None, &mut |position, row| {
                if deleted.is_none_or(|deleted| !deleted.contains(&position)) && !self.table.is_live(row)? {
                    gone.push(row);
                }
                Ok(())
            })
            .map_err(|e| e.with("file", &live.path))?;
        }
        gone.sort_unstable();
        Ok(gone)
    }

    fn added(&self, file: manifest::DataFile) -> Entry {
        let sequence = self.base.metadata.last_sequence_number + 1;
        Entry {
            status: Status::Added,
            snapshot_id: self.snapshot_id,
            sequence,
            file_sequence: sequence,
            file: Arc::new(file),
        }
    }

    /// Returns an unused file name, made unique by a snapshot id or another random id: the local path and the path in
    /// Iceberg metadata.
    fn new_file(&mut self, sub: &str, suffix: &str) -> (PathBuf, String) {
        self.files += 1;
        let name = format!("{:016x}-{}.{suffix}", self.unique, self.files);
        (self.base.dir.join(sub).join(&name), format!("{}/{sub}/{name}", self.base.metadata.location))
    }

    /// Sets the time of the commit: the present, and never earlier than the last commit.
    fn stamp(&mut self) {
        self.next.last_updated_ms = self.next.last_updated_ms.max(self.base.store.env.clock.now() / 1000);
    }

    /// Publishes new metadata over the same files, at the same position.
    fn metadata_only(&mut self, clears: bool) -> Result<Lake> {
        self.stamp();
        let base = self.base;
        let mut lake = self.next_lake(base.row, base.lsn);
        lake.manifests = base.manifests.clone();
        lake.emptied_manifests = base.emptied_manifests.clone();
        (lake.retained, lake.side_snapshots) = (base.retained.clone(), base.side_snapshots.clone());
        (lake.data, lake.deletes) = (base.data.clone(), base.deletes.clone());
        self.publish(lake, clears)
    }

    fn land(&mut self, changed: SnapshotChanges, row: RowId, lsn: Lsn, clears: bool) -> Result<Lake> {
        let base = self.base;
        let (store, sequence) = (&base.store, base.metadata.last_sequence_number + 1);
        let (deletes, new_positions) = self.write_positions(&changed)?;
        store.sync_dir(&base.dir.join("data"))?;

        self.stamp();
        let dropped_deletes: HashSet<&str> = deletes.dropped.iter().map(|path| &**path).collect();
        let data_entries = changed.added.iter().chain(&changed.replaced).cloned().collect();
        let is_removed = |entry: &Entry| match entry.file.content {
            Content::Data => changed.removed.contains(entry.file.path.as_str()),
            Content::Deletes => dropped_deletes.contains(entry.file.path.as_str()),
        };
        let mut manifests = self.write_manifests(Content::Data, data_entries, &is_removed)?;
        let delete_entries = deletes.added.iter().map(|deletes| deletes.entry.clone()).collect();
        manifests.extend(self.write_manifests(Content::Deletes, delete_entries, &is_removed)?);
        let listed: Vec<_> = manifests.iter().map(|m| m.file.clone()).collect();
        let (list_path, list) = self.new_file("metadata", "list.avro");
        self.made_metadata.push(list_path.clone());
        let parent = self.next.current_snapshot_id;
        let list_bytes = manifest::write_list(&listed, self.snapshot_id, parent, sequence);
        let list_checksum = checksums::text_of(&list_bytes);
        store.write(&list_path, list_bytes)?;
        // Manifests without live files only record the files that this snapshot removed.
        let (manifests, emptied_manifests): (Vec<_>, Vec<_>) =
            manifests.into_iter().partition(|m| m.file.live_files() > 0);

        let data = self.live_after(&changed)?;
        let is_kept = |d: &&Arc<DeleteFile>| !dropped_deletes.contains(d.entry.file.path.as_str());
        let mut live_deletes: Vec<Arc<DeleteFile>> = base.deletes.iter().filter(is_kept).cloned().collect();
        live_deletes.extend(deletes.added.iter().cloned());

        let mut summary = self.summary(&changed, &deletes, new_positions, &data, &live_deletes, row, lsn);
        summary.insert(checksums::LIST_KEY.into(), list_checksum);
        self.next.set_position(row, lsn);
        self.next.set_run(self.options.run_id()?);
        self.next.add_snapshot(metadata::Snapshot {
            snapshot_id: self.snapshot_id,
            parent_snapshot_id: parent,
            sequence_number: sequence,
            timestamp_ms: self.next.last_updated_ms,
            manifest_list: list.clone(),
            summary,
            schema_id: Some(self.next.current_schema_id),
            other: Default::default(),
        });
        let (mut retained, mut side_snapshots) = (base.retained.clone(), base.side_snapshots.clone());
        let removed = changed.removed.iter().cloned().chain(deletes.dropped.iter().cloned());
        let mut removed: Vec<Arc<str>> = removed.collect();
        // A snapshot that a branch points to is retained as long as the branch, so it becomes a side snapshot.
        if let Some(held) = retained.pop_if(|before| base.metadata.branch_snapshots().contains(&before.id)) {
            removed.extend(held.removed.iter().cloned());
            side_snapshots.push(Arc::new(base.current_as_side_snapshot(&held)));
        } else if let Some(before) = retained.last_mut() {
            let still: HashSet<&str> = listed.iter().map(|m| m.path.as_str()).collect();
            let named = base.manifests.iter().map(|m| m.file.path.as_str());
            let named = named.chain(base.emptied_manifests.iter().map(|path| &**path));
            Arc::make_mut(before).expiring_manifests =
                named.filter(|path| !still.contains(path)).map(Arc::from).collect();
        }
        retained.push(Arc::new(RetainedSnapshot {
            id: self.snapshot_id,
            list: list.into(),
            expiring_manifests: Vec::new(),
            removed,
        }));
        let mut lake = self.next_lake(row, lsn);
        (lake.data, lake.deletes, lake.manifests) = (data, live_deletes, manifests);
        (lake.retained, lake.side_snapshots) = (retained, side_snapshots);
        lake.emptied_manifests = emptied_manifests.iter().map(|m| m.file.path.as_str().into()).collect();
        self.publish(lake, clears)
    }

    /// Returns the data files after a change, sorted by their first row.
    fn live_after(&self, changed: &SnapshotChanges) -> Result<Vec<Arc<LiveFile>>> {
        let mut after: Vec<Arc<LiveFile>> = self.base.data.clone();
        for (at, positions) in &changed.positions {
            let old = &self.base.data[*at];
            let deleted = old.deleted + positions.len() as u64;
            after[*at] = Arc::new(LiveFile::of(old.entry.clone(), deleted)?);
        }
        after.retain(|live| !changed.removed.contains(&live.path));
        if self.adds_metrics {
            let described =
                |live: &Arc<LiveFile>| LiveFile::of(self.with_all_metrics(live.entry.clone()), live.deleted);
            after = after.iter().map(|live| described(live).map(Arc::new)).collect::<Result<_>>()?;
        }
        for entry in changed.added.iter().chain(&changed.replaced) {
            after.push(Arc::new(LiveFile::of(entry.clone(), 0)?));
        }
        after.sort_by(|a, b| (a.first, &a.path).cmp(&(b.first, &b.path)));
        Ok(after)
    }

    /// Returns the next lake, without its files.
    fn next_lake(&mut self, row: RowId, lsn: Lsn) -> Lake {
        let base = self.base;
        Lake {
            store: base.store.clone(),
            dir: base.dir.clone(),
            // Tables in a catalog have no version numbers of ours.
            version: if base.catalog_entry.is_some() { 0 } else { base.version + 1 },
            metadata: self.next.clone(),
            row,
            lsn,
            data: Vec::new(),
            deletes: Vec::new(),
            manifests: Vec::new(),
            emptied_manifests: Vec::new(),
            retained: Vec::new(),
            side_snapshots: Vec::new(),
            specs: self.specs.clone(),
            columns: Some(self.columns.clone()),
            garbage: Garbage::new(base.garbage.paths()),
            missing_since: AtomicU64::new(0),
            outcome_unknown: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            cache: base.cache.clone(),
            catalog_entry: base.catalog_entry.as_ref().map(CatalogEntry::next),
            replacements: base.replacements.clone(),
        }
    }

    /// Commits: writes the metadata file, or sends the request to the catalog.
    fn publish(&mut self, mut lake: Lake, clears: bool) -> Result<Lake> {
        let now_ms = lake.metadata.last_updated_ms;
        if clears {
            expiry::expire_all_but_current(&mut lake)?
        } else {
            expiry::expire(&mut lake, self.options, now_ms)?
        }
        if lake.catalog_entry.is_some() {
            let (tick, base) = (&mut self.tick, self.base);
            base.store.sync_dir(&base.dir.join("metadata"))?;
            base.store.check_last_start()?;
            return rest::commit(base, lake, || tick(0));
        }
        let bytes = lake.metadata.to_file()?;
        let written = bytes.len() as u64;
        let (tick, outcome_unknown) = (&mut self.tick, &self.base.outcome_unknown);
        lake.store.publish(&lake.metadata_path(), bytes, || {
            tick(written)?;
            // The commit may exist from this point on, whatever error the disk reports.
            outcome_unknown.store(true, Ordering::Release);
            Ok(())
        })?;
        lake.write_hint()?;
        Ok(lake)
    }
}

/// Returns true if several position delete files of one partition, or several small manifests of one content and spec,
/// exist.
pub(crate) fn has_many_files(lake: &Lake) -> bool {
    let mut seen = HashSet::new();
    let mut small = lake.manifests.iter().filter(|m| m.file.live_files() < write::MANIFEST_FULL_FILES);
    if small.any(|m| !seen.insert((m.file.spec, m.file.content as u8))) {
        return true;
    }
    let mut seen = HashSet::new();
    let mut files = lake.deletes.iter().map(|deletes| &deletes.entry.file);
    files.any(|file| !seen.insert((file.spec, &*file.partition)))
}

/// The changes from one snapshot of the lake to the next.
struct SnapshotChanges {
    /// Files of new rows.
    added: Vec<Entry>,
    /// Files with rows that were in other files before.
    replaced: Vec<Entry>,
    /// Paths of files that were rewritten.
    removed: HashSet<Arc<str>>,
    /// Newly deleted positions in files that stay.
    positions: PositionsByFile,
}

impl SnapshotChanges {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.positions.is_empty()
    }

    /// Returns true if rows of the base snapshot disappeared with the rewritten files.
    fn dropped_rows(&self, base: &Lake) -> bool {
        let removed = base.data.iter().filter(|live| self.removed.contains(&live.path));
        let before: u64 = removed.map(|live| live.entry.file.rows - live.deleted).sum();
        before != self.replaced.iter().map(|e| e.file.rows).sum::<u64>()
    }
}

#[derive(Default)]
struct DeleteFileChanges {
    added: Vec<Arc<DeleteFile>>,
    /// Paths of position delete files that the new snapshot no longer has.
    dropped: Vec<Arc<str>>,
}
