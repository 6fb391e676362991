//! Builds the metadata of a new table that a client's request describes.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use types::{Error, Result, name};

use super::change::TableChange;
use super::partition;
use super::schema;
use super::table::{FORMAT, FORMAT_MAX, TableMetadata};

/// The property in which a request names the format version of the new table. It does not become a property of the table.
const FORMAT_VERSION: &str = "format-version";
/// The compression that new tables declare unless the request names another one, the same as in other catalogs.
const COMPRESSION: (&str, &str) = ("write.parquet.compression-codec", "zstd");

/// The new table that a request's body describes.
#[derive(Debug)]
pub struct NewTable<'a> {
    pub schema: &'a Json,
    /// The partition spec; null for none.
    pub partition_spec: &'a Json,
    /// The sort order; null for none.
    pub write_order: &'a Json,
    pub properties: BTreeMap<String, String>,
}

/// Returns the metadata of a new table without a snapshot. Fields get new ids, in their order.
pub fn create(wanted: NewTable<'_>, uuid: &str, location: &str, now_ms: i64) -> Result<TableMetadata> {
    let mut properties = wanted.properties;
    let format = match properties.remove(FORMAT_VERSION) {
        None => FORMAT,
        Some(text) => {
            text.parse().ok().filter(|format| (1..=FORMAT_MAX).contains(format)).ok_or_else(|| {
                Error::invalid(format!(
                    "`{FORMAT_VERSION}` is 1 to {FORMAT_MAX}, `{}` was given",
                    name::printable(&text)
                ))
            })?
        }
    };
    properties.entry(COMPRESSION.0.into()).or_insert_with(|| COMPRESSION.1.into());
    let (schema, ids, highest) = schema::with_fresh_ids(wanted.schema)?;
    let none = json!({ "fields": [] });
    let given = |asked: &Json| if asked.is_null() { none.clone() } else { asked.clone() };
    let mut spec = partition::with_sources(&given(wanted.partition_spec), &ids, "partition spec")?;
    // Ids that the client gave to partition fields mean nothing here, like those of the columns.
    for field in spec["fields"].as_array_mut().into_iter().flatten() {
        if let Json::Object(field) = field {
            field.remove("field-id");
        }
    }
    let order = partition::with_sources(&given(wanted.write_order), &ids, "sort order")?;
    let updates = [
        json!({ "action": "upgrade-format-version", "format-version": format }),
        json!({ "action": "add-schema", "schema": schema, "last-column-id": highest }),
        json!({ "action": "set-current-schema", "schema-id": -1 }),
        json!({ "action": "add-spec", "spec": spec }),
        json!({ "action": "set-default-spec", "spec-id": -1 }),
        json!({ "action": "add-sort-order", "sort-order": order }),
        json!({ "action": "set-default-sort-order", "sort-order-id": -1 }),
        json!({ "action": "set-location", "location": location }),
        json!({ "action": "set-properties", "updates": properties }),
    ];
    let mut change = TableChange::new(uuid.to_owned(), &updates, now_ms);
    change.apply_all(&updates)?;
    let made = change.finish(None)?;
    made.map(|made| made.table).ok_or_else(|| Error::internal("a new table is no change"))
}
