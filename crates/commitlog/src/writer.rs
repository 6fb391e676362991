//! The writing handle of an open log.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Error, Kind, Lsn, Result};
use vfs::File;

use crate::archive::Archiver;
use crate::batch::SchemaWriter;
use crate::frame::{Builder, FRAME_BYTES_MAX};
use crate::gather::Gather;
use crate::layout::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FrameHeader};
use crate::recover::{RecoveredLog, log_name};
use crate::section::encode_frame;
use crate::shared::{Entry, Leftover, Shared, SpareFile};
use crate::spare_files;
use crate::stats::{Counters, Stats};
use crate::syncer::Syncer;

/// Appends to an open log. One thread owns it; its other handles can be used in any thread.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    current: Option<CurrentFile>,
    next_lsn: Lsn,
    next_epoch: u64,
    gather: Gather,
    schemas: SchemaWriter,
    /// The purpose of the frame for which space was reserved last.
    purpose: Purpose,
}

/// The purpose of a frame, as far as it matters on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Any frame that does not free space.
    Any,
    /// A frame that frees space elsewhere: the last ready file is reserved for such frames.
    MakesRoom,
}

/// The file to which frames are written.
#[derive(Debug)]
struct CurrentFile {
    file: Arc<dyn File>,
    epoch: u64,
    salt: u64,
    /// Offset of the next frame.
    offset: u64,
    len: u64,
    /// True if only frames that make room are written to it.
    kept: bool,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedFrame {
    /// Lsn of the frame's last commit. It is durable once [`Syncer::sync`] has returned at least this.
    pub last_lsn: Lsn,
    /// Length of the frame.
    pub bytes: u64,
    /// True if the frame opened a new file: [`Preallocator::prepare`] should run in the background.
    pub rotated: bool,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, next_lsn: Lsn, next_epoch: u64) -> Self {
        Writer {
            shared,
            current: None,
            next_lsn,
            next_epoch,
            gather: Gather::default(),
            schemas: SchemaWriter::default(),
            purpose: Purpose::Any,
        }
    }

    /// The first lsn of the next appended frame.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Ensures that the next frame cannot fail for lack of space if it has at most `bytes`, so that a caller may apply the
    /// frame's changes before it is written. Returns true if a new file was opened: [`Preallocator::prepare`] should run then.
    /// Fails like [`Writer::append`], in particular with [`types::Kind::DiskFull`].
    pub fn reserve(&mut self, bytes: u64, purpose: Purpose) -> Result<bool> {
        self.shared.check()?;
        self.purpose = purpose;
        let rotated = self.make_room(bytes.min(FRAME_BYTES_MAX))?;
        if rotated {
            Counters::add(&self.shared.counters.rotations, 1);
        }
        Ok(rotated)
    }

    /// Writes a frame with one gathered write, without syncing. Its first lsn must be [`Writer::next_lsn`], and it must
    /// have a commit.
    ///
    /// Continues in the next file if the current one is full. Fails with [`types::Kind::DiskFull`] if there is no next file and
    /// no room for one: nothing was written, the lsn is still free, and later calls may succeed. Also without effect, it fails
    /// with [`types::Kind::TooLarge`] above [`FRAME_BYTES_MAX`], with [`types::Kind::Internal`] for a frame that breaks the
    /// contract, and with [`types::Kind::Damaged`] after damage was found. A failed write latches the log: this call and all
    /// later ones return [`types::Kind::Latched`].
    pub fn append(&mut self, frame: Builder) -> Result<AppendedFrame> {
        let appended = self.try_append(&frame);
        // Releases the caller's arrays, whether the append succeeded or not.
        self.gather.clear();
        appended
    }

    fn try_append(&mut self, frame: &Builder) -> Result<AppendedFrame> {
        self.shared.check()?;
        if frame.first_lsn() != self.next_lsn || frame.is_empty() {
            return Err(Error::internal(format!(
                "a frame of {} commits from lsn {}; at least one from lsn {} expected",
                frame.commits(),
                frame.first_lsn(),
                self.next_lsn
            )));
        }
        let sections = u32::try_from(frame.sections().len());
        let sections = sections.map_err(|_| Error::internal("a frame of more than 2^32 sections"))?;
        encode_frame(&mut self.gather, frame, &mut self.schemas)?;
        let bytes = self.gather.len();
        let rotated = self.make_room(bytes)?;
        self.write(frame.commits(), sections, frame.time())?;
        let counters = &self.shared.counters;
        Counters::add(&counters.frames, 1);
        Counters::add(&counters.bytes_written, bytes);
        Counters::add(&counters.rotations, rotated.into());
        Ok(AppendedFrame { last_lsn: Lsn(self.next_lsn.0 - 1), bytes, rotated })
    }

    /// Returns a handle that makes appended frames durable.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(Arc::clone(&self.shared))
    }

    /// Returns a handle for background work on files.
    pub fn preallocator(&self) -> Preallocator {
        Preallocator { shared: Arc::clone(&self.shared) }
    }

    /// Releases files: see [`Preallocator::trim`].
    pub fn trim(&self, below: Lsn) -> Result<()> {
        spare_files::trim(&self.shared, below, self.shared.options.archive_files_max)
    }

    /// Releases files like [`Preallocator::trim`], but keeps none for an archive: for a log that has no room.
    pub fn trim_unarchived(&self, below: Lsn) -> Result<()> {
        spare_files::trim(&self.shared, below, 0)
    }

    /// Closes the log cleanly: syncs, and writes a mark that lets the next opening distinguish damage in the last frames from a
    /// torn tail. Dropping the writer instead is like a crash: safe, but with less evidence.
    pub fn close(mut self) -> Result<()> {
        self.shared.check()?;
        self.syncer().sync()?;
        // An empty file needs no mark, as its header has the same evidence; a full file has no room for one.
        let fits =
            |c: &CurrentFile| c.offset > FILE_HEADER_BYTES && c.len - c.offset >= FRAME_HEADER_BYTES as u64;
        if self.current.as_ref().is_some_and(fits) {
            self.gather.clear();
            self.gather.bytes(&[0; FRAME_HEADER_BYTES]);
            self.write(0, 0, self.shared.env.clock.now())?;
            self.syncer().flush()?;
        }
        Ok(())
    }

    pub fn stats(&self) -> Stats {
        self.syncer().stats()
    }

    /// Ensures that the current file has room for `bytes`. Returns true if a new file was opened.
    fn make_room(&mut self, bytes: u64) -> Result<bool> {
        let fits = |current: &CurrentFile| {
            current.len - current.offset >= bytes && (!current.kept || self.purpose == Purpose::MakesRoom)
        };
        if self.current.as_ref().is_some_and(fits) {
            return Ok(false);
        }
        self.start_file(bytes)?;
        Ok(true)
    }

    /// Continues in a new file with room for a frame of `bytes`. The next sync makes the file's header and name durable, because
    /// it has to wait for the disk anyway.
    fn start_file(&mut self, bytes: u64) -> Result<()> {
        debug_assert!(bytes <= FRAME_BYTES_MAX);
        let (spare, header) = self.take_file(bytes, self.next_lsn)?;
        let shared = Arc::clone(&self.shared);
        let path = shared.dir.join(log_name(header.epoch));
        let started = spare
            .file
            .write_at(&[IoSlice::new(&header.to_bytes())], 0)
            .and_then(|()| shared.env.disk.rename(&spare.path, &path));
        if let Err(error) = started {
            let error = Error::io("starting a log file", error).with("file", path.display());
            return Err(shared.latch(&error));
        }
        self.continue_in(spare, path, header, FILE_HEADER_BYTES, false);
        Ok(())
    }

    /// Starts the first file after an opening. It copies the frames that are not known to be durable to the new file, which cuts
    /// them off in their old files: the traces of a write or sync that failed before the restart no longer matter. The frames may
    /// have been acknowledged, so the new file gets its name, which is what cuts, only once it is durable.
    pub(crate) fn start_with(&mut self, recovered: &RecoveredLog) -> Result<()> {
        let total = recovered.undurable.iter().map(|frame| frame.header.frame_len()).sum();
        let first_lsn =
            recovered.undurable.front().map_or(recovered.next_lsn, |frame| frame.header.first_lsn);
        // On a full disk the restart takes the reserved file, which stays reserved for frames that make room.
        let taken = match self.take_file(total, first_lsn) {
            Err(error) if error.kind() == Kind::DiskFull => {
                self.purpose = Purpose::MakesRoom;
                self.take_file(total, first_lsn)
            }
            taken => taken,
        };
        let (spare, mut header) = taken?;
        header.durable_lsn = Lsn(first_lsn.0 - 1);
        let shared = Arc::clone(&self.shared);
        let path = shared.dir.join(log_name(header.epoch));
        let failed = |e| Error::io("starting a log file", e).with("file", path.display());
        spare.file.write_at(&[IoSlice::new(&header.to_bytes())], 0).map_err(failed)?;
        let mut offset = FILE_HEADER_BYTES;
        let mut payload = Vec::new();
        for frame in &recovered.undurable {
            let found = &recovered.files[frame.file];
            payload.resize(frame.header.payload_len as usize, 0);
            found.file.read_at(&mut payload, frame.offset + FRAME_HEADER_BYTES as u64).map_err(failed)?;
            let copied = FrameHeader { salt: header.salt, epoch: header.epoch, ..frame.header };
            let head = copied.to_bytes();
            let parts = [IoSlice::new(&head), IoSlice::new(&payload)];
            spare.file.write_at(&parts, offset).map_err(failed)?;
            offset += copied.frame_len();
        }
        spare.file.sync().map_err(failed)?;
        shared.env.disk.rename(&spare.path, &path).map_err(failed)?;
        shared.sync_dir().map_err(failed)?;
        {
            let mut state = shared.state.lock();
            // Files whose frames were all copied are no longer needed.
            let kept = state.files.iter().take_while(|entry| entry.first_lsn < first_lsn).count();
            let gone: Vec<Entry> = state.files.drain(kept..).collect();
            state.leftovers.extend(gone.into_iter().map(Leftover::of));
            if let Some(last) = state.files.last_mut() {
                last.last_lsn = Lsn(first_lsn.0 - 1);
            }
        }
        self.continue_in(spare, path, header, offset, true);
        Ok(())
    }

    /// Returns a file in which to continue, and the header to write to it.
    fn take_file(&mut self, bytes: u64, first_lsn: Lsn) -> Result<(SpareFile, FileHeader)> {
        let least = FILE_HEADER_BYTES + bytes;
        let len = spare_files::file_bytes(&self.shared).max(least);
        let spare = spare_files::take_spare(&self.shared, len, least, self.purpose)?;
        let header = FileHeader {
            epoch: self.next_epoch,
            salt: self.shared.env.random.next_u64(),
            first_lsn,
            durable_lsn: self.shared.durable_lsn(),
        };
        self.next_epoch += 1;
        Ok((spare, header))
    }

    fn continue_in(
        &mut self,
        spare: SpareFile,
        path: PathBuf,
        header: FileHeader,
        offset: u64,
        in_place: bool,
    ) {
        let mut state = self.shared.state.lock();
        state.files.push(Entry {
            epoch: header.epoch,
            path,
            file: Arc::clone(&spare.file),
            first_lsn: header.first_lsn,
            last_lsn: Lsn(self.next_lsn.0 - 1),
            in_place,
        });
        if in_place {
            state.in_place(header.epoch);
        } else {
            state.dirty.push(Arc::clone(&spare.file));
            state.dir_dirty = true;
        }
        self.shared.counters.files(&state.files);
        self.current = Some(CurrentFile {
            file: spare.file,
            epoch: header.epoch,
            salt: header.salt,
            offset,
            len: spare.len,
            kept: self.purpose == Purpose::MakesRoom,
        });
    }

    /// Writes the gathered bytes as a frame of this many commits.
    fn write(&mut self, commits: u32, sections: u32, time: i64) -> Result<()> {
        let Some(current) = &mut self.current else { return Err(Error::internal("no log file is open")) };
        let bytes = self.gather.len();
        let header = FrameHeader {
            payload_crc: self.gather.crc_from(FRAME_HEADER_BYTES),
            // The cast is safe: a frame has at most FRAME_BYTES_MAX bytes.
            payload_len: (bytes - FRAME_HEADER_BYTES as u64) as u32,
            salt: current.salt,
            epoch: current.epoch,
            first_lsn: self.next_lsn,
            commits,
            sections,
            time,
            durable_lsn: self.shared.durable_lsn(),
        };
        self.gather.set_start(&header.to_bytes());
        let parts = to_block_end(self.gather.io_slices(), current.offset + bytes, current.len);
        if let Err(error) = current.file.write_at(&parts, current.offset) {
            let error = Error::io("writing to the log", error).with("lsn", self.next_lsn);
            return Err(self.shared.latch(&error));
        }
        current.offset += bytes;
        self.next_lsn = header.next_lsn();
        let last_lsn = Lsn(self.next_lsn.0 - 1);
        let mut state = self.shared.state.lock();
        if !state.dirty.last().is_some_and(|last| Arc::ptr_eq(last, &current.file)) {
            state.dirty.push(Arc::clone(&current.file));
        }
        if let Some(entry) = state.files.last_mut() {
            entry.last_lsn = last_lsn;
        }
        self.shared.appended.store(last_lsn.0, Ordering::Release);
        Ok(())
    }
}

/// Extends a write that ends at `end`, in a file of `len` bytes, with zeros to the end of its 4096-byte block. The file has
/// nothing valid behind the frame. The kernel need not read a block that is written as a whole, and the pages of a new file are
/// not in memory ([`vfs::File::allocate`]).
fn to_block_end(mut parts: Vec<IoSlice<'_>>, end: u64, len: u64) -> Vec<IoSlice<'_>> {
    const BLOCK_BYTES: u64 = 4096;
    static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    let rest = end.next_multiple_of(BLOCK_BYTES).min(len).saturating_sub(end);
    if rest > 0 {
        parts.push(IoSlice::new(&ZEROS[..rest as usize]));
    }
    parts
}

/// Makes the files in which the writer continues, and clears those that it no longer needs. It can be cloned to any number of
/// threads.
#[derive(Clone, Debug)]
pub struct Preallocator {
    shared: Arc<Shared>,
}

impl Preallocator {
    /// Prepares spare files until [`crate::Options::spare_files`] are ready. It is called in the background after
    /// [`AppendedFrame::rotated`], and once after opening. Takes space in small synced steps, so that it does not stall the
    /// log's own fsync. Fails with [`types::Kind::DiskFull`] if there is no room: call it again later.
    pub fn prepare(&self) -> Result<()> {
        spare_files::prepare(&self.shared)
    }

    /// Returns a handle that reads the log for an archive. From now on trims keep files above the lsn of [`Archiver::set_archived`].
    pub fn archiver(&self) -> Archiver {
        self.shared.archived.store(0, Ordering::Release);
        Archiver::new(Arc::clone(&self.shared))
    }

    /// Makes [`Preallocator::prepare`] return at its next step, and later calls do nothing: the log is about to be closed.
    pub fn stop(&self) {
        self.shared.ending.store(true, Ordering::Release);
    }

    /// Releases files whose lsns are all below `below` and durable: they become spares or are removed. The caller
    /// guarantees that its durable manifest needs nothing below `below`, and that it will open the log with a `replay_from` of
    /// at least `below`. A file that cannot be removed is kept and tried again next time; the error is returned.
    pub fn trim(&self, below: Lsn) -> Result<()> {
        spare_files::trim(&self.shared, below, self.shared.options.archive_files_max)
    }
}
