//! Partition specs and sort orders, as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use types::{Error, Result, name};

use super::schema;

/// The first id of partition fields.
pub(super) const FIRST_FIELD: i64 = 1000;

fn fields_of<'a>(of: &'a Json, what: &str) -> Result<&'a Vec<Json>> {
    of["fields"].as_array().ok_or_else(|| Error::invalid(format!("a {what} has no `fields`")))
}

/// Returns the text of a transform. Fails if readers do not know the transform.
fn check_transform(transform: &Json) -> Result<&str> {
    let text = transform.as_str().unwrap_or_default();
    let number = |begin: &str| {
        let inner = text.strip_prefix(begin).and_then(|rest| rest.strip_suffix(']'));
        inner.and_then(|inner| inner.parse::<u32>().ok()).is_some_and(|number| number > 0)
    };
    if matches!(text, "identity" | "void" | "year" | "month" | "day" | "hour")
        || number("bucket[")
        || number("truncate[")
    {
        Ok(text)
    } else {
        Err(Error::invalid(format!("`{}` is not a transform", name::printable(text))))
    }
}

/// Refuses a partition spec or sort order that names source columns which the schema does not have. A `void` transform may name
/// a dropped column.
pub(super) fn check_sources(of: &Json, schema_json: &Json, what: &str) -> Result<()> {
    let known = schema::fields(schema_json)?;
    for field in fields_of(of, what)? {
        let transform = check_transform(&field["transform"])?;
        let source = field["source-id"].as_i64();
        let source =
            source.ok_or_else(|| Error::invalid(format!("a field of a {what} has no `source-id`")))?;
        let found = known.iter().find(|field| field.id == source);
        if transform != "void" && !found.is_some_and(schema::Field::is_primitive) {
            return Err(Error::invalid(format!(
                "the {what} needs the field {source}, which the schema lacks or which contains other fields"
            )));
        }
    }
    Ok(())
}

/// Returns true if two specs divide rows alike, under the same names.
pub(super) fn same_spec(a: &Json, b: &Json) -> bool {
    same(a, b, &["source-id", "transform", "name"])
}

pub(super) fn same_order(a: &Json, b: &Json) -> bool {
    same(a, b, &["source-id", "transform", "direction", "null-order"])
}

fn same(a: &Json, b: &Json, keys: &[&str]) -> bool {
    match (a["fields"].as_array(), b["fields"].as_array()) {
        (Some(a), Some(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| keys.iter().all(|key| a[*key] == b[*key]))
        }
        _ => false,
    }
}

/// Returns a copy of `spec` with the id `id`, and the highest field id that is then in use. A field without an id gets the id
/// that the same source and transform have in one of `others`, else the next one above `last`.
pub(super) fn with_ids(spec: &Json, id: i64, others: &[Json], last: i64) -> Result<(Json, i64)> {
    let mut known: BTreeMap<(i64, String), i64> = BTreeMap::new();
    let key = |field: &Json| {
        let source = field["source-id"].as_i64().unwrap_or_default();
        (source, field["transform"].as_str().unwrap_or_default().to_owned())
    };
    for field in others.iter().filter_map(|spec| spec["fields"].as_array()).flatten() {
        if let Some(id) = field["field-id"].as_i64() {
            known.insert(key(field), id);
        }
    }
    let mut highest = last.max(FIRST_FIELD - 1);
    let mut names = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut fields = Vec::new();
    for field in fields_of(spec, "partition spec")? {
        let called = field["name"].as_str().filter(|called| !called.is_empty());
        let called = called.ok_or_else(|| Error::invalid("a partition field has no name"))?;
        if !names.insert(called.to_owned()) {
            return Err(Error::invalid(format!(
                "two partition fields are called `{}`",
                name::printable(called)
            )));
        }
        let given = field["field-id"].as_i64().or_else(|| known.get(&key(field)).copied());
        let field_id = given.unwrap_or(highest + 1);
        if !ids.insert(field_id) {
            return Err(Error::invalid(format!("two partition fields have the id {field_id}")));
        }
        highest = highest.max(field_id);
        fields.push(json!({
            "source-id": field["source-id"], "field-id": field_id, "name": called, "transform": field["transform"],
        }));
    }
    Ok((json!({ "spec-id": id, "fields": fields }), highest))
}

/// Returns a copy of a spec or an order whose source columns are renamed from old to new ids by `ids`.
pub(super) fn with_sources(of: &Json, ids: &BTreeMap<i64, i64>, what: &str) -> Result<Json> {
    let mut of = of.clone();
    for field in of["fields"].as_array_mut().into_iter().flatten() {
        let source = field["source-id"].as_i64().and_then(|id| ids.get(&id));
        let source = source.ok_or_else(|| {
            Error::invalid(format!(
                "the {what} needs the field {}, which the schema lacks",
                field["source-id"]
            ))
        })?;
        field["source-id"] = json!(source);
    }
    Ok(of)
}

/// Returns the sort order with the id `id`. The caller gives 0 to an order without fields, as the specification demands.
pub(super) fn order_with_id(order: &Json, id: i64) -> Result<Json> {
    for field in fields_of(order, "sort order")? {
        let directed = matches!(field["direction"].as_str(), Some("asc" | "desc"));
        if !directed || !matches!(field["null-order"].as_str(), Some("nulls-first" | "nulls-last")) {
            return Err(Error::invalid("a field of a sort order has no `direction` or no `null-order`"));
        }
    }
    Ok(json!({ "order-id": id, "fields": order["fields"] }))
}
