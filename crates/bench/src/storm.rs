//! `polynya storm`: checks that nothing freezes and nothing is lost when everything happens at once.
//!
//! The storm starts a server on a directory of its own. For a quiet minute readers request rows, SQL, searches, pages and answers
//! to questions, at times that are fixed in advance. Then the same readers continue at the same pace beside everything else:
//! events arrive at the configured rate, a text index is rebuilt from nothing again and again, every page is rendered again and
//! again, rows are replaced, and the server seals, merges and commits to the lake by itself. Then the server is killed with
//! SIGKILL under load and restarted, and everything that was acknowledged must be there, in SQL and in the lake.
//!
//! Every answer is checked (`expectation`). Each check is a statement that must hold whatever happens at the same time, such as
//! *not older than the acknowledged version at the time of the request*. Latency counts from the moment at which a request should
//! have been sent, so a stall is charged to every request that it delayed.
//!
//! Reading order: `options`, `corpus` (the data), `ledger` (the record of sent and acknowledged data), `expectation` and
//! `readers`, `writers`, `background`, `verify` (after the kill), `outcome`.

mod background;
mod clock;
mod corpus;
mod disk_space;
mod expectation;
mod gauge;
mod ledger;
mod options;
mod outcome;
mod prepare;
mod readers;
mod state;
mod verify;
mod writers;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::{Error, Kind as ErrorKind, Result};

pub use background::{Background, Stalls};
pub use gauge::KindSecond;
pub use options::{EventRate, Options, Rates, Size};
pub use outcome::{KindOutcome, StormOutcome};
pub use verify::{LakeTable, Verification};

use crate::child::{Home, ServerProcess};
use crate::http::HttpClient;
use crate::load::{Load, LoadStream};
use crate::run::{BenchRun, Timing};
use crate::target::LoadTarget;
use background::BackgroundCounters;
use clock::PhaseClock;
use state::StormState;

pub(crate) const EVENTS: &str = "events";
pub(crate) const READINGS: &str = "readings";
pub(crate) const ARTICLES: &str = "articles";
pub(crate) const ARCHIVE: &str = "archive";

/// A kind of request that readers send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    #[default]
    Rows,
    Sql,
    Search,
    Pages,
    Ask,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Rows, Kind::Sql, Kind::Search, Kind::Pages, Kind::Ask];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Rows => "rows",
            Kind::Sql => "sql",
            Kind::Search => "search",
            Kind::Pages => "pages",
            Kind::Ask => "ask",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The phases of a storm, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Fills the tables, writes the notes, and measures the throughput of the idle machine.
    #[default]
    Prepare,
    /// Runs the readers alone.
    Quiet,
    /// Runs the readers beside everything else.
    Storm,
    /// Kills the server with SIGKILL under load and restarts it.
    Kill,
    /// Checks that everything acknowledged is there.
    Verify,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Prepare => "prepare",
            Phase::Quiet => "quiet",
            Phase::Storm => "storm",
            Phase::Kill => "kill",
            Phase::Verify => "verify",
        }
    }
}

/// A progress report of a running storm.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "lowercase")]
pub enum StormProgress {
    /// The start of a phase, or of a part of one.
    Phase {
        phase: Phase,
        text: String,
        /// The expected duration, if it is known.
        seconds: Option<f64>,
    },
    Second(Second),
}

/// One second of a phase with readers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    pub phase: Phase,
    /// Seconds since the start of the phase.
    pub at_s: f64,
    /// Events acknowledged since the storm began.
    pub events: u64,
    pub events_per_s: f64,
    pub background: Background,
    pub kinds: Vec<KindSecond>,
}

/// Receives the progress reports.
pub type ProgressSink<'a> = &'a mut dyn FnMut(&StormProgress);

/// Runs a storm from an empty directory. Whatever happens, the server is ended and its directory removed, unless the options keep
/// it. Setting `stop` ends the storm within a second or two, with an error.
///
/// Wrong, refused and lost answers are in the [`StormOutcome`]; an error means that there is no outcome.
pub fn run(options: &Options, stop: &AtomicBool, progress: ProgressSink<'_>) -> Result<StormOutcome> {
    disk_space::check(&options.child.root, options, None)?;
    let mut home = Home::new(options.child.clone())?;
    let outcome = {
        let mut storm = Storm {
            options,
            stop,
            progress,
            state: StormState::new(options.seed, &options.size),
            counters: BackgroundCounters::default(),
            events_before: 0,
        };
        storm.run_phases(&mut home)
    };
    if options.keep {
        let directory = home.keep();
        return match outcome {
            Ok(outcome) => Ok(StormOutcome { kept: Some(directory), ..outcome }),
            Err(error) => Err(error.with("directory", directory.display())),
        };
    }
    outcome
}

struct Storm<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    progress: ProgressSink<'a>,
    state: StormState,
    counters: BackgroundCounters,
    /// Batches acknowledged before the storm phase.
    events_before: u64,
}

/// The workloads that run in a phase.
struct PhaseWorkload<'a> {
    readers: bool,
    /// The writers of events if there are any, with their rate in events per second if it is limited.
    events: Option<Option<f64>>,
    /// The writers of notes, indexes and everything else, with the folder of the notes.
    background: Option<&'a Path>,
}

impl Storm<'_> {
    fn run_phases(&mut self, home: &mut Home) -> Result<StormOutcome> {
        let options = self.options;
        let mut outcome = StormOutcome::new(options);
        let folder = prepare::configure(home, options.storm)?;
        self.report(Phase::Prepare, "starting a server and filling it", None);
        prepare::write_notes(&self.state, &folder)?;
        let mut server = home.start()?;
        let target = server.target().clone();
        let mut client = HttpClient::new(&target);
        self.fill(&mut client, &target, &mut outcome)?;

        let seconds = options.quiet.as_secs_f64();
        self.report(Phase::Quiet, "readers alone", Some(seconds));
        let warm = Duration::from_secs(2).min(options.quiet / 2);
        let quiet = PhaseWorkload { readers: true, events: None, background: None };
        outcome.quiet = self.run_load(Phase::Quiet, &target, warm, options.quiet, &quiet)?;

        self.report(
            Phase::Storm,
            "the same readers beside everything else",
            Some(options.storm.as_secs_f64()),
        );
        self.events_before = self.state.ledger.events.acknowledged();
        let rate = writers::rate(options.event_rate, outcome.alone_events_per_s);
        let storm = PhaseWorkload { readers: true, events: Some(rate), background: Some(&folder) };
        // Discards the latencies of the quiet minute.
        drop(self.state.gauges.questions());
        outcome.storm = self.run_load(Phase::Storm, &target, Duration::ZERO, options.storm, &storm)?;
        outcome.background = self.counters.snapshot();
        outcome.stalls = self.counters.stalls();
        self.judge(&mut outcome);

        if outcome.failures.is_empty() {
            self.report(Phase::Kill, "writing on, then kill -9", None);
            self.kill(&mut server, &target)?;
            server = home.start()?;
            outcome.verified.ready_after_ms = server.ready_after().as_secs_f64() * 1e3;
            let text = format!(
                "ready again after {:.0} ms; looking for everything",
                outcome.verified.ready_after_ms
            );
            self.report(Phase::Verify, &text, None);
            self.verify(&server, home, &mut outcome)?;
        }
        outcome.finish();
        if let Err(error) = server.stop(options.child.stop_within) {
            outcome.failures.push(error.message().to_owned());
        }
        Ok(outcome)
    }

    fn report(&mut self, phase: Phase, text: &str, seconds: Option<f64>) {
        (self.progress)(&StormProgress::Phase { phase, text: text.to_owned(), seconds });
    }

    /// Returns an error if the caller wants the storm to end.
    fn check_stop(&self) -> Result<()> {
        check_stop(self.stop)
    }

    fn fill(
        &mut self,
        client: &mut HttpClient,
        target: &LoadTarget,
        outcome: &mut StormOutcome,
    ) -> Result<()> {
        let size = &self.options.size;
        prepare::create_tables(client, &self.state, size, self.stop)?;
        let text = format!("measuring how much this machine takes in alone, for {:?}", size.calibrate);
        self.report(Phase::Prepare, &text, Some(size.calibrate.as_secs_f64()));
        let alone = PhaseWorkload { readers: false, events: Some(None), background: None };
        let run = self.run_load(Phase::Prepare, target, Duration::ZERO, size.calibrate, &alone)?;
        if let Some(failure) = run.failures.first() {
            return Err(Error::invalid(format!("filling the tables failed: {failure}")));
        }
        outcome.alone_events_per_s = run.stream(EVENTS).units_per_second;
        disk_space::check(&self.options.child.root, self.options, Some(outcome.alone_events_per_s))?;
        let text = format!(
            "{:.0} events a second alone; waiting until nothing is behind",
            outcome.alone_events_per_s
        );
        self.report(Phase::Prepare, &text, None);
        prepare::settle(client, &self.state, self.stop)
    }

    /// Runs one load and reports its progress.
    fn run_load(
        &mut self,
        phase: Phase,
        target: &LoadTarget,
        warm: Duration,
        measure: Duration,
        workload: &PhaseWorkload<'_>,
    ) -> Result<BenchRun> {
        let timing = Timing { warm, measure, grace: Duration::from_secs(15) };
        let (halt, end) = (AtomicBool::new(false), AtomicBool::new(false));
        let (state, counters, options, stop) = (&self.state, &self.counters, self.options, self.stop);
        let (progress, before) = (&mut *self.progress, self.events_before);
        let run = thread::scope(|scope| {
            let mut side_threads = Vec::new();
            if let Some(folder) = workload.background {
                let end = &end;
                side_threads.push(scope.spawn(move || background::rebuild_index(target, counters, end)));
                side_threads.push(
                    scope.spawn(move || background::rewrite_notes(target, folder, state, counters, end)),
                );
                side_threads.push(scope.spawn(move || background::follow_metrics(target, counters, end)));
            }
            let halt = &halt;
            let load = scope.spawn(move || -> Result<BenchRun> {
                let mut streams: Vec<LoadStream<'_>> = Vec::new();
                if workload.readers {
                    streams.extend(readers::streams(state, target));
                }
                if let Some(rate) = workload.events {
                    streams.push(writers::events(state, target, options.size.writers, rate));
                }
                if workload.background.is_some() {
                    streams.extend(writers::others(state, target));
                }
                let load = Load::new(target, timing).interrupt(halt);
                streams.into_iter().fold(load, Load::stream).run(phase.name())
            });
            let mut clock = PhaseClock::new(before, state);
            let mut short_of_room = None;
            while !load.is_finished() {
                thread::sleep(Duration::from_millis(20));
                let failed = side_threads.iter().any(thread::ScopedJoinHandle::is_finished);
                if stop.load(Relaxed) || failed {
                    halt.store(true, Relaxed);
                }
                if workload.readers
                    && let Some(second) = clock.tick(phase, state, counters, before)
                {
                    progress(&StormProgress::Second(second));
                }
                if let Err(error) = clock.check_disk_space(&options.child.root) {
                    halt.store(true, Relaxed);
                    short_of_room = Some(error);
                }
            }
            end.store(true, Relaxed);
            let run = load.join().map_err(|_| Error::internal("the load panicked"));
            for thread in side_threads {
                thread.join().map_err(|_| Error::internal("a thread beside the load panicked"))??;
            }
            short_of_room.map_or(run, Err)?
        });
        check_stop(stop)?;
        run
    }

    /// Collects the failures of the runs and the figures of each kind of request.
    fn judge(&self, outcome: &mut StormOutcome) {
        for run in [&outcome.quiet, &outcome.storm] {
            outcome.failures.extend(run.failures.iter().map(|why| format!("{}: {why}", run.name)));
        }
        let batch = self.state.events.batch() as u64;
        outcome.events = (self.state.ledger.events.acknowledged() - self.events_before) * batch;
        outcome.examples = self.state.gauges.examples();
        outcome.kinds = Kind::ALL
            .into_iter()
            .zip(self.state.gauges.questions())
            .map(|(kind, questions)| {
                let [_, refused, wrong] = self.state.gauges.gauge(kind).totals();
                let [quiet, storm] = [&outcome.quiet, &outcome.storm].map(|run| run.stream(kind.name()));
                KindOutcome {
                    kind,
                    per_second: self.state.rate(kind),
                    quiet: quiet.warm,
                    storm: storm.warm,
                    questions,
                    unsent: quiet.unsent + storm.unsent,
                    refused,
                    wrong,
                }
            })
            .collect();
    }

    /// Writes at full speed and kills the server meanwhile.
    fn kill(&mut self, server: &mut ServerProcess, target: &LoadTarget) -> Result<()> {
        let killing = AtomicBool::new(false);
        let (state, stop) = (&self.state, self.stop);
        let (killed, writers) = thread::scope(|scope| {
            let killing = &killing;
            let writers: Vec<_> = (0..self.options.size.writers)
                .map(|_| scope.spawn(move || verify::write_until_killed(state, target, killing)))
                .collect();
            background::sleep(self.options.kill_after, stop);
            killing.store(true, Relaxed);
            let killed = server.kill();
            (killed, writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>())
        });
        killed?;
        for writer in writers {
            writer.map_err(|_| Error::internal("a writer panicked"))??;
        }
        self.check_stop()
    }

    fn verify(&mut self, server: &ServerProcess, home: &Home, outcome: &mut StormOutcome) -> Result<()> {
        let verifier = verify::Verifier {
            state: &self.state,
            target: server.target(),
            program: &self.options.child.program,
            directory: home.directory(),
            stop: self.stop,
        };
        let progress = &mut *self.progress;
        let mut report =
            |text: String| progress(&StormProgress::Phase { phase: Phase::Verify, text, seconds: None });
        verifier.run(&mut outcome.verified, &mut report)
    }
}

fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Relaxed) {
        return Err(Error::new(
            ErrorKind::Closed,
            "the storm was stopped; its server and its directory are gone",
        ));
    }
    Ok(())
}
