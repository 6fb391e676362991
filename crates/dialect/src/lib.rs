//! PostgreSQL's results where DataFusion's differ: functions, aggregates, window functions, rewrites of statements and plans,
//! optimizer rules.
//!
//! | module | purpose |
//! |---|---|
//! | [`values`] | values of columns from literals, parameters and expressions |
//! | [`functions`], [`aggregates`], [`windows`] | functions that replace DataFusion's, and some that DataFusion lacks |
//! | [`rewrites`] | rewrites of statements and logical plans, before the optimizer |
//! | [`rules`] | rules of the analyzer and the optimizers, and guards against wrong rewrites by DataFusion's own rules |
//! | [`execution`] | nodes of physical plans, and the means to end a running statement |
//! | [`error`] | DataFusion's errors as Polynya's |
//!
//! The crate does not know tables, snapshots or indexes: the crate `query` plans over those.

#![forbid(unsafe_code)]

pub mod aggregates;
pub mod error;
pub mod execution;
pub mod functions;
pub mod rewrites;
pub mod rules;
pub mod values;
pub mod windows;

/// Number of rows of a full batch.
pub const BATCH_ROWS: usize = 8_192;
