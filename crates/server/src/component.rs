//! Components of the process that the server does not know, whose state `/ready` and `/metrics` report.

use serde_json::Value as Json;

/// The state of a component.
#[derive(Clone, Debug)]
pub struct Report {
    /// True if the component can do all its work. If not, the server still counts as ready, since it serves the data that it has.
    pub ok: bool,
    /// Details for `/ready`, which requires no key: no paths, no texts, no counts of private things.
    pub detail: Json,
    pub figures: Vec<Figure>,
}

/// A metric for `/metrics`.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name without the prefix `polynya_`.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    pub help: &'static str,
    pub value: f64,
    /// True if only admins may see it, because it tells how much data exists that other principals may not see (A1).
    pub for_admins: bool,
}

/// A component beside the server that has a state.
pub trait Component: Send + Sync + 'static {
    /// Returns the stable name of the component.
    fn name(&self) -> &'static str;
    /// Returns the current state. Called for each request to `/ready` and `/metrics`, so it must not block for long.
    fn report(&self) -> Report;
}
