//! Writers of the storm: events at the configured rate, readings that are replaced again and again, and new documents.

use std::collections::HashMap;

use serde_json::Value;

use super::corpus;
use super::options::EventRate;
use super::state::StormState;
use super::{ARTICLES, EVENTS, READINGS};
use crate::http::{excerpt, render};
use crate::load::{BusyPolicy, LoadStream, Request, Requests};
use crate::pace::Pace;
use crate::random::Random;
use crate::target::LoadTarget;
use crate::wire;

/// Rows of one request that replaces readings.
const REPLACED_ROWS: u64 = 50;
/// Requests per second that replace readings.
const REPLACEMENTS_PER_S: f64 = 20.0;
/// Documents of one request that adds documents.
const ADDED_DOCUMENTS: u64 = 5;
/// Requests per second that add documents.
const ADDITIONS_PER_S: f64 = 10.0;

/// Nice value of the client's writer threads. Like the server's background work, they run below everything that a reader waits
/// for.
const NICE: i32 = 10;

/// Creates the stream of events. `rate` is in events per second; `None` writes as fast as the server acknowledges.
pub(super) fn events<'a>(
    state: &'a StormState,
    target: &'a LoadTarget,
    writers: usize,
    rate: Option<f64>,
) -> LoadStream<'a> {
    let batch = state.events.batch() as f64;
    let pace = rate.map_or(Pace::Closed, |rate| Pace::Open { per_second: (rate / batch).max(0.1) });
    let requests =
        move |_| Box::new(Events { state, target, path: rows_of(EVENTS) }) as Box<dyn Requests + 'a>;
    LoadStream::new(EVENTS, writers, pace, requests).busy(BusyPolicy::Rest).nice(NICE)
}

/// Creates the streams that replace readings and add documents.
pub(super) fn others<'a>(state: &'a StormState, target: &'a LoadTarget) -> Vec<LoadStream<'a>> {
    let readings = move |_| {
        let random = Random::part(state.seed, 200);
        Box::new(Readings { state, target, random, in_flight: HashMap::new(), number: 0 })
            as Box<dyn Requests + 'a>
    };
    let articles = move |_| Box::new(Articles { state, target }) as Box<dyn Requests + 'a>;
    // Each stream has one connection, so the acknowledged writes are a prefix of the sent ones.
    vec![
        LoadStream::new(READINGS, 1, Pace::Open { per_second: REPLACEMENTS_PER_S }, readings),
        LoadStream::new(ARTICLES, 1, Pace::Open { per_second: ADDITIONS_PER_S }, articles),
    ]
}

/// Returns the events per second, given the throughput of the idle machine; `None` is unlimited.
pub(super) fn rate(event_rate: EventRate, alone: f64) -> Option<f64> {
    match event_rate {
        EventRate::Full => None,
        EventRate::Half => Some((alone / 2.0).max(1.0)),
        EventRate::PerSecond(rate) => Some(rate),
    }
}

pub(super) fn rows_of(table: &str) -> String {
    format!("/v1/tables/{table}/rows")
}

struct Events<'a> {
    state: &'a StormState,
    target: &'a LoadTarget,
    path: String,
}

impl Requests for Events<'_> {
    fn next(&mut self) -> Request {
        let number = self.state.ledger.events.send();
        let body = self.state.events.body(number);
        Request {
            bytes: render(self.target, "POST", &self.path, "application/json", &body).into(),
            tag: number,
        }
    }

    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        acknowledge(self.state, tag, body)
    }

    fn on_rest(&mut self, tag: u64) {
        self.state.ledger.events.refuse(tag);
    }
}

/// Processes the acknowledgement of a batch and returns its number of rows.
pub(super) fn acknowledge(state: &StormState, number: u64, body: &[u8]) -> Result<u64, String> {
    let rows = state.events.batch() as u64;
    let found: Value = serde_json::from_slice(body).unwrap_or_default();
    let (count, first) = (wire::whole(&found["count"]), wire::whole(&found["first_row_id"]));
    match (count, first) {
        (Some(count), Some(first)) if count == rows => {
            state.ledger.events.acknowledge(number, first);
            Ok(rows)
        }
        _ => Err(format!("expected {rows} events acknowledged, found {}", excerpt(body))),
    }
}

/// Replaces rows of `readings` with newer versions.
struct Readings<'a> {
    state: &'a StormState,
    target: &'a LoadTarget,
    random: Random,
    /// Keys and versions of the requests in flight.
    in_flight: HashMap<u64, Vec<(u64, u64)>>,
    number: u64,
}

impl Requests for Readings<'_> {
    fn next(&mut self) -> Request {
        let readings = &self.state.ledger.readings;
        let count = REPLACED_ROWS.min(readings.len() as u64);
        // Neighbouring keys, so that no key occurs twice in a request.
        let first = self.random.below(readings.len() as u64);
        let replaced: Vec<(u64, u64)> = (first..first + count)
            .map(|id| id % readings.len() as u64)
            .map(|id| (id, readings[id as usize].ceiling() + 1))
            .collect();
        for (id, version) in &replaced {
            readings[*id as usize].send(*version);
        }
        let rows: Vec<Value> = replaced.iter().map(|(id, version)| corpus::reading(*id, *version)).collect();
        let body = Value::from(rows).to_string();
        self.number += 1;
        self.in_flight.insert(self.number, replaced);
        let bytes = render(self.target, "POST", &rows_of(READINGS), "application/json", body.as_bytes());
        Request { bytes: bytes.into(), tag: self.number }
    }

    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        let replaced = self.in_flight.remove(&tag).unwrap_or_default();
        counted(body, replaced.len() as u64)?;
        for (id, version) in &replaced {
            self.state.ledger.readings[*id as usize].acknowledge(*version);
        }
        Ok(replaced.len() as u64)
    }
}

/// Adds documents to `articles`.
struct Articles<'a> {
    state: &'a StormState,
    target: &'a LoadTarget,
}

impl Requests for Articles<'_> {
    fn next(&mut self) -> Request {
        let StormState { words, seed, ledger, .. } = self.state;
        let first = ledger.articles.ceiling();
        ledger.articles.send(first + ADDED_DOCUMENTS);
        let rows: Vec<Value> =
            (first..first + ADDED_DOCUMENTS).map(|id| corpus::document(words, *seed, id)).collect();
        let body = Value::from(rows).to_string();
        let bytes = render(self.target, "POST", &rows_of(ARTICLES), "application/json", body.as_bytes());
        Request { bytes: bytes.into(), tag: first + ADDED_DOCUMENTS }
    }

    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        counted(body, ADDED_DOCUMENTS)?;
        self.state.ledger.articles.acknowledge(tag);
        Ok(ADDED_DOCUMENTS)
    }
}

fn counted(body: &[u8], expected: u64) -> Result<(), String> {
    match wire::count_in(body) {
        Some(count) if count == expected => Ok(()),
        _ => Err(format!("expected {expected} rows acknowledged, found {}", excerpt(body))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::options::Size;

    #[test]
    fn a_batch_counts_once_all_of_it_is_acknowledged() {
        let state = StormState::new(1, &Size::default().scaled(0.01));
        let number = state.ledger.events.send();
        assert!(acknowledge(&state, number, br#"{"count":49,"first_row_id":1}"#).is_err());
        assert!(acknowledge(&state, number, b"").is_err());
        assert_eq!(state.ledger.events.acknowledged(), 0);
        assert_eq!(acknowledge(&state, number, br#"{"count":50,"first_row_id":8}"#), Ok(50));
        assert_eq!(state.ledger.events.acknowledged_near(0), Some((0, 8)));
    }

    #[test]
    fn half_a_machine_is_half_of_what_it_takes_alone() {
        assert_eq!(rate(EventRate::Half, 1000.0), Some(500.0));
        assert_eq!(rate(EventRate::Full, 1000.0), None);
        assert_eq!(rate(EventRate::PerSecond(7.0), 1000.0), Some(7.0));
    }
}
