//! The metadata of a table that another engine writes, in format versions 1 to 3.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use types::{Error, Kind, Result};

use super::partition;
use super::schema;

/// The newest format version that tables may have.
pub const FORMAT_MAX: i64 = 3;
/// The format version of a new table whose request names none.
pub const FORMAT: i64 = 2;

/// The branch that readers use by default.
pub(super) const MAIN: &str = "main";

/// A table's metadata. Members that are unknown here are kept unchanged in `other`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableMetadata {
    pub format_version: i64,
    pub table_uuid: String,
    pub location: String,
    #[serde(default)]
    pub last_sequence_number: i64,
    pub last_updated_ms: i64,
    pub last_column_id: i64,
    pub current_schema_id: i64,
    pub schemas: Vec<Json>,
    pub default_spec_id: i64,
    pub partition_specs: Vec<Json>,
    pub last_partition_id: i64,
    #[serde(default)]
    pub default_sort_order_id: i64,
    #[serde(default = "unsorted")]
    pub sort_orders: Vec<Json>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "no_snapshot")]
    pub current_snapshot_id: Option<i64>,
    #[serde(default)]
    pub refs: BTreeMap<String, Json>,
    #[serde(default)]
    pub snapshots: Vec<Json>,
    #[serde(default)]
    pub statistics: Vec<Json>,
    #[serde(default)]
    pub partition_statistics: Vec<Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encryption_keys: Vec<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_row_id: Option<i64>,
    #[serde(default)]
    pub snapshot_log: Vec<SnapshotLogEntry>,
    #[serde(default)]
    pub metadata_log: Vec<MetadataLogEntry>,
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotLogEntry {
    pub timestamp_ms: i64,
    pub snapshot_id: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MetadataLogEntry {
    pub timestamp_ms: i64,
    pub metadata_file: String,
}

fn unsorted() -> Vec<Json> {
    vec![json!({ "order-id": 0, "fields": [] })]
}

/// Reads the current snapshot's id. Old writers say -1 for none.
fn no_snapshot<'de, D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Option<i64>, D::Error> {
    Ok(Option::<i64>::deserialize(d)?.filter(|id| *id != -1))
}

pub(super) fn snapshot_id(snapshot: &Json) -> i64 {
    snapshot["snapshot-id"].as_i64().unwrap_or(-1)
}

/// Returns the object of `all` whose member `key` is `id`.
pub(super) fn with_id<'a>(all: &'a [Json], key: &str, id: i64) -> Option<&'a Json> {
    all.iter().find(|one| one[key].as_i64() == Some(id))
}

impl TableMetadata {
    /// Parses a metadata file and checks it; nothing in it is trusted. Fails with [`Kind::Invalid`] and a message that says
    /// what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<TableMetadata> {
        let no_metadata = |e: serde_json::Error| {
            Error::invalid(format!("this is not the metadata of an Iceberg table: {e}"))
        };
        let mut json: Map<String, Json> = serde_json::from_slice(bytes).map_err(no_metadata)?;
        let format = json.get("format-version").and_then(Json::as_i64).unwrap_or(0);
        if !(1..=FORMAT_MAX).contains(&format) {
            return Err(Error::new(
                Kind::Invalid,
                format!("Iceberg tables of format version {format} are not supported; 1 to {FORMAT_MAX} are"),
            ));
        }
        if format == 1 {
            fill_in_version_1(&mut json);
        }
        let mut table: TableMetadata = serde_json::from_value(Json::Object(json)).map_err(no_metadata)?;
        if table.format_version >= 3 {
            table.next_row_id.get_or_insert(0);
        }
        if table.refs.is_empty()
            && let Some(id) = table.current_snapshot_id
        {
            table.refs.insert(MAIN.into(), json!({ "snapshot-id": id, "type": "branch" }));
        }
        table.check()?;
        Ok(table)
    }

    /// Returns the metadata as it is written to a metadata file and sent to clients.
    pub fn to_json(&self) -> Result<Json> {
        let mut json = serde_json::to_value(self)
            .map_err(|e| Error::internal(format!("writing the metadata of a table: {e}")))?;
        if self.format_version == 1 {
            // Readers of format version 1 look at these members.
            json["schema"] = self.schema().clone();
            let spec = with_id(&self.partition_specs, "spec-id", self.default_spec_id);
            json["partition-spec"] = spec.map_or_else(|| json!([]), |spec| spec["fields"].clone());
            if let Json::Object(map) = &mut json {
                map.remove("last-sequence-number");
            }
        }
        Ok(json)
    }

    /// Returns the metadata for a client that asked only for the snapshots of branches and tags.
    pub fn to_json_of_refs(&self) -> Result<Json> {
        let named: BTreeSet<i64> = self.refs.values().map(snapshot_id).collect();
        let mut table = self.clone();
        table.snapshots.retain(|snapshot| named.contains(&snapshot_id(snapshot)));
        table.to_json()
    }

    /// The current schema.
    pub fn schema(&self) -> &Json {
        with_id(&self.schemas, "schema-id", self.current_schema_id).unwrap_or(&Json::Null)
    }

    pub fn snapshot(&self, id: i64) -> Option<&Json> {
        with_id(&self.snapshots, "snapshot-id", id)
    }

    /// Returns true if a property is set to true.
    pub fn is_set(&self, property: &str) -> bool {
        self.properties.get(property).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Refuses metadata that refers to a schema, spec, order or snapshot that it does not contain.
    pub(super) fn check(&self) -> Result<()> {
        let lacks = |what: &str| {
            Err(Error::invalid(format!("the metadata refers to a {what} that it does not contain")))
        };
        if self.schema().is_null() {
            return lacks("current schema");
        }
        let spec = with_id(&self.partition_specs, "spec-id", self.default_spec_id);
        let Some(spec) = spec else { return lacks("partition spec") };
        let order = with_id(&self.sort_orders, "order-id", self.default_sort_order_id);
        let Some(order) = order else { return lacks("sort order") };
        for schema_json in &self.schemas {
            schema::fields(schema_json)?;
        }
        partition::check_sources(spec, self.schema(), "partition spec")?;
        partition::check_sources(order, self.schema(), "sort order")?;
        if self.refs.values().any(|r| self.snapshot(snapshot_id(r)).is_none()) {
            return lacks("snapshot");
        }
        match self.current_snapshot_id {
            Some(id) if self.snapshot(id).is_none() => lacks("current snapshot"),
            _ => Ok(()),
        }
    }
}

/// Adds the members of format version 2 that version 1 named otherwise or left out.
fn fill_in_version_1(json: &mut Map<String, Json>) {
    if !json.contains_key("schemas")
        && let Some(only) = json.remove("schema")
    {
        let id = only["schema-id"].as_i64().unwrap_or(0);
        json.insert("schemas".into(), json!([schema::with_id(&only, id)]));
        json.insert("current-schema-id".into(), json!(id));
    }
    if !json.contains_key("partition-specs") {
        let mut fields = json.get("partition-spec").cloned().unwrap_or_else(|| json!([]));
        for (at, field) in fields.as_array_mut().into_iter().flatten().enumerate() {
            if field["field-id"].is_null() {
                field["field-id"] = json!(partition::FIRST_FIELD + at as i64);
            }
        }
        json.insert("partition-specs".into(), json!([{ "spec-id": 0, "fields": fields }]));
        json.insert("default-spec-id".into(), json!(0));
    }
    for key in ["schema", "partition-spec"] {
        json.remove(key);
    }
    if !json.contains_key("last-partition-id") {
        let specs = json["partition-specs"].as_array().into_iter().flatten();
        let ids = specs.filter_map(|spec| spec["fields"].as_array()).flatten();
        let last = ids.filter_map(|field| field["field-id"].as_i64()).max();
        json.insert("last-partition-id".into(), json!(last.unwrap_or(partition::FIRST_FIELD - 1)));
    }
}
