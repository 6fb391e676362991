//! Rewrites of statements, and of logical plans before the optimizer.

pub mod coercion;
pub mod correlated_scalars;
pub mod correlation;
pub mod distinct;
pub mod grouping_sets;
pub mod membership;
pub mod multiset_operations;
pub mod not_in_joins;
pub mod row_values;
pub mod single_row_subqueries;
pub mod spellings;
