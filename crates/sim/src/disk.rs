//! A simulated disk that separates written from durable data.
//!
//! - `content`: the written and the durable bytes of one file, sector by sector.
//! - `names`: directories, and the changes of names that no `sync_dir` has made durable.
//! - `state`: the calls, their numbers, faults and trace; the state after a crash.
//! - `file`: open files.
//!
//! A crash may do each of the following, and over many seeds does all of them:
//! - Each 512-byte sector that was written since its file's last sync holds its old content, its new one, or one
//!   that it had in between. A write of many sectors can tear anywhere, in any order.
//! - A length that was not synced is the old one, the new one, or one in between. If the file grew but the new data
//!   did not reach the medium, the new bytes are zero.
//! - Each change of a name that was not synced is kept or lost independently, but a change of a name is never kept
//!   if an earlier one of the same name is lost. A rename within a directory is one step; one across directories may
//!   leave both names, never none. One crash in three keeps the order of all changes, as ext4 does.
//! - Synced bytes and names stay. File contents and names are independent: a durable name may belong to a file whose
//!   bytes are lost.

mod content;
mod file;
mod names;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use testkit::Rng;
use vfs::{Access, Disk, Entry, File, Lock};

use content::{BLOCK_BYTES, draw_survival};
use file::{SimFile, SimLock};
use names::{NameTree, Node};
use state::{Fate, Kind, State};

pub use content::SECTOR_BYTES;
pub use state::{Crashed, is_crash};

/// A simulated disk, as seen by one simulated process. Clones share the same disk.
///
/// The methods of this type are for the test and do not count as calls. Those of [`vfs::Disk`] and [`vfs::File`] are
/// calls: each has a number, from 1.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// Makes an empty disk. The seed decides what failing calls leave behind.
    pub fn new(seed: u64) -> Self {
        SimDisk::of(State::new(NameTree::new(), BTreeMap::new(), seed, 0))
    }

    fn of(state: State) -> Self {
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls()
    }

    /// The number of calls that were syncs of files or directories.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs()
    }

    /// A hash over all calls: their arguments, the bytes read and their outcomes. It continues over [`SimDisk::crash`]
    /// and [`SimDisk::kill`], so it covers all predecessors of this disk too.
    pub fn trace_hash(&self) -> u64 {
        self.0.lock().hash()
    }

    /// Returns the last few hundred calls, for the message of a failing test.
    pub fn last_calls(&self) -> Vec<String> {
        self.0.lock().last_calls()
    }

    /// Kills the process in the middle of the call of this number. That call and all later ones return [`Crashed`].
    /// The changes of that call count as written but not as durable, so a crash can tear, keep or lose them.
    pub fn crash_at(&self, call: u64) {
        self.0.lock().crash_at = Some(call);
    }

    /// Returns true if the process is dead, by [`SimDisk::crash_at`] or because its successor's disk was made.
    pub fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    /// Simulates a power failure and returns the disk that the next process finds. `rng` decides the fate of
    /// everything unsynced; all that is on the new disk is durable. This disk is dead from now on.
    pub fn crash(&self, rng: &mut Rng) -> SimDisk {
        SimDisk::of(self.0.lock().after_crash(rng))
    }

    /// Simulates a killed process on a living machine (`kill -9`) and returns the disk of the next process. That
    /// process sees everything written, and unsynced data is still not durable. This disk is dead from now on.
    pub fn kill(&self) -> SimDisk {
        SimDisk::of(self.0.lock().after_kill())
    }

    /// Makes the `nth` read or mapping from now on, counted from 1, fail with EIO.
    pub fn fail_read(&self, nth: u64) {
        self.fail(Kind::Read, nth);
    }

    /// Makes the `nth` write, `allocate` or `set_len` from now on fail with EIO. A part of the write may be done.
    pub fn fail_write(&self, nth: u64) {
        self.fail(Kind::Write, nth);
    }

    /// Makes the `nth` sync of a file or directory from now on fail with EIO. The data to be synced is durable or lost
    /// at random, and no later sync changes that. Reads may show either the new bytes or the old ones.
    pub fn fail_sync(&self, nth: u64) {
        self.fail(Kind::Sync, nth);
    }

    fn fail(&self, kind: Kind, nth: u64) {
        assert!(nth > 0, "calls are counted from 1");
        self.0.lock().failures.insert(kind, nth);
    }

    /// Makes syncs of the files and directories that `lost` selects report success and do nothing, as if the code
    /// under test had forgotten them. This is for canaries: a test that still passes then tests nothing. A file is
    /// identified by the path with which it was opened.
    pub fn lose_syncs(&self, lost: impl Fn(&Path) -> bool + Send + Sync + 'static) {
        self.0.lock().lost_syncs.0.push(Box::new(lost));
    }

    /// Limits the free space to this many bytes, in blocks of 4096; `None` lifts the limit. The limit survives a
    /// crash.
    pub fn set_free_bytes(&self, free: Option<u64>) {
        let mut state = self.0.lock();
        state.blocks_max = free.map(|free| state.used_blocks() + free / BLOCK_BYTES);
    }

    /// Damages the byte at `offset`, on the medium and for reads: flips its bit `offset % 8`. Living mappings keep the
    /// old byte. Panics if there is no such byte.
    pub fn flip_bit(&self, path: &Path, offset: u64) {
        let mut state = self.0.lock();
        let id = state.names.file(path).expect("a file to damage");
        let content = &mut state.file(id).content;
        assert!(offset < content.len(), "{} has no byte {offset}", path.display());
        content.flip_bit(offset);
    }

    /// Returns the bytes that the process would read; `None` if there is no such file. Does not count as a call.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let mut state = self.0.lock();
        let id = state.names.file(path).ok()?;
        Some(state.file(id).content.data().to_vec())
    }

    /// Returns the paths of all files, sorted. Does not count as a call.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.lock().names.paths()
    }

    fn call<T>(
        &self,
        kind: Kind,
        what: String,
        run: impl FnOnce(&mut State, Fate) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.lock().call(kind, what, run)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        write!(f, "SimDisk({} calls{})", state.calls(), if state.dead { ", dead" } else { "" })
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let id = self.call(Kind::Name, format!("create {}", path.display()), |state, _| {
            let id = state.names.create(path)?;
            Ok(state.open(id))
        })?;
        Ok(Arc::new(SimFile::new(self.0.clone(), id, path.to_owned(), Access::ReadWrite)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let id = self.call(Kind::Look, format!("open {access:?} {}", path.display()), |state, _| {
            let id = state.names.file(path)?;
            Ok(state.open(id))
        })?;
        Ok(Arc::new(SimFile::new(self.0.clone(), id, path.to_owned(), access)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let what = format!("rename {} to {}", from.display(), to.display());
        self.call(Kind::Name, what, |state, _| state.names.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Kind::Name, format!("remove {}", path.display()), |state, _| state.names.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Kind::Name, format!("remove_dir {}", path.display()), |state, _| {
            state.names.remove_dir(path)
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let what = format!("create_dir_all {}", path.display());
        self.call(Kind::Name, what, |state, _| state.names.create_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Kind::Sync, format!("sync_dir {}", path.display()), |state, fate| {
            match fate {
                Fate::Failed => {
                    let survival = draw_survival(&mut state.rng);
                    state.names.fail_sync_dir(path, survival, &mut state.rng)?;
                }
                Fate::Done if !state.loses_syncs_of(path) => state.names.sync_dir(path)?,
                Fate::Done | Fate::Crashed => {}
            }
            state.collect();
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.call(Kind::Look, format!("list {}", path.display()), |state, _| {
            let names = state.names.list(path)?;
            let entry = |(name, node)| match node {
                Node::Dir(_) => Entry { name, len: 0, is_dir: true },
                Node::File(id) => Entry { name, len: state.file(id).content.len(), is_dir: false },
            };
            Ok(names.into_iter().map(entry).collect())
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.call(Kind::Look, format!("exists {}", path.display()), |state, _| match state.names.node(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.call(Kind::Look, format!("free_bytes {}", path.display()), |state, _| {
            state.names.node(path)?;
            Ok(state.free_blocks() * BLOCK_BYTES)
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let id = self.call(Kind::Name, format!("lock {}", path.display()), |state, _| {
            let id = match state.names.file(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => state.names.create(path)?,
                found => found?,
            };
            state.files.entry(id).or_default();
            if state.locked.insert(id) { Ok(id) } else { Err(ErrorKind::WouldBlock.into()) }
        })?;
        Ok(Box::new(SimLock { state: self.0.clone(), id }))
    }
}
