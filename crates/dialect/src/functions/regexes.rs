//! Regular expressions and LIKE that end with their statement, in place of DataFusion's functions and operators.
//!
//! The library finds one match in time linear in text and pattern, and cannot be interrupted meanwhile; looking for all matches may
//! take the square of that: `a[^z]*z|a` reads to the end of the text at every `a`. So the statement's deadline is looked at between
//! matches, and what one search may take is bounded before it begins: [`STEPS_MAX`]. Patterns that differ from row to row are compiled
//! one at a time: thousands of them together may take gigabytes.

mod functions;
mod like;
mod operators;
mod pattern;

pub use functions::register;
pub use like::LikePattern;
pub use operators::{call_if_slow, in_node, in_place, is_regex, is_safe};
pub use pattern::Patterns;
