//! Lists as in PostgreSQL: their functions, ANY and ALL, subscripts, and lists written as text. DataFusion's functions treat
//! nulls in lists differently, and it writes lists differently as text.

mod functions;
mod spell;
mod text;

pub use functions::{EQUALS_ANY, LESS, REMOVE, less, register};
pub use spell::spell;
pub use text::{is_braced, to_value};
