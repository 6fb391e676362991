//! A table's lake as it stands: read from its own files, or what a commit made of the one before.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use bytes::Bytes;
use iceberg::manifest::{DataFile, Entry, ManifestFile};
use iceberg::metadata::{Metadata, MetadataLog};
use iceberg::schema::Columns;
use iceberg::spec::Specs;
use types::{Error, Lsn, Result, RowId, TableDef};
use vfs::{Mutex, Rank};

use crate::cache::Cache;
use crate::delete_file;
use crate::outside::Offers;
use crate::rest::Listed;
use crate::store::Store;

/// The lake of one table at one commit. Published by the materializer; an immutable value but for what it remembers of
/// files that never change.
#[derive(Debug)]
pub struct Lake {
    pub store: Store,
    /// The table's directory: `metadata` and `data` are in it.
    pub dir: PathBuf,
    /// The number of the metadata file.
    pub version: u64,
    pub metadata: Metadata,
    /// Where the Iceberg table says that it stands.
    pub row: RowId,
    pub lsn: Lsn,
    /// By the first row that is in them.
    pub data: Vec<Arc<Live>>,
    /// In the order of their snapshots.
    pub deletes: Vec<Arc<Deletes>>,
    pub manifests: Vec<Arc<Manifest>>,
    /// Manifests that the current snapshot names besides: no file in them is in the table.
    pub(crate) emptied: Vec<Arc<str>>,
    /// Snapshots that led to the current one and are kept, oldest first; the last is the current one.
    pub(crate) kept: Vec<Arc<Kept>>,
    /// Other snapshots that are kept.
    pub(crate) beside: Vec<Arc<Beside>>,
    /// The partition specs of its files.
    pub(crate) specs: Arc<Specs>,
    /// What follows from the definition that was written last; unknown after reading.
    pub(crate) columns: Option<Arc<Columns>>,
    /// Files that nothing names since this commit.
    pub(crate) garbage: Garbage,
    /// When something was first seen missing, in µs of the monotonic clock; 0: nothing is; or [`OVERDUE`].
    pub(crate) lacks_since: AtomicU64,
    /// A commit after this one ended so that nobody knows whether it is there: the files must be read again.
    pub(crate) unsure: AtomicBool,
    /// The last step from here failed.
    pub(crate) failing: AtomicBool,
    pub(crate) cache: Arc<Cache>,
    /// Where it stands in a catalog elsewhere, if its commits are made there; then it has no metadata files of its own.
    pub(crate) listed: Option<Listed>,
    /// What others ask of it.
    pub(crate) offers: Arc<Offers>,
}

/// In the place of a time: this commit did not take in all rows that it was made for, and the rest has waited enough.
pub(crate) const OVERDUE: u64 = u64::MAX;

/// What the lakes of all tables of a materializer share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub cache: Arc<Cache>,
    pub offers: Arc<Offers>,
}

/// Files to remove once a commit is published. Taken once; what is not taken goes over to the next commit.
#[derive(Debug)]
pub(crate) struct Garbage(Mutex<Vec<PathBuf>>);

impl Garbage {
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Garbage(Mutex::new(Rank::new(68, "lake garbage"), paths))
    }

    pub fn push(&self, path: PathBuf) {
        self.0.lock().push(path);
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.lock().clone()
    }

    /// Lets go of paths whose files stay.
    fn forget(&self, paths: &[PathBuf]) {
        if !paths.is_empty() {
            self.0.lock().retain(|path| !paths.contains(path));
        }
    }

    /// Removes what is in it and not held by a reader, and tells how many files that are and how large. What could not be
    /// removed stays.
    fn remove(&self, store: &Store, held: &HashSet<PathBuf>, counts: bool) -> Result<(u64, u64)> {
        let mut paths = std::mem::take(&mut *self.0.lock());
        if !held.is_empty() {
            let (stay, go): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| held.contains(path));
            self.0.lock().extend(stay);
            paths = go;
        }
        let mut removed = (0, 0);
        while let Some(path) = paths.last() {
            let bytes = if counts { store.len(path) } else { Ok(0) };
            match bytes.and_then(|bytes| store.remove(path).map(|()| bytes)) {
                Ok(bytes) => removed = (removed.0 + 1, removed.1 + bytes),
                Err(error) => {
                    self.0.lock().append(&mut paths);
                    return Err(error);
                }
            }
            paths.pop();
        }
        Ok(removed)
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
    /// The least and the largest of its row ids. Those of other files may lie between them.
    pub first: RowId,
    pub last: RowId,
    /// Rows deleted by position so far.
    pub deleted: u64,
}

/// A file of deleted positions of the current snapshot.
#[derive(Debug)]
pub struct Deletes {
    pub entry: Entry,
    /// The data files that it speaks of, and how many rows of each it deletes.
    pub of: Vec<(Arc<str>, u64)>,
}

/// A manifest with the files in it that are in the table.
#[derive(Debug)]
pub struct Manifest {
    pub file: ManifestFile,
    pub entries: Vec<Entry>,
}

/// A snapshot that is kept, and what goes with it. Those before and after it are the ones in [`Lake::kept`].
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub id: i64,
    pub list: Arc<str>,
    /// Manifests that it names and no snapshot after it. Of the newest one nothing is known yet.
    pub last_of: Vec<Arc<str>>,
    /// Files that the one before it has, and none from it on.
    pub removed: Vec<Arc<str>>,
}

/// A snapshot in a catalog that is not one of those that led to the current one, or that a branch is at: another program
/// committed it and rolled it back, or committed it to a branch. What it names may be named by any other, too.
#[derive(Debug)]
pub(crate) struct Beside {
    pub id: i64,
    /// All files that it names in the table's directory.
    pub names: HashSet<Arc<str>>,
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
pub fn newest_version(store: &Store, dir: &Path) -> Result<Option<u64>> {
    let entries = store.list(&dir.join("metadata"))?;
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
    pub(crate) fn local(&self, path: &str) -> Result<PathBuf> {
        local(&self.dir, &self.metadata.location, path)
    }

    /// What kept snapshots name, as metadata call it: lists and manifests, and files of data and positions. Some of it twice.
    pub(crate) fn names(&self) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
        let beside = || self.beside.iter().flat_map(|beside| &beside.names);
        let of_kept = self.kept.iter().flat_map(|kept| std::iter::once(&kept.list).chain(&kept.last_of));
        let tell = of_kept.chain(&self.emptied).chain(beside()).map(|path| &**path);
        let tell = tell.chain(self.manifests.iter().map(|m| m.file.path.as_str()));
        let hold = self.kept.iter().flat_map(|kept| &kept.removed).chain(beside()).map(|path| &**path);
        let entries = self.manifests.iter().flat_map(|m| &m.entries);
        (tell, hold.chain(entries.map(|entry| entry.file.path.as_str())))
    }

    /// The current snapshot as one beside those that come.
    pub(crate) fn current_beside(&self, kept: &Kept) -> Beside {
        let of_manifest = |m: &Arc<Manifest>| -> Vec<Arc<str>> {
            let entries = m.entries.iter().map(|entry| entry.file.path.as_str());
            entries.chain([m.file.path.as_str()]).map(Arc::from).collect()
        };
        let names = self.manifests.iter().flat_map(of_manifest);
        let names = names.chain(self.emptied.iter().cloned()).chain([kept.list.clone()]);
        Beside { id: kept.id, names: names.collect() }
    }

    /// Removes the garbage, but what readers hold, and tells how many files that are and how large. What is named is none (G1):
    /// it stays, however it came there, and that is an error.
    pub(crate) fn remove_garbage(&self, held: &HashSet<PathBuf>, counts: bool) -> Result<(u64, u64)> {
        let named = self.named_garbage()?;
        self.garbage.forget(&named);
        let removed = self.garbage.remove(&self.store, held, counts)?;
        match named.first() {
            None => Ok(removed),
            Some(path) => Err(Error::internal(format!(
                "G1: {} was to be removed, which a snapshot of the lake names; it stays",
                path.display()
            ))),
        }
    }

    /// What the metadata to come says of those now.
    pub(crate) fn logged(&self) -> MetadataLog {
        MetadataLog { timestamp_ms: self.metadata.last_updated_ms, metadata_file: self.metadata_location() }
    }

    fn named_garbage(&self) -> Result<Vec<PathBuf>> {
        // Looked for by their hashes: as a rule they are a handful, and there are many names.
        let hash = |name: &str| xxhash_rust::xxh3::xxh3_64(name.as_bytes());
        let (mut garbage, mut has_data) = (Vec::new(), false);
        for path in self.garbage.paths() {
            let Ok(inside) = path.strip_prefix(&self.dir) else { continue };
            has_data |= inside.starts_with("data");
            garbage.push((hash(&format!("{}/{}", self.metadata.location, inside.display())), path));
        }
        if garbage.is_empty() {
            return Ok(Vec::new());
        }
        garbage.sort_unstable();
        let newest = self.metadata_location();
        let (tell, hold) = self.names();
        let log = self.metadata.metadata_log.iter().map(|old| old.metadata_file.as_str());
        let names = tell.chain(log).chain([newest.as_str()]);
        let names = names.chain(hold.take(if has_data { usize::MAX } else { 0 }));
        let mut named = HashSet::new();
        for name in names {
            if let Ok(at) = garbage.binary_search_by_key(&hash(name), |(hash, _)| *hash) {
                named.insert(at);
            }
        }
        Ok(named.into_iter().map(|at| garbage[at].1.clone()).collect())
    }

    /// A whole file that a manifest names, as it was written.
    pub(crate) fn file(&self, file: &DataFile) -> Result<Bytes> {
        let bytes = self.store.read(&self.local(&file.path)?)?;
        if let Some(checksums) = &file.checksums {
            let compared = checksums.compare(&bytes);
            self.cache.note(&file.path, compared.is_err());
            compared.map_err(|e| e.with("file", &file.path))?;
        }
        Ok(bytes)
    }

    /// The positions in one file of them.
    pub(crate) fn positions(&self, deletes: &Deletes) -> Result<Vec<delete_file::Positions>> {
        let file = &deletes.entry.file;
        delete_file::read(self.file(file)?).map_err(|e| e.with("file", &file.path))
    }

    /// What follows from a definition: as it was written last, or made now.
    pub(crate) fn columns_of(&self, def: &Arc<TableDef>) -> Result<Arc<Columns>> {
        let is_same = |columns: &Arc<Columns>| {
            let (known, options) = (&columns.def, &def.options);
            Arc::ptr_eq(known, def)
                || known.schema == def.schema
                    && known.options.partition_by == options.partition_by
                    && known.options.sort_by == options.sort_by
        };
        match &self.columns {
            Some(columns) if is_same(columns) => Ok(columns.clone()),
            _ => Columns::of(def).map(Arc::new),
        }
    }

    /// Whether what was committed last follows from this definition.
    pub(crate) fn is_of(&self, columns: &Columns) -> bool {
        self.metadata.has_schema(&columns.iceberg) && self.metadata.has_layout(&columns.layout)
    }

    /// The partition specs of its files.
    pub fn specs(&self) -> &Specs {
        &self.specs
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

    /// Whether a catalog elsewhere has its metadata.
    pub fn is_in_catalog(&self) -> bool {
        self.listed.is_some()
    }

    /// The same file as others call it.
    pub fn metadata_location(&self) -> String {
        if let Some(listed) = &self.listed {
            return listed.metadata_location.clone();
        }
        format!("{}/metadata/{}", self.metadata.location, metadata_name(self.version))
    }

    /// Whether what names all of its files is where it was written.
    pub fn is_there(&self) -> Result<bool> {
        if let Some(listed) = &self.listed {
            return Ok(!listed.is_gone());
        }
        self.store.exists(&self.metadata_path())
    }

    /// Says which metadata file is the newest, for readers that have no catalog and do not look for themselves.
    pub(crate) fn write_hint(&self) -> Result<()> {
        let path = self.dir.join("metadata").join(HINT);
        let hint = self.version.to_string();
        // Over a network looking costs more than writing.
        if !self.store.is_remote() && self.store.exists(&path)? && self.store.read(&path)? == hint.as_bytes()
        {
            return Ok(());
        }
        self.store.replace(&path, hint.as_bytes())
    }
}

impl Live {
    pub(crate) fn of(entry: Entry, deleted: u64) -> Result<Live> {
        let file: &DataFile = &entry.file;
        let bound = |bounds: &[(i32, Vec<u8>)]| {
            let found = bounds.iter().find(|(id, _)| *id == types::ROW_ID.0 as i32)?;
            Some(RowId(u64::from_le_bytes(found.1.as_slice().try_into().ok()?)))
        };
        // What another program wrote anew may not say.
        let first = bound(&file.metrics.lower).unwrap_or(RowId(0));
        let last = bound(&file.metrics.upper).unwrap_or(RowId(i64::MAX as u64));
        if deleted > file.rows {
            return Err(Error::damaged(format!("more rows are deleted in {} than it has", file.path)));
        }
        let path = file.path.as_str().into();
        Ok(Live { entry, path, first, last, deleted })
    }

    /// When its last row came, which no row before it came after; `None` if the file does not say.
    pub(crate) fn last_time(&self) -> Option<types::Micros> {
        let upper = &self.entry.file.metrics.upper;
        let (_, bytes) = upper.iter().find(|(id, _)| *id == types::TIME.0 as i32)?;
        Some(types::Micros::from_le_bytes(bytes.as_slice().try_into().ok()?))
    }
}
