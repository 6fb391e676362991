//! Reads a log from its files: finds the valid frames and the end of the log, and decides whether that end is a torn tail or
//! damage. Changes nothing; [`crate::Log::open`] and [`crate::verify()`] both use it.
//!
//! The rule for an unexpected end: everything up to the highest `durable_lsn` that can be read anywhere was durable, so if it
//! cannot be read now, it was damaged. Everything above was never acknowledged, so it may be cut. The evidence includes the
//! [durable file](durable_file), and frames that a scan finds behind the bad bytes or in files without a readable header.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::buffer::Buffer;
use types::{Error, Kind, Lsn, Result};
use vfs::{Access, Env, File};

use crate::batch::SchemaReader;
use crate::durable_file;
use crate::frame_reader::{FrameReader, HeaderScan};
use crate::layout::{FILE_HEADER_BYTES, FileHeader, FrameHeader, HeaderRead};
use crate::record::Frame;
use crate::section;

pub(crate) const LOG_SUFFIX: &str = ".log";

/// Returns the file name of an epoch.
pub(crate) fn log_name(epoch: u64) -> String {
    format!("{epoch:016x}{LOG_SUFFIX}")
}

/// A file of the log, with the result of reading it.
#[derive(Debug)]
pub(crate) struct LogFile {
    /// The number in its name.
    pub epoch: u64,
    pub name: String,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub len: u64,
    /// `None` if the file was never taken into use, or its header is damaged.
    pub header: Option<FileHeader>,
    pub role: FileRole,
    /// Lsn after the last valid frame; meaningful for [`FileRole::Live`].
    pub next_lsn: Lsn,
    /// Offset of the end of the last valid frame.
    pub end: u64,
    pub frames: u64,
}

/// The use of a file for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRole {
    /// Holds no valid frames: it is recycled once a new file is in place.
    Void,
    /// All its lsns are below `replay_from`: it is not read.
    Below,
    /// Its frames are read.
    Live,
}

/// The result of reading a log.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    /// Files, ascending by epoch.
    pub files: Vec<LogFile>,
    pub next_lsn: Lsn,
    /// The highest lsn known to be durable.
    pub durable_lsn: Lsn,
    /// Valid frames that are not known to be durable, in order. They may be durable although no later frame proves it.
    pub undurable: VecDeque<UndurableFrame>,
    pub damage: Option<Error>,
    pub frames: u64,
    pub bytes: u64,
    pub torn_bytes: u64,
    /// The highest epoch in any name or header.
    pub epoch_max: u64,
}

/// A valid frame that is not known to be durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UndurableFrame {
    /// Index into [`RecoveredLog::files`].
    pub file: usize,
    pub offset: u64,
    pub header: FrameHeader,
}

/// Lists the log's files in `dir`, ascending by epoch.
fn find(env: &Env, dir: &Path) -> Result<Vec<LogFile>> {
    let entries = env.disk.list(dir).map_err(|e| Error::io("listing the log's directory", e))?;
    let mut files = Vec::new();
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        let Some(number) = entry.name.strip_suffix(LOG_SUFFIX) else { continue };
        let Ok(epoch) = u64::from_str_radix(number, 16) else { continue };
        if entry.name != log_name(epoch) {
            continue;
        }
        let path = dir.join(&entry.name);
        let opened = env.disk.open(&path, Access::ReadWrite).map_err(|e| Error::io("opening a log file", e));
        let file = opened.map_err(|e| e.with("file", path.display()))?;
        files.push(LogFile {
            epoch,
            name: entry.name,
            path,
            len: entry.len,
            file,
            header: None,
            role: FileRole::Void,
            next_lsn: Lsn(0),
            end: FILE_HEADER_BYTES,
            frames: 0,
        });
    }
    files.sort_by_key(|file| file.epoch);
    Ok(files)
}

/// Reads the log in `dir` from `replay_from` on and passes its frames to `visit`. The caller's manifest proves that everything up
/// to `known_durable` was durable.
pub(crate) fn read_log(
    env: &Env,
    dir: &Path,
    replay_from: Lsn,
    known_durable: Lsn,
    visit: &mut dyn FnMut(Frame) -> Result<()>,
) -> Result<RecoveredLog> {
    let vouched = Lsn(replay_from.0.max(1) - 1);
    // Reads the durable file before it lists the log: beside a running writer, the log then has at least as much.
    let known_durable = known_durable.max(vouched).max(durable_file::read(env, dir));
    let mut recovered = RecoveredLog {
        files: find(env, dir)?,
        next_lsn: vouched.next(),
        durable_lsn: known_durable,
        undurable: VecDeque::new(),
        damage: None,
        frames: 0,
        bytes: 0,
        torn_bytes: 0,
        epoch_max: 0,
    };
    for file in &mut recovered.files {
        recovered.epoch_max = recovered.epoch_max.max(file.epoch);
        match FileHeader::of(&*file.file, file.len).map_err(|e| failed(file, e))? {
            HeaderRead::Good(header) => {
                recovered.epoch_max = recovered.epoch_max.max(header.epoch);
                // A header of another epoch belongs to a recycled file that lost one of its renames.
                file.header = Some(header).filter(|header| header.epoch == file.epoch);
            }
            HeaderRead::Newer(version) => {
                return Err(Error::new(
                    Kind::Newer,
                    format!("a log of format {version}; this Polynya reads format 1"),
                )
                .with("file", file.path.display())
                .hint("open this directory with the newer Polynya that wrote it"));
            }
            HeaderRead::Bad => {}
        }
    }
    assign_roles(&mut recovered.files, replay_from);
    let headers =
        recovered.files.iter().filter(|file| file.role != FileRole::Void).filter_map(|file| file.header);
    recovered.durable_lsn = headers.map(|header| header.durable_lsn).fold(recovered.durable_lsn, Lsn::max);
    Reader { recovered, known_durable, replay_from, schemas: SchemaReader::default() }.read(visit)
}

/// Assigns each file its role. A file's frames are valid only below the first lsn of every later file, so frames that an earlier
/// opening cut stay cut.
fn assign_roles(files: &mut [LogFile], replay_from: Lsn) {
    let mut bound = Lsn(u64::MAX);
    for file in files.iter_mut().rev() {
        let Some(header) = file.header else { continue };
        if header.first_lsn < bound {
            file.role = if bound <= replay_from { FileRole::Below } else { FileRole::Live };
            file.next_lsn = if file.role == FileRole::Below { bound } else { header.first_lsn };
            bound = header.first_lsn;
        }
    }
}

/// The reason why reading a file ended.
enum FileEnd {
    /// The next file continues here, or the log was closed cleanly here.
    Clean,
    /// The bytes at `offset` are not a valid frame.
    Bad { offset: u64 },
    /// The frame's checksum matches, but its content is invalid.
    Nonsense { offset: u64, error: Error },
}

struct Reader {
    recovered: RecoveredLog,
    /// The highest lsn that the caller's manifest or the durable file proves to have been durable.
    known_durable: Lsn,
    replay_from: Lsn,
    schemas: SchemaReader,
}

impl Reader {
    fn read(mut self, visit: &mut dyn FnMut(Frame) -> Result<()>) -> Result<RecoveredLog> {
        let live: Vec<usize> = self.indices(FileRole::Live);
        match live.first().and_then(|i| self.recovered.files[*i].header) {
            Some(first) if first.first_lsn > self.recovered.next_lsn => {
                let (expected, found) = (self.recovered.next_lsn, first.first_lsn);
                self.recovered.damage = Some(
                    Error::damaged(format!(
                        "the log begins with lsn {found}, {expected} expected: files are missing"
                    ))
                    .with("file", self.recovered.files[live[0]].path.display()),
                );
                return Ok(self.recovered);
            }
            Some(first) => self.recovered.next_lsn = first.first_lsn,
            None => return self.end_without_files(),
        }
        for (n, &i) in live.iter().enumerate() {
            let next_live = live.get(n + 1).copied();
            let bound =
                next_live.and_then(|j| self.recovered.files[j].header).map_or(Lsn(u64::MAX), |h| h.first_lsn);
            match self.read_file(i, bound, visit)? {
                FileEnd::Clean => {}
                FileEnd::Bad { offset } => {
                    self.judge_bad_bytes(i, offset)?;
                    break;
                }
                FileEnd::Nonsense { offset, error } => {
                    self.recovered.damage = Some(self.locate(error, i, offset));
                    break;
                }
            }
        }
        if self.recovered.damage.is_none() {
            self.check_end(&live)?;
        }
        // Files behind the end of the log are no longer valid.
        if self.recovered.damage.is_none() {
            let next_lsn = self.recovered.next_lsn;
            for file in &mut self.recovered.files {
                if file.role == FileRole::Live
                    && file.frames == 0
                    && file.header.is_some_and(|h| h.first_lsn >= next_lsn)
                {
                    file.role = FileRole::Void;
                }
            }
        }
        Ok(self.recovered)
    }

    fn indices(&self, role: FileRole) -> Vec<usize> {
        (0..self.recovered.files.len()).filter(|i| self.recovered.files[*i].role == role).collect()
    }

    /// Checks that the log does not end before a durable commit. It would if the commit's file is gone, was cut short or has no
    /// readable header any more.
    fn check_end(&mut self, live: &[usize]) -> Result<()> {
        let last = live.iter().copied().rfind(|i| self.recovered.files[*i].frames > 0).unwrap_or(live[0]);
        let mut evidence = self.known_durable;
        for i in last + 1..self.recovered.files.len() {
            if self.recovered.files[i].header.is_none() {
                evidence = evidence.max(self.scan(i, FILE_HEADER_BYTES)?.durable_lsn);
            }
        }
        if evidence >= self.recovered.next_lsn {
            self.record_loss(last, self.recovered.files[last].end, evidence);
        }
        Ok(())
    }

    /// Records damage: the log can be read only up to `offset` of file `i`, though everything up to `evidence` was durable.
    fn record_loss(&mut self, i: usize, offset: u64, evidence: Lsn) {
        let missing = self.recovered.next_lsn;
        let mut error = Error::damaged(format!(
            "commits {missing} to {evidence} were durable, and the log cannot be read beyond commit {}",
            missing.0 - 1
        ));
        let bad: Vec<&str> = self.recovered.files[i + 1..]
            .iter()
            .filter(|file| file.header.is_none())
            .map(|file| file.name.as_str())
            .collect();
        if !bad.is_empty() {
            error = error.with("files without a readable header", bad.join(", "));
        }
        self.recovered.damage = Some(self.locate(error, i, offset));
    }

    /// Ends the reading if no file has a valid header: the log is new, or never got beyond making its first file, or is lost.
    fn end_without_files(mut self) -> Result<RecoveredLog> {
        let evidence = self.evidence(None)?;
        let evidence = evidence.max(self.known_durable);
        if evidence >= self.recovered.next_lsn || self.replay_from.0 > 1 {
            let found = match self.recovered.files.first() {
                Some(_) => "no log file has a readable header",
                None => "there is no log file",
            };
            self.recovered.damage = Some(Error::damaged(format!(
                "{found}, but lsn {} was written",
                evidence.max(self.recovered.durable_lsn)
            )));
        }
        Ok(self.recovered)
    }

    /// Reads the frames of one file until it ends, or until invalid bytes.
    fn read_file(
        &mut self,
        i: usize,
        bound: Lsn,
        visit: &mut dyn FnMut(Frame) -> Result<()>,
    ) -> Result<FileEnd> {
        let found = &self.recovered.files[i];
        let Some(file_header) = found.header else { return Ok(FileEnd::Bad { offset: 0 }) };
        let mut reader = FrameReader::new(Arc::clone(&found.file), found.len);
        let mut offset = FILE_HEADER_BYTES;
        while self.recovered.next_lsn < bound {
            let header = reader.bytes(offset, 64).map_err(|e| failed(&self.recovered.files[i], e))?;
            let header = header.and_then(|b| FrameHeader::read(b, file_header.epoch, Some(file_header.salt)));
            let Some(header) =
                header.filter(|h| h.first_lsn == self.recovered.next_lsn && h.next_lsn() <= bound)
            else {
                return Ok(FileEnd::Bad { offset });
            };
            let wanted = header.next_lsn() > self.replay_from && !header.is_mark();
            let sound =
                reader.frame(offset, &header, wanted).map_err(|e| failed(&self.recovered.files[i], e))?;
            let Some(bytes) = sound else { return Ok(FileEnd::Bad { offset }) };
            self.recovered.bytes += header.frame_len();
            self.raise_durable(header.durable_lsn);
            if header.is_mark() {
                self.recovered.files[i].end = offset + header.frame_len();
                return Ok(if bound == Lsn(u64::MAX) { FileEnd::Clean } else { FileEnd::Bad { offset } });
            }
            if let Some(bytes) = bytes {
                match self.decode(&bytes, &header, offset) {
                    Ok(frame) => visit(frame)?,
                    Err(error) if error.kind() == Kind::Damaged => {
                        return Ok(FileEnd::Nonsense { offset, error });
                    }
                    Err(error) => return Err(self.locate(error, i, offset)),
                }
                self.recovered.frames += 1;
            }
            if header.next_lsn().0 - 1 > self.recovered.durable_lsn.0 {
                self.recovered.undurable.push_back(UndurableFrame { file: i, offset, header });
            }
            offset += header.frame_len();
            self.recovered.next_lsn = header.next_lsn();
            let found = &mut self.recovered.files[i];
            (found.end, found.next_lsn) = (offset, header.next_lsn());
            found.frames += 1;
        }
        Ok(FileEnd::Clean)
    }

    fn decode(&mut self, bytes: &Buffer, header: &FrameHeader, offset: u64) -> Result<Frame> {
        Ok(Frame {
            first_lsn: header.first_lsn,
            commits: header.commits,
            time: header.time,
            durable_lsn: header.durable_lsn,
            sections: section::decode_frame(bytes, header, &mut self.schemas)?,
            epoch: header.epoch,
            offset,
            bytes: header.frame_len(),
        })
    }

    fn raise_durable(&mut self, lsn: Lsn) {
        self.recovered.durable_lsn = self.recovered.durable_lsn.max(lsn);
        let durable = self.recovered.durable_lsn.next();
        while self.recovered.undurable.front().is_some_and(|frame| frame.header.next_lsn() <= durable) {
            self.recovered.undurable.pop_front();
        }
    }

    /// Decides whether the invalid bytes at `offset` of file `i` are damage or the torn tail.
    fn judge_bad_bytes(&mut self, i: usize, offset: u64) -> Result<()> {
        let evidence = self.evidence(Some((i, offset)))?.max(self.recovered.durable_lsn);
        if evidence >= self.recovered.next_lsn {
            self.record_loss(i, offset, evidence);
        }
        Ok(())
    }

    /// Returns the highest durable lsn that frames from the given place on claim, or frames of any file if there is no place.
    /// Frame headers suffice, as they have their own checksums. Adds the scanned bytes to the torn ones.
    fn evidence(&mut self, from: Option<(usize, u64)>) -> Result<Lsn> {
        let mut highest = Lsn(0);
        let first = from.map_or(0, |(i, _)| i);
        for i in first..self.recovered.files.len() {
            let file = &self.recovered.files[i];
            let start = match from {
                Some((bad, offset)) if bad == i => offset,
                _ => FILE_HEADER_BYTES,
            };
            if let Some(header) = file.header {
                highest = highest.max(header.durable_lsn);
            }
            let scan = self.scan(i, start)?;
            highest = highest.max(scan.durable_lsn);
            self.recovered.torn_bytes += scan.end.saturating_sub(start);
        }
        Ok(highest)
    }

    /// Scans file `i` for frame headers from `offset` on, whether or not its file header can be read.
    fn scan(&self, i: usize, offset: u64) -> Result<HeaderScan> {
        let file = &self.recovered.files[i];
        let salt = file.header.map(|header| header.salt);
        let mut reader = FrameReader::new(Arc::clone(&file.file), file.len);
        reader.scan(offset, file.epoch, salt).map_err(|e| failed(file, e))
    }

    fn locate(&self, error: Error, i: usize, offset: u64) -> Error {
        let error = error
            .with("file", self.recovered.files[i].path.display())
            .with("offset", offset)
            .with("lsn", self.recovered.next_lsn);
        if error.kind() != Kind::Damaged {
            return error;
        }
        error.hint("restore the directory from a backup, or run `polynya doctor` to see what is left")
    }
}

fn failed(file: &LogFile, error: std::io::Error) -> Error {
    Error::io("reading a log file", error).with("file", file.path.display())
}
