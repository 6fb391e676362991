//! Regular expressions and LIKE that can be interrupted. They replace DataFusion's functions and operators.
//!
//! The regex library finds one match in time linear in text and pattern, during which nothing can interrupt it. Finding all
//! matches may take quadratic time: `a[^z]*z|a` reads to the end of the text at every `a`. So the deadline is checked between
//! matches, and the cost of one search is bounded before it begins (`STEPS_MAX`). Patterns that differ from row to row are
//! compiled one at a time, because thousands of them together may take gigabytes.

mod functions;
mod like;
mod operators;
mod pattern;

pub use functions::register;
pub use like::LikePattern;
pub use operators::{call_if_slow, is_regex, is_safe, node_with_calls, plan_with_calls};
pub use pattern::Patterns;
