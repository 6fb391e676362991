//! Index files on disk, for all kinds of index. Each file is written once, has a number as its name, and is removed
//! when no reader holds it.

use std::collections::HashMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use table::materializer::{Budget, MaterializerDir};
use types::{Error, Lsn, Result, TableId};
use vfs::{Access, File, Mutex};

/// Bytes written between two syncs of a growing file. One large flush at the end would stall the syncs of the commit
/// log.
const SYNC_BYTES: usize = 4 << 20;

/// The files of one kind in a directory, named `<number><extension>`.
#[derive(Clone, Copy)]
pub(crate) struct Files {
    pub extension: &'static str,
}

impl Files {
    fn name(self, id: u64) -> String {
        format!("{id}{}", self.extension)
    }

    pub fn path(self, place: &MaterializerDir, id: u64) -> PathBuf {
        place.dir.join(self.name(id))
    }

    /// Lists the ids of these files in the directory. Skips names that [`Files`] would not have given: such files
    /// belong to another program.
    pub fn list(self, place: &MaterializerDir) -> Result<Vec<u64>> {
        let failed = |e| Error::io(format!("listing {}", place.dir.display()), e);
        let entries = place.env.disk.list(&place.dir).map_err(failed)?;
        let id =
            |name: &str| name.strip_suffix(self.extension)?.parse().ok().filter(|id| self.name(*id) == name);
        Ok(entries.iter().filter(|entry| !entry.is_dir).filter_map(|entry| id(&entry.name)).collect())
    }

    pub fn remove(self, place: &MaterializerDir, id: u64) -> Result<()> {
        let path = self.path(place, id);
        place.env.disk.remove(&path).map_err(|e| Error::io(format!("removing {}", path.display()), e))
    }

    /// Returns the smallest id that is at least `least` and greater than the id of every file here.
    pub fn next(self, place: &MaterializerDir, least: u64) -> Result<u64> {
        Ok(self.list(place)?.into_iter().max().map_or(least, |id| least.max(id + 1)))
    }

    pub fn map(self, place: &MaterializerDir, id: u64) -> Result<Bytes> {
        let path = self.path(place, id);
        let failed = |e| Error::io(format!("reading {}", path.display()), e);
        place.env.disk.open(&path, Access::Read).map_err(failed)?.map().map_err(failed)
    }

    /// Creates a new, empty file.
    pub fn create(self, place: &MaterializerDir, id: u64) -> Result<IndexFileWriter> {
        let path = self.path(place, id);
        let file = place.env.disk.create(&path).map_err(|e| write_error(&path, e))?;
        Ok(IndexFileWriter { file, path, written: 0, waiting: Vec::new() })
    }
}

fn write_error(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("writing {}", path.display()), error)
}

/// A file under construction, written sequentially and synced every [`SYNC_BYTES`].
pub(crate) struct IndexFileWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    written: u64,
    waiting: Vec<u8>,
}

impl IndexFileWriter {
    /// Bytes written so far, including bytes that are still buffered.
    pub fn len(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    pub fn write(&mut self, mut bytes: &[u8], budget: &mut Budget<'_>) -> Result<()> {
        while !bytes.is_empty() {
            let room = SYNC_BYTES - self.waiting.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.waiting.extend_from_slice(now);
            if self.waiting.len() == SYNC_BYTES {
                self.flush(budget)?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self, budget: &mut Budget<'_>) -> Result<()> {
        let failed = |e| write_error(&self.path, e);
        self.file.write_at(&[IoSlice::new(&self.waiting)], self.written).map_err(failed)?;
        self.file.sync().map_err(failed)?;
        let bytes = self.waiting.len() as u64;
        self.written += bytes;
        self.waiting.clear();
        (budget.tick)(bytes)
    }

    /// Writes and syncs the rest, syncs the directory, and maps the finished file. The file survives a crash once this
    /// returns.
    pub fn finish(mut self, place: &MaterializerDir, budget: &mut Budget<'_>) -> Result<Bytes> {
        if !self.waiting.is_empty() {
            self.flush(budget)?;
        }
        place.env.disk.sync_dir(&place.dir).map_err(|e| write_error(&self.path, e))?;
        self.file.map().map_err(|e| write_error(&self.path, e))
    }
}

/// In-memory state that a materializer keeps between its steps, for each table and file. Only background steps touch
/// it.
pub(crate) struct StepMemory<T> {
    /// Tables that wait for more rows because a step over few rows does not pay: their position, and the monotonic time
    /// at which the wait began.
    waiting: HashMap<TableId, (Lsn, Duration)>,
    /// Files that a reader may still hold.
    open_files: HashMap<(TableId, u64), Weak<T>>,
    /// Tables whose dead rows must be erased from the index files, on request.
    erasures: HashMap<TableId, ErasureRequest>,
}

/// A request to erase from the files of a table the rows that are dead at `lsn`.
struct ErasureRequest {
    lsn: Lsn,
    /// Files with this id or a higher one were written from a state at `lsn` or later, so they hold no such rows.
    /// `None` until a step at such a state begins.
    mark: Option<u64>,
}

/// Time between two attempts to remove an unreferenced file that a reader still holds.
pub(crate) const HELD_PAUSE: Duration = Duration::from_millis(100);

impl<T> Default for StepMemory<T> {
    fn default() -> Self {
        StepMemory { waiting: HashMap::new(), open_files: HashMap::new(), erasures: HashMap::new() }
    }
}

impl<T> StepMemory<T> {
    /// Returns the time for which a table should still wait for more rows, or `None` if it has waited for `longest` at
    /// this position. The first call at a new position starts the wait.
    pub fn remaining_wait(
        &mut self,
        table: TableId,
        position: Lsn,
        now: Duration,
        longest: Duration,
    ) -> Option<Duration> {
        let since = match self.waiting.get(&table) {
            Some((lsn, since)) if *lsn == position => *since,
            _ => {
                self.waiting.insert(table, (position, now));
                now
            }
        };
        let left = longest.saturating_sub(now.saturating_sub(since));
        if left.is_zero() {
            self.end_wait(table);
            return None;
        }
        Some(left)
    }

    pub fn end_wait(&mut self, table: TableId) {
        self.waiting.remove(&table);
    }

    pub fn remember(&mut self, table: TableId, id: u64, file: &Arc<T>) {
        self.open_files.insert((table, id), Arc::downgrade(file));
    }

    /// Tells whether a reader still holds a file.
    pub fn is_held(&mut self, table: TableId, id: u64) -> bool {
        let held = self.open_files.get(&(table, id)).is_some_and(|file| file.strong_count() > 0);
        if !held {
            self.open_files.remove(&(table, id));
        }
        held
    }

    pub fn forget(&mut self, table: TableId) {
        self.waiting.remove(&table);
        self.erasures.remove(&table);
        self.open_files.retain(|(of, _), _| *of != table);
    }

    pub fn request_erasure(&mut self, table: TableId, lsn: Lsn) {
        let request = self.erasures.entry(table).or_insert(ErasureRequest { lsn, mark: None });
        if request.lsn < lsn {
            *request = ErasureRequest { lsn, mark: None };
        }
    }

    pub fn is_erasing(&self, table: TableId) -> bool {
        self.erasures.contains_key(&table)
    }

    /// Returns the file id before which files may hold rows to erase, or `None` if nothing is to be erased. A step
    /// calls it when it begins: `at` is the lsn of its snapshot of `table`, and its new files have ids from `next_id`
    /// on.
    pub fn erasure_mark(&mut self, table: TableId, at: Lsn, next_id: u64) -> Option<u64> {
        let request = self.erasures.get_mut(&table).filter(|request| request.lsn <= at)?;
        Some(*request.mark.get_or_insert(next_id))
    }

    /// Ends the erasure that began at `mark`: no file before it holds rows to erase any more. A newer request that
    /// arrived meanwhile stays.
    pub fn end_erasure(&mut self, table: TableId, mark: u64) {
        if self.erasures.get(&table).is_some_and(|request| request.mark == Some(mark)) {
            self.erasures.remove(&table);
        }
    }
}

/// Removes the files with ids before `mark` that the index does not name, except those that a reader holds. Returns
/// true if no such file is left.
pub(crate) fn remove_before<T>(
    files: Files,
    place: &MaterializerDir,
    memory: &Mutex<StepMemory<T>>,
    table: TableId,
    mark: u64,
    is_named: impl Fn(u64) -> bool,
) -> Result<bool> {
    let mut left = false;
    for id in files.list(place)?.into_iter().filter(|id| *id < mark && !is_named(*id)) {
        if memory.lock().is_held(table, id) {
            left = true;
        } else {
            files.remove(place, id)?;
        }
    }
    Ok(!left)
}

/// Returns the table to which a directory belongs: the directory is named after the table's id.
pub(crate) fn table_of(place: &MaterializerDir) -> Option<TableId> {
    Some(TableId(place.dir.file_name()?.to_str()?.parse().ok()?))
}
