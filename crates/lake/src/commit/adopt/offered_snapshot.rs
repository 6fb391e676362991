//! Reads the files that another program's snapshot names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use iceberg::manifest::{self, Content, Entry, Status};
use types::{Error, Kind, Result};

use crate::state::Lake;

/// Bytes of one file of another program, at most; it is read as a whole.
const BYTES_MAX: u64 = 1 << 30;
/// Manifests of one snapshot, and files in them, at most.
const MANIFESTS_MAX: usize = 10_000;
const FILES_MAX: usize = 1 << 20;

/// The files of another program's snapshot.
pub(super) struct OfferedSnapshot {
    /// Entries by path, in the form that our manifests use.
    pub data: BTreeMap<String, Entry>,
    pub deletes: BTreeMap<String, Entry>,
    /// Paths of all manifests in the list.
    pub manifests: HashSet<String>,
    /// Paths of the manifest list and of those manifests that are not ours.
    pub metadata: Vec<PathBuf>,
    is_local: bool,
}

impl OfferedSnapshot {
    pub fn read(base: &Lake, list: &str) -> Result<OfferedSnapshot> {
        let mut offered = OfferedSnapshot {
            data: BTreeMap::new(),
            deletes: BTreeMap::new(),
            manifests: HashSet::new(),
            metadata: Vec::new(),
            is_local: base.metadata.location.starts_with('/'),
        };
        let list_path = offered.checked_path(base, list, "metadata", ".avro")?;
        let manifests =
            manifest::read_list(&read(base, &list_path, list)?).map_err(|e| refusal_from(e, list))?;
        offered.metadata.push(list_path);
        if manifests.len() > MANIFESTS_MAX {
            return Err(refused(format!(
                "it has {} manifests, and may have {MANIFESTS_MAX}",
                manifests.len()
            )));
        }
        for mut file in manifests {
            file.path = offered.lake_path(&file.path).to_owned();
            if !offered.manifests.insert(file.path.clone()) {
                return Err(refused(format!("it names {} twice", file.path)));
            }
            if base.emptied_manifests.iter().any(|path| **path == *file.path) {
                continue;
            }
            let known = base.manifests.iter().find(|known| known.file.path == file.path);
            let entries = match known {
                Some(known) => known.entries.clone(),
                None => {
                    let path = offered.checked_path(base, &file.path, "metadata", ".avro")?;
                    let bytes = read(base, &path, &file.path)?;
                    offered.metadata.push(path);
                    manifest::read(&bytes, &file, &base.specs).map_err(|e| refusal_from(e, &file.path))?
                }
            };
            for entry in entries.into_iter().filter(|entry| entry.status != Status::Deleted) {
                offered.add(base, entry)?;
            }
        }
        Ok(offered)
    }

    fn add(&mut self, base: &Lake, mut entry: Entry) -> Result<()> {
        let path = self.lake_path(&entry.file.path).to_owned();
        self.checked_path(base, &path, "data", ".parquet")?;
        if path != entry.file.path {
            Arc::make_mut(&mut entry.file).path = path.clone();
        }
        let of = match entry.file.content {
            Content::Data => &mut self.data,
            Content::Deletes => &mut self.deletes,
        };
        if of.insert(path, entry).is_some_and(|twice| twice.file.content == Content::Data) {
            return Err(refused("it names a data file twice"));
        }
        if self.data.len() + self.deletes.len() > FILES_MAX {
            Err(refused(format!("it has more than {FILES_MAX} files")))
        } else {
            Ok(())
        }
    }

    /// Returns a path in the lake's form: some programs name local files by URIs.
    pub fn lake_path<'p>(&self, path: &'p str) -> &'p str {
        match path.strip_prefix("file:") {
            Some(rest) if self.is_local => rest.strip_prefix("//").unwrap_or(rest),
            _ => path,
        }
    }

    /// Returns the local path of a file. Refuses one outside the given directory of the table, or without the given ending.
    fn checked_path(&self, base: &Lake, path: &str, dir: &str, ending: &str) -> Result<PathBuf> {
        let local = base.local(self.lake_path(path)).ok();
        let fits = |local: &PathBuf| local.starts_with(base.dir.join(dir)) && path.ends_with(ending);
        local.filter(fits).ok_or_else(|| {
            let location = &base.metadata.location;
            refused(format!("{path} is not in {location}/{dir}, or does not end with {ending}"))
        })
    }
}

/// Reads a file of another program; `called` is its name in error messages.
pub(super) fn read(base: &Lake, path: &std::path::Path, called: &str) -> Result<Bytes> {
    let bytes = base.store.len(path).map_err(|e| refusal_from(e, called))?;
    if bytes > BYTES_MAX {
        return Err(refused(format!("{called} has {bytes} bytes, and may have {BYTES_MAX}")));
    }
    base.store.read(path).map_err(|e| refusal_from(e, called))
}

pub(super) fn refused(why: impl AsRef<str>) -> Error {
    Error::conflict(format!("the replacement is not taken: {}", why.as_ref()))
}

/// Turns an error caused by a file of another program into the reason of a refusal.
pub(super) fn refusal_from(error: Error, called: &str) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
    let why: Cow<str> = match (error.kind(), source.map(io::Error::kind)) {
        (Kind::Io, Some(io::ErrorKind::NotFound)) => "is not there".into(),
        (Kind::Io, Some(io::ErrorKind::PermissionDenied)) => {
            "cannot be read by the user that runs Polynya".into()
        }
        (Kind::Damaged | Kind::Newer | Kind::Invalid | Kind::Internal, _) => {
            format!("does not fit: {}", error.message()).into()
        }
        _ => return error,
    };
    refused(format!("{called} {why}"))
}
