//! The open databases of this process. Connections to one folder share one database.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use polynya::{Database, Options, SqlOptions};
use pyo3::prelude::*;

use crate::error::{OrRaise, interface};
use crate::wait;

/// The open databases by folder. A thread that connects waits here while another one opens or closes a database.
static OPEN_DATABASES: Mutex<Option<HashMap<PathBuf, OpenDatabase>>> = Mutex::new(None);
/// The process that first opened a database; 0 before that.
static PROCESS: AtomicU32 = AtomicU32::new(0);

struct OpenDatabase {
    db: Database,
    settings: Settings,
    leases: usize,
}

/// The options that Python may set; `None` means the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub timeout: Option<f64>,
    pub memory_bytes_max: Option<usize>,
    pub rows_max: Option<u64>,
    pub history: Option<f64>,
}

impl Settings {
    fn options(&self, dir: &Path) -> PyResult<Options> {
        let seconds = |name: &str, value: f64, least: Duration| {
            let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| *duration >= least);
            duration.ok_or_else(|| interface(format!("`{name}` is {value}"), "give a number of seconds"))
        };
        let mut options = Options::default();
        let mut sql = SqlOptions::new(dir.join("spill"));
        if let Some(timeout) = self.timeout {
            sql.deadline = seconds("timeout", timeout, Duration::from_millis(1))?;
        }
        sql.memory_bytes = self.memory_bytes_max.unwrap_or(sql.memory_bytes);
        sql.rows_max = self.rows_max.unwrap_or(sql.rows_max);
        if let Some(history) = self.history {
            options.engine.history = seconds("history", history, Duration::ZERO)?;
        }
        options.sql = Some(sql);
        Ok(options)
    }
}

/// A reference to an open database, which closes with the last of them.
pub struct Lease {
    db: Database,
    path: PathBuf,
    process: u32,
}

impl Lease {
    /// Opens the database in a folder, or shares the one that this process has open. Creates the folder and the database if they
    /// are missing. Must be called detached.
    pub fn open(dir: &Path, settings: &Settings) -> PyResult<Lease> {
        let process = std::process::id();
        if ![0, process].contains(&PROCESS.load(Ordering::Acquire)) {
            return Err(forked());
        }
        let mut opened = wait::lock(&OPEN_DATABASES)?;
        let path = absolute(dir);
        let opened = opened.get_or_insert_default();
        if let Some(known) = opened.get_mut(&path) {
            if *settings != Settings::default() && known.settings != *settings {
                return Err(interface(
                    format!("{} is open in this process with other settings", dir.display()),
                    "close it before, or leave the settings out to join it",
                ));
            }
            known.leases += 1;
            return Ok(Lease { db: known.db.clone(), path, process });
        }
        let db = Database::open_with(dir, settings.options(dir)?).or_raise()?;
        PROCESS.store(process, Ordering::Release);
        // The folder exists now, so its symbolic links can be resolved.
        let path = absolute(dir);
        opened.insert(path.clone(), OpenDatabase { db: db.clone(), settings: settings.clone(), leases: 1 });
        Ok(Lease { db, path, process })
    }

    pub fn database(&self) -> &Database {
        &self.db
    }

    /// Fails in a forked process, which has the memory of an open database but none of its threads.
    pub fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(forked()) }
    }

    /// Releases the reference. The last one closes the database, and returns its error.
    pub fn release(mut self) -> PyResult<()> {
        self.release_reference()
    }

    fn release_reference(&mut self) -> PyResult<()> {
        if self.check_process().is_err() || self.path.as_os_str().is_empty() {
            return Ok(());
        }
        let path = std::mem::take(&mut self.path);
        let mut opened = OPEN_DATABASES.lock();
        let Some(known) = opened.as_mut().and_then(|opened| opened.get_mut(&path)) else { return Ok(()) };
        known.leases -= 1;
        if known.leases > 0 {
            return Ok(());
        }
        let closed = opened.as_mut().and_then(|opened| opened.remove(&path));
        // The lock is held, so no other thread can open the folder before it is closed.
        closed.map_or(Ok(()), |closed| closed.db.close().or_raise())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = wait::detached(|| self.release_reference());
    }
}

/// Closes all open databases before the process ends.
pub fn close_all() -> PyResult<()> {
    if PROCESS.load(Ordering::Acquire) != std::process::id() {
        return Ok(());
    }
    let opened = wait::lock(&OPEN_DATABASES)?.take();
    opened.into_iter().flatten().try_for_each(|(_, opened)| opened.db.close().or_raise())
}

fn absolute(dir: &Path) -> PathBuf {
    std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir)).unwrap_or_else(|_| dir.to_owned())
}

fn forked() -> PyErr {
    interface(
        "this process was forked from one that had a database open, and a fork has none of its threads",
        "start processes with multiprocessing's `spawn` or `forkserver`, and let one process open a folder",
    )
}
