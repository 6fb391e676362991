//! SQL over snapshots: plans and runs statements, and answers with rows or with a summary of the change; and keyword [`search`].
//!
//! Start at [`Sql::run`]. A statement passes through the modules in about this order:
//!
//! | module | purpose |
//! |---|---|
//! | `options` | limits of SQL as a whole, and of single statements |
//! | `statements` | the entry point: admission, threads, light and heavy statements, retries after conflicts |
//! | `deadline`, `watchdog` | the end of a statement in time, and the answer for one whose threads are stuck |
//! | `planner` | plans from text, cached by text and parameter types; the current snapshots are put in |
//! | `views` | CREATE VIEW, and the expansion of views before names are bound |
//! | `catalog` | `information_schema`, `polynya.indexes`, SHOW TABLES, DESCRIBE |
//! | `provider` | a `table::Snapshot` as a DataFusion table |
//! | `prune` | row ranges, keys and zone map tests that a filter implies |
//! | `scan` | the physical scan: reads pieces, looks rows up, applies dynamic filters |
//! | `index_lookup` | the rows of a filter, by the best column index |
//! | `index_order` | the first rows in the order of an index, and one row for each distinct value |
//! | `index_pushdown` | a physical rule: scans read only the rows that sorts, `min`, `max`, DISTINCT and `count` need |
//! | `dynamic_filter` | a physical rule: the keys of a join's first side become a filter of the other side's scan |
//! | `large_limit` | a physical rule: a sort with a very large limit spills like a full sort |
//! | `compact_batches` | copies of batches that are small slices of large buffers, below nodes that keep them |
//! | `cost` | the estimate that separates light plans from heavy ones |
//! | `execute` | plans as streams of batches, or as one batch for statements that write |
//! | `memory` | the memory pool that all statements share |
//! | `answer` | streams of rows, and summaries of changes |
//! | `index_advice` | indexes that would have spared many reads |
//! | `point_lookup` | lookups of a few rows on the caller's thread, without a plan |
//! | `prepared` | prepared statements |
//! | `session` | BEGIN, COMMIT, SAVEPOINT; PREPARE and EXECUTE |
//! | `write` | INSERT, UPDATE, DELETE, CREATE TABLE AS, with ON CONFLICT and RETURNING, as `engine::Transaction`s |
//! | `ddl`, `alter` | CREATE TABLE, CREATE INDEX and ALTER TABLE as changes of definitions |
//! | [`files`] | COPY: the statement, the formats, and the loading of rows |
//! | [`search`] | keyword search over a view: tables, filter, fusion, snippets |
//!
//! ## Invariants
//! - S2: everything that a statement reads comes from one `engine::View`.
//! - A1: that view is the principal's; a plan cached from another principal is used only if all its tables exist in it.
//! - R2: the text, the running and the waiting statements, their memory, spill files, rows and time, and the batches that wait
//!   for a reader are bounded. An answer that was cut or broke off never looks complete.
//! - R3: statements run on SQL's own threads; only point lookups run on a caller's.
//!
//! Not here: syntax and names (`sql`), PostgreSQL's functions and rules (`dialect`), tables and transactions themselves (`table`,
//! `engine`), formats of answers, the network.
//!
//! Not supported yet: MERGE, ANY and ALL of a query beyond IN and NOT IN, changes of definitions inside a transaction, and
//! defaults that are not literals. These return an error of kind `Invalid` that says so.
//!
//! Spill files do not go through `vfs`: DataFusion writes them, and no promise depends on them.
//!
//! ```no_run
//! # use polynya_query as query;
//! # async fn example(engine: engine::Engine) -> types::Result<()> {
//! let sql = query::Sql::new(engine, query::Options::new("/var/tmp/spill"))?;
//! let principal = types::Principal::local();
//! let answer = sql.run(&principal, "SELECT * FROM events WHERE id = $1", vec![7i64.into()], Default::default()).await?;
//! if let query::Answer::Rows(mut rows) = answer {
//!     while let Some(batch) = rows.next().await {
//!         println!("{:?}", batch?);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod alter;
mod answer;
mod catalog;
mod compact_batches;
mod cost;
mod ddl;
mod deadline;
mod dynamic_filter;
mod execute;
pub mod files;
mod index_advice;
mod index_lookup;
mod index_order;
mod index_pushdown;
mod large_limit;
mod memory;
mod options;
mod planner;
mod point_lookup;
mod prepared;
mod provider;
mod prune;
mod scan;
pub mod search;
mod session;
mod statements;
mod views;
mod watchdog;
mod write;

pub use answer::{Answer, AnswerColumn, AnswerRows, Completion, CompletionKind};
pub use options::{Limits, Options, Overflow};
pub use prepared::Prepared;
pub use search::Search;
pub use session::{Session, commit};
pub use statements::{Sql, Status};
