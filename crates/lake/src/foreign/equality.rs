//! Equality deletes: files of keys. A row is deleted if it has such a key and its data file is older.
//!
//! Delete files with the same key columns that apply to the same data files form a group, whose keys are one set in memory. A
//! set is loaded when a data file needs it. It is cached for later data files while there is room beside the sets that are
//! needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::RecordBatch;
use iceberg::spec::{Partition, Spec, Specs, find};
use serde_json::Value as Json;
use types::{Error, Kind, Result};
use vfs::{Mutex, Rank};

use super::deleted_keys::{self, DeletedKeys};
use super::files::REWRITE_HINT;
use super::parquet_file::{ParquetFile, damaged};
use super::project::{self, ColumnSource};
use super::schema::{self, Node};
use super::{DataFile, ForeignTable};

/// Bytes of all keys in memory.
const KEYS_BYTES_MAX: u64 = 1 << 30;

/// A file of equality deletes.
#[derive(Debug)]
pub(super) struct EqualityDeleteFile {
    pub file: DataFile,
    /// Field ids of the key columns.
    pub ids: Vec<i32>,
}

/// The spec and partition of the data files to which a delete applies, unless it applies to all.
type PartitionKey = (i32, Arc<Partition>);

/// All equality deletes of a snapshot.
#[derive(Debug)]
pub(super) struct EqualityDeletes {
    groups: Vec<DeleteGroup>,
    /// Groups that apply to all data files: those written under an unpartitioned spec.
    unpartitioned: Vec<usize>,
    by_partition: HashMap<PartitionKey, Vec<usize>>,
    pub bytes_max: u64,
    cache: Mutex<KeyCache>,
}

#[derive(Debug)]
struct DeleteGroup {
    /// The key columns, each reduced to the path to its key field.
    nodes: Vec<Node>,
    files: Vec<DataFile>,
    /// The greatest sequence number of the group's files.
    newest: i64,
}

#[derive(Debug, Default)]
struct KeyCache {
    sets: BTreeMap<usize, CachedKeys>,
    uses: u64,
}

#[derive(Debug)]
struct CachedKeys {
    keys: Arc<DeletedKeys>,
    bytes: u64,
    /// The value of [`KeyCache::uses`] at the last use, for eviction.
    last_use: u64,
}

impl EqualityDeletes {
    /// Groups delete files by their key columns and partition. `schemas` are all schemas of the table; the first one that has a
    /// field tells its type.
    pub fn new(files: Vec<EqualityDeleteFile>, specs: &Specs, schemas: &[&Json]) -> Result<EqualityDeletes> {
        let mut equality = EqualityDeletes {
            groups: Vec::new(),
            unpartitioned: Vec::new(),
            by_partition: HashMap::new(),
            bytes_max: KEYS_BYTES_MAX,
            cache: Mutex::new(Rank::new(75, "lake deleted keys"), KeyCache::default()),
        };
        let mut known: HashMap<Vec<i32>, Vec<Node>> = HashMap::new();
        let mut group_of: HashMap<(Vec<i32>, Option<PartitionKey>), usize> = HashMap::new();
        for EqualityDeleteFile { file, mut ids } in files {
            ids.sort_unstable();
            ids.dedup();
            let in_file = |e: Error| e.with("file", &file.path);
            if !known.contains_key(&ids) {
                let node = |id: &i32| schema::key(schemas, *id);
                let nodes = ids.iter().map(node).collect::<Result<Vec<_>>>().map_err(in_file)?;
                known.insert(ids.clone(), nodes);
            }
            let partition = if is_unpartitioned(find(specs, file.spec).map_err(in_file)?) {
                None
            } else {
                Some((file.spec, file.partition.clone()))
            };
            let at = *group_of.entry((ids.clone(), partition.clone())).or_insert_with(|| {
                let at = equality.groups.len();
                equality.groups.push(DeleteGroup {
                    nodes: known[&ids].clone(),
                    files: Vec::new(),
                    newest: i64::MIN,
                });
                match partition {
                    None => equality.unpartitioned.push(at),
                    Some(partition) => equality.by_partition.entry(partition).or_default().push(at),
                }
                at
            });
            let group = &mut equality.groups[at];
            group.newest = group.newest.max(file.sequence);
            group.files.push(file);
        }
        Ok(equality)
    }

    /// Returns the groups that may delete rows of a data file.
    pub fn groups_for(&self, file: &DataFile) -> Vec<usize> {
        let own = self.by_partition.get(&(file.spec, file.partition.clone()));
        let all = self.unpartitioned.iter().chain(own.into_iter().flatten()).copied();
        all.filter(|at| self.groups[*at].newest > file.sequence).collect()
    }

    /// Returns a group's key columns.
    pub fn nodes(&self, group: usize) -> &[Node] {
        &self.groups[group].nodes
    }

    /// Returns the keys of the groups that one data file needs.
    pub fn keys(&self, table: &ForeignTable, groups: &[usize]) -> Result<Vec<Arc<DeletedKeys>>> {
        groups.iter().map(|group| self.keys_of(table, *group, groups)).collect()
    }

    fn keys_of(&self, table: &ForeignTable, group: usize, needed: &[usize]) -> Result<Arc<DeletedKeys>> {
        {
            let mut cache = self.cache.lock();
            cache.uses += 1;
            let uses = cache.uses;
            if let Some(set) = cache.sets.get_mut(&group) {
                set.last_use = uses;
                return Ok(set.keys.clone());
            }
        }
        let mut keys = DeletedKeys::default();
        for file in &self.groups[group].files {
            let room = &mut |keys: &DeletedKeys| self.make_room(keys.memory_bytes(), needed);
            read_keys(table, &self.groups[group], file, &mut keys, room)
                .map_err(|e| e.with("file", &file.path))?;
        }
        keys.shrink();
        let keys = Arc::new(keys);
        let mut cache = self.cache.lock();
        let set = CachedKeys { bytes: keys.memory_bytes(), keys: keys.clone(), last_use: cache.uses };
        cache.sets.insert(group, set);
        Ok(keys)
    }

    /// Evicts sets that are not in `needed`, least recently used first, until `bytes` more fit. Fails with [`Kind::TooLarge`]
    /// if they do not.
    fn make_room(&self, bytes: u64, needed: &[usize]) -> Result<()> {
        let mut cache = self.cache.lock();
        while cache.sets.values().map(|set| set.bytes).sum::<u64>() + bytes > self.bytes_max {
            let others = cache.sets.iter().filter(|(group, _)| !needed.contains(group));
            let Some(oldest) = others.min_by_key(|(_, set)| set.last_use).map(|(group, _)| *group) else {
                let limit = self.bytes_max >> 20;
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("the equality deletes of one data file have keys of more than {limit} MiB"),
                )
                .hint(REWRITE_HINT));
            };
            cache.sets.remove(&oldest);
        }
        Ok(())
    }

    /// Reads all keys that data files need, so that a set that is unreadable or too large is reported before the first row.
    pub fn check(&self, table: &ForeignTable) -> Result<()> {
        let mut needed: Vec<Vec<usize>> = table.data.iter().map(|file| self.groups_for(file)).collect();
        // Brings the data files of one partition together, so that an evicted set is rarely needed again.
        needed.sort_unstable_by(|a, b| b.iter().rev().cmp(a.iter().rev()));
        needed.dedup();
        needed.iter().try_for_each(|groups| self.keys(table, groups).map(drop))
    }
}

/// Returns true if deletes under this spec apply to all data files. A spec of only `void` fields partitions nothing, like one
/// without fields.
fn is_unpartitioned(spec: &Spec) -> bool {
    spec.fields.iter().all(|field| field.transform == "void")
}

/// Reads a delete file's keys into `keys`. `room` makes room for them after each batch.
fn read_keys(
    table: &ForeignTable,
    group: &DeleteGroup,
    file: &DataFile,
    keys: &mut DeletedKeys,
    room: &mut dyn FnMut(&DeletedKeys) -> Result<()>,
) -> Result<()> {
    let parquet = ParquetFile::open(&table.locator, file)?;
    project::check_key_columns(table, &group.nodes, parquet.schema())?;
    let (mut sources, roots) = project::sources(table, file, &group.nodes, parquet.schema())?;
    sources.iter_mut().for_each(|source| source.renumber(&roots));
    let mut batches = parquet.read(&roots, 0)?;
    let (mut seen, mut key) = (0, Vec::new());
    while let Some(batch) = batches.next()? {
        let columns = key_columns(&sources, &batch)?;
        for row in 0..batch.num_rows() {
            key.clear();
            deleted_keys::put(&columns, row, &mut key)?;
            keys.insert(&key, file.sequence)?;
        }
        seen += batch.num_rows() as u64;
        room(keys)?;
    }
    if seen == file.rows { Ok(()) } else { Err(damaged(&"it ends too early")) }
}

fn key_columns(sources: &[ColumnSource], batch: &RecordBatch) -> Result<Vec<arrow::array::ArrayRef>> {
    sources.iter().map(|source| project::innermost(source.column(batch)?)).collect()
}

/// The columns of a data file to compare with the keys of one group.
pub(super) struct DeleteFilter {
    pub sources: Vec<ColumnSource>,
    pub keys: Arc<DeletedKeys>,
    /// The data file's sequence number. Keys with a greater one delete its rows.
    pub sequence: i64,
}

impl DeleteFilter {
    /// Clears the marks in `live` of rows that are deleted.
    pub fn apply(&self, batch: &RecordBatch, live: &mut [bool]) -> Result<()> {
        let columns = key_columns(&self.sources, batch)?;
        let mut key = Vec::new();
        for (row, live) in live.iter_mut().enumerate().filter(|(_, live)| **live) {
            key.clear();
            deleted_keys::put(&columns, row, &mut key)?;
            *live = self.keys.get(&key).is_none_or(|deleted| deleted <= self.sequence);
        }
        Ok(())
    }
}
