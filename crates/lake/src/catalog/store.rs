//! The directories that may hold the tables of other engines, and the writing of metadata files in them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use iceberg::metadata;
use types::{Error, Kind, Result, name};
use vfs::{Access, Env};

use crate::create;
use crate::files;
use crate::options::Options;

/// The directory in the warehouse for tables of other engines. No namespace of Polynya begins with an underscore.
const FOREIGN_DIR: &str = "_catalog";
/// The directory in a table's directory that holds its metadata files.
const METADATA: &str = "metadata";
const SUFFIX: &str = ".metadata.json";
/// The property of a table or view that names another directory for its metadata files.
const METADATA_PATH: &str = "write.metadata.path";

/// Bytes of the largest metadata file that is read, before and after decompression.
const METADATA_BYTES_MAX: u64 = 256 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The local files of tables and views that a catalog keeps for other engines.
///
/// A location is a path or a `file:` URI. It lies in the warehouse's own directory for such tables, or below one of the
/// directories that the owner configured, because the holder of an API key must not have files written or read elsewhere.
#[derive(Debug, Clone)]
pub struct TableStore {
    env: Env,
    /// The warehouse as a path of this process (`warehouse`) and as Iceberg's metadata call it (`location`).
    warehouse: PathBuf,
    location: String,
    /// Further directories in which tables may be, as absolute paths.
    others: Vec<PathBuf>,
}

impl TableStore {
    /// Opens the store. `others` are absolute directories, besides the warehouse, below which tables may be. Fails if one of
    /// them lies in the data directory or contains it.
    pub fn new(env: Env, options: &Options, others: Vec<PathBuf>) -> Result<TableStore> {
        let store = TableStore {
            env,
            warehouse: options.warehouse.clone(),
            location: options.location.clone(),
            others,
        };
        let root = absolute_path(&store.location)?;
        let data = root.parent().unwrap_or(&root);
        for other in &store.others {
            let path = other.to_str().and_then(|text| absolute_path(text).ok()).filter(|path| path == other);
            if path.is_none_or(|path| path.starts_with(data) || data.starts_with(&path)) {
                return Err(Error::invalid(format!(
                    "`{}` cannot hold tables of other engines: the directory must be absolute, and apart from the data directory",
                    other.display()
                )));
            }
        }
        Ok(store)
    }

    /// Returns the path of the directory or file at a location. Fails with [`Kind::Invalid`] if tables must not be there.
    pub fn path_of(&self, location: &str) -> Result<PathBuf> {
        let path = absolute_path(location)?;
        let own = absolute_path(&self.location)?.join(FOREIGN_DIR);
        if let Ok(rest) = path.strip_prefix(&own)
            && rest != Path::new("")
        {
            return Ok(self.warehouse.join(FOREIGN_DIR).join(rest));
        }
        if self.others.iter().any(|other| path.starts_with(other) && path != *other) {
            return Ok(path);
        }
        Err(Error::invalid(format!("`{}` cannot hold a table here", name::printable(location)))
            .hint("leave the location out, or have its directory named in the setting `lake.locations`"))
    }

    /// Returns the path of a location for a new table or view of a namespace, with the checks of [`TableStore::path_of`]. In the
    /// warehouse the location must lie below the namespace's own directory, so that it cannot collide with tables of another
    /// namespace. With `everywhere` it may lie below the directory of any namespace.
    pub fn path_for_new(&self, namespace: &[String], location: &str, everywhere: bool) -> Result<PathBuf> {
        let (path, own) = (absolute_path(location)?, absolute_path(&self.namespace_location(namespace))?);
        let all = own.parent().unwrap_or(&own);
        let depth =
            path.strip_prefix(if everywhere { all } else { &own }).map_or(0, |rest| rest.iter().count());
        let is_listed = || self.others.iter().any(|other| path.starts_with(other));
        if depth > usize::from(everywhere) || is_listed() {
            self.path_of(location)
        } else {
            Err(self.misplaced(namespace, location))
        }
    }

    /// Returns the error that refuses a location. It is the same whether or not a file is there.
    pub fn misplaced(&self, namespace: &[String], location: &str) -> Error {
        let (location, own) = (name::printable(location), self.namespace_location(namespace));
        Error::invalid(format!("`{location}` cannot hold a table of this namespace")).hint(format!(
            "leave the location out, or choose one below {own}, or have its directory named in the setting `lake.locations`"
        ))
    }

    /// Returns the directory of a namespace's new tables and views. No other namespace has the same one.
    pub fn namespace_location(&self, namespace: &[String]) -> String {
        let parts: Vec<String> = namespace.iter().map(|part| readable_part(part)).collect();
        let (readable, exact) = (parts.join("."), namespace.join("."));
        let unique = if readable == exact {
            String::new()
        } else {
            format!("~{:016x}", xxhash_rust::xxh3::xxh3_64(exact.as_bytes()))
        };
        format!("{}/{FOREIGN_DIR}/{readable}{unique}", self.location)
    }

    /// Returns a location for a new table or view that no other one ever had.
    pub fn new_location(&self, namespace: &[String], called: &str) -> String {
        let unique = self.new_uuid().replace('-', "");
        format!("{}/{}-{unique}", self.namespace_location(namespace), readable_part(called))
    }

    pub fn new_uuid(&self) -> String {
        create::uuid(&self.env)
    }

    pub fn now_ms(&self) -> i64 {
        self.env.clock.now() / 1000
    }

    /// Returns the name of the next metadata file of a table or view at a location, after `previous`. The properties may name
    /// another directory for metadata; it must lie in the location.
    pub fn next_metadata(
        &self,
        location: &str,
        properties: &BTreeMap<String, String>,
        previous: Option<&str>,
    ) -> Result<String> {
        let version = previous.and_then(version_of).map_or(0, |version| version.saturating_add(1));
        let uuid = self.new_uuid();
        let dir = match properties.get(METADATA_PATH) {
            None => format!("{}/{METADATA}", location.trim_end_matches('/')),
            Some(dir) if absolute_path(dir)?.starts_with(absolute_path(location)?) => {
                dir.trim_end_matches('/').to_owned()
            }
            Some(dir) => {
                let dir = name::printable(dir);
                return Err(Error::invalid(format!(
                    "`{METADATA_PATH}` is `{dir}`, which is not in the location"
                )));
            }
        };
        Ok(format!("{dir}/{version:05}-{uuid}{SUFFIX}"))
    }

    /// Writes a metadata file under a new name and makes it durable. Its directories are made durable too, unless `previous`,
    /// which is durable, lies in the same one. The last member of the file is a checksum, which [`TableStore::read`] checks and
    /// leaves out.
    pub fn write(&self, metadata_location: &str, bytes: &[u8], previous: Option<&str>) -> Result<()> {
        let path = self.path_of(metadata_location)?;
        let before = previous.and_then(|previous| self.path_of(previous).ok());
        let dir = dir_of(&path)?;
        if before.as_deref().and_then(Path::parent) != Some(dir) {
            files::make_dir(&self.env, &self.existing_parent(&path), dir)?;
        }
        let bytes = metadata::with_checksum(bytes.to_vec());
        let wrote = files::replace(&self.env, &path, &bytes).and_then(|()| files::sync_dir(&self.env, dir));
        if wrote.is_err() {
            self.remove(metadata_location);
        }
        wrote
    }

    /// Makes the directories of a table that does not exist yet, for clients that write files first.
    pub fn make_location(&self, location: &str) -> Result<()> {
        let dir = self.path_of(location)?;
        let make = |sub| files::make_dir(&self.env, &self.existing_parent(&dir), &dir.join(sub));
        make("data").and_then(|()| make(METADATA))
    }

    /// Makes durable a metadata file that another program wrote, and its directories.
    pub fn adopt(&self, metadata_location: &str) -> Result<()> {
        let path = self.path_of(metadata_location)?;
        let file = self.env.disk.open(&path, Access::ReadWrite).map_err(files::io_error("opening", &path))?;
        file.sync().map_err(files::io_error("syncing", &path))?;
        let dir = dir_of(&path)?;
        files::make_dir(&self.env, &self.existing_parent(&path), dir)?;
        files::sync_dir(&self.env, dir)
    }

    /// Returns a directory above `path` that certainly exists.
    fn existing_parent(&self, path: &Path) -> PathBuf {
        let other = self.others.iter().find(|other| path.starts_with(other));
        match other {
            Some(other) => other.clone(),
            None => self.warehouse.parent().map_or_else(PathBuf::new, Path::to_owned),
        }
    }

    /// Returns a metadata file's text, decompressed if necessary. Fails with [`Kind::Damaged`] if its checksum does not match.
    pub fn read(&self, metadata_location: &str) -> Result<Bytes> {
        let path = self.path_of(metadata_location)?;
        metadata::without_checksum(decompressed(files::read(&self.env, &path)?, &path)?)
    }

    /// Removes a metadata file that nothing names. A file that cannot be removed stays and does no harm.
    pub fn remove(&self, metadata_location: &str) {
        if let Ok(path) =
            self.path_of(metadata_location).and_then(|path| Ok((path, is_metadata(metadata_location)?)))
        {
            let _ = self.env.disk.remove(&path.0);
        }
    }

    /// Removes a metadata file that a table's metadata named, like [`TableStore::remove`], but only if it lies in the table's
    /// location: metadata may name any path.
    pub fn remove_old(&self, table_location: &str, metadata_location: &str) {
        let inside = absolute_path(table_location)
            .and_then(|table| Ok(absolute_path(metadata_location)?.starts_with(table)));
        if inside.is_ok_and(|inside| inside) {
            self.remove(metadata_location);
        }
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }
}

/// Returns the text of a metadata file, decompressed if it is a gzip file. `path` is for messages.
pub fn decompressed(bytes: Bytes, path: &Path) -> Result<Bytes> {
    let too_large = || Error::new(Kind::TooLarge, format!("{} is too large for metadata", path.display()));
    if bytes.len() as u64 > METADATA_BYTES_MAX {
        return Err(too_large());
    }
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(&*bytes)
        .take(METADATA_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|e| Error::invalid(format!("{} is not a gzip file: {e}", path.display())))?;
    if text.len() as u64 > METADATA_BYTES_MAX {
        return Err(too_large());
    }
    Ok(text.into())
}

/// Returns true if two locations are equal or one contains the other: the files of one table would then be the other's too.
pub fn overlaps(a: &str, b: &str) -> bool {
    match (absolute_path(a), absolute_path(b)) {
        (Ok(a), Ok(b)) => a.starts_with(&b) || b.starts_with(&a),
        _ => a == b,
    }
}

/// Returns the absolute path of a location. Refuses `.`, `..` and empty parts, which programs interpret differently.
pub(super) fn absolute_path(location: &str) -> Result<PathBuf> {
    let refuse = |why: &str| {
        Err(Error::invalid(format!("`{}` is not a valid location: {why}", name::printable(location))))
    };
    let rest = match location.split_once(':') {
        Some((scheme, rest)) if !scheme.contains('/') => {
            if scheme.eq_ignore_ascii_case("file") {
                rest.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(rest)
            } else {
                return refuse("tables must be in files of this machine");
            }
        }
        _ => location,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let Some(parts) = rest.strip_prefix('/') else { return refuse("it must be absolute") };
    if parts.split('/').any(|part| matches!(part, "" | "." | "..")) || parts.chars().any(char::is_control) {
        return refuse("a part of it is empty, `.` or `..`, or has a control character");
    }
    let path = PathBuf::from(rest);
    debug_assert!(path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))));
    Ok(path)
}

fn dir_of(path: &Path) -> Result<&Path> {
    path.parent().ok_or_else(|| Error::internal("a file without a directory"))
}

fn is_metadata(location: &str) -> Result<()> {
    if location.ends_with(SUFFIX) {
        Ok(())
    } else {
        Err(Error::invalid(format!("`{}` is not a metadata file", name::printable(location))))
    }
}

/// Returns a name as a part of a path that a person recognises.
fn readable_part(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    text.chars().take(60).map(plain).collect()
}

/// Returns the version in a metadata file's name: 12 for `…/00012-….metadata.json`.
fn version_of(metadata_location: &str) -> Option<u64> {
    let file = metadata_location.rsplit('/').next()?;
    file.split(['-', '.']).next()?.trim_start_matches('v').parse().ok()
}
