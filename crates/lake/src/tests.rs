//! Tests of the whole crate, through the engine on a simulated machine and without it.

mod backups;
mod cadence;
mod commits;
mod contract;
mod costs;
mod crashes;
mod erasure;
mod evicted;
mod files;
mod layouts;
mod lineage;
mod names;
mod remote;
mod replacement;
mod rest;
mod spliced;
mod starts;
pub(crate) mod support;
mod upkeep;
