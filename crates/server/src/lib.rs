//! Polynya over HTTP: routes, authentication, limits, the wire's formats, the first page.
//!
//! The only crate that knows axum, hyper and our definitions in JSON. What it is not: no storage, no SQL (it hands statements to
//! `query` and transactions to `engine`), no configuration files, no process signals (`app` has those).
//!
//! ```no_run
//! # use polynya_server as server;
//! # fn main() -> types::Result<()> {
//! # let (engine, sql): (engine::Engine, query::Sql) = unimplemented!();
//! let server = server::Server::start(engine.clone(), sql, server::Options::default())?;
//! println!("http://{}/_/", server.local_addr());
//! server.stop(std::time::Duration::from_secs(10));
//! engine.close()
//! # }
//! ```
//!
//! ## The way of a request
//! `listen` accepts it on the interactive runtime, `connection` watches its client's pace, `routes` finds the handler,
//! `auth` turns its key into a Principal, the handler answers, `telemetry` and `record` note it.
//!
//! ## Invariants
//! - R1: a handler that reads takes no lock: the root is one atomic load, telemetry is atomics, recording is a
//!   bounded queue that drops and counts when it is full.
//! - R2: every body, answer, queue and connection has a bound in [`Options`]; what is over a bound is refused with a
//!   reason and counted.
//! - R3: decoding larger bodies and writing larger answers happens on threads of class `Work`, so that lookups do not
//!   queue behind them.
//! - A1: a table that a key may not see is 404 for it, like one that does not exist.
//! - A connection closes only between answers, unless its client broke a limit; each such close is counted by reason.
//!
//! Start at [`Server`], then `routes.rs`. What bytes of rows mean is crate `wire`.

#![forbid(unsafe_code)]

mod app;
mod asked;
mod assets;
mod auth;
mod body;
mod connection;
pub mod content;
mod cursors;
pub mod definition;
mod failure;
mod files;
mod http2;
mod idempotency;
mod listen;
mod live;
mod mcp;
mod metrics;
mod options;
mod pages;
mod part;
mod partition;
mod protocol;
mod record;
mod revocation;
mod routes;
mod storm;
pub mod telemetry;
mod told;
mod values;
mod work;

/// Every route: its method, its path as axum writes it, and the scope that it needs; `None` where it is open.
pub fn routes() -> impl Iterator<Item = (&'static http::Method, &'static str, Option<types::Scope>)> {
    routes::ROUTES.iter().map(|route| (&route.method, route.path, route.scope))
}

pub use auth::{hash_of, new_secret};
pub use listen::Server;
pub use options::Options;
pub use part::{Figure, Part, Report};
pub use storm::StormSettings;
