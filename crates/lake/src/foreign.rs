//! Tables that other programs wrote, read from their files: what is imported from.
//!
//! [`reader`](crate::reader) bears witness of Polynya's own tables and knows only what those have. This takes any Iceberg table of
//! format 1 to 3 in Parquet: any partition spec, columns that came (with a default or without), went, were renamed or widened,
//! files without field ids under a name mapping; rows that are deleted by position, in files or in vectors, or by equality. What
//! it cannot read whole is refused before the first row: other file formats, encrypted files, types that no table here holds. A
//! row is never left out or made up in silence.
//!
//! Rows have one order, which depends on the snapshot alone: data files by sequence number and path, in each the rows that no
//! position deletes. So a place in it is a number, and reading goes on from any. Rows that equality deletes take have places
//! too: which rows those are is found out when their file's turn comes.

mod contents;
mod defaults;
mod equality;
mod files;
mod find;
mod json;
mod keys;
mod leaves;
mod parquet_file;
mod project;
mod rows;
mod schema;
mod vector;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::metadata::Metadata;
use iceberg::spec::{Partition, Specs, specs_of};
use roaring::RoaringTreemap;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Result};

use crate::store::Store;
use equality::Equality;
pub use find::newest_metadata;
pub use json::objects;
pub use leaves::{change_leaves, int96_as_micros};
pub use rows::{Batch, Rows};
pub use schema::Column;
use schema::Node;

/// A table at one snapshot.
#[derive(Debug)]
pub struct Foreign {
    place: Place,
    /// The table's, from its metadata.
    pub uuid: String,
    /// `None`: it has never had a row.
    pub snapshot: Option<i64>,
    /// The id of the schema that it is read with.
    pub schema: i64,
    /// The columns, in the schema's order, as tables here may hold them.
    pub columns: Vec<Column>,
    /// Columns that are not among these, since they have no type and nothing but nulls.
    pub left_out: Vec<String>,
    nodes: Vec<Node>,
    /// Names that files without field ids give to columns.
    names: HashMap<i32, Vec<String>>,
    specs: Specs,
    data: Vec<DataFile>,
    equality: Equality,
}

/// Where in its history a table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub snapshot: i64,
    /// `None`: the one that the snapshot was made with.
    pub schema: Option<i64>,
}

/// Where a table's files are.
#[derive(Clone, Debug)]
struct Place {
    store: Store,
    /// The table's directory.
    dir: PathBuf,
    /// What its metadata calls that.
    location: String,
}

/// A Parquet file of rows or of deletes; of one of rows, the positions of those that are deleted.
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
    /// Rows that no position deletes.
    fn places(&self) -> u64 {
        self.rows - self.deleted.len()
    }
}

impl Foreign {
    /// Opens a table by a metadata file, `metadata/…` in the table's directory as a rule; as it is now, or at a place in its
    /// history that it still has ([`Kind::NotFound`] if it has not).
    pub fn open(store: &Store, metadata: &Path, at: Option<At>) -> Result<Foreign> {
        let in_file = |e: Error| e.with("file", metadata.display());
        let bytes = find::unpacked(store.read(metadata)?).map_err(in_file)?;
        let parsed = parse(&bytes).map_err(in_file)?;
        let parent = metadata.parent().unwrap_or(Path::new(""));
        let dir = match parent.file_name().is_some_and(|name| name == "metadata") {
            true => parent.parent().unwrap_or(Path::new("")),
            false => parent,
        };
        let place = Place {
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
        // Now it has its current columns, which may be newer than its snapshot; at an older one those of that time.
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
            Some(of) => files::read(&place, &of.manifest_list, &specs)?,
        };
        // What is deleted by may be a column that is gone; the newest schema that has it says of which type it is.
        let mut schemas: Vec<&Json> = parsed.schemas.iter().map(|schema| &**schema).collect();
        schemas.sort_by_key(|schema| std::cmp::Reverse(schema["schema-id"].as_i64()));
        schemas.insert(0, schema);
        let equality = Equality::new(deletes, &specs, &schemas)?;
        let names = parsed.properties.get("schema.name-mapping.default");
        let names = names.map(|text| schema::name_mapping(text)).transpose().map_err(in_file)?;
        Ok(Foreign {
            place,
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

    /// The place behind the last row. So many rows there are, but for those that equality deletes take.
    pub fn places(&self) -> u64 {
        self.data.iter().map(DataFile::places).sum()
    }

    pub fn data_files(&self) -> usize {
        self.data.len()
    }

    /// The rows from a place on, as batches of [`Foreign::columns`].
    pub fn read(self: &Arc<Self>, from: u64) -> Rows {
        Rows::new(self.clone(), from)
    }

    /// Looks at every data file's footer and reads the equality deletes, so that what cannot be read is known before the first
    /// row is taken.
    pub fn check(&self) -> Result<()> {
        self.data
            .iter()
            .try_for_each(|file| rows::check(self, file).map_err(|e| e.with("file", &file.path)))?;
        self.equality.check(self)
    }
}

/// Metadata of format 1 to 3, as format 2 says it.
fn parse(bytes: &[u8]) -> Result<Metadata> {
    let mut json: Json = serde_json::from_slice(bytes)
        .map_err(|e| Error::damaged(format!("this is no Iceberg metadata: {e}")))?;
    match json["format-version"].as_i64() {
        Some(1) => upgrade(&mut json)?,
        Some(2) => {}
        Some(3) => {
            // Transforms of several columns have no `source-id`. What they give is in the manifests.
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
        None => return Err(Error::damaged("this is no Iceberg metadata: it says no `format-version`")),
    }
    serde_json::from_value(json).map_err(|e| Error::damaged(format!("this is no Iceberg metadata: {e}")))
}

/// The source of a partition field that is made of several columns.
const NO_COLUMN: i32 = -1;

/// Fills in what format 1 may leave out.
fn upgrade(json: &mut Json) -> Result<()> {
    let Some(map) = json.as_object_mut() else { return Err(Error::damaged("metadata that is no object")) };
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
            // Format 1 numbers them in order if it says nothing.
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

impl Place {
    /// A file that metadata names: where the table's directory is now if it is of it, else where it says.
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
        Err(match is_here || inside.is_some() {
            true => error.hint("copy the table's whole directory, with `metadata` and `data` in it"),
            false => {
                error.hint("files elsewhere are not fetched: copy the table's directory to this machine")
            }
        })
    }

    fn read(&self, path: &str) -> Result<bytes::Bytes> {
        self.store.read(&self.find(path)?)
    }
}

#[cfg(test)]
mod tests;
