//! The writing end of an open log.

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
use crate::keep;
use crate::layout::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FrameHeader};
use crate::recover::{Walk, log_name};
use crate::section::encode_frame;
use crate::shared::{Entry, Leftover, Shared, Spare};
use crate::stats::{Counters, Stats};
use crate::syncer::Syncer;

/// Appends to an open log. One thread owns it; the other handles come from it and may be anywhere.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    current: Option<Current>,
    next_lsn: Lsn,
    next_epoch: u64,
    gather: Gather,
    schemas: SchemaWriter,
    /// Of the frame that room was reserved for last.
    purpose: Purpose,
}

/// What a frame is for, as far as that matters on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Any,
    /// It makes room elsewhere: the last file that is ready is kept for such.
    MakesRoom,
}

/// The file that frames go to.
#[derive(Debug)]
struct Current {
    file: Arc<dyn File>,
    epoch: u64,
    salt: u64,
    /// Where the next frame goes.
    offset: u64,
    len: u64,
    /// Only frames that make room go to it.
    kept: bool,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Lsn of the frame's last commit. Durable once [`Syncer::sync`] returned at least this.
    pub last_lsn: Lsn,
    /// Length of the frame.
    pub bytes: u64,
    /// The frame opened a new file: time to run [`Preallocator::prepare`] in the background.
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

    /// The lsn that the next appended frame must begin with.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Sees to it that the next frame cannot fail for want of space if it has at most `bytes`, so that a caller may apply
    /// what the frame will say before it is written. True if that took a new file: time to run
    /// [`Preallocator::prepare`]. Fails as [`Writer::append`] does, with [`types::Kind::DiskFull`] above all.
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
    /// hold a commit.
    ///
    /// Goes on in the next file if the current one is full. Fails with [`types::Kind::DiskFull`] if there is no next file and
    /// no room for one: nothing was written, the lsn is still free, later calls may succeed. Fails with
    /// [`types::Kind::TooLarge`] beyond [`FRAME_BYTES_MAX`], with [`types::Kind::Internal`] for a frame that breaks the contract, with
    /// [`types::Kind::Damaged`] after damage was found: likewise without effect. A failed write latches the log:
    /// [`types::Kind::Latched`] now and for ever.
    pub fn append(&mut self, frame: Builder) -> Result<Appended> {
        let appended = self.try_append(&frame);
        // The arrays are the caller's again, whether it worked or not.
        self.gather.clear();
        appended
    }

    fn try_append(&mut self, frame: &Builder) -> Result<Appended> {
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
        Ok(Appended { last_lsn: Lsn(self.next_lsn.0 - 1), bytes, rotated })
    }

    /// A handle that makes durable what was appended.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(Arc::clone(&self.shared))
    }

    /// A handle for work on files in the background.
    pub fn preallocator(&self) -> Preallocator {
        Preallocator { shared: Arc::clone(&self.shared) }
    }

    /// As [`Preallocator::trim`].
    pub fn trim(&self, below: Lsn) -> Result<()> {
        keep::trim(&self.shared, below, self.shared.options.archive_files_max)
    }

    /// The same without regard to an archive, for a log that finds no room.
    pub fn trim_unarchived(&self, below: Lsn) -> Result<()> {
        keep::trim(&self.shared, below, 0)
    }

    /// Ends the log cleanly: syncs, and leaves a mark that lets the next opening tell damage in the last frames from
    /// a torn tail. Dropping the writer instead is like a crash: safe, with less to go by.
    pub fn close(mut self) -> Result<()> {
        self.shared.check()?;
        self.syncer().sync()?;
        // An empty file needs none, as its header says the same; a full one has no room and does without.
        let fits =
            |c: &Current| c.offset > FILE_HEADER_BYTES && c.len - c.offset >= FRAME_HEADER_BYTES as u64;
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

    /// Sees to it that the current file has room for `bytes`; true if that took a new file.
    fn make_room(&mut self, bytes: u64) -> Result<bool> {
        let fits = |current: &Current| {
            current.len - current.offset >= bytes && (!current.kept || self.purpose == Purpose::MakesRoom)
        };
        if self.current.as_ref().is_some_and(fits) {
            return Ok(false);
        }
        self.start_file(bytes)?;
        Ok(true)
    }

    /// Goes on in a new file with room for a frame of `bytes`. What makes the file durable (its header, its name) is left
    /// to the next sync, which has to wait for the disk anyway.
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
        self.go_on_in(spare, path, header, FILE_HEADER_BYTES, false);
        Ok(())
    }

    /// The first file after an opening. The frames that are not known to be durable are copied to it and thereby cut off
    /// where they stand: whatever a failed write or sync before the restart left of them on the disk no longer matters.
    /// They may have been acknowledged, so the new file gets its name, which is what cuts, when it is durable.
    pub(crate) fn start_with(&mut self, walk: &Walk) -> Result<()> {
        let total = walk.undurable.iter().map(|frame| frame.header.frame_len()).sum();
        let first_lsn = walk.undurable.front().map_or(walk.next_lsn, |frame| frame.header.first_lsn);
        // A restart uses no file up that is kept for who makes room.
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
        for frame in &walk.undurable {
            let found = &walk.files[frame.file];
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
            // Files of which nothing is left.
            let kept = state.files.iter().take_while(|entry| entry.first_lsn < first_lsn).count();
            let gone: Vec<Entry> = state.files.drain(kept..).collect();
            state.leftovers.extend(gone.into_iter().map(Leftover::of));
            if let Some(last) = state.files.last_mut() {
                last.last_lsn = Lsn(first_lsn.0 - 1);
            }
        }
        self.go_on_in(spare, path, header, offset, true);
        Ok(())
    }

    /// A file to go on in, and the header it is to get.
    fn take_file(&mut self, bytes: u64, first_lsn: Lsn) -> Result<(Spare, FileHeader)> {
        let least = FILE_HEADER_BYTES + bytes;
        let len = keep::file_bytes(&self.shared).max(least);
        let spare = keep::take_spare(&self.shared, len, least, self.purpose)?;
        let header = FileHeader {
            epoch: self.next_epoch,
            salt: self.shared.env.random.next_u64(),
            first_lsn,
            durable_lsn: self.shared.durable_lsn(),
        };
        self.next_epoch += 1;
        Ok((spare, header))
    }

    fn go_on_in(&mut self, spare: Spare, path: PathBuf, header: FileHeader, offset: u64, in_place: bool) {
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
        self.current = Some(Current {
            file: spare.file,
            epoch: header.epoch,
            salt: header.salt,
            offset,
            len: spare.len,
            kept: self.purpose == Purpose::MakesRoom,
        });
    }

    /// Writes what is gathered as a frame of so many commits.
    fn write(&mut self, commits: u32, sections: u32, time: i64) -> Result<()> {
        let Some(current) = &mut self.current else { return Err(Error::internal("no log file is open")) };
        let bytes = self.gather.len();
        let header = FrameHeader {
            payload_crc: self.gather.crc_from(FRAME_HEADER_BYTES),
            // At most FRAME_BYTES_MAX.
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

/// What is written up to `end` in a file of `len` bytes, with zeros after it up to the end of its block. Nothing that counts stands
/// there. But of a block that is written as a whole the kernel need not read what it was, and of a new file it has nothing in
/// memory ([`vfs::File::allocate`]).
fn to_block_end(mut parts: Vec<IoSlice<'_>>, end: u64, len: u64) -> Vec<IoSlice<'_>> {
    const BLOCK_BYTES: u64 = 4096;
    static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    let rest = end.next_multiple_of(BLOCK_BYTES).min(len).saturating_sub(end);
    if rest > 0 {
        parts.push(IoSlice::new(&ZEROS[..rest as usize]));
    }
    parts
}

/// Makes the files that the writer goes on in and clears those it no longer needs. Any number of clones, in any threads.
#[derive(Clone, Debug)]
pub struct Preallocator {
    shared: Arc<Shared>,
}

impl Preallocator {
    /// Prepares spare files until [`crate::Options::spare_files`] are ready; to be called in the background after
    /// [`Appended::rotated`] and once after opening. Takes space in small synced steps, so that it does not stall the
    /// log's own fsync. [`types::Kind::DiskFull`] if there is no room: call again later.
    pub fn prepare(&self) -> Result<()> {
        keep::prepare(&self.shared)
    }

    /// A handle that reads the log for an archive. From now on trims keep what [`Archiver::archived`] did not name.
    pub fn archiver(&self) -> Archiver {
        self.shared.archived.store(0, Ordering::Release);
        Archiver::new(Arc::clone(&self.shared))
    }

    /// Ends [`Preallocator::prepare`] at its next step and makes later calls do nothing: the log is about to be closed.
    pub fn stop(&self) {
        self.shared.ending.store(true, Ordering::Release);
    }

    /// Lets go of files whose lsns are all below `below` and durable: they become spares or are removed. The caller
    /// promises that its manifest, durable, needs nothing below `below`, and will open the log with a `replay_from` of
    /// at least `below`. A file that cannot be removed is kept and tried again next time; the error is returned.
    pub fn trim(&self, below: Lsn) -> Result<()> {
        keep::trim(&self.shared, below, self.shared.options.archive_files_max)
    }
}
