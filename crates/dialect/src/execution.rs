//! Nodes of physical plans, and the end of a statement that runs.

pub mod asof_join;
pub mod cancel;
pub mod interrupt;
pub mod long_rows;
