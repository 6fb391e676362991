//! Lsn runs: which commit wrote which rows, as `(lsn, first row id)` pairs that ascend in both.

use types::Result;
use types::codec::{Decoder, Encoder};

/// The rows that commit `lsn` wrote: those from `first` to before the next run's `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LsnRun {
    pub lsn: u64,
    pub first: u64,
}

/// Appends a run, unless it is of the same commit as the last one.
pub(crate) fn push(runs: &mut Vec<LsnRun>, run: LsnRun) {
    match runs.last() {
        Some(last) if last.lsn == run.lsn => {}
        last => {
            debug_assert!(
                last.is_none_or(|last| last.lsn < run.lsn && last.first < run.first),
                "lsns ascend with row ids"
            );
            runs.push(run);
        }
    }
}

/// Returns the commit that wrote `row`, which must not be before the first run.
pub(crate) fn lsn_at(runs: &[LsnRun], row: u64) -> u64 {
    let after = runs.partition_point(|run| run.first <= row);
    runs[after.saturating_sub(1)].lsn
}

/// Returns the runs of the rows `first..end`; the first of them starts at `first`.
pub(crate) fn slice(runs: &[LsnRun], first: u64, end: u64) -> Vec<LsnRun> {
    let from = runs.partition_point(|run| run.first <= first).saturating_sub(1);
    let to = runs.partition_point(|run| run.first < end);
    let mut part = runs[from..to.max(from)].to_vec();
    if let Some(run) = part.first_mut() {
        run.first = run.first.max(first);
    }
    part
}

pub(crate) fn encode(runs: &[LsnRun], e: &mut Encoder) {
    let mut last = LsnRun { lsn: 0, first: 0 };
    e.list(runs, |e, run| {
        e.varint(run.lsn - last.lsn);
        e.varint(run.first - last.first);
        last = *run;
    });
}

pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Vec<LsnRun>> {
    let mut last: Option<LsnRun> = None;
    d.list(|d| {
        let (lsn, first) = (d.varint()?, d.varint()?);
        let before = last.unwrap_or(LsnRun { lsn: 0, first: 0 });
        let run = match (before.lsn.checked_add(lsn), before.first.checked_add(first)) {
            (Some(lsn), Some(first)) if last.is_none_or(|last| last.lsn < lsn && last.first < first) => {
                LsnRun { lsn, first }
            }
            _ => return Err(d.damaged("lsn runs that do not ascend")),
        };
        last = Some(run);
        Ok(run)
    })
}

#[cfg(test)]
#[path = "lsn_runs/tests.rs"]
mod tests;
