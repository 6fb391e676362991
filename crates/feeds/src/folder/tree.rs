//! One folder on disk: the known state of its files, and the changes since.
//!
//! A full scan walks the whole tree and reads each file's size and times; a partial scan lists only the given folders.
//! A file is read only if its size or times differ from those of the last scan.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use site::{NOTE_BYTES_MAX, is_file, is_note, is_valid, is_withholdable};
use types::{Error, Micros, Result};

use super::FolderRoot;

/// The limits for files that are taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub files_max: usize,
    /// Bytes of one file that is not a note; a note has at most [`NOTE_BYTES_MAX`].
    pub asset_bytes_max: u64,
    /// Bytes of all files together, since a site holds them in memory.
    pub total_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { files_max: 100_000, asset_bytes_max: 16 << 20, total_bytes_max: 1 << 30 }
    }
}

/// The age up to which a file counts as still being written. Such a file is read a moment later.
const HOT: Duration = Duration::from_millis(40);
/// The number of scans after which a file is read even though it is still being written.
const HOT_SCANS_MAX: u8 = 6;
/// The greatest number of entries of skipped folders that are searched for names of notes.
const SKIPPED_ENTRIES_MAX: usize = 10_000;
/// Folders of version control: they have many files, and no note links to any of them.
const VERSION_CONTROL: [&str; 3] = [".git", ".hg", ".svn"];

/// The state of a followed folder as of the last scan.
#[derive(Debug)]
pub struct Tree {
    root: FolderRoot,
    limits: Limits,
    /// Known files, by path in the vault.
    seen: BTreeMap<String, KnownFile>,
    /// Folders by path below the root, with their device number.
    folders: BTreeMap<String, u64>,
    /// The device and inode of the root. If another directory takes its place, missing files do not count as removed.
    identity: Option<(u64, u64)>,
    hot: BTreeMap<String, u8>,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownFile {
    /// The stamp of the last scan. `None`: the file is known only from the table.
    stamp: Option<Stamp>,
    /// The content as stored in the table. `None` for a skipped file.
    stored: Option<StoredContent>,
    /// True if the table has a row with only the path of this note.
    withheld: bool,
}

/// The size, time and hash of a file's content in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredContent {
    pub size: u64,
    pub modified: Option<Micros>,
    pub hash: blake3::Hash,
}

/// The metadata by which a change is detected. The change time is included because a tool may restore the modification
/// time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
    inode: u64,
}

/// A difference between the folder and the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    Put {
        path: String,
        content: Bytes,
        modified: Option<Micros>,
    },
    /// A note that was skipped. The site must know its name in order not to show it (A1).
    Withhold {
        path: String,
    },
    Remove {
        path: String,
    },
}

impl FileChange {
    pub fn path(&self) -> &str {
        match self {
            FileChange::Put { path, .. } | FileChange::Withhold { path } | FileChange::Remove { path } => {
                path
            }
        }
    }
}

/// The result of a scan.
#[derive(Clone, Debug, Default)]
pub struct ScanResult {
    pub changes: Vec<FileChange>,
    /// Skipped files with the reason, by path. A file is reported when it is first seen or changed.
    pub warnings: Vec<(String, String)>,
    /// The number of files whose content was read.
    pub read: usize,
    /// True if a file is being written just now: scan again soon.
    pub hot: bool,
}

#[derive(Clone, Copy)]
pub enum ScanScope<'a> {
    Everything,
    /// The listed folders below the root, without their subfolders.
    Folders(&'a BTreeSet<String>),
}

#[derive(Default)]
struct Listing {
    files: BTreeMap<String, (PathBuf, Stamp)>,
    folders: BTreeMap<String, u64>,
    /// Notes that were skipped unread.
    withheld: BTreeSet<String>,
    /// Folders that could not be listed, so that nothing below them counts as removed.
    unknown: Vec<String>,
}

impl Tree {
    /// Makes a tree without any file. The folder need not exist. Nothing is read before the first scan.
    pub fn new(root: FolderRoot, limits: Limits) -> Tree {
        Tree {
            root,
            limits,
            seen: BTreeMap::new(),
            folders: BTreeMap::new(),
            identity: None,
            hot: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Records a file that the table has. `stored` is `None` for a note of which the table has only the path.
    pub fn set_stored(&mut self, path: String, stored: Option<StoredContent>) {
        self.bytes += stored.as_ref().map_or(0, |stored| stored.size);
        let withheld = stored.is_none();
        self.seen.insert(path, KnownFile { stamp: None, stored, withheld });
    }

    pub fn files(&self) -> usize {
        self.seen.values().filter(|seen| seen.stamp.is_some() || seen.stored.is_some()).count()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn root(&self) -> &FolderRoot {
        &self.root
    }

    /// Returns the folders found by the last full scan and later partial scans.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.keys().map(String::as_str)
    }

    /// Returns the path on disk of a folder of this tree.
    pub fn disk_path(&self, within: &str) -> PathBuf {
        if within.is_empty() { self.root.path.clone() } else { self.root.path.join(within) }
    }

    /// Scans the tree or some of its folders, reads changed files, and returns the changes.
    ///
    /// Skipped without a warning: hidden files and folders (`.obsidian`, `.git`, `.trash`), links that leave the
    /// folder or lead to a folder, and files of no known kind. Skipped with a warning: files that exceed the limits or
    /// cannot be read, and directories that hold a database, because they contain its owner's secret. Skipped notes
    /// are reported by name. Fails, and counts nothing as removed, if the root itself cannot be listed, has become
    /// another, empty directory, or holds a database.
    pub fn scan(&mut self, scope: ScanScope<'_>) -> Result<ScanResult> {
        let mut scan = ScanResult::default();
        let identity = self.identity()?;
        let scope = if self.identity == Some(identity) { scope } else { ScanScope::Everything };
        let listing = self.walk(scope, &mut scan)?;
        if let ScanScope::Everything = scope {
            let known = self.seen.values().any(|seen| seen.stored.is_some());
            if listing.files.is_empty() && known && self.identity != Some(identity) {
                return Err(Error::not_found(format!(
                    "`{}` is empty, and it is not the folder that was there before: the files that came from it are kept",
                    self.root.path.display()
                ))
                .hint("mount it again; if the files were removed on purpose, put a single file into it"));
            }
        }
        self.identity = Some(identity);
        for path in self.missing_files(scope, &listing) {
            let Some(KnownFile { stored, withheld, .. }) = self.seen.remove(&path) else { continue };
            self.bytes -= stored.as_ref().map_or(0, |stored| stored.size);
            if stored.is_some() || withheld {
                scan.changes.push(FileChange::Remove { path });
            }
        }
        for path in listing.withheld {
            let old = self.seen.insert(path.clone(), KnownFile { stamp: None, stored: None, withheld: true });
            self.bytes -= old.as_ref().and_then(|old| old.stored.as_ref()).map_or(0, |stored| stored.size);
            if old.is_none_or(|old| !old.withheld) {
                scan.changes.push(FileChange::Withhold { path });
            }
        }
        if let ScanScope::Everything = scope {
            let unknown = |folder: &String| listing.unknown.iter().any(|at| is_below(folder, at));
            self.folders.retain(|folder, _| unknown(folder));
        }
        self.folders.extend(listing.folders);
        for (path, (disk_path, stamp)) in listing.files {
            if self.seen.get(&path).is_none_or(|seen| seen.stamp.as_ref() != Some(&stamp)) {
                self.update_file(path, &disk_path, stamp, &mut scan);
            } else {
                self.hot.remove(&path);
            }
        }
        Ok(scan)
    }

    fn identity(&self) -> Result<(u64, u64)> {
        let disk_path = &self.root.path;
        let metadata = fs::metadata(disk_path).map_err(|error| self.unavailable(disk_path, error))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn unavailable(&self, disk_path: &Path, error: io::Error) -> Error {
        Error::io(format!("looking at `{}`", disk_path.display()), error)
            .hint("the files that came from it are kept; it is looked for again")
    }

    /// Returns the known files in the scanned folders that were not found again.
    fn missing_files(&self, scope: ScanScope<'_>, listing: &Listing) -> Vec<String> {
        let kept = |path: &str| {
            let within = self.within_root(path);
            listing.files.contains_key(path)
                || listing.withheld.contains(path)
                || listing.unknown.iter().any(|at| is_below(within, at))
        };
        let looked_at = |path: &str| match scope {
            ScanScope::Everything => true,
            ScanScope::Folders(folders) => folders.contains(parent(self.within_root(path))),
        };
        self.seen.keys().filter(|path| looked_at(path) && !kept(path)).cloned().collect()
    }

    fn within_root<'a>(&self, path: &'a str) -> &'a str {
        let rest = path.strip_prefix(self.root.prefix.as_str()).unwrap_or(path);
        rest.strip_prefix('/').unwrap_or(rest)
    }

    fn in_vault(&self, within: &str) -> String {
        match self.root.prefix.as_str() {
            "" => within.to_owned(),
            prefix => format!("{prefix}/{within}"),
        }
    }

    fn walk(&self, scope: ScanScope<'_>, scan: &mut ScanResult) -> Result<Listing> {
        let mut listing = Listing::default();
        let top =
            fs::canonicalize(&self.root.path).map_err(|error| self.unavailable(&self.root.path, error))?;
        if top.is_file() {
            if !is_note(&top.to_string_lossy()) && top.parent().is_some_and(is_database) {
                return Err(self.database_error());
            }
            let name = top.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let file = self.stamp_at(&top);
            listing.files.extend(file.map(|stamp| (self.in_vault(&name), (top.clone(), stamp))));
            return Ok(listing);
        }
        let mut waiting: Vec<(String, bool)> = match scope {
            ScanScope::Everything => vec![(String::new(), true)],
            ScanScope::Folders(folders) => folders.iter().map(|folder| (folder.clone(), false)).collect(),
        };
        let mut skipped_folders = Vec::new();
        while let Some((within, deep)) = waiting.pop() {
            let disk_path = if within.is_empty() { top.clone() } else { top.join(&within) };
            let listed = fs::metadata(&disk_path).and_then(|metadata| {
                Ok((metadata.dev(), fs::read_dir(&disk_path)?.collect::<io::Result<Vec<_>>>()?))
            });
            let (device, list) = match listed {
                Ok(listed) => listed,
                // The folder was removed during the scan.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !within.is_empty() => continue,
                Err(error) if within.is_empty() => return Err(self.unavailable(&disk_path, error)),
                Err(error) => {
                    scan.warn(
                        &self.in_vault(&within),
                        format!("the folder cannot be listed: {error}; the files that came from it are kept"),
                    );
                    listing.unknown.push(within);
                    continue;
                }
            };
            if list.is_empty() && self.folders.get(&within).is_some_and(|known| *known != device) {
                scan.warn(
                    &self.in_vault(&within),
                    "the file system that was mounted there is gone; the files that came from it are kept"
                        .into(),
                );
                listing.unknown.push(within);
                continue;
            }
            if is_database_of(|name| list.iter().any(|entry| entry.file_name() == name)) {
                if within.is_empty() {
                    return Err(self.database_error());
                }
                scan.warn(
                    &self.in_vault(&within),
                    "it contains a database with its owner's secret; the folder is skipped".into(),
                );
                continue;
            }
            for entry in list {
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    scan.warn(
                        &self.in_vault(&within),
                        "a file's name is not UTF-8; the file is skipped".into(),
                    );
                    continue;
                };
                let below = if within.is_empty() { name.to_owned() } else { format!("{within}/{name}") };
                let Ok(kind) = entry.file_type() else { continue };
                let hidden = name.starts_with('.');
                if kind.is_dir() {
                    match !hidden && below.split('/').count() < site::DEPTH_MAX {
                        _ if !deep => {}
                        true => waiting.push((below, true)),
                        false => skipped_folders.push((below, entry.path())),
                    }
                    continue;
                }
                if hidden {
                    self.withhold(&below, &mut listing);
                    continue;
                }
                if deep && kind.is_symlink() && entry.path().is_dir() {
                    skipped_folders.push((below, entry.path()));
                    continue;
                }
                if !is_note(name) && (self.root.notes_only || !is_file(name)) {
                    continue;
                }
                if listing.files.len() >= self.limits.files_max {
                    return Err(Error::new(
                        types::Kind::TooLarge,
                        format!("`{}` has more than {} files", top.display(), self.limits.files_max),
                    )
                    .hint("name a smaller folder"));
                }
                let file =
                    if kind.is_symlink() { resolve_link(&top, &entry.path()) } else { Some(entry.path()) };
                match file.and_then(|disk_path| Some((disk_path.clone(), self.stamp_at(&disk_path)?))) {
                    Some(found) => drop(listing.files.insert(self.in_vault(&below), found)),
                    None => self.withhold(&below, &mut listing),
                }
            }
            listing.folders.insert(within, device);
        }
        self.walk_skipped(skipped_folders, &mut listing);
        Ok(listing)
    }

    /// Collects the names of notes in skipped folders: hidden ones, too deep ones, and those behind links.
    fn walk_skipped(&self, mut waiting: Vec<(String, PathBuf)>, listing: &mut Listing) {
        let mut left = SKIPPED_ENTRIES_MAX;
        // Links may form cycles.
        let mut listed = BTreeSet::new();
        while let Some((within, disk_path)) = waiting.pop() {
            let identity = fs::metadata(&disk_path).map(|metadata| (metadata.dev(), metadata.ino()));
            let is_history = VERSION_CONTROL.contains(&within.rsplit('/').next().unwrap_or_default());
            if is_history
                || !identity.is_ok_and(|identity| listed.insert(identity))
                || is_database(&disk_path)
            {
                continue;
            }
            let Ok(list) = fs::read_dir(&disk_path) else { continue };
            for entry in list.flatten() {
                if left == 0 {
                    return;
                }
                left -= 1;
                let name = entry.file_name();
                let (Some(name), Ok(kind)) = (name.to_str(), entry.file_type()) else { continue };
                let below = format!("{within}/{name}");
                if kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()) {
                    waiting.push((below, entry.path()))
                } else {
                    self.withhold(&below, listing)
                }
            }
        }
    }

    fn withhold(&self, within: &str, listing: &mut Listing) {
        let name = within.rsplit('/').next().unwrap_or_default();
        let path = self.in_vault(within);
        // Temporary files that editors and other systems put beside a note are left out.
        if ![".#", "._", ".~"].iter().any(|mark| name.starts_with(mark)) && is_withholdable(&path) {
            listing.withheld.insert(path);
        }
    }

    fn database_error(&self) -> Error {
        database_error(&self.root.path)
    }

    fn stamp_at(&self, file: &Path) -> Option<Stamp> {
        fs::metadata(file).ok().and_then(|metadata| stamp(&metadata))
    }

    /// Handles a file that is new or whose stamp has changed.
    fn update_file(&mut self, path: String, disk_path: &Path, stamp: Stamp, scan: &mut ScanResult) {
        let old = self.seen.get(&path).and_then(|seen| seen.stored.clone());
        let old_size = old.as_ref().map_or(0, |stored| stored.size);
        let scans = self.hot.get(&path).copied().unwrap_or(0);
        if scans < HOT_SCANS_MAX && is_hot(&stamp) {
            self.hot.insert(path, scans + 1);
            scan.hot = true;
            return;
        }
        let content = match self.read(&path, disk_path, &stamp, old_size) {
            Ok(content) => content,
            Err(ReadFailure::Changing) if scans < HOT_SCANS_MAX => {
                self.hot.insert(path, scans + 1);
                scan.hot = true;
                return;
            }
            Err(why) => {
                let why = match why {
                    ReadFailure::Changing => {
                        "it changes all the time; it is skipped until it stops changing".to_owned()
                    }
                    ReadFailure::Refused(why) => why,
                };
                self.hot.remove(&path);
                scan.warn(&path, why);
                self.bytes -= old_size;
                let withheld = is_withholdable(&path);
                let was_withheld = self.seen.get(&path).is_some_and(|seen| seen.withheld);
                if withheld && !was_withheld {
                    scan.changes.push(FileChange::Withhold { path: path.clone() });
                } else if old.is_some() {
                    scan.changes.push(FileChange::Remove { path: path.clone() });
                }
                self.seen.insert(path, KnownFile { stamp: Some(stamp), stored: None, withheld });
                return;
            }
        };
        self.hot.remove(&path);
        scan.read += 1;
        let modified = i64::try_from(stamp.modified_ns / 1_000).ok();
        let stored = StoredContent { size: content.len() as u64, modified, hash: blake3::hash(&content) };
        self.bytes = self.bytes - old_size + stored.size;
        if old.as_ref() != Some(&stored) {
            scan.changes.push(FileChange::Put { path: path.clone(), content, modified });
        }
        self.seen.insert(path, KnownFile { stamp: Some(stamp), stored: Some(stored), withheld: false });
    }

    fn read(
        &self,
        path: &str,
        disk_path: &Path,
        before: &Stamp,
        old_size: u64,
    ) -> std::result::Result<Bytes, ReadFailure> {
        let refused = |why: String| Err(ReadFailure::Refused(why));
        if !is_valid(path) {
            return refused(
                "its path is too long or has a character that an address cannot have; it is skipped".into(),
            );
        }
        let size_max = if is_note(path) { NOTE_BYTES_MAX as u64 } else { self.limits.asset_bytes_max };
        let room = self.limits.total_bytes_max.saturating_sub(self.bytes - old_size);
        let most = size_max.min(room);
        if before.size > most {
            return refused(format!(
                "it has {} bytes, and there is room for {most}; it is skipped",
                before.size
            ));
        }
        let mut content = Vec::with_capacity(before.size as usize + 1);
        let read = fs::File::open(disk_path).and_then(|file| {
            let opened = stamp(&file.metadata()?);
            (&file).take(most + 1).read_to_end(&mut content)?;
            Ok((opened, stamp(&file.metadata()?)))
        });
        match read {
            Err(error) => refused(format!("it cannot be read: {error}")),
            Ok(_) if content.len() as u64 > most => {
                refused("it grew beyond the limit while it was read; it is skipped".into())
            }
            Ok((opened, after)) if opened.as_ref() != Some(before) || after.as_ref() != Some(before) => {
                Err(ReadFailure::Changing)
            }
            Ok(_) => Ok(Bytes::from(content)),
        }
    }
}

enum ReadFailure {
    Changing,
    Refused(String),
}

impl ScanResult {
    fn warn(&mut self, path: &str, message: String) {
        self.warnings.push((path.to_owned(), message));
    }
}

/// Returns the folder of a path; empty for the root.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| folder.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Resolves a link if its target is a visible file below `top`.
fn resolve_link(top: &Path, link: &Path) -> Option<PathBuf> {
    let target = fs::canonicalize(link).ok()?;
    let inner = target.strip_prefix(top).ok()?;
    let hidden = inner.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'));
    let secret = || target.ancestors().skip(1).take_while(|above| above.starts_with(top)).any(is_database);
    (!hidden && target.is_file() && !secret()).then_some(target)
}

fn database_error(path: &Path) -> Error {
    Error::invalid(format!("`{}` belongs to a database, with its owner's secret", path.display()))
        .hint("name a folder of notes; keep the database outside of it")
}

/// Fails if the folder is itself a database, since it would be refused later. For callers that can still ask for
/// another one.
pub fn check_folder(path: &Path) -> Result<()> {
    if is_database(path) { Err(database_error(path)) } else { Ok(()) }
}

/// Returns true if the directory holds a database, of this server or another.
fn is_database(disk_path: &Path) -> bool {
    is_database_of(|name| disk_path.join(name).exists())
}

fn is_database_of(has: impl Fn(&str) -> bool) -> bool {
    has("LOCK") && ["log", "tables", "server.json"].iter().any(|name| has(name))
}

fn stamp(metadata: &fs::Metadata) -> Option<Stamp> {
    if !metadata.is_file() {
        return None;
    }
    let modified_ns = metadata.mtime() as i128 * 1_000_000_000 + metadata.mtime_nsec() as i128;
    let changed_ns = metadata.ctime() as i128 * 1_000_000_000 + metadata.ctime_nsec() as i128;
    Some(Stamp { size: metadata.size(), modified_ns, changed_ns, inode: metadata.ino() })
}

/// Returns true if the file may still be being written.
fn is_hot(stamp: &Stamp) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    let age = now - stamp.changed_ns;
    (0..HOT.as_nanos() as i128).contains(&age)
}
