//! Tests of the binary as people use it: started, queried, interrupted and killed.

#[path = "cli/ask.rs"]
mod ask;
#[path = "cli/backup.rs"]
mod backup;
#[path = "cli/copy.rs"]
mod copy;
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
#[path = "cli/lake.rs"]
mod lake;
#[path = "cli/polynya.rs"]
mod polynya;
#[path = "cli/publish.rs"]
mod publish;
#[path = "cli/search.rs"]
mod search;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/soak.rs"]
mod soak;
#[path = "cli/sql.rs"]
mod sql;
#[path = "cli/storm.rs"]
mod storm;
