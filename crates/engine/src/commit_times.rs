//! The times of commits, by which readers of the past find an lsn.
//!
//! The resolution is a millisecond: a time means the last commit of its millisecond, or of the last millisecond before it
//! that has one. The times reach back as far as [`Options::history`](crate::Options::history), or 1,048,576 milliseconds
//! with a commit in them.

use imbl::Vector;
use types::codec::{Decoder, Encoder};
use types::{Lsn, Micros, Result};

/// Number of entries at most, of 16 bytes each.
const ENTRIES_MAX: usize = 1 << 20;

/// A map between times and lsns. Roots share it; a change copies O(log n).
#[derive(Clone, Debug)]
pub(crate) struct CommitTimes {
    /// Pairs of a millisecond and the last commit in it. Ascending in both. Never empty.
    entries: Vector<(i64, u64)>,
}

fn millis(time: Micros) -> i64 {
    time.div_euclid(1_000)
}

impl CommitTimes {
    /// The times of a database that was made at `time` and whose commits from `lsn` on are known.
    pub fn from(time: Micros, lsn: Lsn) -> CommitTimes {
        // Before its first commit the database is empty, at any time.
        let millis = if lsn == Lsn(0) { i64::MIN } else { millis(time) };
        CommitTimes { entries: Vector::unit((millis, lsn.0)) }
    }

    /// Records that the commits up to `lsn` were made at `time`. Neither ever falls.
    pub fn push(&mut self, time: Micros, lsn: Lsn) {
        match self.entries.back_mut() {
            Some(last) if last.0 >= millis(time) => last.1 = last.1.max(lsn.0),
            _ => self.entries.push_back((millis(time), lsn.0)),
        }
        if self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
        }
    }

    /// Drops the entries for times before `time`. The state at `time` itself stays known.
    pub fn trim(&mut self, time: Micros) {
        while self.entries.get(1).is_some_and(|(second, _)| *second <= millis(time)) {
            self.entries.pop_front();
        }
    }

    /// Returns the last commit at or before a time, or `None` before the first known time.
    pub fn at(&self, time: Micros) -> Option<Lsn> {
        let after = self.partition_point(|(at, _)| *at <= millis(time));
        self.entries.get(after.checked_sub(1)?).map(|(_, lsn)| Lsn(*lsn))
    }

    /// Returns the time of a commit, or `None` if it was before the first known one or does not exist.
    pub fn of(&self, lsn: Lsn) -> Option<Micros> {
        let at = self.partition_point(|(_, last)| *last < lsn.0);
        let (millis, last) = *self.entries.get(at)?;
        (millis > i64::MIN && (at > 0 || last == lsn.0)).then(|| millis.saturating_mul(1_000))
    }

    /// Returns the first known time, or `None` if all times since the database was made are known.
    pub fn first(&self) -> Option<Micros> {
        self.entries.front().filter(|(millis, _)| *millis > i64::MIN).map(|(ms, _)| ms.saturating_mul(1_000))
    }

    fn partition_point(&self, is_before: impl Fn(&(i64, u64)) -> bool) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(&self.entries[middle]) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub fn encode(&self, e: &mut Encoder) {
        let first = self.entries.front().copied().unwrap_or((i64::MIN, 0));
        e.i64(first.0);
        e.varint(first.1);
        e.varint(self.entries.len() as u64 - 1);
        let mut last = first;
        for (millis, lsn) in self.entries.iter().skip(1) {
            // The difference may wrap, since the first entry may be at `i64::MIN`.
            e.varint(millis.wrapping_sub(last.0) as u64);
            e.varint(lsn - last.1);
            last = (*millis, *lsn);
        }
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<CommitTimes> {
        let mut last = (d.i64()?, d.varint()?);
        let mut entries = Vector::unit(last);
        entries.extend(d.list(|d| {
            let next = last.0.checked_add_unsigned(d.varint()?).zip(last.1.checked_add(d.varint()?));
            last = next.filter(|next| next.0 > last.0).ok_or_else(|| d.damaged("times out of order"))?;
            Ok(last)
        })?);
        Ok(CommitTimes { entries })
    }
}

impl Default for CommitTimes {
    fn default() -> Self {
        CommitTimes::from(0, Lsn(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_means_the_last_commit_of_its_millisecond() {
        let mut times = CommitTimes::default();
        assert_eq!((times.at(-1), times.of(Lsn(1)), times.first()), (Some(Lsn(0)), None, None));
        for (time, lsn) in [(5_000, 1), (5_900, 3), (7_001, 4), (7_001, 9), (6_000, 10), (9_000, 12)] {
            times.push(time, Lsn(lsn));
        }
        let at = |times: &CommitTimes, time| times.at(time).map(|lsn| lsn.0);
        for (time, lsn) in [(4_999, 0), (5_000, 3), (6_999, 3), (7_000, 10), (8_999, 10), (i64::MAX, 12)] {
            assert_eq!(at(&times, time), Some(lsn), "{time}");
        }
        assert_eq!([1, 3, 4, 10, 12, 13].map(|lsn| times.of(Lsn(lsn))), {
            [Some(5_000), Some(5_000), Some(7_000), Some(7_000), Some(9_000), None]
        });
        let mut e = Encoder::new();
        times.encode(&mut e);
        let mut d = Decoder::new(&e.bytes);
        let read = CommitTimes::decode(&mut d).unwrap();
        assert!(d.finish().is_ok() && read.entries == times.entries);
        times.trim(8_000);
        assert_eq!([6_999, 7_000, 9_000].map(|time| at(&times, time)), [None, Some(10), Some(12)]);
        assert_eq!((times.first(), times.of(Lsn(10)), times.of(Lsn(4))), (Some(7_000), Some(7_000), None));
    }
}
