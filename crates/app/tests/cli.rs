//! The binary as people use it: started, asked, interrupted, killed.

#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/errors.rs"]
mod errors;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/ingest.rs"]
mod ingest;
#[path = "cli/keys.rs"]
mod keys;
#[path = "cli/polynya.rs"]
mod polynya;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/sql.rs"]
mod sql;
