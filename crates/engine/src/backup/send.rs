//! Sends a backup to a place that is not a folder: files go under names with their hashes in them, and are read back.
//!
//! No file that is sent gets in the way of another, since a name stands for one content. If two backups are sent to one
//! place at once, neither changes a file of the other. Only one of them puts `BACKUP`, which is put last and never over
//! another. An attempt that fails or dies earlier leaves files but no backup, and the next attempt finds those files and
//! does not send them again. Once `BACKUP` is there nobody else can make one, so files that earlier attempts left and it
//! does not name are removed.
//!
//! Memory is bounded by one block and one part of an upload. The heads take a folder in the data directory meanwhile.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use table::segment;
use types::{Error, Kind, Result};

use super::copy::{BLOCK_BYTES, CreatedFiles, read_sum};
use super::file_sum::SumBuilder;
use super::marker::{self, ListedFile, is_content_name};
use super::store::{BackupSource, BackupStore, SourceFile, checksum, read_whole, with_retries};
use super::{
    Backup, BackupContent, LocalFolder, MANIFEST_NAME, Progress, check_source, describe_marker, listed,
    ticker, with_damage_hint,
};
use crate::shared_state::Shared;

/// Folder in the data directory for the segments made of heads, until they are sent.
pub(crate) const OUTGOING: &str = "outgoing";

/// Result of sending a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentBackup {
    pub backup: Backup,
    /// Files that an earlier attempt had left there: they were read and compared, and not sent again.
    pub found_files: usize,
    pub found_bytes: u64,
}

/// Takes a backup of the newest root and sends it to `store`.
pub(crate) fn send(
    shared: &Arc<Shared>,
    store: &dyn BackupStore,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<SentBackup> {
    shared.check_open()?;
    let total_bytes = Cell::new(0);
    let mut tick = ticker(shared, &total_bytes, progress);
    check_free(store, &mut tick)?;
    with_retries(store, &mut tick, |_| store.claim(&shared.env))?;
    let outgoing = shared.dir.join(OUTGOING);
    let staged = outgoing.join(format!("{:016x}", shared.env.random.next_u64()));
    let mut made = CreatedFiles::claim(&shared.env, &staged)?;
    let outcome = BackupContent::gather(shared, &staged, &mut made, &total_bytes, &mut tick)
        .and_then(|content| send_content(shared, store, &staged, &content, &mut tick));
    made.remove(&shared.env);
    // The folder stays if another backup has files in it.
    let _ = shared.env.disk.remove_dir(&outgoing);
    outcome.map_err(with_damage_hint)
}

/// Refuses a place that holds a backup, or anything that is not part of an attempt to make one.
fn check_free(store: &dyn BackupStore, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let entries = with_retries(store, tick, |_| store.list(""))?;
    for entry in entries {
        if entry.name == marker::NAME {
            return Err(Error::new(
                Kind::Exists,
                format!("{} holds a backup already", store.display_name("")),
            )
            .hint("give each backup a place of its own, such as one with the date in its name"));
        }
        let is_known = if entry.is_dir {
            entry.name == "tables"
        } else {
            is_content_name(&entry.name) || store.is_claim_file(&entry.name)
        };
        if !is_known {
            return Err(Error::new(
                Kind::Exists,
                format!("{} is not empty: `{}` is in it", store.display_name(""), entry.name),
            )
            .hint("name a place that holds nothing"));
        }
    }
    Ok(())
}

fn send_content(
    shared: &Arc<Shared>,
    store: &dyn BackupStore,
    staged: &Path,
    content: &BackupContent,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SentBackup> {
    let mut files = SentFiles { store, listed: Vec::new(), found_files: 0, found_bytes: 0 };
    for relative in &content.sealed {
        files.send(shared, staged, relative, tick)?;
    }
    for held in &content.held {
        let from_dir = segment::table_dir(&shared.dir, held.def.id);
        // Earlier damage is noticed now and not when the backup is needed.
        check_source(shared, held, &from_dir, tick)?;
        for name in segment::names_of(&held.segment) {
            let relative = segment::table_dir(Path::new(""), held.def.id).join(name);
            files.send(shared, &shared.dir, &relative, tick)?;
        }
    }
    if let Some(text) = &content.lacks {
        files.put(listed(marker::LAKE, text.as_bytes()), &in_memory(text.as_bytes()), tick)?;
    }
    let bytes = content.manifest.encode();
    files.put(listed(MANIFEST_NAME, &bytes), &in_memory(&bytes), tick)?;
    let SentFiles { listed, found_files, found_bytes, .. } = files;
    let marker = content.marker(shared, true, listed);
    finish(store, marker.encode().as_bytes(), tick)?;
    sweep(store, &marker.files).unwrap_or_else(|error| {
        tracing::warn!("files of earlier attempts stay in {}: {error}", store.display_name(""));
    });
    Ok(SentBackup { backup: describe_marker(&marker, content.lacks()), found_files, found_bytes })
}

/// Wraps bytes as an opened file.
fn in_memory(bytes: &[u8]) -> SourceFile<'_> {
    let read_at = move |buffer: &mut [u8], offset: u64| {
        let at = offset as usize;
        buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        Ok(())
    };
    SourceFile { len: bytes.len() as u64, block_bytes: BLOCK_BYTES, read_at: Box::new(read_at) }
}

/// Files that are at the place, complete and verified.
struct SentFiles<'a> {
    store: &'a dyn BackupStore,
    listed: Vec<ListedFile>,
    found_files: usize,
    found_bytes: u64,
}

impl SentFiles<'_> {
    /// Sends a file of this machine, below `dir`.
    fn send(
        &mut self,
        shared: &Shared,
        dir: &Path,
        relative: &Path,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let listed = read_sum(&shared.env, dir, relative)?;
        let folder = LocalFolder::new(&shared.env, dir);
        let opened = folder.open(&relative.display().to_string())?;
        self.put(listed, &opened, tick)
    }

    fn put(
        &mut self,
        listed: ListedFile,
        from: &SourceFile<'_>,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let (store, name) = (self.store, listed.name_by_content());
        if is_there(store, &name, &listed, tick)? {
            self.found_files += 1;
            self.found_bytes += listed.sum.bytes;
            tick(listed.sum.bytes)?;
        } else {
            with_retries(store, tick, |tick| {
                put_once(store, &name, &listed, from, tick)?;
                if is_there(store, &name, &listed, tick)? {
                    return Ok(());
                }
                let changed =
                    io::Error::new(io::ErrorKind::InvalidData, "the bytes read back differ from those sent");
                Err(Error::io(format!("sending {}", store.display_name(&name)), changed).hint(
                    "the store, or a proxy before it, does not keep the bytes that it receives: use another one",
                ))
            })?;
        }
        self.listed.push(listed);
        Ok(())
    }
}

/// Returns true if a file is at the place with the right contents. A file that vanishes while it is read was removed by
/// another backup.
fn is_there(
    store: &dyn BackupStore,
    name: &str,
    listed: &ListedFile,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<bool> {
    match checksum(store, name, listed.sum.bytes, tick) {
        Err(error) if error.kind() == Kind::Damaged => Ok(false),
        found => Ok(found? == Some(listed.sum)),
    }
}

fn put_once(
    store: &dyn BackupStore,
    name: &str,
    listed: &ListedFile,
    from: &SourceFile<'_>,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (mut at, mut summing) = (0, SumBuilder::default());
    store.put(name, &mut || {
        if at >= listed.sum.bytes {
            return Ok(None);
        }
        let mut block = vec![0; from.block_bytes.min(listed.sum.bytes - at) as usize];
        (from.read_at)(&mut block, at)?;
        at += block.len() as u64;
        summing.add(&block);
        if at == listed.sum.bytes && std::mem::take(&mut summing).finish() != listed.sum {
            // Checked before the last block is sent, so that no file appears under the name of another content.
            return Err(Error::damaged("a file of the database is not the same each time it is read")
                .with("file", listed.path.display())
                .hint("check the disk and the memory of this machine"));
        }
        tick(block.len() as u64)?;
        Ok(Some(block))
    })
}

/// Completes the backup; all its other files are at the place.
fn finish(store: &dyn BackupStore, bytes: &[u8], tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    with_retries(store, tick, |_| store.put_new(marker::NAME, bytes)).map_err(|error| match error.kind() {
        Kind::Exists => {
            Error::new(Kind::Exists, format!("another backup to {} was finished first", store.display_name("")))
                .hint("that one is whole; give each backup a place of its own")
        }
        Kind::Io => error.hint(format!(
            "everything else is there: take the backup again. Should `{}` have arrived after all, it is whole, and that says so",
            marker::NAME
        )),
        _ => error,
    })?;
    // A wrong marker can only be reported now.
    if read_whole(store, marker::NAME, bytes.len() as u64).is_ok_and(|found| found != bytes) {
        return Err(Error::damaged(format!("`{}` differs from the bytes sent", marker::NAME))
            .with("file", store.display_name(marker::NAME))
            .hint("a restore refuses it: use another place"));
    }
    Ok(())
}

/// Removes files that earlier attempts left and this backup does not name.
fn sweep(store: &dyn BackupStore, files: &[ListedFile]) -> Result<()> {
    let kept: HashSet<String> = files.iter().map(ListedFile::name_by_content).collect();
    let mut dirs = vec![String::new(), "tables".to_owned()];
    for table in store.list("tables")?.into_iter().filter(|entry| entry.is_dir) {
        dirs.push(format!("tables/{}", table.name));
    }
    for dir in dirs {
        for entry in store.list(&dir)?.into_iter().filter(|entry| !entry.is_dir) {
            let name = if dir.is_empty() { entry.name } else { format!("{dir}/{}", entry.name) };
            if is_content_name(&name) && !kept.contains(&name) {
                store.remove(&name)?;
            }
        }
    }
    Ok(())
}

/// Removes files of a process that was killed while it sent a backup. No backup may be running yet.
pub(crate) fn clear_outgoing(env: &vfs::Env, dir: &Path) -> Result<()> {
    let outgoing = dir.join(OUTGOING);
    let failed = |e| Error::io(format!("removing {}", outgoing.display()), e);
    if env.disk.exists(&outgoing).map_err(failed)? {
        remove_all(env, &outgoing).map_err(failed)
    } else {
        Ok(())
    }
}

fn remove_all(env: &vfs::Env, dir: &Path) -> io::Result<()> {
    for entry in env.disk.list(dir)? {
        let path = dir.join(&entry.name);
        if entry.is_dir { remove_all(env, &path)? } else { env.disk.remove(&path)? }
    }
    env.disk.remove_dir(dir)
}
