//! Shared state of the parts of a soak: counts of their requests, wrong answers, and the signal to end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use types::{Error, Kind, Result};

use crate::http::{Answer, Client, excerpt};
use crate::random::Random;
use crate::target::Target;

use super::stream::Stream;

/// Number of wrong answers that a report shows.
const EXAMPLES_MAX: usize = 20;
/// Time for which a refused or conflicting request is retried.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Watch {
    pub statements: AtomicU64,
    pub reads: AtomicU64,
    /// Requests that were refused as busy and sent again.
    pub refused: AtomicU64,
    /// Transactions that failed because another writer committed first.
    pub conflicts: AtomicU64,
    pub wrong: AtomicU64,
    /// Duration and text of the longest read since the last sample, and of the longest of all.
    longest: Mutex<[(Duration, String); 2]>,
    examples: Mutex<Vec<String>>,
    /// Ends the soak after the steps under way.
    pub end: AtomicBool,
    /// Set while the server is being killed: from then on an unanswered request is not a failure.
    pub killing: AtomicBool,
}

impl Watch {
    pub fn is_over(&self) -> bool {
        self.end.load(Relaxed) || self.killing.load(Relaxed)
    }

    pub fn wrong(&self, what: String) {
        self.wrong.fetch_add(1, Relaxed);
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        if examples.len() < EXAMPLES_MAX {
            examples.push(what);
        }
    }

    /// Adds the counts and examples of another watch.
    pub fn take(&self, other: &Watch) {
        for (ours, theirs) in [
            (&self.statements, &other.statements),
            (&self.reads, &other.reads),
            (&self.refused, &other.refused),
            (&self.conflicts, &other.conflicts),
            (&self.wrong, &other.wrong),
        ] {
            ours.fetch_add(theirs.load(Relaxed), Relaxed);
        }
        self.examples.lock().unwrap_or_else(PoisonError::into_inner).extend(other.examples());
    }

    pub fn examples(&self) -> Vec<String> {
        self.examples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a read that was answered.
    pub fn took(&self, time: Duration, what: &str) {
        self.reads.fetch_add(1, Relaxed);
        for longest in self.longest.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if time > longest.0 {
                *longest = (time, what.to_owned());
            }
        }
    }

    /// Returns the longest read since the last call, in milliseconds, and its text.
    pub fn longest(&self) -> (f64, String) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, what) = std::mem::take(&mut longest[0]);
        (time.as_secs_f64() * 1e3, what)
    }

    /// Returns the longest read of the whole soak, in milliseconds, and its text.
    pub fn longest_of_all(&self) -> (f64, String) {
        let longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        (longest[1].0.as_secs_f64() * 1e3, longest[1].1.clone())
    }

    /// Sleeps for the given time, or until the soak ends.
    pub fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

/// The connection of one part to the server.
pub(super) struct Caller<'a> {
    client: Client,
    pub watch: &'a Watch,
    pub random: Random,
}

/// The result of a write.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// The lsn of the commit, 0 if nothing was committed.
    pub lsn: u64,
    pub count: u64,
    /// Rows of a RETURNING clause.
    pub rows: Vec<Vec<Value>>,
}

impl<'a> Caller<'a> {
    pub fn new(target: &Target, watch: &'a Watch, seed: u64, part: u64) -> Caller<'a> {
        Caller { client: Client::new(target), watch, random: Random::part(seed, part) }
    }

    pub fn target(&self) -> &Target {
        self.client.target()
    }

    /// Sends the next request over a new connection.
    pub fn reconnect(&mut self) {
        self.client = Client::new(self.client.target());
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    /// Sends a request until the answer is not 429, and returns the answer, whatever its status.
    pub fn answer(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let since = Instant::now();
        let body = body.map(Value::to_string).unwrap_or_default();
        loop {
            self.watch.statements.fetch_add(1, Relaxed);
            let answer = self.client.request(method, path, "application/json", body.as_bytes())?;
            if answer.status != 429 || since.elapsed() > PATIENCE || self.watch.is_over() {
                return Ok(answer);
            }
            self.watch.refused.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends a request that must succeed and returns its JSON.
    pub fn json(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.answer(method, path, body)?;
        if !answer.is_success() {
            return Err(unexpected(method, path, body, &answer));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::invalid(format!("{method} {path}: expected JSON: {error}")))
    }

    /// Reads a row by key; `None` if it does not exist.
    pub fn find(&mut self, path: &str) -> Result<Option<Value>> {
        let since = Instant::now();
        let answer = self.answer("GET", path, None)?;
        self.watch.took(since.elapsed(), path);
        match answer.status {
            404 => Ok(None),
            200 => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| Error::invalid(format!("GET {path}: expected JSON: {error}"))),
            _ => Err(unexpected("GET", path, None, &answer)),
        }
    }

    /// Runs a query and returns its rows.
    pub fn rows(&mut self, sql: &str, params: Value) -> Result<Vec<Vec<Value>>> {
        let since = Instant::now();
        let answer = self.json("POST", "/v1/sql", Some(&json!({"sql": sql, "params": params})))?;
        self.watch.took(since.elapsed(), sql);
        if answer["truncated"] != false {
            return Err(Error::invalid(format!("expected all rows of {sql:?}, found {answer}")));
        }
        Ok(table(&answer))
    }

    /// Runs a query that returns one row of whole numbers; NULL counts as 0.
    pub fn numbers(&mut self, sql: &str, params: Value) -> Result<Vec<i64>> {
        let rows = self.rows(sql, params)?;
        match &rows[..] {
            [row] => Ok(row.iter().map(|value| whole(value).unwrap_or_default()).collect()),
            _ => Err(Error::invalid(format!("expected one row for {sql:?}, found {rows:?}"))),
        }
    }

    pub fn write(&mut self, sql: &str, params: Value) -> Result<Written> {
        self.written("POST", "/v1/sql", &json!({"sql": sql, "params": params}))
    }

    /// Runs a statement with RETURNING. It is answered like a query, and the lsn of its commit is in a header.
    pub fn returning(&mut self, sql: &str, params: Value) -> Result<Written> {
        self.watch.statements.fetch_add(1, Relaxed);
        let body = json!({"sql": sql, "params": params}).to_string();
        let patience = Duration::from_secs(60);
        let mut stream =
            Stream::open(self.target(), "POST", "/v1/sql", "application/json", body.as_bytes(), patience)?;
        if stream.status != 200 {
            return Err(stream.unexpected(sql));
        }
        let said = stream.line()?.unwrap_or_default();
        let answer: Value = serde_json::from_str(&said)
            .map_err(|error| Error::invalid(format!("the answer to {sql} is no JSON: {error}")))?;
        let count = whole(&answer["count"]).unwrap_or_default() as u64;
        Ok(Written { lsn: stream.lsn, count, rows: table(&answer) })
    }

    pub fn written(&mut self, method: &str, path: &str, body: &Value) -> Result<Written> {
        let answer = self.json(method, path, Some(body).filter(|body| !body.is_null()))?;
        let number = |name: &str| whole(&answer[name]).unwrap_or_default() as u64;
        Ok(Written { lsn: number("lsn"), count: number("count"), rows: table(&answer) })
    }

    /// Runs a statement that may fail and returns its status.
    pub fn status(&mut self, sql: &str, params: Value) -> Result<(u16, String)> {
        let answer = self.answer("POST", "/v1/sql", Some(&json!({"sql": sql, "params": params})))?;
        Ok((answer.status, excerpt(&answer.body)))
    }

    /// Commits several operations together, retrying for as long as other writers commit first. Returns the lsn.
    pub fn transaction(&mut self, ops: &Value) -> Result<u64> {
        let since = Instant::now();
        let body = json!({ "ops": ops });
        loop {
            let answer = self.answer("POST", "/v1/transactions", Some(&body))?;
            if answer.is_success() {
                let told: Value = serde_json::from_slice(&answer.body)
                    .map_err(|error| Error::invalid(format!("a transaction's answer is no JSON: {error}")))?;
                return Ok(whole(&told["lsn"]).unwrap_or_default() as u64);
            }
            if answer.status != 409 || since.elapsed() > PATIENCE {
                return Err(unexpected("POST", "/v1/transactions", Some(&body), &answer));
            }
            self.watch.conflicts.fetch_add(1, Relaxed);
        }
    }

    /// Reports a wrong answer if the two values differ.
    pub fn expect<T: PartialEq + std::fmt::Debug>(
        &self,
        what: impl FnOnce() -> String,
        found: &T,
        wanted: &T,
    ) {
        if found != wanted {
            self.watch.wrong(format!("{}: expected {}, found {}", what(), shown(wanted), shown(found)));
        }
    }
}

fn shown(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    if text.chars().count() <= 300 { text } else { text.chars().take(300).chain(['…']).collect() }
}

fn unexpected(method: &str, path: &str, body: Option<&Value>, answer: &Answer) -> Error {
    let body = body.map(|body| body.to_string().chars().take(300).collect::<String>()).unwrap_or_default();
    Error::new(
        Kind::Invalid,
        format!("{method} {path} {body} was answered with {}: {}", answer.status, excerpt(&answer.body)),
    )
}

fn table(answer: &Value) -> Vec<Vec<Value>> {
    let rows = answer["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| row.as_array().cloned().unwrap_or_default()).collect()
}

/// Parses a whole number of an answer; integers beyond 2^53 arrive as strings.
pub(super) fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
