//! Keeps a vault table equal to folders of notes on disk.
//!
//! One thread for all folders. Where the kernel tells of changes (inotify) it sleeps until something happens, and looks
//! at everything once a minute; elsewhere it looks at everything every 300 ms, less often where a look takes longer
//! than a twentieth of that. `tree` says what changed, `rows` writes it: first what is private, then what is
//! published, then removals, in commits of at most 2,000 rows and 16 MiB. Nothing but the table remembers anything: a
//! start compares files with rows by size, time and content.
//!
//! The table belongs to the feed: a row that no file stands for is removed, except where its folder is away. A table that
//! is dropped meanwhile is made again within a second, with everything in it, as after a start.

mod looked;
mod rows;
mod run;
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
use site::{Parsed, Rule};
use types::{Error, Result};
use vfs::{Mutex, Rank};

pub use tree::{Limits, check as check_folder};

use watch::{Waker, Watch};

/// A folder, or a single file, and where it goes in the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub path: PathBuf,
    /// In front of its paths, without slashes at its ends; empty for the vault's own top.
    pub prefix: String,
    /// Notes alone, no pictures or other files.
    pub notes_only: bool,
    /// It never changes, so it is looked at once.
    pub still: bool,
}

/// How a feed is set up.
pub struct Options {
    /// Full name of the vault's table.
    pub table: String,
    pub roots: Vec<Root>,
    /// Which notes are published.
    pub rule: Rule,
    /// Where parsed notes are left for the site.
    pub parsed: Arc<Parsed>,
    pub limits: Limits,
    /// False: never ask the kernel, always look.
    pub watch: bool,
}

/// How often a folder is looked at of whose changes nobody tells.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long whoever stops a feed waits for its thread: a folder's disk may hang.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What a feed is at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Every folder was looked at once, and what was found is written.
    pub settled: bool,
    pub files: u64,
    pub bytes: u64,
    pub roots: usize,
    /// Folders that cannot be looked at now, or whose changes cannot be written, and why.
    pub failures: Vec<String>,
    /// Files that were passed over, and why, as `path: reason`; the first hundred.
    pub passed_over: Vec<String>,
    pub looks: u64,
    pub last_look: Duration,
    pub files_read: u64,
    pub rows_written: u64,
    /// Folders of whose changes the kernel tells.
    pub watched: u64,
    /// Roots that are looked at again and again.
    pub polled: u64,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    stopping: AtomicBool,
}

/// A running feed; stops when it is dropped.
pub struct Feed {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<Running>,
}

/// The feed's thread.
struct Running {
    thread: JoinHandle<()>,
    /// Closed when the thread ends, by a panic too. Nothing is sent.
    ended: mpsc::Receiver<()>,
}

impl Feed {
    /// Makes the table if it is missing. Rows that are published and should not be, after a change of the options, are
    /// taken back before this returns (A1); files are looked at afterwards.
    pub fn start(engine: Engine, options: Options) -> Result<Feed> {
        let roots = check(&options.roots)?;
        rows::ensure(&engine, &options.table)?;
        let known = reconciled(&engine, &options.table, &options.rule, &options.parsed)?;
        let (watch, waker) = Watch::new().map_err(|error| Error::io("making a feed's waker", error))?;
        let state = State { roots: roots.len(), ..State::default() };
        let shared = Arc::new(Shared {
            state: Mutex::new(Rank::new(72, "folder feed"), state),
            stopping: AtomicBool::new(false),
        });
        let run = run::Run::new(engine, options, roots, known, watch, shared.clone());
        let (running, ended) = mpsc::channel();
        let thread = Class::Background.spawn("pn-folders", move || {
            let _running = running;
            run.run();
        });
        let thread = thread.map_err(|error| Error::io("starting the feed's thread", error))?;
        Ok(Feed { shared, waker, thread: Some(Running { thread, ended }) })
    }

    pub fn status(&self) -> Status {
        Status(self.shared.clone())
    }

    /// Ends the thread after the note that it is reading, or without waiting for it any longer.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(Running { thread, ended }) = self.thread.take() {
            if ended.recv_timeout(STOP_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("the folders' thread is still busy with one file; it is left behind");
                return;
            }
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.end();
    }
}

/// For whoever shows what a feed is at.
#[derive(Clone)]
pub struct Status(Arc<Shared>);

impl Status {
    pub fn get(&self) -> State {
        self.0.state.lock().clone()
    }
}

/// Brings the column `published` of a vault to what `rule` says (A1): for a start without a feed. Nothing happens if there
/// is no such vault.
pub fn reconcile(engine: &Engine, table: &str, rule: &Rule) -> Result<()> {
    reconciled(engine, table, rule, &Parsed::default()).map(drop)
}

fn reconciled(engine: &Engine, table: &str, rule: &Rule, parsed: &Parsed) -> Result<Vec<rows::Known>> {
    let Some(snapshot) = engine.root().table(table).cloned() else { return Ok(Vec::new()) };
    if !site::is_as_defined(snapshot.def()) {
        return Ok(Vec::new());
    }
    let (known, mut differing) = rows::known(&snapshot, rule)?;
    rows::write(engine, table, rule, parsed, &mut differing, &AtomicBool::new(false))?;
    Ok(known)
}

/// Roots with their prefixes as they count. No two may hold the same paths.
fn check(roots: &[Root]) -> Result<Vec<Root>> {
    let mut checked: Vec<Root> = Vec::with_capacity(roots.len());
    for root in roots {
        let mut root = root.clone();
        root.prefix = root.prefix.trim_matches('/').to_owned();
        if !root.prefix.is_empty() && !site::is_valid(&root.prefix) {
            return Err(Error::invalid(format!(
                "`{}` is no place in a vault",
                types::name::printable(&root.prefix)
            ))
            .hint("write names with `/` between them, none of which begins with a dot"));
        }
        let taken =
            |other: &Root| other.prefix == root.prefix && !other.path.is_file() && !root.path.is_file();
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
    // The longest prefix of a path says whose it is.
    checked.sort_by(|a, b| b.prefix.len().cmp(&a.prefix.len()).then_with(|| a.prefix.cmp(&b.prefix)));
    Ok(checked)
}
