//! The layout of future rows in a table's metadata: its default partition spec and sort order. Earlier specs and orders
//! stay, because files refer to them.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::Metadata;
use crate::layout::Layout;
use crate::single_value::PrimitiveType;

/// Field id of the first partition field, as Iceberg prescribes.
pub(super) const FIRST_PARTITION_FIELD: i32 = 1_000;
/// Id of the sort order of unsorted files.
pub const UNSORTED: i32 = 0;

impl Metadata {
    /// Returns true if the default spec and sort order are those of `layout`.
    pub fn has_layout(&self, layout: &Layout) -> bool {
        let spec = by_id(&self.partition_specs, "spec-id", self.default_spec_id);
        let order = by_id(&self.sort_orders, "order-id", self.default_sort_order_id);
        spec.is_some_and(|spec| is_spec(spec, layout))
            && order.is_some_and(|order| order["fields"] == layout.sort_fields())
    }

    /// Makes the spec and sort order of `layout` the default ones. Earlier ones that are equal are used again.
    pub fn set_layout(&mut self, layout: &Layout) {
        self.set_spec(layout);
        self.set_order(layout);
        self.rename_colliding_fields();
    }

    fn set_spec(&mut self, layout: &Layout) {
        if let Some(known) = self.partition_specs.iter().find(|spec| is_spec(spec, layout)) {
            self.default_spec_id = number(known, "spec-id");
            return;
        }
        let mut fields = Vec::with_capacity(layout.partitions.len());
        for wanted in &layout.partitions {
            let transform = wanted.transform.to_string();
            let mut known = self.partition_specs.iter().flat_map(fields_of);
            // A field with equal source and transform keeps its field id in every spec.
            let same = |field: &&Json| {
                field["source-id"] == json!(wanted.source) && field["transform"] == json!(transform)
            };
            let field = known.find(same).cloned().unwrap_or_else(|| {
                self.last_partition_id = self.last_partition_id.max(FIRST_PARTITION_FIELD - 1) + 1;
                json!({
                    "source-id": wanted.source, "field-id": self.last_partition_id, "name": wanted.name,
                    "transform": transform,
                })
            });
            fields.push(field);
        }
        let id = self.partition_specs.iter().map(|spec| number(spec, "spec-id")).max().map_or(0, |id| id + 1);
        self.partition_specs.push(json!({ "spec-id": id, "fields": fields }));
        self.default_spec_id = id;
    }

    fn set_order(&mut self, layout: &Layout) {
        let fields = layout.sort_fields();
        if let Some(known) = self.sort_orders.iter().find(|order| order["fields"] == fields) {
            self.default_sort_order_id = number(known, "order-id");
            return;
        }
        let highest = self.sort_orders.iter().map(|order| number(order, "order-id")).max();
        let id = if layout.sorts.is_empty() {
            UNSORTED
        } else {
            highest.map_or(UNSORTED, |id| id.max(UNSORTED)) + 1
        };
        self.sort_orders.push(json!({ "order-id": id, "fields": fields }));
        self.default_sort_order_id = id;
    }

    /// Renames partition fields whose name a column has taken. Iceberg allows an equal name only for the identity of that
    /// very column, and columns may be added after the spec.
    fn rename_colliding_fields(&mut self) {
        let Some(schema) = self.schema() else { return };
        let columns: Vec<(String, i64)> = fields_of(schema)
            .filter_map(|field| Some((field["name"].as_str()?.to_lowercase(), field["id"].as_i64()?)))
            .collect();
        for spec in &mut self.partition_specs {
            let mut taken: HashSet<String> = HashSet::new();
            for field in spec["fields"].as_array_mut().into_iter().flatten() {
                let mut name = field["name"].as_str().unwrap_or_default().to_owned();
                let own =
                    (field["transform"] == json!("identity")).then(|| field["source-id"].as_i64()).flatten();
                let is_taken = |name: &str| {
                    let name = name.to_lowercase();
                    taken.contains(&name) || columns.iter().any(|(c, id)| *c == name && Some(*id) != own)
                };
                while is_taken(&name) {
                    name = format!("{name}_{}", number(field, "field-id"));
                }
                taken.insert(name.to_lowercase());
                field["name"] = json!(name);
            }
        }
    }

    /// Returns the type of a column in the newest schema that has it.
    pub fn type_of(&self, column: i32) -> Option<PrimitiveType> {
        let current = self.schema().into_iter();
        let mut schemas = current.chain(self.schemas.iter().rev().map(|schema| &**schema));
        let json = schemas.find_map(|schema| column_type(schema, column))?;
        PrimitiveType::parse(json.as_str()?)
    }

    /// Returns the field ids of columns that a partition spec uses and that the current schema lacks.
    pub fn dropped_source_columns(&self) -> Vec<i32> {
        let sources = self.partition_specs.iter().flat_map(fields_of).map(|field| number(field, "source-id"));
        let lost = |source: &i32| self.schema().is_some_and(|schema| column_type(schema, *source).is_none());
        sources.filter(lost).collect()
    }
}

/// Returns the type of a column, or of a field nested in one.
fn column_type(of: &Json, column: i32) -> Option<&Json> {
    fields_of(of).find_map(|field| {
        if field["id"] == json!(column) { Some(&field["type"]) } else { column_type(&field["type"], column) }
    })
}

fn fields_of(of: &Json) -> impl Iterator<Item = &Json> {
    of["fields"].as_array().into_iter().flatten()
}

fn by_id<'a>(all: &'a [Json], key: &str, id: i32) -> Option<&'a Json> {
    all.iter().find(|json| json[key] == json!(id))
}

fn number(json: &Json, key: &str) -> i32 {
    json[key].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
}

/// Returns true if a spec has exactly the partition fields of a layout, in their order.
fn is_spec(spec: &Json, layout: &Layout) -> bool {
    let fields: Vec<&Json> = fields_of(spec).collect();
    fields.len() == layout.partitions.len()
        && fields.iter().zip(&layout.partitions).all(|(field, wanted)| {
            field["source-id"] == json!(wanted.source)
                && field["transform"] == json!(wanted.transform.to_string())
        })
}

#[cfg(test)]
mod tests;
