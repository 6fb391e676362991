//! Polynya over HTTP: routes, authentication, limits, wire formats and the first page.
//!
//! This is the only crate that uses axum, hyper and our JSON definitions of tables. It has no storage and no SQL: it hands
//! statements to `query` and transactions to `engine`. It reads no configuration files and handles no process signals, which is
//! the work of `app`.
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
//! ## The path of a request
//! `listen` accepts the connection on the interactive runtime, `connection` watches the pace of its client, `routes` finds the
//! handler, `auth` turns the key into a [`types::Principal`], the handler answers, and `telemetry` and `record` count and record
//! the request.
//!
//! ## Invariants
//! - R1: a handler that reads takes no lock. The root is one atomic load, telemetry is atomics, and recording is a bounded queue
//!   that drops requests and counts them when it is full.
//! - R2: every body, answer, queue and connection has a bound in [`Options`]. A request over a bound is refused with a reason and
//!   counted.
//! - R3: larger bodies are decoded and larger answers are written on threads of class `Work`, so that lookups do not queue behind
//!   them.
//! - A1: a table that a key may not see is answered with 404, like a table that does not exist.
//! - A connection closes only between answers, unless its client broke a limit. Each such close is counted by reason.
//!
//! Start at [`Server`], then `routes.rs`. The formats of rows belong to the crate `wire`.

#![forbid(unsafe_code)]

mod app;
mod assets;
mod auth;
mod body;
mod component;
mod connection;
pub mod content;
mod cursors;
pub mod definition;
mod failure;
mod files;
mod http2;
mod idempotency;
mod input;
mod listen;
mod live;
mod log_throttle;
mod mcp;
mod metrics;
mod options;
mod pages;
mod partition;
mod protocol;
mod record;
mod revocation;
mod routes;
mod storm;
pub mod telemetry;
mod values;
mod work_pool;

/// Returns every route: its method, its path as axum writes it, and the scope that it requires (`None` for an open route).
pub fn routes() -> impl Iterator<Item = (&'static http::Method, &'static str, Option<types::Scope>)> {
    routes::ROUTES.iter().map(|route| (&route.method, route.path, route.scope))
}

pub use auth::{hash_of, new_secret};
pub use component::{Component, Figure, Report};
pub use listen::Server;
pub use options::Options;
pub use storm::StormSettings;
