//! Tests of the whole engine: on a real disk with threads, and in the simulator with crashes.

mod basics;
mod concurrent;
mod simulated;
mod support;
