//! Copies files from one folder to another: in small synced steps, with checksums, and with removal after a failure.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use types::{Error, Kind, Result};
use vfs::{Access, Env};

use super::file_sum::{FileSum, SumBuilder};
use super::marker::ListedFile;
use super::store::{BackupSource, read_through, with_retries};
use crate::open;

pub(crate) const BLOCK_BYTES: u64 = 1 << 20;
/// Bytes that may wait for the disk, so that the log's own sync finds little queued before it.
const SYNC_BYTES: u64 = 4 << 20;

/// Files and folders made in a folder. They are removed after a failure, and made durable by name after a success.
#[derive(Debug)]
pub(crate) struct CreatedFiles {
    dest: PathBuf,
    /// True if the folder itself was made.
    whole: bool,
    /// Made folders, parents before their children.
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl CreatedFiles {
    /// Takes an empty folder, or makes it.
    pub fn claim(env: &Env, dest: &Path) -> Result<CreatedFiles> {
        let failed = |e| Error::io(format!("making {}", dest.display()), e);
        let exists = env.disk.exists(dest).map_err(failed)?;
        if exists {
            let entries =
                env.disk.list(dest).map_err(|e| Error::io(format!("listing {}", dest.display()), e))?;
            if let Some(entry) = entries.first() {
                return Err(Error::new(
                    Kind::Exists,
                    format!("{} is not empty: `{}` is in it", dest.display(), entry.name),
                )
                .hint("name an empty folder, or one that does not exist yet"));
            }
        } else {
            open::make_dir(env, dest).map_err(failed)?;
        }
        Ok(CreatedFiles { dest: dest.to_owned(), whole: !exists, dirs: Vec::new(), files: Vec::new() })
    }

    /// Makes a folder below; its parent exists.
    pub fn dir(&mut self, env: &Env, path: PathBuf) -> Result<()> {
        let made = env.disk.create_dir_all(&path);
        made.map_err(|e| Error::io(format!("making {}", path.display()), e))?;
        self.dirs.push(path);
        Ok(())
    }

    /// Records a file that is about to be made.
    pub fn file(&mut self, path: PathBuf) -> PathBuf {
        self.files.push(path.clone());
        path
    }

    /// Makes the names of all files and folders durable.
    pub fn sync_dirs(&self, env: &Env) -> Result<()> {
        for dir in self.dirs.iter().rev().chain([&self.dest]) {
            env.disk.sync_dir(dir).map_err(|e| Error::io(format!("syncing {}", dir.display()), e))?;
        }
        Ok(())
    }

    /// Removes everything again, as far as possible. The rest is neither a backup nor a data directory.
    pub fn remove(&self, env: &Env) {
        for file in &self.files {
            let _ = env.disk.remove(file);
        }
        for dir in self.dirs.iter().rev().chain(self.whole.then_some(&self.dest)) {
            let _ = env.disk.remove_dir(dir);
        }
    }
}

/// Copies a file, durably except for its name, and returns its checksums. `tick` is called after every step with its bytes.
pub(crate) fn copy(
    env: &Env,
    from: &dyn BackupSource,
    name: &str,
    to: &Path,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<FileSum> {
    let writing = |e| Error::io(format!("writing {}", to.display()), e);
    let source = with_retries(from, tick, |_| from.open(name)).map_err(|error| match error.kind() {
        Kind::NotFound => Error::damaged("a file is missing").with("file", from.display_name(name)),
        _ => error,
    })?;
    let target = env.disk.create(to).map_err(writing)?;
    let (mut at, mut synced, mut summing) = (0, 0, SumBuilder::default());
    read_through(from, &source, tick, &mut |block, tick| {
        summing.add(block);
        target.write_at(&[IoSlice::new(block)], at).map_err(writing)?;
        at += block.len() as u64;
        if at - synced >= SYNC_BYTES {
            target.sync().map_err(writing)?;
            target.drop_from_cache();
            synced = at;
        }
        tick(block.len() as u64)
    })?;
    target.sync().map_err(writing)?;
    target.drop_from_cache();
    Ok(summing.finish())
}

/// Reads a file below `dest` and returns its checksums.
pub(crate) fn read_sum(env: &Env, dest: &Path, relative: &Path) -> Result<ListedFile> {
    let path = dest.join(relative);
    let read = || -> std::io::Result<FileSum> {
        let file = env.disk.open(&path, Access::ReadOnce)?;
        let len = file.len()?;
        let mut block = vec![0; BLOCK_BYTES.min(len) as usize];
        let (mut at, mut summing) = (0, SumBuilder::default());
        while at < len {
            let count = BLOCK_BYTES.min(len - at) as usize;
            file.read_at(&mut block[..count], at)?;
            summing.add(&block[..count]);
            at += count as u64;
        }
        Ok(summing.finish())
    };
    let sum = read().map_err(|e| Error::io(format!("reading {}", path.display()), e))?;
    Ok(ListedFile { path: relative.to_owned(), sum })
}

/// Writes a new file, durably except for its name.
pub(crate) fn write_file(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let file = env.disk.create(path)?;
        file.write_at(&[IoSlice::new(bytes)], 0)?;
        file.sync()
    };
    write().map_err(|e| Error::io(format!("writing {}", path.display()), e))
}
