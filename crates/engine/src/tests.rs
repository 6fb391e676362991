//! Tests of the whole engine: on a real disk with threads, and in the simulator with crashes.

mod archive;
mod background;
mod backup;
mod basics;
mod bit_flips;
mod closing;
mod cold;
mod concurrent;
mod concurrent_columns;
mod derived;
mod erasure;
mod hooked_disk;
mod idempotency;
mod interactive;
mod interactive_model;
mod limits;
mod log_lines;
mod opening;
mod past;
mod process_kills;
mod schema;
mod sent_backups;
mod simulated;
mod simulated_schemas;
mod support;
mod ttl;
