//! SQL over a snapshot: one statement in, rows or what was done out. The only crate that knows DataFusion.
//!
//! Start at [`Sql::run`]. A statement is parsed ([`parse`](mod@parse)), its names are resolved against one
//! [`engine::View`] ([`names`]), and what it reads is planned and executed by DataFusion over
//! [`provider`], which reads `table::Snapshot`s. What changes something becomes an `engine::Transaction`.
//!
//! ```ignore
//! let sql = query::Sql::new(engine, query::Options::new("/var/tmp/spill"))?;
//! let principal = types::Principal::local();
//! let answer = sql.run(&principal, "SELECT * FROM events WHERE id = $1", vec![7i64.into()], Default::default()).await?;
//! if let query::Answer::Rows(mut rows) = answer {
//!     while let Some(batch) = rows.next().await { println!("{:?}", batch?); }
//! }
//! ```
#![forbid(unsafe_code)]

mod answer;
mod catalog;
mod convert;
mod ddl;
mod error;
mod execute;
mod literal;
mod names;
mod options;
mod params;
mod parse;
mod planner;
mod provider;
mod prune;
mod scan;
mod sql;
mod sql_type;
mod uuid;
mod write;

pub use answer::{Answer, AnswerColumn, Done, DoneKind, Rows};
pub use options::{Limits, Options, Overflow};
pub use sql::{Sql, Status};
