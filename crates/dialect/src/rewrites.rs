//! Rewrites of statements, and of logical plans before the optimizer.

pub mod apart;
pub mod called;
pub mod coerce;
pub mod dependent;
pub mod distinct;
pub mod grouping_sets;
pub mod membership;
pub mod not_in;
pub mod row_values;
pub mod sets;
pub mod single;
