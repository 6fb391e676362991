//! A disk on which a test can do something before a file is created or renamed: wait, or panic.

use std::io;
use std::path::Path;
use std::sync::Arc;

use vfs::{Access, Disk, Entry, Env, File, Lock};

/// Called before each call, with its name and the path that it makes or takes.
type CallHook = Box<dyn Fn(&str, &Path) + Send + Sync>;

pub struct HookedDisk {
    disk: Arc<dyn Disk>,
    before: CallHook,
}

/// The real machine with such a disk.
pub fn env(before: impl Fn(&str, &Path) + Send + Sync + 'static) -> Env {
    let real = Env::real();
    Env { disk: Arc::new(HookedDisk { disk: real.disk.clone(), before: Box::new(before) }), ..real }
}

impl std::fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookedDisk")
    }
}

impl Disk for HookedDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.before)("create", path);
        self.disk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.before)("rename", to);
        self.disk.rename(from, to)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, access)
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
