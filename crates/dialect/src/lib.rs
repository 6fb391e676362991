//! PostgreSQL's answers where DataFusion's differ: functions, aggregates, rewrites of statements and plans, rules of the optimizer.
//!
//! | module | purpose |
//! |---|---|
//! | [`values`] | values of columns from literals, parameters and expressions |
//! | [`functions`], [`aggregates`], [`windows`] | functions in place of DataFusion's, or beside them |
//! | [`rewrites`] | statements and logical plans, rewritten before the optimizer sees them |
//! | [`rules`] | rules of the analyzer and the optimizers, and what keeps DataFusion's own from changing an answer |
//! | [`execution`] | nodes of physical plans, and the end of a statement that runs |
//! | [`error`] | DataFusion's errors in Polynya's words |
//!
//! Not here: tables, snapshots and indexes: `query` plans over those.

#![forbid(unsafe_code)]

pub mod aggregates;
pub mod error;
pub mod execution;
pub mod functions;
pub mod rewrites;
pub mod rules;
pub mod values;
pub mod windows;

/// Rows of a full batch.
pub const BATCH_ROWS: usize = 8_192;
