//! Schemas that other engines define, as JSON: the checks that make them readable, and the assignment of new field ids.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};
use types::{Error, Result, name};

/// A field of a schema, at any depth.
pub(super) struct Field<'a> {
    pub id: i64,
    pub field_type: &'a Json,
    pub required: bool,
    /// True if all structs around the field are required, so that they are present in every row. False inside lists and maps.
    pub parents_required: bool,
}

impl Field<'_> {
    pub fn is_primitive(&self) -> bool {
        self.field_type.is_string()
    }
}

/// The types of format versions 1 and 2, except those with parameters (`decimal`, `fixed`).
const PRIMITIVES: [&str; 12] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "string",
    "uuid",
    "binary",
];
/// The types that format version 3 added.
const PRIMITIVES_3: [&str; 6] =
    ["timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography"];

/// The highest field id that a table may use. Iceberg reserves the ids above.
const ID_MAX: i64 = 2_147_483_447;

/// Returns all fields of a schema, nested ones included. Interprets no more than it needs to find them; fails if the JSON is
/// not a schema.
pub(super) fn fields(schema: &Json) -> Result<Vec<Field<'_>>> {
    if schema["type"] != "struct" {
        return Err(Error::invalid("a schema is an object of `\"type\": \"struct\"` with `fields`"));
    }
    let mut out = Vec::new();
    of_struct(schema, true, &mut out)?;
    let mut seen = BTreeSet::new();
    match out.iter().find(|field| !seen.insert(field.id)) {
        Some(twice) => Err(Error::invalid(format!("two fields of the schema have the id {}", twice.id))),
        None => Ok(out),
    }
}

fn of_struct<'a>(of: &'a Json, parents_required: bool, out: &mut Vec<Field<'a>>) -> Result<()> {
    let fields =
        of["fields"].as_array().ok_or_else(|| Error::invalid("a struct of the schema has no `fields`"))?;
    let mut names = BTreeSet::new();
    for field in fields {
        let called = field["name"].as_str().filter(|called| !called.is_empty());
        let called = called.ok_or_else(|| Error::invalid("a field of the schema has no name"))?;
        if !names.insert(called) {
            return Err(Error::invalid(format!("two fields are called `{}`", name::printable(called))));
        }
        let required = field["required"].as_bool().unwrap_or(false);
        of_type(&field["id"], &field["type"], required, parents_required, out)?;
    }
    Ok(())
}

fn of_type<'a>(
    id: &Json,
    field_type: &'a Json,
    required: bool,
    parents_required: bool,
    out: &mut Vec<Field<'a>>,
) -> Result<()> {
    // Some clients number fields from 0. A new table gets new ids anyway.
    let id = id.as_i64().filter(|id| (0..=ID_MAX).contains(id));
    let id = id.ok_or_else(|| Error::invalid("a field of the schema has no id"))?;
    out.push(Field { id, field_type, required, parents_required });
    let is_required = |key: &str| field_type[key].as_bool().unwrap_or(false);
    match field_type["type"].as_str() {
        _ if field_type.is_string() => Ok(()),
        Some("struct") => of_struct(field_type, parents_required && required, out),
        Some("list") => {
            let required = is_required("element-required");
            of_type(&field_type["element-id"], &field_type["element"], required, false, out)
        }
        Some("map") => {
            of_type(&field_type["key-id"], &field_type["key"], true, false, out)?;
            let required = is_required("value-required");
            of_type(&field_type["value-id"], &field_type["value"], required, false, out)
        }
        _ => Err(Error::invalid(format!("the field {id} of the schema has no type"))),
    }
}

/// Refuses a schema that a reader of this format version cannot read. Returns its highest field id.
pub(super) fn check(schema: &Json, format: i64) -> Result<i64> {
    let all = fields(schema)?;
    for field in all.iter().filter(|field| field.is_primitive()) {
        check_primitive(field.field_type.as_str().unwrap_or_default(), format)?;
    }
    if format < 3 && has_initial_default(schema) {
        return Err(Error::invalid("a default that older rows show needs format version 3")
            .hint("create the table with `format-version` 3"));
    }
    for id in identifiers(schema) {
        let named = all.iter().find(|field| field.id == id);
        let fits = named.is_some_and(|field| {
            let unfit = matches!(field.field_type.as_str(), None | Some("float" | "double"));
            field.parents_required && field.required && !unfit
        });
        if !fits {
            return Err(Error::invalid(format!(
                "the identifier field {id} must be a required field outside of lists and maps, and not a float or double"
            )));
        }
    }
    Ok(all.iter().map(|field| field.id).max().unwrap_or(0))
}

fn check_primitive(text: &str, format: i64) -> Result<()> {
    let base = text.split(['(', '[']).next().unwrap_or_default();
    let known = PRIMITIVES.contains(&text)
        || format >= 3 && PRIMITIVES_3.contains(&base)
        || parameters(text, "decimal(", ')')
            .is_some_and(|p| matches!(p[..], [1..=38, scale] if scale <= p[0]))
        || parameters(text, "fixed[", ']').is_some_and(|p| p.len() == 1);
    if known {
        return Ok(());
    }
    let error =
        Error::invalid(format!("`{}` is not a type of format version {format}", name::printable(text)));
    Err(if PRIMITIVES_3.contains(&base) { error.hint("format version 3 has it") } else { error })
}

fn parameters(text: &str, begin: &str, end: char) -> Option<Vec<u64>> {
    let inner = text.strip_prefix(begin)?.strip_suffix(end)?;
    inner.split(',').map(|part| part.trim().parse().ok()).collect()
}

fn has_initial_default(value: &Json) -> bool {
    match value {
        Json::Object(map) => {
            map.get("initial-default").is_some_and(|default| !default.is_null())
                || map.values().any(has_initial_default)
        }
        Json::Array(list) => list.iter().any(has_initial_default),
        _ => false,
    }
}

fn identifiers(schema: &Json) -> BTreeSet<i64> {
    schema["identifier-field-ids"].as_array().into_iter().flatten().filter_map(Json::as_i64).collect()
}

/// Returns true if two schemas are equal except for their schema ids.
pub(super) fn same(a: &Json, b: &Json) -> bool {
    a["fields"] == b["fields"] && identifiers(a) == identifiers(b)
}

/// Returns a copy of a schema with another schema id.
pub(super) fn with_id(schema: &Json, id: i64) -> Json {
    let mut schema = schema.clone();
    schema["schema-id"] = json!(id);
    schema
}

/// Returns the schema with new field ids from 1 on, a map from old to new ids, and the highest id. The order is that of other
/// catalogs: all fields of a struct before the fields inside them.
pub(super) fn with_fresh_ids(schema: &Json) -> Result<(Json, BTreeMap<i64, i64>, i64)> {
    fields(schema)?;
    let mut fresh = FreshIds { ids: BTreeMap::new(), next: 1 };
    let mut made = Map::new();
    made.insert("type".into(), json!("struct"));
    made.insert("schema-id".into(), json!(0));
    made.insert("fields".into(), fresh.fields(&schema["fields"]));
    let identifiers: Vec<i64> =
        identifiers(schema).iter().filter_map(|id| fresh.ids.get(id).copied()).collect();
    if !identifiers.is_empty() {
        made.insert("identifier-field-ids".into(), json!(identifiers));
    }
    Ok((Json::Object(made), fresh.ids, fresh.next - 1))
}

struct FreshIds {
    ids: BTreeMap<i64, i64>,
    next: i64,
}

impl FreshIds {
    fn id(&mut self, old: &Json) -> Json {
        let id = self.next;
        self.next += 1;
        if let Some(old) = old.as_i64() {
            self.ids.insert(old, id);
        }
        json!(id)
    }

    fn fields(&mut self, fields: &Json) -> Json {
        let mut fields = fields.as_array().cloned().unwrap_or_default();
        for field in &mut fields {
            field["id"] = self.id(&field["id"]);
        }
        for field in &mut fields {
            field["type"] = self.of_type(&field["type"]);
        }
        Json::Array(fields)
    }

    fn of_type(&mut self, old: &Json) -> Json {
        let mut made = old.clone();
        match old["type"].as_str() {
            Some("struct") => made["fields"] = self.fields(&old["fields"]),
            Some("list") => {
                made["element-id"] = self.id(&old["element-id"]);
                made["element"] = self.of_type(&old["element"]);
            }
            Some("map") => {
                made["key-id"] = self.id(&old["key-id"]);
                made["value-id"] = self.id(&old["value-id"]);
                made["key"] = self.of_type(&old["key"]);
                made["value"] = self.of_type(&old["value"]);
            }
            _ => {}
        }
        made
    }
}
