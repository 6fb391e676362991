//! Tests of the whole engine: on a real disk with threads, and in the simulator with crashes.

mod archive;
mod background;
mod backup;
mod basics;
mod closing;
mod cold;
mod columns;
mod concurrent;
mod derived;
mod erased;
mod flips;
mod interactive;
mod interactive_model;
mod killed;
mod limits;
mod meddling;
mod opening;
mod past;
mod remember;
mod schema;
mod sent;
mod shapes;
mod simulated;
mod support;
mod told;
mod ttl;
