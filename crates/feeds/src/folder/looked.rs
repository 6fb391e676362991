//! When a tree is looked at, and at how much of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Root;
use super::tree::{Limits, Tree};

/// After the first word of a change: an editor saves in several steps.
const GATHER: Duration = Duration::from_millis(50);
/// Between looks at a folder in which something changes all the time.
const BREATH: Duration = Duration::from_millis(150);

/// A tree, and when to look at it.
pub struct Looked {
    pub tree: Tree,
    /// When everything is looked at; `None`: never again unless something is told of.
    pub sure: Option<Instant>,
    /// When something that was told of is looked at.
    pub soon: Option<(Instant, What)>,
    /// When the last look ended.
    pub ended: Option<Instant>,
    pub watches: BTreeMap<String, i32>,
    /// Every folder has a watch.
    pub told: bool,
    /// The first look is over, and nothing was left for a moment.
    pub settled: bool,
    /// Looks that were not the last of the first.
    pub first_looks: u8,
    pub failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Everything,
    Folders(BTreeSet<String>),
}

impl Looked {
    /// Due at once.
    pub fn new(root: Root, limits: Limits) -> Looked {
        Looked {
            tree: Tree::new(root, limits),
            sure: Some(Instant::now()),
            soon: None,
            ended: None,
            watches: BTreeMap::new(),
            told: false,
            settled: false,
            first_looks: 0,
            failure: None,
        }
    }

    pub fn due(&self) -> Option<Instant> {
        self.sure.into_iter().chain(self.soon.as_ref().map(|(when, _)| *when)).min()
    }

    /// Something was told of: gathered for a moment, and no sooner than a breath after the last look.
    pub fn wants(&mut self, what: What, now: Instant) {
        let breath = self.ended.map_or(now, |ended| ended + BREATH);
        self.merge(what, breath.max(now + GATHER));
    }

    pub fn merge(&mut self, what: What, when: Instant) {
        self.soon = Some(match (self.soon.take(), what) {
            (None, what) => (when, what),
            (Some((earlier, What::Folders(mut all))), What::Folders(more)) => {
                all.extend(more);
                (earlier.min(when), What::Folders(all))
            }
            (Some((earlier, _)), _) => (earlier.min(when), What::Everything),
        });
    }
}
