//! Questions over real databases whose contents are known. All tests are one binary, because each binary links all of DataFusion.

// The workspace imports the crate under this name.
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
