//! `polynya bench freeze`: measures whether readers stall while indexes are built.
//!
//! The workload opens twelve databases in one process. In each, a writer inserts rows one by one, and a reader selects all rows
//! of a category or of a range of prices. Both are open loops, paced so that the writers use a tenth of the machine and the
//! readers a quarter. These rounds are the base. In the other rounds every database also builds an index of each of two columns,
//! again and again, all databases at once.
//!
//! Every answer is checked. A row derives from its number, and rows are inserted in order, so an answer must equal the matching
//! rows among the first n. Here n lies between the rows acknowledged before the query and those begun when its answer arrived
//! (`products`). A scan of every table at the end verifies the rows themselves.

mod fleet;
mod products;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use types::Result;

use crate::ProgressSink;
use crate::ab::{self, ComparisonSide, Spread};
use crate::latency::Latency;
use crate::markdown::{ms, thousands};
use crate::peer::Peer;
use crate::random::{Random, WorkHash};
use crate::report::{Claim, Report, Sheet};
use crate::run::Timing;
use fleet::{Fleet, Rates, RoundResult};
use products::ProductQuery;

#[derive(Clone, Debug)]
pub struct Options {
    /// The parent of the databases' directories.
    pub root: PathBuf,
    pub databases: usize,
    /// Rows per table. Half of them are inserted before the first round; the paced writers insert the others and go on.
    pub rows: u64,
    /// Share of all cores that the writers use, 0 to 1.
    pub writing: f64,
    /// Share of all cores that the readers use, 0 to 1.
    pub reading: f64,
    /// Number of operations over which the cost of one operation is measured.
    pub calibrate: u64,
    /// Pairs of a round without builds and one with builds.
    pub pairs: usize,
    /// Durations of one round.
    pub timing: Timing,
    pub seed: u64,
}

impl Options {
    pub fn new(root: &Path) -> Options {
        let timing = Timing { warm: Duration::from_secs(1), ..Timing::default() };
        Options {
            root: root.to_path_buf(),
            databases: 12,
            rows: 30_000,
            writing: 0.1,
            reading: 0.25,
            calibrate: 2_000,
            pairs: 3,
            timing,
            seed: 1,
        }
    }
}

const SIDES: [&str; 2] = ["base", "building"];

/// One peer with its results over all rounds.
struct PeerResults<'a> {
    peer: &'a dyn Peer,
    fleet: Fleet,
    rates: Rates,
    sides: [SideResults; 2],
    checked: u64,
    wrong: Vec<String>,
    locks: u64,
}

#[derive(Default)]
struct SideResults {
    reads: Latency,
    writes: Latency,
    builds: Vec<Duration>,
    figures: BTreeMap<&'static str, Vec<f64>>,
    sleeper_longest_ms: f64,
}

/// Runs the workload: the peers take turns, each on databases of its own. The claims concern the first peer only.
///
/// A wrong answer of the first peer fails the run; one of another peer is reported.
pub fn run(options: &Options, peers: &[&dyn Peer], progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("freeze", options.seed);
    report.set("databases", options.databases);
    report.set("rows", options.rows);
    report.set("pairs", options.pairs);
    report.set("writing", format!("{:.0} % of the machine", options.writing * 100.0));
    report.set("reading", format!("{:.0} % of the machine", options.reading * 100.0));
    report.work_hash = work_hash(options);
    let mut results =
        peers.iter().map(|peer| prepare_peer(options, *peer, progress)).collect::<Result<Vec<_>>>()?;
    for pair in 0..options.pairs.max(1) {
        for result in &mut results {
            for side in ab::order(pair) {
                let name = format!("{}, {} {}", result.peer.name(), SIDES[side as usize], pair + 1);
                progress(&name);
                let building = side == ComparisonSide::B;
                let seed = options.seed.wrapping_add(pair as u64);
                let round = result.fleet.round(&name, seed, &result.rates, options.timing, building)?;
                report.runs.push(result.add_round(round, side));
            }
        }
    }
    let mut sheet = Sheet {
        title: "Milliseconds, from the moment at which an operation should have begun; all rounds together. CPU is the \
                whole process's, in shares of the machine; the sleeper is a thread that only sleeps 1 ms at a time."
            .into(),
        columns: [
            "", "reads/s", "p50", "p99", "p99.9", "longest", "writes/s", "write p99", "CPU %", "sleeper longest",
            "builds", "build median", "longest build",
        ]
        .map(String::from)
        .to_vec(),
        rows: Vec::new(),
    };
    let mut last = Vec::new();
    for (number, mut result) in results.into_iter().enumerate() {
        let (rows, wrong) = result.fleet.scan()?;
        result.wrong.extend(wrong);
        let name = result.peer.name();
        last.push(format!("{name} {}", thousands(rows as f64)));
        let rates = &result.rates;
        report.set(
            &format!("{name}: cost of an operation"),
            format!("write {:.0} µs, read {:.0} µs of CPU", micros(rates.write_cpu), micros(rates.read_cpu)),
        );
        for (side, collected) in result.sides.iter().enumerate() {
            sheet.rows.push(collected.table_row(&format!("{name}, {}", SIDES[side]), rates));
        }
        report.comparisons.extend(result.comparisons());
        if number == 0 {
            report.claims = result.claims();
        }
        if !result.wrong.is_empty() {
            let why = format!(
                "{name}: {} wrong of {}: {}",
                result.wrong.len(),
                thousands(result.checked as f64),
                result.wrong.iter().take(3).cloned().collect::<Vec<_>>().join("; ")
            );
            match number {
                0 => report.failures.push(why),
                _ => report.set(&format!("{name}: WRONG ANSWERS"), why),
            }
        }
        result.fleet.close()?;
    }
    report.set("rows of the smallest table in the end", last.join(", "));
    report.sheets.push(sheet);
    Ok(report)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn prepare_peer<'a>(
    options: &Options,
    peer: &'a dyn Peer,
    progress: ProgressSink<'_>,
) -> Result<PeerResults<'a>> {
    progress(&format!(
        "{}: {} rows into each of {} databases",
        peer.name(),
        options.rows / 2,
        options.databases
    ));
    let fleet = Fleet::new(peer, &options.root, options.databases.max(1), options.rows / 2)?;
    let rates = fleet.calibrate(options.calibrate, options.seed, options.writing, options.reading)?;
    progress(&format!("{}: {:.0} writes and {:.0} reads a second", peer.name(), rates.writes, rates.reads));
    let sides = [SideResults::default(), SideResults::default()];
    Ok(PeerResults { peer, fleet, rates, sides, checked: 0, wrong: Vec::new(), locks: 0 })
}

/// Hashes the first rows and queries of the workload.
fn work_hash(options: &Options) -> String {
    let mut hash = WorkHash::default();
    hash.add(format!("{:?}", (1..=1000).map(products::row).collect::<Vec<_>>()).as_bytes());
    let mut random = Random::part(options.seed, 1000);
    let queries: Vec<_> = (0..1000).map(|_| ProductQuery::random(&mut random)).collect();
    hash.add(format!("{queries:?}").as_bytes());
    hash.finish()
}

impl PeerResults<'_> {
    /// Checks the answers of a round, adds its figures to one side, and returns its run for the report.
    fn add_round(&mut self, round: RoundResult, side: ComparisonSide) -> crate::run::BenchRun {
        for answer in &round.answers {
            self.checked += 1;
            self.wrong.extend(answer.check().err());
        }
        self.locks += round.locks;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let (run, reads) = (round.run, round.reads.summary());
        let collected = &mut self.sides[side as usize];
        let figures = [
            ("read p50 ms", reads.p50_ms),
            ("read p99 ms", reads.p99_ms),
            ("read p99.9 ms", reads.p999_ms),
            ("read longest ms", reads.longest_ms),
            ("write p99 ms", round.writes.summary().p99_ms),
            ("CPU % of the machine", run.client.cpu_seconds / (run.seconds.max(1e-9) * cores) * 100.0),
            ("sleeper longest ms", run.hiccups.late.longest_ms),
        ];
        for (figure, value) in figures {
            collected.figures.entry(figure).or_default().push(value);
        }
        collected.sleeper_longest_ms = collected.sleeper_longest_ms.max(run.hiccups.late.longest_ms);
        collected.reads.merge(&round.reads);
        collected.writes.merge(&round.writes);
        collected.builds.extend(round.builds);
        run
    }

    fn comparisons(&self) -> Vec<ab::Comparison> {
        let [base, building] = &self.sides;
        let pairs =
            base.figures.iter().filter_map(|(figure, a)| Some((figure, a, building.figures.get(figure)?)));
        let of = |(figure, a, b): (&&str, &Vec<f64>, &Vec<f64>)| {
            let name = format!("{}: {figure}", self.peer.name());
            ab::paired(name, (SIDES[0], a.clone()), (SIDES[1], b.clone()))
        };
        pairs.map(of).collect()
    }

    fn claims(&self) -> Vec<Claim> {
        let [base, building] = [&self.sides[0], &self.sides[1]].map(|side| side.reads.summary());
        let sleeper = self.sides[1].sleeper_longest_ms;
        let (p99_most, longest_most) = ((2.0 * base.p99_ms).max(2.0), (2.0 * sleeper).max(20.0));
        vec![
            Claim {
                claim: "p99 of readers during the builds at most the larger of twice the base and 2 ms".into(),
                holds: building.p99_ms <= p99_most,
                found: format!("{} ms, base {} ms", ms(building.p99_ms), ms(base.p99_ms)),
            },
            Claim {
                claim: "longest read during the builds at most the larger of 20 ms and twice the sleeper's longest hiccup"
                    .into(),
                holds: building.longest_ms <= longest_most,
                found: format!(
                    "{} ms, base {} ms, sleeper {} ms",
                    ms(building.longest_ms),
                    ms(base.longest_ms),
                    ms(sleeper)
                ),
            },
            Claim {
                claim: "no wrong answer".into(),
                holds: self.wrong.is_empty(),
                found: format!("{} of {}", self.wrong.len(), thousands(self.checked as f64)),
            },
            Claim {
                claim: "R1: readers take no lock".into(),
                holds: self.locks == 0,
                found: format!("{} locks on read paths", self.locks),
            },
            Claim {
                claim: "indexes were built meanwhile".into(),
                holds: !self.sides[1].builds.is_empty(),
                found: format!("{} times two", self.sides[1].builds.len()),
            },
        ]
    }
}

impl SideResults {
    fn table_row(&self, name: &str, rates: &Rates) -> Vec<String> {
        let (reads, writes) = (self.reads.summary(), self.writes.summary());
        let builds = Spread::of(self.builds.iter().map(|took| took.as_secs_f64() * 1e3).collect());
        let cpu = self.figures.get("CPU % of the machine").cloned().unwrap_or_default();
        let built = |value: f64| if self.builds.is_empty() { "–".to_owned() } else { ms(value) };
        vec![
            name.to_owned(),
            thousands(rates.reads),
            ms(reads.p50_ms),
            ms(reads.p99_ms),
            ms(reads.p999_ms),
            ms(reads.longest_ms),
            thousands(rates.writes),
            ms(writes.p99_ms),
            format!("{:.0}", Spread::of(cpu).median),
            ms(self.sleeper_longest_ms),
            self.builds.len().to_string(),
            built(builds.median),
            built(builds.highest),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Polynya;

    #[test]
    fn every_answer_is_right_while_indexes_are_built_in_several_databases() {
        let _limit = testkit::limit(300);
        let root = tempfile::tempdir().unwrap();
        let timing = Timing {
            warm: Duration::from_millis(100),
            measure: Duration::from_millis(700),
            grace: Duration::from_secs(60),
        };
        let small = Options {
            databases: 3,
            rows: 2_000,
            calibrate: 60,
            pairs: 1,
            timing,
            ..Options::new(root.path())
        };
        let report = run(&small, &[&Polynya], &mut |_| {}).unwrap();
        report.verdict().unwrap();
        for claim in &report.claims[2..] {
            assert!(claim.holds, "{claim:?}");
        }
        let asked: u64 = report.runs.iter().map(|run| run.stream("reads").operations).sum();
        assert!(asked > 10, "{asked} questions");
        assert_eq!(report.runs.len(), 2);
        assert!(report.to_markdown().contains("| Polynya, building |"));
    }
}
