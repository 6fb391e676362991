//! Aggregate functions in place of DataFusion's, or beside them.

pub mod casts;
pub mod floats;
pub mod latest;
pub mod moving_min;
pub mod sum;
