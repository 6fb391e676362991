//! The metadata file of a table, as Iceberg format 2 defines it: `vN.metadata.json`.
//!
//! Members that other programs added and this one does not know are kept.

mod layout;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use types::{Error, Kind, Lsn, Result, RowId, TableId};

use crate::checksums;
use crate::layout::Layout;
pub use layout::UNSORTED;

/// Keys of the table's position (K1): every row with an id up to `ROW` has landed, as of `LSN`. They occur in the table's
/// properties and in each snapshot's summary.
pub const ROW: &str = "polynya.row";
pub const LSN: &str = "polynya.lsn";
/// Property with the run of the database that committed the position.
pub const RUN: &str = "polynya.run";
/// Property with the id of the Polynya table that this Iceberg table mirrors.
pub const TABLE_ID: &str = "polynya.table-id";
/// Property with the id of the database that writes the table, for stores and catalogs that several databases can reach.
const DATABASE: &str = "polynya.database";
/// Property with the ids of the last snapshots that other programs committed, expired ones included.
const ADOPTED: &str = "polynya.taken";
const ADOPTED_MAX: usize = 16;
/// Name of the branch that readers of the table see.
pub const MAIN: &str = "main";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Metadata {
    pub format_version: i32,
    pub table_uuid: String,
    pub location: String,
    pub last_sequence_number: i64,
    pub last_updated_ms: i64,
    pub last_column_id: i32,
    pub current_schema_id: i32,
    pub schemas: Vec<CachedJson<Json>>,
    pub default_spec_id: i32,
    pub partition_specs: Vec<Json>,
    pub last_partition_id: i32,
    pub default_sort_order_id: i32,
    pub sort_orders: Vec<Json>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "no_snapshot")]
    pub current_snapshot_id: Option<i64>,
    #[serde(default)]
    pub refs: BTreeMap<String, Json>,
    #[serde(default)]
    pub snapshots: Vec<CachedJson<Snapshot>>,
    #[serde(default)]
    pub snapshot_log: Vec<SnapshotLogEntry>,
    #[serde(default)]
    pub metadata_log: Vec<MetadataLogEntry>,
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Snapshot {
    pub snapshot_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_snapshot_id: Option<i64>,
    /// Missing, which means 0, in snapshots of a table that was upgraded from format 1.
    #[serde(default)]
    pub sequence_number: i64,
    pub timestamp_ms: i64,
    pub manifest_list: String,
    #[serde(default)]
    pub summary: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_id: Option<i32>,
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

/// A part of the metadata that never changes. Its JSON text is made once, however many metadata files contain it (O1).
#[derive(Debug)]
pub struct CachedJson<T>(Arc<(T, OnceLock<Box<RawValue>>)>);

impl<T: Serialize> CachedJson<T> {
    /// Returns the part as JSON.
    pub fn text(&self) -> serde_json::Result<&str> {
        self.raw().map(RawValue::get)
    }

    fn raw(&self) -> serde_json::Result<&RawValue> {
        let (value, text) = &*self.0;
        if let Some(text) = text.get() {
            return Ok(text);
        }
        TEXTS_MADE.set(TEXTS_MADE.get() + 1);
        let made = serde_json::value::to_raw_value(value)?;
        Ok(text.get_or_init(|| made))
    }
}

thread_local! {
    static TEXTS_MADE: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of texts of unchanging parts that this thread has made, for tests of the cost of a commit.
pub fn texts_made() -> u64 {
    TEXTS_MADE.get()
}

impl<T> Clone for CachedJson<T> {
    fn clone(&self) -> Self {
        CachedJson(self.0.clone())
    }
}

impl<T> From<T> for CachedJson<T> {
    fn from(value: T) -> Self {
        CachedJson(Arc::new((value, OnceLock::new())))
    }
}

impl<T> Deref for CachedJson<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: Serialize> Serialize for CachedJson<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.raw().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for CachedJson<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        T::deserialize(deserializer).map(CachedJson::from)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotLogEntry {
    pub timestamp_ms: i64,
    pub snapshot_id: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MetadataLogEntry {
    pub timestamp_ms: i64,
    pub metadata_file: String,
}

/// Approximate bytes of one snapshot in a metadata file, and of everything else together. They size the buffer.
const SNAPSHOT_BYTES: usize = 900;
const BYTES_BESIDE: usize = 16 << 10;

/// Reads an optional snapshot id. Old writers use -1 for none.
fn no_snapshot<'de, D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Option<i64>, D::Error> {
    Ok(Option::<i64>::deserialize(d)?.filter(|id| *id != -1))
}

/// Id of the schema that a new table begins with.
pub const FIRST_SCHEMA: i32 = 0;

impl Metadata {
    /// Builds the metadata of a table without a snapshot. `schema` has no `schema-id` yet.
    pub fn new(
        uuid: String,
        location: String,
        schema: &Json,
        last_column_id: i32,
        layout: &Layout,
        now_ms: i64,
    ) -> Metadata {
        let mut metadata = Metadata {
            format_version: 2,
            table_uuid: uuid,
            location,
            last_sequence_number: 0,
            last_updated_ms: now_ms,
            last_column_id,
            current_schema_id: FIRST_SCHEMA,
            schemas: Vec::new(),
            default_spec_id: 0,
            partition_specs: Vec::new(),
            last_partition_id: layout::FIRST_PARTITION_FIELD - 1,
            default_sort_order_id: layout::UNSORTED,
            sort_orders: vec![json!({ "order-id": layout::UNSORTED, "fields": [] })],
            properties: BTreeMap::new(),
            current_snapshot_id: None,
            refs: BTreeMap::new(),
            snapshots: Vec::new(),
            snapshot_log: Vec::new(),
            metadata_log: Vec::new(),
            other: Map::new(),
        };
        metadata.set_schema(schema, last_column_id);
        metadata.set_layout(layout);
        metadata
    }

    pub fn parse(bytes: &[u8]) -> Result<Metadata> {
        check_checksum(bytes)?;
        let mut metadata: Metadata = serde_json::from_slice(bytes)
            .map_err(|e| Error::damaged(format!("this is not Iceberg metadata: {e}")))?;
        metadata.other.remove(CHECKSUM_KEY);
        if metadata.format_version != 2 {
            let found = metadata.format_version;
            return Err(Error::new(Kind::Newer, format!("Iceberg format {found}; this program knows 2")));
        }
        Ok(metadata)
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // Reserves the whole buffer at once: a growing buffer would copy its long content repeatedly.
        let mut bytes = Vec::with_capacity(BYTES_BESIDE + self.snapshots.len() * SNAPSHOT_BYTES);
        serde_json::to_writer(&mut bytes, self)
            .map_err(|e| Error::internal(format!("writing Iceberg metadata: {e}")))?;
        Ok(bytes)
    }

    /// Returns the bytes of a metadata file that Polynya writes: the JSON, whose last member is a checksum of everything
    /// before it.
    pub fn to_file(&self) -> Result<Vec<u8>> {
        self.to_bytes().map(with_checksum)
    }

    pub fn snapshot(&self, id: i64) -> Option<&Snapshot> {
        self.snapshots.iter().map(|snapshot| &**snapshot).find(|s| s.snapshot_id == id)
    }

    pub fn current(&self) -> Option<&Snapshot> {
        self.snapshot(self.current_snapshot_id?)
    }

    /// Iterates over a snapshot and its ancestors, the newest first, as far as they are retained.
    pub fn ancestors(&self, of: i64) -> impl Iterator<Item = &Snapshot> {
        let parent = |snapshot: &&Snapshot| self.snapshot(snapshot.parent_snapshot_id?);
        // Metadata of other programs may contain a cycle, so the length is bounded.
        std::iter::successors(self.snapshot(of), parent).take(self.snapshots.len())
    }

    /// Returns the branches other than `main`, which other programs created in a catalog, each with the id of its snapshot.
    pub fn branches(&self) -> BTreeMap<&str, i64> {
        let is_other = |(name, of): &(&String, &Json)| *name != MAIN && of["type"] != "tag";
        let all = self.refs.iter().filter(is_other);
        all.filter_map(|(name, of)| Some((name.as_str(), of["snapshot-id"].as_i64()?))).collect()
    }

    /// Returns the snapshots that are retained as long as their branches exist: the snapshot of each branch other than
    /// `main`, and those of its ancestors that `main` does not have.
    pub fn branch_snapshots(&self) -> HashSet<i64> {
        let branches = self.branches();
        if branches.is_empty() {
            return HashSet::new();
        }
        let current = self.current_snapshot_id.into_iter();
        let of_main: HashSet<i64> =
            current.flat_map(|id| self.ancestors(id)).map(|s| s.snapshot_id).collect();
        let beside = |id: i64| {
            self.ancestors(id).map(|s| s.snapshot_id).take_while(|id| !of_main.contains(id)).chain([id])
        };
        branches.into_values().flat_map(beside).collect()
    }

    /// Returns the current snapshot and its ancestors, the oldest first, without the [snapshots of
    /// branches](Metadata::branch_snapshots).
    pub fn main_line(&self) -> Vec<i64> {
        let Some(current) = self.current_snapshot_id else { return Vec::new() };
        let branch_snapshots = self.branch_snapshots();
        let ids = self.ancestors(current).map(|s| s.snapshot_id);
        let mut line: Vec<i64> = ids.filter(|id| *id == current || !branch_snapshots.contains(id)).collect();
        line.reverse();
        line
    }

    pub fn schema(&self) -> Option<&Json> {
        self.current_schema().map(|schema| &**schema)
    }

    pub fn current_schema(&self) -> Option<&CachedJson<Json>> {
        self.schemas.iter().find(|s| s["schema-id"] == json!(self.current_schema_id))
    }

    /// Returns true if the current schema equals `schema`, which has no `schema-id`.
    pub fn has_schema(&self, schema: &Json) -> bool {
        self.schema().is_some_and(|current| same_schema(current, schema))
    }

    /// Makes `schema` the current one. If the table has had an equal schema before, its id is used again.
    pub fn set_schema(&mut self, schema: &Json, last_column_id: i32) {
        self.last_column_id = self.last_column_id.max(last_column_id);
        let id_of = |s: &Json| s["schema-id"].as_i64().and_then(|id| i32::try_from(id).ok());
        let mut known = self.schemas.iter().map(|known| &**known);
        if let Some(known) = known.find(|known| same_schema(known, schema)).and_then(id_of) {
            self.current_schema_id = known;
            return;
        }
        let id = self.schemas.iter().filter_map(|known| id_of(known)).max().map_or(FIRST_SCHEMA, |id| id + 1);
        let mut schema = schema.clone();
        schema["schema-id"] = json!(id);
        self.schemas.push(schema.into());
        self.current_schema_id = id;
    }

    /// Adds a snapshot at the head of the main branch.
    pub fn add_snapshot(&mut self, snapshot: Snapshot) {
        let id = snapshot.snapshot_id;
        self.last_sequence_number = self.last_sequence_number.max(snapshot.sequence_number);
        self.snapshot_log.push(SnapshotLogEntry { timestamp_ms: snapshot.timestamp_ms, snapshot_id: id });
        self.current_snapshot_id = Some(id);
        self.refs.insert(MAIN.into(), json!({ "snapshot-id": id, "type": "branch" }));
        self.snapshots.push(snapshot.into());
    }

    /// Returns the position of the table. The newest ancestor of the current snapshot that records one decides, since
    /// commits of other programs record none. Fails with `Damaged` if the table's properties record another position.
    pub fn position(&self) -> Result<(RowId, Lsn)> {
        let property = position_in(&self.properties)?.ok_or_else(|| {
            Error::damaged(format!("the Iceberg table has no property `{ROW}` and `{LSN}`"))
        })?;
        let current = self.current_snapshot_id.into_iter();
        for snapshot in current.flat_map(|id| self.ancestors(id)) {
            if let Some(position) = position_in(&snapshot.summary)? {
                if position != property {
                    return Err(Error::damaged(format!(
                        "the Iceberg table disagrees with itself: its snapshot {} stands at row {} and lsn {}, its \
                         properties at row {} and lsn {}",
                        snapshot.snapshot_id, position.0, position.1, property.0, property.1
                    ))
                    .hint("another program changed it; move its directory away and it is built anew"));
                }
                return Ok(position);
            }
        }
        match self.current_snapshot_id {
            None if property.0 == RowId(0) => Ok(property),
            None => Err(Error::damaged(format!(
                "the Iceberg table says that it stands at row {} and has no current snapshot",
                property.0
            ))
            .hint("another program changed it; move its directory away and it is built anew")),
            Some(_) => Err(Error::damaged(format!("no snapshot of the Iceberg table says `{ROW}`"))
                .hint("another program changed it; move its directory away and it is built anew")),
        }
    }

    pub fn set_position(&mut self, row: RowId, lsn: Lsn) {
        self.properties.insert(ROW.into(), row.to_string());
        self.properties.insert(LSN.into(), lsn.to_string());
    }

    pub fn run(&self) -> Option<&str> {
        self.properties.get(RUN).map(String::as_str)
    }

    pub fn set_run(&mut self, run: Option<&str>) {
        match run {
            Some(run) => drop(self.properties.insert(RUN.into(), run.into())),
            None => drop(self.properties.remove(RUN)),
        }
    }

    /// Returns the ids of the last snapshots that were adopted from other programs.
    pub fn adopted(&self) -> impl Iterator<Item = i64> {
        let listed = self.properties.get(ADOPTED).map(String::as_str).unwrap_or_default();
        listed.split(',').filter_map(|id| id.parse().ok())
    }

    pub fn add_adopted(&mut self, snapshot_id: i64) {
        let mut adopted: Vec<String> = self.adopted().map(|id| id.to_string()).collect();
        adopted.push(snapshot_id.to_string());
        adopted.drain(..adopted.len().saturating_sub(ADOPTED_MAX));
        self.properties.insert(ADOPTED.into(), adopted.join(","));
    }

    pub fn table_id(&self) -> Option<TableId> {
        self.properties.get(TABLE_ID)?.parse().ok().map(TableId)
    }

    pub fn database(&self) -> Option<&str> {
        self.properties.get(DATABASE).map(String::as_str)
    }

    pub fn set_database(&mut self, id: &str) {
        self.properties.insert(DATABASE.into(), id.into());
    }
}

/// Key of the checksum, the last member of a metadata file that Polynya writes. Other readers of Iceberg ignore it.
const CHECKSUM_KEY: &str = "polynya-crc32c";

/// Appends the checksum of a JSON object to it, as its last member.
pub fn with_checksum(mut object: Vec<u8>) -> Vec<u8> {
    if object.pop_if(|last| *last == b'}').is_some() {
        let checksum = checksums::text_of(&object);
        object.extend_from_slice(format!(",\"{CHECKSUM_KEY}\":\"{checksum}\"}}").as_bytes());
    }
    object
}

/// Compares the checksum at the end of a JSON object and returns the object without it. An object without one is returned
/// unchanged.
pub fn without_checksum(object: Bytes) -> Result<Bytes> {
    let Some(content) = check_checksum(&object)? else { return Ok(object) };
    Ok([content, b"}"].concat().into())
}

/// Compares the checksum at the end of a metadata file. Returns the bytes before it, or `None` if the file has no checksum.
fn check_checksum(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let parts = bytes.strip_suffix(b"\"}").and_then(|rest| rest.split_last_chunk::<8>());
    let Some((rest, checksum)) = parts else { return Ok(None) };
    let Some(content) = rest.strip_suffix(format!(",\"{CHECKSUM_KEY}\":\"").as_bytes()) else {
        return Ok(None);
    };
    checksums::compare_text(content, std::str::from_utf8(checksum).ok())?;
    Ok(Some(content))
}

fn same_schema(a: &Json, b: &Json) -> bool {
    // The key is a set: catalogs write its fields in an order of their own.
    let key = |of: &Json| -> BTreeSet<i64> {
        of["identifier-field-ids"].as_array().into_iter().flatten().filter_map(Json::as_i64).collect()
    };
    a["fields"] == b["fields"] && key(a) == key(b)
}

fn position_in(texts: &BTreeMap<String, String>) -> Result<Option<(RowId, Lsn)>> {
    let number = |key: &str| {
        texts.get(key).map(|text| {
            text.parse::<u64>()
                .map_err(|_| Error::damaged(format!("`{key}` is not a number in the Iceberg table")))
        })
    };
    match (number(ROW).transpose()?, number(LSN).transpose()?) {
        (Some(row), Some(lsn)) => Ok(Some((RowId(row), Lsn(lsn)))),
        (None, None) => Ok(None),
        _ => Err(Error::damaged(format!("the Iceberg table says only one of `{ROW}` and `{LSN}`"))),
    }
}

#[cfg(test)]
mod tests;
