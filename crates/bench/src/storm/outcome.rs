//! The outcome of a storm, and the verdict on the promises.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use types::{Error, Result};

use super::background::{Background, Stalls};
use super::options::Options;
use super::verify::Verification;
use super::{EVENTS, Kind};
use crate::latency::Summary;
use crate::machine::Machine;
use crate::report::Claim;
use crate::run::BenchRun;

/// Limits of p99 in the storm: a multiple of the quiet minute's p99, and milliseconds. The larger one applies.
const P99_TIMES: f64 = 3.0;
const P99_MS: f64 = 5.0;
/// Limits of the longest read: milliseconds, and a multiple of the longest hiccup of a thread that only sleeps. The larger one
/// applies.
const LONGEST_MS: f64 = 50.0;
const LONGEST_TIMES: f64 = 2.0;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StormOutcome {
    pub version: String,
    pub machine: Machine,
    /// The rate of events: `full`, `half` or a number per second.
    pub load: String,
    pub seed: u64,
    /// Throughput of the idle machine.
    pub alone_events_per_s: f64,
    pub quiet: BenchRun,
    pub storm: BenchRun,
    pub kinds: Vec<KindOutcome>,
    pub background: Background,
    pub stalls: Stalls,
    /// Events acknowledged in the storm.
    pub events: u64,
    /// Requests answered in the storm.
    pub reads: u64,
    pub longest_read_ms: f64,
    /// Number of wrong answers, and of errors found after the kill.
    pub wrong_answers: u64,
    pub refused_reads: u64,
    pub verified: Verification,
    /// Examples of wrong and refused answers.
    pub examples: Vec<String>,
    pub claims: Vec<Claim>,
    /// Reasons not to believe the figures.
    pub failures: Vec<String>,
    /// The directory, if the options keep it.
    pub kept: Option<PathBuf>,
}

/// The results of one kind of request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KindOutcome {
    pub kind: Kind,
    /// Requests per second, at times fixed in advance.
    pub per_second: f64,
    pub quiet: Summary,
    pub storm: Summary,
    /// Latencies of each query of this kind in the storm.
    pub questions: BTreeMap<String, Summary>,
    /// Requests that could not be sent by the end.
    pub unsent: u64,
    pub refused: u64,
    pub wrong: u64,
}

impl StormOutcome {
    pub(super) fn new(options: &Options) -> StormOutcome {
        StormOutcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
            load: options.event_rate.describe(),
            seed: options.seed,
            ..StormOutcome::default()
        }
    }

    /// Computes the totals and judges the claims.
    pub(super) fn finish(&mut self) {
        self.reads = self.kinds.iter().map(|kind| kind.storm.count).sum();
        self.longest_read_ms = self.kinds.iter().map(|kind| kind.storm.longest_ms).fold(0.0, f64::max);
        self.refused_reads = self.kinds.iter().map(|kind| kind.refused).sum();
        let wrong: u64 = self.kinds.iter().map(|kind| kind.wrong).sum();
        self.wrong_answers = wrong + self.verified.wrong.len() as u64;
        if !self.verified.complete && self.failures.is_empty() {
            self.failures.push("what was acknowledged could not be verified to the end".into());
        }
        if self.events == 0 {
            self.failures.push("no event was acknowledged, so nothing was shown".into());
        }
        for kind in self.kinds.iter().filter(|kind| kind.storm.count == 0) {
            self.failures.push(format!("{}: nothing was answered, so nothing was shown", kind.kind));
        }
        self.claims = self.claims();
    }

    fn claims(&self) -> Vec<Claim> {
        let hiccup = self.storm.hiccups.late.longest_ms;
        let longest_limit = LONGEST_MS.max(LONGEST_TIMES * hiccup);
        let mut claims = Vec::new();
        for kind in &self.kinds {
            let limit = P99_MS.max(P99_TIMES * kind.quiet.p99_ms);
            claims.push(Claim {
                claim: format!(
                    "{}: p99 at most {limit:.1} ms (3 times the quiet minute's, or 5 ms)",
                    kind.kind
                ),
                holds: kind.storm.p99_ms <= limit,
                found: format!("{:.2} ms quiet, {:.2} ms in the storm", kind.quiet.p99_ms, kind.storm.p99_ms),
            });
            claims.push(Claim {
                claim: format!(
                    "{}: longest at most {longest_limit:.0} ms (50 ms, or twice the longest hiccup of a thread that only sleeps)",
                    kind.kind
                ),
                holds: kind.storm.longest_ms <= longest_limit,
                found: format!("{:.1} ms; that thread: {hiccup:.1} ms", kind.storm.longest_ms),
            });
        }
        claims.push(Claim {
            claim: "no read refused".into(),
            holds: self.refused_reads == 0,
            found: self.refused_reads.to_string(),
        });
        claims.push(Claim {
            claim: "nothing wrong".into(),
            holds: self.wrong_answers == 0,
            found: self.wrong_answers.to_string(),
        });
        let lake = self.verified.lake.iter().filter(|table| table.equal).count();
        claims.push(Claim {
            claim: "after kill -9 every acknowledged event is there once, in SQL and in the lake".into(),
            holds: self.verified.complete && self.verified.wrong.is_empty() && lake > 0,
            found: format!(
                "{} acknowledged, {} found ({} batches in flight had landed), {lake} of {} tables equal in the lake",
                self.verified.events_acknowledged,
                self.verified.events_found,
                self.verified.batches_landed,
                self.verified.lake.len()
            ),
        });
        claims
    }

    /// Returns the events per second that were acknowledged in the storm.
    pub fn events_per_s(&self) -> f64 {
        self.storm.stream(EVENTS).units_per_second
    }

    /// Summarises the outcome in one line.
    pub fn last_line(&self) -> String {
        format!(
            "{} events in, {} rows indexed, {} reads answered, longest read {:.1} ms, {} wrong answers",
            grouped(self.events),
            grouped(self.background.rows_indexed),
            grouped(self.reads),
            self.longest_read_ms,
            self.wrong_answers
        )
    }

    /// Returns an error if any answer was wrong, anything was lost, or the storm ended early. A missed limit is a result and not
    /// an error.
    pub fn verdict(&self) -> Result<()> {
        if let Some(why) = self.failures.first() {
            return Err(Error::invalid(format!("the storm failed, its figures mean nothing: {why}")));
        }
        if self.wrong_answers > 0 {
            let first = self.verified.wrong.iter().chain(&self.examples).next().cloned().unwrap_or_default();
            return Err(Error::damaged(format!(
                "{} answers were wrong; the first: {first}",
                self.wrong_answers
            )));
        }
        Ok(())
    }
}

/// Formats `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(quiet_p99: f64, storm_p99: f64, longest: f64, hiccup: f64) -> StormOutcome {
        let of = |p99_ms, longest_ms| Summary { count: 100, p99_ms, longest_ms, ..Summary::default() };
        let kinds = Kind::ALL.map(|kind| KindOutcome {
            kind,
            quiet: of(quiet_p99, quiet_p99),
            storm: of(storm_p99, longest),
            ..KindOutcome::default()
        });
        let verified = Verification { complete: true, ..Verification::default() };
        let mut outcome =
            StormOutcome { kinds: kinds.to_vec(), events: 1_234_567, verified, ..StormOutcome::default() };
        outcome.storm.hiccups.late.longest_ms = hiccup;
        outcome.finish();
        outcome
    }

    fn missed(outcome: &StormOutcome, part: &str) -> bool {
        outcome.claims.iter().any(|claim| claim.claim.contains(part) && !claim.holds)
    }

    #[test]
    fn the_limits_are_those_that_are_promised() {
        assert!(!missed(&outcome(1.0, 4.9, 10.0, 0.0), "p99"), "5 ms are always allowed");
        assert!(missed(&outcome(1.0, 5.1, 10.0, 0.0), "p99"));
        assert!(!missed(&outcome(4.0, 11.9, 20.0, 0.0), "p99"), "three times the quiet minute");
        assert!(missed(&outcome(4.0, 12.1, 20.0, 0.0), "p99"));
        assert!(!missed(&outcome(1.0, 2.0, 49.0, 0.0), "longest"));
        assert!(missed(&outcome(1.0, 2.0, 51.0, 20.0), "longest"));
        assert!(!missed(&outcome(1.0, 2.0, 79.0, 40.0), "longest"), "the machine itself stood still");
    }

    #[test]
    fn a_missed_limit_is_a_result_and_a_wrong_answer_is_a_failure() {
        let mut found = outcome(1.0, 500.0, 900.0, 0.0);
        assert!(found.verdict().is_ok());
        assert_eq!(
            found.last_line(),
            "1,234,567 events in, 0 rows indexed, 500 reads answered, longest read 900.0 ms, 0 wrong answers"
        );
        found.kinds[1].wrong = 1;
        found.examples.push("sql: 5 expected".into());
        found.finish();
        assert!(found.verdict().expect_err("wrong").message().contains("sql: 5 expected"));
        found.kinds[2].storm.count = 0;
        found.finish();
        assert!(
            found.verdict().expect_err("nothing shown").message().contains("search: nothing was answered")
        );
    }
}
