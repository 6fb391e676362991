//! Reads tables that other programs wrote, from their files, for an import.
//!
//! [`reader`](crate::reader) verifies Polynya's own tables and supports only what those contain. This module reads any Iceberg
//! table of format 1 to 3 in Parquet: any partition spec; columns that were added (with or without a default), dropped, renamed
//! or widened; files without field ids under a name mapping; rows deleted by position (in delete files or deletion vectors) or
//! by equality. A table that cannot be read completely is refused before the first row: other file formats, encrypted files,
//! types that no table here holds. No row is left out or invented silently.
//!
//! Rows have one order, which depends only on the snapshot: data files by sequence number and path, and the rows of each file
//! by position, without those deleted by position. A row's offset is its number in this order, and a read can start at any
//! offset. Rows that an equality delete removes keep their offsets, since a file's equality deletes are evaluated only when the
//! file is read.

mod defaults;
mod deleted_keys;
mod deletion_vector;
mod equality;
mod file_contents;
mod files;
mod json;
mod leaves;
mod metadata_file;
mod parquet_file;
mod project;
mod rows;
mod schema;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::metadata::Metadata;
use iceberg::spec::{Partition, Specs, specs_of};
use roaring::RoaringTreemap;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Result};

use crate::store::Store;
use equality::EqualityDeletes;
pub use json::maps_as_json;
pub use leaves::{change_leaves, int96_as_micros};
pub use metadata_file::newest_metadata;
pub use rows::{RowBatch, RowReader};
pub use schema::Column;
use schema::Node;

/// A table at one snapshot.
#[derive(Debug)]
pub struct ForeignTable {
    locator: FileLocator,
    /// The table's UUID, from its metadata.
    pub uuid: String,
    /// The snapshot's id; `None` if the table has never had a row.
    pub snapshot: Option<i64>,
    /// The id of the schema with which the table is read.
    pub schema: i64,
    /// The columns, in the schema's order, with the types that tables here have.
    pub columns: Vec<Column>,
    /// Names of the columns that are not in `columns`: they have no type and only nulls.
    pub left_out: Vec<String>,
    nodes: Vec<Node>,
    /// The names by which files without field ids know each column, by field id.
    names: HashMap<i32, Vec<String>>,
    specs: Specs,
    data: Vec<DataFile>,
    equality: EqualityDeletes,
}

/// The snapshot, and optionally the schema, at which a table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableVersion {
    pub snapshot: i64,
    /// The schema's id; `None` for the one with which the snapshot was made.
    pub schema: Option<i64>,
}

/// The location of a table's files.
#[derive(Clone, Debug)]
struct FileLocator {
    store: Store,
    /// The table's present directory.
    dir: PathBuf,
    /// The table's location according to its metadata, which differs from `dir` if the table was copied.
    location: String,
}

/// A Parquet file of rows or of deletes. For a file of rows, `deleted` holds the positions of deleted rows.
#[derive(Clone, Debug)]
struct DataFile {
    path: String,
    spec: i32,
    partition: Arc<Partition>,
    sequence: i64,
    rows: u64,
    bytes: u64,
    deleted: Arc<RoaringTreemap>,
}

impl DataFile {
    /// Returns the number of rows that no position deletes.
    fn undeleted_rows(&self) -> u64 {
        self.rows - self.deleted.len()
    }
}

impl ForeignTable {
    /// Opens a table by a metadata file, which is usually `metadata/…` in the table's directory. Reads the current state, or a
    /// former one if `at` names it. Fails with [`Kind::NotFound`] if the metadata no longer contains that snapshot or schema.
    pub fn open(store: &Store, metadata: &Path, at: Option<TableVersion>) -> Result<ForeignTable> {
        let in_file = |e: Error| e.with("file", metadata.display());
        let bytes = metadata_file::decompressed(store.read(metadata)?).map_err(in_file)?;
        let parsed = parse(&bytes).map_err(in_file)?;
        let parent = metadata.parent().unwrap_or(Path::new(""));
        let dir = if parent.file_name().is_some_and(|name| name == "metadata") {
            parent.parent().unwrap_or(Path::new(""))
        } else {
            parent
        };
        let locator = FileLocator {
            store: store.clone(),
            dir: dir.to_owned(),
            location: parsed.location.trim_end_matches('/').to_owned(),
        };
        let gone = |what: &str, id: i64| {
            in_file(Error::not_found(format!("the Iceberg table has no {what} {id} any more")))
        };
        let wanted = at.map(|at| at.snapshot).or(parsed.current_snapshot_id);
        let of = match wanted {
            None => None,
            Some(id) => Some(parsed.snapshot(id).ok_or_else(|| gone("snapshot", id))?),
        };
        // The current state has the current columns, which may be newer than its snapshot. A former snapshot has the columns of
        // its time.
        let schema_id = at.and_then(|at| at.schema.or(of.and_then(|of| of.schema_id).map(i64::from)));
        let schema = match schema_id {
            Some(id) => {
                let mut schemas = parsed.schemas.iter().map(|schema| &**schema);
                schemas.find(|schema| schema["schema-id"] == json!(id)).ok_or_else(|| gone("schema", id))?
            }
            None => parsed
                .schema()
                .ok_or_else(|| in_file(Error::damaged("the table's schema is not in its metadata")))?,
        };
        let is_polynya = parsed.table_id().is_some();
        let (nodes, columns) = schema::columns_of(schema, is_polynya).map_err(in_file)?;
        let specs = specs_of(&parsed).map_err(in_file)?;
        if of.is_some_and(|of| of.other.get("key-id").is_some_and(|key| !key.is_null())) {
            return Err(in_file(files::encrypted()));
        }
        let (data, deletes) = match of {
            None => (Vec::new(), Vec::new()),
            Some(of) => files::read(&locator, &of.manifest_list, &specs)?,
        };
        // A key column may have been dropped since; the newest schema that contains it tells its type.
        let mut schemas: Vec<&Json> = parsed.schemas.iter().map(|schema| &**schema).collect();
        schemas.sort_by_key(|schema| std::cmp::Reverse(schema["schema-id"].as_i64()));
        schemas.insert(0, schema);
        let equality = EqualityDeletes::new(deletes, &specs, &schemas)?;
        let names = parsed.properties.get("schema.name-mapping.default");
        let names = names.map(|text| schema::name_mapping(text)).transpose().map_err(in_file)?;
        Ok(ForeignTable {
            locator,
            uuid: parsed.table_uuid.clone(),
            snapshot: wanted,
            schema: schema["schema-id"].as_i64().unwrap_or(0),
            columns,
            left_out: schema::left_out(schema),
            nodes,
            names: names.unwrap_or_default(),
            specs,
            data,
            equality,
        })
    }

    /// Returns the offset after the last row. It is the number of rows, including those that equality deletes remove.
    pub fn end_offset(&self) -> u64 {
        self.data.iter().map(DataFile::undeleted_rows).sum()
    }

    pub fn data_files(&self) -> usize {
        self.data.len()
    }

    /// Reads the rows from an offset on, as batches of [`ForeignTable::columns`].
    pub fn read(self: &Arc<Self>, from: u64) -> RowReader {
        RowReader::new(self.clone(), from)
    }

    /// Reads the footer of every data file and all equality deletes, so that a file that cannot be read is reported before the
    /// first row.
    pub fn check(&self) -> Result<()> {
        self.data
            .iter()
            .try_for_each(|file| rows::check(self, file).map_err(|e| e.with("file", &file.path)))?;
        self.equality.check(self)
    }
}

/// Parses metadata of format 1 to 3 into the form of format 2.
fn parse(bytes: &[u8]) -> Result<Metadata> {
    let mut json: Json = serde_json::from_slice(bytes)
        .map_err(|e| Error::damaged(format!("this is not Iceberg metadata: {e}")))?;
    match json["format-version"].as_i64() {
        Some(1) => upgrade(&mut json)?,
        Some(2) => {}
        Some(3) => {
            // A transform of several columns has no `source-id`. Its values are in the manifests.
            let specs = json.get_mut("partition-specs").and_then(Json::as_array_mut).into_iter().flatten();
            let fields = specs.filter_map(|spec| spec.get_mut("fields")?.as_array_mut()).flatten();
            for field in fields.filter_map(Json::as_object_mut) {
                let one = match field.get("source-ids").and_then(Json::as_array).map(Vec::as_slice) {
                    Some([one]) => one.clone(),
                    Some(_) => json!(NO_COLUMN),
                    None => continue,
                };
                field.entry("source-id").or_insert(one);
            }
        }
        Some(version) => {
            return Err(Error::new(Kind::Newer, format!("Iceberg format {version}; 1 to 3 are read")).hint(
                "write a copy of format 2 with the program that made the table: CREATE TABLE … AS SELECT",
            ));
        }
        None => return Err(Error::damaged("this is not Iceberg metadata: it has no `format-version`")),
    }
    serde_json::from_value(json).map_err(|e| Error::damaged(format!("this is not Iceberg metadata: {e}")))
}

/// The source id of a partition field that is made of several columns.
const NO_COLUMN: i32 = -1;

/// Fills in the members that format 1 may leave out.
fn upgrade(json: &mut Json) -> Result<()> {
    let Some(map) = json.as_object_mut() else {
        return Err(Error::damaged("metadata that is not an object"));
    };
    map.insert("format-version".into(), json!(2));
    let mut default = |key: &str, value: Json| {
        map.entry(key.to_owned()).or_insert(value);
    };
    default("last-sequence-number", json!(0));
    default("table-uuid", json!(""));
    default("default-sort-order-id", json!(0));
    default("sort-orders", json!([{ "order-id": 0, "fields": [] }]));
    default("current-schema-id", json!(0));
    default("default-spec-id", json!(0));
    default("last-partition-id", json!(999));
    if !map.contains_key("schemas") {
        let mut schema = map.get("schema").cloned().unwrap_or_default();
        let Some(fields) = schema.as_object_mut() else {
            return Err(Error::damaged("Iceberg metadata without a schema"));
        };
        fields.insert("schema-id".into(), json!(0));
        map.insert("schemas".into(), json!([schema]));
    }
    if !map.contains_key("partition-specs") {
        let mut fields = map.get("partition-spec").cloned().unwrap_or_else(|| json!([]));
        for (at, field) in fields.as_array_mut().into_iter().flatten().enumerate() {
            // Format 1 numbers partition fields in order if they have no ids.
            if let Some(field) = field.as_object_mut() {
                field.entry("field-id").or_insert(json!(1000 + at));
            }
        }
        map.insert("partition-specs".into(), json!([{ "spec-id": 0, "fields": fields }]));
    }
    for snapshot in map.get_mut("snapshots").and_then(Json::as_array_mut).into_iter().flatten() {
        if snapshot.get("manifest-list").is_none() {
            return Err(Error::new(
                Kind::Invalid,
                "a snapshot that lists its manifests itself, as Iceberg did before 0.7",
            )
            .hint("let a newer program rewrite the table's metadata: any commit does"));
        }
    }
    Ok(())
}

impl FileLocator {
    /// Returns the path of a file that metadata names: in the table's present directory if the name lies in its location, else
    /// the named path itself.
    fn find(&self, path: &str) -> Result<PathBuf> {
        let inside = path.strip_prefix(&self.location).and_then(|rest| rest.strip_prefix('/'));
        if let Some(rest) = inside {
            let here = self.dir.join(rest);
            if self.store.is_remote() || self.store.exists(&here)? {
                return Ok(here);
            }
        }
        let plain = path.strip_prefix("file://").or_else(|| path.strip_prefix("file:")).unwrap_or(path);
        let is_here = !self.store.is_remote() && plain.starts_with('/');
        if is_here && self.store.exists(Path::new(plain))? {
            return Ok(PathBuf::from(plain));
        }
        let error = Error::not_found(format!("the Iceberg table names a file that is not there: {path}"));
        Err(if is_here || inside.is_some() {
            error.hint("copy the table's whole directory, with `metadata` and `data` in it")
        } else {
            error.hint("files elsewhere are not fetched: copy the table's directory to this machine")
        })
    }

    fn read(&self, path: &str) -> Result<bytes::Bytes> {
        self.store.read(&self.find(path)?)
    }
}

#[cfg(test)]
mod tests;
