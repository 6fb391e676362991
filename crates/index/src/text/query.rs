//! What is asked, and what is answered.

use types::{ColumnId, Result, RowId};

/// What several words mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A row needs one of them; those with more, and rarer ones, come first.
    #[default]
    Any,
    /// A row needs all of them.
    All,
}

/// A search. `Query::new("words")` asks for the ten best rows.
///
/// Everything is a query; nothing is a syntax error. Words, `"a phrase"`, `+must`, `-must_not`, `prefix*`,
/// `column:word`. Words that no text can contain, such as
/// `&`, are left out, and so are English stop words, unless there is nothing else, they have a sign, or are in a phrase. With words to exclude alone nothing is
/// found.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    pub text: &'a str,
    /// Empty: all indexed columns.
    pub columns: &'a [ColumnId],
    pub mode: Mode,
    pub limit: usize,
    pub offset: usize,
    /// Rows that it refuses are neither answered nor counted. They do count in the statistic.
    pub filter: Option<&'a dyn Fn(RowId) -> bool>,
    /// Rows are counted exactly up to this; beyond it, those that cannot be among the best are passed over.
    pub count_max: u64,
    /// Asked each time after some tens of microseconds of work, up to a millisecond; its error ends the search: a deadline,
    /// or a bound on the work.
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

/// One row that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    pub row: RowId,
    pub score: f32,
}

/// The best rows, best first; equal ones by row id.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    pub hits: Vec<Hit>,
    /// Rows that match.
    pub total: u64,
    /// Else there are at least so many.
    pub exact: bool,
}
