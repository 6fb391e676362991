//! SQL against a real database in a temporary directory. One binary, because each links all of DataFusion.

// The name by which the workspace knows the crate.
extern crate polynya_query as query;

mod advice;
mod as_of;
mod asof_join;
mod commits;
mod database;
mod depth;
mod dml;
mod float_keys;
mod floats;
mod hostile;
mod indexes;
mod limits;
mod logic;
mod lookups;
mod narrow;
mod params;
mod plans;
mod schema;
mod search;
mod semi;
mod sessions;
mod shapes;
mod slt;
mod spill;
mod time;
mod unique;
mod writes;
