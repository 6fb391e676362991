//! SQL against a real database in a temporary directory. One binary, because each links all of DataFusion.

mod database;
mod limits;
mod params;
mod plans;
mod slt;
mod writes;
