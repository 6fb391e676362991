//! The meaning of a question: the sources to ask, and the request to each of them.

use std::sync::Arc;

use types::TableDef;

use crate::comparison::Comparison;
use crate::time::Window;

/// The meaning of a whole question.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub condition: Option<Conditional>,
    /// Parts that are asked whether or not the condition holds.
    pub parts: Vec<QuestionPart>,
    /// True if the answer depends on the time of the question.
    pub timed: bool,
}

/// A condition, `if X, …`, with its consequence.
#[derive(Clone, Debug)]
pub(crate) struct Conditional {
    pub text: String,
    pub parts: Vec<QuestionPart>,
    /// The way in which the parts are combined.
    pub join: Conjunction,
    pub consequence: Consequence,
}

/// The way in which several conditions are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Conjunction {
    /// Joined by `or`, or by nothing.
    #[default]
    Any,
    /// `and`.
    All,
    /// Joined by both `and` and `or`, so that their grouping is ambiguous.
    Unclear,
}

/// The consequence of a condition that holds.
#[derive(Clone, Debug)]
pub(crate) enum Consequence {
    /// `show it`, `tell me`: the facts that made the condition hold are the answer.
    Show,
    /// Another question.
    Ask(Vec<QuestionPart>),
    /// An action that this server, which only answers, does not perform.
    Other(String),
}

/// One question without `if` and `and`.
#[derive(Clone, Debug)]
pub(crate) struct QuestionPart {
    pub text: String,
    pub tasks: Vec<SourceTask>,
    /// True if the vocabulary or a name led to these tasks. False for a guess, made for lack of anything better.
    pub strong: bool,
    /// True if the part names its subject, so that it can stand as a question by itself.
    pub named: bool,
    /// The way in which the results of its tasks make one condition.
    pub join: Conjunction,
    /// The reason for asking no source although the part was understood.
    pub refusal: Option<Refusal>,
}

/// The reason for refusing a part of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The part orders an action.
    Order,
    /// The part is about the future.
    Future,
}

impl Refusal {
    pub fn why(self) -> &'static str {
        match self {
            Refusal::Order => "Polynya only answers; it changes nothing.",
            Refusal::Future => "Only recorded data can be reported, not the future.",
        }
    }
}

/// The request to one source.
#[derive(Clone, Debug)]
pub(crate) struct SourceTask {
    /// The source's name in the answer.
    pub source: String,
    pub kind: &'static str,
    pub query: SourceQuery,
}

#[derive(Clone, Debug)]
pub(crate) enum SourceQuery {
    Metrics(MetricsQuery),
    Requests(RequestsQuery),
    Table(Box<TableQuery>),
    Notes(NotesQuery),
    Changes(ChangesQuery),
    /// Words that may be values of some table, each with its alternatives joined by `or`.
    Values(Vec<Vec<String>>),
    Catalog,
}

/// The attributes common to all questions about rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowScope {
    pub window: Option<Window>,
    /// True if the opposite was asked.
    pub negated: bool,
    pub aggregate: Option<Aggregate>,
    /// The number of rows that were asked for.
    pub limit: Option<usize>,
    /// Words not understood so far; a source may know them as values.
    pub not_understood: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Count,
    Average,
    Sum,
    Highest,
    Lowest,
    Latest,
    Oldest,
}

/// A question about `polynya.metrics`.
#[derive(Clone, Debug)]
pub(crate) struct MetricsQuery {
    pub measure: Measure,
    pub predicate: Option<Predicate>,
    /// True if the question is when the predicate held.
    pub when: bool,
    pub scope: RowScope,
}

/// A quantity of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// File systems, by the free share of their size.
    Filesystem(Quantity),
    Memory(Quantity),
    Cpu,
    Cores,
    Load,
    DiskActivity,
    Network,
    Sent,
    Pressure,
    Swap,
    /// A metric by its own name.
    ByName(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    UsedPercent,
    FreePercent,
    UsedBytes,
    FreeBytes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Predicate {
    /// A word of the vocabulary with its bound: `nearly full`.
    Word {
        phrase: &'static str,
        op: crate::comparison::Op,
        bound: f64,
    },
    /// The load is at least the number of cores.
    LoadPerCore,
    Compare(Comparison),
}

/// A question about `polynya.requests`.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestsQuery {
    /// Bounds of the duration.
    pub duration: Vec<Comparison>,
    /// True if the question says `slow` without a number.
    pub slow: bool,
    /// Lowest and highest status, from a word: `failed`.
    pub status: Option<(i64, i64)>,
    /// Statuses given as numbers: `status 404`, `other than 404`.
    pub statuses: Choice<i64>,
    /// Bounds of the status: `status above 400`.
    pub status_bounds: Vec<Comparison>,
    pub methods: Choice<String>,
    pub routes: Choice<String>,
    pub table: Option<String>,
    /// The column to count by.
    pub group: Option<&'static str>,
    /// A bound on the number of requests.
    pub count: Option<Comparison>,
    /// True if the question is whether there are any such requests.
    pub whether: bool,
    pub scope: RowScope,
}

/// A set of values to match, or to exclude.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice<T> {
    pub values: Vec<T>,
    pub negated: bool,
}

impl<T> Choice<T> {
    /// Adds a value. Returns false if it contradicts the values so far: `GET or POST` is possible, `GET, not POST` is not.
    pub fn add(&mut self, value: T, negated: bool) -> bool {
        let fits = self.values.is_empty() || self.negated == negated;
        if fits {
            self.values.push(value);
            self.negated = negated;
        }
        fits
    }
}

/// A question about any other table.
#[derive(Clone, Debug)]
pub(crate) struct TableQuery {
    pub def: Arc<TableDef>,
    /// Positions of the named columns.
    pub columns: Vec<usize>,
    /// Columns with the numbers they are compared with.
    pub comparisons: Vec<(usize, Comparison)>,
    /// Comparisons whose column is unknown.
    pub unclear: Vec<Comparison>,
    /// Columns with required or excluded values: `kind is click`, `kind is not click or view`.
    pub values: Vec<ColumnValues>,
    /// Columns with true if they must have no value (`no price`), false if they must have one (`with a price`).
    pub missing: Vec<(usize, bool)>,
    /// Words without a column that may be values: `click or view`.
    pub value_words: Vec<ValueWords>,
    /// The way in which all of these make one condition.
    pub join: Conjunction,
    pub group: Option<usize>,
    /// The named column that the window, or the order of the rows, is about.
    pub time: Option<usize>,
    /// True if the question asks for the time of the newest or the oldest row.
    pub when: bool,
    pub count: Option<Comparison>,
    /// The column whose distinct values are counted: `how many countries`.
    pub distinct: Option<usize>,
    pub whether: bool,
    pub scope: RowScope,
}

/// A column and the values that it may have.
#[derive(Clone, Debug)]
pub(crate) struct ColumnValues {
    pub column: usize,
    pub values: Vec<String>,
    /// Values that are also small words of English (`at`, `in`). They count as values only if the column has them.
    pub unsure: Vec<String>,
    pub negated: bool,
}

/// Words that may be values of some column.
#[derive(Clone, Debug)]
pub(crate) struct ValueWords {
    pub words: Vec<String>,
    /// The negation before the words, as written.
    pub not: Option<String>,
}

/// A search of the notes.
#[derive(Clone, Debug)]
pub(crate) struct NotesQuery {
    pub words: Vec<String>,
    /// True if the question says `notes`.
    pub named: bool,
    /// True if the question asks for the number of notes.
    pub count: bool,
    /// Words that a full-text search cannot express: times, negations.
    pub not_understood: Vec<String>,
}

/// A question about changes.
#[derive(Clone, Debug)]
pub(crate) struct ChangesQuery {
    pub window: Window,
    /// True if the question names no time.
    pub default_window: bool,
    /// Full names of the tables; empty: all.
    pub tables: Vec<String>,
    pub negated: bool,
    /// True if the tables that did not change are asked for: `which tables did not change`.
    pub others: bool,
    /// True if notes were asked for and the asker sees no table of them.
    pub unseen_notes: bool,
    pub not_understood: Vec<String>,
}
