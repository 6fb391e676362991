//! `polynya storm`: runs the storm workload and reports whether anything froze or was lost.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bench::Summary;
use bench::child;
use bench::storm::{self, EventRate, Second, StormOutcome, StormProgress};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use types::{Error, Result};

use crate::config::Config;
use crate::output::{self, Table};
use crate::units::grouped;

#[derive(Debug, Args)]
#[command(
    long_about = "Does anything freeze, and is anything lost, when everything happens at once? Starts a server of its own on a \
                  directory of its own (below --root; there must be room, and it is removed afterwards), asks it for rows, SQL, \
                  searches, pages and answers for a quiet minute, and then for a minute in which events come in at full speed, \
                  a text index is built from nothing, tables are sealed, merged and land in the lake, and every page is rendered \
                  anew. Then that server is killed with -9 and started again, and every acknowledged event must be there, in SQL \
                  and in the lake. Every answer is checked. Ctrl-C ends it and leaves nothing behind.",
    after_help = "Examples:\n  polynya storm\n  polynya storm --load half              the load under which the limits are promised\n  \
                  polynya storm --seconds 10 --quiet-seconds 10 --scale 0.1\n  polynya storm --json > storm.ndjson"
)]
pub struct Options {
    /// Seconds that the storm lasts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Seconds of quiet before it, with readers only
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    quiet_seconds: u64,
    /// Rate of events: full (as fast as they are acknowledged), half (of this machine's rate without readers), or events a second
    #[arg(long, value_name = "full|half|N", default_value = "full", value_parser = parse_load)]
    load: EventRate,
    /// Fraction of the usual number of rows, notes and questions, for a quick look
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Directory in which the server's own directory is made
    #[arg(long, default_value = ".", value_name = "DIR")]
    root: PathBuf,
    /// Do not remove the directory afterwards
    #[arg(long)]
    keep: bool,
    /// Seed of all generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object a line: phases, seconds, and at the end the outcome
    #[arg(long)]
    json: bool,
    /// End when standard input ends, which means that the parent process is gone
    #[arg(long, hide = true)]
    attached: bool,
}

fn parse_load(text: &str) -> std::result::Result<EventRate, String> {
    match text {
        "full" => Ok(EventRate::Full),
        "half" => Ok(EventRate::Half),
        _ => {
            let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 1.0);
            rate.map(EventRate::PerSecond).ok_or_else(|| {
                format!("`{text}` is not full, half, or a number of events a second from 1 on")
            })
        }
    }
}

fn parse_scale(text: &str) -> std::result::Result<f64, String> {
    let part = text.parse().ok().filter(|part: &f64| *part > 0.0 && *part <= 100.0);
    part.ok_or_else(|| format!("`{text}` is not a number above 0 and up to 100"))
}

pub fn run(_: &Config, options: &Options) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop, options.attached)?;
    let program = std::env::current_exe().map_err(|error| Error::io("finding this program", error))?;
    let mut child = child::Options::new(program);
    // The server must not outlive this process, even if this process is killed.
    child.args.insert(1, "--with-parent".into());
    child.root.clone_from(&options.root);
    let mut wanted = storm::Options::new(child);
    wanted.storm = Duration::from_secs(options.seconds);
    wanted.quiet = Duration::from_secs(options.quiet_seconds);
    wanted.event_rate = options.load;
    wanted.size = wanted.size.scaled(options.scale);
    wanted.keep = options.keep;
    wanted.seed = options.seed;

    let mut screen = Screen { json: options.json, bar: None, stop: stop.clone() };
    let outcome = storm::run(&wanted, &stop, &mut |told| screen.show(told));
    screen.end();
    match outcome {
        Ok(outcome) => {
            if options.json {
                screen.line(
                    &json!({ "told": "outcome", "last_line": outcome.last_line(), "outcome": outcome }),
                );
            } else {
                output::print(&report(&outcome));
            }
            match outcome.verdict() {
                Ok(()) => Ok(ExitCode::SUCCESS),
                Err(error) => {
                    eprintln!("polynya: {error}");
                    Ok(ExitCode::FAILURE)
                }
            }
        }
        Err(error) => {
            if options.json {
                screen
                    .line(&json!({ "told": "error", "message": error.message(), "hint": error.hint_text() }));
            }
            Err(error)
        }
    }
}

/// Starts the threads that stop the storm in an orderly way: after a signal, and with `attached` when the parent process
/// is gone. A second signal exits at once; the server then ends too, and the directory stays.
fn listen(stop: &Arc<AtomicBool>, attached: bool) -> Result<()> {
    let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .map(drop)
            .map_err(|error| Error::io("starting a thread", error))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("starting threads", error))?;
    let (mut interrupted, mut terminated) = {
        let _inside = runtime.enter();
        let handler = |kind| signal(kind).map_err(|error| Error::io("listening for signals", error));
        (handler(SignalKind::interrupt())?, handler(SignalKind::terminate())?)
    };
    let told = stop.clone();
    let signals = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
                if told.swap(true, Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    };
    thread("signals", Box::new(signals))?;
    if attached {
        let told = stop.clone();
        let until_gone = move || {
            // The parent writes nothing to the pipe; an error counts as its end too.
            let _ = std::io::copy(&mut std::io::stdin().lock().take(1 << 20), &mut std::io::sink());
            told.store(true, Relaxed);
        };
        thread("attached", Box::new(until_gone))?;
    }
    Ok(())
}

/// Shows the progress of a storm: as a bar and lines of text, or as lines of JSON.
struct Screen {
    json: bool,
    bar: Option<ProgressBar>,
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// Prints a line of JSON. Stops the storm if the reader has closed the pipe.
    fn line(&self, value: &serde_json::Value) {
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{value}").and_then(|()| out.flush()).is_err() {
            self.stop.store(true, Relaxed);
        }
    }

    fn show(&mut self, told: &StormProgress) {
        if self.json {
            self.line(&json!(told));
            return;
        }
        match told {
            StormProgress::Phase { phase, text, seconds } => {
                self.end();
                eprintln!("{:8} {text}", phase.name());
                if let Some(seconds) = seconds.filter(|_| std::io::stderr().is_terminal()) {
                    let bar = ProgressBar::new(seconds.ceil() as u64);
                    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos:>3}/{len} s  {msg}") {
                        bar.set_style(style);
                    }
                    self.bar = Some(bar);
                }
            }
            StormProgress::Second(second) => match &self.bar {
                Some(bar) => {
                    bar.set_position(second.at_s.round() as u64);
                    bar.set_message(second_line(second));
                }
                None if (second.at_s.round() as u64).is_multiple_of(10) => {
                    eprintln!("         {}", second_line(second))
                }
                None => {}
            },
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        // Messages on standard error precede the result on standard output.
        let _ = std::io::stderr().flush();
    }
}

/// Formats the counts of one second as one line.
fn second_line(second: &Second) -> String {
    let longest = second.kinds.iter().map(|kind| kind.longest_ms).fold(0.0, f64::max);
    let wrong: u64 = second.kinds.iter().map(|kind| kind.wrong + kind.refused).sum();
    format!(
        "{:.0} s: {} events/s, {} rows indexed, {} pages rendered, longest read {longest:.1} ms, {wrong} refused or wrong",
        second.at_s,
        grouped(second.events_per_s as u64),
        grouped(second.background.rows_indexed),
        grouped(second.background.pages_rewritten),
    )
}

/// Formats the outcome for a terminal: the readers' latencies, the background work, the claims, and the last line.
fn report(outcome: &StormOutcome) -> String {
    let titles =
        ["kind", "per s", "quiet p50", "p99", "longest", "storm p50", "p99", "longest", "refused", "wrong"];
    let mut table = Table::new(titles).right(|title| title != "kind");
    for kind in &outcome.kinds {
        let ms = |value: f64| format!("{value:.2}");
        let [quiet, storm] = [&kind.quiet, &kind.storm];
        table.push([
            kind.kind.name().to_owned(),
            format!("{:.0}", kind.per_second),
            ms(quiet.p50_ms),
            ms(quiet.p99_ms),
            ms(quiet.longest_ms),
            ms(storm.p50_ms),
            ms(storm.p99_ms),
            ms(storm.longest_ms),
            grouped(kind.refused),
            grouped(kind.wrong),
        ]);
    }
    let (before, beside) = (&outcome.quiet.hiccups.late, &outcome.storm.hiccups.late);
    table.push([
        "sleeper".to_owned(),
        String::new(),
        format!("{:.2}", before.p50_ms),
        format!("{:.2}", before.p99_ms),
        format!("{:.2}", before.longest_ms),
        format!("{:.2}", beside.p50_ms),
        format!("{:.2}", beside.p99_ms),
        format!("{:.2}", beside.longest_ms),
        String::new(),
        String::new(),
    ]);
    let background = &outcome.background;
    let mut text = table.render();
    text.push_str("\nTimes in ms, from the moment at which each question was due. The sleeper is a thread that only sleeps: what it met, the machine did.\n\n");
    text.push_str(&format!(
        "Load {}: {} events a second ({} alone). Meanwhile {} seals, {} merges, {} commits to the lake, {} text indexes built, {} pages rendered in {} rounds, the slowest live after {:.1} s.\n",
        outcome.load,
        grouped(outcome.events_per_s() as u64),
        grouped(outcome.alone_events_per_s as u64),
        background.seals,
        background.merges,
        background.lake_commits,
        background.indexes_built,
        grouped(background.pages_rewritten),
        background.page_rounds,
        background.slowest_round_ms as f64 / 1e3,
    ));
    let busy = |run: &bench::BenchRun| run.hiccups.busy * 100.0;
    let server = outcome.storm.server.as_ref().map_or(0.0, |usage| usage.cpu_seconds);
    text.push_str(&format!(
        "{} cores, {:.0} % busy in the quiet time and {:.0} % in the storm; the server took {:.2} s of CPU a second, this program {:.2}. Other programs took {:.0} % of all cores.\n\n",
        outcome.machine.cores,
        busy(&outcome.quiet),
        busy(&outcome.storm),
        server / outcome.storm.seconds.max(1e-9),
        outcome.storm.client.cpu_seconds / outcome.storm.seconds.max(1e-9),
        outcome.storm.elsewhere * 100.0,
    ));
    let longest = |all: &std::collections::BTreeMap<String, f64>| {
        let mut all: Vec<_> = all.iter().filter(|(_, ms)| **ms >= 10.0).collect();
        all.sort_by(|a, b| b.1.total_cmp(a.1));
        let shown: Vec<String> = all.iter().take(6).map(|(name, ms)| format!("{name} {ms:.0} ms")).collect();
        if shown.is_empty() { "none reached 10 ms".to_owned() } else { shown.join(", ") }
    };
    text.push_str(&format!(
        "Longest turns of the server's threads: {}. Waits for locks, all together: {}.\n\n",
        longest(&outcome.stalls.turn_ms),
        longest(&outcome.stalls.lock_wait_ms),
    ));
    for kind in &outcome.kinds {
        let one = |(name, took): (&String, &Summary)| {
            format!("{name} {:.2} / {:.2} / {:.2}", took.p50_ms, took.p99_ms, took.longest_ms)
        };
        let questions: Vec<String> = kind.questions.iter().map(one).collect();
        text.push_str(&format!("{:6}  {}\n", kind.kind.name(), questions.join(", ")));
    }
    text.push_str("        p50 / p99 / longest of each question in the storm, in ms.\n\n");
    for claim in &outcome.claims {
        let word = if claim.holds { "holds " } else { "MISSED" };
        text.push_str(&format!("{word}  {}: {}\n", claim.claim, claim.found));
    }
    let wrong = outcome.failures.iter().chain(&outcome.verified.wrong).chain(&outcome.examples);
    for what in wrong {
        text.push_str(&format!("WRONG   {what}\n"));
    }
    if let Some(kept) = &outcome.kept {
        text.push_str(&format!("The directory is kept at {}.\n", kept.display()));
    }
    text.push_str(&format!("\n{}\n", outcome.last_line()));
    output::visible(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_word_or_a_number() {
        assert_eq!(parse_load("full"), Ok(EventRate::Full));
        assert_eq!(parse_load("half"), Ok(EventRate::Half));
        assert_eq!(parse_load("5e4"), Ok(EventRate::PerSecond(50_000.0)));
        for bad in ["", "0", "-5", "NaN", "inf", "quarter"] {
            assert!(parse_load(bad).is_err(), "{bad}");
        }
        assert!(parse_scale("0").is_err() && parse_scale("nan").is_err() && parse_scale("0.1").is_ok());
    }
}
