//! A commit to a table: its changes, applied to the table's metadata one after the other.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};
use types::{Error, Result, name};

use super::partition;
use super::schema;
use super::table::{
    FORMAT, FORMAT_MAX, MAIN, MetadataLogEntry, SnapshotLogEntry, TableMetadata, snapshot_id, with_id,
};

/// The table property with the maximum number of earlier metadata files that the metadata log names.
const METADATA_FILES_MAX: &str = "write.metadata.previous-versions-max";
const METADATA_FILES_MAX_DEFAULT: usize = 100;
/// The table property that lets a commit remove the metadata files that its metadata log no longer names.
pub const DELETE_AFTER_COMMIT: &str = "write.metadata.delete-after-commit.enabled";

/// The id that stands for the object added last in the same commit.
const LAST_ADDED: i64 = -1;

/// A table to which the changes of one commit are being applied.
#[derive(Debug)]
pub struct TableChange {
    table: TableMetadata,
    is_new: bool,
    is_changed: bool,
    now_ms: i64,
    /// The time of the newest snapshot that this commit adds or makes current; `None` if there is no such snapshot.
    updated_ms: Option<i64>,
    last_schema: Option<i64>,
    last_spec: Option<i64>,
    last_order: Option<i64>,
    added: BTreeSet<i64>,
    /// Snapshots that were current only in the middle of this commit, never after it.
    transient: BTreeSet<i64>,
    has_removed_snapshots: bool,
}

/// The result of a commit.
#[derive(Debug)]
pub struct ChangedTable {
    pub table: TableMetadata,
    /// Earlier metadata files that the table's metadata log no longer names.
    pub forgotten: Vec<String>,
}

impl TableChange {
    /// Begins a change of an existing table.
    pub fn of(table: TableMetadata, now_ms: i64) -> TableChange {
        TableChange::begin(table, false, now_ms)
    }

    /// Begins a table that the changes define from nothing. Its format version comes from `updates`, which are not applied yet.
    pub fn new(uuid: String, updates: &[Json], now_ms: i64) -> TableChange {
        let format = updates.iter().find(|update| update["action"] == "upgrade-format-version");
        let format = format.and_then(|update| update["format-version"].as_i64()).unwrap_or(FORMAT);
        let table = TableMetadata {
            format_version: format,
            table_uuid: uuid,
            location: String::new(),
            last_sequence_number: 0,
            last_updated_ms: now_ms,
            last_column_id: 0,
            current_schema_id: -1,
            schemas: Vec::new(),
            default_spec_id: -1,
            partition_specs: Vec::new(),
            last_partition_id: partition::FIRST_FIELD - 1,
            default_sort_order_id: -1,
            sort_orders: Vec::new(),
            properties: Default::default(),
            current_snapshot_id: None,
            refs: Default::default(),
            snapshots: Vec::new(),
            statistics: Vec::new(),
            partition_statistics: Vec::new(),
            encryption_keys: Vec::new(),
            next_row_id: (format >= 3).then_some(0),
            snapshot_log: Vec::new(),
            metadata_log: Vec::new(),
            other: Map::new(),
        };
        TableChange::begin(table, true, now_ms)
    }

    fn begin(table: TableMetadata, is_new: bool, now_ms: i64) -> TableChange {
        TableChange {
            table,
            is_new,
            is_changed: is_new,
            now_ms,
            updated_ms: None,
            last_schema: None,
            last_spec: None,
            last_order: None,
            added: BTreeSet::new(),
            transient: BTreeSet::new(),
            has_removed_snapshots: false,
        }
    }

    pub fn apply_all(&mut self, updates: &[Json]) -> Result<()> {
        updates.iter().try_for_each(|update| self.apply(update))
    }

    /// Applies one change. Fails with [`types::Kind::Invalid`] if the change is unknown or does not fit the table.
    pub fn apply(&mut self, update: &Json) -> Result<()> {
        let action = update["action"].as_str().ok_or_else(|| Error::invalid("a change has no `action`"))?;
        let number = |key: &str| {
            update[key]
                .as_i64()
                .ok_or_else(|| Error::invalid(format!("the change `{action}` has no number `{key}`")))
        };
        let text = |key: &str| {
            update[key]
                .as_str()
                .ok_or_else(|| Error::invalid(format!("the change `{action}` has no text `{key}`")))
        };
        let object = |key: &str| match &update[key] {
            found @ Json::Object(_) => Ok(found),
            _ => Err(Error::invalid(format!("the change `{action}` has no object `{key}`"))),
        };
        let list = |key: &str| {
            update[key]
                .as_array()
                .ok_or_else(|| Error::invalid(format!("the change `{action}` has no list `{key}`")))
        };
        match action {
            "assign-uuid" => self.assign_uuid(text("uuid")?),
            "upgrade-format-version" => self.upgrade(number("format-version")?),
            "add-schema" => self.add_schema(object("schema")?),
            "set-current-schema" => self.set_schema(number("schema-id")?),
            "add-spec" => self.add_spec(object("spec")?),
            "set-default-spec" => self.set_spec(number("spec-id")?),
            "remove-partition-specs" => self.remove_specs(&numbers(list("spec-ids")?)),
            "remove-schemas" => self.remove_schemas(&numbers(list("schema-ids")?)),
            "add-sort-order" => self.add_order(object("sort-order")?),
            "set-default-sort-order" => self.set_order(number("sort-order-id")?),
            "add-snapshot" => self.add_snapshot(object("snapshot")?),
            "set-snapshot-ref" => self.set_ref(text("ref-name")?, update),
            "remove-snapshots" => {
                self.remove_snapshots(&numbers(list("snapshot-ids")?));
                Ok(())
            }
            "remove-snapshot-ref" => {
                self.remove_ref(text("ref-name")?);
                Ok(())
            }
            "set-location" => {
                let location = text("location")?.trim_end_matches('/');
                self.mark_changed(self.table.location != location);
                self.table.location = location.to_owned();
                Ok(())
            }
            "set-properties" => self.set_properties(object("updates")?),
            "remove-properties" => {
                for key in list("removals")?.iter().filter_map(Json::as_str) {
                    let was = self.table.properties.remove(key);
                    self.mark_changed(was.is_some());
                }
                Ok(())
            }
            "set-statistics" => {
                let statistics = object("statistics")?;
                self.mark_changed(true);
                put_statistics(&mut self.table.statistics, statistics)
            }
            "set-partition-statistics" => {
                let statistics = object("partition-statistics")?;
                self.mark_changed(true);
                put_statistics(&mut self.table.partition_statistics, statistics)
            }
            "remove-statistics" => {
                let id = number("snapshot-id")?;
                let all = &mut self.table.statistics;
                let before = all.len();
                all.retain(|one| snapshot_id(one) != id);
                let is_less = all.len() < before;
                self.mark_changed(is_less);
                Ok(())
            }
            "remove-partition-statistics" => {
                let id = number("snapshot-id")?;
                let all = &mut self.table.partition_statistics;
                let before = all.len();
                all.retain(|one| snapshot_id(one) != id);
                let is_less = all.len() < before;
                self.mark_changed(is_less);
                Ok(())
            }
            "add-encryption-key" => {
                let key = object("encryption-key")?;
                if self.table.format_version < 3 {
                    return Err(Error::invalid("encryption keys need format version 3"));
                }
                if self.table.encryption_keys.iter().all(|known| known["key-id"] != key["key-id"]) {
                    self.table.encryption_keys.push(key.clone());
                    self.mark_changed(true);
                }
                Ok(())
            }
            "remove-encryption-key" => {
                let id = text("key-id")?;
                let before = self.table.encryption_keys.len();
                self.table.encryption_keys.retain(|known| known["key-id"] != id);
                self.mark_changed(self.table.encryption_keys.len() < before);
                Ok(())
            }
            other => Err(Error::invalid(format!("`{}` is not a change of a table", name::printable(other)))),
        }
    }

    fn mark_changed(&mut self, is_changed: bool) {
        self.is_changed |= is_changed;
    }

    fn assign_uuid(&mut self, uuid: &str) -> Result<()> {
        let same = self.table.table_uuid.eq_ignore_ascii_case(uuid);
        if !self.is_new && !same {
            return Err(Error::invalid("the table has a UUID already, which stays"));
        }
        self.table.table_uuid = checked_uuid(uuid)?;
        Ok(())
    }

    fn upgrade(&mut self, format: i64) -> Result<()> {
        let now = self.table.format_version;
        if !(1..=FORMAT_MAX).contains(&format) {
            return Err(Error::invalid(format!(
                "format version {format} is not supported; 1 to {FORMAT_MAX} are"
            )));
        }
        if format < now {
            return Err(Error::invalid(format!(
                "the table has format version {now} and cannot go back to {format}"
            )));
        }
        if format >= 3 {
            self.table.next_row_id.get_or_insert(0);
        }
        self.table.format_version = format;
        self.mark_changed(format != now);
        Ok(())
    }

    fn add_schema(&mut self, added: &Json) -> Result<()> {
        let highest = schema::check(added, self.table.format_version)?;
        if let Some(same) = self.table.schemas.iter().find(|known| schema::same(known, added)) {
            self.last_schema = same["schema-id"].as_i64();
        } else {
            let ids = self.table.schemas.iter().filter_map(|known| known["schema-id"].as_i64());
            let id = ids.max().map_or(0, |id| id + 1);
            self.table.schemas.push(schema::with_id(added, id));
            self.last_schema = Some(id);
            self.mark_changed(true);
        }
        self.mark_changed(highest > self.table.last_column_id);
        self.table.last_column_id = self.table.last_column_id.max(highest);
        Ok(())
    }

    fn set_schema(&mut self, id: i64) -> Result<()> {
        let id = added_or(id, self.last_schema, "schema")?;
        if with_id(&self.table.schemas, "schema-id", id).is_none() {
            return Err(Error::invalid(format!("the table has no schema {id}")));
        }
        self.mark_changed(self.table.current_schema_id != id);
        self.table.current_schema_id = id;
        Ok(())
    }

    fn remove_schemas(&mut self, ids: &BTreeSet<i64>) -> Result<()> {
        if ids.contains(&self.table.current_schema_id) {
            return Err(Error::invalid("the current schema cannot be removed"));
        }
        let of_snapshots = self.table.snapshots.iter().filter_map(|s| s["schema-id"].as_i64());
        if let Some(used) = of_snapshots.into_iter().find(|id| ids.contains(id)) {
            return Err(Error::invalid(format!("a snapshot needs the schema {used}")));
        }
        let before = self.table.schemas.len();
        self.table.schemas.retain(|one| one["schema-id"].as_i64().is_none_or(|id| !ids.contains(&id)));
        self.mark_changed(self.table.schemas.len() < before);
        Ok(())
    }

    fn add_spec(&mut self, spec: &Json) -> Result<()> {
        if let Some(same) = self.table.partition_specs.iter().find(|known| partition::same_spec(known, spec))
        {
            self.last_spec = same["spec-id"].as_i64();
            return Ok(());
        }
        partition::check_sources(spec, self.table.schema(), "partition spec")?;
        let ids = self.table.partition_specs.iter().filter_map(|known| known["spec-id"].as_i64());
        let id = ids.max().map_or(0, |id| id + 1);
        let last = self.table.last_partition_id;
        let (spec, highest) = partition::with_ids(spec, id, &self.table.partition_specs, last)?;
        self.table.partition_specs.push(spec);
        self.table.last_partition_id = highest;
        self.last_spec = Some(id);
        self.mark_changed(true);
        Ok(())
    }

    fn set_spec(&mut self, id: i64) -> Result<()> {
        let id = added_or(id, self.last_spec, "partition spec")?;
        if with_id(&self.table.partition_specs, "spec-id", id).is_none() {
            return Err(Error::invalid(format!("the table has no partition spec {id}")));
        }
        self.mark_changed(self.table.default_spec_id != id);
        self.table.default_spec_id = id;
        Ok(())
    }

    fn remove_specs(&mut self, ids: &BTreeSet<i64>) -> Result<()> {
        if ids.contains(&self.table.default_spec_id) {
            return Err(Error::invalid("the default partition spec cannot be removed"));
        }
        let before = self.table.partition_specs.len();
        self.table.partition_specs.retain(|one| one["spec-id"].as_i64().is_none_or(|id| !ids.contains(&id)));
        self.mark_changed(self.table.partition_specs.len() < before);
        Ok(())
    }

    fn add_order(&mut self, order: &Json) -> Result<()> {
        if let Some(same) = self.table.sort_orders.iter().find(|known| partition::same_order(known, order)) {
            self.last_order = same["order-id"].as_i64();
            return Ok(());
        }
        partition::check_sources(order, self.table.schema(), "sort order")?;
        let is_unsorted = order["fields"].as_array().is_some_and(Vec::is_empty);
        let ids = self.table.sort_orders.iter().filter_map(|known| known["order-id"].as_i64());
        let id = if is_unsorted { 0 } else { ids.max().unwrap_or(0) + 1 };
        self.table.sort_orders.push(partition::order_with_id(order, id)?);
        self.last_order = Some(id);
        self.mark_changed(true);
        Ok(())
    }

    fn set_order(&mut self, id: i64) -> Result<()> {
        let id = added_or(id, self.last_order, "sort order")?;
        if with_id(&self.table.sort_orders, "order-id", id).is_none() {
            return Err(Error::invalid(format!("the table has no sort order {id}")));
        }
        self.mark_changed(self.table.default_sort_order_id != id);
        self.table.default_sort_order_id = id;
        Ok(())
    }

    fn add_snapshot(&mut self, snapshot: &Json) -> Result<()> {
        let table = &mut self.table;
        let number = |key: &str| snapshot[key].as_i64();
        let lacks = |key: &str| Error::invalid(format!("the snapshot has no `{key}`"));
        let id = number("snapshot-id").ok_or_else(|| lacks("snapshot-id"))?;
        let time = number("timestamp-ms").ok_or_else(|| lacks("timestamp-ms"))?;
        if table.schemas.is_empty() || table.partition_specs.is_empty() || table.sort_orders.is_empty() {
            return Err(Error::invalid("a snapshot comes after a schema, a partition spec and a sort order"));
        }
        let is_old = table.format_version == 1 && snapshot["manifests"].is_array();
        if !snapshot["manifest-list"].is_string() && !is_old {
            return Err(lacks("manifest-list"));
        }
        if table.snapshot(id).is_some() {
            return Err(Error::invalid(format!("the table has a snapshot {id} already")));
        }
        let sequence = number("sequence-number").unwrap_or(0);
        let last = table.last_sequence_number;
        if table.format_version > 1 && sequence <= last && number("parent-snapshot-id").is_some() {
            return Err(Error::invalid(format!(
                "the snapshot's sequence number {sequence} is not above the table's, which is {last}"
            )));
        }
        if table.format_version >= 3 {
            let first = number("first-row-id").ok_or_else(|| lacks("first-row-id"))?;
            let added = number("added-rows").filter(|rows| *rows >= 0).ok_or_else(|| lacks("added-rows"))?;
            let next = table.next_row_id.unwrap_or(0);
            if first < next {
                return Err(Error::invalid(format!(
                    "the snapshot's first row id {first} is below the table's next one, which is {next}"
                )));
            }
            table.next_row_id = Some(first.saturating_add(added));
        }
        table.last_sequence_number = last.max(sequence);
        table.snapshots.push(snapshot.clone());
        self.added.insert(id);
        self.updated_ms = Some(time);
        self.mark_changed(true);
        Ok(())
    }

    fn set_ref(&mut self, called: &str, update: &Json) -> Result<()> {
        let id = snapshot_id(update);
        let Some(snapshot) = self.table.snapshot(id) else {
            return Err(Error::invalid(format!(
                "`{}` cannot be the snapshot {id}, which the table does not have",
                name::printable(called)
            )));
        };
        let time = snapshot["timestamp-ms"].as_i64().unwrap_or(self.now_ms);
        let kind = update["type"].as_str().unwrap_or("branch");
        let fits = match kind {
            "branch" => true,
            "tag" => {
                called != MAIN
                    && update["min-snapshots-to-keep"].is_null()
                    && update["max-snapshot-age-ms"].is_null()
            }
            _ => false,
        };
        if !fits {
            return Err(Error::invalid(format!(
                "`{}` cannot be a branch or tag with these settings",
                name::printable(called)
            )));
        }
        let mut made = json!({ "snapshot-id": id, "type": kind });
        for key in ["max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep"] {
            if !update[key].is_null() {
                made[key] = update[key].clone();
            }
        }
        if self.table.refs.get(called) == Some(&made) {
            return Ok(());
        }
        let is_added = self.added.contains(&id);
        if is_added {
            self.updated_ms = Some(time);
        }
        if called == MAIN && self.table.current_snapshot_id != Some(id) {
            if let Some(before) = self.table.current_snapshot_id.filter(|before| self.added.contains(before))
            {
                self.transient.insert(before);
            }
            self.table.current_snapshot_id = Some(id);
            let timestamp_ms = self.updated_ms.unwrap_or(self.now_ms);
            self.table.snapshot_log.push(SnapshotLogEntry { timestamp_ms, snapshot_id: id });
        }
        self.table.refs.insert(called.to_owned(), made);
        self.mark_changed(true);
        Ok(())
    }

    fn remove_ref(&mut self, called: &str) {
        if self.table.refs.remove(called).is_some() {
            if called == MAIN {
                self.table.current_snapshot_id = None;
            }
            self.mark_changed(true);
        }
    }

    fn remove_snapshots(&mut self, ids: &BTreeSet<i64>) {
        let table = &mut self.table;
        let before = table.snapshots.len();
        table.snapshots.retain(|snapshot| !ids.contains(&snapshot_id(snapshot)));
        if table.snapshots.len() == before {
            return;
        }
        table.statistics.retain(|one| !ids.contains(&snapshot_id(one)));
        table.partition_statistics.retain(|one| !ids.contains(&snapshot_id(one)));
        let dangling: Vec<String> = table
            .refs
            .iter()
            .filter(|(_, r)| ids.contains(&snapshot_id(r)))
            .map(|(called, _)| called.clone())
            .collect();
        for called in dangling {
            self.remove_ref(&called);
        }
        self.has_removed_snapshots = true;
        self.mark_changed(true);
    }

    fn set_properties(&mut self, updates: &Json) -> Result<()> {
        for (key, value) in super::string_map(updates, "a property")? {
            let before = self.table.properties.insert(key, value.clone());
            self.mark_changed(before.as_ref() != Some(&value));
        }
        Ok(())
    }

    /// Returns the changed table, with `previous` (the metadata file that it had) appended to its metadata log; `None` if
    /// nothing changed.
    pub fn finish(mut self, previous: Option<&str>) -> Result<Option<ChangedTable>> {
        if !self.is_changed {
            return Ok(None);
        }
        if self.table.location.is_empty() {
            return Err(Error::invalid("the table has no location"));
        }
        if self.is_new && self.table.sort_orders.is_empty() {
            self.add_order(&json!({ "fields": [] }))?;
            self.table.default_sort_order_id = 0;
        }
        self.table.check()?;
        self.correct_log();
        let mut forgotten = Vec::new();
        if let Some(previous) = previous {
            let max = self.table.properties.get(METADATA_FILES_MAX).and_then(|max| max.parse().ok());
            let max = max.unwrap_or(METADATA_FILES_MAX_DEFAULT).max(1);
            let log = &mut self.table.metadata_log;
            log.push(MetadataLogEntry {
                timestamp_ms: self.table.last_updated_ms,
                metadata_file: previous.to_owned(),
            });
            let beyond = log.len().saturating_sub(max);
            forgotten.extend(log.drain(..beyond).map(|old| old.metadata_file));
        }
        // The clocks of writers differ, and readers expect times that never decrease.
        let logged = self.table.snapshot_log.last().map_or(0, |entry| entry.timestamp_ms);
        let updated = self.updated_ms.unwrap_or(self.now_ms);
        self.table.last_updated_ms = updated.max(self.table.last_updated_ms).max(logged);
        Ok(Some(ChangedTable { table: self.table, forgotten }))
    }

    /// Corrects the snapshot log, which lists the snapshots that were current, oldest first and without gaps. A snapshot that
    /// was current only inside this commit is left out; entries before a removed snapshot go too.
    fn correct_log(&mut self) {
        if self.transient.is_empty() && !self.has_removed_snapshots {
            return;
        }
        let current = self.table.current_snapshot_id;
        let known: BTreeSet<i64> = self.table.snapshots.iter().map(snapshot_id).collect();
        let mut kept: Vec<SnapshotLogEntry> = Vec::new();
        for entry in self.table.snapshot_log.drain(..) {
            let id = entry.snapshot_id;
            if !known.contains(&id) {
                if self.has_removed_snapshots {
                    kept.clear();
                }
            } else if !self.transient.contains(&id) || Some(id) == current {
                kept.push(entry);
            }
        }
        self.table.snapshot_log = kept;
    }
}

fn added_or(id: i64, added: Option<i64>, what: &str) -> Result<i64> {
    match id {
        LAST_ADDED => {
            added.ok_or_else(|| Error::invalid(format!("no {what} was added before in this commit")))
        }
        id => Ok(id),
    }
}

fn numbers(list: &[Json]) -> BTreeSet<i64> {
    list.iter().filter_map(Json::as_i64).collect()
}

fn put_statistics(all: &mut Vec<Json>, statistics: &Json) -> Result<()> {
    let id = statistics["snapshot-id"].as_i64();
    let id = id.ok_or_else(|| Error::invalid("the statistics have no `snapshot-id`"))?;
    all.retain(|one| snapshot_id(one) != id);
    all.push(statistics.clone());
    Ok(())
}

/// Checks that `uuid` has the usual form of a UUID, and returns it in lower case.
pub(super) fn checked_uuid(uuid: &str) -> Result<String> {
    let parts: Vec<&str> = uuid.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    if lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit())) {
        Ok(uuid.to_ascii_lowercase())
    } else {
        Err(Error::invalid(format!("`{}` is not a UUID", name::printable(uuid))))
    }
}
