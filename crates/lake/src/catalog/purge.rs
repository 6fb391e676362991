//! Removes the files of a table that was dropped with a purge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use iceberg::avro;
use serde_json::Value as Json;
use types::{Error, Result};

use super::store::{TableStore, absolute_path};
use super::table::TableMetadata;
use crate::files;

/// The counts of a table's files after a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    pub removed: u64,
    /// Named files that could not be removed, and manifests and manifest lists that could not be read.
    pub failed: u64,
    /// Named files outside the table's location. They stay.
    pub elsewhere: u64,
}

/// Field ids of Iceberg's manifests: a manifest's path in a list, the file in a manifest's entry, and that file's path.
const MANIFEST_PATH: i32 = 500;
const DATA_FILE: i32 = 2;
const FILE_PATH: i32 = 100;
/// Levels of directories that are searched for empty ones. Other programs put data files into nested directories, one level for
/// each partition field.
const DEPTH_MAX: usize = 32;

impl TableStore {
    /// Removes every file that a table's metadata names and that lies in its location. The caller has removed the table's name
    /// before. A file that cannot be read or removed is counted and is not an error, since nobody could act on it later.
    pub fn purge(&self, table: &TableMetadata, metadata_location: &str) -> Result<PurgeCounts> {
        let root = self.path_of(&table.location)?;
        let inside = absolute_path(&table.location)?;
        let mut purged = PurgeCounts::default();
        let mut named = NamedFiles { store: self, inside: &inside, root: &root, files: BTreeSet::new() };
        let mut manifests: BTreeSet<String> = BTreeSet::new();
        for snapshot in &table.snapshots {
            let list = snapshot["manifest-list"].as_str();
            match list.map(|list| named.paths(list, |record| record.text(MANIFEST_PATH).map(str::to_owned))) {
                Some(Ok(found)) => manifests.extend(found),
                Some(Err(_)) => purged.failed += 1,
                None => manifests.extend(texts(&snapshot["manifests"])),
            }
            list.into_iter().for_each(|list| named.add(list, &mut purged));
        }
        for manifest in &manifests {
            let path = |record: &avro::Record| {
                record.record(DATA_FILE).and_then(|file| file.text(FILE_PATH)).map(str::to_owned)
            };
            match named.paths(manifest, path) {
                Ok(found) => found.iter().for_each(|file| named.add(file, &mut purged)),
                Err(_) => purged.failed += 1,
            }
            named.add(manifest, &mut purged);
        }
        for statistics in table.statistics.iter().chain(&table.partition_statistics) {
            statistics["statistics-path"].as_str().into_iter().for_each(|path| named.add(path, &mut purged));
        }
        table.metadata_log.iter().for_each(|old| named.add(&old.metadata_file, &mut purged));
        named.add(metadata_location, &mut purged);
        for path in &named.files {
            match files::remove(self.env(), path) {
                Ok(()) => purged.removed += 1,
                Err(_) => purged.failed += 1,
            }
        }
        self.clear_away(&root, DEPTH_MAX);
        Ok(purged)
    }

    /// Removes empty directories, and checksum files (`.crc`) whose file is gone: Hadoop's local file system writes them, and
    /// Trino leaves them behind when it removes a file. All other files that the metadata does not name stay.
    fn clear_away(&self, dir: &Path, depth: usize) {
        let Ok(entries) = self.env().disk.list(dir) else { return };
        let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        for entry in &entries {
            let path = dir.join(&entry.name);
            if entry.is_dir && depth > 0 {
                self.clear_away(&path, depth - 1);
            } else if files::checksum_file_target(&entry.name).is_some_and(|of| !names.contains(of)) {
                let _ = self.env().disk.remove(&path);
            }
        }
        let _ = self.env().disk.remove_dir(dir);
    }
}

struct NamedFiles<'a> {
    store: &'a TableStore,
    /// The table's location as the metadata writes it (`inside`) and as a path of this process (`root`).
    inside: &'a Path,
    root: &'a Path,
    files: BTreeSet<PathBuf>,
}

impl NamedFiles<'_> {
    /// Returns the local path of a named file, if it lies in the table's location.
    fn local(&self, path: &str) -> Option<PathBuf> {
        let path = absolute_path(path).ok()?;
        let rest = path.strip_prefix(self.inside).ok()?;
        (rest != Path::new("")).then(|| self.root.join(rest))
    }

    fn add(&mut self, path: &str, purged: &mut PurgeCounts) {
        match self.local(path) {
            Some(path) => drop(self.files.insert(path)),
            None => purged.elsewhere += 1,
        }
    }

    /// Returns the paths that `of` finds in the records of an Avro file.
    fn paths(&self, path: &str, of: impl Fn(&avro::Record) -> Option<String>) -> Result<Vec<String>> {
        let local = self.local(path).ok_or_else(|| Error::invalid("a file outside the table"))?;
        let (_, records) = avro::read(&files::read(self.store.env(), &local)?)?;
        Ok(records.iter().filter_map(of).collect())
    }
}

fn texts(list: &Json) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}
