//! Rules of the analyzer and of the logical and physical optimizers.

pub mod budget;
pub mod checked;
pub mod filters;
pub mod float_keys;
pub mod forget;
pub mod guard;
pub mod marks;
pub mod opaque;
pub mod ordered;
pub mod pushdown;
pub mod quotient;
pub mod recursive;
pub mod simplify;
pub mod to_float;
pub mod whole;
