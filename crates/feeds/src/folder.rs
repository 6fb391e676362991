//! Keeps a vault table equal to folders of notes on disk.
//!
//! One thread follows all folders. Where the kernel reports changes (inotify), it sleeps until something happens, and
//! scans everything once a minute. Elsewhere it scans everything every 300 ms, or less often if a scan takes longer
//! than a twentieth of that. `tree` finds the changes and `rows` writes them: first private notes, then published
//! ones, then removals, in commits of at most 2,000 rows and 16 MiB. Only the table keeps state: a start compares
//! files with rows by size, time and content.
//!
//! The table belongs to the feed: a row without a file is removed, unless its folder is unavailable. If the table is
//! dropped meanwhile, it is made again within a second with its full content, as after a start.

mod feed_thread;
mod rows;
mod scan_schedule;
#[cfg(test)]
mod tests;
mod tree;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Engine;
use engine::threads::Class;
use site::{ParsedNotes, PublishRule};
use types::{Error, Result};
use vfs::{Mutex, Rank};

pub use tree::{Limits, check_folder};

use feed_thread::FeedThread;
use watch::{FolderWatcher, Waker};

/// A folder or a single file, and its place in the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderRoot {
    pub path: PathBuf,
    /// The prefix of its paths in the vault, without slashes at its ends; empty for the vault's own top.
    pub prefix: String,
    /// True if only notes are taken in, no pictures or other files.
    pub notes_only: bool,
    /// True if the files never change: they are scanned only once.
    pub still: bool,
}

/// The settings of a feed.
pub struct Options {
    /// The full name of the vault's table.
    pub table: String,
    pub roots: Vec<FolderRoot>,
    /// The rule that decides which notes are published.
    pub rule: PublishRule,
    /// The cache in which the feed leaves parsed notes for the site.
    pub parsed: Arc<ParsedNotes>,
    pub limits: Limits,
    /// True if the kernel is asked to report changes. If false, the feed always polls.
    pub watch: bool,
}

/// Time between scans of a folder whose changes the kernel does not report.
const POLL_EVERY: Duration = Duration::from_millis(300);
/// The longest wait for the feed's thread when the feed is stopped: a folder's disk may hang.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// The progress of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// True once every folder was scanned and all changes found are written.
    pub settled: bool,
    pub files: u64,
    pub bytes: u64,
    pub roots: usize,
    /// Folders that cannot be scanned now or whose changes cannot be written, with the reason.
    pub failures: Vec<String>,
    /// The first hundred skipped files, as `path: reason`.
    pub skipped: Vec<String>,
    pub scans: u64,
    pub last_scan: Duration,
    pub files_read: u64,
    pub rows_written: u64,
    /// The number of folders whose changes the kernel reports.
    pub watched: u64,
    /// The number of roots that are polled.
    pub polled: u64,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    stopping: AtomicBool,
}

/// A running feed. It stops when it is dropped.
pub struct Feed {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<ThreadHandle>,
}

/// The feed's thread.
struct ThreadHandle {
    thread: JoinHandle<()>,
    /// A channel that closes when the thread ends, also by a panic. Nothing is sent through it.
    ended: mpsc::Receiver<()>,
}

impl Feed {
    /// Starts the feed, and makes the table if it is missing. If a change of the options means that fewer notes are
    /// published, those rows are corrected before this returns (A1). Files are scanned afterwards.
    pub fn start(engine: Engine, options: Options) -> Result<Feed> {
        let roots = checked_roots(&options.roots)?;
        rows::ensure(&engine, &options.table)?;
        let known = reconciled(&engine, &options.table, &options.rule, &options.parsed)?;
        let (watch, waker) =
            FolderWatcher::new().map_err(|error| Error::io("making a feed's waker", error))?;
        let state = State { roots: roots.len(), ..State::default() };
        let shared = Arc::new(Shared {
            state: Mutex::new(Rank::new(72, "folder feed"), state),
            stopping: AtomicBool::new(false),
        });
        let feed = FeedThread::new(engine, options, roots, known, watch, shared.clone());
        let (running, ended) = mpsc::channel();
        let thread = Class::Background.spawn("pn-folders", move || {
            let _running = running;
            feed.run();
        });
        let thread = thread.map_err(|error| Error::io("starting the feed's thread", error))?;
        Ok(Feed { shared, waker, thread: Some(ThreadHandle { thread, ended }) })
    }

    pub fn status(&self) -> Status {
        Status(self.shared.clone())
    }

    /// Ends the thread after the note that it is reading, or gives up waiting for it after `STOP_TIME_MAX`.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(ThreadHandle { thread, ended }) = self.thread.take() {
            if ended.recv_timeout(STOP_TIME_MAX) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("the folders' thread is still busy with one file; it is not waited for");
                return;
            }
            // If the thread panicked, there is nothing left to do.
            let _ = thread.join();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.end();
    }
}

/// A handle that reads the progress of a feed.
#[derive(Clone)]
pub struct Status(Arc<Shared>);

impl Status {
    pub fn get(&self) -> State {
        self.0.state.lock().clone()
    }
}

/// Corrects the column `published` of a vault according to `rule` (A1), for a start without a feed. Does nothing if
/// there is no such vault.
pub fn reconcile(engine: &Engine, table: &str, rule: &PublishRule) -> Result<()> {
    reconciled(engine, table, rule, &ParsedNotes::default()).map(drop)
}

fn reconciled(
    engine: &Engine,
    table: &str,
    rule: &PublishRule,
    parsed: &ParsedNotes,
) -> Result<Vec<rows::StoredRow>> {
    let Some(snapshot) = engine.root().table(table).cloned() else { return Ok(Vec::new()) };
    if !site::has_vault_columns(snapshot.def()) {
        return Ok(Vec::new());
    }
    let (known, mut differing) = rows::stored_rows(&snapshot, rule)?;
    rows::write(engine, table, rule, parsed, &mut differing, &AtomicBool::new(false))?;
    Ok(known)
}

/// Normalises the prefixes of the roots. Fails if two roots would hold the same paths.
fn checked_roots(roots: &[FolderRoot]) -> Result<Vec<FolderRoot>> {
    let mut checked: Vec<FolderRoot> = Vec::with_capacity(roots.len());
    for root in roots {
        let mut root = root.clone();
        root.prefix = root.prefix.trim_matches('/').to_owned();
        if !root.prefix.is_empty() && !site::is_valid(&root.prefix) {
            return Err(Error::invalid(format!(
                "`{}` is not a valid place in a vault",
                types::name::printable(&root.prefix)
            ))
            .hint("write names with `/` between them, none of which begins with a dot"));
        }
        let taken =
            |other: &FolderRoot| other.prefix == root.prefix && !other.path.is_file() && !root.path.is_file();
        if let Some(other) = checked.iter().find(|other| taken(other)) {
            return Err(Error::invalid(format!(
                "`{}` and `{}` would have the same place in the vault",
                other.path.display(),
                root.path.display()
            ))
            .hint("name another place for one of them: PLACE=FOLDER"));
        }
        checked.push(root);
    }
    // A path belongs to the root with the longest matching prefix, so those come first.
    checked.sort_by(|a, b| b.prefix.len().cmp(&a.prefix.len()).then_with(|| a.prefix.cmp(&b.prefix)));
    Ok(checked)
}
