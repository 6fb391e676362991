//! One folder on disk: what was seen in it, and what changed since.
//!
//! A look at everything walks the whole tree and asks for each file's size and times; a look at some folders lists those
//! alone. Only files for which the answer differs from the last are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use site::{NOTE_BYTES_MAX, is_file, is_note, is_valid, is_withholdable};
use types::{Error, Micros, Result};

use super::Root;

/// What is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub files_max: usize,
    /// Of one file that is not a note; notes have [`NOTE_BYTES_MAX`].
    pub asset_bytes_max: u64,
    /// Of all files together, since a site holds them in memory.
    pub total_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { files_max: 100_000, asset_bytes_max: 16 << 20, total_bytes_max: 1 << 30 }
    }
}

/// A file that was written less than this ago may be written further: it is left for a moment.
const HOT: Duration = Duration::from_millis(40);
/// A file that is always being written is read all the same.
const HOT_LOOKS_MAX: u8 = 6;
/// Of folders that are passed over, so much is looked through for names of notes.
const ASIDE_ENTRIES_MAX: usize = 10_000;
/// Many files, and none that anybody links to.
const VERSION_CONTROL: [&str; 3] = [".git", ".hg", ".svn"];

/// See the module.
#[derive(Debug)]
pub struct Tree {
    root: Root,
    limits: Limits,
    /// By path in the vault.
    seen: BTreeMap<String, Seen>,
    /// Folders by path below the root, with the device that they are on.
    folders: BTreeMap<String, u64>,
    /// Where the root was found: another directory in its place is no sign that files were removed.
    identity: Option<(u64, u64)>,
    hot: BTreeMap<String, u8>,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// `None`: only the table knows it, from an earlier run.
    stamp: Option<Stamp>,
    /// None of a file that was passed over.
    taken: Option<Taken>,
    /// The table has its path and nothing else of it.
    withheld: bool,
}

/// What the table holds of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub size: u64,
    pub modified: Option<Micros>,
    pub hash: blake3::Hash,
}

/// When any of it differs, a file is read again. The change time is there because a tool may restore the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
    inode: u64,
}

/// A file whose content or time is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put {
        path: String,
        content: Bytes,
        modified: Option<Micros>,
    },
    /// A note that was passed over. The site has to know what it is called, so as not to show it (A1).
    Withhold {
        path: String,
    },
    Remove {
        path: String,
    },
}

impl Change {
    pub fn path(&self) -> &str {
        match self {
            Change::Put { path, .. } | Change::Withhold { path } | Change::Remove { path } => path,
        }
    }
}

/// What a look came to.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub changes: Vec<Change>,
    /// What was passed over, and why, by path. Said when a file is first seen, or changed.
    pub warnings: Vec<(String, String)>,
    /// Files whose content was read.
    pub read: usize,
    /// Something is being written just now: look again soon.
    pub hot: bool,
}

#[derive(Clone, Copy)]
pub enum Scope<'a> {
    Everything,
    /// These folders below the root, without what is below them.
    Folders(&'a BTreeSet<String>),
}

#[derive(Default)]
struct Walked {
    files: BTreeMap<String, (PathBuf, Stamp)>,
    folders: BTreeMap<String, u64>,
    /// Notes that are passed over unread.
    withheld: BTreeSet<String>,
    /// What is below could not be listed, so nothing of it is gone.
    unknown: Vec<String>,
}

impl Tree {
    /// Nothing is read before the first look; the folder need not be there.
    pub fn new(root: Root, limits: Limits) -> Tree {
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

    /// Tells of a file that the table has; of a note that was passed over it has nothing but the path.
    pub fn know(&mut self, path: String, taken: Option<Taken>) {
        self.bytes += taken.as_ref().map_or(0, |taken| taken.size);
        let withheld = taken.is_none();
        self.seen.insert(path, Seen { stamp: None, taken, withheld });
    }

    pub fn files(&self) -> usize {
        self.seen.values().filter(|seen| seen.stamp.is_some() || seen.taken.is_some()).count()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The folders that the last look at everything found, and later ones added.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.keys().map(String::as_str)
    }

    /// Where a folder of this tree is.
    pub fn place(&self, within: &str) -> PathBuf {
        if within.is_empty() { self.root.path.clone() } else { self.root.path.join(within) }
    }

    /// Passed over: hidden files and folders (`.obsidian`, `.git`, `.trash`), links that leave the folder or lead to a
    /// folder, files of no known kind, and with a warning what is beyond the limits or cannot be read, and directories that
    /// hold a database, since its owner's secret is in there. Notes that are passed over are told of by name. If the root
    /// itself cannot be listed, is suddenly an empty directory, or holds a database, it fails and nothing counts as removed.
    pub fn look(&mut self, scope: Scope<'_>) -> Result<Look> {
        let mut look = Look::default();
        let identity = self.identity()?;
        let scope = if self.identity == Some(identity) { scope } else { Scope::Everything };
        let walked = self.walk(scope, &mut look)?;
        if let Scope::Everything = scope {
            let known = self.seen.values().any(|seen| seen.taken.is_some());
            if walked.files.is_empty() && known && self.identity != Some(identity) {
                return Err(Error::not_found(format!(
                    "`{}` is empty, and it is not the folder that was there before: what came from it is kept",
                    self.root.path.display()
                ))
                .hint("mount it again; a single file in it means that the rest was removed on purpose"));
            }
        }
        self.identity = Some(identity);
        for path in self.gone(scope, &walked) {
            let Some(Seen { taken, withheld, .. }) = self.seen.remove(&path) else { continue };
            self.bytes -= taken.as_ref().map_or(0, |taken| taken.size);
            if taken.is_some() || withheld {
                look.changes.push(Change::Remove { path });
            }
        }
        for path in walked.withheld {
            let old = self.seen.insert(path.clone(), Seen { stamp: None, taken: None, withheld: true });
            self.bytes -= old.as_ref().and_then(|old| old.taken.as_ref()).map_or(0, |taken| taken.size);
            if old.is_none_or(|old| !old.withheld) {
                look.changes.push(Change::Withhold { path });
            }
        }
        if let Scope::Everything = scope {
            let unknown = |folder: &String| walked.unknown.iter().any(|at| is_below(folder, at));
            self.folders.retain(|folder, _| unknown(folder));
        }
        self.folders.extend(walked.folders);
        for (path, (place, stamp)) in walked.files {
            if self.seen.get(&path).is_none_or(|seen| seen.stamp.as_ref() != Some(&stamp)) {
                self.file(path, &place, stamp, &mut look);
            } else {
                self.hot.remove(&path);
            }
        }
        Ok(look)
    }

    fn identity(&self) -> Result<(u64, u64)> {
        let place = &self.root.path;
        let metadata = fs::metadata(place).map_err(|error| self.away(place, error))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn away(&self, place: &Path, error: io::Error) -> Error {
        Error::io(format!("looking at `{}`", place.display()), error)
            .hint("what came from it is kept; it is looked for again")
    }

    /// Known files that are not where they were.
    fn gone(&self, scope: Scope<'_>, walked: &Walked) -> Vec<String> {
        let kept = |path: &str| {
            let within = self.within_root(path);
            walked.files.contains_key(path)
                || walked.withheld.contains(path)
                || walked.unknown.iter().any(|at| is_below(within, at))
        };
        let looked_at = |path: &str| match scope {
            Scope::Everything => true,
            Scope::Folders(folders) => folders.contains(parent(self.within_root(path))),
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

    fn walk(&self, scope: Scope<'_>, look: &mut Look) -> Result<Walked> {
        let mut walked = Walked::default();
        let top = fs::canonicalize(&self.root.path).map_err(|error| self.away(&self.root.path, error))?;
        if top.is_file() {
            if !is_note(&top.to_string_lossy()) && top.parent().is_some_and(is_database) {
                return Err(self.database());
            }
            let name = top.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let file = self.stamped(&top);
            walked.files.extend(file.map(|stamp| (self.in_vault(&name), (top.clone(), stamp))));
            return Ok(walked);
        }
        let mut waiting: Vec<(String, bool)> = match scope {
            Scope::Everything => vec![(String::new(), true)],
            Scope::Folders(folders) => folders.iter().map(|folder| (folder.clone(), false)).collect(),
        };
        let mut aside = Vec::new();
        while let Some((within, deep)) = waiting.pop() {
            let place = if within.is_empty() { top.clone() } else { top.join(&within) };
            let listed = fs::metadata(&place).and_then(|metadata| {
                Ok((metadata.dev(), fs::read_dir(&place)?.collect::<io::Result<Vec<_>>>()?))
            });
            let (device, list) = match listed {
                Ok(listed) => listed,
                // Removed while we looked.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !within.is_empty() => continue,
                Err(error) if within.is_empty() => return Err(self.away(&place, error)),
                Err(error) => {
                    look.warn(
                        &self.in_vault(&within),
                        format!("the folder cannot be listed: {error}; what came from it is kept"),
                    );
                    walked.unknown.push(within);
                    continue;
                }
            };
            if list.is_empty() && self.folders.get(&within).is_some_and(|known| *known != device) {
                look.warn(
                    &self.in_vault(&within),
                    "what was mounted there is gone; what came from it is kept".into(),
                );
                walked.unknown.push(within);
                continue;
            }
            if is_database_of(|name| list.iter().any(|entry| entry.file_name() == name)) {
                if within.is_empty() {
                    return Err(self.database());
                }
                look.warn(
                    &self.in_vault(&within),
                    "a database is in there, with its owner's secret; the folder is passed over".into(),
                );
                continue;
            }
            for entry in list {
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    look.warn(
                        &self.in_vault(&within),
                        "a file's name is not UTF-8; it is passed over".into(),
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
                        false => aside.push((below, entry.path())),
                    }
                    continue;
                }
                if hidden {
                    self.withhold(&below, &mut walked);
                    continue;
                }
                if deep && kind.is_symlink() && entry.path().is_dir() {
                    aside.push((below, entry.path()));
                    continue;
                }
                if !is_note(name) && (self.root.notes_only || !is_file(name)) {
                    continue;
                }
                if walked.files.len() >= self.limits.files_max {
                    return Err(Error::new(
                        types::Kind::TooLarge,
                        format!("`{}` has more than {} files", top.display(), self.limits.files_max),
                    )
                    .hint("name a smaller folder"));
                }
                let file = if kind.is_symlink() { target(&top, &entry.path()) } else { Some(entry.path()) };
                match file.and_then(|place| Some((place.clone(), self.stamped(&place)?))) {
                    Some(found) => drop(walked.files.insert(self.in_vault(&below), found)),
                    None => self.withhold(&below, &mut walked),
                }
            }
            walked.folders.insert(within, device);
        }
        self.walk_aside(aside, &mut walked);
        Ok(walked)
    }

    /// What notes are called in folders that are passed over: hidden ones, too deep ones, and those behind links.
    fn walk_aside(&self, mut waiting: Vec<(String, PathBuf)>, walked: &mut Walked) {
        let mut left = ASIDE_ENTRIES_MAX;
        // Links may lead in circles.
        let mut listed = BTreeSet::new();
        while let Some((within, place)) = waiting.pop() {
            let identity = fs::metadata(&place).map(|metadata| (metadata.dev(), metadata.ino()));
            let is_history = VERSION_CONTROL.contains(&within.rsplit('/').next().unwrap_or_default());
            if is_history || !identity.is_ok_and(|identity| listed.insert(identity)) || is_database(&place) {
                continue;
            }
            let Ok(list) = fs::read_dir(&place) else { continue };
            for entry in list.flatten() {
                if left == 0 {
                    return;
                }
                left -= 1;
                let name = entry.file_name();
                let (Some(name), Ok(kind)) = (name.to_str(), entry.file_type()) else { continue };
                let below = format!("{within}/{name}");
                match kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()) {
                    true => waiting.push((below, entry.path())),
                    false => self.withhold(&below, walked),
                }
            }
        }
    }

    fn withhold(&self, within: &str, walked: &mut Walked) {
        let name = within.rsplit('/').next().unwrap_or_default();
        let path = self.in_vault(within);
        // Not what editors and other systems leave beside a note for a moment.
        if ![".#", "._", ".~"].iter().any(|mark| name.starts_with(mark)) && is_withholdable(&path) {
            walked.withheld.insert(path);
        }
    }

    fn database(&self) -> Error {
        database(&self.root.path)
    }

    fn stamped(&self, file: &Path) -> Option<Stamp> {
        fs::metadata(file).ok().and_then(|metadata| stamp(&metadata))
    }

    /// A file that does not look as it did.
    fn file(&mut self, path: String, place: &Path, stamp: Stamp, look: &mut Look) {
        let old = self.seen.get(&path).and_then(|seen| seen.taken.clone());
        let old_size = old.as_ref().map_or(0, |taken| taken.size);
        let looks = self.hot.get(&path).copied().unwrap_or(0);
        if looks < HOT_LOOKS_MAX && is_hot(&stamp) {
            self.hot.insert(path, looks + 1);
            look.hot = true;
            return;
        }
        let content = match self.read(&path, place, &stamp, old_size) {
            Ok(content) => content,
            Err(Unread::Changing) if looks < HOT_LOOKS_MAX => {
                self.hot.insert(path, looks + 1);
                look.hot = true;
                return;
            }
            Err(why) => {
                let why = match why {
                    Unread::Changing => {
                        "it changes all the time; it is passed over until it rests".to_owned()
                    }
                    Unread::Refused(why) => why,
                };
                self.hot.remove(&path);
                look.warn(&path, why);
                self.bytes -= old_size;
                let withheld = is_withholdable(&path);
                let was_withheld = self.seen.get(&path).is_some_and(|seen| seen.withheld);
                if withheld && !was_withheld {
                    look.changes.push(Change::Withhold { path: path.clone() });
                } else if old.is_some() {
                    look.changes.push(Change::Remove { path: path.clone() });
                }
                self.seen.insert(path, Seen { stamp: Some(stamp), taken: None, withheld });
                return;
            }
        };
        self.hot.remove(&path);
        look.read += 1;
        let modified = i64::try_from(stamp.modified_ns / 1_000).ok();
        let taken = Taken { size: content.len() as u64, modified, hash: blake3::hash(&content) };
        self.bytes = self.bytes - old_size + taken.size;
        if old.as_ref() != Some(&taken) {
            look.changes.push(Change::Put { path: path.clone(), content, modified });
        }
        self.seen.insert(path, Seen { stamp: Some(stamp), taken: Some(taken), withheld: false });
    }

    fn read(
        &self,
        path: &str,
        place: &Path,
        before: &Stamp,
        old_size: u64,
    ) -> std::result::Result<Bytes, Unread> {
        let refused = |why: String| Err(Unread::Refused(why));
        if !is_valid(path) {
            return refused(
                "its path is too long or has a character that no address can have; it is passed over".into(),
            );
        }
        let size_max = if is_note(path) { NOTE_BYTES_MAX as u64 } else { self.limits.asset_bytes_max };
        let room = self.limits.total_bytes_max.saturating_sub(self.bytes - old_size);
        let most = size_max.min(room);
        if before.size > most {
            return refused(format!(
                "it has {} bytes, and {most} are left for it; it is passed over",
                before.size
            ));
        }
        let mut content = Vec::with_capacity(before.size as usize + 1);
        let read = fs::File::open(place).and_then(|file| {
            let opened = stamp(&file.metadata()?);
            (&file).take(most + 1).read_to_end(&mut content)?;
            Ok((opened, stamp(&file.metadata()?)))
        });
        match read {
            Err(error) => refused(format!("it cannot be read: {error}")),
            Ok(_) if content.len() as u64 > most => {
                refused("it grew beyond what is taken in while it was read; it is passed over".into())
            }
            Ok((opened, after)) if opened.as_ref() != Some(before) || after.as_ref() != Some(before) => {
                Err(Unread::Changing)
            }
            Ok(_) => Ok(Bytes::from(content)),
        }
    }
}

enum Unread {
    Changing,
    Refused(String),
}

impl Look {
    fn warn(&mut self, path: &str, message: String) {
        self.warnings.push((path.to_owned(), message));
    }
}

/// The folder that a path is in, empty for the root.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| folder.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Where a link leads, if that is a visible file below `top`.
fn target(top: &Path, link: &Path) -> Option<PathBuf> {
    let target = fs::canonicalize(link).ok()?;
    let inner = target.strip_prefix(top).ok()?;
    let hidden = inner.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'));
    let secret = || target.ancestors().skip(1).take_while(|above| above.starts_with(top)).any(is_database);
    (!hidden && target.is_file() && !secret()).then_some(target)
}

fn database(path: &Path) -> Error {
    Error::invalid(format!("`{}` belongs to a database, with its owner's secret", path.display()))
        .hint("name a folder of notes; the database is better off outside of it")
}

/// Refuses a folder of which nothing would be taken in, since it is a database itself; for whoever can still name another.
pub fn check(path: &Path) -> Result<()> {
    if is_database(path) { Err(database(path)) } else { Ok(()) }
}

/// Whether a directory is where a database is, this server's own or another.
fn is_database(place: &Path) -> bool {
    is_database_of(|name| place.join(name).exists())
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

/// Whether somebody may be writing it still.
fn is_hot(stamp: &Stamp) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    let age = now - stamp.changed_ns;
    (0..HOT.as_nanos() as i128).contains(&age)
}
