//! Scalar functions that replace DataFusion's, and some that DataFusion lacks.

pub mod arrays;
pub mod bounded;
pub mod bytes;
pub mod interval;
pub mod matches;
pub mod nullif;
pub mod one_type;
pub mod regexes;
pub mod round;
pub mod times;
pub mod uuid;
