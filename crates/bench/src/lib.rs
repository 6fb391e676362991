//! Harness and workloads behind `polynya bench`.
//!
//! Rules for every figure that this crate reports:
//! - **No coordinated omission.** An open loop sends at a fixed rate and measures each operation from the moment at which it
//!   *should* have been sent, so a stall is charged to every operation that it delayed ([`Pace`]).
//! - **Cold and warm apart.** Operations that started before the warm-up was over have a histogram of their own
//!   ([`run::StreamResult`]).
//! - **The machine's own hiccups shown beside it.** A control thread that only sleeps runs through every measurement
//!   ([`control`]). Every report shows its delays, steal time and the CPU time of other programs.
//! - **The server's CPU apart from the generator's.** It is read from `/proc` of the server's process and reported per operation
//!   ([`process`]).
//! - **Work that nobody can change unnoticed.** The bytes sent derive from a seed, and the report holds their hash ([`events`]).
//! - **A wrong answer voids the figures.** A run fails on any status but 2xx, on a connection closed without an answer, and if
//!   the rows stored differ from the rows acknowledged. [`Report::verdict`] is then an error, and the report says so first.
//! - **Ratios from one run.** Two configurations are compared interleaved, A B B A … ([`ab`]).
//!
//! This crate contains no peers (`crates/compare` runs them in this harness), no simulated disks (`crates/sim`) and no code of
//! the server ([`waits`], [`freeze`] and [`tables`] use the library). The load speaks HTTP/1.1 over loopback to the server that
//! listens there. It refuses other addresses, since a load generator pointed at somebody else's machine is a weapon.
//!
//! Linux only: `epoll` with sub-millisecond timeouts drives the load, and CPU times come from `/proc`.
//!
//! Start at [`Harness`] for work inside this process, at [`load::Load`] for work over HTTP. The workloads are [`ingest`],
//! [`lake_ingest`], [`reads`], [`sql_small`], [`kill9`], [`waits`], [`freeze`], [`tables`], [`soak`] and [`storm`]. [`peer`] is
//! the interface through which `freeze` and `tables` use a database; [`child`] starts and stops a server for the others.

#![forbid(unsafe_code)]

pub mod ab;
pub mod child;
pub mod control;
mod dataset;
pub mod device;
pub mod events;
pub mod freeze;
mod fsync;
mod harness;
mod http;
pub mod ingest;
pub mod kill9;
pub mod lake_ingest;
mod latency;
pub mod load;
pub mod machine;
mod markdown;
pub mod pace;
pub mod peer;
mod peer_figures;
pub mod process;
pub mod random;
pub mod reads;
mod report;
pub mod run;
pub mod soak;
pub mod sql_small;
pub mod storm;
pub mod tables;
mod target;
pub mod waits;
mod wire;

pub use fsync::Fsync;
pub use harness::{Harness, OperationResult};
pub use http::{HttpAnswer, HttpClient, render};
pub use latency::{Latency, Summary};
pub use pace::Pace;
pub use peer_figures::{Figure, FigureKind, WorkFigures};
pub use report::{Claim, Report, Sheet};
pub use run::{BenchRun, Timing};
pub use target::LoadTarget;

/// Receives a line of text whenever a workload has progress to report.
pub type ProgressSink<'a> = &'a mut dyn FnMut(&str);
