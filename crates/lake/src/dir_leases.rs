//! The table that owns a directory of the warehouse, and leases to work in it.
//!
//! Directories are named after tables, and a name is free as soon as its table is dropped. Work for the dropped table may
//! still be under way: a commit, or the removal of its files. It must not touch the files of a newer table with that name,
//! since both use the same names of metadata files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use types::TableId;
use vfs::{Condvar, Mutex, Rank};

#[derive(Debug)]
pub(crate) struct DirLeases {
    by_dir: Mutex<BTreeMap<PathBuf, DirOwner>>,
    freed: Condvar,
}

#[derive(Debug)]
struct DirOwner {
    /// The newest table that took the directory.
    table: TableId,
    is_busy: bool,
}

/// The exclusive right to work in a directory, until dropped.
#[derive(Debug)]
pub(crate) struct DirLease<'a> {
    leases: &'a DirLeases,
    dir: PathBuf,
    /// True if the directory has no owner afterwards.
    pub releases_dir: bool,
}

impl Default for DirLeases {
    fn default() -> Self {
        let by_dir = Mutex::new(Rank::new(65, "lake directories"), BTreeMap::new());
        DirLeases { by_dir, freed: Condvar::new() }
    }
}

impl DirLeases {
    /// Waits for the lease on a directory. Returns `None` if a later table owns it, which means that `table` was dropped.
    pub fn take(&self, dir: &Path, table: TableId) -> Option<DirLease<'_>> {
        let mut by_dir = self.by_dir.lock();
        loop {
            match by_dir.get_mut(dir) {
                None => {
                    by_dir.insert(dir.to_owned(), DirOwner { table, is_busy: true });
                    break;
                }
                Some(owner) if owner.table > table => return None,
                Some(owner) if owner.is_busy => self.freed.wait(&mut by_dir),
                Some(owner) => {
                    *owner = DirOwner { table, is_busy: true };
                    break;
                }
            }
        }
        Some(DirLease { leases: self, dir: dir.to_owned(), releases_dir: false })
    }
}

impl Drop for DirLease<'_> {
    fn drop(&mut self) {
        let mut by_dir = self.leases.by_dir.lock();
        match by_dir.get_mut(&self.dir) {
            Some(_) if self.releases_dir => drop(by_dir.remove(&self.dir)),
            Some(owner) => owner.is_busy = false,
            None => {}
        }
        drop(by_dir);
        self.leases.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_works_at_a_time_and_a_later_table_takes_over() {
        let _limit = testkit::limit(60);
        let leases = Arc::new(DirLeases::default());
        let dir = Path::new("lake/main/t");
        let old = leases.take(dir, TableId(7)).unwrap();
        assert!(leases.take(Path::new("lake/main/u"), TableId(3)).is_some(), "another directory");
        let is_done = Arc::new(AtomicBool::new(false));
        let later = std::thread::spawn({
            let (leases, is_done) = (leases.clone(), is_done.clone());
            move || {
                let _new = leases.take(dir, TableId(8)).unwrap();
                assert!(is_done.load(Ordering::Acquire), "while another worked there");
            }
        });
        std::thread::yield_now();
        is_done.store(true, Ordering::Release);
        drop(old);
        later.join().unwrap();
        assert!(leases.take(dir, TableId(7)).is_none(), "it was dropped");
        let mut last = leases.take(dir, TableId(8)).unwrap();
        last.releases_dir = true;
        drop(last);
        assert!(leases.by_dir.lock().get(dir).is_none());
    }
}
