//! Questions over real databases whose contents are known. All tests are one binary, because each binary links all of DataFusion.

// The workspace imports the crate under this name.
extern crate polynya_ask as ask;

mod caching;
mod changes;
mod conditions;
mod exact;
mod machine;
mod misread_words;
mod requests;
mod rights;
mod tables;
mod test_database;
mod texts;
mod unanswerable;
mod wording;
