//! Aggregate functions that replace DataFusion's, and some that DataFusion lacks.

pub mod casts;
pub mod floats;
pub mod latest;
pub mod moving_min;
pub mod sum;
