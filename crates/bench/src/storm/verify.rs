//! Checks after the kill that everything acknowledged is there, in SQL and in the lake.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::{Error, Result};

use super::background::await_note;
use super::corpus::own_word;
use super::ledger::BatchStatus;
use super::state::StormState;
use super::writers::{self, rows_of};
use super::{ARTICLES, EVENTS, READINGS, check_stop, prepare};
use crate::http::{HttpClient, excerpt};
use crate::target::LoadTarget;
use crate::wire;

/// Number of batches in one statement.
const STEP: u64 = 20_000;
/// Number of documents that are searched one by one.
const SEARCHED: u64 = 50;
/// Number of errors that are listed.
const WRONG_MAX: usize = 20;

/// The result of the check after the kill.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verification {
    /// Milliseconds from the start after the kill until the server was ready.
    pub ready_after_ms: f64,
    /// Events acknowledged in total, before, during and after the storm phase.
    pub events_acknowledged: u64,
    pub events_found: u64,
    /// Acknowledged events that are missing.
    pub events_lost: u64,
    /// Batches in flight at the kill that are completely there, which is allowed.
    pub batches_landed: u64,
    pub lake: Vec<LakeTable>,
    /// Descriptions of all errors.
    pub wrong: Vec<String>,
    /// True if the check ran to its end.
    pub complete: bool,
}

/// A table that was read back from its Iceberg metadata and Parquet files alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LakeTable {
    pub table: String,
    pub rows: u64,
    /// True if every value equals SQL's.
    pub equal: bool,
}

impl Verification {
    fn wrong(&mut self, what: impl Into<String>) {
        match self.wrong.len() {
            n if n < WRONG_MAX => self.wrong.push(what.into()),
            WRONG_MAX => self.wrong.push("and more".into()),
            _ => {}
        }
    }
}

/// Sends batches until the server is killed.
pub(super) fn write_until_killed(
    state: &StormState,
    target: &LoadTarget,
    killing: &AtomicBool,
) -> Result<()> {
    let mut client = HttpClient::new(target).timeout(Duration::from_secs(30));
    let path = rows_of(EVENTS);
    while !killing.load(Relaxed) {
        let number = state.ledger.events.send();
        let body = state.events.body(number);
        match client.request("POST", &path, "application/json", &body) {
            Ok(answer) if answer.is_success() => {
                writers::acknowledge(state, number, &answer.body).map_err(Error::invalid)?;
            }
            Ok(answer) if answer.status == 429 => {
                state.ledger.events.refuse(number);
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(answer) => {
                let found = excerpt(&answer.body);
                return Err(Error::invalid(format!("events were answered {}: {found}", answer.status)));
            }
            Err(_) if killing.load(Relaxed) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Compares a restarted server with the recorded state.
pub(super) struct Verifier<'a> {
    pub(super) state: &'a StormState,
    pub(super) target: &'a LoadTarget,
    pub(super) program: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) stop: &'a AtomicBool,
}

impl Verifier<'_> {
    pub(super) fn run(&self, found: &mut Verification, progress: &mut dyn FnMut(String)) -> Result<()> {
        let mut client = HttpClient::new(self.target).timeout(Duration::from_secs(300));
        self.events(&mut client, found)?;
        progress(format!("{} events acknowledged, {} found", found.events_acknowledged, found.events_found));
        check_stop(self.stop)?;
        self.readings(&mut client, found)?;
        self.articles(&mut client, found)?;
        check_stop(self.stop)?;
        self.pages(&mut client, found)?;
        progress("reading the lake back from its own files".into());
        self.lake(&mut client, found)?;
        found.complete = true;
        Ok(())
    }

    fn events(&self, client: &mut HttpClient, found: &mut Verification) -> Result<()> {
        let batches = &self.state.ledger.events;
        found.events_acknowledged = batches.acknowledged() * self.state.events.batch() as u64;
        found.events_found = wire::count(client, EVENTS)?;
        let mut counted = 0;
        for first in (0..batches.sent()).step_by(STEP as usize) {
            check_stop(self.stop)?;
            let text = format!(
                "SELECT batch, count(*), min(slot), max(slot), sum(slot), sum(value) FROM {EVENTS} \
                 WHERE batch >= $1 AND batch < $2 GROUP BY batch ORDER BY batch"
            );
            let last = (first + STEP).min(batches.sent());
            let rows = wire::sql(client, &text, json!([first, last]))?;
            counted += judge_batches(self.state, first..last, rows, found);
        }
        if counted != found.events_found {
            let all = found.events_found;
            found.wrong(format!("{all} events are there, {counted} of them in batches that were sent"));
        }
        Ok(())
    }

    /// Checks that every key is there once, with a version between the acknowledged and the sent one.
    fn readings(&self, client: &mut HttpClient, found: &mut Verification) -> Result<()> {
        let readings = &self.state.ledger.readings;
        let rows = wire::sql(client, &format!("SELECT id, version FROM {READINGS} ORDER BY id"), json!([]))?;
        if rows.len() != readings.len() {
            found.wrong(format!("{READINGS}: {} keys expected, {} found", readings.len(), rows.len()));
        }
        for (id, (row, known)) in (0..).zip(rows.iter().zip(readings)) {
            let pair = (row.first().and_then(wire::whole), row.get(1).and_then(wire::whole));
            let (floor, ceiling) = (known.floor(), known.ceiling());
            if pair.0 != Some(id) || !pair.1.is_some_and(|version| (floor..=ceiling).contains(&version)) {
                found.wrong(format!(
                    "{READINGS}: {id} at version {floor} to {ceiling} expected, found {row:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks the number of documents, and searches for the newest by their words.
    fn articles(&self, client: &mut HttpClient, found: &mut Verification) -> Result<()> {
        let articles = &self.state.ledger.articles;
        let (floor, ceiling) = (articles.floor(), articles.ceiling());
        let text = format!("SELECT count(*), count(DISTINCT id), max(id) FROM {ARTICLES}");
        let rows = wire::sql(client, &text, json!([]))?;
        let row: Vec<u64> = rows.iter().flatten().filter_map(wire::whole).collect();
        let count = row.first().copied().unwrap_or(0);
        if !(floor..=ceiling).contains(&count) || row != [count, count, count.saturating_sub(1)] {
            found.wrong(format!("{ARTICLES}: documents 0 to {floor} or {ceiling} expected, found {row:?}"));
        }
        for id in (floor.saturating_sub(SEARCHED)..floor).rev() {
            let path = format!("/v1/tables/{ARTICLES}/search?q={}&limit=2&fields=id", own_word(id));
            let answer = client.json("GET", &path, None)?;
            if wire::whole(&answer["total"]) != Some(1) || wire::whole(&answer["hits"][0]["key"]) != Some(id)
            {
                found.wrong(format!("{ARTICLES}: document {id} is not found by its word: {answer}"));
            }
        }
        Ok(())
    }

    /// Checks that every page shows the last revision written: the server cannot lose the files.
    fn pages(&self, client: &mut HttpClient, found: &mut Verification) -> Result<()> {
        for (number, note) in (0..).zip(&self.state.ledger.notes) {
            match await_note(client, number, note.ceiling(), self.stop) {
                Ok(_) => check_stop(self.stop)?,
                Err(error) => found.wrong(error.message().to_owned()),
            }
        }
        Ok(())
    }

    /// Runs `polynya lake verify` in a process of its own, which knows only the files and SQL.
    fn lake(&self, client: &mut HttpClient, found: &mut Verification) -> Result<()> {
        let output = self.directory.join("lake-verify.json");
        let failed = |error| Error::io("reading the lake back", error);
        let file = File::create(&output).map_err(failed)?;
        let mut command = Command::new(self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("POLYNYA_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(["lake", "verify", EVENTS, READINGS, ARTICLES, "--json", "--url"])
            .arg(format!("http://{}", self.target.address()))
            .env("POLYNYA_CONFIG", prepare::settings_file(self.directory))
            .env("POLYNYA_LOG_LEVEL", "warn")
            .stdin(Stdio::null())
            .stderr(file.try_clone().map_err(failed)?)
            .stdout(file)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if let Err(stopped) = check_stop(self.stop) {
                // The child is not reaped yet, so no other process can have its id.
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Err(stopped);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let text = fs::read_to_string(&output).map_err(failed)?;
        let reports: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for table in [EVENTS, READINGS, ARTICLES] {
            let Some(report) = reports.iter().find(|report| report["table"] == table) else {
                found.wrong(format!(
                    "the lake of {table} could not be verified ({status}): {}",
                    excerpt(text.as_bytes())
                ));
                continue;
            };
            let rows = wire::whole(&report["rows"]).unwrap_or_default();
            let in_sql = wire::count(client, table)?;
            let equal = report["equal"] == Value::Bool(true) && rows == in_sql;
            if !equal {
                let differences = &report["differences"];
                found
                    .wrong(format!("{table} has {rows} rows in the lake and {in_sql} in SQL: {differences}"));
            }
            found.lake.push(LakeTable { table: table.to_owned(), rows, equal });
        }
        Ok(())
    }
}

/// Checks that each acknowledged batch is there completely and once, that each refused one is absent, and that each other one is
/// complete or absent. A row holds the batch, the count, the lowest and highest slot, and the sums of slots and of values; rows
/// are ordered by batch. Returns the number of events that the rows count.
fn judge_batches(
    state: &StormState,
    numbers: Range<u64>,
    rows: Vec<Vec<Value>>,
    found: &mut Verification,
) -> u64 {
    let rows_of_batch = state.events.batch() as u64;
    let mut rows = rows.into_iter().peekable();
    let mut counted = 0;
    for batch in numbers.clone() {
        let row = rows.next_if(|row| row.first().and_then(wire::whole) == Some(batch));
        let row: Option<Vec<u64>> = row.map(|row| row.iter().filter_map(wire::whole).collect());
        let there = row.as_ref().and_then(|row| row.get(1)).copied().unwrap_or(0);
        counted += there;
        let slots = rows_of_batch * (rows_of_batch - 1) / 2;
        let whole = [batch, rows_of_batch, 0, rows_of_batch - 1, slots, state.events.sum(batch)];
        match (state.ledger.events.status(batch), row) {
            (Some(BatchStatus::Acknowledged { .. }), Some(row)) if row == whole => {}
            (Some(BatchStatus::Acknowledged { .. }), row) => {
                found.events_lost += rows_of_batch.saturating_sub(there);
                found.wrong(format!("batch {batch} was acknowledged: {whole:?} expected, {row:?} found"));
            }
            (Some(BatchStatus::Sent), Some(row)) if row == whole => found.batches_landed += 1,
            (Some(BatchStatus::Sent | BatchStatus::Refused), None) => {}
            (status, row) => found.wrong(format!("batch {batch} ({status:?}): found {row:?}")),
        }
    }
    if let Some(row) = rows.next() {
        found.wrong(format!("among batches {numbers:?} a row that nobody sent: {row:?}"));
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::options::Size;

    /// Creates a state with batches 0 and 1 acknowledged, 2 in flight and 3 refused.
    fn state() -> StormState {
        let state = StormState::new(1, &Size { batch: 50, ..Size::default() }.scaled(0.01));
        (0..4).for_each(|_| assert!(state.ledger.events.send() < 4));
        state.ledger.events.acknowledge(0, 1);
        state.ledger.events.acknowledge(1, 51);
        state.ledger.events.refuse(3);
        state
    }

    fn row(state: &StormState, batch: u64) -> Vec<Value> {
        [batch, 50, 0, 49, 1225, state.events.sum(batch)].map(Value::from).to_vec()
    }

    fn found(state: &StormState, rows: Vec<Vec<Value>>) -> Verification {
        let mut found = Verification::default();
        judge_batches(state, 0..4, rows, &mut found);
        found
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_in_flight_may() {
        let state = state();
        let of = |batches: &[u64]| batches.iter().map(|batch| row(&state, *batch)).collect::<Vec<_>>();
        let right = found(&state, of(&[0, 1]));
        assert!(right.wrong.is_empty() && right.batches_landed == 0, "{right:?}");
        let right = found(&state, of(&[0, 1, 2]));
        assert!(right.wrong.is_empty() && right.batches_landed == 1, "{right:?}");
        let lost = found(&state, of(&[0, 2]));
        assert_eq!((lost.wrong.len(), lost.events_lost), (1, 50), "{lost:?}");
        assert_eq!(found(&state, of(&[0, 1, 3])).wrong.len(), 1, "it was refused");
        assert!(!found(&state, of(&[0, 1, 9])).wrong.is_empty(), "nobody sent it");
    }

    #[test]
    fn doubled_torn_and_changed_batches_are_wrong() {
        let state = state();
        for (column, value) in [(1, 51), (1, 49), (2, 1), (3, 48), (4, 1224), (5, 1)] {
            let mut rows = vec![row(&state, 0), row(&state, 1)];
            rows[1][column] = value.into();
            assert_eq!(found(&state, rows).wrong.len(), 1, "column {column} is {value}");
            let mut rows = vec![row(&state, 0), row(&state, 1), row(&state, 2)];
            rows[2][column] = value.into();
            assert_eq!(found(&state, rows).wrong.len(), 1, "in flight, column {column} is {value}");
        }
        let mut many = Verification::default();
        (0..100).for_each(|n| many.wrong(n.to_string()));
        assert_eq!((many.wrong.len(), many.wrong[WRONG_MAX].as_str()), (WRONG_MAX + 1, "and more"));
    }
}
