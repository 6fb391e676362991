//! `polynya storm`: checks that nothing freezes and nothing is lost when everything happens at once.
//!
//! The storm starts a server on a directory of its own. For a quiet minute readers request rows, SQL, searches, pages and answers
//! to questions, at times that are fixed in advance. Then the same readers continue at the same pace beside everything else:
//! events arrive at the configured rate, a text index is rebuilt from nothing again and again, every page is rendered again and
//! again, rows are replaced, and the server seals, merges and commits to the lake by itself. Then the server is killed with
//! SIGKILL under load and restarted, and everything that was acknowledged must be there, in SQL and in the lake.
//!
//! Every answer is checked (`expect`). Each check is a statement that must hold whatever happens at the same time, such as *not
//! older than the acknowledged version at the time of the request*. Latency counts from the moment at which a request should have
//! been sent, so a stall is charged to every request that it delayed.
//!
//! Reading order: `options`, `corpus` (the data), `ledger` (the record of sent and acknowledged data), `expect` and `readers`,
//! `writers`, `disturb`, `verify` (after the kill), `outcome`.

mod clock;
mod corpus;
mod disturb;
mod expect;
mod gauge;
mod ledger;
mod options;
mod outcome;
mod prepare;
mod readers;
mod room;
mod verify;
mod world;
mod writers;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::{Error, Kind as ErrorKind, Result};

pub use disturb::{Background, Stalls};
pub use gauge::KindSecond;
pub use options::{Force, Options, Rates, Size};
pub use outcome::{KindOutcome, Outcome};
pub use verify::{LakeTable, Verified};

use crate::child::{Home, Server};
use crate::http::Client;
use crate::load::{Load, Stream};
use crate::run::{Run, Timing};
use crate::target::Target;
use clock::Clock;
use disturb::Done;
use world::World;

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
pub enum Told {
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
pub type Tell<'a> = &'a mut dyn FnMut(&Told);

/// Runs a storm from an empty directory. Whatever happens, the server is ended and its directory removed, unless the options keep
/// it. Setting `stop` ends the storm within a second or two, with an error.
///
/// Wrong, refused and lost answers are in the [`Outcome`]; an error means that there is no outcome.
pub fn run(options: &Options, stop: &AtomicBool, tell: Tell<'_>) -> Result<Outcome> {
    room::check(&options.child.root, options, None)?;
    let mut home = Home::new(options.child.clone())?;
    let outcome = {
        let mut storm = Storm {
            options,
            stop,
            tell,
            world: World::new(options.seed, &options.size),
            done: Done::default(),
            events_before: 0,
        };
        storm.all(&mut home)
    };
    if options.keep {
        let directory = home.keep();
        return match outcome {
            Ok(outcome) => Ok(Outcome { kept: Some(directory), ..outcome }),
            Err(error) => Err(error.with("directory", directory.display())),
        };
    }
    outcome
}

struct Storm<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    tell: Tell<'a>,
    world: World,
    done: Done,
    /// Batches acknowledged before the storm phase.
    events_before: u64,
}

/// The workloads that run in a phase.
struct Cast<'a> {
    readers: bool,
    /// The writers of events if there are any, with their rate in events per second if it is limited.
    events: Option<Option<f64>>,
    /// The writers of notes, indexes and everything else, with the folder of the notes.
    disturbance: Option<&'a Path>,
}

impl Storm<'_> {
    fn all(&mut self, home: &mut Home) -> Result<Outcome> {
        let options = self.options;
        let mut outcome = Outcome::new(options);
        let folder = prepare::settings(home, options.storm)?;
        self.say(Phase::Prepare, "starting a server and filling it", None);
        prepare::notes(&self.world, &folder)?;
        let mut server = home.start()?;
        let target = server.target().clone();
        let mut client = Client::new(&target);
        self.fill(&mut client, &target, &mut outcome)?;

        let seconds = options.quiet.as_secs_f64();
        self.say(Phase::Quiet, "readers alone", Some(seconds));
        let warm = Duration::from_secs(2).min(options.quiet / 2);
        let quiet = Cast { readers: true, events: None, disturbance: None };
        outcome.quiet = self.loaded(Phase::Quiet, &target, warm, options.quiet, &quiet)?;

        self.say(Phase::Storm, "the same readers beside everything else", Some(options.storm.as_secs_f64()));
        self.events_before = self.world.ledger.events.acknowledged();
        let rate = writers::rate(options.force, outcome.alone_events_per_s);
        let storm = Cast { readers: true, events: Some(rate), disturbance: Some(&folder) };
        // Discards the latencies of the quiet minute.
        drop(self.world.gauges.questions());
        outcome.storm = self.loaded(Phase::Storm, &target, Duration::ZERO, options.storm, &storm)?;
        outcome.background = self.done.now();
        outcome.stalls = self.done.stalls();
        self.judge(&mut outcome);

        if outcome.failures.is_empty() {
            self.say(Phase::Kill, "writing on, then kill -9", None);
            self.kill(&mut server, &target)?;
            server = home.start()?;
            outcome.verified.ready_after_ms = server.ready_after().as_secs_f64() * 1e3;
            let text = format!(
                "ready again after {:.0} ms; looking for everything",
                outcome.verified.ready_after_ms
            );
            self.say(Phase::Verify, &text, None);
            self.verify(&server, home, &mut outcome)?;
        }
        outcome.finish();
        if let Err(error) = server.stop(options.child.stop_within) {
            outcome.failures.push(error.message().to_owned());
        }
        Ok(outcome)
    }

    fn say(&mut self, phase: Phase, text: &str, seconds: Option<f64>) {
        (self.tell)(&Told::Phase { phase, text: text.to_owned(), seconds });
    }

    /// Returns an error if the caller wants the storm to end.
    fn go_on(&self) -> Result<()> {
        go_on(self.stop)
    }

    fn fill(&mut self, client: &mut Client, target: &Target, outcome: &mut Outcome) -> Result<()> {
        let size = &self.options.size;
        prepare::tables(client, &self.world, size, self.stop)?;
        let text = format!("measuring how much this machine takes in alone, for {:?}", size.calibrate);
        self.say(Phase::Prepare, &text, Some(size.calibrate.as_secs_f64()));
        let alone = Cast { readers: false, events: Some(None), disturbance: None };
        let run = self.loaded(Phase::Prepare, target, Duration::ZERO, size.calibrate, &alone)?;
        if let Some(failure) = run.failures.first() {
            return Err(Error::invalid(format!("filling the tables failed: {failure}")));
        }
        outcome.alone_events_per_s = run.stream(EVENTS).units_per_second;
        room::check(&self.options.child.root, self.options, Some(outcome.alone_events_per_s))?;
        let text = format!(
            "{:.0} events a second alone; waiting until nothing is behind",
            outcome.alone_events_per_s
        );
        self.say(Phase::Prepare, &text, None);
        prepare::settle(client, &self.world, self.stop)
    }

    /// Runs one load and reports its progress.
    fn loaded(
        &mut self,
        phase: Phase,
        target: &Target,
        warm: Duration,
        measure: Duration,
        cast: &Cast<'_>,
    ) -> Result<Run> {
        let timing = Timing { warm, measure, grace: Duration::from_secs(15) };
        let (halt, end) = (AtomicBool::new(false), AtomicBool::new(false));
        let (world, done, options, stop) = (&self.world, &self.done, self.options, self.stop);
        let (tell, before) = (&mut *self.tell, self.events_before);
        let run = thread::scope(|scope| {
            let mut beside = Vec::new();
            if let Some(folder) = cast.disturbance {
                let end = &end;
                beside.push(scope.spawn(move || disturb::index(target, done, end)));
                beside.push(scope.spawn(move || disturb::notes(target, folder, world, done, end)));
                beside.push(scope.spawn(move || disturb::follow(target, done, end)));
            }
            let halt = &halt;
            let load = scope.spawn(move || -> Result<Run> {
                let mut streams: Vec<Stream<'_>> = Vec::new();
                if cast.readers {
                    streams.extend(readers::streams(world, target));
                }
                if let Some(rate) = cast.events {
                    streams.push(writers::events(world, target, options.size.writers, rate));
                }
                if cast.disturbance.is_some() {
                    streams.extend(writers::others(world, target));
                }
                let load = Load::new(target, timing).interrupt(halt);
                streams.into_iter().fold(load, Load::stream).run(phase.name())
            });
            let mut clock = Clock::new(before, world);
            let mut short_of_room = None;
            while !load.is_finished() {
                thread::sleep(Duration::from_millis(20));
                let failed = beside.iter().any(thread::ScopedJoinHandle::is_finished);
                if stop.load(Relaxed) || failed {
                    halt.store(true, Relaxed);
                }
                if cast.readers
                    && let Some(second) = clock.tick(phase, world, done, before)
                {
                    tell(&Told::Second(second));
                }
                if let Err(error) = clock.room(&options.child.root) {
                    halt.store(true, Relaxed);
                    short_of_room = Some(error);
                }
            }
            end.store(true, Relaxed);
            let run = load.join().map_err(|_| Error::internal("the load panicked"));
            for thread in beside {
                thread.join().map_err(|_| Error::internal("a thread beside the load panicked"))??;
            }
            short_of_room.map_or(run, Err)?
        });
        go_on(stop)?;
        run
    }

    /// Collects the failures of the runs and the figures of each kind of request.
    fn judge(&self, outcome: &mut Outcome) {
        for run in [&outcome.quiet, &outcome.storm] {
            outcome.failures.extend(run.failures.iter().map(|why| format!("{}: {why}", run.name)));
        }
        let batch = self.world.events.batch() as u64;
        outcome.events = (self.world.ledger.events.acknowledged() - self.events_before) * batch;
        outcome.examples = self.world.gauges.examples();
        outcome.kinds = Kind::ALL
            .into_iter()
            .zip(self.world.gauges.questions())
            .map(|(kind, questions)| {
                let [_, refused, wrong] = self.world.gauges.of(kind).totals();
                let [quiet, storm] = [&outcome.quiet, &outcome.storm].map(|run| run.stream(kind.name()));
                KindOutcome {
                    kind,
                    per_second: self.world.rate(kind),
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
    fn kill(&mut self, server: &mut Server, target: &Target) -> Result<()> {
        let killing = AtomicBool::new(false);
        let (world, stop) = (&self.world, self.stop);
        let (killed, writers) = thread::scope(|scope| {
            let killing = &killing;
            let writers: Vec<_> = (0..self.options.size.writers)
                .map(|_| scope.spawn(move || verify::write_until_killed(world, target, killing)))
                .collect();
            disturb::rest(self.options.kill_after, stop);
            killing.store(true, Relaxed);
            let killed = server.kill();
            (killed, writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>())
        });
        killed?;
        for writer in writers {
            writer.map_err(|_| Error::internal("a writer panicked"))??;
        }
        self.go_on()
    }

    fn verify(&mut self, server: &Server, home: &Home, outcome: &mut Outcome) -> Result<()> {
        let check = verify::Check {
            world: &self.world,
            target: server.target(),
            program: &self.options.child.program,
            directory: home.directory(),
            stop: self.stop,
        };
        let tell = &mut *self.tell;
        let mut say = |text: String| tell(&Told::Phase { phase: Phase::Verify, text, seconds: None });
        check.all(&mut outcome.verified, &mut say)
    }
}

fn go_on(stop: &AtomicBool) -> Result<()> {
    match stop.load(Relaxed) {
        true => {
            Err(Error::new(ErrorKind::Closed, "the storm was stopped; its server and its directory are gone"))
        }
        false => Ok(()),
    }
}
