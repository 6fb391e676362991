//! Files and directories as the rest of Polynya sees them.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// To be read through once, by nobody who is waited for: the machine keeps in memory what of it was there before, and
    /// nothing else. So a backup of a large database does not drive out what readers use.
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

    /// Gives a file another name, replacing what had it. Durable after [`Disk::sync_dir`] of both directories.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Handles, mappings and other names keep the bytes; where there are none, those of a large file may
    /// be freed a part at a time, so that other writes need not wait for the whole.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory and its missing parents. Each level is durable after [`Disk::sync_dir`] of its parent.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in `path` durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// A handle that makes the names in `path` durable without opening anything, for those that must not fail for want
    /// of file descriptors. `None` if this disk's [`Disk::sync_dir`] needs none.
    fn open_dir(&self, _path: &Path) -> io::Result<Option<Arc<dyn Dir>>> {
        Ok(None)
    }

    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Whether a file or directory of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Bytes that can still be allocated on the file system holding `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Takes the lock file at `path` for this process, making it if missing. `WouldBlock` if another holder lives.
    /// The lock is released when the value is dropped or the process dies.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// Holds a lock file until dropped.
pub trait Lock: Send + Sync + Debug {}

/// An open directory.
pub trait Dir: Send + Sync + Debug {
    /// As [`Disk::sync_dir`].
    fn sync(&self) -> io::Result<()>;
}

/// An open file. All positions are absolute; there is no cursor, so any thread may call at any time.
pub trait File: Send + Sync + Debug {
    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends first.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `parts` one after the other from `offset`, growing the file if needed.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes everything written so far durable, the file's length included (`fdatasync`).
    fn sync(&self) -> io::Result<()>;

    /// Has the medium take these bytes now rather than with the next [`File::sync`], and waits until it has if that is
    /// `awaited`. Makes nothing durable; a disk may do nothing at all. An error is one of writing what was written before, as
    /// of a sync.
    fn write_back(&self, range: Range<u64>, awaited: bool) -> io::Result<()> {
        let _ = (range, awaited);
        Ok(())
    }

    /// Makes the file at least `len` bytes long with space taken and *written*: later writes below `len` need no new
    /// space and no change of metadata, so `sync` after them is one flush. New bytes are zero.
    /// `StorageFull` if there is no room; the file may then be longer than before, but holds no garbage.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Cuts or extends (with zeros, without taking space) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Bytes.
    fn len(&self) -> io::Result<u64>;

    /// True if the file holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Nobody will read the file soon: what the machine keeps of it in memory may go, where nobody has it mapped. After
    /// [`File::sync`]; before it, nothing can.
    fn set_aside(&self) {}

    /// The whole file as memory. The caller promises that nobody writes to the file while the bytes live; Polynya
    /// maps only files that are never changed after they got their name. Aligned to at least 64 bytes.
    fn map(&self) -> io::Result<Bytes>;
}

/// How much of a new file that is written from front to back is on its way to the medium. One step is written while the one
/// before is on its way, so that neither the processor nor the disk waits for the other, and whoever syncs another file
/// meanwhile finds at most two steps queued before it.
#[derive(Debug, Default)]
pub struct WriteBehind {
    /// Up to here the medium has taken it.
    taken: u64,
    /// Up to here it has been told to.
    told: u64,
}

const WRITE_BEHIND_BYTES: u64 = 1 << 20;

impl WriteBehind {
    /// To be called after each write: the file now has `len` bytes. Makes nothing durable, as [`File::write_back`].
    pub fn wrote(&mut self, file: &dyn File, len: u64) -> io::Result<()> {
        if len < self.told + WRITE_BEHIND_BYTES {
            return Ok(());
        }
        file.write_back(self.told..len, false)?;
        file.write_back(self.taken..self.told, true)?;
        (self.taken, self.told) = (self.told, len);
        Ok(())
    }
}
