//! The schedule of a tree's scans: the time and the extent of the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Root;
use super::tree::{Limits, Tree};

/// Time from the first report of a change to the scan, because an editor saves in several steps.
const GATHER: Duration = Duration::from_millis(50);
/// The shortest pause between scans of a folder that changes all the time.
const BREATH: Duration = Duration::from_millis(150);

/// A tree and its scan schedule.
pub struct Looked {
    pub tree: Tree,
    /// The time of the next full scan. `None`: the tree is scanned again only if a change is reported.
    pub sure: Option<Instant>,
    /// The time and extent of the next scan for reported changes.
    pub soon: Option<(Instant, What)>,
    /// The time at which the last scan ended.
    pub ended: Option<Instant>,
    pub watches: BTreeMap<String, i32>,
    /// True if the kernel watches every folder of the tree.
    pub told: bool,
    /// True once a scan found no file that was still being written.
    pub settled: bool,
    /// The number of scans so far, up to 255. Writing waits for the first few of a tree that does not settle.
    pub first_looks: u8,
    pub failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Everything,
    Folders(BTreeSet<String>),
}

impl Looked {
    /// Makes a schedule whose first full scan is due at once.
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

    /// Schedules a scan for a reported change. It waits a moment for further changes, and at least `BREATH` after the
    /// last scan.
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
