//! The schedule of a tree's scans: the time and the extent of the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::FolderRoot;
use super::tree::{Limits, Tree};

/// Time from the first report of a change to the scan, because an editor saves in several steps.
const GATHER: Duration = Duration::from_millis(50);
/// The shortest pause between scans of a folder that changes all the time.
const SCAN_PAUSE_MIN: Duration = Duration::from_millis(150);

/// A tree and its scan schedule.
pub struct ScheduledTree {
    pub tree: Tree,
    /// The time of the next full scan. `None`: the tree is scanned again only if a change is reported.
    pub full_scan_at: Option<Instant>,
    /// The time and extent of the next scan for reported changes.
    pub requested: Option<(Instant, ScanExtent)>,
    /// The time at which the last scan ended.
    pub last_scan_ended: Option<Instant>,
    pub watches: BTreeMap<String, i32>,
    /// True if the kernel watches every folder of the tree.
    pub is_watched: bool,
    /// True once a scan found no file that was still being written.
    pub settled: bool,
    /// The number of scans so far, up to 255. Writing waits for the first few of a tree that does not settle.
    pub scans: u8,
    pub failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanExtent {
    Everything,
    Folders(BTreeSet<String>),
}

impl ScheduledTree {
    /// Makes a schedule whose first full scan is due at once.
    pub fn new(root: FolderRoot, limits: Limits) -> ScheduledTree {
        ScheduledTree {
            tree: Tree::new(root, limits),
            full_scan_at: Some(Instant::now()),
            requested: None,
            last_scan_ended: None,
            watches: BTreeMap::new(),
            is_watched: false,
            settled: false,
            scans: 0,
            failure: None,
        }
    }

    pub fn due(&self) -> Option<Instant> {
        self.full_scan_at.into_iter().chain(self.requested.as_ref().map(|(when, _)| *when)).min()
    }

    /// Schedules a scan for a reported change. It waits a moment for further changes, and at least `SCAN_PAUSE_MIN`
    /// after the last scan.
    pub fn request_scan(&mut self, extent: ScanExtent, now: Instant) {
        let earliest = self.last_scan_ended.map_or(now, |ended| ended + SCAN_PAUSE_MIN);
        self.schedule(extent, earliest.max(now + GATHER));
    }

    pub fn schedule(&mut self, extent: ScanExtent, when: Instant) {
        self.requested = Some(match (self.requested.take(), extent) {
            (None, extent) => (when, extent),
            (Some((earlier, ScanExtent::Folders(mut all))), ScanExtent::Folders(more)) => {
                all.extend(more);
                (earlier.min(when), ScanExtent::Folders(all))
            }
            (Some((earlier, _)), _) => (earlier.min(when), ScanExtent::Everything),
        });
    }
}
