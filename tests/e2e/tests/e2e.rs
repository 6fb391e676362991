//! Tests of the built binary from outside: it is killed, restarted, refused a start, and given a directory of an earlier format.

#[path = "e2e/bad_start.rs"]
mod bad_start;
#[path = "e2e/cursors.rs"]
mod cursors;
#[path = "e2e/damaged_log.rs"]
mod damaged_log;
#[path = "e2e/eviction.rs"]
mod eviction;
#[path = "e2e/external_catalog.rs"]
mod external_catalog;
#[path = "e2e/golden.rs"]
mod golden;
#[path = "e2e/hostile.rs"]
mod hostile;
#[path = "e2e/kill9.rs"]
mod kill9;
#[path = "e2e/lake.rs"]
mod lake;
#[path = "e2e/landing.rs"]
mod landing;
#[path = "e2e/restart.rs"]
mod restart;
#[path = "e2e/search.rs"]
mod search;
