//! PostgreSQL's syntax: parses statements within bounds, and binds their names to tables and columns.
//!
//! | module | purpose |
//! |---|---|
//! | [`parse`] | text to a syntax tree: bounded in depth and size, clauses that nothing reads are refused |
//! | [`names`] | names of tables and columns, written out as the catalog has them |
//! | [`as_of`] | `AS OF`: tables as they were at an earlier commit |
//! | [`sql_type`] | SQL's types, Arrow's and Polynya's |
//! | [`ast`] | builders of expressions and queries |
//!
//! Not here: DataFusion, and tables themselves: [`names::TableCatalog`] is asked for their columns.

#![forbid(unsafe_code)]

pub mod as_of;
pub mod ast;
pub mod names;
pub mod parse;
pub mod sql_type;

use types::{Error, name};

/// The error of a clause or statement that Polynya does not support yet.
pub fn not_yet(feature: &str) -> Error {
    Error::invalid(format!("{} is not supported yet", name::printable(feature)))
}
