//! The whole of it: through the engine on a simulated machine, and on its own.

mod cadence;
mod commits;
mod contract;
mod crashes;
mod erasure;
mod files;
mod layouts;
mod names;
mod remote;
pub(crate) mod support;
mod upkeep;
