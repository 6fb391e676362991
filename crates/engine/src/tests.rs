//! Tests of the whole engine: on a real disk with threads, and in the simulator with crashes.

mod background;
mod basics;
mod closing;
mod concurrent;
mod derived;
mod killed;
mod limits;
mod meddling;
mod opening;
mod schema;
mod shapes;
mod simulated;
mod support;
mod ttl;
