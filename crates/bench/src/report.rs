//! The report of a workload, as JSON for machines and as Markdown for people.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

use crate::ab::Comparison;
use crate::machine::Machine;
use crate::markdown;
use crate::peer_figures::WorkFigures;
use crate::run::BenchRun;

/// Everything that a reader needs to judge the figures and to measure them again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub workload: String,
    /// Seconds since 1970, UTC.
    pub started: u64,
    /// Version of this harness.
    pub version: String,
    pub machine: Machine,
    pub seed: u64,
    /// Every option that the workload ran with.
    pub config: BTreeMap<String, String>,
    /// Hash of the bytes that the workload sends, or of the results that it must find. Equal hashes mean equal work.
    pub work_hash: String,
    pub runs: Vec<BenchRun>,
    pub comparisons: Vec<Comparison>,
    pub claims: Vec<Claim>,
    /// Tables of figures that have no common form.
    #[serde(default)]
    pub sheets: Vec<Sheet>,
    /// Figures of several databases that did the same work.
    #[serde(default)]
    pub measured: Vec<WorkFigures>,
    /// Reasons not to believe the figures, in addition to the failures of the runs.
    pub failures: Vec<String>,
}

/// A promise and the result of its check. A claim that does not hold is a result; the figures remain valid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub claim: String,
    pub holds: bool,
    pub found: String,
}

/// A table of figures as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// The heading of the table.
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Report {
    pub fn new(workload: &str, seed: u64) -> Report {
        Report {
            workload: workload.to_owned(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
            seed,
            ..Report::default()
        }
    }

    /// Records an option of the workload.
    pub fn set(&mut self, option: &str, value: impl ToString) {
        self.config.insert(option.to_owned(), value.to_string());
    }

    /// Returns every reason not to believe the figures.
    pub fn failures(&self) -> Vec<String> {
        let of_runs =
            self.runs.iter().flat_map(|run| run.failures.iter().map(|why| format!("{}: {why}", run.name)));
        of_runs.chain(self.failures.iter().cloned()).collect()
    }

    /// Returns an error if any run failed. The exit status of a command should follow it.
    pub fn verdict(&self) -> Result<()> {
        let failures = self.failures();
        if failures.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the benchmark failed, its figures mean nothing: {}",
            failures.join("; ")
        )))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    pub fn from_json(text: &str) -> Result<Report> {
        serde_json::from_str(text).map_err(|error| Error::invalid(format!("expected a report: {error}")))
    }

    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{ThreadGroup, Usage};
    use crate::run::StreamResult;

    fn report() -> Report {
        let mut report = Report::new("ingest", 7);
        report.set("batch", 100);
        report.work_hash = "abc".into();
        let stream = StreamResult {
            name: "events".into(),
            operations: 1000,
            units: 100_000,
            ..StreamResult::default()
        };
        let group =
            ThreadGroup { name: "log".into(), threads: 1, cpu_seconds: 0.5, ..ThreadGroup::default() };
        let server = Usage { seconds: 1.0, cpu_seconds: 0.5, threads: vec![group], ..Usage::default() };
        report.runs.push(BenchRun {
            name: "10 connections".into(),
            seconds: 1.0,
            streams: vec![stream],
            server: Some(server),
            device_written_bytes: Some(12_000_000),
            ..BenchRun::default()
        });
        report.claims.push(Claim { claim: "fast".into(), holds: false, found: "slow".into() });
        report
    }

    #[test]
    fn json_reads_back_as_it_was_written() {
        let report = report();
        let back = Report::from_json(&report.to_json()).expect("our own JSON");
        assert_eq!(back.to_json(), report.to_json());
        assert!(Report::from_json("{").is_err());
    }

    #[test]
    fn markdown_shows_the_cost_of_one_unit_and_the_hash() {
        let text = report().to_markdown();
        // The CPU cost per event is 0.5 s over 100,000 events.
        for part in ["| 5.00 |", "| 120 |", "`abc`", "batch 100", "**missed**"] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn a_failed_run_says_so_before_any_figure() {
        let mut report = report();
        assert!(report.verdict().is_ok());
        report.runs[0].failures.push("expected a 2xx answer, found 500".into());
        assert!(report.verdict().expect_err("failed").message().contains("found 500"));
        let text = report.to_markdown();
        let failed = text.find("FAILED").expect("it says so");
        assert!(failed < text.find("| run |").expect("a table"), "{text}");
    }
}
