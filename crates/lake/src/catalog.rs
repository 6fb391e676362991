//! The part of an Iceberg catalog that handles the tables and views of other engines: their metadata and its rules, the
//! directories in which their files may be, and how a metadata file is written before anything names it.
//!
//! Metadata files are handled as JSON. Only the members that the rules need are interpreted, so that members which a newer
//! engine added survive. The rules are those of the table and view specifications and of the changes and requirements in the
//! REST catalog's protocol; `docs/decisions` says why they are implemented here. This module does not know which name has which
//! metadata file. The caller keeps that mapping, and moves a name only after [`TableStore::write`] has made the file durable.
//!
//! Start at [`TableChange`], then [`TableStore`].

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

pub use change::{ChangedTable, DELETE_AFTER_COMMIT, TableChange};
pub use create::{NewTable, create};
pub use purge::PurgeCounts;
pub(crate) use store::decompressed;
pub use store::{TableStore, overlaps};
pub use table::{FORMAT_MAX, TableMetadata};
pub use view::{ViewChange, ViewMetadata};

/// Converts a JSON object whose values are strings into a map; null gives an empty one. `what` describes one value in the error
/// message.
pub fn string_map(object: &Json, what: &str) -> Result<BTreeMap<String, String>> {
    let no_texts = || Error::invalid(format!("{what} must be a text with a name"));
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
