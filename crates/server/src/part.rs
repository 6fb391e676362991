//! Parts of the process that the server does not know, as `/ready` and `/metrics` show them.

use serde_json::Value as Json;

/// What a part is at.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether it can do all its work. The server is ready all the same: what is there is served.
    pub ok: bool,
    /// For `/ready`, which needs no key: no paths, no texts, no numbers of what is private.
    pub detail: Json,
    pub figures: Vec<Figure>,
}

/// A figure for `/metrics`.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Without `polynya_`.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    pub help: &'static str,
    pub value: f64,
    /// It would tell how much there is that the asker may not see (A1).
    pub for_admins: bool,
}

/// Something beside the server that has a state.
pub trait Part: Send + Sync + 'static {
    /// A stable word.
    fn name(&self) -> &'static str;
    /// Asked for each `/ready` and `/metrics`; must not wait for anything that takes long.
    fn report(&self) -> Report;
}
