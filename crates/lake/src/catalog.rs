//! What a catalog must know of tables and views that other engines write: their metadata and its rules, where their files
//! may be, and how a metadata file comes to be there before anything names it.
//!
//! Metadata are JSON here, read with as little as the rules need, so that what a newer engine puts in is kept. The rules
//! are those of the table and view specifications and of the REST catalog's changes and requirements; `docs/decisions`
//! says why they are written here. Which name has which metadata file is not known here: that is the caller's truth, moved
//! only after [`Store::write`] has made the file durable.
//!
//! Start at [`Change`], then [`Store`].

mod change;
mod create;
mod partition;
mod purge;
pub mod requirement;
mod schema;
mod store;
mod table;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value as Json;
use types::{Error, Result, name};

pub use change::{Change, Changed, DELETE_OLD};
pub use create::{Wanted, create};
pub use purge::Purged;
pub(crate) use store::plain;
pub use store::{Store, overlaps};
pub use table::{FORMAT_MAX, Table};
pub use view::{View, ViewChange};

/// An object whose values are texts; null is an empty one. `what` one of them is.
pub fn texts(object: &Json, what: &str) -> Result<BTreeMap<String, String>> {
    let no_texts = || Error::invalid(format!("{what} is a text, under a name"));
    match object {
        Json::Null => Ok(BTreeMap::new()),
        Json::Object(map) => map
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(value) => Ok((key.clone(), value.to_owned())),
                None => Err(no_texts().with("name", name::printable(key))),
            })
            .collect(),
        _ => Err(no_texts()),
    }
}
