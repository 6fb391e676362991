//! Builds a table file by file, in the ways that other programs may write one.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType as Arrow, Field, Int64Type, Schema};
use iceberg::avro::Body;
use iceberg::manifest::{Content, ManifestFile, write_list};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use roaring::RoaringTreemap;
use serde_json::{Value as Json, json};
use sim::SimEnv;
use types::Result;

use crate::foreign::{ForeignTable, deletion_vector};
use crate::store::Store;

pub const LOCATION: &str = "s3://bucket/t";

/// Partition specs of each table: unpartitioned, by `p`, only a `void` field, by `p` again.
pub const PLAIN: i32 = 0;
pub const BY_P: i32 = 1;
pub const VOID: i32 = 2;
pub const BY_P_AGAIN: i32 = 3;

pub struct TableBuilder {
    pub sim: SimEnv,
    /// The table's metadata, which tests may edit before the table is opened.
    pub json: Json,
    pub files: Vec<FileEntry>,
    /// True if the manifest list is to say that manifests are encrypted.
    pub is_encrypted: bool,
}

/// A file's entry in a manifest.
#[derive(Clone, Debug)]
pub struct FileEntry {
    pub path: String,
    pub status: i64,
    pub content: i64,
    pub format: &'static str,
    pub spec: i32,
    pub p: Option<String>,
    /// The sequence number of the manifest, and true if the entry does not repeat it.
    pub sequence: i64,
    pub is_inherited: bool,
    pub rows: i64,
    pub bytes: i64,
    pub ids: Option<Vec<i32>>,
    pub of: Option<String>,
    pub blob: Option<(i64, i64)>,
    pub key: Option<Vec<u8>>,
}

/// A column with its field id.
pub fn column(id: i32, name: &str, values: ArrayRef) -> (Field, ArrayRef) {
    (field(id, name, values.data_type().clone()), values)
}

pub fn field(id: i32, name: &str, arrow: Arrow) -> Field {
    let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    Field::new(name, arrow, true).with_metadata([id].into())
}

pub fn longs(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

pub fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// The column `n`, by which tests identify rows.
pub fn n(values: &[i64]) -> (Field, ArrayRef) {
    column(1, "n", longs(values))
}

const ENTRY: &str = r#"{"type":"record","name":"manifest_entry","fields":[
    {"name":"status","type":"int","field-id":0},
    {"name":"sequence_number","type":["null","long"],"field-id":3},
    {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
        {"name":"content","type":"int","field-id":134},
        {"name":"file_path","type":"string","field-id":100},
        {"name":"file_format","type":"string","field-id":101},
        {"name":"partition","field-id":102,"type":{"type":"record","name":"r102","fields":[
            {"name":"p","type":["null","string"],"field-id":1000}]}},
        {"name":"record_count","type":"long","field-id":103},
        {"name":"file_size_in_bytes","type":"long","field-id":104},
        {"name":"key_metadata","type":["null","bytes"],"field-id":131},
        {"name":"equality_ids","type":["null",{"type":"array","items":"int","element-id":136}],"field-id":135},
        {"name":"referenced_data_file","type":["null","string"],"field-id":143},
        {"name":"content_offset","type":["null","long"],"field-id":144},
        {"name":"content_size_in_bytes","type":["null","long"],"field-id":145}]}}]}"#;

impl TableBuilder {
    /// Creates a table with the columns `n long`, `p string` and `columns`.
    pub fn new(columns: Json) -> TableBuilder {
        let sim = SimEnv::new(1);
        for dir in ["t/data", "t/metadata"] {
            sim.env().disk.create_dir_all(Path::new(dir)).unwrap();
        }
        let mut fields = vec![
            json!({ "id": 1, "name": "n", "type": "long", "required": false }),
            json!({ "id": 2, "name": "p", "type": "string", "required": false }),
        ];
        fields.extend(columns.as_array().unwrap().iter().cloned());
        let spec = |id: i32, transform: &str| {
            let by = json!({ "source-id": 2, "field-id": 1000, "name": "p", "transform": transform });
            json!({ "spec-id": id, "fields": if id == PLAIN { json!([]) } else { json!([by]) } })
        };
        let specs =
            [spec(PLAIN, ""), spec(BY_P, "identity"), spec(VOID, "void"), spec(BY_P_AGAIN, "identity")];
        let json = json!({
            "format-version": 3,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": LOCATION,
            "last-sequence-number": 99, "last-updated-ms": 1, "last-column-id": 99, "next-row-id": 1000,
            "current-schema-id": 1,
            "schemas": [{ "type": "struct", "schema-id": 1, "fields": fields }],
            "default-spec-id": 0, "partition-specs": specs, "last-partition-id": 1000,
            "default-sort-order-id": 0, "sort-orders": [{ "order-id": 0, "fields": [] }],
            "current-snapshot-id": 7,
            "snapshots": [{
                "snapshot-id": 7, "sequence-number": 99, "timestamp-ms": 1, "summary": { "operation": "append" },
                "manifest-list": format!("{LOCATION}/metadata/list.avro"), "schema-id": 1, "first-row-id": 0,
                "added-rows": 0,
            }],
        });
        TableBuilder { sim, json, files: Vec::new(), is_encrypted: false }
    }

    /// Adds a schema and makes it current. Earlier schemas stay.
    pub fn schema(&mut self, fields: Json) {
        let schemas = self.json["schemas"].as_array_mut().unwrap();
        let id = schemas.len() + 1;
        schemas.push(json!({ "type": "struct", "schema-id": id, "fields": fields }));
        self.json["current-schema-id"] = json!(id);
    }

    pub fn store(&self) -> Store {
        Store::local(&self.sim.env())
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.store().replace(&Path::new("t").join(path), bytes).unwrap();
    }

    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let path = path.strip_prefix(LOCATION).unwrap();
        self.store().read(Path::new(&format!("t{path}"))).unwrap().to_vec()
    }

    fn add(
        &mut self,
        content: i64,
        format: &'static str,
        sequence: i64,
        rows: i64,
        bytes: &[u8],
    ) -> &mut FileEntry {
        let path = format!("data/{:03}.{}", self.files.len(), format.to_lowercase());
        self.put(&path, bytes);
        self.files.push(FileEntry {
            path: format!("{LOCATION}/{path}"),
            status: 1,
            content,
            format,
            spec: PLAIN,
            p: None,
            sequence,
            is_inherited: false,
            rows,
            bytes: bytes.len() as i64,
            ids: None,
            of: None,
            blob: None,
            key: None,
        });
        self.files.last_mut().unwrap()
    }

    fn parquet(
        &mut self,
        content: i64,
        sequence: i64,
        group_rows: Option<usize>,
        columns: Vec<(Field, ArrayRef)>,
    ) -> &mut FileEntry {
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(group_rows).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let bytes = writer.into_inner().unwrap();
        self.add(content, "PARQUET", sequence, batch.num_rows() as i64, &bytes)
    }

    pub fn data(&mut self, sequence: i64, columns: Vec<(Field, ArrayRef)>) -> &mut FileEntry {
        self.parquet(0, sequence, None, columns)
    }

    /// Adds a data file with `rows` rows in each row group; the last may have fewer.
    pub fn data_in_groups(
        &mut self,
        sequence: i64,
        rows: usize,
        columns: Vec<(Field, ArrayRef)>,
    ) -> &mut FileEntry {
        self.parquet(0, sequence, Some(rows), columns)
    }

    pub fn equality(
        &mut self,
        sequence: i64,
        ids: &[i32],
        columns: Vec<(Field, ArrayRef)>,
    ) -> &mut FileEntry {
        let file = self.parquet(2, sequence, None, columns);
        file.ids = Some(ids.to_vec());
        file
    }

    pub fn positions(&mut self, sequence: i64, of: &[(&str, i64)]) -> &mut FileEntry {
        let paths: Vec<Option<&str>> = of.iter().map(|(path, _)| Some(*path)).collect();
        let positions: Vec<i64> = of.iter().map(|(_, position)| *position).collect();
        let columns = vec![
            column(2_147_483_546, "file_path", texts(&paths)),
            column(2_147_483_545, "pos", longs(&positions)),
        ];
        self.parquet(1, sequence, None, columns)
    }

    /// Adds deletion vectors of data files, all in one Puffin file, with an entry for each.
    pub fn vectors(&mut self, sequence: i64, of: &[(&str, RoaringTreemap)]) {
        let mut file = b"PFA1".to_vec();
        let blobs: Vec<(usize, usize)> = of
            .iter()
            .map(|(_, positions)| {
                let begin = file.len();
                file.extend(deletion_vector::tests::blob(positions));
                (begin, file.len() - begin)
            })
            .collect();
        file.extend(b"PFA1{}PFA1");
        let made = self.add(1, "PUFFIN", sequence, 0, &file).clone();
        self.files.pop();
        for ((path, positions), (begin, len)) in of.iter().zip(blobs) {
            self.files.push(FileEntry {
                rows: positions.len() as i64,
                of: Some((*path).to_owned()),
                blob: Some((begin as i64, len as i64)),
                ..made.clone()
            });
        }
    }

    /// Returns the path of the file that was added last.
    pub fn last(&self) -> String {
        self.files.last().unwrap().path.clone()
    }

    pub fn open(&self) -> Result<Arc<ForeignTable>> {
        let mut manifests = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            let mut body = Body::new();
            body.long(file.status);
            body.optional_long((!file.is_inherited).then_some(file.sequence));
            body.long(file.content);
            body.blob(file.path.as_bytes());
            body.blob(file.format.as_bytes());
            body.some(file.p.is_some());
            file.p.iter().for_each(|p| body.blob(p.as_bytes()));
            body.long(file.rows);
            body.long(file.bytes);
            body.some(file.key.is_some());
            file.key.iter().for_each(|key| body.blob(key));
            body.some(file.ids.is_some());
            file.ids.iter().for_each(|ids| body.array(ids, |body, id| body.long((*id).into())));
            body.some(file.of.is_some());
            file.of.iter().for_each(|of| body.blob(of.as_bytes()));
            body.optional_long(file.blob.map(|(offset, _)| offset));
            body.optional_long(file.blob.map(|(_, len)| len));
            body.end_record();
            let path = format!("metadata/{at}.avro");
            self.put(&path, &body.into_file(ENTRY, &[]));
            manifests.push(ManifestFile {
                path: format!("{LOCATION}/{path}"),
                bytes: 1,
                spec: file.spec,
                content: if file.content == 0 { Content::Data } else { Content::Deletes },
                sequence: file.sequence,
                min_sequence: file.sequence,
                snapshot_id: 7,
                files: [0, 1, 0],
                rows: [0, 1, 0],
                partitions: Vec::new(),
                checksum: None,
            });
        }
        let list = if self.is_encrypted {
            let mut body = Body::new();
            body.blob(b"key");
            body.end_record();
            let schema = r#"{"type":"record","name":"manifest_file","fields":[
                    {"name":"key_metadata","type":"bytes","field-id":519}]}"#;
            body.into_file(schema, &[])
        } else {
            write_list(&manifests, 7, None, 99)
        };
        self.put("metadata/list.avro", &list);
        self.put("metadata/v1.metadata.json", self.json.to_string().as_bytes());
        ForeignTable::open(&self.store(), Path::new("t/metadata/v1.metadata.json"), None).map(Arc::new)
    }

    /// Returns `n` of the live rows. Also checks that a read from any offset gives the same rows.
    pub fn rows(&self) -> Result<Vec<i64>> {
        let table = self.open()?;
        table.check()?;
        let all = rows_from(&table, 0)?;
        for from in 0..=table.end_offset() + 1 {
            let wanted = all.iter().filter(|(place, _)| *place >= from);
            assert_eq!(rows_from(&table, from)?, wanted.copied().collect::<Vec<_>>(), "from {from}");
        }
        Ok(all.into_iter().map(|(_, n)| n).collect())
    }
}

/// Returns offset and `n` of each row from an offset on.
pub fn rows_from(table: &Arc<ForeignTable>, from: u64) -> Result<Vec<(u64, i64)>> {
    let (mut rows, mut all) = (table.read(from), Vec::new());
    while let Some(batch) = rows.next_batch()? {
        let n = batch.rows.column_by_name("n").unwrap().as_primitive::<Int64Type>();
        all.extend((0..n.len()).map(|row| (batch.offset(row), n.value(row))));
    }
    Ok(all)
}
