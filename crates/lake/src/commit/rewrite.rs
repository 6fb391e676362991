//! Rewrites of data files: small ones that have become many, mostly deleted ones, and those with rows to erase. Rows are
//! read from the files themselves, so the table need not have them any more.
//!
//! Sorted files of one partition are merged with one batch of each in memory. Files of an earlier layout are rearranged
//! into the present one, one memory-sized portion at a time. The resulting small files are merged later, like any others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::manifest::Entry;
use iceberg::spec::{Partition, Spec};
use types::Result;

use super::new_rows::{SCAN_BYTES, bytes_of};
use super::output::PartitionWriter;
use super::{CommitBuilder, PositionsByFile, Purpose};
use crate::arranged_rows::ArrangedRows;
use crate::live_rows::LiveRows;
use crate::merge::merge;
use crate::size_tiers;
use crate::splice_writer::{SpliceInput, SpliceWriter, is_large};
use crate::state::LiveFile;

/// Bytes that bound the smallest size class of data files.
const DATA_UNIT_BYTES: u64 = 4 << 10;
/// Number of files merged at once; each has one batch in memory.
const MERGED_FILES_MAX: usize = 64;
/// Bytes of the batches of all merged files together.
const MERGED_BYTES: u64 = 64 << 20;
/// Number of merges in one commit, at most; half the number of its new files if that is more. On average one merge for
/// eight new files is needed.
const JOBS_MIN: usize = 2;

/// A rewrite of one or several data files, given by their indices.
pub(super) struct RewriteJob {
    files: Vec<usize>,
    /// True if the files are of one partition, in the present layout and sorted.
    is_merge: bool,
}

pub(super) struct RewritePlan {
    pub jobs: Vec<RewriteJob>,
    /// True if the plan leaves nothing to rewrite. False if one commit would take too long.
    pub is_complete: bool,
}

/// Data files that may be merged with each other.
struct FileGroup {
    files: Vec<usize>,
    is_current: bool,
}

/// Divides a whole group into rewrites of bounded size.
fn jobs_of(group: &FileGroup) -> Vec<RewriteJob> {
    let job = |files: &[usize]| RewriteJob { files: files.to_vec(), is_merge: group.is_current };
    group.files.chunks(MERGED_FILES_MAX).map(job).collect()
}

impl CommitBuilder<'_> {
    /// Plans the rewrites of this commit. `gone` are the rows that it deletes, `added` is the number of its new files.
    pub(super) fn plan(&self, is_new: bool, gone: &PositionsByFile, added: usize) -> RewritePlan {
        let data = &self.base.data;
        let mut deleted: Vec<u64> = data.iter().map(|live| live.deleted).collect();
        for (at, positions) in gone {
            deleted[*at] += positions.len() as u64;
        }
        if is_new && self.shows_new_values() {
            // Format 2 has no initial defaults: readers would see nulls until all files contain the values.
            let jobs = self.groups().iter().flat_map(jobs_of).collect();
            return RewritePlan { jobs, is_complete: true };
        }
        // DuckDB 1.4 cannot read a table with files that are partitioned by a dropped column.
        let lost = self.lost_specs();
        if is_new && data.iter().any(|live| lost.contains(&live.entry.file.spec)) {
            let is_lost = |group: &&FileGroup| lost.contains(&data[group.files[0]].entry.file.spec);
            let jobs = self.groups().iter().filter(is_lost).flat_map(jobs_of).collect();
            // The next commit does any other rewrites that are due.
            return RewritePlan {
                jobs,
                is_complete: matches!(self.purpose, Purpose::Land | Purpose::Expire),
            };
        }
        let one = |at: usize| RewriteJob { files: vec![at], is_merge: self.is_current(&data[at]) };
        if let Purpose::Erase(begun) = self.purpose {
            let mut bytes = 0;
            let is_meant = |at: &usize| match begun {
                Some(begun) => begun.files.contains(&data[*at].path),
                None => deleted[*at] > 0,
            };
            let mut touched: Vec<usize> = (0..data.len()).filter(is_meant).collect();
            touched.sort_by_key(|at| data[*at].entry.sequence);
            let fits = |at: &&usize| {
                bytes += data[**at].entry.file.bytes;
                bytes <= self.options.rewrite_bytes_max || **at == touched[0]
            };
            let jobs: Vec<RewriteJob> = touched.iter().take_while(fits).map(|at| one(*at)).collect();
            return RewritePlan { is_complete: jobs.len() == touched.len(), jobs };
        }
        if self.purpose == Purpose::Merge {
            return self.plan_full_merge(&deleted);
        }
        // Each file counts with the size of its live rows, so one with many deleted rows falls into a smaller class.
        let left = |at: usize| {
            let file = &data[at].entry.file;
            file.bytes * (file.rows - deleted[at].min(file.rows)) / file.rows.max(1)
        };
        let is_empty = |at: usize| deleted[at] >= data[at].entry.file.rows;
        let percent_max = self.options.deleted_percent_max;
        let mostly_deleted = |at: usize| deleted[at] * 100 > data[at].entry.file.rows * percent_max;
        let mut candidates: Vec<(u64, RewriteJob)> = Vec::new();
        for mut group in self.groups() {
            group.files.retain(|at| !self.base.cache.is_damaged(&data[*at].path));
            let sizes: Vec<u64> = group.files.iter().map(|at| left(*at)).collect();
            if let Some(range) = size_tiers::pick_merge(&sizes, DATA_UNIT_BYTES, self.options.file_bytes / 2)
            {
                let range = range.start..range.end.min(range.start + MERGED_FILES_MAX);
                let cost = sizes[range.clone()].iter().sum();
                let job = RewriteJob { files: group.files[range].to_vec(), is_merge: group.is_current };
                candidates.push((cost, job));
            } else if let Some(at) = group.files.iter().find(|at| mostly_deleted(**at) && !is_empty(**at)) {
                candidates.push((left(*at), one(*at)));
            }
        }
        // Small groups come first, because they cost least.
        candidates.sort_by_key(|(cost, _)| *cost);
        let (mut bytes, jobs_max) = (0, JOBS_MIN.max(added / 2));
        let fits = |nth: usize, cost: u64| {
            bytes += cost;
            nth == 0 || nth < jobs_max && bytes <= self.options.rewrite_bytes_max
        };
        let mut fits = fits;
        let chosen = candidates.into_iter().enumerate().take_while(|(nth, (cost, _))| fits(*nth, *cost));
        let mut jobs: Vec<RewriteJob> = chosen.map(|(_, (_, job))| job).collect();
        // Files without live rows are only dropped; this writes nothing.
        let taken: HashSet<usize> = jobs.iter().flat_map(|job| job.files.iter().copied()).collect();
        jobs.extend((0..data.len()).filter(|at| is_empty(*at) && !taken.contains(at)).map(one));
        RewritePlan { jobs, is_complete: true }
    }

    /// Plans all merges that make fewer files, and rewrites of mostly deleted files, whether or not they pay yet. Stops at
    /// the bytes that one commit may rewrite; the next commit continues.
    fn plan_full_merge(&self, deleted: &[u64]) -> RewritePlan {
        let data = &self.base.data;
        let rows = |at: usize| data[at].entry.file.rows;
        let left = |at: usize| {
            let bytes = data[at].entry.file.bytes;
            bytes * (rows(at) - deleted[at].min(rows(at))) / rows(at).max(1)
        };
        let mostly_deleted = |at: usize| deleted[at] * 100 > rows(at) * self.options.deleted_percent_max;
        let mut jobs: Vec<RewriteJob> = Vec::new();
        // The results of several merges in one partition are merged by the next commit.
        let mut is_last = true;
        for group in self.groups() {
            // A single small file needs no merge.
            let small: Vec<usize> =
                group.files.iter().copied().filter(|at| left(*at) < self.options.file_bytes / 2).collect();
            let merges = small.chunks(MERGED_FILES_MAX).filter(|files| files.len() > 1);
            let job = |files: &[usize]| RewriteJob { files: files.to_vec(), is_merge: group.is_current };
            let before = jobs.len();
            jobs.extend(merges.map(job));
            is_last &= jobs.len() <= before + 1;
            let merged: HashSet<usize> =
                jobs[before..].iter().flat_map(|job: &RewriteJob| job.files.iter().copied()).collect();
            let alone = group.files.iter().filter(|at| mostly_deleted(**at) && !merged.contains(*at));
            jobs.extend(alone.map(|at| RewriteJob { files: vec![*at], is_merge: group.is_current }));
        }
        let (all, mut bytes) = (jobs.len(), 0);
        let mut nth = 0;
        jobs.retain(|job| {
            bytes += job.files.iter().map(|at| left(*at)).sum::<u64>();
            nth += 1;
            nth == 1 || bytes <= self.options.rewrite_bytes_max
        });
        RewritePlan { is_complete: jobs.len() == all && is_last, jobs }
    }

    /// Returns the paths of data files that contain a deleted row.
    pub(super) fn touched(&self, gone: &PositionsByFile) -> HashSet<Arc<str>> {
        let data = &self.base.data;
        let before = data.iter().filter(|live| live.deleted > 0);
        before.chain(gone.iter().map(|(at, _)| &data[*at])).map(|live| live.path.clone()).collect()
    }

    /// Returns true if a column with an initial value is missing in the current Iceberg schema.
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

    /// Returns the specs that partition by a column that the table has dropped.
    pub(super) fn lost_specs(&self) -> HashSet<i32> {
        let lost = self.next.dropped_source_columns();
        let is_lost = |spec: &&Arc<Spec>| spec.fields.iter().any(|field| lost.contains(&field.source));
        self.specs.values().filter(is_lost).map(|spec| spec.id).collect()
    }

    fn is_current(&self, live: &LiveFile) -> bool {
        let file = &live.entry.file;
        file.spec == self.next.default_spec_id && file.sort_order == self.sort_order
    }

    /// Groups the data files by partition and layout; within a group they are sorted by their first row.
    fn groups(&self) -> Vec<FileGroup> {
        let mut known: HashMap<(i32, &Partition, bool), usize> = HashMap::new();
        let mut groups: Vec<FileGroup> = Vec::new();
        for (at, live) in self.base.data.iter().enumerate() {
            let (file, is_current) = (&live.entry.file, self.is_current(live));
            let group = *known.entry((file.spec, &*file.partition, is_current)).or_insert_with(|| {
                groups.push(FileGroup { files: Vec::new(), is_current });
                groups.len() - 1
            });
            groups[group].files.push(at);
        }
        groups
    }

    /// Plans and does the rewrites. The last result is [`RewritePlan::is_complete`]. If a rewrite finds a damaged file while rows
    /// land, it plans again without that file: new rows do not wait until somebody restores it.
    pub(super) fn rewrite_planned(
        &mut self,
        is_new: bool,
        gone: &PositionsByFile,
        added: usize,
    ) -> Result<(Vec<Entry>, HashSet<Arc<str>>, bool)> {
        loop {
            let plan = self.plan(is_new, gone, added);
            let (made, damaged) = (self.made.len(), self.base.cache.damaged_count());
            match self.rewrite(plan.jobs, gone) {
                Ok((replaced, removed)) => return Ok((replaced, removed, plan.is_complete)),
                Err(error)
                    if error.kind() == types::Kind::Damaged
                        && self.purpose == Purpose::Land
                        && !is_new
                        && self.base.cache.damaged_count() > damaged =>
                {
                    tracing::error!(%error, "a file of the lake is damaged and is not merged; new rows land");
                    self.made.drain(made..).for_each(|path| drop(self.base.store.remove(&path)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Rewrites files without their deleted rows. Returns the new entries and the paths of the old files.
    pub(super) fn rewrite(
        &mut self,
        jobs: Vec<RewriteJob>,
        gone: &PositionsByFile,
    ) -> Result<(Vec<Entry>, HashSet<Arc<str>>)> {
        let files = || jobs.iter().flat_map(|job| job.files.iter().copied());
        let removed: HashSet<Arc<str>> = files().map(|at| self.base.data[at].path.clone()).collect();
        let mut deleted = self.deleted_positions(&removed)?;
        for (at, positions) in gone {
            let path = &self.base.data[*at].path;
            if removed.contains(path) {
                deleted.entry(path.clone()).or_default().extend(positions);
            }
        }
        let mut left = |at: usize| {
            let live = &self.base.data[at];
            let mut positions = deleted.remove(&live.path).unwrap_or_default();
            positions.sort_unstable();
            positions.dedup();
            ((positions.len() as u64) < live.entry.file.rows).then_some((at, positions))
        };
        let (merges, others): (Vec<RewriteJob>, Vec<RewriteJob>) =
            jobs.into_iter().partition(|job| job.is_merge);
        let merges: Vec<Vec<_>> =
            merges.iter().map(|job| job.files.iter().filter_map(|at| left(*at)).collect()).collect();
        // Files of earlier layouts are rearranged together, so that they yield few files.
        let mut others: Vec<_> =
            others.iter().flat_map(|job| &job.files).filter_map(|at| left(*at)).collect();
        others.sort_by_key(|(at, _)| *at);
        let mut entries = Vec::new();
        for files in merges.into_iter().filter(|files| !files.is_empty()) {
            entries.extend(self.merge(files)?);
        }
        entries.extend(self.rearrange(others)?);
        Ok((entries, removed))
    }

    /// Returns the positions in some files that are deleted so far.
    pub(super) fn deleted_positions(&self, files: &HashSet<Arc<str>>) -> Result<HashMap<Arc<str>, Vec<u64>>> {
        let mut all: HashMap<Arc<str>, Vec<u64>> = HashMap::new();
        let speaks_of_some = |of: &[(Arc<str>, u64)]| of.iter().any(|(path, _)| files.contains(path));
        for deletes in self.base.deletes.iter().filter(|deletes| speaks_of_some(&deletes.targets)) {
            for of in self.base.positions(deletes)? {
                if files.contains(&of.path) {
                    all.entry(of.path).or_default().extend(of.positions);
                }
            }
        }
        Ok(all)
    }

    fn open(&self, at: usize, deleted: Vec<u64>, batch_bytes: u64) -> Result<LiveRows> {
        let live = &self.base.data[at];
        let in_file = |e: types::Error| e.with("file", &live.path);
        LiveRows::open(self.base.data_file(live)?, self.columns.clone(), deleted, batch_bytes)
            .map_err(in_file)
    }

    fn merge(&mut self, files: Vec<(usize, Vec<u64>)>) -> Result<Vec<Entry>> {
        if let Some(pieces) = self.pieces(&files)? {
            return self.splice(&files, &pieces);
        }
        let first = &self.base.data[files[0].0].entry.file;
        let place = self.target_partition(first.partition.clone());
        let rows =
            files.iter().map(|(at, gone)| self.base.data[*at].entry.file.rows - gone.len() as u64).sum();
        let batch_bytes = (MERGED_BYTES / files.len() as u64).min(SCAN_BYTES);
        let sources = files
            .into_iter()
            .map(|(at, gone)| self.open(at, gone, batch_bytes))
            .collect::<Result<Vec<_>>>()?;
        let order = self.order.clone();
        let mut output = PartitionWriter::new(self, place, rows);
        merge(sources, &order, &mut |batch, in_order| output.push(&batch, in_order))?;
        output.finish()
    }

    /// Prepares files for splicing, which copies row groups unchanged. Returns `None` if they have to be decoded and merged
    /// instead.
    fn pieces(&mut self, files: &[(usize, Vec<u64>)]) -> Result<Option<Vec<SpliceInput>>> {
        let base = self.base;
        let data = &base.data;
        let follow = files.windows(2).all(|pair| data[pair[0].0].last < data[pair[1].0].first);
        let is_complete = |(at, gone): &(usize, Vec<u64>)| gone.is_empty() && is_large(&data[*at].entry.file);
        if !follow || !self.columns.layout.sorts.is_empty() || !files.iter().all(is_complete) {
            return Ok(None);
        }
        let mut pieces = Vec::with_capacity(files.len());
        for (at, _) in files {
            let live = &data[*at];
            let in_file = |e: types::Error| e.with("file", &live.path);
            let known = base.cache.get(&live.path);
            let bytes = base.data_file(live)?;
            (self.tick)(0)?;
            let piece =
                SpliceInput::of(bytes, &live.entry.file, known.as_deref(), self.columns).map_err(in_file)?;
            let Some(piece) = piece else { return Ok(None) };
            pieces.push(piece);
        }
        Ok(Some(pieces))
    }

    fn splice(&mut self, files: &[(usize, Vec<u64>)], pieces: &[SpliceInput]) -> Result<Vec<Entry>> {
        let file = |at: usize| &self.base.data[at].entry.file;
        let partition = file(files[0].0).partition.clone();
        let rows = files.iter().map(|(at, _)| file(*at).rows).sum();
        let place = self.target_partition(partition);
        let (columns, mut entries, mut open) = (self.columns, Vec::new(), None);
        for (nth, piece) in pieces.iter().enumerate() {
            let (mut splice, location) = match open.take() {
                Some(open) => open,
                None => {
                    let (path, location) = self.new_file("data", "parquet");
                    self.made.push(path.clone());
                    (SpliceWriter::create(&self.base.store, path, columns, rows)?, location)
                }
            };
            splice.push(piece, &mut |bytes| (self.tick)(bytes))?;
            if splice.bytes() < self.options.file_bytes && nth + 1 < pieces.len() {
                open = Some((splice, location));
                continue;
            }
            let written = splice.finish(location, place.clone(), self.sort_order)?;
            entries.push(self.add_file(written));
        }
        Ok(entries)
    }

    /// Rewrites files into the table's present layout, in portions that fit into memory.
    fn rearrange(&mut self, files: Vec<(usize, Vec<u64>)>) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let (mut batches, mut bytes) = (Vec::new(), 0);
        for (at, gone) in files {
            let mut source = self.open(at, gone, SCAN_BYTES)?;
            while let Some(batch) = source.next()? {
                bytes += bytes_of(&batch);
                batches.push(batch);
                (self.tick)(0)?;
                if bytes >= self.options.arrange_bytes {
                    entries.extend(self.arrange(std::mem::take(&mut batches))?);
                    bytes = 0;
                }
            }
        }
        entries.extend(self.arrange(batches)?);
        Ok(entries)
    }

    fn arrange(&mut self, batches: Vec<arrow::array::RecordBatch>) -> Result<Vec<Entry>> {
        if batches.is_empty() {
            return Ok(Vec::new());
        }
        let arranged = ArrangedRows::of(self.columns, &self.order, batches, usize::MAX)?;
        self.write_arranged(&arranged)
    }
}
