//! `polynya bench soak`: runs everything that tables do at once, for an hour, with as much data at the end as at the beginning.
//! Memory, file handles, mappings, threads and files must not grow either, and no answer may be wrong.
//!
//! The server is started for the run, with small heads and small log files, so that seals, merges and log trims happen all the
//! time. Each part (`Actor`) is a thread that queries and changes data at its own modest pace: a table with a key and a model of
//! every row (`orders`), transactions of several writers (`accounts`), rows that expire by a TTL (`events`), a unique index that
//! is dropped and rebuilt (`members`), tables and columns that are created and dropped (`schema_changes`), and a search index
//! (`articles`). Further parts create and drop indexes, follow the change feed, read slowly, send invalid requests and take
//! backups (`background_actors`).
//!
//! Once a minute the process and its directory are measured (`sample`). At the end the slope of each figure over the later three
//! quarters is judged (`growth`). Then the server is killed with SIGKILL under load, its directory is examined, and a restarted
//! server must hold everything that was acknowledged.

mod accounts;
mod articles;
mod background_actors;
mod client;
mod events;
mod growth;
mod members;
mod orders;
pub(crate) mod sample;
mod schema_changes;
mod state;
mod streamed_answer;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use types::{Error, Result};

pub use growth::{Growth, Tolerance, judge};
pub use sample::{DirectoryPart, SoakSample};

use crate::ProgressSink;
use crate::child::{self, Home, ServerProcess};
use crate::http::HttpClient;
use crate::report::{Claim, Report, Sheet};
use crate::wire;
use client::SoakClient;
use state::SoakState;

/// Shortest soak whose growth is judged. In a shorter one caches are still filling and the readable past is still growing.
pub const JUDGED_FROM: Duration = Duration::from_secs(600);

const TRANSFER_WRITERS: usize = 3;
const EVENT_WRITERS: usize = 2;

#[derive(Clone, Debug)]
pub struct Options {
    pub child: child::Options,
    pub duration: Duration,
    pub size: Size,
    /// Scale of the load: 1 is about 25 statements per second.
    pub rate: f64,
    pub seed: u64,
}

/// Size of the data, from the beginning of the soak to its end.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub orders: usize,
    pub accounts: usize,
    pub members: usize,
    pub articles: usize,
    /// Rows of one batch of events.
    pub batch: usize,
    /// Number of rows at which a head is sealed.
    pub seal_rows: usize,
    pub log_file_bytes: usize,
}

impl Default for Size {
    fn default() -> Size {
        Size {
            orders: 20_000,
            accounts: 400,
            members: 600,
            articles: 1_500,
            batch: 60,
            seal_rows: 1_500,
            log_file_bytes: 512 << 10,
        }
    }
}

impl Options {
    pub fn new(child: child::Options) -> Options {
        Options { child, duration: Duration::from_secs(3600), size: Size::default(), rate: 1.0, seed: 1 }
    }

    /// Sets the duration. A soak that is too short to be judged also gets less data.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Options {
        self.duration = duration;
        if duration < JUDGED_FROM {
            let part = |of: usize| of / 8;
            let size = self.size;
            self.size = Size {
                orders: part(size.orders),
                articles: part(size.articles),
                members: part(size.members),
                seal_rows: part(size.seal_rows),
                log_file_bytes: part(size.log_file_bytes),
                ..size
            };
        }
        self
    }

    /// Time for which the past remains readable.
    fn keep(&self) -> Duration {
        (self.duration / 20).clamp(Duration::from_secs(6), Duration::from_secs(180))
    }

    fn ttl(&self) -> Duration {
        (self.duration / 30).clamp(Duration::from_secs(10), Duration::from_secs(120))
    }

    fn sample_every(&self) -> Duration {
        (self.duration / 60).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }
}

/// One part of the soak: a thread with its own connection and its own model.
trait Actor: Send {
    /// Time between the starts of two steps.
    fn every(&self) -> Duration;

    fn prepare(&mut self, _client: &mut SoakClient<'_>) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()>;

    /// Checks after the kill that everything acknowledged to this part is there. Errors are reported to the soak state.
    fn verify(&mut self, _client: &mut SoakClient<'_>) -> Result<()> {
        Ok(())
    }
}

type Actors = Vec<(&'static str, Box<dyn Actor>)>;

/// Runs a soak. Growth, wrong answers and lost rows are failures of the report, and the directory is kept then.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("soak", options.seed);
    report.set("duration", format!("{:?}", options.duration));
    report.set("rate", options.rate);
    report.set("size", format!("{:?}", options.size));
    let mut child = options.child.clone();
    child.isolated = true;
    for (name, value) in [
        ("POLYNYA_BENCH_SEAL_ROWS", options.size.seal_rows.to_string()),
        ("POLYNYA_BENCH_LOG_FILE_BYTES", options.size.log_file_bytes.to_string()),
        ("POLYNYA_HISTORY_KEEP", format!("{} s", options.keep().as_secs())),
        // Each request is a row of `polynya.requests`, a table that would otherwise grow for a day.
        ("POLYNYA_RECORD_KEEP", format!("{} s", options.ttl().as_secs())),
        ("POLYNYA_LAKE", "false".to_owned()),
    ] {
        child.env.push((name.to_owned(), value));
    }
    let mut home = Home::new(child)?;
    let archive = home.directory().join("archive");
    home.env("POLYNYA_LOG_ARCHIVE", &archive.to_string_lossy());
    home.env("POLYNYA_SEGMENTS_ZSTD_AFTER", &format!("{} s", options.keep().as_secs() / 4));
    let state = SoakState::default();
    let outcome = run_soak(options, &mut home, &state, &mut report, progress);
    let (longest_ms, longest) = state.longest_of_all();
    report.claims.push(Claim {
        claim: "no answer is wrong, and after kill -9 everything acknowledged is there".into(),
        holds: outcome.is_ok() && state.wrong.load(Relaxed) == 0,
        found: format!(
            "{} statements, {} reads, longest {longest_ms:.0} ms ({longest}), {} refused and sent again, {} conflicts, {} wrong",
            state.statements.load(Relaxed),
            state.reads.load(Relaxed),
            state.refused.load(Relaxed),
            state.conflicts.load(Relaxed),
            state.wrong.load(Relaxed),
        ),
    });
    report.failures.extend(state.examples());
    if let Err(error) = outcome {
        report.failures.push(error.to_string());
    }
    if !report.failures.is_empty() {
        report.failures.push(format!("the directory is kept at {}", home.keep().display()));
    }
    Ok(report)
}

fn run_soak(
    options: &Options,
    home: &mut Home,
    state: &SoakState,
    report: &mut Report,
    progress: ProgressSink<'_>,
) -> Result<()> {
    let mut server = home.start()?;
    let target = server.target().clone();
    let (mut actors, mut backups) = make_actors(options, home);
    progress("filling the tables");
    for (number, (name, actor)) in actors.iter_mut().enumerate() {
        let mut client = SoakClient::new(&target, state, options.seed, number as u64);
        actor.prepare(&mut client).map_err(|error| error.with("part", name))?;
    }
    // A command that finds no server opens the directory itself, so no command may run when the server is killed.
    let early = SoakState::default();
    let begin =
        |number: u64, name: &'static str, actor: &mut Box<dyn Actor>, rate: f64, until: &SoakState| {
            let mut client = SoakClient::new(&target, until, options.seed, number);
            let outcome = run_actor(actor.as_mut(), &mut client, rate);
            // A part that fails ends the whole soak.
            state.end.fetch_or(outcome.is_err(), Relaxed);
            outcome.map_err(|error| error.with("part", name))
        };
    let (killed, samples) = thread::scope(|scope| {
        let (begin, early) = (&begin, &early);
        let threads: Vec<_> = (1_000..)
            .zip(actors.iter_mut())
            .map(|(number, (name, actor))| {
                scope.spawn(move || begin(number, name, actor, options.rate, state))
            })
            .collect();
        let backups = &mut backups;
        let backups = scope.spawn(move || begin(2_000, "backups", backups, 1.0, early));
        let samples = take_samples(options, &server, home, state, progress);
        early.end.store(true, Relaxed);
        let backed_up = join(backups);
        progress("kill -9 under load");
        state.killing.store(true, Relaxed);
        let killed = server.kill();
        // The first error explains the failure; it ended the other parts.
        let mut outcomes: Vec<Result<()>> = threads.into_iter().map(join).collect();
        outcomes.push(backed_up);
        let failed = outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()));
        (failed.and(killed), samples)
    });
    state.merge(&early);
    let samples = samples?;
    report_growth(options, &samples, report);
    killed?;
    progress("examining the directory");
    let data = home.data().to_string_lossy().into_owned();
    run_program(&options.child.program, home.directory(), &["doctor", &data])?;
    progress("a new start, and everything is looked for");
    let mut server = home.start()?;
    let after = SoakState::default();
    for (number, (name, actor)) in actors.iter_mut().enumerate() {
        let mut client = SoakClient::new(server.target(), &after, options.seed, 3_000 + number as u64);
        actor.verify(&mut client).map_err(|error| error.with("part", name))?;
    }
    state.merge(&after);
    server.stop(options.child.stop_within).map(drop)
}

/// Creates all parts, and separately the one that takes backups.
fn make_actors(options: &Options, home: &Home) -> (Actors, Box<dyn Actor>) {
    let (size, keep) = (&options.size, options.keep());
    let shared_orders = Arc::new(orders::SharedOrders::default());
    let bank = Arc::new(accounts::Bank::new(size, TRANSFER_WRITERS, keep));
    let batches = Arc::new(events::EventBatches::new(options.ttl(), size.batch));
    let mut actors: Actors =
        vec![("orders", Box::new(orders::Orders::new(size, keep, shared_orders.clone())))];
    for number in 0..TRANSFER_WRITERS {
        actors.push(("accounts", Box::new(accounts::TransferWriter { bank: bank.clone(), number })));
    }
    actors.push(("accounts", Box::new(accounts::Auditor { bank })));
    for number in 0..EVENT_WRITERS {
        actors.push(("events", Box::new(events::EventWriter { batches: batches.clone(), number })));
    }
    actors.push(("events", Box::new(events::EventReader { batches })));
    actors.push(("members", Box::new(members::Members::new(size))));
    actors.push(("shapes", Box::new(schema_changes::SchemaChanges::default())));
    actors.push(("articles", Box::new(articles::Articles::new(size))));
    actors.push(("indexes", Box::new(background_actors::IndexBuilder::default())));
    actors.push(("change feed", Box::new(background_actors::FeedFollower::new(shared_orders.clone()))));
    let takes = (options.duration / 60).clamp(Duration::from_secs(2), Duration::from_secs(20));
    actors.push((
        "slow reader",
        Box::new(background_actors::SlowReader { shared: shared_orders.clone(), takes }),
    ));
    actors.push(("stranger", Box::new(background_actors::InvalidClient)));
    let backups = background_actors::Backups {
        shared: shared_orders,
        every: (options.duration / 12).clamp(Duration::from_secs(5), Duration::from_secs(240)),
        program: options.child.program.clone(),
        archive: home.directory().join("archive"),
        directory: home.directory().to_owned(),
        data: home.data(),
        rounds: 0,
    };
    (actors, Box::new(backups))
}

fn join(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().map_err(|_| Error::internal("a part panicked"))?
}

/// Runs the steps of a part until the end of the soak.
fn run_actor(actor: &mut dyn Actor, client: &mut SoakClient<'_>, rate: f64) -> Result<()> {
    while !client.state.is_over() {
        let since = Instant::now();
        match actor.step(client) {
            // The kill interrupted this step.
            Err(_) if client.state.killing.load(Relaxed) => return Ok(()),
            other => other?,
        }
        client.state.sleep(actor.every().div_f64(rate).saturating_sub(since.elapsed()));
    }
    Ok(())
}

/// Takes a sample at intervals, until the time is over or a part fails.
fn take_samples(
    options: &Options,
    server: &ServerProcess,
    home: &Home,
    state: &SoakState,
    progress: ProgressSink<'_>,
) -> Result<Vec<SoakSample>> {
    let started = Instant::now();
    let mut client = HttpClient::new(server.target());
    let mut samples: Vec<SoakSample> = Vec::new();
    let every = options.sample_every();
    let mut due = every;
    while due <= options.duration && !state.end.load(Relaxed) {
        state.sleep(due.saturating_sub(started.elapsed()));
        due += every;
        if state.end.load(Relaxed) {
            break;
        }
        let (rows, lsn) = contents(&mut client)?;
        let (longest_ms, longest) = state.take_longest();
        let sample = SoakSample {
            at_s: started.elapsed().as_secs_f64(),
            rows,
            lsn,
            statements: state.statements.load(Relaxed),
            refused: state.refused.load(Relaxed),
            wrong: state.wrong.load(Relaxed),
            longest_ms,
            longest,
            ..sample::take(server.pid(), &home.data())?
        };
        progress(&line(&sample, samples.last()));
        samples.push(sample);
    }
    Ok(samples)
}

/// Returns the rows of all tables, and the newest lsn.
fn contents(client: &mut HttpClient) -> Result<(u64, u64)> {
    let listed = client.json("GET", "/v1/tables", None)?;
    let tables = listed["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = tables.iter().filter_map(|table| wire::whole(&table["rows"])).sum();
    Ok((rows, wire::whole(&listed["lsn"]).unwrap_or_default()))
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn line(sample: &SoakSample, before: Option<&SoakSample>) -> String {
    let cpu = before.map_or(0.0, |before| {
        (sample.cpu_seconds - before.cpu_seconds) / (sample.at_s - before.at_s).max(f64::EPSILON)
    });
    format!(
        "{:>7.1} s | RssAnon {}, RSS {}, {} open files, {} mappings, {} threads | {} files, {} | {} rows, lsn {} | \
         {} statements, {} refused, {} wrong | {:.0} % of a core | longest read {:.0} ms: {}",
        sample.at_s,
        mib(sample.anonymous_bytes),
        mib(sample.resident_bytes),
        sample.handles,
        sample.mappings,
        sample.threads,
        sample.files,
        mib(sample.bytes),
        sample.rows,
        sample.lsn,
        sample.statements,
        sample.refused,
        sample.wrong,
        cpu * 100.0,
        sample.longest_ms,
        sample.longest.chars().take(90).collect::<String>(),
    )
}

/// A figure: its name, its value in a sample, the tolerated growth, and true if it counts bytes.
type JudgedFigure = (&'static str, fn(&SoakSample) -> u64, Tolerance, bool);

const FIGURES: [JudgedFigure; 8] = {
    const fn may(part: f64, least: f64) -> Tolerance {
        Tolerance { part, least }
    }
    const MIB: f64 = 1_048_576.0;
    [
        ("memory of its own (RssAnon)", |s| s.anonymous_bytes, may(0.08, 8.0 * MIB), true),
        ("resident memory", |s| s.resident_bytes, may(0.1, 16.0 * MIB), true),
        ("open files", |s| s.handles, may(0.1, 8.0), false),
        ("mappings", |s| s.mappings, may(0.15, 60.0), false),
        ("threads", |s| s.threads, may(0.0, 2.0), false),
        ("files of the directory", |s| s.files, may(0.1, 15.0), false),
        ("bytes of the directory", |s| s.bytes, may(0.1, 8.0 * MIB), true),
        ("rows", |s| s.rows, may(0.05, 500.0), false),
    ]
};

/// Judges the growth of each figure.
pub fn growths(samples: &[SoakSample]) -> Vec<Growth> {
    let judged = FIGURES.iter().map(|(name, value, tolerance, _)| {
        let series: Vec<(f64, f64)> = samples.iter().map(|s| (s.at_s, value(s) as f64)).collect();
        judge(name, &series, *tolerance)
    });
    judged.collect()
}

/// Adds the samples and the verdicts on them to the report.
fn report_growth(options: &Options, samples: &[SoakSample], report: &mut Report) {
    let mut rows = Vec::new();
    for (growth, (.., is_bytes)) in growths(samples).into_iter().zip(FIGURES) {
        let shown = |value: f64| {
            if is_bytes { format!("{:.1} MiB", value / f64::from(1 << 20)) } else { format!("{value:.0}") }
        };
        let judged = growth.judged && options.duration >= JUDGED_FROM;
        let word = match (judged, growth.holds()) {
            (false, _) => "too short to say",
            (true, true) => "flat",
            (true, false) => "GREW",
        };
        rows.push(vec![
            growth.name.clone(),
            shown(growth.before),
            shown(growth.after),
            shown(growth.grown),
            shown(growth.allowed),
            word.to_owned(),
        ]);
        if judged {
            let found = format!("{} by its slope, {} allowed", shown(growth.grown), shown(growth.allowed));
            if !growth.holds() {
                report.failures.push(format!(
                    "{} grew: {found}{}",
                    growth.name,
                    directory_growth(&growth.name, samples)
                ));
            }
            report.claims.push(Claim {
                claim: format!("{} stay", growth.name),
                holds: growth.holds(),
                found,
            });
        }
    }
    let columns = ["", "second quarter", "last quarter", "grown by its slope", "allowed", ""];
    report.sheets.push(Sheet {
        title: "What must not grow: medians, and the slope of the later three quarters".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    let lines = samples.iter().enumerate().map(|(at, sample)| {
        let before = at.checked_sub(1).and_then(|before| samples.get(before));
        vec![line(sample, before).replace(" | ", "; ")]
    });
    report.sheets.push(Sheet {
        title: "Along the way".into(),
        columns: vec!["at".into()],
        rows: lines.collect(),
    });
}

/// Describes the parts of the directory, early and late, if the figure that grew concerns the directory.
fn directory_growth(figure: &str, samples: &[SoakSample]) -> String {
    let (Some(early), Some(late)) = (samples.get(samples.len() / 3), samples.last()) else {
        return String::new();
    };
    if !figure.contains("directory") {
        return String::new();
    }
    let mut text = String::new();
    for (name, now) in &late.parts {
        let then = early.parts.get(name).copied().unwrap_or_default();
        let _ = write!(
            text,
            "; {name}: {} files and {} were {} and {}",
            now.files,
            mib(now.bytes),
            then.files,
            mib(then.bytes)
        );
    }
    text
}

/// Runs the server's own program without settings from the environment and returns its output. A failure of the program is an
/// error.
fn run_program(program: &Path, directory: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POLYNYA_")) {
        command.env_remove(name);
    }
    let output =
        command.args(args).current_dir(directory).stdin(Stdio::null()).output().map_err(|error| {
            Error::io(format_args!("running {} {}", program.display(), args.join(" ")), error)
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(Error::invalid(format!(
            "`{}` ended with {}: {}{}",
            args.join(" "),
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )));
    }
    Ok(text(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour of samples in which only the figure that `leak` changes grows.
    fn hour(leak: fn(&mut SoakSample, u64)) -> Vec<SoakSample> {
        let minutes = (1..=60).map(|minute| {
            let tooth = minute % 6;
            let mut sample = SoakSample {
                at_s: minute as f64 * 60.0,
                anonymous_bytes: (180 + tooth) << 20,
                resident_bytes: (260 + 3 * tooth) << 20,
                handles: 60 + tooth,
                mappings: 500 + 20 * tooth,
                threads: 30 + tooth % 2,
                files: 200 + 10 * tooth,
                bytes: (60 + tooth) << 20,
                rows: 40_000 + 100 * tooth,
                ..SoakSample::default()
            };
            leak(&mut sample, minute);
            sample
        });
        minutes.collect()
    }

    #[test]
    fn each_figure_that_leaks_is_named_and_no_other() {
        type Grow = fn(&mut SoakSample, u64);
        let cases: [(&str, Grow); 7] = [
            ("memory of its own (RssAnon)", |s, minute| s.anonymous_bytes += minute << 19),
            ("resident memory", |s, minute| s.resident_bytes += minute << 20),
            ("open files", |s, minute| s.handles += minute / 3),
            ("mappings", |s, minute| s.mappings += 3 * minute),
            ("threads", |s, minute| s.threads += minute / 10),
            ("files of the directory", |s, minute| s.files += minute),
            ("bytes of the directory", |s, minute| s.bytes += minute << 18),
        ];
        assert!(growths(&hour(|_, _| {})).iter().all(Growth::holds), "nothing leaks");
        let options = Options::new(child::Options::new("polynya"));
        for (name, leak) in cases {
            let grown: Vec<String> = growths(&hour(leak))
                .into_iter()
                .filter(|growth| !growth.holds())
                .map(|growth| growth.name)
                .collect();
            assert_eq!(grown, [name]);
            let mut report = Report::new("soak", 1);
            report_growth(&options, &hour(leak), &mut report);
            let said = report.verdict().expect_err("a leak fails the run").to_string();
            assert!(said.contains(name) && said.contains("grew"), "{said}");
        }
    }

    #[test]
    fn a_short_soak_tells_and_does_not_judge() {
        let options = Options::new(child::Options::new("polynya")).lasting(Duration::from_secs(60));
        assert!(options.size.orders < Size::default().orders);
        let mut report = Report::new("soak", 1);
        report_growth(&options, &hour(|s, minute| s.handles += minute), &mut report);
        report.verdict().expect("nothing is judged");
        assert!(report.to_markdown().contains("too short to say"), "{}", report.to_markdown());
    }
}
