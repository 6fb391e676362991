//! Copies durable frames out of the log for an archive, and reads archived files back.
//!
//! A *piece* is a file of the archive in the format of a log file: a header with the piece's first lsn, then some whole, durable
//! frames of one log file, unchanged. Its name tells which lsns it holds. An archiver only reads the log and pins nothing. If a
//! file is recycled while the archiver reads it, the file's salt has changed, so its bytes do not parse as frames; the archiver
//! reports the lsns that it missed as a *gap*.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Error, Kind, Lsn, Result};
use vfs::{Access, Env, File};

use crate::batch::SchemaReader;
use crate::frame_reader::FrameReader;
use crate::layout::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FrameHeader, HeaderRead};
use crate::record::Frame;
use crate::recover::{LOG_SUFFIX, log_name};
use crate::section;
use crate::shared::Shared;

/// Reads durable frames out of an open log, in order. One thread owns it.
#[derive(Debug)]
pub struct Archiver {
    shared: Arc<Shared>,
    /// The first lsn that has not been returned yet.
    next: Lsn,
    /// Epoch of the file and offset of the frame of `next`, if known.
    place: Option<(u64, u64)>,
}

/// The next result of an archiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPiece {
    /// All durable frames have been returned.
    Nothing,
    Piece(ArchivePiece),
    /// The log removed these lsns before they were read.
    Gap {
        first: Lsn,
        last: Lsn,
    },
}

/// A file for the archive: see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePiece {
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
    pub bytes: Vec<u8>,
}

impl ArchivePiece {
    /// The file name: `<first lsn>-<last lsn>.log`, both as 16 hexadecimal digits.
    pub fn name(&self) -> String {
        format!("{:016x}-{:016x}{LOG_SUFFIX}", self.first_lsn.0, self.last_lsn.0)
    }

    /// Parses the name of an archived file into its first and last lsn. `None` if it is not the name of a piece.
    pub fn lsns(name: &str) -> Option<(Lsn, Lsn)> {
        let (first, last) = name.strip_suffix(LOG_SUFFIX)?.split_once('-')?;
        let number = |text: &str| {
            let number = u64::from_str_radix(text, 16).ok()?;
            (format!("{number:016x}") == text).then_some(Lsn(number))
        };
        let (first, last) = (number(first)?, number(last)?);
        (first <= last && first.0 > 0).then_some((first, last))
    }
}

impl Archiver {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Archiver { shared, next: Lsn(1), place: None }
    }

    /// The first lsn that the log still holds.
    pub fn oldest(&self) -> Lsn {
        let state = self.shared.state.lock();
        state.files.first().map_or(self.shared.durable_lsn().next(), |entry| entry.first_lsn)
    }

    /// Continues from `next`.
    pub fn seek(&mut self, next: Lsn) {
        (self.next, self.place) = (next, None);
    }

    /// The first lsn that has not been returned yet.
    pub fn position(&self) -> Lsn {
        self.next
    }

    /// Records that every lsn below `next` is durable in the archive, so the log need not keep it for the archive's sake.
    pub fn set_archived(&self, next: Lsn) {
        self.shared.archived.store(next.0.saturating_sub(1), Ordering::Release);
    }

    /// Returns the durable frames from the position on: up to about `bytes_max` of them, at least one, out of one log file. Moves
    /// the position behind them. Fails with [`Kind::Damaged`] if a frame differs from what was written.
    pub fn next_piece(&mut self, bytes_max: usize) -> Result<NextPiece> {
        loop {
            let durable = self.shared.durable_lsn();
            if self.next > durable {
                return Ok(NextPiece::Nothing);
            }
            let Some((epoch, file, found)) = self.file() else { return Ok(NextPiece::Nothing) };
            if found > self.next {
                let gap = NextPiece::Gap { first: self.next, last: Lsn(found.0 - 1) };
                self.seek(found);
                return Ok(gap);
            }
            let read = self.read(epoch, file, durable, bytes_max);
            match read.map_err(|e| self.failed(epoch, e))? {
                Some(piece) => return Ok(NextPiece::Piece(piece)),
                // The file was recycled since it was looked up and is not in use any more: the loop looks for the next one.
                None if !self.is_in_use(epoch) => self.place = None,
                None => {
                    return Err(Error::damaged("a frame of the log is not what was written")
                        .with("file", self.shared.dir.join(log_name(epoch)).display())
                        .with("lsn", self.next));
                }
            }
        }
    }

    /// Returns the file that holds the position, or else the first later one: its epoch, handle and first lsn.
    fn file(&self) -> Option<(u64, Arc<dyn File>, Lsn)> {
        let state = self.shared.state.lock();
        let entry = state.files.iter().find(|entry| entry.last_lsn >= self.next)?;
        Some((entry.epoch, Arc::clone(&entry.file), entry.first_lsn))
    }

    fn is_in_use(&self, epoch: u64) -> bool {
        self.shared.state.lock().files.iter().any(|entry| entry.epoch == epoch)
    }

    fn failed(&self, epoch: u64, error: std::io::Error) -> Error {
        Error::io("reading a log file", error).with("file", self.shared.dir.join(log_name(epoch)).display())
    }

    /// Reads frames from the position on. `None` if the bytes at the position are not its frame.
    fn read(
        &mut self,
        epoch: u64,
        file: Arc<dyn File>,
        durable: Lsn,
        bytes_max: usize,
    ) -> std::io::Result<Option<ArchivePiece>> {
        let len = file.len()?;
        let HeaderRead::Good(header) = FileHeader::of(&*file, len)? else { return Ok(None) };
        if header.epoch != epoch {
            return Ok(None);
        }
        let mut reader = FrameReader::new(file, len);
        let mut offset = match self.place {
            Some((of, offset)) if of == epoch => offset,
            _ => FILE_HEADER_BYTES,
        };
        let mut piece: Option<ArchivePiece> = None;
        loop {
            let found = reader.bytes(offset, FRAME_HEADER_BYTES.min((len - offset) as usize))?;
            let found = found.and_then(|bytes| FrameHeader::read(bytes, epoch, Some(header.salt)));
            // The frames end at a clean-close mark, at the end of the file, or at a frame that is not durable yet.
            let Some(frame) = found.filter(|frame| !frame.is_mark() && frame.next_lsn().0 - 1 <= durable.0)
            else {
                break;
            };
            let wanted = frame.next_lsn() > self.next;
            if wanted && frame.first_lsn > self.next {
                break;
            }
            if wanted {
                let Some(Some(bytes)) = reader.frame(offset, &frame, true)? else { break };
                let piece = piece.get_or_insert_with(|| {
                    let durable_lsn = Lsn(frame.first_lsn.0 - 1);
                    let head = FileHeader { first_lsn: frame.first_lsn, durable_lsn, ..header };
                    ArchivePiece { first_lsn: frame.first_lsn, last_lsn: durable_lsn, bytes: head.to_bytes() }
                });
                piece.bytes.extend_from_slice(&bytes);
                piece.last_lsn = Lsn(frame.next_lsn().0 - 1);
                self.next = frame.next_lsn();
            }
            offset += frame.frame_len();
            self.place = Some((epoch, offset));
            if piece.as_ref().is_some_and(|piece| piece.bytes.len() >= bytes_max) {
                break;
            }
        }
        Ok(piece)
    }
}

/// Reads a piece back: passes its frames with an lsn above `after` to `visit`, in order, until it returns false. Returns true if
/// `visit` never did.
///
/// Fails with [`Kind::Damaged`], naming the file, if it differs from what was written. Every byte is checked, up to the frame at
/// which `visit` stopped.
pub fn read_piece(
    env: &Env,
    path: &Path,
    after: Lsn,
    visit: &mut dyn FnMut(Frame) -> Result<bool>,
) -> Result<bool> {
    let failed = |e| Error::io("reading an archived log file", e).with("file", path.display());
    let damaged = |offset: u64| {
        Error::damaged("an archived log file is not what was written")
            .with("file", path.display())
            .with("offset", offset)
    };
    let file = env.disk.open(path, Access::Read).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    let header = match FileHeader::of(&*file, len).map_err(failed)? {
        HeaderRead::Good(header) => header,
        HeaderRead::Bad => return Err(damaged(0)),
        HeaderRead::Newer(version) => {
            return Err(Error::new(Kind::Newer, format!("an archived log file of format {version}"))
                .with("file", path.display())
                .hint("restore it with the newer Polynya that wrote it"));
        }
    };
    let mut reader = FrameReader::new(file, len);
    let mut schemas = SchemaReader::default();
    let (mut offset, mut next) = (FILE_HEADER_BYTES, header.first_lsn);
    while offset < len {
        let bytes = reader.bytes(offset, FRAME_HEADER_BYTES).map_err(failed)?;
        let frame = bytes.and_then(|bytes| FrameHeader::read(bytes, header.epoch, Some(header.salt)));
        let frame = frame.filter(|frame| frame.first_lsn == next && !frame.is_mark());
        let frame = frame.ok_or_else(|| damaged(offset))?;
        let wanted = frame.next_lsn() > after.next();
        let sound = reader.frame(offset, &frame, wanted).map_err(failed)?.ok_or_else(|| damaged(offset))?;
        if let Some(bytes) = sound {
            let sections = section::decode_frame(&bytes, &frame, &mut schemas)
                .map_err(|e| e.with("file", path.display()).with("offset", offset))?;
            let read = Frame {
                first_lsn: frame.first_lsn,
                commits: frame.commits,
                time: frame.time,
                durable_lsn: frame.durable_lsn,
                sections,
                epoch: header.epoch,
                offset,
                bytes: frame.frame_len(),
            };
            if !visit(read)? {
                return Ok(false);
            }
        }
        offset += frame.frame_len();
        next = frame.next_lsn();
    }
    Ok(true)
}
