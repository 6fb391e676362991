//! Nodes of physical plans, and the means to end a running statement.

pub mod asof_join;
pub mod cancel;
pub mod interrupt;
pub mod long_rows;
