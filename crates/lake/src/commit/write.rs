//! Writes position delete files and manifests, and merges older ones into them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use iceberg::manifest::{self, Content, Entry, Status};
use iceberg::spec::{self, Partition};
use types::{Error, Result};

use super::{CommitBuilder, DeleteFileChanges, Purpose, SnapshotChanges};
use crate::data_file::FilePartition;
use crate::delete_file::{self, Positions};
use crate::size_tiers;
use crate::state::{DeleteFile, Manifest};

/// Rows that bound the smallest size class of position delete files.
const DELETES_UNIT_ROWS: u64 = 64;
/// Sizes from which files are not merged further: rows of a position delete file, files of a manifest.
const DELETES_FULL_ROWS: u64 = 4 << 20;
pub(super) const MANIFEST_FULL_FILES: u64 = 4 << 10;

/// Deleted positions in the data files of one partition.
#[derive(Default)]
struct DeleteGroup {
    /// New positions by the index of the data file.
    new: Vec<(usize, Vec<u64>)>,
    /// Indices of the existing position delete files.
    old: Vec<usize>,
}

impl CommitBuilder<'_> {
    /// Writes the new positions, one file per partition, and merges older position delete files into it. Drops those whose
    /// data files are all gone. Also returns the number of new positions.
    pub(super) fn write_positions(&mut self, changed: &SnapshotChanges) -> Result<(DeleteFileChanges, u64)> {
        let base = self.base;
        let paths: HashSet<&str> = base.data.iter().map(|live| &*live.path).collect();
        let is_live = |path: &str| !changed.removed.contains(path) && paths.contains(path);
        let mut out = DeleteFileChanges::default();
        let mut known: HashMap<(i32, &Partition), usize> = HashMap::new();
        let mut groups: Vec<DeleteGroup> = Vec::new();
        let mut group_of = |spec: i32, partition| {
            *known.entry((spec, partition)).or_insert_with(|| {
                groups.push(DeleteGroup::default());
                groups.len() - 1
            })
        };
        let (mut news, mut olds) = (Vec::new(), Vec::new());
        for (at, positions) in &changed.positions {
            let file = &base.data[*at].entry.file;
            news.push((group_of(file.spec, &*file.partition), *at, positions.clone()));
        }
        for (at, deletes) in base.deletes.iter().enumerate() {
            let file = &deletes.entry.file;
            // Positions in rewritten data files have no meaning any more.
            if deletes.targets.iter().any(|(path, _)| is_live(path)) {
                olds.push((group_of(file.spec, &*file.partition), at))
            } else {
                out.dropped.push(file.path.as_str().into())
            }
        }
        news.into_iter().for_each(|(group, at, positions)| groups[group].new.push((at, positions)));
        olds.into_iter().for_each(|(group, at)| groups[group].old.push(at));
        let mut count = 0;
        for group in groups {
            let new: u64 = group.new.iter().map(|(_, positions)| positions.len() as u64).sum();
            count += new;
            let merged = self.merged_positions(&group, new);
            let file = match (group.new.first(), merged.first()) {
                (Some((at, _)), _) => &base.data[*at].entry.file,
                (None, Some(at)) => &base.deletes[*at].entry.file,
                (None, None) => continue,
            };
            let place = FilePartition { spec: file.spec, partition: file.partition.clone() };
            let mut by_path: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
            for (at, positions) in group.new {
                by_path.entry(base.data[at].path.clone()).or_default().extend(positions);
            }
            for at in merged {
                let deletes = &base.deletes[at];
                out.dropped.push(deletes.entry.file.path.as_str().into());
                for of in base.positions(deletes)?.into_iter().filter(|of| is_live(&of.path)) {
                    by_path.entry(of.path).or_default().extend(of.positions);
                }
            }
            out.added.push(self.write_deletes(place, by_path)?);
        }
        Ok((out, count))
    }

    /// Returns the indices of the older files to merge with `new` new positions.
    fn merged_positions(&self, group: &DeleteGroup, new: u64) -> Vec<usize> {
        if self.purpose == Purpose::Merge {
            let is_one = group.old.len() == 1 && new == 0;
            return if is_one { Vec::new() } else { group.old.clone() };
        }
        let file = |at: &usize| &self.base.deletes[*at].entry.file;
        if new == 0 {
            let is_meant = |at: &usize| self.delete_files_to_merge.contains(file(at).path.as_str());
            let meant: Vec<usize> = group.old.iter().copied().filter(is_meant).collect();
            return if meant.len() > 1 { meant } else { Vec::new() };
        }
        let sizes: Vec<u64> = group.old.iter().map(|at| file(at).rows).chain([new]).collect();
        let merged = size_tiers::pick_merge(&sizes, DELETES_UNIT_ROWS, DELETES_FULL_ROWS).unwrap_or(0..0);
        (0..group.old.len()).filter(|nth| merged.contains(nth)).map(|nth| group.old[nth]).collect()
    }

    fn write_deletes(
        &mut self,
        place: FilePartition,
        by_path: BTreeMap<Arc<str>, Vec<u64>>,
    ) -> Result<Arc<DeleteFile>> {
        let all = by_path.into_iter().map(|(path, mut positions)| {
            positions.sort_unstable();
            positions.dedup();
            Positions { path, positions }
        });
        let all: Vec<Positions> = all.collect();
        let targets = all.iter().map(|of| (of.path.clone(), of.positions.len() as u64)).collect();
        let (path, location) = self.new_file("data", "deletes.parquet");
        self.made.push(path.clone());
        let file = delete_file::write(&self.base.store, path, location, place, all)?;
        (self.tick)(file.bytes)?;
        Ok(Arc::new(DeleteFile { entry: self.added(file), targets }))
    }

    /// Writes the manifests of one content kind for the new snapshot, separately for each spec.
    pub(super) fn write_manifests(
        &mut self,
        content: Content,
        entries: Vec<Entry>,
        is_removed: &dyn Fn(&Entry) -> bool,
    ) -> Result<Vec<Arc<Manifest>>> {
        let mut added: BTreeMap<i32, Vec<Entry>> = BTreeMap::new();
        entries.into_iter().for_each(|entry| added.entry(entry.file.spec).or_default().push(entry));
        let old = || self.base.manifests.iter().filter(|m| m.file.content == content);
        let specs: BTreeSet<i32> = old().map(|m| m.file.spec).chain(added.keys().copied()).collect();
        let mut all = Vec::new();
        for spec in specs {
            let added = added.remove(&spec).unwrap_or_default();
            all.extend(self.write_manifests_of(content, spec, added, is_removed)?);
        }
        Ok(all)
    }

    /// Writes the manifests of one content kind and spec. Existing ones without a removed file stay unless they are merged.
    fn write_manifests_of(
        &mut self,
        content: Content,
        spec: i32,
        mut entries: Vec<Entry>,
        is_removed: &dyn Fn(&Entry) -> bool,
    ) -> Result<Vec<Arc<Manifest>>> {
        let is_ours = |m: &&Arc<Manifest>| m.file.content == content && m.file.spec == spec;
        let old: Vec<&Arc<Manifest>> = self.base.manifests.iter().filter(is_ours).collect();
        let mut sizes: Vec<u64> = old.iter().map(|m| m.file.live_files()).collect();
        sizes.push(entries.len() as u64);
        let is_small = |at: usize| sizes[at] < MANIFEST_FULL_FILES;
        let merges = self.merges_manifests
            || self.purpose == Purpose::Merge && (0..old.len()).filter(|at| is_small(*at)).count() > 1;
        let merged = if merges && sizes.len() > 2 {
            0..sizes.len()
        } else {
            size_tiers::pick_merge(&sizes, 1, MANIFEST_FULL_FILES).unwrap_or(0..0)
        };
        let is_merged = |at: usize| merged.contains(&at) && is_small(at);
        let mut kept = Vec::with_capacity(old.len() + 1);
        let mut carried = Vec::new();
        let erases = self.is_erasure();
        let is_silent = erases || self.lost_specs().contains(&spec);
        for (at, manifest) in old.into_iter().enumerate() {
            // After an erasure, manifests must not reveal the removed files.
            let tells = erases && manifest.file.files[Status::Deleted as usize] > 0;
            let affected = tells || self.adds_metrics || manifest.entries.iter().any(is_removed);
            if !affected && !is_merged(at) {
                kept.push(manifest.clone());
                continue;
            }
            for entry in &manifest.entries {
                let mut entry = entry.clone();
                entry.status = Status::Existing;
                if is_removed(&entry) {
                    if is_silent {
                        continue;
                    }
                    (entry.status, entry.snapshot_id) = (Status::Deleted, self.snapshot_id);
                } else {
                    entry = self.with_all_metrics(entry);
                }
                carried.push(entry);
            }
        }
        entries.splice(0..0, carried);
        if entries.is_empty() {
            return Ok(kept);
        }
        let schema = self.next.current_schema().cloned();
        let schema = schema.as_ref().map_or(Ok(""), |schema| schema.text());
        let schema = schema.map_err(|e| Error::internal(format!("writing an Iceberg schema: {e}")))?;
        let (path, location) = self.new_file("metadata", "avro");
        self.made_metadata.push(path.clone());
        let header = manifest::ManifestHeader {
            path: location,
            content,
            spec: spec::find(&self.specs, spec)?,
            schema,
            schema_id: self.next.current_schema_id,
            snapshot_id: self.snapshot_id,
            sequence: self.base.metadata.last_sequence_number + 1,
        };
        let (bytes, file) = manifest::write(header, &entries);
        self.base.store.write(&path, bytes)?;
        entries.retain(|entry| entry.status != Status::Deleted);
        kept.push(Arc::new(Manifest { file, entries }));
        Ok(kept)
    }
}
