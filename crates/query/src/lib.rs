//! SQL over a snapshot: one statement in, rows or what was done out; and [`search`]. The only crate that knows DataFusion.
//!
//! Start at [`Sql::run`]. What happens to a statement, and where:
//!
//! | file | what |
//! |---|---|
//! | `sql.rs` | admission, the statement's task on SQL's own threads, retry after a conflict |
//! | `parse.rs` | PostgreSQL's dialect, bounded in time and depth; `struct<…>` and `list<…>` in CREATE TABLE; clauses that nobody reads are refused |
//! | `names.rs` | names are exact, else the only one that differs by case; `*` leaves the system columns out |
//! | `planner.rs` | the plan, kept by text and parameter types; today's snapshots are put in |
//! | `provider.rs`, `prune.rs`, `scan.rs` | `table::Snapshot` as a table: key lookups, ranges, zones, parts, statistics |
//! | `execute.rs`, `answer.rs`, `cancel.rs`, `deadline.rs`, `memory.rs` | the stream of batches with its limits, and its end |
//! | `long_rows.rs` | cross joins that repeat long rows for no more rows at once than memory is for |
//! | `write.rs`, `ddl.rs`, `literal.rs`, `convert.rs` | statements that write, as `engine::Transaction`s |
//! | `session.rs` | BEGIN, COMMIT, SAVEPOINT: statements in an `engine::OpenTransaction` |
//! | `write/returning.rs`, `write/conflict.rs` | RETURNING; ON CONFLICT |
//! | `files.rs` | COPY: what it says, the formats, the way of rows into a table. Its files are the library's, the command's and the server's to open |
//! | `prepared.rs`, `direct.rs` | statements that are run many times; lookups without a plan |
//! | `catalog.rs` | `information_schema`, SHOW TABLES, DESCRIBE |
//! | `coerce.rs` | what literals and text parameters mean where they stand; which numbers are exact |
//! | `names/views.rs`, `names/reads.rs`, `views.rs`, `alter.rs` | views are opened before names are bound, and read the columns that they were made of; ALTER TABLE |
//! | `asof_join.rs`, `latest.rs`, `ntile.rs`, `window_offset.rs` | ASOF JOIN; max_by and min_by; groups of rows; how far windows look |
//! | `by_index.rs`, `narrow.rs`, `by_order.rs`, `advice.rs` | rows by an index, the first of an order; which index is missing |
//! | `tell.rs` | what one side of a join tells the other: which values there are |
//! | `casts.rs` | aggregates that differ only in a cast |
//! | `arrays.rs`, `bytes.rs`, `called.rs` | lists and bytes as PostgreSQL has them; functions by other names |
//! | `interval.rs`, `ordered.rs` | an interval times a number; a UNION ALL that is in an order |
//! | `forget.rs` | constants, equal columns and orders that end at an outer join or at grouping sets |
//! | `simplify.rs`, `membership.rs`, `apart.rs`, `distinct.rs`, `float_keys.rs`, `floats.rs` | where DataFusion's answers would be wrong, or not the same twice |
//! | `dependent.rs`, `single.rs` | queries that depend on the rows outside; queries for a value |
//! | `sets.rs`, `grouping_sets.rs` | INTERSECT ALL and EXCEPT ALL count; totals of no rows, sets that stand twice |
//! | `checked.rs`, `sum.rs`, `bounded.rs` | results that do not fit are errors; how large they may get |
//! | `to_float.rs`, `whole.rs`, `decimal_text.rs` | decimals as floats, rounded once; decimals and floats as integers; texts as decimals |
//! | `text_or_number.rs` | texts and numbers that functions go over row by row |
//! | `interrupt.rs`, `regexes.rs` | a statement ends inside the functions that it calls |
//! | `budget.rs` | how large a plan may become while it is made |
//! | `type_text.rs` | how deep types nest |
//! | `guard.rs` | a condition that may fail is asked only about the rows that the others leave |
//! | `search.rs` | keyword search over a view: tables, filter, fusion, snippets |
//! | `sql/jobs.rs` | what search runs among the statements |
//! | `sql_type.rs`, `params.rs`, `uuid.rs`, `nullif.rs`, `one_type.rs`, `error.rs` | types, `$1`, uuids as text, what functions compare, DataFusion's errors as ours |
//!
//! ## Invariants
//! - S2: everything that a statement reads comes out of one `engine::View`.
//! - A1: that view is the principal's; a plan kept from another principal is used only if all its tables exist in it.
//! - R2: the text, the statements that run and wait, their memory, spill, rows, time and the batches that wait for a
//!   reader are bounded. An answer that was cut or broke off never looks whole.
//! - R3: statements run on threads of class `Work`, never on a caller's.
//!
//! Not here: tables and transactions themselves, formats of answers, JSON, the network.
//!
//! Not there yet: MERGE, ANY and ALL of a query beyond IN and NOT IN, definitions changed inside a transaction, defaults that are not
//! literals. They answer with an error of kind `Invalid` that says so.
//!
//! Spill files do not go through `vfs`: they are DataFusion's own, and no promise depends on them.
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

mod advice;
mod alter;
mod answer;
mod apart;
mod arrays;
mod as_of;
mod asof_join;
mod bounded;
mod budget;
mod by_index;
mod by_order;
mod bytes;
mod called;
mod cancel;
mod casts;
mod catalog;
mod checked;
mod coerce;
mod compact;
mod convert;
mod ddl;
mod deadline;
mod decimal_text;
mod dependent;
mod direct;
mod distinct;
mod error;
mod execute;
pub mod files;
mod filters;
mod first_rows;
mod float_keys;
mod floats;
mod forget;
mod grouping_sets;
mod guard;
mod interrupt;
mod interval;
mod latest;
mod literal;
mod long_rows;
mod marks;
mod matches;
mod membership;
mod memory;
mod moving_min;
mod names;
mod narrow;
mod not_in;
mod ntile;
mod nullif;
mod one_type;
mod opaque;
mod options;
mod ordered;
mod params;
mod parse;
mod planner;
mod prepared;
mod provider;
mod prune;
mod pushdown;
mod quotient;
mod ranks;
mod recursive;
mod regexes;
mod round;
mod row_values;
mod scan;
pub mod search;
mod session;
mod sets;
mod simplify;
mod single;
mod sql;
mod sql_type;
mod sum;
mod tell;
mod text_or_number;
mod times;
mod to_float;
mod type_text;
mod uuid;
mod views;
mod watchdog;
mod weight;
mod whole;
mod window_offset;
mod windows;
mod write;

pub use answer::{Answer, AnswerColumn, Done, DoneKind, Rows};
pub use options::{Limits, Options, Overflow};
pub use prepared::Prepared;
pub use search::Search;
pub use session::{Session, commit};
pub use sql::{Sql, Status};
