//! Runs of backticks, by which code spans begin and end.

use std::collections::HashMap;

/// Where the runs of a line begin, by their length. A line may have thousands of lengths, and each is looked for.
pub(crate) struct Ticks(HashMap<usize, Vec<usize>>);

impl Ticks {
    pub(crate) fn of(line: &[u8]) -> Ticks {
        let mut runs = HashMap::<usize, Vec<usize>>::new();
        let mut at = 0;
        while let Some(next) = line[at..].iter().position(|byte| *byte == b'`') {
            let run = run_at(&line[at + next..]);
            runs.entry(run).or_default().push(at + next);
            at += next + run;
        }
        Ticks(runs)
    }

    /// Where the code span ends that so many backticks begin at `at`, if it ends in this line.
    pub(crate) fn span_end(&self, at: usize, run: usize) -> Option<usize> {
        let runs = self.0.get(&run)?;
        runs.get(runs.partition_point(|begin| *begin <= at)).map(|begin| begin + run)
    }
}

/// How many backticks a text begins with.
pub(crate) fn run_at(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte == b'`').count()
}
