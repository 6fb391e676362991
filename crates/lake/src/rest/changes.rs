//! Builds a commit request for a catalog: the difference between two states of a table's metadata as changes, and the first
//! state as requirements.

use std::collections::{BTreeMap, HashSet};

use iceberg::metadata::Metadata;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Result};

/// The contents of a commit request, which may be sent repeatedly.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changes {
    pub requirements: Vec<Json>,
    pub updates: Vec<Json>,
}

/// Stands for the id of the object added last in the same commit.
const LAST_ADDED: i32 = -1;

/// Returns the changes from one state to another. Requires that every part of the first state on which the changes rest is
/// unmodified, so that a commit made for an older state, or after another writer's commit, is refused.
pub(super) fn between(before: &Metadata, after: &Metadata) -> Result<Changes> {
    let mut updates = Vec::new();
    let last = after.last_column_id;
    let schema = |added: &Json| json!({ "action": "add-schema", "schema": added, "last-column-id": last });
    let known = ExistingDefinitions { all: schemas(before), key: "schema-id" };
    known.add(&mut updates, &schemas(after), &schema)?;
    known.set(&mut updates, "set-current-schema", before.current_schema_id, after.current_schema_id);
    let spec = |added: &Json| json!({ "action": "add-spec", "spec": added });
    let known = ExistingDefinitions { all: before.partition_specs.iter().collect(), key: "spec-id" };
    known.add(&mut updates, &after.partition_specs.iter().collect::<Vec<_>>(), &spec)?;
    known.set(&mut updates, "set-default-spec", before.default_spec_id, after.default_spec_id);
    let order = |added: &Json| json!({ "action": "add-sort-order", "sort-order": added });
    let known = ExistingDefinitions { all: before.sort_orders.iter().collect(), key: "order-id" };
    known.add(&mut updates, &after.sort_orders.iter().collect::<Vec<_>>(), &order)?;
    let (old, new) = (before.default_sort_order_id, after.default_sort_order_id);
    known.set(&mut updates, "set-default-sort-order", old, new);
    put_snapshots(&mut updates, before, after)?;
    put_properties(&mut updates, &before.properties, &after.properties);
    Ok(Changes { requirements: requirements(before), updates })
}

fn requirements(of: &Metadata) -> Vec<Json> {
    vec![
        json!({ "type": "assert-table-uuid", "uuid": of.table_uuid }),
        json!({ "type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": of.current_snapshot_id }),
        json!({ "type": "assert-current-schema-id", "current-schema-id": of.current_schema_id }),
        json!({ "type": "assert-last-assigned-field-id", "last-assigned-field-id": of.last_column_id }),
        json!({ "type": "assert-default-spec-id", "default-spec-id": of.default_spec_id }),
        json!({
            "type": "assert-last-assigned-partition-id", "last-assigned-partition-id": of.last_partition_id,
        }),
        json!({ "type": "assert-default-sort-order-id", "default-sort-order-id": of.default_sort_order_id }),
    ]
}

/// The schemas, specs or orders that a table has already.
struct ExistingDefinitions<'a> {
    all: Vec<&'a Json>,
    key: &'static str,
}

impl ExistingDefinitions<'_> {
    /// Adds the objects that are missing. Existing ones cannot change, since the protocol has no such change.
    fn add(&self, updates: &mut Vec<Json>, after: &[&Json], add: &dyn Fn(&Json) -> Json) -> Result<()> {
        for one in after {
            match self.all.iter().find(|known| known[self.key] == one[self.key]) {
                Some(known) if known == one => {}
                None => updates.push(add(one)),
                Some(_) => {
                    return Err(Error::new(
                        Kind::Schema,
                        "a column has the name of a partition field of the table, which the catalog cannot change",
                    )
                    .hint("give the column another name, such as one without _day, _bucket_16 or _trunc_4 at its end"));
                }
            }
        }
        Ok(())
    }

    fn set(&self, updates: &mut Vec<Json>, action: &str, old: i32, new: i32) {
        if old != new {
            let is_known = self.all.iter().any(|one| one[self.key] == json!(new));
            // This change has another member name for the id of a sort order.
            let key = if self.key == "order-id" { "sort-order-id" } else { self.key };
            updates.push(json!({ "action": action, key: if is_known { new } else { LAST_ADDED } }));
        }
    }
}

fn schemas(of: &Metadata) -> Vec<&Json> {
    of.schemas.iter().map(|schema| &**schema).collect()
}

fn put_snapshots(updates: &mut Vec<Json>, before: &Metadata, after: &Metadata) -> Result<()> {
    for snapshot in after.snapshots.iter().filter(|s| before.snapshot(s.snapshot_id).is_none()) {
        let shown = serde_json::to_value(&**snapshot)
            .map_err(|e| Error::internal(format!("writing a snapshot for the catalog: {e}")))?;
        updates.push(json!({ "action": "add-snapshot", "snapshot": shown }));
    }
    if let Some(current) = after.current_snapshot_id.filter(|id| Some(*id) != before.current_snapshot_id) {
        let action = "set-snapshot-ref";
        updates
            .push(json!({ "action": action, "ref-name": "main", "type": "branch", "snapshot-id": current }));
    }
    let still: HashSet<i64> = after.snapshots.iter().map(|s| s.snapshot_id).collect();
    let gone: Vec<i64> =
        before.snapshots.iter().map(|s| s.snapshot_id).filter(|id| !still.contains(id)).collect();
    if !gone.is_empty() {
        updates.push(json!({ "action": "remove-snapshots", "snapshot-ids": gone }));
    }
    Ok(())
}

fn put_properties(
    updates: &mut Vec<Json>,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) {
    let changed: BTreeMap<&String, &String> =
        after.iter().filter(|(key, value)| before.get(*key) != Some(value)).collect();
    if !changed.is_empty() {
        updates.push(json!({ "action": "set-properties", "updates": changed }));
    }
    let gone: Vec<&String> = before.keys().filter(|key| !after.contains_key(*key)).collect();
    if !gone.is_empty() {
        updates.push(json!({ "action": "remove-properties", "removals": gone }));
    }
}
