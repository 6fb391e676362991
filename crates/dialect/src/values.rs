//! Values of columns, from literals, parameters and expressions.

pub mod convert;
pub mod decimal_text;
pub mod literal;
pub mod params;
pub mod type_text;
