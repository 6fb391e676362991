//! `polynya bench soak`: runs everything that tables do at once, for an hour, with as much data at the end as at the beginning.
//! Memory, file handles, mappings, threads and files must not grow either, and no answer may be wrong.
//!
//! The server is started for the run, with small heads and small log files, so that seals, merges and log trims happen all the
//! time. Each part (`Actor`) is a thread that queries and changes data at its own modest pace: a table with a key and a model of
//! every row (`orders`), transactions of several writers (`accounts`), rows that expire by a TTL (`events`), a unique index that
//! is dropped and rebuilt (`members`), tables and columns that are created and dropped (`shapes`), and a search index
//! (`articles`). Further parts create and drop indexes, follow the change feed, read slowly, send invalid requests and take
//! backups (`beside`).
//!
//! Once a minute the process and its directory are measured (`sample`). At the end the slope of each figure over the later three
//! quarters is judged (`verdict`). Then the server is killed with SIGKILL under load, its directory is examined, and a restarted
//! server must hold everything that was acknowledged.

mod accounts;
mod articles;
mod beside;
mod events;
mod members;
mod orders;
pub(crate) mod sample;
mod shapes;
mod stream;
mod verdict;
mod watch;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use types::{Error, Result};

pub use sample::{Part, Sample};
pub use verdict::{Growth, Tolerance, judge};

use crate::Progress;
use crate::child::{self, Home, Server};
use crate::http::Client;
use crate::report::{Claim, Report, Sheet};
use crate::wire;
use watch::{Caller, Watch};

/// Shortest soak whose growth is judged. In a shorter one caches are still filling and the readable past is still growing.
pub const JUDGED_FROM: Duration = Duration::from_secs(600);

const TELLERS: usize = 3;
const SOURCES: usize = 2;

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

    fn prepare(&mut self, _caller: &mut Caller<'_>) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, caller: &mut Caller<'_>) -> Result<()>;

    /// Checks after the kill that everything acknowledged to this part is there. Errors are reported to the watch.
    fn verify(&mut self, _caller: &mut Caller<'_>) -> Result<()> {
        Ok(())
    }
}

type Cast = Vec<(&'static str, Box<dyn Actor>)>;

/// Runs a soak. Growth, wrong answers and lost rows are failures of the report, and the directory is kept then.
pub fn run(options: &Options, progress: Progress<'_>) -> Result<Report> {
    let mut report = Report::new("soak", options.seed);
    report.set("duration", format!("{:?}", options.duration));
    report.set("rate", options.rate);
    report.set("size", format!("{:?}", options.size));
    let mut child = options.child.clone();
    child.alone = true;
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
    let watch = Watch::default();
    let outcome = soak(options, &mut home, &watch, &mut report, progress);
    let (longest_ms, longest) = watch.longest_of_all();
    report.claims.push(Claim {
        claim: "no answer is wrong, and after kill -9 everything acknowledged is there".into(),
        holds: outcome.is_ok() && watch.wrong.load(Relaxed) == 0,
        found: format!(
            "{} statements, {} reads, longest {longest_ms:.0} ms ({longest}), {} refused and sent again, {} conflicts, {} wrong",
            watch.statements.load(Relaxed),
            watch.reads.load(Relaxed),
            watch.refused.load(Relaxed),
            watch.conflicts.load(Relaxed),
            watch.wrong.load(Relaxed),
        ),
    });
    report.failures.extend(watch.examples());
    if let Err(error) = outcome {
        report.failures.push(error.to_string());
    }
    if !report.failures.is_empty() {
        report.failures.push(format!("the directory is kept at {}", home.keep().display()));
    }
    Ok(report)
}

fn soak(
    options: &Options,
    home: &mut Home,
    watch: &Watch,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let mut server = home.start()?;
    let target = server.target().clone();
    let (mut cast, mut backups) = cast(options, home);
    progress("filling the tables");
    for (number, (name, actor)) in cast.iter_mut().enumerate() {
        let mut caller = Caller::new(&target, watch, options.seed, number as u64);
        actor.prepare(&mut caller).map_err(|error| error.with("part", name))?;
    }
    // A command that finds no server opens the directory itself, so no command may run when the server is killed.
    let early = Watch::default();
    let begin = |number: u64, name: &'static str, actor: &mut Box<dyn Actor>, rate: f64, until: &Watch| {
        let mut caller = Caller::new(&target, until, options.seed, number);
        let outcome = work(actor.as_mut(), &mut caller, rate);
        // A part that fails ends the whole soak.
        watch.end.fetch_or(outcome.is_err(), Relaxed);
        outcome.map_err(|error| error.with("part", name))
    };
    let (killed, samples) = thread::scope(|scope| {
        let (begin, early) = (&begin, &early);
        let threads: Vec<_> = (1_000..)
            .zip(cast.iter_mut())
            .map(|(number, (name, actor))| {
                scope.spawn(move || begin(number, name, actor, options.rate, watch))
            })
            .collect();
        let backups = &mut backups;
        let backups = scope.spawn(move || begin(2_000, "backups", backups, 1.0, early));
        let samples = look(options, &server, home, watch, progress);
        early.end.store(true, Relaxed);
        let backed_up = joined(backups);
        progress("kill -9 under load");
        watch.killing.store(true, Relaxed);
        let killed = server.kill();
        // The first error explains the failure; it ended the other parts.
        let mut outcomes: Vec<Result<()>> = threads.into_iter().map(joined).collect();
        outcomes.push(backed_up);
        let failed = outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()));
        (failed.and(killed), samples)
    });
    watch.take(&early);
    let samples = samples?;
    told(options, &samples, report);
    killed?;
    progress("examining the directory");
    let data = home.data().to_string_lossy().into_owned();
    run_program(&options.child.program, home.directory(), &["doctor", &data])?;
    progress("a new start, and everything is looked for");
    let mut server = home.start()?;
    let after = Watch::default();
    for (number, (name, actor)) in cast.iter_mut().enumerate() {
        let mut caller = Caller::new(server.target(), &after, options.seed, 3_000 + number as u64);
        actor.verify(&mut caller).map_err(|error| error.with("part", name))?;
    }
    watch.take(&after);
    server.stop(options.child.stop_within).map(drop)
}

/// Creates all parts, and separately the one that takes backups.
fn cast(options: &Options, home: &Home) -> (Cast, Box<dyn Actor>) {
    let (size, keep) = (&options.size, options.keep());
    let known = Arc::new(orders::Known::default());
    let bank = Arc::new(accounts::Bank::new(size, TELLERS, keep));
    let batches = Arc::new(events::Batches::new(options.ttl(), size.batch));
    let mut cast: Cast = vec![("orders", Box::new(orders::Orders::new(size, keep, known.clone())))];
    for number in 0..TELLERS {
        cast.push(("accounts", Box::new(accounts::Teller { bank: bank.clone(), number })));
    }
    cast.push(("accounts", Box::new(accounts::Auditor { bank })));
    for number in 0..SOURCES {
        cast.push(("events", Box::new(events::Source { batches: batches.clone(), number })));
    }
    cast.push(("events", Box::new(events::Observer { batches })));
    cast.push(("members", Box::new(members::Members::new(size))));
    cast.push(("shapes", Box::new(shapes::Shapes::default())));
    cast.push(("articles", Box::new(articles::Articles::new(size))));
    cast.push(("indexes", Box::new(beside::Indexes::default())));
    cast.push(("change feed", Box::new(beside::Follower::new(known.clone()))));
    let takes = (options.duration / 60).clamp(Duration::from_secs(2), Duration::from_secs(20));
    cast.push(("slow reader", Box::new(beside::SlowReader { known: known.clone(), takes })));
    cast.push(("stranger", Box::new(beside::Stranger)));
    let backups = beside::Backups {
        known,
        every: (options.duration / 12).clamp(Duration::from_secs(5), Duration::from_secs(240)),
        program: options.child.program.clone(),
        archive: home.directory().join("archive"),
        directory: home.directory().to_owned(),
        data: home.data(),
        rounds: 0,
    };
    (cast, Box::new(backups))
}

fn joined(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().map_err(|_| Error::internal("a part panicked"))?
}

/// Runs the steps of a part until the end of the soak.
fn work(actor: &mut dyn Actor, caller: &mut Caller<'_>, rate: f64) -> Result<()> {
    while !caller.watch.is_over() {
        let since = Instant::now();
        match actor.step(caller) {
            // The kill interrupted this step.
            Err(_) if caller.watch.killing.load(Relaxed) => return Ok(()),
            other => other?,
        }
        caller.watch.rest(actor.every().div_f64(rate).saturating_sub(since.elapsed()));
    }
    Ok(())
}

/// Takes a sample at intervals, until the time is over or a part fails.
fn look(
    options: &Options,
    server: &Server,
    home: &Home,
    watch: &Watch,
    progress: Progress<'_>,
) -> Result<Vec<Sample>> {
    let started = Instant::now();
    let mut client = Client::new(server.target());
    let mut samples: Vec<Sample> = Vec::new();
    let every = options.sample_every();
    let mut due = every;
    while due <= options.duration && !watch.end.load(Relaxed) {
        watch.rest(due.saturating_sub(started.elapsed()));
        due += every;
        if watch.end.load(Relaxed) {
            break;
        }
        let (rows, lsn) = contents(&mut client)?;
        let (longest_ms, longest) = watch.longest();
        let sample = Sample {
            at_s: started.elapsed().as_secs_f64(),
            rows,
            lsn,
            statements: watch.statements.load(Relaxed),
            refused: watch.refused.load(Relaxed),
            wrong: watch.wrong.load(Relaxed),
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
fn contents(client: &mut Client) -> Result<(u64, u64)> {
    let listed = client.json("GET", "/v1/tables", None)?;
    let tables = listed["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = tables.iter().filter_map(|table| wire::whole(&table["rows"])).sum();
    Ok((rows, wire::whole(&listed["lsn"]).unwrap_or_default()))
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn line(sample: &Sample, before: Option<&Sample>) -> String {
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
type Figure = (&'static str, fn(&Sample) -> u64, Tolerance, bool);

const FIGURES: [Figure; 8] = {
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
pub fn growths(samples: &[Sample]) -> Vec<Growth> {
    let judged = FIGURES.iter().map(|(name, value, tolerance, _)| {
        let series: Vec<(f64, f64)> = samples.iter().map(|s| (s.at_s, value(s) as f64)).collect();
        judge(name, &series, *tolerance)
    });
    judged.collect()
}

/// Adds the samples and the verdicts on them to the report.
fn told(options: &Options, samples: &[Sample], report: &mut Report) {
    let mut rows = Vec::new();
    for (growth, (.., is_bytes)) in growths(samples).into_iter().zip(FIGURES) {
        let shown = |value: f64| match is_bytes {
            true => format!("{:.1} MiB", value / f64::from(1 << 20)),
            false => format!("{value:.0}"),
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
                    grown_part(&growth.name, samples)
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
fn grown_part(figure: &str, samples: &[Sample]) -> String {
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
    fn hour(leak: fn(&mut Sample, u64)) -> Vec<Sample> {
        let minutes = (1..=60).map(|minute| {
            let tooth = minute % 6;
            let mut sample = Sample {
                at_s: minute as f64 * 60.0,
                anonymous_bytes: (180 + tooth) << 20,
                resident_bytes: (260 + 3 * tooth) << 20,
                handles: 60 + tooth,
                mappings: 500 + 20 * tooth,
                threads: 30 + tooth % 2,
                files: 200 + 10 * tooth,
                bytes: (60 + tooth) << 20,
                rows: 40_000 + 100 * tooth,
                ..Sample::default()
            };
            leak(&mut sample, minute);
            sample
        });
        minutes.collect()
    }

    #[test]
    fn each_figure_that_leaks_is_named_and_no_other() {
        type Grow = fn(&mut Sample, u64);
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
            told(&options, &hour(leak), &mut report);
            let said = report.verdict().expect_err("a leak fails the run").to_string();
            assert!(said.contains(name) && said.contains("grew"), "{said}");
        }
    }

    #[test]
    fn a_short_soak_tells_and_does_not_judge() {
        let options = Options::new(child::Options::new("polynya")).lasting(Duration::from_secs(60));
        assert!(options.size.orders < Size::default().orders);
        let mut report = Report::new("soak", 1);
        told(&options, &hour(|s, minute| s.handles += minute), &mut report);
        report.verdict().expect("nothing is judged");
        assert!(report.to_markdown().contains("too short to say"), "{}", report.to_markdown());
    }
}
