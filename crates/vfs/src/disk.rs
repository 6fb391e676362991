//! The file system interface: files and directories as the rest of Polynya sees them.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// The way in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Read-only access for one pass over the file by a background task. Pages that were not in the page cache before
    /// are dropped again after they are read, and pages that were there stay. A backup of a large database therefore
    /// does not evict the pages that readers use.
    ReadOnce,
    ReadWrite,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last component of the path.
    pub name: String,
    /// Bytes; 0 for a directory.
    pub len: u64,
    pub is_dir: bool,
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Makes a new empty file and opens it for reading and writing. Fails with `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing a file that has the new name. Durable after [`Disk::sync_dir`] of both directories.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Handles, mappings and other names keep the bytes. If there are none, the space of a
    /// large file may be freed in steps, so that other writes need not wait for all of it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory and its missing parents. Each level is durable after [`Disk::sync_dir`] of its parent.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in `path` durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a handle that makes the names in `path` durable without opening anything later. It is for callers that
    /// must not fail for lack of file descriptors. `None` if this disk's [`Disk::sync_dir`] needs no descriptor.
    fn open_dir(&self, _path: &Path) -> io::Result<Option<Arc<dyn Dir>>> {
        Ok(None)
    }

    /// Lists the names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Returns true if a file or directory of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The number of bytes that can still be allocated on the file system holding `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Takes the lock file at `path` for this process, making it if missing. `WouldBlock` if another holder lives.
    /// The lock is released when the value is dropped or the process dies.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// Holds a lock file until dropped.
pub trait Lock: Send + Sync + Debug {}

/// An open directory.
pub trait Dir: Send + Sync + Debug {
    /// Makes the names in this directory durable, like [`Disk::sync_dir`].
    fn sync(&self) -> io::Result<()>;
}

/// An open file. All positions are absolute; there is no cursor, so any thread may call at any time.
pub trait File: Send + Sync + Debug {
    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends first.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `parts` one after the other from `offset`, growing the file if needed.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes all bytes written so far durable, and the file's length too (`fdatasync`).
    fn sync(&self) -> io::Result<()>;

    /// Starts writing these bytes to the medium now, instead of with the next [`File::sync`]. If `awaited`, waits
    /// until they are written. This is a hint: nothing becomes durable, and a disk may ignore it. An error means that
    /// an earlier write failed, as an error of `sync` does.
    fn write_back(&self, range: Range<u64>, awaited: bool) -> io::Result<()> {
        let _ = (range, awaited);
        Ok(())
    }

    /// Makes the file at least `len` bytes long with space taken and *written*: later writes below `len` need no new
    /// space and no change of metadata, so `sync` after them is one flush. New bytes are zero.
    /// `StorageFull` if there is no room; the file may then be longer than before, but holds no garbage.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Cuts the file or extends it to `len` bytes. An extension reads as zeros and takes no space.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The length of the file in bytes.
    fn len(&self) -> io::Result<u64>;

    /// True if the file holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Hints that the file will not be read soon, so that the kernel may drop it from the page cache, except pages
    /// that are mapped. Call it after [`File::sync`]: unsynced pages cannot be dropped.
    fn drop_from_cache(&self) {}

    /// Maps the whole file into memory, aligned to at least 64 bytes. The caller must ensure that nobody writes to the
    /// file while the bytes live; Polynya maps only files that are never changed after they got their final name.
    fn map(&self) -> io::Result<Bytes>;
}

/// Paces the write-back of a new file that is written from front to back. One step is being written to the medium
/// while the caller produces the next, so that neither the processor nor the disk waits for the other. A sync of
/// another file in the meantime finds at most two steps queued before it.
#[derive(Debug, Default)]
pub struct WriteBehind {
    /// The end of the bytes that the medium has finished writing.
    written: u64,
    /// The end of the bytes whose write-back has been started.
    started: u64,
}

const WRITE_BEHIND_BYTES: u64 = 1 << 20;

impl WriteBehind {
    /// Must be called after each write, with the file's new length `len`. Makes nothing durable, like
    /// [`File::write_back`].
    pub fn advance(&mut self, file: &dyn File, len: u64) -> io::Result<()> {
        if len < self.started + WRITE_BEHIND_BYTES {
            return Ok(());
        }
        file.write_back(self.started..len, false)?;
        file.write_back(self.written..self.started, true)?;
        (self.written, self.started) = (self.started, len);
        Ok(())
    }
}
