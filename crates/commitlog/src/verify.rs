//! Reads and checks a log without changing it, for `doctor`.

use std::path::Path;

use types::{Error, Lsn, Result};
use vfs::Env;

use crate::record::Frame;
use crate::recover::{self, FileRole};

/// The result of reading one file of the log.
#[derive(Clone, Debug)]
pub struct FileReport {
    pub name: String,
    pub epoch: u64,
    pub state: FileState,
    /// Number of frames read.
    pub frames: u64,
    /// The last lsn that was found in the file, or is known to be in it.
    pub last_lsn: Lsn,
    /// Bytes in use, header included.
    pub bytes_used: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// The use of a file for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Its frames were read.
    Read,
    /// All its lsns are below what recovery needs.
    NotNeeded,
    /// It has no valid frames: empty, cut off by a later file, or without a readable header.
    Void,
}

/// The result of reading a log.
#[derive(Clone, Debug)]
pub struct Report {
    pub files: Vec<FileReport>,
    /// The last lsn that recovery would reach; `replay_from - 1` if there is none.
    pub last_lsn: Lsn,
    /// Number of frames passed to the visitor.
    pub frames: u64,
    /// Bytes of the torn tail: see [`crate::Recovery::torn_bytes`].
    pub torn_bytes: u64,
    /// The damage at which recovery would stop, if it would not reach the end.
    pub damage: Option<Error>,
}

/// Reads the frames that recovery from `replay_from` would read, and passes every frame with an lsn from there on, decoded, to
/// `visit`. The manifest proves that everything up to `known_durable` was durable, as in [`crate::Log::open_known`].
/// Writes nothing and needs no lock; beside a running writer it sees some prefix of the log.
///
/// Damage is part of the report. An error comes from `visit`, from a failed read, or is [`types::Kind::Newer`].
pub fn verify(
    env: &Env,
    dir: &Path,
    replay_from: Lsn,
    known_durable: Lsn,
    visit: &mut dyn FnMut(Frame) -> Result<()>,
) -> Result<Report> {
    let recovered = recover::read_log(env, dir, replay_from, known_durable, visit)?;
    let files = recovered.files.iter().map(|file| FileReport {
        name: file.name.clone(),
        epoch: file.epoch,
        state: match file.role {
            FileRole::Live => FileState::Read,
            FileRole::Below => FileState::NotNeeded,
            FileRole::Void => FileState::Void,
        },
        frames: file.frames,
        last_lsn: Lsn(file.next_lsn.0.saturating_sub(1)),
        bytes_used: if file.role == FileRole::Below { file.len } else { file.end },
        bytes: file.len,
    });
    Ok(Report {
        files: files.collect(),
        last_lsn: Lsn(recovered.next_lsn.0 - 1),
        frames: recovered.frames,
        torn_bytes: recovered.torn_bytes,
        damage: recovered.damage,
    })
}
