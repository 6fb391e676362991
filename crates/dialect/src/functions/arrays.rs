//! Lists as PostgreSQL has them: where DataFusion's functions answer something else, as about nulls in them, and how it writes
//! them as text.

mod functions;
mod spell;
mod text;

pub use functions::{EQUALS_ANY, LESS, REMOVE, less, register};
pub use spell::spell;
pub use text::{is_braced, to_value};
