//! Window functions, and windows of the WINDOW clause.

pub mod named_windows;
pub mod ntile;
pub mod signed_ranks;
pub mod window_offset;
