//! Background work of the server during the storm: a text index that is rebuilt from nothing again and again, and pages that are
//! all rendered again and again. This module also follows the server's seals, merges and lake commits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::{Error, Result};

use super::corpus;
use super::state::StormState;
use super::{ARCHIVE, EVENTS};
use crate::http::HttpClient;
use crate::target::LoadTarget;
use crate::wire;

const INDEX: &str = "archive_words";
/// Interval between polls of a state.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// Pause between two rounds over the pages.
const ROUND_PAUSE: Duration = Duration::from_secs(1);
/// Time within which a changed file must be live. An idle machine takes a second.
const LIVE_MAX: Duration = Duration::from_secs(60);

/// Counters of the background work.
#[derive(Debug, Default)]
pub(super) struct BackgroundCounters {
    /// Rows indexed by ended builds.
    indexed: AtomicU64,
    /// Rows indexed by the running build.
    indexing: AtomicU64,
    pub(super) indexes: AtomicU64,
    pub(super) rounds: AtomicU64,
    pub(super) pages: AtomicU64,
    pub(super) lake_commits: AtomicU64,
    pub(super) seals: AtomicU64,
    pub(super) merges: AtomicU64,
    /// Longest time from the start of a round until its last page was live.
    pub(super) slowest_round_ms: AtomicU64,
    stalls: Mutex<Stalls>,
}

/// The places where the server's threads were held up, by the server's own metrics. Look here first if a read took long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// The longest turn that each kind of thread took without yielding, in milliseconds.
    pub turn_ms: BTreeMap<String, f64>,
    /// Time that all threads together waited for each lock, in milliseconds.
    pub lock_wait_ms: BTreeMap<String, f64>,
}

/// The counters of the background work at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Background {
    pub rows_indexed: u64,
    /// Text indexes that were built completely from nothing.
    pub indexes_built: u64,
    /// Pages that were rewritten.
    pub pages_rewritten: u64,
    /// Rounds over all pages in which the last page was seen live.
    pub page_rounds: u64,
    /// Longest time from writing the first page of a round until the last one was live.
    pub slowest_round_ms: u64,
    /// Lake commits that were observed. Commits that follow each other within a fifth of a second count as one.
    pub lake_commits: u64,
    pub seals: u64,
    pub merges: u64,
}

impl BackgroundCounters {
    pub(super) fn snapshot(&self) -> Background {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Background {
            rows_indexed: get(&self.indexed) + get(&self.indexing),
            indexes_built: get(&self.indexes),
            pages_rewritten: get(&self.pages),
            page_rounds: get(&self.rounds),
            slowest_round_ms: get(&self.slowest_round_ms),
            lake_commits: get(&self.lake_commits),
            seals: get(&self.seals),
            merges: get(&self.merges),
        }
    }
}

impl BackgroundCounters {
    pub(super) fn stalls(&self) -> Stalls {
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Builds the index, drops it and builds it again, until `end`.
pub(super) fn rebuild_index(
    target: &LoadTarget,
    counters: &BackgroundCounters,
    end: &AtomicBool,
) -> Result<()> {
    let mut client = HttpClient::new(target);
    while !end.load(Relaxed) {
        let create = format!("CREATE INDEX {INDEX} ON {ARCHIVE} USING text (title, body)");
        wire::sql(&mut client, &create, json!([]))?;
        let rows = wire::count(&mut client, ARCHIVE)?;
        while !end.load(Relaxed) {
            let missing = missing(&mut client, ARCHIVE, "text")?;
            counters.indexing.store(rows.saturating_sub(missing.unwrap_or(rows)), Relaxed);
            if missing == Some(0) {
                break;
            }
            std::thread::sleep(POLL_EVERY);
        }
        let taken = counters.indexing.swap(0, Relaxed);
        counters.indexed.fetch_add(taken, Relaxed);
        if taken == rows {
            counters.indexes.fetch_add(1, Relaxed);
        }
        // The last index stays and must be intact after the kill.
        if !end.load(Relaxed) {
            wire::sql(&mut client, &format!("DROP INDEX {INDEX} ON {ARCHIVE}"), json!([]))?;
        }
    }
    Ok(())
}

/// Counts the row ids that a materializer of a table has not reached; `None` while its progress is unknown.
pub(super) fn missing(client: &mut HttpClient, table: &str, materializer: &str) -> Result<Option<u64>> {
    let described = client.json("GET", &format!("/v1/tables/{table}"), None)?;
    let derived = described["derived"].as_array().map(Vec::as_slice).unwrap_or_default();
    let standing = derived.iter().find(|standing| standing["name"] == materializer);
    Ok(standing.and_then(|standing| match (&standing["state"], wire::whole(&standing["missing_rows"])) {
        // Zero missing rows at the start of a build mean that the materializer has not looked yet.
        (state, Some(0)) if state == "building" => None,
        (_, missing) => missing,
    }))
}

/// Rewrites every note, waits until its pages are live, and repeats, until `end`.
pub(super) fn rewrite_notes(
    target: &LoadTarget,
    folder: &Path,
    state: &StormState,
    counters: &BackgroundCounters,
    end: &AtomicBool,
) -> Result<()> {
    let mut client = HttpClient::new(target);
    let mut revision = 0;
    while !end.load(Relaxed) {
        revision += 1;
        let started = Instant::now();
        for number in 0..state.ledger.notes.len() as u64 {
            if end.load(Relaxed) {
                return Ok(());
            }
            write_note(folder, state, number, revision)?;
            counters.pages.fetch_add(1, Relaxed);
        }
        // All notes were written before, so a sample of the pages is enough.
        for number in (0..state.ledger.notes.len() as u64).rev().step_by(17) {
            if !await_note(&mut client, number, revision, end)? {
                return Ok(());
            }
        }
        counters.slowest_round_ms.fetch_max(started.elapsed().as_millis() as u64, Relaxed);
        counters.rounds.fetch_add(1, Relaxed);
        sleep(ROUND_PAUSE, end);
    }
    Ok(())
}

/// Replaces a note by another revision atomically, so that no reader sees a part of it.
pub(super) fn write_note(folder: &Path, state: &StormState, number: u64, revision: u64) -> Result<()> {
    let notes = state.ledger.notes.len() as u64;
    state.ledger.notes[number as usize].send(revision);
    let text = corpus::note(&state.words, state.seed, notes, number, revision);
    let path = folder.join(format!("note-{number}.md"));
    let unfinished = folder.join(format!(".note-{number}"));
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, &path))
        .map_err(|error| Error::io(format_args!("writing {}", path.display()), error))
}

/// Waits until a note's page shows a revision. Returns false if `end` came first.
pub(super) fn await_note(
    client: &mut HttpClient,
    number: u64,
    revision: u64,
    end: &AtomicBool,
) -> Result<bool> {
    let (path, wanted) = (format!("/note-{number}"), format!("{}{revision}.", corpus::REVISION));
    let since = Instant::now();
    while !end.load(Relaxed) {
        let answer = client.request("GET", &path, "", b"")?;
        if String::from_utf8_lossy(&answer.body).contains(&wanted) {
            return Ok(true);
        }
        if since.elapsed() > LIVE_MAX {
            return Err(Error::invalid(format!(
                "revision {revision} of {path} is not live after {LIVE_MAX:?}; the answer was {}",
                answer.status
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}

/// Follows the metrics of the server's background work, until `end`.
pub(super) fn follow_metrics(
    target: &LoadTarget,
    counters: &BackgroundCounters,
    end: &AtomicBool,
) -> Result<()> {
    let mut client = HttpClient::new(target);
    let [seals, merges] = seal_and_merge_counts(&mut client)?;
    let waited = values_by_label(&fetch_metrics(&mut client)?, LOCK_WAITS);
    let mut landed = lake_lsn(&mut client)?;
    loop {
        // One more poll after the end includes the events since the previous one.
        let last = end.load(Relaxed);
        let text = fetch_metrics(&mut client)?;
        let now = parse_counts(&text);
        {
            let mut stalls = counters.stalls.lock().unwrap_or_else(PoisonError::into_inner);
            for (thread, seconds) in values_by_label(&text, TURNS) {
                // Thread names such as `sql-1` and `sql-2` are of one kind.
                let kind = thread.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
                let turn = stalls.turn_ms.entry(kind).or_default();
                *turn = turn.max(seconds * 1e3);
            }
            for (lock, seconds) in values_by_label(&text, LOCK_WAITS) {
                let before = waited.get(&lock).copied().unwrap_or(0.0);
                stalls.lock_wait_ms.insert(lock, (seconds - before) * 1e3);
            }
        }
        counters.seals.store(now[0].saturating_sub(seals), Relaxed);
        counters.merges.store(now[1].saturating_sub(merges), Relaxed);
        let lsn = lake_lsn(&mut client)?;
        if lsn != landed {
            landed = lsn;
            counters.lake_commits.fetch_add(1, Relaxed);
        }
        if last {
            return Ok(());
        }
        sleep(POLL_EVERY, end);
    }
}

fn lake_lsn(client: &mut HttpClient) -> Result<Option<u64>> {
    let marks = client.json("GET", &format!("/v1/tables/{EVENTS}/watermarks"), None)?;
    if let Some(error) = marks["lake_error"].as_str() {
        return Err(Error::invalid(format!("{EVENTS} does not land in the lake: {error}")));
    }
    Ok(wire::whole(&marks["lake"]["lsn"]))
}

pub(super) fn seal_and_merge_counts(client: &mut HttpClient) -> Result<[u64; 2]> {
    Ok(parse_counts(&fetch_metrics(client)?))
}

fn fetch_metrics(client: &mut HttpClient) -> Result<String> {
    let answer = client.request("GET", "/metrics", "", b"")?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

const TURNS: &str = "polynya_thread_longest_turn_seconds{thread=\"";
const LOCK_WAITS: &str = "polynya_lock_wait_seconds_total{lock=\"";

/// Returns the values of a metric by its first label.
fn values_by_label(text: &str, start: &str) -> BTreeMap<String, f64> {
    let values = text.lines().filter_map(|line| {
        let (label, rest) = line.strip_prefix(start)?.split_once('"')?;
        Some((label.to_owned(), rest.rsplit(' ').next()?.parse().ok()?))
    });
    // Several threads may share a name; the longest turn counts.
    values.fold(BTreeMap::new(), |mut all, (label, value): (String, f64)| {
        let known = all.entry(label).or_insert(value);
        *known = known.max(value);
        all
    })
}

/// Extracts the numbers of seals and merges.
fn parse_counts(text: &str) -> [u64; 2] {
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
    };
    [value("polynya_seals_total "), value("polynya_compactions_total ")]
}

/// Sleeps for the given time, or until `end`.
pub(super) fn sleep(time: Duration, end: &AtomicBool) {
    let until = Instant::now() + time;
    while !end.load(Relaxed) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20).min(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_of_itself_is_read() {
        let text = "# HELP polynya_seals_total Heads.\npolynya_seals_total 7\npolynya_compactions_total 2\n\
            polynya_thread_longest_turn_seconds{thread=\"http\",class=\"interactive\"} 0.25\n\
            polynya_thread_longest_turn_seconds{thread=\"http\",class=\"interactive\"} 0.5\n\
            polynya_lock_wait_seconds_total{lock=\"server work\"} 0.001\n";
        assert_eq!(parse_counts(text), [7, 2]);
        assert_eq!(values_by_label(text, TURNS), BTreeMap::from([("http".to_owned(), 0.5)]));
        assert_eq!(values_by_label(text, LOCK_WAITS), BTreeMap::from([("server work".to_owned(), 0.001)]));
        assert_eq!(parse_counts(""), [0, 0]);
    }
}
