//! The table that owns a directory of the warehouse, and leases to work in it.
//!
//! Directories are named after tables, and a name is free as soon as its table is dropped. Work that is still under way for
//! the dropped table (a commit, the removal of files or of its lake) must not meet the table that was created after it,
//! since both use the same names of metadata files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use types::TableId;
use vfs::{Condvar, Mutex, Rank};

#[derive(Debug)]
pub(crate) struct Owners {
    by_dir: Mutex<BTreeMap<PathBuf, Owner>>,
    freed: Condvar,
}

#[derive(Debug)]
struct Owner {
    /// The newest table that took the directory.
    table: TableId,
    is_busy: bool,
}

/// The exclusive right to work in a directory, until dropped.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    owners: &'a Owners,
    dir: PathBuf,
    /// True if the directory has no owner afterwards.
    pub ends: bool,
}

impl Default for Owners {
    fn default() -> Self {
        let by_dir = Mutex::new(Rank::new(65, "lake directories"), BTreeMap::new());
        Owners { by_dir, freed: Condvar::new() }
    }
}

impl Owners {
    /// Waits for the lease on a directory. Returns `None` if a later table owns it, which means that `table` was dropped.
    pub fn take(&self, dir: &Path, table: TableId) -> Option<Lease<'_>> {
        let mut by_dir = self.by_dir.lock();
        loop {
            match by_dir.get_mut(dir) {
                None => {
                    by_dir.insert(dir.to_owned(), Owner { table, is_busy: true });
                    break;
                }
                Some(owner) if owner.table > table => return None,
                Some(owner) if owner.is_busy => self.freed.wait(&mut by_dir),
                Some(owner) => {
                    *owner = Owner { table, is_busy: true };
                    break;
                }
            }
        }
        Some(Lease { owners: self, dir: dir.to_owned(), ends: false })
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut by_dir = self.owners.by_dir.lock();
        match by_dir.get_mut(&self.dir) {
            Some(_) if self.ends => drop(by_dir.remove(&self.dir)),
            Some(owner) => owner.is_busy = false,
            None => {}
        }
        drop(by_dir);
        self.owners.freed.notify_all();
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
        let owners = Arc::new(Owners::default());
        let dir = Path::new("lake/main/t");
        let old = owners.take(dir, TableId(7)).unwrap();
        assert!(owners.take(Path::new("lake/main/u"), TableId(3)).is_some(), "another directory");
        let is_done = Arc::new(AtomicBool::new(false));
        let later = std::thread::spawn({
            let (owners, is_done) = (owners.clone(), is_done.clone());
            move || {
                let _new = owners.take(dir, TableId(8)).unwrap();
                assert!(is_done.load(Ordering::Acquire), "while another worked there");
            }
        });
        std::thread::yield_now();
        is_done.store(true, Ordering::Release);
        drop(old);
        later.join().unwrap();
        assert!(owners.take(dir, TableId(7)).is_none(), "it was dropped");
        let mut last = owners.take(dir, TableId(8)).unwrap();
        last.ends = true;
        drop(last);
        assert!(owners.by_dir.lock().get(dir).is_none());
    }
}
