//! The delete history: which commit ended which row, for followers of the change feed and readers of the past.

use imbl::Vector;
use roaring::RoaringTreemap;
use types::{Lsn, RowId};

/// Number of deleted rows that the change feed remembers: a follower that is further behind has to start over.
pub(crate) const HISTORY_MAX: usize = 1 << 18;
/// Number of runs of deletes that are remembered while readers of the past may need them.
const PAST_MAX: usize = 1 << 20;

/// Neighbouring row ids that one commit deleted or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedRows {
    pub lsn: Lsn,
    pub first: RowId,
    /// Number of rows; at least 1.
    pub rows: u64,
}

/// The newest deletes in lsn order, as runs of neighbouring rows. Snapshots share it; a change copies O(log n).
#[derive(Clone, Debug)]
pub(crate) struct DeleteHistory {
    runs: Vector<EndedRows>,
    /// The lsn after which every delete is in `runs`.
    floor: u64,
    /// Number of runs at the end that the change feed serves: all after `feed_floor`.
    feed_runs: usize,
    /// Number of rows in these runs.
    feed_rows: u64,
    /// The lsn after which the change feed has every delete.
    feed_floor: u64,
    /// The lsn of the restored state: a replayed delete up to here is in `runs` already, or below the floor.
    restored: u64,
    /// The lsn after which readers of the past may need the deletes.
    wanted_after: u64,
    max: usize,
    past_max: usize,
}

impl Default for DeleteHistory {
    fn default() -> Self {
        DeleteHistory {
            runs: Vector::new(),
            floor: 0,
            feed_runs: 0,
            feed_rows: 0,
            feed_floor: 0,
            restored: 0,
            wanted_after: 0,
            max: HISTORY_MAX,
            past_max: PAST_MAX,
        }
    }
}

impl DeleteHistory {
    pub fn restore(runs: &[EndedRows], floor: Lsn, lsn: Lsn) -> Self {
        let mut history = DeleteHistory { floor: floor.0, feed_floor: floor.0, ..Self::default() };
        runs.iter().for_each(|run| history.push_run(*run));
        history.restored = lsn.0;
        history
    }

    #[cfg(test)]
    pub fn set_max(&mut self, max: usize) {
        (self.max, self.past_max) = (max, max);
    }

    /// The lsn after which every delete is known.
    pub fn floor(&self) -> Lsn {
        Lsn(self.floor)
    }

    /// The smallest lsn that [`DeleteHistory::after`] accepts.
    pub fn feed_floor(&self) -> Lsn {
        Lsn(self.feed_floor)
    }

    /// The lsn of the last commit that ended a row.
    pub fn newest(&self) -> Lsn {
        self.runs.last().map_or(Lsn(self.floor), |run| run.lsn)
    }

    /// Releases the deletes up to `lsn` for readers of the past: from now on only the change feed keeps them.
    pub fn keep_deletes_after(&mut self, lsn: Lsn) {
        self.wanted_after = self.wanted_after.max(lsn.0);
    }

    pub fn push(&mut self, lsn: Lsn, row: RowId) {
        if lsn.0 > self.restored {
            self.push_run(EndedRows { lsn, first: row, rows: 1 });
        }
    }

    fn push_run(&mut self, run: EndedRows) {
        match self.runs.back_mut() {
            Some(last) if last.lsn == run.lsn && last.first.0 + last.rows == run.first.0 => {
                last.rows += run.rows;
                // A run that alone exceeds the feed's limit was already dropped from the feed, and so are the rows added to it.
                self.feed_rows += if self.feed_runs > 0 { run.rows } else { 0 };
            }
            last => {
                debug_assert!(last.is_none_or(|last| last.lsn <= run.lsn), "deletes come in lsn order");
                self.runs.push_back(run);
                self.feed_runs += 1;
                self.feed_rows += run.rows;
            }
        }
        while self.feed_rows > self.max as u64 && self.feed_runs > 0 {
            let oldest = self.runs[self.runs.len() - self.feed_runs];
            self.feed_floor = self.feed_floor.max(oldest.lsn.0);
            self.feed_rows -= oldest.rows;
            self.feed_runs -= 1;
        }
        while self.runs.len() > self.max
            && let Some(oldest) = self.runs.front()
            && (oldest.lsn.0 <= self.wanted_after || self.runs.len() > self.past_max)
        {
            self.floor = self.floor.max(oldest.lsn.0);
            self.runs.pop_front();
        }
    }

    /// Index of the first run of a commit after `after`.
    fn position(&self, after: Lsn) -> usize {
        let (mut low, mut high) = (0, self.runs.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.runs[middle].lsn <= after { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the deletes after `after` as `(lsn, row)`, in lsn order: whole commits, ending with the one that reaches `limit`.
    /// The flag is true if there may be more.
    pub fn after(&self, after: Lsn, limit: usize) -> (Vec<(u64, u64)>, bool) {
        let mut found: Vec<(u64, u64)> = Vec::new();
        for run in self.runs.skip(self.position(after)).iter() {
            if found.len() >= limit && found.last().is_some_and(|last| last.0 != run.lsn.0) {
                return (found, true);
            }
            found.extend((run.first.0..run.first.0 + run.rows).map(|row| (run.lsn.0, row)));
        }
        (found, false)
    }

    /// Returns the rows that ended after `after`, which must not be below the floor.
    pub fn ended_after(&self, after: Lsn) -> RoaringTreemap {
        let mut rows = RoaringTreemap::new();
        for run in self.runs.skip(self.position(after)).iter() {
            rows.insert_range(run.first.0..run.first.0 + run.rows);
        }
        rows
    }

    pub fn to_vec(&self) -> Vec<EndedRows> {
        // A commit at or below the floor may have lost some of its runs already, and no reader uses the others.
        let mut all: Vec<_> = self.runs.iter().filter(|run| run.lsn.0 > self.floor).copied().collect();
        all.sort_unstable();
        all
    }
}
