//! Runs of backticks in a line. They delimit code spans.

use std::collections::HashMap;

/// The start offsets of the runs in a line, by the length of the run. A line may have runs of thousands of lengths, so
/// a lookup must not scan the line.
pub(crate) struct BacktickRuns(HashMap<usize, Vec<usize>>);

impl BacktickRuns {
    pub(crate) fn of(line: &[u8]) -> BacktickRuns {
        let mut runs = HashMap::<usize, Vec<usize>>::new();
        let mut at = 0;
        while let Some(next) = line[at..].iter().position(|byte| *byte == b'`') {
            let run = run_len(&line[at + next..]);
            runs.entry(run).or_default().push(at + next);
            at += next + run;
        }
        BacktickRuns(runs)
    }

    /// Returns the end of the code span that a run of `run` backticks opens at `at`, if it ends in this line.
    pub(crate) fn span_end(&self, at: usize, run: usize) -> Option<usize> {
        let runs = self.0.get(&run)?;
        runs.get(runs.partition_point(|begin| *begin <= at)).map(|begin| begin + run)
    }
}

/// Counts the backticks at the start of a text.
pub(crate) fn run_len(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte == b'`').count()
}
