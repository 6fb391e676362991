//! Nodes of physical plans, and the means to end a running statement.

pub mod asof_join;
pub mod cancellation;
pub mod cross_join;
pub mod interrupt;
