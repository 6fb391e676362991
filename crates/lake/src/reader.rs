//! Reads an Iceberg table from its files alone, as any other program would: metadata, manifest list, manifests, Parquet and
//! position delete files. It uses none of the writer's state, so it can verify the writer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType as Arrow, Field, Fields, Schema, SchemaRef, TimeUnit};
use iceberg::manifest::{self, Content, DataFile, Entry, Status};
use iceberg::metadata::Metadata;
use iceberg::spec::specs_of;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value as Json;
use types::{Error, Kind, Lsn, ROW_ID, ROW_ID_NAME, Result, RowId};

use crate::catalog::decompressed;
use crate::delete_file;
use crate::files::is_missing;
use crate::live_rows::as_type;
use crate::state::{local, metadata_name, newest_version};
use crate::store::Store;

/// An Iceberg table at its current snapshot.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    dir: PathBuf,
    pub metadata: Metadata,
    pub row: RowId,
    pub lsn: Lsn,
    schema: SchemaRef,
    data: Vec<Entry>,
    /// Deleted positions by data file path, ascending.
    deleted: HashMap<String, Vec<u64>>,
}

/// The result of comparing a table's data files with their checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileComparison {
    pub files: u64,
    /// Number of files without checksums: older ones, or those of another program that were not read through.
    pub unknown: u64,
    /// Descriptions of the damaged files.
    pub damaged: Vec<String>,
}

impl Reader {
    /// Opens the newest metadata in a table's directory.
    pub fn open(store: &Store, dir: &Path) -> Result<Reader> {
        let version = newest_version(store, dir)?.ok_or_else(|| {
            Error::not_found(format!("there is no Iceberg table in {}", dir.display()))
                .hint("a table lands a few seconds after its first rows; `polynya lake commit` lands it now")
        })?;
        Self::open_version(store, dir, version)
    }

    /// Opens the metadata file of a version.
    pub fn open_version(store: &Store, dir: &Path, version: u64) -> Result<Reader> {
        Self::open_file(store, dir, &metadata_name(version))
    }

    /// Opens a metadata file by its name, which may be one of another program.
    pub fn open_file(store: &Store, dir: &Path, name: &str) -> Result<Reader> {
        let path = dir.join("metadata").join(name);
        let in_file = |e: Error| e.with("file", path.display());
        let metadata = decompressed(store.read(&path)?, &path).and_then(|bytes| Metadata::parse(&bytes));
        Self::of(store, dir, metadata.map_err(in_file)?).map_err(in_file)
    }

    /// Opens a table with metadata from elsewhere, such as a catalog.
    pub(crate) fn of(store: &Store, dir: &Path, metadata: Metadata) -> Result<Reader> {
        let (row, lsn) = metadata.position()?;
        let schema = metadata.schema().ok_or_else(|| Error::damaged("no current schema"))?;
        let schema = arrow_schema(schema)?;
        let mut reader = Reader {
            store: store.clone(),
            dir: dir.to_owned(),
            row,
            lsn,
            schema,
            data: Vec::new(),
            deleted: HashMap::new(),
            metadata,
        };
        reader.read_manifests()?;
        Ok(reader)
    }

    fn read_manifests(&mut self) -> Result<()> {
        let Some(snapshot) = self.metadata.current().cloned() else {
            return match self.metadata.current_snapshot_id {
                None => Ok(()),
                Some(id) => Err(Error::damaged(format!("the current snapshot {id} is not in the metadata"))),
            };
        };
        let list = manifest::read_list_of(&self.file(&snapshot.manifest_list)?, &snapshot)
            .map_err(|e| e.with("file", &snapshot.manifest_list))?;
        let specs = specs_of(&self.metadata)?;
        for of in list {
            let entries =
                manifest::read(&self.file(&of.path)?, &of, &specs).map_err(|e| e.with("file", &of.path))?;
            for entry in entries.into_iter().filter(|e| e.status != Status::Deleted) {
                match entry.file.content {
                    Content::Data => self.data.push(entry),
                    Content::Deletes => {
                        let bytes = self.as_written(&entry.file)?;
                        for of in delete_file::read(bytes).map_err(|e| e.with("file", &entry.file.path))? {
                            self.deleted.entry(of.path.to_string()).or_default().extend(of.positions);
                        }
                    }
                }
            }
        }
        self.deleted.values_mut().for_each(|positions| positions.sort_unstable());
        self.data.sort_by(|a, b| (a.sequence, &a.file.path).cmp(&(b.sequence, &b.file.path)));
        Ok(())
    }

    fn file(&self, path: &str) -> Result<bytes::Bytes> {
        self.store.read(&local(&self.dir, &self.metadata.location, path)?)
    }

    /// Reads a file and compares it with the checksums in its manifest, if there are any.
    fn as_written(&self, file: &DataFile) -> Result<bytes::Bytes> {
        let bytes = self.file(&file.path)?;
        if let Some(checksums) = &file.checksums {
            checksums.compare(&bytes).map_err(|e| e.with("file", &file.path))?;
        }
        Ok(bytes)
    }

    /// Compares every data file with its checksums. Position delete files were compared at opening.
    pub fn compare_files(&self) -> Result<FileComparison> {
        let mut found = FileComparison::default();
        for entry in &self.data {
            found.files += 1;
            found.unknown += u64::from(entry.file.checksums.is_none());
            match self.as_written(&entry.file) {
                Ok(_) => {}
                Err(error) if error.kind() == Kind::Damaged || is_missing(&error) => {
                    found.damaged.push(format!("{}: {}", entry.file.path, error.message()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns the number of data files, and the number of those without checksums.
    pub fn files_without_checksums(&self) -> (usize, usize) {
        let without = self.data.iter().filter(|entry| entry.file.checksums.is_none());
        (self.data.len(), without.count())
    }

    /// The columns, system columns first.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn data_files(&self) -> usize {
        self.data.len()
    }

    /// Passes all rows to `each`, file by file in unspecified order.
    pub fn read(&self, each: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        for entry in &self.data {
            self.read_file(entry, each).map_err(|e| e.with("file", &entry.file.path))?;
        }
        Ok(())
    }

    fn read_file(&self, entry: &Entry, each: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        let damaged = |e: &dyn std::fmt::Display| Error::damaged(format!("a data file cannot be read: {e}"));
        let bytes = self.as_written(&entry.file)?;
        if bytes.len() as u64 != entry.file.bytes {
            return Err(Error::damaged("a data file is not as long as its manifest says"));
        }
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|e| damaged(&e))?;
        if builder.metadata().file_metadata().num_rows() as u64 != entry.file.rows {
            return Err(Error::damaged("a data file has another number of rows than its manifest says"));
        }
        let fields = builder.parquet_schema().root_schema().get_fields();
        let stored: Vec<Option<i32>> = fields
            .iter()
            .map(|field| field.get_basic_info().has_id().then(|| field.get_basic_info().id()))
            .collect();
        let sources: Vec<Option<usize>> = self
            .schema
            .fields()
            .iter()
            .map(|wanted| stored.iter().position(|id| *id == field_id(wanted)))
            .collect();
        let mut deleted = self.deleted.get(&entry.file.path).into_iter().flatten().copied().peekable();
        let mut position = 0u64;
        for batch in builder.build().map_err(|e| damaged(&e))? {
            let batch = batch.map_err(|e| damaged(&e))?;
            let rows = batch.num_rows();
            let columns = sources.iter().zip(self.schema.fields()).map(|(source, wanted)| match source {
                Some(at) => as_type(batch.column(*at), wanted.data_type()),
                None if wanted.is_nullable() => Ok(new_null_array(wanted.data_type(), rows)),
                None => Err(Error::damaged(format!(
                    "a data file without the required column `{}`",
                    wanted.name()
                ))),
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let mut made = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
                .map_err(|e| damaged(&e))?;
            let end = position + rows as u64;
            if deleted.peek().is_some_and(|first| *first < end) {
                let mut live = vec![true; rows];
                while let Some(at) = deleted.next_if(|at| *at < end) {
                    live[(at - position) as usize] = false;
                }
                made = filter_record_batch(&made, &BooleanArray::from(live)).map_err(|e| damaged(&e))?;
            }
            position = end;
            each(made)?;
        }
        Ok(())
    }
}

fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok()
}

/// Converts an Iceberg schema to Arrow, with field ids in the metadata. The row id gets the name that it has in tables.
fn arrow_schema(schema: &Json) -> Result<SchemaRef> {
    let fields = schema["fields"].as_array().ok_or_else(|| Error::damaged("a schema without fields"))?;
    let field = |field: &Json| {
        let field = arrow_field(field, 0)?;
        let is_row_id = field_id(&field) == Some(ROW_ID.0 as i32);
        Ok(if is_row_id { field.with_name(ROW_ID_NAME) } else { field })
    };
    let fields = fields.iter().map(field).collect::<Result<Fields>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// Levels of nested types, at most; more than any type of ours has.
const NESTING_MAX: usize = 40;

fn arrow_field(field: &Json, depth: usize) -> Result<Field> {
    let name = field["name"].as_str().ok_or_else(|| Error::damaged("a field without a name"))?;
    let id = field["id"].as_i64().ok_or_else(|| Error::damaged("a field without an id"))?;
    let data_type = arrow_type(&field["type"], depth)?;
    let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    Ok(Field::new(name, data_type, field["required"] != Json::Bool(true)).with_metadata([id].into()))
}

fn arrow_type(json: &Json, depth: usize) -> Result<Arrow> {
    if depth > NESTING_MAX {
        return Err(Error::damaged("a type nested too deep"));
    }
    let Some(name) = json.as_str() else {
        return match json["type"].as_str() {
            Some("list") => {
                let element = arrow_type(&json["element"], depth + 1)?;
                let nullable = json["element-required"] != Json::Bool(true);
                Ok(Arrow::List(Arc::new(Field::new("element", element, nullable))))
            }
            Some("struct") => {
                let fields = json["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
                let plain = |field: &Json| Ok(arrow_field(field, depth + 1)?.with_metadata(HashMap::new()));
                Ok(Arrow::Struct(fields.iter().map(plain).collect::<Result<Fields>>()?))
            }
            _ => Err(Error::damaged(format!("{json} is not a type that Polynya reads"))),
        };
    };
    Ok(match name {
        "boolean" => Arrow::Boolean,
        "int" => Arrow::Int32,
        "long" => Arrow::Int64,
        "float" => Arrow::Float32,
        "double" => Arrow::Float64,
        "string" => Arrow::Utf8,
        "binary" => Arrow::Binary,
        "date" => Arrow::Date32,
        "timestamptz" => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "uuid" => Arrow::FixedSizeBinary(16),
        other => {
            let digits = other.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
            let parsed = digits.and_then(|digits| {
                let (precision, scale) = digits.split_once(',')?;
                Some((precision.trim().parse().ok()?, scale.trim().parse().ok()?))
            });
            let (precision, scale) = parsed
                .filter(|(precision, _)| (1..=38).contains(precision))
                .ok_or_else(|| Error::damaged(format!("`{other}` is not a type that Polynya reads")))?;
            Arrow::Decimal128(precision, scale)
        }
    })
}
