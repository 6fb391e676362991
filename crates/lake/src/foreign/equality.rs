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

use super::files::REWRITE;
use super::keys::{self, Keys};
use super::parquet_file::{ParquetFile, damaged};
use super::project::{self, Source};
use super::schema::{self, Node};
use super::{DataFile, Foreign};

/// Bytes of all keys in memory.
const KEYS_BYTES_MAX: u64 = 1 << 30;

/// A file of equality deletes.
#[derive(Debug)]
pub(super) struct Deletes {
    pub file: DataFile,
    /// Field ids of the key columns.
    pub ids: Vec<i32>,
}

/// The spec and partition of the data files to which a delete applies, unless it applies to all.
type Place = (i32, Arc<Partition>);

/// All equality deletes of a snapshot.
#[derive(Debug)]
pub(super) struct Equality {
    groups: Vec<Group>,
    /// Groups that apply to all data files: those written under an unpartitioned spec.
    everywhere: Vec<usize>,
    by_partition: HashMap<Place, Vec<usize>>,
    pub bytes_max: u64,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Group {
    /// The key columns, each reduced to the path to its key field.
    nodes: Vec<Node>,
    files: Vec<DataFile>,
    /// The greatest sequence number of the group's files.
    newest: i64,
}

#[derive(Debug, Default)]
struct Loaded {
    sets: BTreeMap<usize, Set>,
    uses: u64,
}

#[derive(Debug)]
struct Set {
    keys: Arc<Keys>,
    bytes: u64,
    /// The value of [`Loaded::uses`] at the last use, for eviction.
    used: u64,
}

impl Equality {
    /// Groups delete files by their key columns and partition. `schemas` are all schemas of the table; the first one that has a
    /// field tells its type.
    pub fn new(files: Vec<Deletes>, specs: &Specs, schemas: &[&Json]) -> Result<Equality> {
        let mut equality = Equality {
            groups: Vec::new(),
            everywhere: Vec::new(),
            by_partition: HashMap::new(),
            bytes_max: KEYS_BYTES_MAX,
            loaded: Mutex::new(Rank::new(75, "lake deleted keys"), Loaded::default()),
        };
        let mut known: HashMap<Vec<i32>, Vec<Node>> = HashMap::new();
        let mut group_of: HashMap<(Vec<i32>, Option<Place>), usize> = HashMap::new();
        for Deletes { file, mut ids } in files {
            ids.sort_unstable();
            ids.dedup();
            let in_file = |e: Error| e.with("file", &file.path);
            if !known.contains_key(&ids) {
                let node = |id: &i32| schema::key(schemas, *id);
                let nodes = ids.iter().map(node).collect::<Result<Vec<_>>>().map_err(in_file)?;
                known.insert(ids.clone(), nodes);
            }
            let place = match is_everywhere(find(specs, file.spec).map_err(in_file)?) {
                true => None,
                false => Some((file.spec, file.partition.clone())),
            };
            let at = *group_of.entry((ids.clone(), place.clone())).or_insert_with(|| {
                let at = equality.groups.len();
                equality.groups.push(Group {
                    nodes: known[&ids].clone(),
                    files: Vec::new(),
                    newest: i64::MIN,
                });
                match place {
                    None => equality.everywhere.push(at),
                    Some(place) => equality.by_partition.entry(place).or_default().push(at),
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
    pub fn of(&self, file: &DataFile) -> Vec<usize> {
        let own = self.by_partition.get(&(file.spec, file.partition.clone()));
        let all = self.everywhere.iter().chain(own.into_iter().flatten()).copied();
        all.filter(|at| self.groups[*at].newest > file.sequence).collect()
    }

    /// Returns a group's key columns.
    pub fn nodes(&self, group: usize) -> &[Node] {
        &self.groups[group].nodes
    }

    /// Returns the keys of the groups that one data file needs.
    pub fn keys(&self, table: &Foreign, groups: &[usize]) -> Result<Vec<Arc<Keys>>> {
        groups.iter().map(|group| self.keys_of(table, *group, groups)).collect()
    }

    fn keys_of(&self, table: &Foreign, group: usize, needed: &[usize]) -> Result<Arc<Keys>> {
        {
            let mut loaded = self.loaded.lock();
            loaded.uses += 1;
            let uses = loaded.uses;
            if let Some(set) = loaded.sets.get_mut(&group) {
                set.used = uses;
                return Ok(set.keys.clone());
            }
        }
        let mut keys = Keys::default();
        for file in &self.groups[group].files {
            let room = &mut |keys: &Keys| self.make_room(keys.memory(), needed);
            load(table, &self.groups[group], file, &mut keys, room)
                .map_err(|e| e.with("file", &file.path))?;
        }
        keys.shrink();
        let keys = Arc::new(keys);
        let mut loaded = self.loaded.lock();
        let set = Set { bytes: keys.memory(), keys: keys.clone(), used: loaded.uses };
        loaded.sets.insert(group, set);
        Ok(keys)
    }

    /// Evicts sets that are not in `needed`, least recently used first, until `bytes` more fit. Fails with [`Kind::TooLarge`]
    /// if they do not.
    fn make_room(&self, bytes: u64, needed: &[usize]) -> Result<()> {
        let mut loaded = self.loaded.lock();
        while loaded.sets.values().map(|set| set.bytes).sum::<u64>() + bytes > self.bytes_max {
            let others = loaded.sets.iter().filter(|(group, _)| !needed.contains(group));
            let Some(oldest) = others.min_by_key(|(_, set)| set.used).map(|(group, _)| *group) else {
                let limit = self.bytes_max >> 20;
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("the equality deletes of one data file have keys of more than {limit} MiB"),
                )
                .hint(REWRITE));
            };
            loaded.sets.remove(&oldest);
        }
        Ok(())
    }

    /// Reads all keys that data files need, so that a set that is unreadable or too large is reported before the first row.
    pub fn check(&self, table: &Foreign) -> Result<()> {
        let mut needed: Vec<Vec<usize>> = table.data.iter().map(|file| self.of(file)).collect();
        // Brings the data files of one partition together, so that an evicted set is rarely needed again.
        needed.sort_unstable_by(|a, b| b.iter().rev().cmp(a.iter().rev()));
        needed.dedup();
        needed.iter().try_for_each(|groups| self.keys(table, groups).map(drop))
    }
}

/// Returns true if deletes under this spec apply to all data files. A spec of only `void` fields partitions nothing, like one
/// without fields.
fn is_everywhere(spec: &Spec) -> bool {
    spec.fields.iter().all(|field| field.transform == "void")
}

/// Reads a delete file's keys into `keys`. `room` makes room for them after each batch.
fn load(
    table: &Foreign,
    group: &Group,
    file: &DataFile,
    keys: &mut Keys,
    room: &mut dyn FnMut(&Keys) -> Result<()>,
) -> Result<()> {
    let parquet = ParquetFile::open(&table.place, file)?;
    project::must_have(table, &group.nodes, parquet.schema())?;
    let (mut sources, roots) = project::sources(table, file, &group.nodes, parquet.schema())?;
    sources.iter_mut().for_each(|source| source.rank(&roots));
    let mut batches = parquet.read(&roots, 0)?;
    let (mut seen, mut key) = (0, Vec::new());
    while let Some(batch) = batches.next()? {
        let columns = key_columns(&sources, &batch)?;
        for row in 0..batch.num_rows() {
            key.clear();
            keys::put(&columns, row, &mut key)?;
            keys.insert(&key, file.sequence)?;
        }
        seen += batch.num_rows() as u64;
        room(keys)?;
    }
    match seen == file.rows {
        true => Ok(()),
        false => Err(damaged(&"it ends too early")),
    }
}

fn key_columns(sources: &[Source], batch: &RecordBatch) -> Result<Vec<arrow::array::ArrayRef>> {
    sources.iter().map(|source| project::innermost(source.column(batch)?)).collect()
}

/// The columns of a data file to compare with the keys of one group.
pub(super) struct Filter {
    pub sources: Vec<Source>,
    pub keys: Arc<Keys>,
    /// The data file's sequence number. Keys with a greater one delete its rows.
    pub sequence: i64,
}

impl Filter {
    /// Clears the marks in `live` of rows that are deleted.
    pub fn apply(&self, batch: &RecordBatch, live: &mut [bool]) -> Result<()> {
        let columns = key_columns(&self.sources, batch)?;
        let mut key = Vec::new();
        for (row, live) in live.iter_mut().enumerate().filter(|(_, live)| **live) {
            key.clear();
            keys::put(&columns, row, &mut key)?;
            *live = self.keys.get(&key).is_none_or(|deleted| deleted <= self.sequence);
        }
        Ok(())
    }
}
