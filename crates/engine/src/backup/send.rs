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

use super::copy::{BLOCK_BYTES, Made, read_sum};
use super::marker::{self, Listed, is_by_content};
use super::place::{Opened, Place, Source, checksum, patiently, read_whole};
use super::sum::Summing;
use super::{
    Backup, Content, Folder, MANIFEST_NAME, Progress, check_source, describe_marker, listed, ticker,
    with_cure,
};
use crate::shared::Shared;

/// Folder in the data directory for the segments made of heads, until they are sent.
pub(crate) const OUTGOING: &str = "outgoing";

/// Result of sending a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub backup: Backup,
    /// Files that an earlier attempt had left there: they were read and compared, and not sent again.
    pub found_files: usize,
    pub found_bytes: u64,
}

/// Takes a backup of the newest root and sends it to `place`.
pub(crate) fn send(
    shared: &Arc<Shared>,
    place: &dyn Place,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Sent> {
    shared.check_open()?;
    let total_bytes = Cell::new(0);
    let mut tick = ticker(shared, &total_bytes, progress);
    check_free(place, &mut tick)?;
    patiently(place, &mut tick, |_| place.claim(&shared.env))?;
    let outgoing = shared.dir.join(OUTGOING);
    let staged = outgoing.join(format!("{:016x}", shared.env.random.next_u64()));
    let mut made = Made::claim(&shared.env, &staged)?;
    let outcome = Content::gather(shared, &staged, &mut made, &total_bytes, &mut tick)
        .and_then(|content| send_content(shared, place, &staged, &content, &mut tick));
    made.remove(&shared.env);
    // The folder stays if another backup has files in it.
    let _ = shared.env.disk.remove_dir(&outgoing);
    outcome.map_err(with_cure)
}

/// Refuses a place that holds a backup, or anything that is not part of an attempt to make one.
fn check_free(place: &dyn Place, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let entries = patiently(place, tick, |_| place.list(""))?;
    for entry in entries {
        if entry.name == marker::NAME {
            return Err(Error::new(Kind::Exists, format!("{} holds a backup already", place.named("")))
                .hint("give each backup a place of its own, such as one with the date in its name"));
        }
        let is_known = match entry.is_dir {
            true => entry.name == "tables",
            false => is_by_content(&entry.name) || place.is_own(&entry.name),
        };
        if !is_known {
            return Err(Error::new(
                Kind::Exists,
                format!("{} is not empty: `{}` is in it", place.named(""), entry.name),
            )
            .hint("name a place that holds nothing"));
        }
    }
    Ok(())
}

fn send_content(
    shared: &Arc<Shared>,
    place: &dyn Place,
    staged: &Path,
    content: &Content,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Sent> {
    let mut files = Files { place, listed: Vec::new(), found_files: 0, found_bytes: 0 };
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
    let Files { listed, found_files, found_bytes, .. } = files;
    let marker = content.marker(shared, true, listed);
    finish(place, marker.encode().as_bytes(), tick)?;
    sweep(place, &marker.files).unwrap_or_else(|error| {
        tracing::warn!("what earlier attempts left in {} stays there: {error}", place.named(""));
    });
    Ok(Sent { backup: describe_marker(&marker, content.lacks()), found_files, found_bytes })
}

/// Wraps bytes as an opened file.
fn in_memory(bytes: &[u8]) -> Opened<'_> {
    let read_at = move |buffer: &mut [u8], offset: u64| {
        let at = offset as usize;
        buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        Ok(())
    };
    Opened { len: bytes.len() as u64, block_bytes: BLOCK_BYTES, read_at: Box::new(read_at) }
}

/// Files that are at the place, complete and verified.
struct Files<'a> {
    place: &'a dyn Place,
    listed: Vec<Listed>,
    found_files: usize,
    found_bytes: u64,
}

impl Files<'_> {
    /// Sends a file of this machine, below `dir`.
    fn send(
        &mut self,
        shared: &Shared,
        dir: &Path,
        relative: &Path,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let listed = read_sum(&shared.env, dir, relative)?;
        let folder = Folder::new(&shared.env, dir);
        let opened = folder.open(&relative.display().to_string())?;
        self.put(listed, &opened, tick)
    }

    fn put(
        &mut self,
        listed: Listed,
        from: &Opened<'_>,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let (place, name) = (self.place, listed.name_by_content());
        if is_there(place, &name, &listed, tick)? {
            self.found_files += 1;
            self.found_bytes += listed.sum.bytes;
            tick(listed.sum.bytes)?;
        } else {
            patiently(place, tick, |tick| {
                put_once(place, &name, &listed, from, tick)?;
                if is_there(place, &name, &listed, tick)? {
                    return Ok(());
                }
                let changed =
                    io::Error::new(io::ErrorKind::InvalidData, "what is read back is not what was sent");
                Err(Error::io(format!("sending {}", place.named(&name)), changed).hint(
                    "the store, or what lies before it, does not keep what it is given: use another one",
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
    place: &dyn Place,
    name: &str,
    listed: &Listed,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<bool> {
    match checksum(place, name, listed.sum.bytes, tick) {
        Err(error) if error.kind() == Kind::Damaged => Ok(false),
        found => Ok(found? == Some(listed.sum)),
    }
}

fn put_once(
    place: &dyn Place,
    name: &str,
    listed: &Listed,
    from: &Opened<'_>,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (mut at, mut summing) = (0, Summing::default());
    place.put(name, &mut || {
        if at >= listed.sum.bytes {
            return Ok(None);
        }
        let mut block = vec![0; from.block_bytes.min(listed.sum.bytes - at) as usize];
        (from.read_at)(&mut block, at)?;
        at += block.len() as u64;
        summing.add(&block);
        if at == listed.sum.bytes && std::mem::take(&mut summing).done() != listed.sum {
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
fn finish(place: &dyn Place, bytes: &[u8], tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    patiently(place, tick, |_| place.put_new(marker::NAME, bytes)).map_err(|error| match error.kind() {
        Kind::Exists => {
            Error::new(Kind::Exists, format!("another backup to {} was finished first", place.named("")))
                .hint("that one is whole; give each backup a place of its own")
        }
        Kind::Io => error.hint(format!(
            "everything else is there: take the backup again. Should `{}` have arrived after all, it is whole, and that says so",
            marker::NAME
        )),
        _ => error,
    })?;
    // A wrong marker can only be reported now.
    if read_whole(place, marker::NAME, bytes.len() as u64).is_ok_and(|found| found != bytes) {
        return Err(Error::damaged(format!("`{}` is not what was sent", marker::NAME))
            .with("file", place.named(marker::NAME))
            .hint("a restore refuses it: use another place"));
    }
    Ok(())
}

/// Removes files that earlier attempts left and this backup does not name.
fn sweep(place: &dyn Place, files: &[Listed]) -> Result<()> {
    let kept: HashSet<String> = files.iter().map(Listed::name_by_content).collect();
    let mut dirs = vec![String::new(), "tables".to_owned()];
    for table in place.list("tables")?.into_iter().filter(|entry| entry.is_dir) {
        dirs.push(format!("tables/{}", table.name));
    }
    for dir in dirs {
        for entry in place.list(&dir)?.into_iter().filter(|entry| !entry.is_dir) {
            let name = if dir.is_empty() { entry.name } else { format!("{dir}/{}", entry.name) };
            if is_by_content(&name) && !kept.contains(&name) {
                place.remove(&name)?;
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
