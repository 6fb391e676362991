//! The seeds of randomised tests, and the report of a failing one.

use std::ops::Range;
use std::thread;

/// Returns the seeds that a test should run: `0..default_count` unless `POLYNYA_TEST_SEEDS` says otherwise. `200`
/// means the first two hundred, `7..8` seed 7 alone.
pub fn seeds(default_count: u64) -> Range<u64> {
    match std::env::var("POLYNYA_TEST_SEEDS") {
        Ok(text) => parse(&text).unwrap_or_else(|message| panic!("{message}")),
        Err(_) => 0..default_count,
    }
}

/// Runs `test` for each of [`seeds`]. If it panics, prints how to repeat that seed.
#[track_caller]
pub fn for_each_seed(default_count: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(default_count) {
        let report = ReportOnPanic(seed);
        test(seed);
        drop(report);
    }
}

struct ReportOnPanic(u64);

impl Drop for ReportOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let seed = self.0;
            eprintln!(
                "failed with seed {seed}; repeat with POLYNYA_TEST_SEEDS={seed}..{}",
                seed.saturating_add(1)
            );
        }
    }
}

fn parse(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match text.split_once("..") {
        Some((from, to)) => number(from).zip(number(to)).map(|(from, to)| from..to),
        None => number(text).map(|count| 0..count),
    };
    match range {
        Some(range) if !range.is_empty() => Ok(range),
        _ => Err(format!("POLYNYA_TEST_SEEDS should be a count (200) or a range (7..8); it is {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_count_and_two_are_a_range() {
        assert_eq!(parse("200"), Ok(0..200));
        assert_eq!(parse(" 7 .. 8 "), Ok(7..8));
    }

    #[test]
    fn a_seed_range_that_would_run_nothing_is_refused() {
        for text in ["", "0", "8..7", "7..7", "7..", "a..b", "-3"] {
            assert!(parse(text).unwrap_err().contains("POLYNYA_TEST_SEEDS"), "{text:?} was taken");
        }
    }
}
