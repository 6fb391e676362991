//! Scalar functions that replace DataFusion's, and some that DataFusion lacks.

pub mod arrays;
pub mod byte_lengths;
pub mod common_type;
pub mod interval;
pub mod nullif;
pub mod regexes;
pub mod regexp_match;
pub mod result_limits;
pub mod round_digits;
pub mod text_or_number;
pub mod times;
pub mod uuid;
