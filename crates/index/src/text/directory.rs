//! A tantivy directory in memory. It holds the files of one segment while it is built, or slices of a mapped bundle.
//!
//! tantivy puts a random number into the names of a segment's files. Here a file is named by its role (`idx`, `pos`,
//! …), so that the layout of a bundle does not depend on chance.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tantivy::Directory;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, DirectoryLock, FileHandle, Lock, TerminatingWrite, WatchCallback, WatchHandle, WritePtr,
};

/// The file in which tantivy lists the files that it wrote. It is not kept, since a bundle is written and removed as a
/// whole.
const MANAGED: &str = ".managed.json";

/// The files of one segment. Clones share them.
///
/// Only the thread that builds or opens the segment takes the lock; reading an open segment needs no lock.
#[derive(Clone, Default)]
pub(super) struct MemoryDirectory(Arc<Mutex<BTreeMap<String, Bytes>>>);

impl MemoryDirectory {
    pub fn new(files: impl IntoIterator<Item = (String, Bytes)>) -> Self {
        MemoryDirectory(Arc::new(Mutex::new(files.into_iter().collect())))
    }

    /// Takes out all files that were written, by name.
    pub fn take(&self) -> BTreeMap<String, Bytes> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, path: &Path) -> Result<Bytes, OpenReadError> {
        self.lock().get(name(path)).cloned().ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))
    }
}

/// Returns the name under which a file is kept: `idx` for `<number>.idx`, `json` for `meta.json`.
fn name(path: &Path) -> &str {
    let full = path.to_str().unwrap_or_default();
    if full == MANAGED {
        return full;
    }
    full.rsplit_once('.').map_or(full, |(_, extension)| extension)
}

impl fmt::Debug for MemoryDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl Directory for MemoryDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(Arc::new(super::mapped::owned(self.get(path)?)))
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.lock().remove(name(path));
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.lock().contains_key(name(path)))
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let writer = Writer { files: self.clone(), name: name(path).to_owned(), bytes: Vec::new() };
        Ok(BufWriter::new(Box::new(writer)))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        Ok(self.get(path)?.to_vec())
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        if name(path) != MANAGED {
            self.lock().insert(name(path).to_owned(), Bytes::copy_from_slice(data));
        }
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _: &Lock) -> Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

struct Writer {
    files: MemoryDirectory,
    name: String,
    bytes: Vec<u8>,
}

impl Write for Writer {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for Writer {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        self.files.lock().insert(std::mem::take(&mut self.name), bytes);
        Ok(())
    }
}
