//! Directories: the names as the process sees them, the names on the medium, and the pending changes in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use testkit::Rng;

pub(super) type Id = u64;

const ROOT: Id = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir(Id),
    File(Id),
}

/// A position in the tree: a directory and a name in it.
type DirEntry = (Id, String);

/// A change of one name: it points to another node or is removed.
#[derive(Clone, Debug)]
struct NameChange {
    entry: DirEntry,
    to: Option<Node>,
}

/// The changes of one call: one name, or for a rename the new name and then the old one.
#[derive(Clone, Debug)]
struct NameOp(Vec<NameChange>);

#[derive(Clone, Debug, Default)]
struct Dir {
    now: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
}

#[derive(Clone, Debug)]
pub(super) struct NameTree {
    dirs: BTreeMap<Id, Dir>,
    /// Changes that no `sync_dir` has made durable, oldest first.
    pending: Vec<NameOp>,
    next_id: Id,
}

impl NameTree {
    pub(super) fn new() -> Self {
        NameTree { dirs: BTreeMap::from([(ROOT, Dir::default())]), pending: Vec::new(), next_id: ROOT + 1 }
    }

    pub(super) fn node(&self, path: &Path) -> io::Result<Node> {
        let mut node = Node::Dir(ROOT);
        for name in parts(path)? {
            let Node::Dir(dir) = node else { return Err(fail(ErrorKind::NotADirectory, path)) };
            node = *self.dirs[&dir].now.get(&name).ok_or_else(|| fail(ErrorKind::NotFound, path))?;
        }
        Ok(node)
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Id> {
        match self.node(path)? {
            Node::File(id) => Ok(id),
            Node::Dir(_) => Err(fail(ErrorKind::IsADirectory, path)),
        }
    }

    /// Creates a new file under the path.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<Id> {
        let entry = self.entry(path)?;
        if self.node_at(&entry).is_some() {
            return Err(fail(ErrorKind::AlreadyExists, path));
        }
        let id = self.new_id();
        self.apply(NameOp(vec![NameChange { entry, to: Some(Node::File(id)) }]));
        Ok(id)
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut dir = ROOT;
        let parts = parts(path)?;
        for (i, name) in parts.iter().enumerate() {
            dir = match self.dirs[&dir].now.get(name) {
                Some(Node::Dir(id)) => *id,
                Some(Node::File(_)) if i + 1 == parts.len() => {
                    return Err(fail(ErrorKind::AlreadyExists, path));
                }
                Some(Node::File(_)) => return Err(fail(ErrorKind::NotADirectory, path)),
                None => {
                    let id = self.new_id();
                    self.dirs.insert(id, Dir::default());
                    self.apply(NameOp(vec![NameChange {
                        entry: (dir, name.clone()),
                        to: Some(Node::Dir(id)),
                    }]));
                    id
                }
            };
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        // The checks are in the order in which Linux makes them.
        let (source, target) = (self.entry(from)?, self.entry(to)?);
        let node = self.node(from)?;
        match (node, self.node_at(&target)) {
            _ if source == target => return Ok(()),
            (_, Some(Node::Dir(_))) if from.starts_with(to) => {
                return Err(fail(ErrorKind::DirectoryNotEmpty, to));
            }
            (Node::Dir(_), _) if to.starts_with(from) => return Err(fail(ErrorKind::InvalidInput, to)),
            (Node::File(_), Some(Node::Dir(_))) => return Err(fail(ErrorKind::IsADirectory, to)),
            (Node::Dir(_), Some(Node::File(_))) => return Err(fail(ErrorKind::NotADirectory, to)),
            (Node::Dir(_), Some(Node::Dir(id))) if !self.dirs[&id].now.is_empty() => {
                return Err(fail(ErrorKind::DirectoryNotEmpty, to));
            }
            _ => {}
        }
        self.apply(NameOp(vec![
            NameChange { entry: target, to: Some(node) },
            NameChange { entry: source, to: None },
        ]));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let entry = self.entry(path)?;
        self.apply(NameOp(vec![NameChange { entry, to: None }]));
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        match self.node(path)? {
            Node::File(_) => return Err(fail(ErrorKind::NotADirectory, path)),
            Node::Dir(id) if !self.dirs[&id].now.is_empty() => {
                return Err(fail(ErrorKind::DirectoryNotEmpty, path));
            }
            Node::Dir(_) => {}
        }
        let entry = self.entry(path)?;
        self.apply(NameOp(vec![NameChange { entry, to: None }]));
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, Node)>> {
        let dir = self.dir(path)?;
        Ok(self.dirs[&dir].now.iter().map(|(name, node)| (name.clone(), *node)).collect())
    }

    /// Makes the changes in one directory durable, and all changes that cannot be later than they are: earlier changes
    /// of the same names, and the removal of the old name of a file that was moved out of it. The old name of a file
    /// that was moved *in* may stay.
    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        let mut due: BTreeSet<DirEntry> = BTreeSet::new();
        let mut later = Vec::new();
        let mut now = Vec::new();
        for op in std::mem::take(&mut self.pending).into_iter().rev() {
            let is_due = |change: &NameChange| change.entry.0 == dir || due.contains(&change.entry);
            if !op.0.iter().any(is_due) {
                later.push(op);
                continue;
            }
            let (op, rest) = match op.halves() {
                Some((target, source)) if !source.0.iter().any(is_due) => (target, Some(source)),
                _ => (op, None),
            };
            due.extend(op.entries());
            now.push(op);
            later.extend(rest);
        }
        for op in now.into_iter().rev() {
            self.make_durable(op);
        }
        later.reverse();
        self.pending = later;
        Ok(())
    }

    /// Simulates a failed directory sync: each change reached the medium or not, and will not be tried again.
    pub(super) fn fail_sync_dir(&mut self, path: &Path, survival: f64, rng: &mut Rng) -> io::Result<()> {
        let dir = self.dir(path)?;
        let (tried, rest) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|op: &NameOp| op.entries().any(|(at, _)| at == dir));
        self.pending = rest;
        for op in surviving(tried, survival, rng) {
            self.make_durable(op);
        }
        Ok(())
    }

    /// Returns the names that the medium holds if the power fails now.
    pub(super) fn after_crash(&self, survival: f64, rng: &mut Rng) -> NameTree {
        let mut after = self.clone();
        let pending = std::mem::take(&mut after.pending);
        if rng.one_in(3) {
            // This simulates a journal that keeps all changes in order, as ext4's: the names are those of some past
            // moment.
            let kept = rng.index(pending.len() + 1);
            pending.into_iter().take(kept).for_each(|op| after.make_durable(op));
        } else {
            surviving(pending, survival, rng).into_iter().for_each(|op| after.make_durable(op));
        }
        let mut reachable = BTreeSet::from([ROOT]);
        let mut unvisited = vec![ROOT];
        while let Some(dir) = unvisited.pop() {
            let dir = after.dirs.get_mut(&dir).expect("a directory with a name exists");
            dir.now = dir.durable.clone();
            for node in dir.now.values() {
                if let Node::Dir(id) = node
                    && reachable.insert(*id)
                {
                    unvisited.push(*id);
                }
            }
        }
        after.dirs.retain(|id, _| reachable.contains(id));
        after
    }

    /// Returns the files that have a name as seen by the process.
    pub(super) fn linked(&self) -> BTreeSet<Id> {
        self.dirs.values().flat_map(|dir| dir.now.values()).filter_map(file_id).collect()
    }

    /// Returns the files that have a name, have one on the medium, or may get one back by a crash.
    pub(super) fn referenced(&self) -> BTreeSet<Id> {
        let maps = self.dirs.values().flat_map(|dir| dir.now.values().chain(dir.durable.values()));
        let pending = self.pending.iter().flat_map(|op| op.0.iter()).filter_map(|change| change.to.as_ref());
        maps.chain(pending).filter_map(file_id).collect()
    }

    /// Returns the paths of all files, sorted.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let mut unvisited = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, dir)) = unvisited.pop() {
            for (name, node) in &self.dirs[&dir].now {
                match node {
                    Node::Dir(id) => unvisited.push((path.join(name), *id)),
                    Node::File(_) => paths.push(path.join(name)),
                }
            }
        }
        paths.sort();
        paths
    }

    fn dir(&self, path: &Path) -> io::Result<Id> {
        match self.node(path)? {
            Node::Dir(id) => Ok(id),
            Node::File(_) => Err(fail(ErrorKind::NotADirectory, path)),
        }
    }

    fn entry(&self, path: &Path) -> io::Result<DirEntry> {
        let name = parts(path)?.pop().ok_or_else(|| fail(ErrorKind::InvalidInput, path))?;
        Ok((self.dir(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn node_at(&self, entry: &DirEntry) -> Option<Node> {
        self.dirs[&entry.0].now.get(&entry.1).copied()
    }

    fn apply(&mut self, op: NameOp) {
        for change in &op.0 {
            let dir = self.dirs.get_mut(&change.entry.0).expect("its path was resolved");
            set(&mut dir.now, change);
        }
        self.pending.push(op);
    }

    fn make_durable(&mut self, op: NameOp) {
        for change in &op.0 {
            if let Some(dir) = self.dirs.get_mut(&change.entry.0) {
                set(&mut dir.durable, change);
            }
        }
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl NameOp {
    fn entries(&self) -> impl Iterator<Item = DirEntry> {
        self.0.iter().map(|change| change.entry.clone())
    }

    /// Splits a file's rename from one directory to another, which can reach the medium in two steps: first both
    /// names, then only the new one. The opposite order would lose the file and never happens. Within a directory a
    /// rename is one step.
    fn halves(&self) -> Option<(NameOp, NameOp)> {
        match &self.0[..] {
            [target, source]
                if target.entry.0 != source.entry.0 && matches!(target.to, Some(Node::File(_))) =>
            {
                Some((NameOp(vec![target.clone()]), NameOp(vec![source.clone()])))
            }
            _ => None,
        }
    }
}

/// Keeps or loses each change independently, except that no change survives if an earlier change of the same name is
/// lost: no file system writes an entry's later state and afterwards its earlier one.
fn surviving(ops: Vec<NameOp>, survival: f64, rng: &mut Rng) -> Vec<NameOp> {
    let mut lost: BTreeSet<DirEntry> = BTreeSet::new();
    let mut kept = Vec::new();
    for op in ops {
        if op.entries().any(|entry| lost.contains(&entry)) || !rng.chance(survival) {
            lost.extend(op.entries());
            continue;
        }
        match op.halves() {
            Some((target, source)) if rng.one_in(4) => {
                lost.extend(source.entries());
                kept.push(target);
            }
            _ => kept.push(op),
        }
    }
    kept
}

fn set(names: &mut BTreeMap<String, Node>, change: &NameChange) {
    match change.to {
        Some(node) => names.insert(change.entry.1.clone(), node),
        None => names.remove(&change.entry.1),
    };
}

fn file_id(node: &Node) -> Option<Id> {
    match node {
        Node::File(id) => Some(*id),
        Node::Dir(_) => None,
    }
}

/// Splits a path into its names. Relative paths start at the root: a simulation has no working directory.
fn parts(path: &Path) -> io::Result<Vec<String>> {
    path.components()
        .filter_map(|component| match component {
            Component::RootDir | Component::CurDir => None,
            Component::Normal(name) => Some(match name.to_str() {
                Some(name) => Ok(name.to_owned()),
                None => Err(fail(ErrorKind::InvalidInput, path)),
            }),
            Component::ParentDir | Component::Prefix(_) => Some(Err(fail(ErrorKind::InvalidInput, path))),
        })
        .collect()
}

fn fail(kind: ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{}: {kind}", path.display()))
}
