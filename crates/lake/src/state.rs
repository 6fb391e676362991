//! A table's lake as it stands: read from its own files, or what a commit made of the one before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use types::{Error, Lsn, Result, RowId, TableDef, TableId};
use vfs::{Env, Mutex, Rank};

use crate::delete_file;
use crate::files;
use crate::manifest::{self, Content, DataFile, Entry, ManifestFile, Status};
use crate::metadata::Metadata;
use crate::row_ids::RowIds;
use crate::schema::Columns;

/// The lake of one table at one commit. Published by the materializer; an immutable value but for what it remembers of
/// files that never change.
#[derive(Debug)]
pub struct Lake {
    pub env: Env,
    /// The table's directory: `metadata` and `data` are in it.
    pub dir: PathBuf,
    /// The number of the metadata file.
    pub version: u64,
    pub metadata: Metadata,
    /// Where the Iceberg table says that it stands.
    pub row: RowId,
    pub lsn: Lsn,
    /// In row-id order.
    pub data: Vec<Arc<Live>>,
    /// In the order of their snapshots.
    pub deletes: Vec<Arc<Deletes>>,
    pub manifests: Vec<Arc<Manifest>>,
    /// Snapshots that are kept, oldest first.
    pub(crate) kept: Vec<Kept>,
    /// What follows from the definition that was written last; unknown after reading.
    pub(crate) columns: Option<Arc<Columns>>,
    /// Files that nothing names since this commit.
    pub(crate) garbage: Garbage,
    /// When something was first seen missing, in µs of the monotonic clock; 0: nothing is.
    pub(crate) lacks_since: AtomicU64,
    /// A commit after this one ended so that nobody knows whether it is there: the files must be read again.
    pub(crate) unsure: AtomicBool,
    /// The last step from here failed.
    pub(crate) failing: AtomicBool,
    pub(crate) cache: Arc<Cache>,
}

/// Files to remove once a commit is published. Taken once; what is not taken goes over to the next commit.
#[derive(Debug)]
pub(crate) struct Garbage(Mutex<Vec<PathBuf>>);

impl Garbage {
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Garbage(Mutex::new(Rank::new(68, "lake garbage"), paths))
    }

    pub fn push(&mut self, path: PathBuf) {
        self.0.lock().push(path);
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.lock().clone()
    }
}

impl Default for Garbage {
    fn default() -> Self {
        Garbage::new(Vec::new())
    }
}

/// A data file of the current snapshot.
#[derive(Debug)]
pub struct Live {
    pub entry: Entry,
    pub path: Arc<str>,
    pub first: RowId,
    pub last: RowId,
    /// Rows deleted by position so far.
    pub deleted: u64,
}

/// A file of deleted positions of the current snapshot.
#[derive(Debug)]
pub struct Deletes {
    pub entry: Entry,
}

/// A manifest with the files in it that are in the table.
#[derive(Debug)]
pub struct Manifest {
    pub file: ManifestFile,
    pub entries: Vec<Entry>,
}

/// A snapshot that is kept, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub id: i64,
    pub list: String,
    pub manifests: Vec<String>,
    /// Files of its parent that it no longer has.
    pub removed: Vec<String>,
}

/// What was read of files, which never change. Bounded, one for all tables.
#[derive(Debug)]
pub(crate) struct Cache {
    row_ids: Mutex<CacheInner>,
}

#[derive(Debug, Default)]
struct CacheInner {
    by_path: BTreeMap<String, Arc<RowIds>>,
    bytes: usize,
}

/// Row ids that are remembered of data files.
const CACHE_BYTES_MAX: usize = 32 << 20;

impl Default for Cache {
    fn default() -> Self {
        Cache { row_ids: Mutex::new(Rank::new(66, "lake row ids"), CacheInner::default()) }
    }
}

impl Cache {
    pub fn put(&self, path: &str, ids: Arc<RowIds>) {
        let mut inner = self.row_ids.lock();
        let bytes = ids.memory() + path.len();
        if inner.bytes + bytes > CACHE_BYTES_MAX {
            *inner = CacheInner::default();
        }
        inner.bytes += bytes;
        inner.by_path.insert(path.to_owned(), ids);
    }

    fn get(&self, path: &str) -> Option<Arc<RowIds>> {
        self.row_ids.lock().by_path.get(path).cloned()
    }
}

/// `v12.metadata.json` is 12.
pub(crate) fn version_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('v')?.strip_suffix(".metadata.json")?;
    digits.parse().ok().filter(|version: &u64| version.to_string() == digits)
}

pub(crate) fn metadata_name(version: u64) -> String {
    format!("v{version}.metadata.json")
}

/// Names the newest metadata file, for readers without a catalog.
pub(crate) const HINT: &str = "version-hint.text";

/// The newest metadata file in a table's directory.
pub fn newest_version(env: &Env, dir: &Path) -> Result<Option<u64>> {
    let entries = files::list(env, &dir.join("metadata"))?;
    Ok(entries.iter().filter(|e| !e.is_dir).filter_map(|e| version_of(&e.name)).max())
}

/// A path that metadata or a manifest says, in this directory.
pub(crate) fn local(dir: &Path, location: &str, path: &str) -> Result<PathBuf> {
    let inside = path.strip_prefix(location).and_then(|rest| rest.strip_prefix('/'));
    let plain = |rest: &&str| rest.split('/').all(|part| !matches!(part, "" | "." | ".."));
    inside.filter(plain).map(|rest| dir.join(rest)).ok_or_else(|| {
        Error::damaged(format!("the Iceberg table in {} names a file outside it: {path}", dir.display()))
    })
}

impl Lake {
    /// Reads a table's lake from its files; `None` if there is none. What is found is durable, and what no snapshot needs
    /// is removed. So is a lake that was moved here from elsewhere than `location`: all its paths lead back there.
    pub(crate) fn load(
        env: &Env,
        dir: &Path,
        def: &TableDef,
        location: &str,
        cache: &Arc<Cache>,
    ) -> Result<Option<Lake>> {
        let metadata_dir = dir.join("metadata");
        let Some(version) = newest_version(env, dir)? else {
            return Ok(None);
        };
        // Whoever renamed it may have died before its name was durable, and a checkpoint must not be ahead of it.
        files::sync_dir(env, &metadata_dir)?;
        let path = metadata_dir.join(metadata_name(version));
        let in_file = |e: Error| e.with("file", path.display());
        let metadata = Metadata::parse(&files::read(env, &path)?).map_err(in_file)?;
        match metadata.table_id() {
            Some(id) if id == def.id && metadata.location == location => {}
            Some(id) if id == def.id => {
                remove_dir(env, dir)?;
                return Ok(None);
            }
            // Ids are never used again, so that table was dropped before this one was made.
            Some(id) if id < def.id => {
                remove_dir(env, dir)?;
                return Ok(None);
            }
            other => {
                let found =
                    other.map_or("no table of Polynya".to_owned(), |TableId(id)| format!("table {id}"));
                return Err(Error::damaged(format!("the Iceberg table in {} is of {found}", dir.display()))
                    .with("table", &def.name)
                    .hint("move that directory away; the table then lands anew"));
            }
        }
        let (row, lsn) = metadata.position().map_err(in_file)?;
        let mut lake = Lake {
            env: env.clone(),
            dir: dir.to_owned(),
            version,
            metadata,
            row,
            lsn,
            data: Vec::new(),
            deletes: Vec::new(),
            manifests: Vec::new(),
            kept: Vec::new(),
            columns: None,
            garbage: Garbage::default(),
            lacks_since: AtomicU64::new(0),
            unsure: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            cache: cache.clone(),
        };
        lake.read_snapshots()?;
        lake.sweep()?;
        lake.write_hint()?;
        Ok(Some(lake))
    }

    pub(crate) fn local(&self, path: &str) -> Result<PathBuf> {
        local(&self.dir, &self.metadata.location, path)
    }

    fn read_snapshots(&mut self) -> Result<()> {
        let mut known: HashMap<String, Arc<Manifest>> = HashMap::new();
        let mut before: Option<BTreeSet<String>> = None;
        let mut snapshots = self.metadata.snapshots.clone();
        snapshots.sort_by_key(|s| s.sequence_number);
        for snapshot in &snapshots {
            let list = manifest::read_list(&files::read(&self.env, &self.local(&snapshot.manifest_list)?)?)
                .map_err(|e| e.with("file", &snapshot.manifest_list))?;
            let mut manifests = Vec::with_capacity(list.len());
            for file in list {
                let read = match known.get(&file.path) {
                    Some(read) => read.clone(),
                    None => {
                        let bytes = files::read(&self.env, &self.local(&file.path)?)?;
                        let entries =
                            manifest::read(&bytes, &file).map_err(|e| e.with("file", &file.path))?;
                        let live = entries.into_iter().filter(|e| e.status != Status::Deleted).collect();
                        Arc::new(Manifest { file: file.clone(), entries: live })
                    }
                };
                known.insert(file.path.clone(), read.clone());
                manifests.push(read);
            }
            let live: BTreeSet<String> =
                manifests.iter().flat_map(|m| &m.entries).map(|e| e.file.path.clone()).collect();
            let removed = before.map_or(Vec::new(), |before| before.difference(&live).cloned().collect());
            self.kept.push(Kept {
                id: snapshot.snapshot_id,
                list: snapshot.manifest_list.clone(),
                manifests: manifests.iter().map(|m| m.file.path.clone()).collect(),
                removed,
            });
            before = Some(live);
            if Some(snapshot.snapshot_id) == self.metadata.current_snapshot_id {
                self.manifests = manifests;
            }
        }
        self.set_live()
    }

    /// Finds the live files of [`Lake::manifests`], and from the files of positions how many rows of each are deleted.
    fn set_live(&mut self) -> Result<()> {
        let entries = || self.manifests.iter().flat_map(|m| &m.entries);
        let mut deletes: Vec<Arc<Deletes>> = entries()
            .filter(|e| e.file.content == Content::Deletes)
            .map(|entry| Arc::new(Deletes { entry: entry.clone() }))
            .collect();
        deletes.sort_by(|a, b| {
            (a.entry.sequence, &a.entry.file.path).cmp(&(b.entry.sequence, &b.entry.file.path))
        });
        let mut deleted: HashMap<Arc<str>, u64> = HashMap::new();
        for file in &deletes {
            for of in self.positions(file)? {
                *deleted.entry(of.path).or_default() += of.positions.len() as u64;
            }
        }
        let mut data = Vec::new();
        for entry in entries().filter(|e| e.file.content == Content::Data) {
            let deleted = deleted.get(entry.file.path.as_str()).copied().unwrap_or(0);
            data.push(Arc::new(Live::of(entry.clone(), deleted)?));
        }
        data.sort_by_key(|live| live.first);
        if let Some(pair) = data.windows(2).find(|pair| pair[0].last >= pair[1].first) {
            return Err(Error::damaged(format!(
                "the data files {} and {} both have row {}",
                pair[0].path, pair[1].path, pair[1].first
            )));
        }
        (self.data, self.deletes) = (data, deletes);
        Ok(())
    }

    /// The positions in one file of them.
    pub(crate) fn positions(&self, deletes: &Deletes) -> Result<Vec<delete_file::Positions>> {
        let path = self.local(&deletes.entry.file.path)?;
        delete_file::read(files::read(&self.env, &path)?).map_err(|e| e.with("file", path.display()))
    }

    /// The row ids of a data file, deleted ones included.
    pub(crate) fn row_ids(&self, live: &Live) -> Result<Arc<RowIds>> {
        if let Some(known) = self.cache.get(&live.path) {
            return Ok(known);
        }
        let path = self.local(&live.path)?;
        let ids =
            RowIds::of_file(files::read(&self.env, &path)?).map_err(|e| e.with("file", path.display()))?;
        if ids.rows() != live.entry.file.rows {
            return Err(Error::damaged("a data file has another number of rows than its manifest says")
                .with("file", path.display()));
        }
        let ids = Arc::new(ids);
        self.cache.put(&live.path, ids.clone());
        Ok(ids)
    }

    /// What follows from a definition: as it was written last, or made now.
    pub(crate) fn columns_of(&self, def: &Arc<TableDef>) -> Result<Arc<Columns>> {
        match &self.columns {
            Some(columns) if Arc::ptr_eq(&columns.def, def) || columns.def.schema == def.schema => {
                Ok(columns.clone())
            }
            _ => Columns::of(def).map(Arc::new),
        }
    }

    /// Rows that a reader of the current snapshot gets.
    pub fn rows(&self) -> u64 {
        self.data.iter().map(|live| live.entry.file.rows - live.deleted).sum()
    }

    /// Bytes of the current snapshot's files.
    pub fn bytes(&self) -> u64 {
        let deletes = self.deletes.iter().map(|d| d.entry.file.bytes);
        self.data.iter().map(|live| live.entry.file.bytes).chain(deletes).sum()
    }

    pub fn snapshot_id(&self) -> Option<i64> {
        self.metadata.current_snapshot_id
    }

    /// The newest metadata file: what to open the table with.
    pub fn metadata_path(&self) -> PathBuf {
        self.dir.join("metadata").join(metadata_name(self.version))
    }

    /// Whether what names all of its files is where it was written.
    pub fn is_there(&self) -> Result<bool> {
        files::exists(&self.env, &self.metadata_path())
    }

    pub(crate) fn take_garbage(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.garbage.0.lock())
    }

    /// Says which metadata file is the newest, for readers that have no catalog and do not look for themselves.
    pub(crate) fn write_hint(&self) -> Result<()> {
        let path = self.dir.join("metadata").join(HINT);
        let hint = self.version.to_string();
        if files::exists(&self.env, &path)? && files::read(&self.env, &path)? == hint.as_bytes() {
            return Ok(());
        }
        files::replace(&self.env, &path, hint.as_bytes())
    }

    /// Removes files of ours that nothing names: what a killed commit left, what a killed removal did not get to (G1).
    fn sweep(&self) -> Result<()> {
        let mut named: BTreeSet<PathBuf> = BTreeSet::new();
        named.insert(self.metadata_path());
        for old in &self.metadata.metadata_log {
            named.insert(self.local(&old.metadata_file)?);
        }
        for kept in &self.kept {
            named.insert(self.local(&kept.list)?);
            for path in kept.manifests.iter().chain(&kept.removed) {
                named.insert(self.local(path)?);
            }
        }
        for entry in self.manifests.iter().flat_map(|m| &m.entries) {
            named.insert(self.local(&entry.file.path)?);
        }
        for (sub, ours) in [("metadata", is_our_metadata as fn(&str) -> bool), ("data", is_our_data)] {
            let dir = self.dir.join(sub);
            for entry in files::list(&self.env, &dir)? {
                let path = dir.join(&entry.name);
                if !entry.is_dir && ours(&entry.name) && !named.contains(&path) {
                    files::remove(&self.env, &path)?;
                }
            }
        }
        Ok(())
    }
}

fn is_our_metadata(name: &str) -> bool {
    name != HINT
        && (name.ends_with(files::TEMPORARY) || name.ends_with(".avro") || version_of(name).is_some())
}

fn is_our_data(name: &str) -> bool {
    name.ends_with(".parquet")
}

impl Live {
    pub(crate) fn of(entry: Entry, deleted: u64) -> Result<Live> {
        let file: &DataFile = &entry.file;
        let bound = |bounds: &[(i32, Vec<u8>)]| {
            let found = bounds.iter().find(|(id, _)| *id == types::ROW_ID.0 as i32)?;
            Some(RowId(u64::from_le_bytes(found.1.as_slice().try_into().ok()?)))
        };
        let (first, last) = (bound(&file.metrics.lower), bound(&file.metrics.upper));
        let (Some(first), Some(last)) = (first, last) else {
            return Err(Error::damaged(format!("no row ids are said of the data file {}", file.path)));
        };
        if deleted > file.rows {
            return Err(Error::damaged(format!("more rows are deleted in {} than it has", file.path)));
        }
        let path = file.path.as_str().into();
        Ok(Live { entry, path, first, last, deleted })
    }
}

impl Live {
    /// When its last row came, which no row before it came after; `None` if the file does not say.
    pub(crate) fn last_time(&self) -> Option<types::Micros> {
        let upper = &self.entry.file.metrics.upper;
        let (_, bytes) = upper.iter().find(|(id, _)| *id == types::TIME.0 as i32)?;
        Some(types::Micros::from_le_bytes(bytes.as_slice().try_into().ok()?))
    }
}

/// The table whose lake a directory holds, as far as its newest metadata says so.
pub(crate) fn table_id_in(env: &Env, dir: &Path) -> Result<Option<TableId>> {
    let Some(version) = newest_version(env, dir)? else { return Ok(None) };
    let bytes = files::read(env, &dir.join("metadata").join(metadata_name(version)))?;
    Ok(Metadata::parse(&bytes).ok().and_then(|metadata| metadata.table_id()))
}

/// Removes a table's directory with everything that is ours in it.
pub(crate) fn remove_dir(env: &Env, dir: &Path) -> Result<()> {
    // The metadata first, newest first: what is left without it is no table, and is swept when one is made there.
    for (sub, ours) in [("metadata", is_our_metadata as fn(&str) -> bool), ("data", is_our_data)] {
        let path = dir.join(sub);
        let mut names: Vec<String> = files::list(env, &path)?.into_iter().map(|e| e.name).collect();
        names.sort_by_key(|name| std::cmp::Reverse(version_of(name)));
        for name in names.iter().filter(|name| ours(name) || *name == HINT) {
            files::remove(env, &path.join(name))?;
        }
        if files::exists(env, &path)? {
            // Somebody else's files in it stay.
            let _ = env.disk.remove_dir(&path);
        }
    }
    if files::exists(env, dir)? {
        let _ = env.disk.remove_dir(dir);
    }
    Ok(())
}
