//! Lists as in PostgreSQL: their functions, ANY and ALL, subscripts, and lists written as text. DataFusion's functions treat
//! nulls in lists differently, and it writes lists differently as text.

mod functions;
mod rewrite;
mod text;

pub use functions::{EQUALS_ANY, LESS, REMOVE, less, register};
pub use rewrite::rewrite;
pub use text::{is_braced, to_value};
