//! One commit: what a table has and its lake lacks, as files and a snapshot.
//!
//! The order makes it all or nothing (K1): data files and files of positions, their directory; manifests and their list,
//! their directory; then the metadata file gets its name, which is the commit. Everything is synced before the next
//! thing names it. What a kill leaves before that is named by nothing and is swept when the lake is read again.

mod summary;
mod write;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use table::Snapshot;
use table::materializer::Checkpoint;
use types::{Error, Kind, Lsn, Result, RowId};

use crate::data_file;
use crate::delete_file::Positions;
use crate::expiry;
use crate::files;
use crate::manifest::{self, Content, Entry, Status};
use crate::metadata::{self, Metadata};
use crate::options::Options;
use crate::schema::Columns;
use crate::state::{Deletes, Garbage, Kept, Lake, Live, Manifest, metadata_name};
use crate::tiers;

/// The smallest size class of data files.
const DATA_UNIT_BYTES: u64 = 4 << 10;

/// Large rows are read about so many bytes at a time.
const SCAN_BYTES: u64 = 8 << 20;

/// What a commit came to.
pub(crate) struct Committed {
    pub lake: Lake,
    pub row: RowId,
}

/// Lands what `table` has beyond `from`, which is where `base` stands (its own position, or one behind it at which the
/// table's rows are the same). `None` if that is nothing but a position: the rows in between are gone again.
pub(crate) fn commit(
    base: &Arc<Lake>,
    table: &Snapshot,
    from: &Checkpoint,
    columns: &Arc<Columns>,
    options: &Options,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<Committed>> {
    let mut work = Work {
        base,
        table,
        columns,
        options,
        tick,
        snapshot_id: snapshot_id(base),
        files: 0,
        made: Vec::new(),
        made_metadata: Vec::new(),
    };
    let outcome = work.run(from);
    if outcome.is_err() && !base.unsure.load(Ordering::Acquire) {
        // What was begun is named by nothing. What cannot be removed now is swept when the lake is read again.
        for path in work.made.iter().chain(&work.made_metadata) {
            let _ = files::remove(&base.env, path);
        }
    }
    outcome
}

/// An id that no snapshot of the table has.
fn snapshot_id(base: &Lake) -> i64 {
    loop {
        let id = (base.env.random.next_u64() >> 1) as i64;
        if id != 0 && base.metadata.snapshot(id).is_none() {
            return id;
        }
    }
}

struct Work<'a> {
    base: &'a Arc<Lake>,
    table: &'a Snapshot,
    columns: &'a Arc<Columns>,
    options: &'a Options,
    tick: &'a mut dyn FnMut(u64) -> Result<()>,
    snapshot_id: i64,
    /// Files named so far.
    files: u32,
    made: Vec<PathBuf>,
    made_metadata: Vec<PathBuf>,
}

impl Work<'_> {
    fn run(&mut self, from: &Checkpoint) -> Result<Option<Committed>> {
        let base = self.base;
        let new_schema = !base.metadata.has_schema(&self.columns.iceberg);
        let gone = self.gone(from)?;
        // Rows to land, then neighbours to merge: those read what is live now, so no position of theirs is needed.
        let last = RowId(self.table.next_row().0 - 1);
        let (added, row) = self.write_rows(from.row.next(), last, self.options.commit_bytes_max)?;
        let rewritten = self.to_rewrite(new_schema, &gone);
        let mut replaced = Vec::new();
        let mut removed: HashSet<Arc<str>> = HashSet::new();
        if let Some(range) = rewritten {
            let old = &base.data[range];
            let (first, last) = (old[0].first, old[old.len() - 1].last);
            replaced = self.write_rows(first, last, u64::MAX)?.0;
            removed = old.iter().map(|live| live.path.clone()).collect();
        }
        let positions = self.positions(&gone, &removed)?;
        if added.is_empty() && positions.is_empty() && removed.is_empty() && !new_schema {
            return Ok(None);
        }
        let lsn = self.table.lsn();
        let changed = Changed { added, replaced, removed, positions };
        let lake = if changed.is_empty() { self.schema_only()? } else { self.land(changed, row, lsn)? };
        Ok(Some(Committed { lake, row }))
    }

    /// Row ids that are in the lake and not live any more, ascending.
    fn gone(&self, from: &Checkpoint) -> Result<Vec<RowId>> {
        match self.table.deleted_since(from) {
            Err(error) if error.kind() == Kind::NotFound => {}
            known => return known,
        }
        // Deletes are remembered for a while only; the lake itself says which rows to ask for.
        let mut already: HashMap<Arc<str>, HashSet<u64>> = HashMap::new();
        for deletes in &self.base.deletes {
            for of in self.base.positions(deletes)? {
                already.entry(of.path).or_default().extend(of.positions);
            }
        }
        let mut gone = Vec::new();
        for live in &self.base.data {
            let deleted = already.get(&live.path);
            for (position, row) in self.base.row_ids(live)?.iter().enumerate() {
                let is_deleted = deleted.is_some_and(|deleted| deleted.contains(&(position as u64)));
                if !is_deleted && !self.table.is_live(row)? {
                    gone.push(row);
                }
            }
        }
        Ok(gone)
    }

    /// The data file that has a row.
    fn file_of(&self, row: RowId) -> Result<usize> {
        let at = self.base.data.partition_point(|live| live.last < row);
        match self.base.data.get(at) {
            Some(live) if live.first <= row => Ok(at),
            _ => Err(self.missing(row)),
        }
    }

    fn missing(&self, row: RowId) -> Error {
        Error::damaged(format!("row {row} should be in the lake and is in none of its data files"))
            .with("table", &self.table.def().name)
            .with("directory", self.base.dir.display())
    }

    /// Writes the live rows from `first` to `last`, at most about `bytes_max` of them in memory, into as many files as they
    /// fill. Tells the last row that was taken in.
    fn write_rows(&mut self, first: RowId, last: RowId, bytes_max: u64) -> Result<(Vec<Entry>, RowId)> {
        let mut entries = Vec::new();
        let mut next = first;
        let mut taken = 0u64;
        let rows = scan_rows(self.table);
        while next <= last && taken < bytes_max {
            let projection = self.table.all_columns();
            let batch = self.table.scan_from(next, rows, projection)?;
            let batch = up_to(batch, last);
            if batch.num_rows() == 0 {
                next = last.next();
                break;
            }
            let (path, location) = self.new_file("data", "parquet");
            self.made.push(path.clone());
            let mut writer = data_file::Writer::create(&self.base.env, path, self.columns)?;
            let mut batch = batch;
            loop {
                next = last_row(&batch).next();
                taken += bytes_of(&batch);
                writer.push(&batch)?;
                // Rows rather than bytes: what is written is known only when a row group ends.
                (self.tick)(0)?;
                if next > last || taken >= bytes_max || writer.bytes() >= self.options.file_bytes {
                    break;
                }
                batch = up_to(self.table.scan_from(next, rows, projection)?, last);
                if batch.num_rows() == 0 {
                    next = last.next();
                    break;
                }
            }
            let written = writer.finish(location)?;
            (self.tick)(written.file.bytes)?;
            self.base.cache.put(&written.file.path, written.row_ids);
            entries.push(self.added(written.file));
        }
        Ok((entries, RowId(next.0 - 1).max(RowId(first.0 - 1))))
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

    /// A name that no file has: the snapshot's id is in it. The path here, and what Iceberg calls it.
    fn new_file(&mut self, sub: &str, suffix: &str) -> (PathBuf, String) {
        self.files += 1;
        let name = format!("{:016x}-{}.{suffix}", self.snapshot_id, self.files);
        (self.base.dir.join(sub).join(&name), format!("{}/{sub}/{name}", self.base.metadata.location))
    }

    /// Neighbouring data files to write anew: small ones that have become many, and those that are mostly deleted.
    /// After a column came that shows a value in old rows all of them, since v2 has no such defaults.
    fn to_rewrite(&self, new_schema: bool, gone: &[RowId]) -> Option<Range<usize>> {
        let data = &self.base.data;
        if data.is_empty() {
            return None;
        }
        if new_schema && self.shows_new_values() {
            return Some(0..data.len());
        }
        let mut deleted: Vec<u64> = data.iter().map(|live| live.deleted).collect();
        for row in gone {
            if let Ok(at) = self.file_of(*row) {
                deleted[at] += 1;
            }
        }
        // Shrunk to what is left of it, a file that lost many rows falls into a smaller class.
        let left = |at: usize| {
            let file = &data[at].entry.file;
            file.bytes * (file.rows - deleted[at].min(file.rows)) / file.rows.max(1)
        };
        let sizes: Vec<u64> = (0..data.len()).map(left).collect();
        if let Some(range) = tiers::pick(&sizes, DATA_UNIT_BYTES, self.options.file_bytes / 2) {
            return Some(range);
        }
        let mostly_deleted = |at: &usize| {
            let rows = data[*at].entry.file.rows;
            deleted[*at] == rows || deleted[*at] * 100 > rows * self.options.deleted_percent_max
        };
        (0..data.len()).find(mostly_deleted).map(|at| at..at + 1)
    }

    /// Whether a column with a value for older rows is not in the current Iceberg schema.
    fn shows_new_values(&self) -> bool {
        let known: Vec<u64> = self
            .base
            .metadata
            .schema()
            .and_then(|schema| schema["fields"].as_array())
            .map(|fields| fields.iter().filter_map(|f| f["id"].as_u64()).collect())
            .unwrap_or_default();
        self.columns.initial.iter().any(|id| !known.contains(&id.0.into()))
    }

    /// Where the rows stand that are gone, without those of files that are written anew.
    fn positions(&self, gone: &[RowId], removed: &HashSet<Arc<str>>) -> Result<Vec<(usize, Positions)>> {
        let mut all: Vec<(usize, Positions)> = Vec::new();
        let mut row_ids = None;
        for row in gone {
            let at = match all.last() {
                Some((at, _)) if self.base.data[*at].last >= *row => *at,
                _ => self.file_of(*row)?,
            };
            let live = &self.base.data[at];
            if removed.contains(&live.path) {
                continue;
            }
            if all.last().is_none_or(|(last, _)| *last != at) {
                row_ids = Some(self.base.row_ids(live)?);
                all.push((at, Positions { path: live.path.clone(), positions: Vec::new() }));
            }
            let position = row_ids.as_ref().and_then(|ids| ids.position(*row));
            let position = position.ok_or_else(|| self.missing(*row))?;
            all.last_mut().expect("pushed above").1.positions.push(position);
        }
        Ok(all)
    }

    /// A new schema and nothing else: the position stays.
    fn schema_only(&mut self) -> Result<Lake> {
        let mut next = self.next_metadata();
        next.set_schema(&self.columns.iceberg, self.columns.last_id);
        let base = self.base;
        let lake = self.lake(next, base.row, base.lsn, base.manifests.clone(), base.kept.clone());
        let mut lake = Lake { data: base.data.clone(), deletes: base.deletes.clone(), ..lake };
        self.publish(&mut lake)?;
        Ok(lake)
    }

    fn next_metadata(&self) -> Metadata {
        let mut next = self.base.metadata.clone();
        let old = metadata::MetadataLog {
            timestamp_ms: next.last_updated_ms,
            metadata_file: format!("{}/metadata/{}", next.location, metadata_name(self.base.version)),
        };
        next.metadata_log.push(old);
        next.last_updated_ms = next.last_updated_ms.max(self.base.env.clock.now() / 1000);
        next
    }

    fn land(&mut self, changed: Changed, row: RowId, lsn: Lsn) -> Result<Lake> {
        let base = self.base;
        let (env, sequence) = (&base.env, base.metadata.last_sequence_number + 1);
        let (deletes, new_positions) = self.write_positions(&changed)?;
        files::sync_dir(env, &base.dir.join("data"))?;

        let mut next = self.next_metadata();
        next.set_schema(&self.columns.iceberg, self.columns.last_id);
        let dropped_deletes: HashSet<&str> = deletes.dropped.iter().map(String::as_str).collect();
        let data_entries = changed.added.iter().chain(&changed.replaced).cloned().collect();
        let is_removed = |entry: &Entry| match entry.file.content {
            Content::Data => changed.removed.contains(entry.file.path.as_str()),
            Content::Deletes => dropped_deletes.contains(entry.file.path.as_str()),
        };
        let mut manifests = self.write_manifests(Content::Data, data_entries, &is_removed, &next)?;
        manifests.extend(self.write_manifests(
            Content::Deletes,
            deletes.added.clone(),
            &is_removed,
            &next,
        )?);
        let listed: Vec<_> = manifests.iter().map(|m| m.file.clone()).collect();
        let (list_path, list) = self.new_file("metadata", "list.avro");
        self.made_metadata.push(list_path.clone());
        files::write(
            env,
            &list_path,
            &manifest::write_list(&listed, self.snapshot_id, next.current_snapshot_id, sequence),
        )?;
        // Manifests without a file in the table tell only this snapshot what it removed.
        manifests.retain(|m| m.file.live_files() > 0);

        let mut data: Vec<Arc<Live>> =
            base.data.iter().filter(|live| !changed.removed.contains(&live.path)).cloned().collect();
        for (at, positions) in &changed.positions {
            let old = &base.data[*at];
            if let Ok(at) = data.binary_search_by_key(&old.first, |live| live.first) {
                let deleted = old.deleted + positions.positions.len() as u64;
                data[at] = Arc::new(Live::of(old.entry.clone(), deleted)?);
            }
        }
        for entry in changed.added.iter().chain(&changed.replaced) {
            data.push(Arc::new(Live::of(entry.clone(), 0)?));
        }
        data.sort_by_key(|live| live.first);
        let mut live_deletes: Vec<Arc<Deletes>> = base
            .deletes
            .iter()
            .filter(|d| !dropped_deletes.contains(d.entry.file.path.as_str()))
            .cloned()
            .collect();
        live_deletes.extend(deletes.added.iter().map(|entry| Arc::new(Deletes { entry: entry.clone() })));

        let parent = next.current_snapshot_id;
        let summary = self.summary(&changed, &deletes, new_positions, &data, &live_deletes, row, lsn);
        next.set_position(row, lsn);
        next.add_snapshot(metadata::Snapshot {
            snapshot_id: self.snapshot_id,
            parent_snapshot_id: parent,
            sequence_number: sequence,
            timestamp_ms: next.last_updated_ms,
            manifest_list: list.clone(),
            summary,
            schema_id: Some(next.current_schema_id),
            other: Default::default(),
        });
        let mut kept = base.kept.clone();
        let mut removed: Vec<String> = changed.removed.iter().map(|path| path.to_string()).collect();
        removed.extend(deletes.dropped.iter().cloned());
        let names = listed.iter().map(|m| m.path.clone()).collect();
        kept.push(Kept { id: self.snapshot_id, list, manifests: names, removed });
        let mut lake = self.lake(next, row, lsn, manifests, kept);
        (lake.data, lake.deletes) = (data, live_deletes);
        self.publish(&mut lake)?;
        Ok(lake)
    }

    fn lake(
        &self,
        metadata: Metadata,
        row: RowId,
        lsn: Lsn,
        manifests: Vec<Arc<Manifest>>,
        kept: Vec<Kept>,
    ) -> Lake {
        let base = self.base;
        Lake {
            env: base.env.clone(),
            dir: base.dir.clone(),
            version: base.version + 1,
            metadata,
            row,
            lsn,
            data: Vec::new(),
            deletes: Vec::new(),
            manifests,
            kept,
            columns: Some(self.columns.clone()),
            garbage: Garbage::new(base.garbage.paths()),
            lacks_since: AtomicU64::new(0),
            unsure: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            cache: base.cache.clone(),
        }
    }

    /// Writes the metadata file: the commit.
    fn publish(&mut self, lake: &mut Lake) -> Result<()> {
        let now_ms = lake.metadata.last_updated_ms;
        expiry::expire(lake, self.options, now_ms)?;
        let bytes = lake.metadata.to_bytes()?;
        let (env, dir) = (&lake.env, lake.dir.join("metadata"));
        let path = lake.metadata_path();
        let temporary = path.with_file_name(format!("{}{}", metadata_name(lake.version), files::TEMPORARY));
        files::remove(env, &temporary)?;
        self.made_metadata.push(temporary.clone());
        files::write(env, &temporary, &bytes)?;
        files::sync_dir(env, &dir)?;
        (self.tick)(bytes.len() as u64)?;
        // From here on it may be there, whatever the disk says.
        self.base.unsure.store(true, Ordering::Release);
        env.disk.rename(&temporary, &path).map_err(files::io_error("naming", &path))?;
        files::sync_dir(env, &dir)?;
        lake.write_hint()
    }
}

/// What changes between two snapshots of the lake.
struct Changed {
    /// Files of new rows.
    added: Vec<Entry>,
    /// Files of rows that were in others.
    replaced: Vec<Entry>,
    /// Files that were written anew.
    removed: HashSet<Arc<str>>,
    /// Deleted positions by the number of the data file.
    positions: Vec<(usize, Positions)>,
}

impl Changed {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.positions.is_empty()
    }

    /// Whether rows that a reader had went with the files that were written anew.
    fn dropped_rows(&self, base: &Lake) -> bool {
        let removed = base.data.iter().filter(|live| self.removed.contains(&live.path));
        let before: u64 = removed.map(|live| live.entry.file.rows - live.deleted).sum();
        before != self.replaced.iter().map(|e| e.file.rows).sum::<u64>()
    }
}

#[derive(Default)]
struct NewDeletes {
    added: Vec<Entry>,
    /// Paths of files that the table no longer has.
    dropped: Vec<String>,
}

fn last_row(batch: &arrow::array::RecordBatch) -> RowId {
    use arrow::array::AsArray;
    let ids = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>();
    RowId(ids.value(ids.len() - 1) as u64)
}

/// Rows to read at once: they are joined in memory if they stand in several batches.
fn scan_rows(table: &Snapshot) -> usize {
    (SCAN_BYTES / table.row_bytes().max(1)).clamp(1, table::BATCH_ROWS as u64) as usize
}

/// Bytes of a batch's own rows: its arrays may be parts of larger ones.
fn bytes_of(batch: &arrow::array::RecordBatch) -> u64 {
    let bytes =
        |column: &arrow::array::ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0) as u64;
    batch.columns().iter().map(bytes).sum()
}

/// The rows of a batch up to one, which need not be in it.
fn up_to(batch: arrow::array::RecordBatch, last: RowId) -> arrow::array::RecordBatch {
    use arrow::array::AsArray;
    let ids = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>();
    let count = ids.values().partition_point(|id| *id as u64 <= last.0);
    batch.slice(0, count)
}
