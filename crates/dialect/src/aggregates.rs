//! Aggregate functions that replace DataFusion's, and some that DataFusion lacks.

pub mod cast_names;
pub mod floats;
pub mod max_by;
pub mod moving_min;
pub mod sum;
