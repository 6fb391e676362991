//! Conversion of literals, parameters and the results of expressions to column values.

pub mod convert;
pub mod decimal_text;
pub mod literal;
pub mod params;
pub mod type_depth;
