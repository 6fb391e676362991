//! The connection of one part of a soak to the server, with the requests that the parts share.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use types::{Error, Kind, Result};

use super::state::SoakState;
use super::streamed_answer::StreamedAnswer;
use crate::http::{HttpAnswer, HttpClient, excerpt};
use crate::random::Random;
use crate::target::LoadTarget;

/// Time for which a refused or conflicting request is retried.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The connection of one part to the server.
pub(super) struct SoakClient<'a> {
    client: HttpClient,
    pub state: &'a SoakState,
    pub random: Random,
}

/// The result of a write.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteResult {
    /// The lsn of the commit, 0 if nothing was committed.
    pub lsn: u64,
    pub count: u64,
    /// Rows of a RETURNING clause.
    pub rows: Vec<Vec<Value>>,
}

impl<'a> SoakClient<'a> {
    pub fn new(target: &LoadTarget, state: &'a SoakState, seed: u64, part: u64) -> SoakClient<'a> {
        SoakClient { client: HttpClient::new(target), state, random: Random::part(seed, part) }
    }

    pub fn target(&self) -> &LoadTarget {
        self.client.target()
    }

    /// Sends the next request over a new connection.
    pub fn reconnect(&mut self) {
        self.client = HttpClient::new(self.client.target());
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    /// Sends a request until the answer is not 429, and returns the answer, whatever its status.
    pub fn request(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<HttpAnswer> {
        let since = Instant::now();
        let body = body.map(Value::to_string).unwrap_or_default();
        loop {
            self.state.statements.fetch_add(1, Relaxed);
            let answer = self.client.request(method, path, "application/json", body.as_bytes())?;
            if answer.status != 429 || since.elapsed() > RETRY_MAX || self.state.is_over() {
                return Ok(answer);
            }
            self.state.refused.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends a request that must succeed and returns its JSON.
    pub fn request_json(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.request(method, path, body)?;
        if !answer.is_success() {
            return Err(unexpected(method, path, body, &answer));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::invalid(format!("{method} {path}: expected JSON: {error}")))
    }

    /// Reads a row by key; `None` if it does not exist.
    pub fn find_row(&mut self, path: &str) -> Result<Option<Value>> {
        let since = Instant::now();
        let answer = self.request("GET", path, None)?;
        self.state.record_read(since.elapsed(), path);
        match answer.status {
            404 => Ok(None),
            200 => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| Error::invalid(format!("GET {path}: expected JSON: {error}"))),
            _ => Err(unexpected("GET", path, None, &answer)),
        }
    }

    /// Runs a query and returns its rows.
    pub fn query(&mut self, sql: &str, params: Value) -> Result<Vec<Vec<Value>>> {
        let since = Instant::now();
        let answer = self.request_json("POST", "/v1/sql", Some(&json!({"sql": sql, "params": params})))?;
        self.state.record_read(since.elapsed(), sql);
        if answer["truncated"] != false {
            return Err(Error::invalid(format!("expected all rows of {sql:?}, found {answer}")));
        }
        Ok(answer_rows(&answer))
    }

    /// Runs a query that returns one row of whole numbers; NULL counts as 0.
    pub fn query_numbers(&mut self, sql: &str, params: Value) -> Result<Vec<i64>> {
        let rows = self.query(sql, params)?;
        match &rows[..] {
            [row] => Ok(row.iter().map(|value| whole(value).unwrap_or_default()).collect()),
            _ => Err(Error::invalid(format!("expected one row for {sql:?}, found {rows:?}"))),
        }
    }

    pub fn execute(&mut self, sql: &str, params: Value) -> Result<WriteResult> {
        self.send_write("POST", "/v1/sql", &json!({"sql": sql, "params": params}))
    }

    /// Runs a statement with RETURNING. It is answered like a query, and the lsn of its commit is in a header.
    pub fn execute_returning(&mut self, sql: &str, params: Value) -> Result<WriteResult> {
        self.state.statements.fetch_add(1, Relaxed);
        let body = json!({"sql": sql, "params": params}).to_string();
        let timeout = Duration::from_secs(60);
        let mut stream = StreamedAnswer::open(
            self.target(),
            "POST",
            "/v1/sql",
            "application/json",
            body.as_bytes(),
            timeout,
        )?;
        if stream.status != 200 {
            return Err(stream.unexpected(sql));
        }
        let said = stream.line()?.unwrap_or_default();
        let answer: Value = serde_json::from_str(&said)
            .map_err(|error| Error::invalid(format!("the answer to {sql} is no JSON: {error}")))?;
        let count = whole(&answer["count"]).unwrap_or_default() as u64;
        Ok(WriteResult { lsn: stream.lsn, count, rows: answer_rows(&answer) })
    }

    pub fn send_write(&mut self, method: &str, path: &str, body: &Value) -> Result<WriteResult> {
        let answer = self.request_json(method, path, Some(body).filter(|body| !body.is_null()))?;
        let number = |name: &str| whole(&answer[name]).unwrap_or_default() as u64;
        Ok(WriteResult { lsn: number("lsn"), count: number("count"), rows: answer_rows(&answer) })
    }

    /// Runs a statement that may fail and returns its status.
    pub fn statement_status(&mut self, sql: &str, params: Value) -> Result<(u16, String)> {
        let answer = self.request("POST", "/v1/sql", Some(&json!({"sql": sql, "params": params})))?;
        Ok((answer.status, excerpt(&answer.body)))
    }

    /// Commits several operations together, retrying for as long as other writers commit first. Returns the lsn.
    pub fn commit_operations(&mut self, ops: &Value) -> Result<u64> {
        let since = Instant::now();
        let body = json!({ "ops": ops });
        loop {
            let answer = self.request("POST", "/v1/transactions", Some(&body))?;
            if answer.is_success() {
                let told: Value = serde_json::from_slice(&answer.body)
                    .map_err(|error| Error::invalid(format!("a transaction's answer is no JSON: {error}")))?;
                return Ok(whole(&told["lsn"]).unwrap_or_default() as u64);
            }
            if answer.status != 409 || since.elapsed() > RETRY_MAX {
                return Err(unexpected("POST", "/v1/transactions", Some(&body), &answer));
            }
            self.state.conflicts.fetch_add(1, Relaxed);
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
            self.state.report_wrong(format!(
                "{}: expected {}, found {}",
                what(),
                shown(wanted),
                shown(found)
            ));
        }
    }
}

fn shown(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    if text.chars().count() <= 300 { text } else { text.chars().take(300).chain(['…']).collect() }
}

fn unexpected(method: &str, path: &str, body: Option<&Value>, answer: &HttpAnswer) -> Error {
    let body = body.map(|body| body.to_string().chars().take(300).collect::<String>()).unwrap_or_default();
    Error::new(
        Kind::Invalid,
        format!("{method} {path} {body} was answered with {}: {}", answer.status, excerpt(&answer.body)),
    )
}

fn answer_rows(answer: &Value) -> Vec<Vec<Value>> {
    let rows = answer["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| row.as_array().cloned().unwrap_or_default()).collect()
}

/// Parses a whole number of an answer; integers beyond 2^53 arrive as strings.
pub(super) fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
