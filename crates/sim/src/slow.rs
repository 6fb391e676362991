//! A disk whose syncs a test can slow down.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vfs::{Access, Disk, Entry, File, Lock};

/// A disk wrapper on which each sync of a file takes longer by a set time.
#[derive(Debug)]
pub struct SlowDisk {
    disk: Arc<dyn Disk>,
    micros: Arc<AtomicU64>,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    micros: Arc<AtomicU64>,
}

impl SlowDisk {
    /// Wraps a disk; no delay is set at first.
    pub fn new(disk: Arc<dyn Disk>) -> SlowDisk {
        SlowDisk { disk, micros: Arc::default() }
    }

    pub fn let_syncs_take(&self, longer: Duration) {
        self.micros.store(longer.as_micros() as u64, Ordering::Relaxed);
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { file, micros: self.micros.clone() })
    }
}

impl Disk for SlowDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.create(path).map(|file| self.file(file))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, access).map(|file| self.file(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}

impl File for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_at(parts, offset)
    }
    fn sync(&self) -> io::Result<()> {
        match self.micros.load(Ordering::Relaxed) {
            0 => {}
            micros => std::thread::sleep(Duration::from_micros(micros)),
        }
        self.file.sync()
    }
    fn write_back(&self, range: Range<u64>, awaited: bool) -> io::Result<()> {
        self.file.write_back(range, awaited)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn map(&self) -> io::Result<bytes::Bytes> {
        self.file.map()
    }
}
