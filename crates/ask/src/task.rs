//! What a question was found to mean: which source is asked, and what.

use std::sync::Arc;

use types::TableDef;

use crate::compare::Comparison;
use crate::time::Window;

/// A whole question.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub condition: Option<Condition>,
    /// Asked in any case, or because of the condition.
    pub parts: Vec<Part>,
    /// Its answer depends on when it is asked.
    pub timed: bool,
}

/// `if X, …`.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub text: String,
    pub parts: Vec<Part>,
    /// How the parts make one condition.
    pub join: Join,
    pub then: Then,
}

/// How several conditions make one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Join {
    /// `or`, or nothing that joins them.
    #[default]
    Any,
    /// `and`.
    All,
    /// Both: what belongs together cannot be told.
    Unclear,
}

/// What is to be done if the condition holds.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// `show it`, `tell me`: what made it hold is the answer.
    Show,
    /// Another question.
    Ask(Vec<Part>),
    /// Something that a server of answers does not do.
    Other(String),
}

/// One question without `if` and `and`.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub text: String,
    pub tasks: Vec<Task>,
    /// The vocabulary or a name led to these tasks, rather than the lack of anything better.
    pub strong: bool,
    /// What it is about was named, so that it is a question by itself.
    pub named: bool,
    /// How what its tasks find makes one condition.
    pub join: Join,
    /// Why nobody is asked although it was understood what it is about.
    pub refused: Option<Refused>,
}

/// What answers cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It wants something to be done.
    Order,
    /// It is about what is to come.
    Future,
}

impl Refused {
    pub fn why(self) -> &'static str {
        match self {
            Refused::Order => "Polynya only answers; it changes nothing.",
            Refused::Future => "Only what is recorded can be told, not what is to come.",
        }
    }
}

/// One source's share of a part.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// As the answer lists it.
    pub source: String,
    pub kind: &'static str,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Metrics(Metrics),
    Requests(Requests),
    Table(Box<Table>),
    Notes(Notes),
    Changes(Changes),
    /// Words that may be values of some table, each with those that `or` joins to it.
    Values(Vec<Vec<String>>),
    Catalog,
}

/// Common to questions about rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub window: Option<Window>,
    /// The opposite was asked.
    pub negated: bool,
    pub aggregate: Option<Aggregate>,
    /// How many rows were asked for.
    pub limit: Option<usize>,
    /// Words that nobody understood so far; a source may know them as values.
    pub left: Vec<String>,
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
pub(crate) struct Metrics {
    pub measure: Measure,
    pub predicate: Option<Predicate>,
    /// It asks for the time at which the predicate held.
    pub when: bool,
    pub scope: Scope,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// File systems, by what is free of their size.
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
    Named(String),
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
    /// As the vocabulary has it: `nearly full` with its bound.
    Word {
        said: &'static str,
        op: crate::compare::Op,
        bound: f64,
    },
    /// The load is as high as there are cores.
    LoadPerCore,
    Compare(Comparison),
}

/// A question about `polynya.requests`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// Bounds of the duration in microseconds.
    pub duration: Vec<Comparison>,
    /// `slow` was said, without a number.
    pub slow: bool,
    /// Lowest and highest status asked for, by a word: `failed`.
    pub status: Option<(i64, i64)>,
    /// `status 404`, `other than 404`.
    pub statuses: Choice<i64>,
    /// `status above 400`.
    pub status_bounds: Vec<Comparison>,
    pub methods: Choice<String>,
    pub routes: Choice<String>,
    pub table: Option<String>,
    /// The column for each of whose values they are counted.
    pub group: Option<&'static str>,
    /// How many there are compared with a number.
    pub count: Option<Comparison>,
    /// It asks whether there are any.
    pub whether: bool,
    pub scope: Scope,
}

/// One of these, or none of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice<T> {
    pub values: Vec<T>,
    pub negated: bool,
}

impl<T> Choice<T> {
    /// Whether it goes together with what is chosen by now: `GET or POST`, not `GET, not POST`.
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
pub(crate) struct Table {
    pub def: Arc<TableDef>,
    /// Columns that were named, by position.
    pub columns: Vec<usize>,
    /// Columns compared with numbers.
    pub comparisons: Vec<(usize, Comparison)>,
    /// Comparisons whose column is not known.
    pub unclear: Vec<Comparison>,
    /// `kind is click`, `kind is not click or view`.
    pub values: Vec<Named>,
    /// Columns without a value, or with one: `no price`, `with a price`.
    pub missing: Vec<(usize, bool)>,
    /// `click or view`, without a column.
    pub bare: Vec<Bare>,
    /// How all of these make one condition.
    pub join: Join,
    pub group: Option<usize>,
    /// The column that the window, or the order of the rows, is about, where one was named.
    pub time: Option<usize>,
    /// It asks when the newest or the oldest was.
    pub when: bool,
    pub count: Option<Comparison>,
    /// The column whose different values are counted: `how many countries`.
    pub distinct: Option<usize>,
    pub whether: bool,
    pub scope: Scope,
}

/// A column and the values that it may have.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub column: usize,
    pub values: Vec<String>,
    /// Those of them that are small words too, and values only if the column has them.
    pub unsure: Vec<String>,
    pub negated: bool,
}

/// Words that may be values of some column.
#[derive(Clone, Debug)]
pub(crate) struct Bare {
    pub words: Vec<String>,
    /// The negation before them, as it was written.
    pub not: Option<String>,
}

/// Words to be looked for in notes.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    pub words: Vec<String>,
    /// Notes were asked for by that name.
    pub named: bool,
    /// How many there are.
    pub count: bool,
    /// What a search knows nothing of: times, negations.
    pub left: Vec<String>,
}

/// What changed.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    pub window: Window,
    /// No time was named.
    pub default_window: bool,
    /// These tables only, by full name; empty: all.
    pub tables: Vec<String>,
    pub negated: bool,
    /// Those that did not change are asked for: `which tables did not change`.
    pub others: bool,
    /// Notes were asked for, and this asker sees no table of them.
    pub unseen_notes: bool,
    pub left: Vec<String>,
}
