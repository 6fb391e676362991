//! Answers, as they are sent to clients in JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub q: String,
    /// The whole answer in a few sentences.
    pub answer: String,
    /// The parts of the answer, each from one source.
    pub sections: Vec<Section>,
    /// Every source that was asked, and those that were skipped.
    pub sources: Vec<Consulted>,
    /// Milliseconds from the question to this answer.
    pub took_ms: f64,
    /// The lsn at which all parts were read.
    pub lsn: u64,
    /// The time at which the answer was made, in UTC.
    pub as_of: String,
    /// True if the answer was made for an equal earlier question, from tables that have not changed since.
    pub cached: bool,
}

/// The answer of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub columns: Vec<Column>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rows: Vec<Vec<Json>>,
    /// The statement that gave the rows: `POST /v1/sql` returns the same with these parameters.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sql: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub params: Vec<Json>,
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub data_type: String,
}

/// A source with the result of asking it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Consulted {
    pub name: String,
    /// `table`, `notes`, `metrics`, `requests`, `changes` or `tables`.
    pub kind: String,
    pub state: State,
    /// The lsn at which the source was read.
    pub lsn: u64,
    /// The time of the source's newest data in UTC, if the data has times.
    pub as_of: Option<String>,
    pub took_ms: f64,
    /// The reason why the source did not answer, or a remark on its answer.
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The source has something to say.
    Answered,
    /// The source was asked and has nothing about this.
    Nothing,
    /// The source could not be read.
    Failed,
    /// The source had not finished at the deadline.
    Timeout,
    /// The source was not asked.
    Skipped,
}

/// An event of a streamed answer.
#[derive(Clone, Debug)]
pub enum Event {
    /// A section, sent as soon as it is ready. Sections come in no particular order.
    Section(Section),
    /// The complete answer, sent last.
    Answer(Box<Answer>),
}
