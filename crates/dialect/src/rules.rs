//! Rules of the analyzer and of the logical and physical optimizers.

pub mod aggregate_filters;
pub mod budget;
pub mod checked_arithmetic;
pub mod decimal_division;
pub mod filter_pushdown;
pub mod float_casts;
pub mod float_keys;
pub mod integer_casts;
pub mod mark_joins;
pub mod optimization_barrier;
pub mod property_barrier;
pub mod recursive_queries;
pub mod short_circuit;
pub mod simplify;
pub mod union_order;
