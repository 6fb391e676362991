//! The whole of it: through the engine on a simulated machine, and on its own.

mod cadence;
mod commits;
mod contract;
mod crashes;
mod support;
