//! Reads a log without changing anything: for `doctor`.

use std::path::Path;

use types::{Error, Lsn, Result};
use vfs::Env;

use crate::record::Frame;
use crate::recover::{self, Role};

/// One file of the log, as found.
#[derive(Clone, Debug)]
pub struct FileReport {
    pub name: String,
    pub epoch: u64,
    pub state: FileState,
    /// Frames read.
    pub frames: u64,
    /// The last lsn found in it, or known to be in it.
    pub last_lsn: Lsn,
    /// Bytes in use, header included.
    pub bytes_used: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// What a file is to recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It was read.
    Read,
    /// All its lsns are below what recovery needs.
    NotNeeded,
    /// It holds nothing that counts: empty, cut off by a later file, or without a readable header.
    Void,
}

/// A log, as found.
#[derive(Clone, Debug)]
pub struct Report {
    pub files: Vec<FileReport>,
    /// The last lsn that recovery would reach; `replay_from - 1` if there is none.
    pub last_lsn: Lsn,
    /// Frames handed to the visitor.
    pub frames: u64,
    /// As in [`crate::Recovery::torn_bytes`].
    pub torn_bytes: u64,
    /// Where recovery would stop, if not at the end.
    pub damage: Option<Error>,
}

/// Reads what recovery from `replay_from` would read and hands every frame with an lsn from there on, decoded, to
/// `visit`. Everything up to `known_durable` was durable by the word of a manifest, as in [`crate::Log::open_known`].
/// Writes nothing and needs no lock; beside a running writer it sees some prefix.
///
/// Damage is reported, not returned; an error is one of `visit`'s, a failure to read, or [`types::Kind::Newer`].
pub fn verify(
    env: &Env,
    dir: &Path,
    replay_from: Lsn,
    known_durable: Lsn,
    visit: &mut dyn FnMut(Frame) -> Result<()>,
) -> Result<Report> {
    let walk = recover::walk(env, dir, replay_from, known_durable, visit)?;
    let files = walk.files.iter().map(|file| FileReport {
        name: file.name.clone(),
        epoch: file.epoch,
        state: match file.role {
            Role::Live => FileState::Read,
            Role::Below => FileState::NotNeeded,
            Role::Void => FileState::Void,
        },
        frames: file.frames,
        last_lsn: Lsn(file.next_lsn.0.saturating_sub(1)),
        bytes_used: if file.role == Role::Below { file.len } else { file.end },
        bytes: file.len,
    });
    Ok(Report {
        files: files.collect(),
        last_lsn: Lsn(walk.next_lsn.0 - 1),
        frames: walk.frames,
        torn_bytes: walk.torn_bytes,
        damage: walk.damage,
    })
}
