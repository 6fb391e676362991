//! Loads a table's lake from its files, and sweeps files that nothing names (G1).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use iceberg::manifest::{self, Content, Status};
use iceberg::metadata::{self, Metadata};
use iceberg::spec::specs_of;
use types::{Error, Lsn, Result, RowId, TableDef, TableId};

use crate::expiry;
use crate::files;
use crate::options::Options;
use crate::rest::CatalogEntry;
use crate::state::{
    DeleteFile, Garbage, HINT, Lake, LiveFile, Manifest, RetainedSnapshot, Shared, SideSnapshot,
    metadata_name, newest_version, version_of,
};
use crate::store::Store;

impl Lake {
    /// Loads a table's lake from its files; `None` if there is none. The files are durable afterwards. Files that no
    /// snapshot needs are still there, for [`Lake::tidy`]. A lake that was moved here from another place than `location` is
    /// removed, because all its paths refer to the old place. One that is `needed`, because it alone has rows of the table,
    /// is never removed; this is an error instead.
    pub(crate) fn load(
        store: &Store,
        dir: &Path,
        def: &TableDef,
        location: &str,
        shared: &Shared,
        needed: bool,
    ) -> Result<Option<Lake>> {
        let metadata_dir = dir.join("metadata");
        let Some(version) = newest_version(store, dir)? else {
            return Ok(None);
        };
        // The writer may have died before the name was durable, and a checkpoint must not be ahead of it.
        store.sync_dir(&metadata_dir)?;
        let path = metadata_dir.join(metadata_name(version));
        let in_file = |e: Error| e.with("file", path.display());
        let metadata = Metadata::parse(&store.read(&path)?).map_err(in_file)?;
        match metadata.table_id() {
            Some(id) if id == def.id && metadata.location == location => {}
            Some(id) if id == def.id && needed => {
                return Err(Error::damaged(format!(
                    "the lake of {} is that of {}, and not of {location}, and it alone has rows of the table",
                    def.name, metadata.location
                ))
                .hint("start the server with the data directory and the warehouse where they were"));
            }
            Some(id) if id == def.id && !is_of_other_database(store, &metadata) => {
                remove_dir(store, dir)?;
                return Ok(None);
            }
            // A database never reuses ids, so that table was dropped before this one was created. An id of another
            // database, which used this warehouse before, proves nothing.
            Some(id) if id < def.id && !needed && is_of_this_database(store, &metadata) => {
                remove_dir(store, dir)?;
                return Ok(None);
            }
            other => {
                let of = if is_of_other_database(store, &metadata) { "another database's " } else { "" };
                let found =
                    other.map_or("no table of Polynya".to_owned(), |TableId(id)| format!("{of}table {id}"));
                return Err(Error::damaged(format!("the Iceberg table in {} is of {found}", dir.display()))
                    .with("table", &def.name)
                    .hint("move that directory away; the table then lands anew"));
            }
        }
        let position = metadata.position().map_err(in_file)?;
        Lake::assemble(store, dir, version, metadata, position, shared, None).map_err(in_file).map(Some)
    }

    /// Removes files of a lake that was just loaded and that nothing names. Fails with [`Kind::Exists`] if the lake has
    /// changed meanwhile and has to be loaded again.
    ///
    /// In an object store, a process that ended or timed out may still have a request for the next metadata file under way,
    /// which would name some of these files. Therefore this takes that version itself before it removes anything: a late
    /// request then finds the name taken. This is unnecessary if the present version is `newest`, the one that the last
    /// call created: no other process knew of a later one.
    pub(crate) fn tidy(&mut self, options: &Options, newest: &mut Option<u64>) -> Result<()> {
        let unnamed = self.unnamed_files()?;
        let owner = self.store.owner().map(str::to_owned);
        // Earlier versions of this program did not record the database.
        let is_untold = self.metadata.database() != owner.as_deref();
        let is_sure = *newest == Some(self.version);
        if let Some(owner) = owner.filter(|_| !is_sure && (is_untold || unnamed.iter().any(|f| f.is_ours))) {
            self.metadata.metadata_log.push(self.metadata_log_entry());
            self.metadata.set_database(&owner);
            let now_ms = self.store.env.clock.now() / 1000;
            self.metadata.last_updated_ms = now_ms.max(self.metadata.last_updated_ms);
            let old = expiry::forget_metadata(self, options)?;
            self.version += 1;
            self.store.publish(&self.metadata_path(), self.metadata.to_file()?, || Ok(()))?;
            *newest = Some(self.version);
            old.iter().try_for_each(|path| self.store.remove(path))?;
        }
        self.remove_unnamed(unnamed)?;
        self.write_hint()
    }

    /// Builds a lake from metadata and the files that they name.
    pub(crate) fn assemble(
        store: &Store,
        dir: &Path,
        version: u64,
        metadata: Metadata,
        (row, lsn): (RowId, Lsn),
        shared: &Shared,
        catalog_entry: Option<CatalogEntry>,
    ) -> Result<Lake> {
        let specs = specs_of(&metadata)?;
        let mut lake = Lake {
            store: store.clone(),
            dir: dir.to_owned(),
            version,
            metadata,
            row,
            lsn,
            data: Vec::new(),
            deletes: Vec::new(),
            manifests: Vec::new(),
            emptied_manifests: Vec::new(),
            retained: Vec::new(),
            side_snapshots: Vec::new(),
            specs: Arc::new(specs),
            columns: None,
            garbage: Garbage::default(),
            missing_since: AtomicU64::new(0),
            outcome_unknown: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            cache: shared.cache.clone(),
            replacements: shared.replacements.clone(),
            catalog_entry,
        };
        lake.read_snapshots()?;
        Ok(lake)
    }

    /// Reads the manifests of all snapshots. For the line of ancestors it finds the last snapshot that names each file, for
    /// side snapshots all their names, and for the current snapshot its manifests.
    fn read_snapshots(&mut self) -> Result<()> {
        let metadata = self.metadata.clone();
        let line = metadata.main_line();
        let newest = line.len().saturating_sub(1);
        let mut known = HashMap::new();
        for (nth, snapshot) in line.iter().filter_map(|id| metadata.snapshot(*id)).enumerate() {
            let paths = self.read_snapshot(snapshot, &mut known)?;
            for path in paths {
                let read = known.get_mut(&path).expect("just read");
                read.last = Some(nth);
                if nth < newest {
                    continue;
                }
                if read.manifest.entries.is_empty() {
                    self.emptied_manifests.push(path);
                } else {
                    self.manifests.push(read.manifest.clone());
                }
            }
            let list = snapshot.manifest_list.as_str().into();
            let retained = RetainedSnapshot {
                id: snapshot.snapshot_id,
                list,
                expiring_manifests: Vec::new(),
                removed: Vec::new(),
            };
            self.retained.push(Arc::new(retained));
        }
        for snapshot in metadata.snapshots.iter().filter(|s| !line.contains(&s.snapshot_id)) {
            let paths = self.read_snapshot(snapshot, &mut known).map_err(|e| {
                e.hint(format!(
                    "remove snapshot {} in the catalog: Polynya did not make it, or made it long ago",
                    snapshot.snapshot_id
                ))
            })?;
            let mut names: HashSet<Arc<str>> = [snapshot.manifest_list.as_str().into()].into();
            for path in paths {
                let entries = known[&path].manifest.entries.iter();
                names.extend(entries.map(|entry| entry.file.path.as_str().into()));
                names.insert(path);
            }
            // Files outside the table's directory are not managed here.
            names.retain(|path| self.local(path).is_ok());
            self.side_snapshots.push(Arc::new(SideSnapshot { id: snapshot.snapshot_id, names }));
        }
        let mut last_with: HashMap<&str, usize> = HashMap::new();
        for (read, of) in known.values().filter_map(|read| Some((read, read.last?))) {
            for entry in &read.manifest.entries {
                let last = last_with.entry(&entry.file.path).or_default();
                *last = of.max(*last);
            }
        }
        for (path, last) in last_with.iter().filter(|(_, last)| **last < newest) {
            self.retained_mut(last + 1).removed.push((*path).into());
        }
        for (path, last) in known.iter().filter_map(|(path, read)| Some((path, read.last?))) {
            if last < newest {
                self.retained_mut(last).expiring_manifests.push(path.clone());
            }
        }
        self.set_live()
    }

    /// Returns the manifests that a snapshot names, and reads those that are not in `known` yet.
    fn read_snapshot(
        &self,
        snapshot: &metadata::Snapshot,
        known: &mut HashMap<Arc<str>, LoadedManifest>,
    ) -> Result<Vec<Arc<str>>> {
        let list = self.store.read(&self.local(&snapshot.manifest_list)?)?;
        let list =
            manifest::read_list_of(&list, snapshot).map_err(|e| e.with("file", &snapshot.manifest_list))?;
        let mut paths = Vec::with_capacity(list.len());
        for file in list {
            let path: Arc<str> = file.path.as_str().into();
            if !known.contains_key(&path) {
                let manifest = Arc::new(self.read_manifest(file)?);
                known.insert(path.clone(), LoadedManifest { manifest, last: None });
            }
            paths.push(path);
        }
        Ok(paths)
    }

    fn retained_mut(&mut self, nth: usize) -> &mut RetainedSnapshot {
        Arc::make_mut(&mut self.retained[nth])
    }

    fn read_manifest(&self, file: manifest::ManifestFile) -> Result<Manifest> {
        let bytes = self.store.read(&self.local(&file.path)?)?;
        let entries = manifest::read(&bytes, &file, &self.specs).map_err(|e| e.with("file", &file.path))?;
        let entries = entries.into_iter().filter(|e| e.status != Status::Deleted).collect();
        Ok(Manifest { file, entries })
    }

    /// Finds the live files in [`Lake::manifests`], and the number of deleted rows in each from the position delete files.
    fn set_live(&mut self) -> Result<()> {
        let entries = || self.manifests.iter().flat_map(|m| &m.entries);
        let mut deleted: HashMap<Arc<str>, u64> = HashMap::new();
        let mut deletes = Vec::new();
        for entry in entries().filter(|e| e.file.content == Content::Deletes) {
            let mut found = DeleteFile { entry: entry.clone(), targets: Vec::new() };
            for of in self.positions(&found)? {
                let count = of.positions.len() as u64;
                *deleted.entry(of.path.clone()).or_default() += count;
                found.targets.push((of.path, count));
            }
            deletes.push(Arc::new(found));
        }
        deletes.sort_by(|a, b| {
            (a.entry.sequence, &a.entry.file.path).cmp(&(b.entry.sequence, &b.entry.file.path))
        });
        let mut data = Vec::new();
        for entry in entries().filter(|e| e.file.content == Content::Data) {
            let deleted = deleted.get(entry.file.path.as_str()).copied().unwrap_or(0);
            data.push(Arc::new(LiveFile::of(entry.clone(), deleted)?));
        }
        data.sort_by(|a, b| (a.first, &a.path).cmp(&(b.first, &b.path)));
        (self.data, self.deletes) = (data, deletes);
        Ok(())
    }

    /// Removes files with names of this program that nothing names: leftovers of a killed commit or an interrupted removal
    /// (G1). Must not be called while a commit is under way. Returns the number and bytes of removed files, and the unnamed
    /// files of other programs: these may be about to be committed, or may have been in the table before a crash, which
    /// cannot be told apart.
    pub(crate) fn sweep(&self) -> Result<SweepResult> {
        self.remove_unnamed(self.unnamed_files()?)
    }

    fn remove_unnamed(&self, unnamed: Vec<UnnamedFile>) -> Result<SweepResult> {
        if !unnamed.is_empty() {
            // This check comes after the listing, so the listed files are older than any file of a process that starts
            // later.
            self.store.check_last_start()?;
        }
        // Files that readers hold are removed later, and so are those that a request of an earlier process may still
        // commit.
        let mut held = self.cache.pins.pinned_files();
        held.extend(
            self.catalog_entry.iter().flat_map(|catalog_entry| catalog_entry.unconfirmed.iter().cloned()),
        );
        let mut swept = SweepResult::default();
        for file in unnamed {
            if held.contains(&file.path) {
                swept.held += 1;
            } else if !file.is_ours {
                swept.foreign.push(file.path);
            } else {
                self.store.remove(&file.path)?;
                swept.files += 1;
                swept.bytes += file.bytes;
            }
        }
        Ok(swept)
    }

    /// Returns the files in the table's directory that nothing names.
    pub(crate) fn unnamed_files(&self) -> Result<Vec<UnnamedFile>> {
        let named = self.named_files()?;
        let mut unnamed = Vec::new();
        for (sub, is_file) in TABLE_DIRS {
            let is_refused =
                |name: &str| sub == "metadata" && self.catalog_entry.is_none() && name.ends_with(STATISTICS);
            let top = self.dir.join(sub);
            let mut dirs = vec![top.clone()];
            while let Some(dir) = dirs.pop() {
                for entry in self.store.list(&dir)? {
                    let path = dir.join(&entry.name);
                    if entry.is_dir {
                        if may_hold_files(sub, &self.dir, &path) {
                            dirs.push(path);
                        }
                        continue;
                    }
                    let of = files::checksum_file_target(&entry.name).unwrap_or(&entry.name);
                    if (is_file(of) || is_refused(of)) && !named.contains(&dir.join(of)) {
                        let is_ours = dir == top && has_our_name(&entry.name);
                        unnamed.push(UnnamedFile { path, bytes: entry.len, is_ours });
                    }
                }
            }
        }
        Ok(unnamed)
    }

    /// Returns all files that a retained snapshot or the metadata log names.
    pub(crate) fn named_files(&self) -> Result<BTreeSet<PathBuf>> {
        let mut named: BTreeSet<PathBuf> = BTreeSet::new();
        named.insert(self.metadata_path());
        for old in &self.metadata.metadata_log {
            named.insert(self.local(&old.metadata_file)?);
        }
        let (metadata_files, data_files) = self.retained_names();
        for path in metadata_files.chain(data_files) {
            named.insert(self.local(path)?);
        }
        Ok(named)
    }
}

/// A manifest, and the index of the last ancestor of the current snapshot that names it.
struct LoadedManifest {
    manifest: Arc<Manifest>,
    last: Option<usize>,
}

/// A file that nothing names.
#[derive(Debug)]
pub(crate) struct UnnamedFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// True if the name has the form of this program's names.
    pub is_ours: bool,
}

/// The result of a sweep for files that nothing names.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    /// Files with names of this program, which were removed.
    pub files: u64,
    pub bytes: u64,
    /// Number of files that stay because readers hold them.
    pub held: u64,
    /// Files of other programs, which stay.
    pub foreign: Vec<PathBuf>,
}

/// Returns true if a name has the form of this program's names. Other programs may have files in a table's directory.
fn has_our_name(name: &str) -> bool {
    name.ends_with(files::TEMPORARY) || version_of(name).is_some() || is_named_by_commit(name)
}

/// Returns true if a name has the form of a commit's files: a snapshot id and a number.
fn is_named_by_commit(name: &str) -> bool {
    let known = ["parquet", "deletes.parquet", "avro", "list.avro"];
    let Some((stem, suffix)) = name.split_once('.') else { return false };
    let Some((snapshot, number)) = stem.split_once('-') else { return false };
    known.contains(&suffix)
        && snapshot.len() == 16
        && snapshot.bytes().all(|b| b.is_ascii_hexdigit())
        && number.parse::<u32>().is_ok()
}

/// Suffix of column statistics, which other programs compute. Only catalogs elsewhere accept such files.
const STATISTICS: &str = ".stats";

/// Tells from its name whether a file belongs to an Iceberg table.
type NameTest = fn(&str) -> bool;

/// The subdirectories of a table, each with its test for files of the table.
const TABLE_DIRS: [(&str, NameTest); 2] = [("metadata", is_our_metadata), ("data", is_our_data)];

/// Depth of directories for data files. Other programs create one for each partition field, or several for a hash.
const DEPTH_MAX: usize = 32;

/// Returns true if a subdirectory may contain files of the table.
fn may_hold_files(sub: &str, table: &Path, dir: &Path) -> bool {
    sub == "data" && dir.components().count() <= table.components().count() + DEPTH_MAX
}

fn is_our_metadata(name: &str) -> bool {
    name != HINT
        && (name.ends_with(files::TEMPORARY) || name.ends_with(".avro") || version_of(name).is_some())
}

fn is_our_data(name: &str) -> bool {
    name.ends_with(".parquet")
}

/// Returns true if a directory's newest metadata name this table, and not another database.
pub(crate) fn is_lake_of(store: &Store, dir: &Path, table: TableId) -> Result<bool> {
    let Some(version) = newest_version(store, dir)? else { return Ok(false) };
    let bytes = store.read(&dir.join("metadata").join(metadata_name(version)))?;
    let Ok(found) = Metadata::parse(&bytes) else { return Ok(false) };
    Ok(found.table_id() == Some(table) && !is_of_other_database(store, &found))
}

/// Returns true if this database wrote a lake. A local lake always counts as its own; one in an object store has to name
/// it.
fn is_of_this_database(store: &Store, metadata: &Metadata) -> bool {
    store.owner().is_none_or(|owner| metadata.database() == Some(owner))
}

/// Returns true if the metadata name another database.
fn is_of_other_database(store: &Store, metadata: &Metadata) -> bool {
    store.owner().zip(metadata.database()).is_some_and(|(owner, of)| owner != of)
}

/// Removes a table's directory with all files of this program, and leftovers of other programs.
pub(crate) fn remove_dir(store: &Store, dir: &Path) -> Result<()> {
    remove_files(store, dir, is_our_metadata)
}

/// Removes a table's directory as [`remove_dir`] does, and also the metadata files that a catalog wrote there.
pub(crate) fn remove_all(store: &Store, dir: &Path) -> Result<()> {
    remove_files(store, dir, |name| is_our_metadata(name) || name.ends_with(".metadata.json"))
}

fn remove_files(store: &Store, dir: &Path, is_our_metadata: fn(&str) -> bool) -> Result<()> {
    // Metadata files go first, the newest before older ones: the rest is no longer a table, and is swept when one is
    // created there.
    for (sub, ours) in [("metadata", is_our_metadata), ("data", is_our_data as fn(&str) -> bool)] {
        remove_below(store, dir, sub, &dir.join(sub), ours)?;
    }
    store.remove_dir(dir)
}

fn remove_below(store: &Store, table: &Path, sub: &str, dir: &Path, ours: fn(&str) -> bool) -> Result<()> {
    let (dirs, files): (Vec<_>, Vec<_>) = store.list(dir)?.into_iter().partition(|entry| entry.is_dir);
    let mut names: Vec<String> = files.into_iter().map(|e| e.name).collect();
    names.sort_by_key(|name| std::cmp::Reverse(version_of(name)));
    let goes = |name: &str| {
        let of = files::checksum_file_target(name).unwrap_or(name);
        ours(of) || name == HINT || sub == "metadata" && of.ends_with(STATISTICS)
    };
    for name in names.iter().filter(|name| goes(name)) {
        store.remove(&dir.join(name))?;
    }
    for inner in
        dirs.iter().map(|entry| dir.join(&entry.name)).filter(|inner| may_hold_files(sub, table, inner))
    {
        remove_below(store, table, sub, &inner, ours)?;
    }
    store.remove_dir(dir)
}
