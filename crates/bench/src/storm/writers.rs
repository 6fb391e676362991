//! Writers of the storm: events at the configured rate, readings that are replaced again and again, and new documents.

use std::collections::HashMap;

use serde_json::Value;

use super::corpus;
use super::options::Force;
use super::world::World;
use super::{ARTICLES, EVENTS, READINGS};
use crate::http::{excerpt, render};
use crate::load::{Busy, Request, Requests, Stream};
use crate::pace::Pace;
use crate::random::Random;
use crate::target::Target;
use crate::wire;

/// Rows of one replacement, and below it the replacements per second.
const REPLACED: u64 = 50;
const REPLACEMENTS: f64 = 20.0;
/// Documents of one request, and below it the requests per second.
const ADDED: u64 = 5;
const ADDITIONS: f64 = 10.0;

/// Nice value of the client's writer threads. Like the server's background work, they run below everything that a reader waits
/// for.
const NICE: i32 = 10;

/// Creates the stream of events. `rate` is in events per second; `None` writes as fast as the server acknowledges.
pub(super) fn events<'a>(
    world: &'a World,
    target: &'a Target,
    writers: usize,
    rate: Option<f64>,
) -> Stream<'a> {
    let batch = world.events.batch() as f64;
    let pace = rate.map_or(Pace::Closed, |rate| Pace::Open { per_second: (rate / batch).max(0.1) });
    let requests =
        move |_| Box::new(Events { world, target, path: rows_of(EVENTS) }) as Box<dyn Requests + 'a>;
    Stream::new(EVENTS, writers, pace, requests).busy(Busy::Rests).nice(NICE)
}

/// Creates the streams that replace readings and add documents.
pub(super) fn others<'a>(world: &'a World, target: &'a Target) -> Vec<Stream<'a>> {
    let readings = move |_| {
        let random = Random::part(world.seed, 200);
        Box::new(Readings { world, target, random, in_flight: HashMap::new(), number: 0 })
            as Box<dyn Requests + 'a>
    };
    let articles = move |_| Box::new(Articles { world, target }) as Box<dyn Requests + 'a>;
    // Each stream has one connection, so the acknowledged writes are a prefix of the sent ones.
    vec![
        Stream::new(READINGS, 1, Pace::Open { per_second: REPLACEMENTS }, readings),
        Stream::new(ARTICLES, 1, Pace::Open { per_second: ADDITIONS }, articles),
    ]
}

/// Returns the events per second, given the throughput of the idle machine; `None` is unlimited.
pub(super) fn rate(force: Force, alone: f64) -> Option<f64> {
    match force {
        Force::Full => None,
        Force::Half => Some((alone / 2.0).max(1.0)),
        Force::Rate(rate) => Some(rate),
    }
}

pub(super) fn rows_of(table: &str) -> String {
    format!("/v1/tables/{table}/rows")
}

struct Events<'a> {
    world: &'a World,
    target: &'a Target,
    path: String,
}

impl Requests for Events<'_> {
    fn next(&mut self) -> Request {
        let number = self.world.ledger.events.send();
        let body = self.world.events.body(number);
        Request {
            bytes: render(self.target, "POST", &self.path, "application/json", &body).into(),
            tag: number,
        }
    }

    fn answered(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        acknowledge(self.world, tag, body)
    }

    fn rests(&mut self, tag: u64) {
        self.world.ledger.events.refuse(tag);
    }
}

/// Processes the acknowledgement of a batch and returns its number of rows.
pub(super) fn acknowledge(world: &World, number: u64, body: &[u8]) -> Result<u64, String> {
    let rows = world.events.batch() as u64;
    let found: Value = serde_json::from_slice(body).unwrap_or_default();
    let (count, first) = (wire::whole(&found["count"]), wire::whole(&found["first_row_id"]));
    match (count, first) {
        (Some(count), Some(first)) if count == rows => {
            world.ledger.events.acknowledge(number, first);
            Ok(rows)
        }
        _ => Err(format!("expected {rows} events acknowledged, found {}", excerpt(body))),
    }
}

/// Replaces rows of `readings` with newer versions.
struct Readings<'a> {
    world: &'a World,
    target: &'a Target,
    random: Random,
    /// Keys and versions of the requests in flight.
    in_flight: HashMap<u64, Vec<(u64, u64)>>,
    number: u64,
}

impl Requests for Readings<'_> {
    fn next(&mut self) -> Request {
        let readings = &self.world.ledger.readings;
        let count = REPLACED.min(readings.len() as u64);
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

    fn answered(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        let replaced = self.in_flight.remove(&tag).unwrap_or_default();
        counted(body, replaced.len() as u64)?;
        for (id, version) in &replaced {
            self.world.ledger.readings[*id as usize].acknowledge(*version);
        }
        Ok(replaced.len() as u64)
    }
}

/// Adds documents to `articles`.
struct Articles<'a> {
    world: &'a World,
    target: &'a Target,
}

impl Requests for Articles<'_> {
    fn next(&mut self) -> Request {
        let World { words, seed, ledger, .. } = self.world;
        let first = ledger.articles.ceiling();
        ledger.articles.send(first + ADDED);
        let rows: Vec<Value> = (first..first + ADDED).map(|id| corpus::document(words, *seed, id)).collect();
        let body = Value::from(rows).to_string();
        let bytes = render(self.target, "POST", &rows_of(ARTICLES), "application/json", body.as_bytes());
        Request { bytes: bytes.into(), tag: first + ADDED }
    }

    fn answered(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        counted(body, ADDED)?;
        self.world.ledger.articles.acknowledge(tag);
        Ok(ADDED)
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
        let world = World::new(1, &Size::default().scaled(0.01));
        let number = world.ledger.events.send();
        assert!(acknowledge(&world, number, br#"{"count":49,"first_row_id":1}"#).is_err());
        assert!(acknowledge(&world, number, b"").is_err());
        assert_eq!(world.ledger.events.acknowledged(), 0);
        assert_eq!(acknowledge(&world, number, br#"{"count":50,"first_row_id":8}"#), Ok(50));
        assert_eq!(world.ledger.events.acknowledged_near(0), Some((0, 8)));
    }

    #[test]
    fn half_a_machine_is_half_of_what_it_takes_alone() {
        assert_eq!(rate(Force::Half, 1000.0), Some(500.0));
        assert_eq!(rate(Force::Full, 1000.0), None);
        assert_eq!(rate(Force::Rate(7.0), 1000.0), Some(7.0));
    }
}
