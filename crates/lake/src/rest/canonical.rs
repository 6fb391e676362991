//! Converts a catalog's metadata to the form in which Polynya writes them, so that the two can be compared. Catalogs may write
//! equal metadata differently.

use iceberg::metadata::{CachedJson, Metadata};
use serde_json::{Map, Value as Json, json};
use types::{Error, Result};

use super::client::LoadedTable;

/// Levels of nested types; ours have fewer.
const NESTING_MAX: usize = 40;

/// Returns a table's metadata. Leaves out the log of older metadata files, which are the catalog's business.
pub fn metadata(loaded: &LoadedTable) -> Result<Metadata> {
    let mut metadata = Metadata::parse(&loaded.metadata)?;
    metadata.metadata_log.clear();
    metadata.snapshots.sort_by_key(|snapshot| snapshot.sequence_number);
    metadata.schemas =
        metadata.schemas.iter().map(|one| schema(one).map(CachedJson::from)).collect::<Result<_>>()?;
    let spec =
        |spec: &Json| pick_members(spec, &["spec-id"], &["source-id", "field-id", "name", "transform"]);
    metadata.partition_specs = metadata.partition_specs.iter().map(spec).collect();
    let order = |order: &Json| {
        pick_members(order, &["order-id"], &["transform", "source-id", "direction", "null-order"])
    };
    metadata.sort_orders = metadata.sort_orders.iter().map(order).collect();
    if metadata.current().is_none() && metadata.current_snapshot_id.is_some() {
        return Err(Error::damaged("the catalog names a current snapshot that it does not list"));
    }
    Ok(metadata)
}

/// Copies the members `own` of an object, and the members `of_field` of each of its fields.
fn pick_members(of: &Json, own: &[&str], of_field: &[&str]) -> Json {
    let pick = |from: &Json, keys: &[&str]| -> Map<String, Json> {
        let known = keys.iter().filter_map(|key| Some(((*key).to_owned(), from.get(*key)?.clone())));
        known.collect()
    };
    let mut made = pick(of, own);
    let fields = of["fields"].as_array().into_iter().flatten();
    made.insert("fields".into(), fields.map(|field| Json::Object(pick(field, of_field))).collect());
    Json::Object(made)
}

fn schema(of: &Json) -> Result<Json> {
    let mut made =
        json!({ "type": "struct", "schema-id": of["schema-id"], "fields": fields(&of["fields"], 0)? });
    if let Some(ids) = of["identifier-field-ids"].as_array().filter(|ids| !ids.is_empty()) {
        made["identifier-field-ids"] = json!(ids);
    }
    Ok(made)
}

fn fields(of: &Json, depth: usize) -> Result<Vec<Json>> {
    let field = |field: &Json| {
        let (id, name) = (&field["id"], &field["name"]);
        let required = field["required"] == Json::Bool(true);
        Ok(json!({ "id": id, "name": name, "required": required, "type": data_type(&field["type"], depth)? }))
    };
    of.as_array().into_iter().flatten().map(field).collect()
}

fn data_type(of: &Json, depth: usize) -> Result<Json> {
    if depth > NESTING_MAX {
        return Err(Error::damaged("a type is nested too deeply"));
    }
    match (of, of["type"].as_str()) {
        (Json::String(name), _) => {
            let inner = name.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
            let parts = inner.and_then(|inner| inner.split_once(','));
            Ok(parts.map_or_else(
                || of.clone(),
                |(precision, scale)| json!(format!("decimal({}, {})", precision.trim(), scale.trim())),
            ))
        }
        (_, Some("struct")) => Ok(json!({ "type": "struct", "fields": fields(&of["fields"], depth + 1)? })),
        (_, Some("list")) => Ok(json!({
            "type": "list",
            "element-id": of["element-id"],
            "element": data_type(&of["element"], depth + 1)?,
            "element-required": of["element-required"] == Json::Bool(true),
        })),
        _ => Ok(of.clone()),
    }
}
