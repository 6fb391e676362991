//! What is answered.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub q: String,
    /// The whole in some sentences.
    pub answer: String,
    /// Its parts, each from one source.
    pub sections: Vec<Section>,
    /// Every source that was asked, or would have been.
    pub sources: Vec<Consulted>,
    /// From the question to this answer.
    pub took_ms: f64,
    /// All parts stand at this commit.
    pub lsn: u64,
    /// When it was made. UTC.
    pub as_of: String,
    /// Made for an equal question before, from tables that have not changed since.
    pub cached: bool,
}

/// What one source says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub columns: Vec<Column>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rows: Vec<Vec<Json>>,
    /// The statement behind it: `POST /v1/sql` gives the same with these parameters.
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

/// A source and what came of asking it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Consulted {
    pub name: String,
    /// `table`, `notes`, `metrics`, `requests`, `changes` or `tables`.
    pub kind: String,
    pub state: State,
    /// The commit at which it was read.
    pub lsn: u64,
    /// How new its newest data is, where it has a time. UTC.
    pub as_of: Option<String>,
    pub took_ms: f64,
    /// Why it did not answer, or what to know about how it did.
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has something to say.
    Answered,
    /// It was asked and has nothing about this.
    Nothing,
    /// It could not be read.
    Failed,
    /// It was not through when the answer was due.
    Timeout,
    /// It was not asked.
    Skipped,
}

/// What a question that is answered in pieces yields.
#[derive(Clone, Debug)]
pub enum Event {
    /// A section as soon as it is there, in no particular order.
    Section(Section),
    /// The whole, last.
    Answer(Box<Answer>),
}
