//! Samples the server during a steady load: memory, debt, the lag of the lake, files and the disk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use types::Result;

use super::{Acknowledged, CATCH_UP_MAX, DISK_BYTES_LEFT_MIN, Options, free_bytes};
use crate::http::HttpClient;
use crate::markdown::{ms, thousands};
use crate::process;
use crate::report::{Claim, Sheet};
use crate::soak::{Tolerance, judge, sample};
use crate::target::LoadTarget;
use crate::wire;

/// Interval between reads of the watermarks, which is also the precision of the lag in seconds.
const POLL_EVERY: Duration = Duration::from_millis(500);
const SAMPLES: u32 = 60;
/// Shortest load in seconds whose memory and lag are judged. In a shorter one heads and caches fill for the first time, so the
/// figures are only reported.
const JUDGED_FROM_S: f64 = 120.0;

pub(super) struct MonitoredServer<'a> {
    pub target: &'a LoadTarget,
    pub pid: u32,
    pub data: &'a Path,
    pub table: &'a str,
}

/// One sample of the figures.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadSample {
    pub at_s: f64,
    pub anonymous_bytes: u64,
    pub debt_bytes: u64,
    pub lag_rows: u64,
    /// Seconds since the acknowledgement of the oldest row that is not in the lake.
    pub lag_s: f64,
    pub files: u64,
    pub bytes: u64,
    pub lake_bytes: u64,
    pub lake_files: u64,
    pub p999_ms: f64,
    pub longest_ms: f64,
}

#[derive(Debug, Default)]
pub(super) struct Observations {
    pub samples: Vec<LoadSample>,
    /// The largest lag that any read of the watermarks found, including those between two [`LoadSample`]s.
    pub lag_rows_max: u64,
    pub lag_s_max: f64,
    /// Number of different lake snapshots that were observed.
    pub commits: u64,
    pub rate: f64,
}

/// Takes samples until the load is over. Sets `full` if the disk is nearly full.
pub(super) fn monitor(
    server: &MonitoredServer<'_>,
    options: &Options,
    acknowledged: &Acknowledged,
    over: &AtomicBool,
    full: &AtomicBool,
    progress: &Sender<String>,
) -> Result<Observations> {
    let mut client = HttpClient::new(server.target);
    let every = (options.measure / SAMPLES).clamp(POLL_EVERY, Duration::from_secs(10));
    let (started, mut due) = (Instant::now(), every);
    let mut observed = Observations { rate: options.rate, ..Observations::default() };
    let mut history = History::default();
    let mut snapshot = String::new();
    while !over.load(Relaxed) {
        std::thread::sleep(POLL_EVERY);
        let marks = client.json("GET", &format!("/v1/tables/{}/watermarks", server.table), None)?;
        let at_s = started.elapsed().as_secs_f64();
        let row = |mark: &str| wire::whole(&marks[mark]["row"]).unwrap_or_default();
        let (lag_rows, lag_s) = history.lag(at_s, row("acknowledged"), row("lake"));
        observed.lag_rows_max = observed.lag_rows_max.max(lag_rows);
        observed.lag_s_max = observed.lag_s_max.max(lag_s);
        let newest = marks["lake"]["snapshot_id"].as_str().unwrap_or_default();
        if newest != snapshot {
            observed.commits += 1;
            newest.clone_into(&mut snapshot);
        }
        if free_bytes(&options.child.root)? < DISK_BYTES_LEFT_MIN {
            full.store(true, Relaxed);
        }
        if started.elapsed() < due || over.load(Relaxed) {
            continue;
        }
        due += every;
        let held = sample::take(server.pid, server.data)?;
        let metrics = wire::metrics(&mut client)?;
        let recent = acknowledged.take_recent();
        let sample = LoadSample {
            at_s,
            anonymous_bytes: held.anonymous_bytes,
            debt_bytes: wire::metric(&metrics, "debt_bytes").unwrap_or_default() as u64,
            lag_rows,
            lag_s,
            files: held.files,
            bytes: held.bytes,
            lake_bytes: held.parts.get("lake").map_or(0, |part| part.bytes),
            lake_files: held.parts.get("lake").map_or(0, |part| part.files),
            p999_ms: recent.p999_ms,
            longest_ms: recent.longest_ms,
        };
        // A missing receiver is no reason to stop.
        let _ = progress.send(cells(&sample).join(", "));
        observed.samples.push(sample);
    }
    Ok(observed)
}

/// Row ids acknowledged by each moment, from which the lag is computed.
#[derive(Debug, Default)]
struct History(Vec<(f64, u64)>);

impl History {
    /// Returns the number of rows that the lake lacks, and the seconds that the oldest of them has waited.
    fn lag(&mut self, at_s: f64, acknowledged: u64, landed: u64) -> (u64, f64) {
        self.0.push((at_s, acknowledged));
        let missing = acknowledged.saturating_sub(landed);
        if missing == 0 {
            return (0, 0.0);
        }
        // Interpolates between the last sample before the first missing row's acknowledgement and the next one.
        let after = self.0.partition_point(|(_, row)| *row <= landed);
        let (end_s, end) = self.0.get(after).copied().unwrap_or((at_s, acknowledged));
        let (start_s, start) = after.checked_sub(1).map_or((0.0, 0), |before| self.0[before]);
        let share = landed.saturating_sub(start) as f64 / (end - start).max(1) as f64;
        (missing, at_s - (start_s + (end_s - start_s) * share))
    }
}

impl Observations {
    pub(super) fn claims(&self) -> Vec<Claim> {
        const MIB: f64 = 1_048_576.0;
        let lasted = self.samples.last().map_or(0.0, |sample| sample.at_s);
        let series = |of: fn(&LoadSample) -> f64| -> Vec<(f64, f64)> {
            self.samples.iter().map(|sample| (sample.at_s, of(sample))).collect()
        };
        let judged = [
            (
                "memory flat (RssAnon)",
                judge(
                    "",
                    &series(|sample| sample.anonymous_bytes as f64),
                    Tolerance { part: 0.08, least: 16.0 * MIB },
                ),
                MIB,
                " MiB",
                String::new(),
            ),
            (
                "the lake's lag bounded",
                // Rows of one lake cadence of 10 s may be missing at one sample and not at another.
                judge(
                    "",
                    &series(|sample| sample.lag_rows as f64),
                    Tolerance { part: 0.5, least: self.rate * 10.0 },
                ),
                1.0,
                " rows",
                format!("; at most {} rows and {:.1} s", thousands(self.lag_rows_max as f64), self.lag_s_max),
            ),
        ];
        let claim = |(claim, growth, unit, name, more): (&str, crate::soak::Growth, f64, &str, String)| {
            let shown = |value: f64| format!("{}{name}", thousands(value / unit));
            let found = format!(
                "{} in the second quarter, {} in the last, {} by its slope{more}",
                shown(growth.before),
                shown(growth.after),
                shown(growth.grown)
            );
            // Too few samples prove nothing, so they make no claim.
            (growth.judged && lasted >= JUDGED_FROM_S).then(|| Claim {
                claim: claim.to_owned(),
                holds: growth.holds(),
                found,
            })
        };
        judged.into_iter().filter_map(claim).collect()
    }
}

fn cells(sample: &LoadSample) -> [String; 8] {
    let mib = |bytes: u64| format!("{} MiB", thousands(bytes as f64 / 1_048_576.0));
    [
        format!("{:.0} s", sample.at_s),
        format!("RssAnon {}", mib(sample.anonymous_bytes)),
        format!("debt {}", mib(sample.debt_bytes)),
        format!("lag {} rows", thousands(sample.lag_rows as f64)),
        format!("{:.1} s", sample.lag_s),
        format!("{} files, {}", sample.files, mib(sample.bytes)),
        format!("lake {} files, {}", sample.lake_files, mib(sample.lake_bytes)),
        format!("ack p99.9 {} ms, longest {}", ms(sample.p999_ms), ms(sample.longest_ms)),
    ]
}

pub(super) fn sheet(observed: &Observations) -> Sheet {
    Sheet {
        title: "Along the way; acknowledgements since the line before".into(),
        columns: ["at", "memory", "debt", "lag", "of", "directory", "lake", "acknowledged"]
            .map(str::to_owned)
            .to_vec(),
        rows: observed.samples.iter().map(|sample| cells(sample).to_vec()).collect(),
    }
}

/// Waits until the server has almost nothing to do. Returns the time from `since` until then.
pub(super) fn until_idle(pid: u32, since: Instant) -> Result<Duration> {
    const STEP: Duration = Duration::from_secs(1);
    let (mut before, mut idle) = (process::ProcessSample::of(pid)?, 0);
    while idle < 3 && since.elapsed() < CATCH_UP_MAX {
        std::thread::sleep(STEP);
        let now = process::ProcessSample::of(pid)?;
        idle = if before.until(&now).cpu_seconds < 0.02 { idle + 1 } else { 0 };
        before = now;
    }
    Ok(since.elapsed().saturating_sub(STEP * idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_counts_from_when_the_oldest_missing_row_was_acknowledged() {
        let mut history = History::default();
        assert_eq!(history.lag(1.0, 100, 0), (100, 1.0));
        assert_eq!(history.lag(2.0, 200, 100), (100, 1.0));
        // The 151st row came half-way between the samples at 1 s and 2 s.
        assert_eq!(history.lag(3.0, 300, 150), (150, 1.5));
        assert_eq!(history.lag(9.0, 300, 150), (150, 7.5));
        assert_eq!(history.lag(10.0, 300, 300), (0, 0.0));
    }

    fn observed(of: fn(u64) -> LoadSample) -> Observations {
        let samples = (0..60).map(|at| LoadSample { at_s: at as f64 * 10.0, ..of(at) }).collect();
        Observations { samples, rate: 500_000.0, ..Observations::default() }
    }

    #[test]
    fn memory_that_grows_and_a_lag_that_grows_are_each_noticed() {
        let holds =
            |observed: &Observations| observed.claims().iter().map(|claim| claim.holds).collect::<Vec<_>>();
        let flat = |at: u64| LoadSample {
            anonymous_bytes: (400 + at % 7 * 10) << 20,
            lag_rows: 2_000_000 + at % 5 * 1_000_000,
            ..LoadSample::default()
        };
        assert_eq!(holds(&observed(flat)), [true, true]);
        assert_eq!(
            holds(&observed(|at| LoadSample {
                anonymous_bytes: (400 + at * 2) << 20,
                ..LoadSample::default()
            })),
            [false, true]
        );
        assert_eq!(
            holds(&observed(|at| LoadSample { lag_rows: at * 1_000_000, ..LoadSample::default() })),
            [true, false]
        );
        let short = Observations { samples: observed(flat).samples[..6].to_vec(), ..Observations::default() };
        assert!(short.claims().is_empty(), "six looks say nothing");
        let mut brief = observed(flat);
        brief.samples.iter_mut().for_each(|sample| sample.at_s /= 10.0);
        assert!(brief.claims().is_empty(), "nor does a minute");
    }
}
