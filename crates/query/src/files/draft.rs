//! Writes a file under a temporary name, and gives it its name once it is complete.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{Error, Kind, Result, name};
use vfs::{Disk, Env};

use super::rows::not_opened;

/// A file being written; see the module. Dropped before [`Draft::finish`] it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    disk: Arc<dyn Disk>,
    file: Arc<dyn vfs::File>,
    path: PathBuf,
    temporary: PathBuf,
    overwrite: bool,
    at: u64,
    is_done: bool,
}

impl Draft {
    /// Creates the temporary file. Returns [`Kind::Exists`] if the name is taken and must not be overwritten.
    pub fn new(path: &str, overwrite: bool) -> Result<Draft> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let disk = Env::real().disk;
        let path = Path::new(path);
        let Some(own) = path.file_name() else {
            return Err(Error::invalid(format!(
                "`{}` names no file",
                name::printable(&path.to_string_lossy())
            )));
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary =
            path.with_file_name(format!(".{}.{}-{number}.tmp", own.to_string_lossy(), std::process::id()));
        check_free(&*disk, path, overwrite)?;
        let file = disk.create(&temporary).map_err(|e| not_written(path, e))?;
        Ok(Draft { disk, file, path: path.to_owned(), temporary, overwrite, at: 0, is_done: false })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_at(&[IoSlice::new(bytes)], self.at);
        written.map_err(|e| not_written(&self.path, e))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file durable and renames it.
    pub fn finish(mut self) -> Result<()> {
        let failed = |e| not_written(&self.path, e);
        self.file.sync().map_err(failed)?;
        // Checked again, because the name may have been taken meanwhile.
        check_free(&*self.disk, &self.path, self.overwrite)?;
        self.disk.rename(&self.temporary, &self.path).map_err(failed)?;
        let parent = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let synced = self.disk.sync_dir(parent).map_err(failed);
        self.is_done = true;
        synced
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done {
            // A leftover does no harm: its name shows that it is temporary.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

fn check_free(disk: &dyn Disk, path: &Path, overwrite: bool) -> Result<()> {
    if !overwrite && disk.exists(path).map_err(|e| not_written(path, e))? {
        let shown = path.to_string_lossy();
        return Err(Error::new(
            Kind::Exists,
            format!("there is a file `{}` already", name::printable(&shown)),
        )
        .hint("choose another name, or write ALLOWOVERWRITE at the end"));
    }
    Ok(())
}

fn not_written(path: &Path, error: io::Error) -> Error {
    let shown = path.to_string_lossy();
    match error.kind() {
        // The file is created here, so it is the folder that does not exist.
        io::ErrorKind::NotFound => {
            Error::not_found(format!("there is no folder for `{}`", name::printable(&shown)))
        }
        _ => not_opened(&shown, error),
    }
}
