//! An open file of a simulated disk.

use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use vfs::{Access, File, Lock};
use xxhash_rust::xxh3::xxh3_64;

use super::content::FileContent;
use super::names::Id;
use super::state::{Fate, Kind, State};

#[derive(Debug)]
pub(super) struct SimFile {
    state: Arc<Mutex<State>>,
    id: Id,
    /// The path with which the file was opened, for the trace.
    path: PathBuf,
    access: Access,
}

impl SimFile {
    /// Makes a handle that [`State::open`] has counted. It must be made outside the call, because dropping it takes
    /// the disk's lock.
    pub(super) fn new(state: Arc<Mutex<State>>, id: Id, path: PathBuf, access: Access) -> Self {
        SimFile { state, id, path, access }
    }

    fn call<T>(
        &self,
        kind: Kind,
        what: std::fmt::Arguments<'_>,
        run: impl FnOnce(&mut State, Fate) -> io::Result<T>,
    ) -> io::Result<T> {
        let what = format!("{what} {}", self.path.display());
        self.state.lock().call(kind, what, |state, fate| {
            if kind == Kind::Write && self.access == Access::Read {
                return Err(ErrorKind::PermissionDenied.into());
            }
            run(state, fate)
        })
    }

    /// Panics if the file is mapped. On a real machine a write would then change memory that was lent as constant:
    /// that is undefined behaviour, or a reader sees wrong bytes. The simulation can detect it.
    fn assert_not_mapped(&self, state: &mut State) {
        let mappings = Arc::strong_count(&state.file(self.id).mappings) - 1;
        assert!(
            mappings == 0,
            "{} is written to while {mappings} of its mappings live; the caller of `map` promised otherwise",
            self.path.display()
        );
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.call(Kind::Read, format_args!("read {offset}+{}", buf.len()), |state, fate| {
            if fate != Fate::Done {
                return Ok(());
            }
            let data = state.file(self.id).content.data();
            let start = (offset.min(data.len() as u64)) as usize;
            let bytes = data[start..].get(..buf.len()).ok_or(ErrorKind::UnexpectedEof)?;
            buf.copy_from_slice(bytes);
            state.note(buf);
            Ok(())
        })
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts.iter().map(|part| &**part).collect::<Vec<&[u8]>>().concat();
        let hash = xxh3_64(&bytes);
        self.call(Kind::Write, format_args!("write {offset}+{} {hash:016x}", bytes.len()), |state, fate| {
            self.assert_not_mapped(state);
            let end = offset + bytes.len() as u64;
            let mut until = fitting(state, self.id, offset..end);
            let full = until < end;
            if fate == Fate::Failed {
                // A random part of the write is done, and the caller does not learn how much.
                until = offset + state.rng.below(until - offset + 1);
            }
            state.file(self.id).content.write(&bytes[..(until - offset) as usize], offset);
            if full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Kind::Sync, format_args!("sync"), |state, fate| {
            match fate {
                Fate::Failed => {
                    let mut rng = state.rng.fork();
                    state.file(self.id).content.fail_sync(&mut rng);
                }
                Fate::Done if !state.loses_syncs_of(&self.path) => state.file(self.id).content.sync(),
                // Some sectors may have reached the medium, but a crash decides that for all unsynced sectors anyway.
                Fate::Done | Fate::Crashed => {}
            }
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.call(Kind::Write, format_args!("allocate {len}"), |state, fate| {
            let old = state.file(self.id).content.len();
            if len <= old {
                return Ok(());
            }
            let until = fitting(state, self.id, old..len);
            let full = until < len;
            // Both failures may leave the file longer than it was, with zeros at its end.
            let until =
                if full || fate == Fate::Failed { old + state.rng.below(until - old + 1) } else { until };
            state.file(self.id).content.allocate(until);
            if full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Kind::Write, format_args!("set_len {len}"), |state, fate| {
            if fate == Fate::Failed {
                return Ok(());
            }
            if len < state.file(self.id).content.len() {
                self.assert_not_mapped(state);
            }
            state.file(self.id).content.set_len(len);
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.call(Kind::Look, format_args!("len"), |state, _| Ok(state.file(self.id).content.len()))
    }

    fn map(&self) -> io::Result<Bytes> {
        self.call(Kind::Read, format_args!("map"), |state, fate| {
            if fate != Fate::Done {
                return Ok(Bytes::new());
            }
            let file = state.file(self.id);
            if file.content.len() == 0 {
                return Ok(Bytes::new());
            }
            let mapping = Mapping::new(&file.content, file.mappings.clone());
            state.note(mapping.as_ref());
            Ok(Bytes::from_owner(mapping))
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Some(file) = self.state.lock().files.get_mut(&self.id) {
            file.open -= 1;
        }
    }
}

fn fitting(state: &mut State, id: Id, range: Range<u64>) -> u64 {
    let free = state.free_blocks();
    state.file(id).content.fitting(range, free)
}

/// A copy of a file's bytes, aligned like a real mapping. While it lives, writes to the file panic.
struct Mapping {
    bytes: Vec<u8>,
    range: Range<usize>,
    _mapped: Arc<()>,
}

const ALIGNMENT: usize = 64;

impl Mapping {
    fn new(content: &FileContent, mapped: Arc<()>) -> Self {
        let data = content.data();
        // The vector has its full capacity, so its memory does not move.
        let mut bytes: Vec<u8> = Vec::with_capacity(data.len() + ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        bytes.resize(start, 0);
        bytes.extend_from_slice(data);
        Mapping { range: start..start + data.len(), bytes, _mapped: mapped }
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// A held lock file. It must be made outside the call, like [`SimFile`].
#[derive(Debug)]
pub(super) struct SimLock {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) id: Id,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.id);
    }
}
