//! The state of a table's lake at one commit: loaded from its files, or derived by a commit from the state before.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use bytes::Bytes;
use iceberg::manifest::{DataFile, Entry, ManifestFile};
use iceberg::metadata::{Metadata, MetadataLogEntry};
use iceberg::schema::Columns;
use iceberg::spec::Specs;
use types::{Error, Lsn, Result, RowId, TableDef};
use vfs::{Mutex, Rank};

use crate::cache::DataFileCache;
use crate::delete_file;
use crate::replacement::ReplacementQueue;
use crate::rest::CatalogEntry;
use crate::store::Store;

/// The lake of one table at one commit. The materializer publishes it. It is immutable, except for flags and caches about
/// files that never change.
#[derive(Debug)]
pub struct Lake {
    pub store: Store,
    /// The table's directory, with the subdirectories `metadata` and `data`.
    pub dir: PathBuf,
    /// Version of the metadata file; 0 if a catalog has the metadata.
    pub version: u64,
    pub metadata: Metadata,
    /// The position recorded in the Iceberg table.
    pub row: RowId,
    pub lsn: Lsn,
    /// Live data files, sorted by their first row.
    pub data: Vec<Arc<LiveFile>>,
    /// Live position delete files, in the order of their snapshots.
    pub deletes: Vec<Arc<DeleteFile>>,
    pub manifests: Vec<Arc<Manifest>>,
    /// Paths of further manifests of the current snapshot, none of whose files is live.
    pub(crate) emptied_manifests: Vec<Arc<str>>,
    /// Retained ancestors of the current snapshot, the oldest first; the last is the current snapshot itself.
    pub(crate) retained: Vec<Arc<RetainedSnapshot>>,
    /// Retained snapshots that are not ancestors of the current one.
    pub(crate) side_snapshots: Vec<Arc<SideSnapshot>>,
    /// The partition specs of its files.
    pub(crate) specs: Arc<Specs>,
    /// Schemas derived from the definition that was committed last; unknown after loading.
    pub(crate) columns: Option<Arc<Columns>>,
    /// Files that no snapshot names since this commit.
    pub(crate) garbage: Garbage,
    /// Monotonic time, in µs, at which missing rows or deletes were first noticed; 0 if none are missing, or [`OVERDUE`].
    pub(crate) missing_since: AtomicU64,
    /// True if a later commit has an unknown outcome, so that the files must be read again.
    pub(crate) outcome_unknown: AtomicBool,
    /// True if the last step from this state failed.
    pub(crate) failing: AtomicBool,
    pub(crate) cache: Arc<DataFileCache>,
    /// State of the table in a catalog elsewhere, if its commits are made there. It has no metadata files of ours then.
    pub(crate) catalog_entry: Option<CatalogEntry>,
    /// Commits that other programs offer.
    pub(crate) replacements: Arc<ReplacementQueue>,
}

/// Value of `missing_since` after a commit that did not take all due rows: the rest is due at once.
pub(crate) const OVERDUE: u64 = u64::MAX;

/// State that the lakes of all tables of a materializer share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub cache: Arc<DataFileCache>,
    pub replacements: Arc<ReplacementQueue>,
}

/// Files to remove once a commit is published. Files that could not be removed pass to the next commit.
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

    /// Drops paths whose files must stay.
    fn forget(&self, paths: &[PathBuf]) {
        if !paths.is_empty() {
            self.0.lock().retain(|path| !paths.contains(path));
        }
    }

    /// Removes all files that no reader holds. Returns their number, and their bytes if `counts`. Files that could not be
    /// removed stay in the list.
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
pub struct LiveFile {
    pub entry: Entry,
    pub path: Arc<str>,
    /// The least and the greatest of its row ids. Other files may have row ids in between.
    pub first: RowId,
    pub last: RowId,
    /// Number of rows that position delete files delete.
    pub deleted: u64,
}

/// A position delete file of the current snapshot.
#[derive(Debug)]
pub struct DeleteFile {
    pub entry: Entry,
    /// The data files that it refers to, each with the number of rows that it deletes there.
    pub targets: Vec<(Arc<str>, u64)>,
}

/// A manifest and its live entries.
#[derive(Debug)]
pub struct Manifest {
    pub file: ManifestFile,
    pub entries: Vec<Entry>,
}

/// A retained ancestor of the current snapshot. [`Lake::retained`] has its neighbours.
#[derive(Clone, Debug)]
pub(crate) struct RetainedSnapshot {
    pub id: i64,
    pub list: Arc<str>,
    /// Manifests that this snapshot names and no later one does. Empty for the newest snapshot, for which it is not known
    /// yet.
    pub expiring_manifests: Vec<Arc<str>>,
    /// Files that the snapshot before has and this one lacks.
    pub removed: Vec<Arc<str>>,
}

/// A snapshot in a catalog that is not an ancestor of the current one, or that a branch points to: another program
/// committed and rolled it back, or committed it to a branch. Other snapshots may name the same files.
#[derive(Debug)]
pub(crate) struct SideSnapshot {
    pub id: i64,
    /// All files that it names in the table's directory.
    pub names: HashSet<Arc<str>>,
}

/// Parses the version out of a file name: `v12.metadata.json` yields 12.
pub(crate) fn version_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('v')?.strip_suffix(".metadata.json")?;
    digits.parse().ok().filter(|version: &u64| version.to_string() == digits)
}

pub(crate) fn metadata_name(version: u64) -> String {
    format!("v{version}.metadata.json")
}

/// Name of the file with the newest version, for readers without a catalog.
pub(crate) const HINT: &str = "version-hint.text";

/// Returns the newest version in a table's directory; `None` if there is no metadata file.
pub fn newest_version(store: &Store, dir: &Path) -> Result<Option<u64>> {
    let entries = store.list(&dir.join("metadata"))?;
    Ok(entries.iter().filter(|e| !e.is_dir).filter_map(|e| version_of(&e.name)).max())
}

/// Converts a path in metadata or a manifest to a path below `dir`. Fails with `Damaged` if it lies outside.
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

    /// Returns all paths that retained snapshots name, as metadata spell them: first lists and manifests, then data and
    /// position delete files. Paths may occur twice.
    pub(crate) fn retained_names(&self) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
        let side_snapshots = || self.side_snapshots.iter().flat_map(|side| &side.names);
        let of_retained = self
            .retained
            .iter()
            .flat_map(|retained| std::iter::once(&retained.list).chain(&retained.expiring_manifests));
        let metadata_files =
            of_retained.chain(&self.emptied_manifests).chain(side_snapshots()).map(|path| &**path);
        let metadata_files = metadata_files.chain(self.manifests.iter().map(|m| m.file.path.as_str()));
        let data_files = self
            .retained
            .iter()
            .flat_map(|retained| &retained.removed)
            .chain(side_snapshots())
            .map(|path| &**path);
        let entries = self.manifests.iter().flat_map(|m| &m.entries);
        (metadata_files, data_files.chain(entries.map(|entry| entry.file.path.as_str())))
    }

    /// Returns the current snapshot in the form of a side snapshot.
    pub(crate) fn current_as_side_snapshot(&self, retained: &RetainedSnapshot) -> SideSnapshot {
        let of_manifest = |m: &Arc<Manifest>| -> Vec<Arc<str>> {
            let entries = m.entries.iter().map(|entry| entry.file.path.as_str());
            entries.chain([m.file.path.as_str()]).map(Arc::from).collect()
        };
        let names = self.manifests.iter().flat_map(of_manifest);
        let names = names.chain(self.emptied_manifests.iter().cloned()).chain([retained.list.clone()]);
        SideSnapshot { id: retained.id, names: names.collect() }
    }

    /// Removes garbage that no reader holds. Returns the number of files, and their bytes if `counts`. A file that is still
    /// named stays (G1), and its presence in the garbage is reported as an error.
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

    /// Returns the metadata log entry of the present metadata file, for the next one.
    pub(crate) fn metadata_log_entry(&self) -> MetadataLogEntry {
        MetadataLogEntry {
            timestamp_ms: self.metadata.last_updated_ms,
            metadata_file: self.metadata_location(),
        }
    }

    fn named_garbage(&self) -> Result<Vec<PathBuf>> {
        // Looks the names up by their hashes: the garbage is mostly a handful of files, the names are many.
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
        let (metadata_files, data_files) = self.retained_names();
        let log = self.metadata.metadata_log.iter().map(|old| old.metadata_file.as_str());
        let names = metadata_files.chain(log).chain([newest.as_str()]);
        let names = names.chain(data_files.take(if has_data { usize::MAX } else { 0 }));
        let mut named = HashSet::new();
        for name in names {
            if let Ok(at) = garbage.binary_search_by_key(&hash(name), |(hash, _)| *hash) {
                named.insert(at);
            }
        }
        Ok(named.into_iter().map(|at| garbage[at].1.clone()).collect())
    }

    /// Reads a whole file and compares it with the checksums in its manifest, if there are any.
    pub(crate) fn read_verified(&self, file: &DataFile) -> Result<Bytes> {
        let bytes = self.store.read(&self.local(&file.path)?)?;
        if let Some(checksums) = &file.checksums {
            let compared = checksums.compare(&bytes);
            self.cache.record_check(&file.path, compared.is_err());
            compared.map_err(|e| e.with("file", &file.path))?;
        }
        Ok(bytes)
    }

    /// Reads the positions in a position delete file.
    pub(crate) fn positions(&self, deletes: &DeleteFile) -> Result<Vec<delete_file::Positions>> {
        let file = &deletes.entry.file;
        delete_file::read(self.read_verified(file)?).map_err(|e| e.with("file", &file.path))
    }

    /// Returns the schemas derived from a definition: those of the last commit if they fit, else new ones.
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

    /// Returns true if the last commit has the schema and layout of this definition.
    pub(crate) fn matches_definition(&self, columns: &Columns) -> bool {
        self.metadata.has_schema(&columns.iceberg) && self.metadata.has_layout(&columns.layout)
    }

    /// The partition specs of its files.
    pub fn specs(&self) -> &Specs {
        &self.specs
    }

    /// Number of rows that the current snapshot shows.
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

    /// Path of the newest metadata file, with which other programs open the table.
    pub fn metadata_path(&self) -> PathBuf {
        self.dir.join("metadata").join(metadata_name(self.version))
    }

    /// Returns true if a catalog elsewhere has the metadata.
    pub fn is_in_catalog(&self) -> bool {
        self.catalog_entry.is_some()
    }

    /// Returns the location of the newest metadata file as other programs spell it.
    pub fn metadata_location(&self) -> String {
        if let Some(catalog_entry) = &self.catalog_entry {
            return catalog_entry.metadata_location.clone();
        }
        format!("{}/metadata/{}", self.metadata.location, metadata_name(self.version))
    }

    /// Returns true if the metadata still exist: the file, or the table in its catalog.
    pub fn is_there(&self) -> Result<bool> {
        if let Some(catalog_entry) = &self.catalog_entry {
            return Ok(!catalog_entry.is_gone());
        }
        self.store.exists(&self.metadata_path())
    }

    /// Writes the newest version into the hint file, for readers that have no catalog and do not list the directory.
    pub(crate) fn write_hint(&self) -> Result<()> {
        let path = self.dir.join("metadata").join(HINT);
        let hint = self.version.to_string();
        // In an object store a look costs more than the write.
        if !self.store.is_remote() && self.store.exists(&path)? && self.store.read(&path)? == hint.as_bytes()
        {
            return Ok(());
        }
        self.store.replace(&path, hint.as_bytes())
    }
}

impl LiveFile {
    pub(crate) fn of(entry: Entry, deleted: u64) -> Result<LiveFile> {
        let file: &DataFile = &entry.file;
        let bound = |bounds: &[(i32, Vec<u8>)]| {
            let found = bounds.iter().find(|(id, _)| *id == types::ROW_ID.0 as i32)?;
            Some(RowId(u64::from_le_bytes(found.1.as_slice().try_into().ok()?)))
        };
        // A file of another program may have no bounds.
        let first = bound(&file.metrics.lower).unwrap_or(RowId(0));
        let last = bound(&file.metrics.upper).unwrap_or(RowId(i64::MAX as u64));
        if deleted > file.rows {
            return Err(Error::damaged(format!("more rows are deleted in {} than it has", file.path)));
        }
        let path = file.path.as_str().into();
        Ok(LiveFile { entry, path, first, last, deleted })
    }

    /// Returns the arrival time of its last row, which no earlier row exceeds; `None` if the file has no bounds.
    pub(crate) fn last_time(&self) -> Option<types::Micros> {
        let upper = &self.entry.file.metrics.upper;
        let (_, bytes) = upper.iter().find(|(id, _)| *id == types::TIME.0 as i32)?;
        Some(types::Micros::from_le_bytes(bytes.as_slice().try_into().ok()?))
    }
}
