//! SQL against a real database in a temporary directory. One binary, because each links all of DataFusion.

// The name by which the workspace knows the crate.
extern crate polynya_query as query;

mod as_of;
mod asof_join;
mod commits;
mod database;
mod depth;
mod dml;
mod dynamic_filter;
mod float_keys;
mod floats;
mod hostile;
mod index_advice;
mod index_pushdown;
mod indexes;
mod limits;
mod logic;
mod lookups;
mod params;
mod plans;
mod schema;
mod search;
mod sessions;
mod shapes;
mod slt;
mod spill;
mod time;
mod unique;
mod writes;
