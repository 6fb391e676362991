//! The query and the answer of a keyword search.

use types::{ColumnId, Result, RowId};

/// The meaning of several words in a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A row matches if it has at least one of the words. Rows with more of them, and with rarer ones, come first.
    #[default]
    Any,
    /// A row matches if it has all words.
    All,
}

/// A keyword query. `Query::new("words")` asks for the ten best rows.
///
/// Every text is a valid query; there are no syntax errors. The forms are words, `"a phrase"`, `+must`, `-must_not`,
/// `prefix*` and `column:word`. Words that no text can contain, such as `&`, are ignored. English stop words are
/// ignored too, unless the query has no other words, or they have a sign or stand in a phrase. A query that only
/// excludes words finds nothing.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    pub text: &'a str,
    /// The columns to search. Empty means all indexed columns.
    pub columns: &'a [ColumnId],
    pub mode: Mode,
    pub limit: usize,
    pub offset: usize,
    /// A filter. Rows for which it returns false are neither returned nor counted, but they do count in the statistic.
    pub filter: Option<&'a dyn Fn(RowId) -> bool>,
    /// The number up to which matching rows are counted exactly. Beyond it, rows that cannot be among the best are
    /// skipped.
    pub count_max: u64,
    /// Called after every some tens of microseconds of work, at most a millisecond. Its error ends the search: a
    /// deadline, or a limit on the work.
    pub check: Option<&'a dyn Fn() -> Result<()>>,
}

impl<'a> Query<'a> {
    pub fn new(text: &'a str) -> Self {
        Query {
            text,
            columns: &[],
            mode: Mode::Any,
            limit: 10,
            offset: 0,
            filter: None,
            count_max: 10_000,
            check: None,
        }
    }
}

/// One matching row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    pub row: RowId,
    pub score: f32,
}

/// The best rows of a query, best first. Rows with equal scores are ordered by row id.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    pub hits: Vec<Hit>,
    /// Number of matching rows.
    pub total: u64,
    /// True if `total` is exact. Otherwise it is a lower bound.
    pub exact: bool,
}
