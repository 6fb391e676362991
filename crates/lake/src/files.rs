//! Local files of the warehouse. They are written whole and synced before anything names them.

use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use types::{Error, Result};
use vfs::{Access, Env, File, WriteBehind};

/// Bytes of small writes that are buffered.
const BUFFER_BYTES: usize = 1 << 20;

pub fn io_error<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |error| Error::io(format_args!("{what} {}", path.display()), error)
}

/// A new file that is written from front to back; write-out to the disk starts on the way. The file must not exist.
pub struct Sink {
    file: Arc<dyn File>,
    path: PathBuf,
    buffer: Vec<u8>,
    len: u64,
    behind: WriteBehind,
}

impl Sink {
    pub fn create(env: &Env, path: PathBuf) -> Result<Sink> {
        let file = env.disk.create(&path).map_err(io_error("creating", &path))?;
        Ok(Sink { file, path, buffer: Vec::new(), len: 0, behind: WriteBehind::default() })
    }

    /// Makes the content durable, but not yet the directory entry.
    pub fn finish(&mut self) -> Result<()> {
        self.flush_buffer()?;
        self.sync()
    }

    fn flush_buffer(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = self.buffer.len() as u64;
        let io = io_error("writing", &self.path);
        self.file.write_at(&[IoSlice::new(&self.buffer)], self.len).map_err(&io)?;
        self.buffer.clear();
        self.len += bytes;
        self.behind.advance(&*self.file, self.len).map_err(io)
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(io_error("syncing", &self.path))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            // Callers get the wrapped error out of the Parquet writer's.
            self.flush_buffer().map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a new file. Its name is durable after a sync of the directory.
pub fn write(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = env.disk.create(path).map_err(io_error("creating", path))?;
    file.write_at(&[IoSlice::new(bytes)], 0).map_err(io_error("writing", path))?;
    file.sync().map_err(io_error("syncing", path))
}

/// Writes a file under a temporary name and renames it to `path`, replacing an existing file. The name is durable after a
/// sync of the directory.
pub fn replace(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary(path);
    remove(env, &temporary)?;
    write(env, &temporary, bytes)?;
    env.disk.rename(&temporary, path).map_err(io_error("naming", path))
}

/// Suffix of temporary names.
pub const TEMPORARY: &str = ".tmp";

/// Returns the temporary name of a file.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{TEMPORARY}"))
}

/// Returns the name of the file that a checksum file belongs to; `None` if `name` is not that of a checksum file. Hadoop's
/// local file system, with which Spark and Trino write, puts one beside each file.
pub fn checksum_file_target(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".crc")
}

/// Removes a file if it exists.
pub fn remove(env: &Env, path: &Path) -> Result<()> {
    match env.disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(io_error("removing", path)),
    }
}

/// Returns the size of a file; 0 if it does not exist.
pub fn len(env: &Env, path: &Path) -> Result<u64> {
    match env.disk.open(path, Access::Read).and_then(|file| file.len()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        other => other.map_err(io_error("looking at", path)),
    }
}

/// Makes the content of a file durable, whichever program wrote it.
pub fn sync(env: &Env, path: &Path) -> Result<()> {
    env.disk.open(path, Access::Read).and_then(|file| file.sync()).map_err(io_error("syncing", path))
}

pub fn sync_dir(env: &Env, path: &Path) -> Result<()> {
    env.disk.sync_dir(path).map_err(io_error("syncing", path))
}

/// Reads a whole file by mapping it. Files of the warehouse never change.
pub fn read(env: &Env, path: &Path) -> Result<Bytes> {
    env.disk.open(path, Access::Read).and_then(|file| file.map()).map_err(io_error("reading", path))
}

pub fn exists(env: &Env, path: &Path) -> Result<bool> {
    env.disk.exists(path).map_err(io_error("looking for", path))
}

/// Returns the entries of a directory, sorted; none if it does not exist.
pub fn list(env: &Env, path: &Path) -> Result<Vec<vfs::Entry>> {
    if !exists(env, path)? {
        return Ok(Vec::new());
    }
    env.disk.list(path).map_err(io_error("listing", path))
}

/// Creates a directory and its missing parents below `base`, which exists, and makes their names durable. Existing ones are
/// synced too, since their creator may have died before its sync.
pub fn make_dir(env: &Env, base: &Path, dir: &Path) -> Result<()> {
    env.disk.create_dir_all(dir).map_err(io_error("making", dir))?;
    let mut at = dir;
    while let Some(parent) = at.parent().filter(|_| at != base) {
        sync_dir(env, parent)?;
        at = parent;
    }
    Ok(())
}

/// Returns true if an error is about a missing file or directory.
pub fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
