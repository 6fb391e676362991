//! The expected content of answers.
//!
//! Each floor was acknowledged when the request was sent, so an answer below it is wrong. Each ceiling is the largest value sent
//! before the answer arrived.

use serde_json::Value;

use super::corpus::{GROUPS, REVISION};
use super::state::StormState;
use crate::http::excerpt;
use crate::wire::whole;

#[derive(Clone, Debug)]
pub(super) enum Expectation {
    /// One row of `readings`, with at least this version.
    Reading { id: u64, floor: u64 },
    /// The rows of one batch, starting with its first.
    Page { batch: u64, first_row: u64, count: u64 },
    /// At least this many batches, counted in rows.
    AllEvents { floor: u64 },
    /// Count and sum of one complete batch.
    Batch { batch: u64 },
    /// At least this version of a row.
    Version { id: u64, floor: u64 },
    /// Exactly this number.
    Count { count: u64 },
    /// This document and no other.
    Document { id: u64 },
    /// Documents of this group, and at least this many.
    Group { group: u64, floor: u64 },
    /// At least this many documents.
    Found { floor: u64 },
    /// The page of this note, with at least this revision.
    Note { number: u64, floor: u64, mark: String },
    /// An answer in words that contains this number.
    Answer { count: u64 },
    /// An answer in words with any content.
    Changes,
}

impl Expectation {
    /// Checks an answer. The error says why it is wrong.
    pub(super) fn check(&self, state: &StormState, body: &[u8]) -> Result<(), String> {
        let ledger = &state.ledger;
        let found = match self {
            Expectation::Note { number, floor, mark } => {
                let text = String::from_utf8_lossy(body);
                let revision = text.split(REVISION).nth(1).and_then(leading_number);
                let ceiling = ledger.notes[*number as usize].ceiling();
                let Some(revision) = revision
                    .filter(|revision| text.contains(mark.as_str()) && (*floor..=ceiling).contains(revision))
                else {
                    return Err(format!(
                        "note {number} at revision {floor} to {ceiling} expected, found revision {revision:?} in {}",
                        excerpt(body)
                    ));
                };
                ledger.notes[*number as usize].acknowledge(revision);
                return Ok(());
            }
            _ => serde_json::from_slice::<Value>(body)
                .map_err(|error| format!("no JSON ({error}): {}", excerpt(body)))?,
        };
        let batch_rows = state.events.batch() as u64;
        let right = match self {
            Expectation::Reading { id, floor } => {
                let ceiling = ledger.readings[*id as usize].ceiling();
                let version = whole(&found["version"]);
                whole(&found["id"]) == Some(*id) && version.is_some_and(|v| (*floor..=ceiling).contains(&v))
            }
            Expectation::Page { batch, first_row, count } => {
                let rows = found["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
                rows.len() as u64 == *count
                    && rows.iter().zip(0..).all(|(row, slot)| {
                        [&row["_row_id"], &row["batch"], &row["slot"]].map(whole)
                            == [Some(first_row + slot), Some(*batch), Some(slot)]
                    })
            }
            Expectation::AllEvents { floor } => cell(&found, 0).is_some_and(|count| {
                (floor * batch_rows..=ledger.events.sent() * batch_rows).contains(&count)
            }),
            Expectation::Batch { batch } => {
                cell(&found, 0) == Some(batch_rows) && cell(&found, 1) == Some(state.events.sum(*batch))
            }
            Expectation::Version { id, floor } => {
                let ceiling = ledger.readings[*id as usize].ceiling();
                cell(&found, 0).is_some_and(|version| (*floor..=ceiling).contains(&version))
            }
            Expectation::Count { count } => cell(&found, 0) == Some(*count),
            Expectation::Document { id } => {
                whole(&found["total"]) == Some(1) && whole(&found["hits"][0]["key"]) == Some(*id)
            }
            Expectation::Group { group, floor } => {
                // Documents go to the groups in turn, so a group has at most one more than the quotient.
                let ceiling = ledger.articles.ceiling() / GROUPS + 1;
                let hits = found["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
                let total = whole(&found["total"]).unwrap_or_default();
                (*floor..=ceiling).contains(&total)
                    && hits.len() as u64 == total.min(10)
                    && hits.iter().all(|hit| whole(&hit["key"]).is_some_and(|id| id % GROUPS == *group))
            }
            Expectation::Found { floor } => {
                let exact = found["exact"] == Value::Bool(true);
                whole(&found["total"]).is_some_and(|total| total >= *floor || !exact)
            }
            Expectation::Answer { count } => whole(&found["sections"][0]["rows"][0][0]) == Some(*count),
            Expectation::Changes => {
                found["sections"].as_array().is_some_and(|sections| !sections.is_empty())
                    && found["sources"].as_array().is_some_and(|sources| {
                        sources
                            .iter()
                            .all(|source| source["state"] != "failed" && source["state"] != "timeout")
                    })
            }
            Expectation::Note { .. } => true,
        };
        if right {
            Ok(())
        } else if found["sources"].is_array() {
            Err(format!("{self:?} expected, found {}", describe_answer(&found)))
        } else {
            Err(format!("{self:?} expected, found {}", excerpt(body)))
        }
    }
}

/// Renders an answer in words, and the sources that did not answer, with their reasons.
fn describe_answer(found: &Value) -> String {
    let sources = found["sources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let silent = sources.iter().filter(|source| source["state"] != "answered");
    let silent: Vec<String> = silent
        .map(|source| format!("{} {}: {}", source["name"], source["state"], source["detail"]))
        .collect();
    format!("{} ({})", excerpt(found["answer"].to_string().as_bytes()), silent.join("; "))
}

/// Returns a value of the first row of an SQL answer.
fn cell(found: &Value, column: usize) -> Option<u64> {
    whole(&found["rows"][0][column])
}

fn leading_number(text: &str) -> Option<u64> {
    text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::options::Size;

    fn check(state: &StormState, expect: Expectation, body: &str) -> bool {
        expect.check(state, body.as_bytes()).is_ok()
    }

    #[test]
    fn answers_below_what_was_acknowledged_or_above_what_was_sent_are_wrong() {
        let state = StormState::new(1, &Size { batch: 50, ..Size::default() }.scaled(0.01));
        let reading = &state.ledger.readings[3];
        reading.send(9);
        reading.acknowledge(7);
        let row = |version: u64| format!("{{\"id\":3,\"version\":{version}}}");
        for (version, right) in [(6, false), (7, true), (9, true), (10, false)] {
            assert_eq!(
                check(&state, Expectation::Reading { id: 3, floor: 7 }, &row(version)),
                right,
                "{version}"
            );
            let sql = format!("{{\"rows\":[[{version}]]}}");
            assert_eq!(check(&state, Expectation::Version { id: 3, floor: 7 }, &sql), right, "{version}");
        }
        for _ in 0..3 {
            state.ledger.events.send();
        }
        state.ledger.events.acknowledge(0, 1);
        for (count, right) in [(0, false), (50, true), (150, true), (151, false)] {
            let sql = format!("{{\"rows\":[[\"{count}\"]]}}");
            assert_eq!(check(&state, Expectation::AllEvents { floor: 1 }, &sql), right, "{count}");
        }
        let sum = state.events.sum(2);
        assert!(check(&state, Expectation::Batch { batch: 2 }, &format!("{{\"rows\":[[50,{sum}]]}}")));
        assert!(!check(&state, Expectation::Batch { batch: 2 }, &format!("{{\"rows\":[[49,{sum}]]}}")));
        assert!(!check(&state, Expectation::Count { count: 5 }, "{\"rows\":[]}"));
        assert!(!check(&state, Expectation::Count { count: 5 }, "<html>"));
    }

    #[test]
    fn a_page_must_be_the_notes_own_and_never_go_back() {
        let state = StormState::new(1, &Size::default().scaled(0.01));
        state.ledger.notes[2].send(4);
        let expect = |floor| Expectation::Note { number: 2, floor, mark: super::super::corpus::note_mark(2) };
        let page = |number: u64, revision: u64| {
            format!("<p>{}</p><p>{REVISION}{revision}.</p>", super::super::corpus::note_mark(number))
        };
        assert!(check(&state, expect(0), &page(2, 4)));
        assert_eq!(state.ledger.notes[2].floor(), 4, "what was shown once is not taken back");
        assert!(!check(&state, expect(4), &page(2, 3)));
        assert!(!check(&state, expect(0), &page(2, 5)), "nobody wrote that yet");
        assert!(!check(&state, expect(0), &page(3, 4)), "another note's page");
        assert!(!check(&state, expect(0), ""));
    }

    #[test]
    fn a_document_is_found_alone_and_a_group_whole() {
        let state = StormState::new(1, &Size::default().scaled(0.01));
        state.ledger.articles.send(81);
        let hits = |ids: &[u64], total: u64| {
            let hits: Vec<Value> = ids.iter().map(|id| serde_json::json!({ "key": id })).collect();
            serde_json::json!({ "hits": hits, "total": total, "exact": true }).to_string()
        };
        assert!(check(&state, Expectation::Document { id: 5 }, &hits(&[5], 1)));
        assert!(!check(&state, Expectation::Document { id: 5 }, &hits(&[], 0)));
        assert!(!check(&state, Expectation::Document { id: 5 }, &hits(&[5, 6], 2)));
        assert!(check(&state, Expectation::Group { group: 1, floor: 2 }, &hits(&[1, 41], 2)));
        assert!(!check(&state, Expectation::Group { group: 1, floor: 2 }, &hits(&[1], 1)), "one is missing");
        assert!(!check(&state, Expectation::Group { group: 1, floor: 2 }, &hits(&[1, 42], 2)), "a stranger");
    }
}
