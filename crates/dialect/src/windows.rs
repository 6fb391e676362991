//! Window functions, and windows of the WINDOW clause.

pub mod ntile;
pub mod ranks;
pub mod window_offset;
pub mod windows;
