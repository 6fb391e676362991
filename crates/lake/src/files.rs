//! Files of the warehouse: written whole and synced before anything names them.

use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use types::{Error, Result};
use vfs::{Access, Env, File, WriteBehind};

/// Small writes are gathered up to this.
const BUFFER_BYTES: usize = 1 << 20;

pub fn io_error<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |error| Error::io(format_args!("{what} {}", path.display()), error)
}

/// A new file written from front to back, on its way to the disk while it is written. Must not exist.
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

    /// Makes everything durable but the name.
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
            // Found again by whoever asked the Parquet writer.
            self.flush_buffer().map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a new file; its name is durable after a sync of the directory.
pub fn write(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = env.disk.create(path).map_err(io_error("creating", path))?;
    file.write_at(&[IoSlice::new(bytes)], 0).map_err(io_error("writing", path))?;
    file.sync().map_err(io_error("syncing", path))
}

/// Writes a file under a temporary name and gives it `path`'s, replacing what had it. Durable after a sync of the
/// directory.
pub fn replace(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary(path);
    remove(env, &temporary)?;
    write(env, &temporary, bytes)?;
    env.disk.rename(&temporary, path).map_err(io_error("naming", path))
}

/// What a file ends with before it has its name.
pub const TEMPORARY: &str = ".tmp";

/// What a file is called before it has its name.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{TEMPORARY}"))
}

/// The name of the file whose checksums one of such a name has. Hadoop's local file system, with which Spark and Trino write,
/// puts it beside each file.
pub fn summed(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".crc")
}

/// Removes a file if it is there.
pub fn remove(env: &Env, path: &Path) -> Result<()> {
    match env.disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(io_error("removing", path)),
    }
}

/// How large a file is; 0 if there is none.
pub fn len(env: &Env, path: &Path) -> Result<u64> {
    match env.disk.open(path, Access::Read).and_then(|file| file.len()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        other => other.map_err(io_error("looking at", path)),
    }
}

/// Makes a file's bytes durable, whoever wrote them.
pub fn sync(env: &Env, path: &Path) -> Result<()> {
    env.disk.open(path, Access::Read).and_then(|file| file.sync()).map_err(io_error("syncing", path))
}

pub fn sync_dir(env: &Env, path: &Path) -> Result<()> {
    env.disk.sync_dir(path).map_err(io_error("syncing", path))
}

/// A whole file. Those that are read never change, so they are mapped.
pub fn read(env: &Env, path: &Path) -> Result<Bytes> {
    env.disk.open(path, Access::Read).and_then(|file| file.map()).map_err(io_error("reading", path))
}

pub fn exists(env: &Env, path: &Path) -> Result<bool> {
    env.disk.exists(path).map_err(io_error("looking for", path))
}

/// The names of the files in a directory, sorted; none if there is no such directory.
pub fn list(env: &Env, path: &Path) -> Result<Vec<vfs::Entry>> {
    if !exists(env, path)? {
        return Ok(Vec::new());
    }
    env.disk.list(path).map_err(io_error("listing", path))
}

/// Makes a directory with its missing parents below `base`, durable by name: even those that are there, since whoever made
/// them may have died before that. `base` exists.
pub fn make_dir(env: &Env, base: &Path, dir: &Path) -> Result<()> {
    env.disk.create_dir_all(dir).map_err(io_error("making", dir))?;
    let mut at = dir;
    while let Some(parent) = at.parent().filter(|_| at != base) {
        sync_dir(env, parent)?;
        at = parent;
    }
    Ok(())
}

/// Whether an error is of a file or directory that is not there.
pub fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
