//! Questions over real databases whose contents are known. One binary, because each links all of DataFusion.

// The name by which the workspace knows the crate.
extern crate polynya_ask as ask;

mod changes;
mod conditions;
mod exact;
mod honesty;
mod machine;
mod plain;
mod requests;
mod rights;
mod sharing;
mod tables;
mod texts;
mod wording;
mod world;
