//! Harness and workloads behind `polynya bench`.
//!
//! What a figure must survive before it leaves this crate:
//! - **No coordinated omission.** An open loop sends at a fixed rate and charges each operation from the moment at
//!   which it *should* have been sent, so a stall is paid for by everything that it delayed ([`Pace`]).
//! - **Cold and warm apart.** What ran before the warm-up was over has its own histogram ([`run::StreamResult`]).
//! - **The machine's own hiccups beside it.** A control thread that only sleeps runs through every measurement
//!   ([`control`]); what it saw, steal time and other programs' CPU stand in every report.
//! - **The server's CPU apart from ours.** Read from `/proc` of the server's process, per operation ([`process`]).
//! - **Work that nobody can change.** The bytes sent derive from a seed and their hash is reported ([`events`]).
//! - **A wrong answer is no figure.** Any status but 2xx, a connection closed without an answer, or rows stored that
//!   differ from rows acknowledged fail the run; [`Report::verdict`] is then an error and the report says so first.
//! - **Ratios from one run.** Two configurations are compared interleaved, A B B A … ([`ab`]).
//!
//! Not here: peers (`crates/compare` runs them in this harness), simulated disks (`crates/sim`), and any code of
//! the server ([`waits`], [`freeze`] and [`tables`] use the library): the load speaks HTTP/1.1 over loopback to whatever listens there, and refuses other addresses,
//! since a load generator is a weapon when it is pointed at somebody else.
//!
//! Linux only: load is driven by `epoll` with sub-millisecond timeouts and `/proc` is where CPU is read.
//!
//! Start at [`Harness`] for work inside this process, at [`load::Load`] for work over HTTP; [`ingest`], [`landing`], [`reads`],
//! [`sql_small`], [`kill9`], [`waits`], [`freeze`] and [`tables`] are the workloads, [`peer`] what the last two ask of a database, [`child`] starts and stops a server for them.

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
pub mod landing;
mod latency;
pub mod load;
pub mod machine;
mod markdown;
mod measured;
pub mod pace;
pub mod peer;
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
pub use harness::{Done, Harness};
pub use http::{Answer, Client, render};
pub use latency::{Latency, Summary};
pub use measured::{Figure, Is, Measured};
pub use pace::Pace;
pub use report::{Claim, Report, Sheet};
pub use run::{Run, Timing};
pub use target::Target;

/// Where a workload says what it is doing, one line at a time.
pub type Progress<'a> = &'a mut dyn FnMut(&str);
