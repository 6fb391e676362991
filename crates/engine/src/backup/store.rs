//! Sources of backups, and destinations that are not folders: files by name, somewhere.
//!
//! They are two small traits, so that this crate knows no network. Object stores implement them in a crate that knows one.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use types::{Error, Kind, Result};
use vfs::{Access, Entry, Env};

use super::file_sum::{FileSum, SumBuilder};

/// Number of attempts of a call before its failure is reported.
const TRIES: u32 = 6;

/// Fills a buffer from an offset on.
type ReadAt<'a> = Box<dyn Fn(&mut [u8], u64) -> Result<()> + 'a>;

/// A file opened for reading.
pub struct SourceFile<'a> {
    pub len: u64,
    /// Number of bytes that are best read at a time.
    pub block_bytes: u64,
    /// Fails with [`Kind::Damaged`] if the file ends before the buffer is full.
    pub read_at: ReadAt<'a>,
}

/// The location of a backup or an archive that is read.
pub trait BackupSource: Debug + Send + Sync {
    /// Returns the full name of a file for messages; "" names the whole source.
    fn display_name(&self, name: &str) -> String;

    /// Opens a file. Fails with [`Kind::NotFound`] if there is none of that name.
    fn open(&self, name: &str) -> Result<SourceFile<'_>>;

    /// Returns true if a backup was begun there, finished or not.
    fn is_begun(&self) -> Result<bool>;

    /// Lists the entries directly below a name; "" is the source itself. Returns an empty list if there is no such name.
    fn list(&self, dir: &str) -> Result<Vec<Entry>>;

    /// Path of a file, if it is on this machine.
    fn path(&self, _name: &str) -> Option<PathBuf> {
        None
    }

    /// Waits before the next attempt of a call that has failed this many times.
    fn pause(&self, _failures: u32) {}
}

/// A destination of backups that is not a folder. A file appears whole or not at all.
pub trait BackupStore: BackupSource {
    /// Makes sure, before anything is put, that [`BackupStore::put_new`] can be relied on there, and marks the place as this
    /// database's. Fails with [`Kind::InUse`] if it belongs to another one.
    fn claim(&self, env: &Env) -> Result<()>;

    /// Returns true for a file that [`BackupStore::claim`] makes.
    fn is_claim_file(&self, name: &str) -> bool;

    /// Puts a file, and replaces one of the same name. `next` returns one block after the other, and `None` at the end. If
    /// it fails, its error is returned, and no file appears.
    fn put(&self, name: &str, next: &mut dyn FnMut() -> Result<Option<Vec<u8>>>) -> Result<()>;

    /// Puts a file that must be new: fails with [`Kind::Exists`] if there is one of that name. After any other error the
    /// file may be there.
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Removes a file if it is there.
    fn remove(&self, name: &str) -> Result<()>;
}

/// Repeats a call that failed for a temporary reason. `tick` may end the repetition between two attempts.
pub(crate) fn with_retries<T>(
    source: &dyn BackupSource,
    tick: &mut dyn FnMut(u64) -> Result<()>,
    mut call: impl FnMut(&mut dyn FnMut(u64) -> Result<()>) -> Result<T>,
) -> Result<T> {
    let mut failures = 0;
    loop {
        let error = match call(tick) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failures += 1;
        if !is_temporary(&error) || failures >= TRIES {
            return Err(error);
        }
        tick(0)?;
        source.pause(failures);
    }
}

/// Returns true if the same call may succeed a little later.
fn is_temporary(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    error.kind() == Kind::Io && io != Some(std::io::ErrorKind::PermissionDenied)
}

/// Reads a file and returns its checksums, or `None` if there is none. A file that is not `len` bytes long is not read.
pub(crate) fn checksum(
    source: &dyn BackupSource,
    name: &str,
    len: u64,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<FileSum>> {
    let opened = match with_retries(source, tick, |_| source.open(name)) {
        Err(error) if error.kind() == Kind::NotFound => return Ok(None),
        opened => opened?,
    };
    if opened.len != len {
        return Ok(Some(FileSum { bytes: opened.len, crc: 0, hash: None }));
    }
    let mut summing = SumBuilder::default();
    read_through(source, &opened, tick, &mut |block, tick| {
        summing.add(block);
        tick(0)
    })?;
    Ok(Some(summing.finish()))
}

/// Callback that takes a block, and a callback for the number of bytes done.
type BlockSink<'a> = dyn FnMut(&[u8], &mut dyn FnMut(u64) -> Result<()>) -> Result<()> + 'a;

/// Reads a file from front to back, a block at a time.
pub(crate) fn read_through(
    source: &dyn BackupSource,
    opened: &SourceFile<'_>,
    tick: &mut dyn FnMut(u64) -> Result<()>,
    take: &mut BlockSink<'_>,
) -> Result<()> {
    let mut block = vec![0; opened.block_bytes.min(opened.len) as usize];
    let mut at = 0;
    while at < opened.len {
        let count = opened.block_bytes.min(opened.len - at) as usize;
        with_retries(source, tick, |_| (opened.read_at)(&mut block[..count], at))?;
        take(&block[..count], tick)?;
        at += count as u64;
    }
    Ok(())
}

/// Reads a small file as a whole. Fails with [`Kind::Damaged`] if it is larger than `bytes_max`.
pub(crate) fn read_whole(source: &dyn BackupSource, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
    let mut ignore = |_| Ok(());
    let opened = with_retries(source, &mut ignore, |_| source.open(name))?;
    if opened.len > bytes_max {
        return Err(Error::damaged(format!("a file of {} bytes is too large to be this file", opened.len))
            .with("file", source.display_name(name)));
    }
    let mut bytes = Vec::with_capacity(opened.len as usize);
    read_through(source, &opened, &mut ignore, &mut |block, _| {
        bytes.extend_from_slice(block);
        Ok(())
    })?;
    Ok(bytes)
}

/// A folder of this machine.
#[derive(Clone, Debug)]
pub struct LocalFolder {
    env: Env,
    dir: PathBuf,
}

impl LocalFolder {
    pub fn new(env: &Env, dir: &Path) -> LocalFolder {
        LocalFolder { env: env.clone(), dir: dir.to_owned() }
    }

    fn below(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.clone() } else { self.dir.join(name) }
    }
}

impl BackupSource for LocalFolder {
    fn display_name(&self, name: &str) -> String {
        self.below(name).display().to_string()
    }

    fn open(&self, name: &str) -> Result<SourceFile<'_>> {
        let path = self.below(name);
        let opening = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::not_found("a file is missing").with("file", path.display())
            }
            _ => Error::io(format!("reading {}", path.display()), e),
        };
        let file = self.env.disk.open(&path, Access::ReadOnce).map_err(opening)?;
        let len = file.len().map_err(opening)?;
        let read_at = move |buffer: &mut [u8], offset: u64| {
            file.read_at(buffer, offset).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    Error::damaged("a file is shorter than it was").with("file", path.display())
                }
                _ => Error::io(format!("reading {}", path.display()), e),
            })
        };
        Ok(SourceFile { len, block_bytes: super::copy::BLOCK_BYTES, read_at: Box::new(read_at) })
    }

    fn is_begun(&self) -> Result<bool> {
        let tables = self.dir.join("tables");
        let is_there = self.env.disk.exists(&tables);
        let is_there = is_there.map_err(|e| Error::io(format!("looking for {}", tables.display()), e))?;
        Ok(is_there && !crate::manifest::exists(&self.env, &self.dir))
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>> {
        let path = self.below(dir);
        match self.env.disk.list(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(|e| Error::io(format!("listing {}", path.display()), e)),
        }
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.below(name))
    }
}
