//! Equality deletes: files of keys, and the rows with such a key are deleted in older data files.
//!
//! The files that are by the same columns and go for the same data files are a group, whose keys are one set in memory. A set
//! is made when a data file needs it, and kept for the next ones as long as there is room for those that are needed.

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

/// What the keys that are in memory take at most.
const KEYS_BYTES_MAX: u64 = 1 << 30;

/// A file of equality deletes.
#[derive(Debug)]
pub(super) struct Deletes {
    pub file: DataFile,
    /// The fields by which it is.
    pub ids: Vec<i32>,
}

/// The data files that deletes go for, if not for all: those of a spec and a partition.
type Place = (i32, Arc<Partition>);

/// All of a snapshot.
#[derive(Debug)]
pub(super) struct Equality {
    groups: Vec<Group>,
    /// Groups that go for all data files: those of a spec that does not partition.
    everywhere: Vec<usize>,
    by_partition: HashMap<Place, Vec<usize>>,
    pub bytes_max: u64,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Group {
    /// The columns that keys are made of, each with nothing beside the field that is meant.
    nodes: Vec<Node>,
    files: Vec<DataFile>,
    /// The greatest sequence number of its files.
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
    /// When it was asked for last, in uses.
    used: u64,
}

impl Equality {
    /// `schemas` are all that the table has had; the first one that has a field says what it is.
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

    /// The groups that may delete rows of a data file.
    pub fn of(&self, file: &DataFile) -> Vec<usize> {
        let own = self.by_partition.get(&(file.spec, file.partition.clone()));
        let all = self.everywhere.iter().chain(own.into_iter().flatten()).copied();
        all.filter(|at| self.groups[*at].newest > file.sequence).collect()
    }

    /// The columns that a group's keys are made of.
    pub fn nodes(&self, group: usize) -> &[Node] {
        &self.groups[group].nodes
    }

    /// The keys of the groups that one data file needs.
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

    /// Lets go of what is not needed until so many bytes more find room.
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

    /// Reads all keys that data files need, so that those that cannot be read or kept are known before the first row.
    pub fn check(&self, table: &Foreign) -> Result<()> {
        let mut needed: Vec<Vec<usize>> = table.data.iter().map(|file| self.of(file)).collect();
        // Those of one partition one after the other: a set that had to make room is hardly asked for again.
        needed.sort_unstable_by(|a, b| b.iter().rev().cmp(a.iter().rev()));
        needed.dedup();
        needed.iter().try_for_each(|groups| self.keys(table, groups).map(drop))
    }
}

/// A spec of nothing but `void` partitions as little as one without fields.
fn is_everywhere(spec: &Spec) -> bool {
    spec.fields.iter().all(|field| field.transform == "void")
}

/// Reads a file's keys.
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

/// What of a data file the keys of a group are compared with.
pub(super) struct Filter {
    pub sources: Vec<Source>,
    pub keys: Arc<Keys>,
    /// The data file's: newer keys delete.
    pub sequence: i64,
}

impl Filter {
    /// Takes the rows out of those that are `live` that are deleted.
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
