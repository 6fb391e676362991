//! The five kinds of requests, and the expected answers. The times of the requests are fixed in advance.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::corpus::{GROUPS, group_word, note_mark, own_word};
use super::expectation::Expectation;
use super::state::StormState;
use super::{ARTICLES, EVENTS, Kind, READINGS};
use crate::http::{excerpt, render};
use crate::load::{LoadStream, Request, Requests};
use crate::pace::Pace;
use crate::random::Random;
use crate::target::LoadTarget;

/// Rows of one page of a table.
const PAGE_ROWS: u64 = 20;
/// Number of connections of each kind: a slow answer must not delay the next request.
const CONNECTIONS: usize = 8;

/// Creates a stream for each kind.
pub(super) fn streams<'a>(state: &'a StormState, target: &'a LoadTarget) -> Vec<LoadStream<'a>> {
    let stream = |kind: Kind| {
        let pace = Pace::Open { per_second: state.rate(kind) };
        LoadStream::new(kind.name(), CONNECTIONS, pace, move |_| {
            let random = Random::part(state.seed, 100 + kind as u64);
            Box::new(Reader { state, target, kind, random, number: 0, expected: HashMap::new() })
        })
    };
    Kind::ALL.into_iter().map(stream).collect()
}

struct Reader<'a> {
    state: &'a StormState,
    target: &'a LoadTarget,
    kind: Kind,
    random: Random,
    number: u64,
    /// Names and expected answers of the requests in flight.
    expected: HashMap<u64, (&'static str, Expectation)>,
}

/// A request, its name within the kind, and the expected answer.
type ReadRequest = (Bytes, &'static str, Expectation);

impl Requests for Reader<'_> {
    fn next(&mut self) -> Request {
        self.number += 1;
        let (bytes, name, expect) = match self.kind {
            Kind::Rows => self.rows(),
            Kind::Sql => self.sql(),
            Kind::Search => self.search(),
            Kind::Pages => self.page(),
            Kind::Ask => self.ask(),
        };
        self.expected.insert(self.number, (name, expect));
        Request { bytes: bytes.into(), tag: self.number }
    }

    fn on_latency(&mut self, tag: u64, latency: Duration) {
        if let Some((question, _)) = self.expected.get(&tag) {
            self.state.gauges.gauge(self.kind).record_latency(question, latency);
        }
    }

    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        self.state.gauges.gauge(self.kind).answered();
        let (_, expect) = self.expected.remove(&tag).ok_or("an answer came without a question")?;
        match expect.check(self.state, body) {
            Ok(()) => Ok(1),
            Err(why) => {
                self.state.gauges.wrong(self.kind, &why);
                Ok(0)
            }
        }
    }

    fn on_refusal(&mut self, tag: u64, status: u16, body: &[u8]) -> Result<(), String> {
        let expect = self.expected.remove(&tag);
        self.state.gauges.refused(self.kind, &format!("{status} to {expect:?}: {}", excerpt(body)));
        Ok(())
    }
}

impl Reader<'_> {
    fn get(&self, path: &str) -> Bytes {
        render(self.target, "GET", path, "", b"")
    }

    fn post(&self, path: &str, body: &Value) -> Bytes {
        render(self.target, "POST", path, "application/json", body.to_string().as_bytes())
    }

    /// Returns a random acknowledged batch and its first row.
    fn batch(&mut self) -> Option<(u64, u64)> {
        let events = &self.state.ledger.events;
        let start = self.random.below(events.sent().max(1));
        events.acknowledged_near(start)
    }

    fn reading(&mut self) -> (u64, u64) {
        let id = self.random.below(self.state.ledger.readings.len() as u64);
        (id, self.state.ledger.readings[id as usize].floor())
    }

    /// Three of four requests read a row by key, the fourth a page of events.
    fn rows(&mut self) -> ReadRequest {
        if self.number.is_multiple_of(4)
            && let Some((batch, first_row)) = self.batch()
        {
            let count = PAGE_ROWS.min(self.state.events.batch() as u64);
            let path = format!("/v1/tables/{EVENTS}/rows?from={first_row}&limit={count}");
            return (self.get(&path), "page of a batch", Expectation::Page { batch, first_row, count });
        }
        let (id, floor) = self.reading();
        (self.get(&format!("/v1/tables/{READINGS}/rows/{id}")), "by key", Expectation::Reading { id, floor })
    }

    fn sql(&mut self) -> ReadRequest {
        let (name, text, params, expect) = match (self.number % 4, self.batch()) {
            (0, Some((batch, _))) => {
                let text = format!("SELECT count(*), sum(value) FROM {EVENTS} WHERE batch = $1");
                ("sum of a batch", text, json!([batch]), Expectation::Batch { batch })
            }
            (1, _) => {
                let floor = self.state.ledger.events.acknowledged();
                let text = format!("SELECT count(*) FROM {EVENTS}");
                ("count of events", text, json!([]), Expectation::AllEvents { floor })
            }
            (2, _) => {
                let count = self.state.ledger.readings.len() as u64;
                let text = format!("SELECT count(*) FROM {READINGS}");
                ("count of readings", text, json!([]), Expectation::Count { count })
            }
            _ => {
                let (id, floor) = self.reading();
                let text = format!("SELECT version FROM {READINGS} WHERE id = $1");
                ("by key", text, json!([id]), Expectation::Version { id, floor })
            }
        };
        (self.post("/v1/sql", &json!({ "sql": text, "params": params })), name, expect)
    }

    fn search(&mut self) -> ReadRequest {
        let count = self.state.ledger.articles.floor();
        let (words, name, expect) = match self.number % 4 {
            0 | 1 => {
                // Every second of these requests is for one of the newest documents, which must be found once it is acknowledged.
                let back = if self.number.is_multiple_of(4) { count } else { count.min(10) };
                let id = count - 1 - self.random.below(back);
                (
                    own_word(id),
                    if back == count { "any document" } else { "a new document" },
                    Expectation::Document { id },
                )
            }
            2 => {
                let group = self.random.below(GROUPS);
                let members = |count: u64| count / GROUPS + u64::from(group < count % GROUPS);
                (group_word(group), "a group", Expectation::Group { group, floor: members(count) })
            }
            _ => {
                let common = &self.state.common;
                let (one, two) = (self.pick(common.len()), self.pick(common.len()));
                let floor = common[one].1.max(common[two].1);
                (
                    format!("{}+{}", common[one].0, common[two].0),
                    "two frequent words",
                    Expectation::Found { floor },
                )
            }
        };
        (self.get(&format!("/v1/tables/{ARTICLES}/search?q={words}&limit=10")), name, expect)
    }

    fn pick(&mut self, of: usize) -> usize {
        self.random.below(of as u64) as usize
    }

    fn page(&mut self) -> ReadRequest {
        let number = self.random.below(self.state.ledger.notes.len() as u64);
        let floor = self.state.ledger.notes[number as usize].floor();
        let expect = Expectation::Note { number, floor, mark: note_mark(number) };
        (self.get(&format!("/note-{number}")), "a page", expect)
    }

    fn ask(&mut self) -> ReadRequest {
        let (question, name, expect) = match self.number % 4 {
            0 => ("what changed in the last hour?".to_owned(), "what changed", Expectation::Changes),
            1 => {
                let count = self.state.ledger.readings.len() as u64;
                (
                    format!("how many {READINGS} are there?"),
                    "how many readings",
                    Expectation::Answer { count },
                )
            }
            _ => match self.batch() {
                Some((batch, _)) => {
                    let count = self.state.events.batch() as u64;
                    let question = format!("how many {EVENTS} with batch {batch}?");
                    (question, "how many of a batch", Expectation::Answer { count })
                }
                None => ("what tables are there?".to_owned(), "what tables", Expectation::Changes),
            },
        };
        (self.post("/v1/ask", &json!({ "q": question })), name, expect)
    }
}
