//! The complete state of one simulated disk, behind its lock: files, names, planned faults, and the trace of calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use testkit::Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::content::{BLOCK_BYTES, FileContent, draw_survival};
use super::names::{Id, NameTree};

/// The number of recent calls kept for the message of a failing test.
const LAST_CALLS: usize = 200;

/// The free space in bytes if no limit is set.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// The error that every call returns once the simulated process is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crashed;

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated process is dead")
    }
}

impl std::error::Error for Crashed {}

/// Returns true if an error comes from [`super::SimDisk::crash_at`], not from a fault that the code under test must
/// handle.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Crashed>())
}

/// The kinds of call by which faults are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read,
    Write,
    Sync,
    Name,
    Look,
}

/// The outcome that the simulation has chosen for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// The call returns an I/O error.
    Failed,
    /// The process dies in the middle of the call. The call's changes in memory are made, but none of them is durable.
    Crashed,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileNode {
    pub(super) content: FileContent,
    /// The number of open handles.
    pub(super) open: u32,
    /// A reference that every living mapping holds.
    pub(super) mappings: Arc<()>,
}

type PickPath = Box<dyn Fn(&Path) -> bool + Send + Sync>;

/// Selects the paths whose syncs do nothing and report success.
#[derive(Default)]
pub(super) struct LostSyncs(pub(super) Vec<PickPath>);

impl fmt::Debug for LostSyncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LostSyncs({})", self.0.len())
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) names: NameTree,
    pub(super) files: BTreeMap<Id, FileNode>,
    pub(super) locked: BTreeSet<Id>,
    /// The greatest number of blocks for all files together.
    pub(super) blocks_max: Option<u64>,
    /// The generator for the random choices that faults make.
    pub(super) rng: Rng,
    pub(super) crash_at: Option<u64>,
    pub(super) dead: bool,
    /// For each kind, the number of calls until one fails.
    pub(super) failures: BTreeMap<Kind, u64>,
    pub(super) lost_syncs: LostSyncs,
    calls: u64,
    syncs: u64,
    hash: u64,
    last_calls: VecDeque<String>,
}

impl State {
    pub(super) fn new(names: NameTree, files: BTreeMap<Id, FileNode>, seed: u64, hash: u64) -> Self {
        State {
            names,
            files,
            locked: BTreeSet::new(),
            blocks_max: None,
            rng: Rng::new(seed),
            crash_at: None,
            dead: false,
            failures: BTreeMap::new(),
            lost_syncs: LostSyncs::default(),
            calls: 0,
            syncs: 0,
            hash,
            last_calls: VecDeque::new(),
        }
    }

    /// Runs one call: numbers it, chooses its fate, records it.
    pub(super) fn call<T>(
        &mut self,
        kind: Kind,
        what: String,
        run: impl FnOnce(&mut State, Fate) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.dead {
            return Err(io::Error::other(Crashed));
        }
        self.calls += 1;
        self.syncs += u64::from(kind == Kind::Sync);
        let fate = self.draw_fate(kind);
        let result = match (fate, run(self, fate)) {
            (Fate::Done, result) => result,
            (Fate::Failed, Err(error)) => Err(error),
            (Fate::Failed, Ok(_)) => Err(io::Error::from_raw_os_error(EIO)),
            (Fate::Crashed, _) => {
                self.dead = true;
                Err(io::Error::other(Crashed))
            }
        };
        let outcome = match &result {
            Ok(_) => "ok".to_owned(),
            Err(error) if is_crash(error) => "crash".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        self.record(format!("{} {what}: {outcome}", self.calls));
        result
    }

    fn draw_fate(&mut self, kind: Kind) -> Fate {
        if self.crash_at == Some(self.calls) {
            return Fate::Crashed;
        }
        match self.failures.get_mut(&kind) {
            Some(1) => {
                self.failures.remove(&kind);
                Fate::Failed
            }
            Some(left) => {
                *left -= 1;
                Fate::Done
            }
            None => Fate::Done,
        }
    }

    fn record(&mut self, line: String) {
        self.note(line.as_bytes());
        if self.last_calls.len() == LAST_CALLS {
            self.last_calls.pop_front();
        }
        self.last_calls.push_back(line);
    }

    /// Adds bytes to the hash of the trace.
    pub(super) fn note(&mut self, bytes: &[u8]) {
        self.hash = xxh3_64_with_seed(bytes, self.hash);
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn syncs(&self) -> u64 {
        self.syncs
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn last_calls(&self) -> Vec<String> {
        self.last_calls.iter().cloned().collect()
    }

    /// Counts a new handle of a file.
    pub(super) fn open(&mut self, id: Id) -> Id {
        self.files.entry(id).or_default().open += 1;
        id
    }

    pub(super) fn file(&mut self, id: Id) -> &mut FileNode {
        self.files.get_mut(&id).expect("a file with a handle exists")
    }

    pub(super) fn loses_syncs_of(&self, path: &Path) -> bool {
        self.lost_syncs.0.iter().any(|lost| lost(path))
    }

    /// The number of allocated blocks of all files that have a name or a handle, as a real file system counts them.
    pub(super) fn used_blocks(&self) -> u64 {
        let linked = self.names.linked();
        let counts = |(id, file): &(&Id, &FileNode)| file.open > 0 || linked.contains(id);
        self.files.iter().filter(counts).map(|(_, file)| file.content.blocks()).sum()
    }

    pub(super) fn free_blocks(&self) -> u64 {
        match self.blocks_max {
            Some(max) => max.saturating_sub(self.used_blocks()),
            None => UNLIMITED_BYTES / BLOCK_BYTES,
        }
    }

    /// Removes files that no handle, name or crash can reach.
    pub(super) fn collect(&mut self) {
        let referenced = self.names.referenced();
        self.files.retain(|id, file| file.open > 0 || referenced.contains(id));
    }

    pub(super) fn after_crash(&mut self, rng: &mut Rng) -> State {
        self.dead = true;
        let survival = draw_survival(rng);
        let names = self.names.after_crash(survival, rng);
        let linked = names.linked();
        let alike = rng.one_in(2);
        let files = self.files.iter().filter(|(id, _)| linked.contains(id)).map(|(id, file)| {
            let survival = if alike { survival } else { draw_survival(rng) };
            let content = FileContent::durable(file.content.after_crash(survival, rng));
            (*id, FileNode { content, ..FileNode::default() })
        });
        let files = files.collect();
        let mut state = State::new(names, files, rng.next_u64(), self.hash);
        state.blocks_max = self.blocks_max;
        state
    }

    pub(super) fn after_kill(&mut self) -> State {
        self.dead = true;
        let files = self.files.iter().map(|(id, file)| {
            (*id, FileNode { content: file.content.clone(), open: 0, mappings: Arc::default() })
        });
        let mut state = State::new(self.names.clone(), files.collect(), self.rng.next_u64(), self.hash);
        state.blocks_max = self.blocks_max;
        state.collect();
        state
    }
}

/// The Linux error number; simulated errors need only look real.
const EIO: i32 = 5;
