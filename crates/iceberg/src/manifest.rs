//! Manifests and manifest lists: the files of a snapshot. The Avro schemas that are written are constants, except for the
//! partition values, whose part each [`Spec`] makes once (O1). Files with any schema are read, by field id.

use std::sync::Arc;

use types::{Error, Result};

use crate::avro::{self, Body, Datum, Record};
use crate::checksums::{self, Checksums};
use crate::metadata::Snapshot;
use crate::spec::{self, Partition, Spec, Specs};

/// The content of a file, with Iceberg's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Data = 0,
    /// Positions of deleted rows in data files. Equality deletes (2) occur only in tables of other programs, which
    /// `foreign` reads.
    Deletes = 1,
}

/// A Parquet file as described in a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    pub content: Content,
    pub path: String,
    /// Id of the partition spec that the file was written under.
    pub spec: i32,
    pub partition: Arc<Partition>,
    pub rows: u64,
    pub bytes: u64,
    pub metrics: Metrics,
    /// Offsets at which row groups begin.
    pub split_offsets: Vec<i64>,
    /// Id of the sort order of its rows; `None` if they are in no known order.
    pub sort_order: Option<i32>,
    /// Checksums of the bytes that were written. `None` if an older version of this program wrote the file, or another
    /// program whose file was not read through.
    pub checksums: Option<Arc<Checksums>>,
}

/// Statistics of the file's columns, by field id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    pub column_bytes: Vec<(i32, i64)>,
    pub values: Vec<(i32, i64)>,
    pub nulls: Vec<(i32, i64)>,
    pub nans: Vec<(i32, i64)>,
    /// Bounds, encoded as Iceberg's single values.
    pub lower: Vec<(i32, Vec<u8>)>,
    pub upper: Vec<(i32, Vec<u8>)>,
}

impl Metrics {
    /// Adds a column of nulls only: the file has `rows` rows and is older than the column.
    pub fn add_nulls(&mut self, column: i32, rows: u64) {
        self.values.push((column, rows as i64));
        self.nulls.push((column, rows as i64));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Existing = 0,
    Added = 1,
    Deleted = 2,
}

/// A file in a manifest, with inherited numbers resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub status: Status,
    /// Id of the snapshot that added the file, or deleted it.
    pub snapshot_id: i64,
    pub sequence: i64,
    pub file_sequence: i64,
    pub file: Arc<DataFile>,
}

/// A manifest as described in a manifest list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    pub path: String,
    pub bytes: u64,
    /// Id of the partition spec of its files.
    pub spec: i32,
    pub content: Content,
    pub sequence: i64,
    pub min_sequence: i64,
    pub snapshot_id: i64,
    /// Numbers of files and of rows, indexed by [`Status`]: existing, added, deleted.
    pub files: [u64; 3],
    pub rows: [u64; 3],
    /// One summary for each field of the spec.
    pub partitions: Vec<FieldSummary>,
    /// Checksum of its bytes as text; `None` in the cases of [`DataFile::checksums`].
    pub checksum: Option<String>,
}

/// The range of all files of a manifest in one partition field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSummary {
    pub contains_null: bool,
    pub contains_nan: bool,
    /// Bounds of the values that are neither null nor NaN, encoded as Iceberg's single values.
    pub lower: Option<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
}

impl Content {
    fn of(number: i64) -> Result<Content> {
        match number {
            0 => Ok(Content::Data),
            1 => Ok(Content::Deletes),
            2 => Err(Error::damaged("equality deletes, which Polynya never writes")),
            other => Err(Error::damaged(format!("{other} is not a content type"))),
        }
    }
}

impl ManifestFile {
    /// Number of files that are in the table, that is, not deleted.
    pub fn live_files(&self) -> u64 {
        self.files[Status::Existing as usize] + self.files[Status::Added as usize]
    }
}

impl Entry {
    /// Returns the checksums to record in the manifest; `None` for a deleted file.
    fn checksums(&self) -> Option<&Checksums> {
        self.file.checksums.as_deref().filter(|_| self.status != Status::Deleted)
    }
}

/// The header of a manifest.
pub struct ManifestHeader<'a> {
    pub path: String,
    pub content: Content,
    pub spec: &'a Spec,
    /// The table's schema, as JSON text.
    pub schema: &'a str,
    pub schema_id: i32,
    /// Id of the snapshot that writes the manifest.
    pub snapshot_id: i64,
    pub sequence: i64,
}

/// Writes a manifest. Returns its bytes and its description for the manifest list. All entries must have the header's spec.
pub fn write(header: ManifestHeader<'_>, entries: &[Entry]) -> (Vec<u8>, ManifestFile) {
    let mut manifest = ManifestFile {
        path: header.path,
        bytes: 0,
        spec: header.spec.id,
        content: header.content,
        sequence: header.sequence,
        min_sequence: header.sequence,
        snapshot_id: header.snapshot_id,
        files: [0; 3],
        rows: [0; 3],
        partitions: header.spec.summaries(entries.iter().map(|entry| &*entry.file.partition)),
        checksum: None,
    };
    let mut body = Body::new();
    for entry in entries {
        manifest.files[entry.status as usize] += 1;
        manifest.rows[entry.status as usize] += entry.file.rows;
        if entry.status != Status::Deleted {
            manifest.min_sequence = manifest.min_sequence.min(entry.sequence);
        }
        put_entry(&mut body, entry, header.spec);
    }
    let content = if header.content == Content::Data { "data" } else { "deletes" };
    let (schema_id, spec_id) = (header.schema_id.to_string(), header.spec.id.to_string());
    let checksums = checksums::all_to_text(entries.iter().map(|entry| entry.checksums()));
    let head = [
        ("schema", header.schema),
        ("schema-id", schema_id.as_str()),
        ("partition-spec", header.spec.json.as_str()),
        ("partition-spec-id", spec_id.as_str()),
        ("format-version", "2"),
        ("content", content),
        (checksums::KEY, checksums.as_str()),
    ];
    let bytes = body.into_file(&header.spec.entry_schema, &head);
    manifest.bytes = bytes.len() as u64;
    manifest.checksum = Some(checksums::text_of(&bytes));
    (bytes, manifest)
}

fn put_entry(body: &mut Body, entry: &Entry, spec: &Spec) {
    let file = &entry.file;
    body.long(entry.status as i64);
    body.optional_long(Some(entry.snapshot_id));
    // An added file inherits the sequence number of its snapshot.
    let inherits = entry.status == Status::Added;
    body.optional_long((!inherits).then_some(entry.sequence));
    body.optional_long((!inherits).then_some(entry.file_sequence));
    body.long(file.content as i64);
    body.blob(file.path.as_bytes());
    body.blob(b"PARQUET");
    spec.put_avro(body, &file.partition);
    body.long(file.rows as i64);
    body.long(file.bytes as i64);
    // Readers of a deleted entry need the file's name, not its metrics.
    let nothing = Metrics::default();
    let metrics = if entry.status == Status::Deleted { &nothing } else { &file.metrics };
    for counts in [&metrics.column_bytes, &metrics.values, &metrics.nulls, &metrics.nans] {
        body.some(!counts.is_empty());
        if !counts.is_empty() {
            body.array(counts, |body, (id, count)| {
                body.long((*id).into());
                body.long(*count);
            });
        }
    }
    for bounds in [&metrics.lower, &metrics.upper] {
        body.some(!bounds.is_empty());
        if !bounds.is_empty() {
            body.array(bounds, |body, (id, bound)| {
                body.long((*id).into());
                body.blob(bound);
            });
        }
    }
    body.some(false);
    body.some(!file.split_offsets.is_empty());
    if !file.split_offsets.is_empty() {
        body.array(&file.split_offsets, |body, offset| body.long(*offset));
    }
    body.some(false);
    body.optional_long(file.sort_order.map(i64::from));
    body.end_record();
}

/// Reads the entries of a manifest. `of` is its description in the manifest list, `specs` are the table's. Fails with
/// `Damaged` if the bytes differ from the recorded checksum.
pub fn read(bytes: &[u8], of: &ManifestFile, specs: &Specs) -> Result<Vec<Entry>> {
    checksums::compare_text(bytes, of.checksum.as_deref())?;
    let (head, records) = avro::read(bytes)?;
    let spec = spec::find(specs, of.spec)?;
    let checksums = checksums::parse_all(head.get(checksums::KEY).map(Vec::as_slice));
    records.iter().zip(checksums).map(|(record, sums)| entry(record, of, spec, sums)).collect()
}

fn entry(record: &Record, of: &ManifestFile, spec: &Spec, checksums: Option<Checksums>) -> Result<Entry> {
    let missing = |what: &str| Error::damaged(format!("a manifest entry without {what}"));
    let status = match record.long(0) {
        Some(0) => Status::Existing,
        Some(1) => Status::Added,
        Some(2) => Status::Deleted,
        _ => return Err(missing("a status")),
    };
    let file = record.record(2).ok_or_else(|| missing("a file"))?;
    let count = |id, what| file.long(id).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| missing(what));
    let format = file.text(101).unwrap_or_default();
    if !format.eq_ignore_ascii_case("parquet") {
        return Err(Error::damaged(format!("a data file of format `{format}`, which is not Parquet")));
    }
    let counts = |id, key, value| -> Vec<(i32, i64)> {
        let pair = |item: &Datum| match item {
            Datum::Record(pair) => Some((i32::try_from(pair.long(key)?).ok()?, pair.long(value)?)),
            _ => None,
        };
        file.items(id).iter().filter_map(pair).collect()
    };
    let bounds = |id, key, value| -> Vec<(i32, Vec<u8>)> {
        let pair = |item: &Datum| match item {
            Datum::Record(pair) => Some((i32::try_from(pair.long(key)?).ok()?, pair.bytes(value)?.to_vec())),
            _ => None,
        };
        file.items(id).iter().filter_map(pair).collect()
    };
    let offset = |item: &Datum| if let Datum::Long(offset) = item { Some(*offset) } else { None };
    Ok(Entry {
        status,
        snapshot_id: record.long(1).unwrap_or(of.snapshot_id),
        sequence: record.long(3).unwrap_or(of.sequence),
        file_sequence: record.long(4).unwrap_or(of.sequence),
        file: Arc::new(DataFile {
            content: Content::of(file.long(134).unwrap_or(0))?,
            path: file.text(100).ok_or_else(|| missing("a path"))?.to_owned(),
            spec: spec.id,
            partition: spec.partition(file.record(102)),
            rows: count(103, "a count of rows")?,
            bytes: count(104, "a size")?,
            metrics: Metrics {
                column_bytes: counts(108, 117, 118),
                values: counts(109, 119, 120),
                nulls: counts(110, 121, 122),
                nans: counts(137, 138, 139),
                lower: bounds(125, 126, 127),
                upper: bounds(128, 129, 130),
            },
            split_offsets: file.items(132).iter().filter_map(offset).collect(),
            sort_order: file.long(140).and_then(|id| i32::try_from(id).ok()).filter(|id| *id != 0),
            checksums: checksums.map(Arc::new),
        }),
    })
}

/// Returns the bytes of a manifest list.
pub fn write_list(
    manifests: &[ManifestFile],
    snapshot_id: i64,
    parent: Option<i64>,
    sequence: i64,
) -> Vec<u8> {
    let mut body = Body::new();
    for manifest in manifests {
        body.blob(manifest.path.as_bytes());
        body.long(manifest.bytes as i64);
        body.long(manifest.spec.into());
        body.long(manifest.content as i64);
        body.long(manifest.sequence);
        body.long(manifest.min_sequence);
        body.long(manifest.snapshot_id);
        let [existing, added, deleted] = manifest.files;
        [added, existing, deleted].iter().for_each(|count| body.long(*count as i64));
        let [existing, added, deleted] = manifest.rows;
        [added, existing, deleted].iter().for_each(|count| body.long(*count as i64));
        body.some(true);
        body.array(&manifest.partitions, |body, summary| {
            body.bool(summary.contains_null);
            body.some(true);
            body.bool(summary.contains_nan);
            for bound in [&summary.lower, &summary.upper] {
                body.some(bound.is_some());
                bound.iter().for_each(|bound| body.blob(bound));
            }
        });
        body.some(false);
        body.end_record();
    }
    let (id, sequence) = (snapshot_id.to_string(), sequence.to_string());
    let parent = parent.map_or_else(|| "null".to_owned(), |parent| parent.to_string());
    let checksums: Vec<&str> = manifests.iter().map(|m| m.checksum.as_deref().unwrap_or_default()).collect();
    let checksums = checksums.join(",");
    let head = [
        ("snapshot-id", id.as_str()),
        ("parent-snapshot-id", parent.as_str()),
        ("sequence-number", sequence.as_str()),
        ("format-version", "2"),
        (checksums::KEY, checksums.as_str()),
    ];
    body.into_file(LIST_SCHEMA.trim_end(), &head)
}

pub fn read_list(bytes: &[u8]) -> Result<Vec<ManifestFile>> {
    let (head, records) = avro::read(bytes)?;
    let checksums = head.get(checksums::KEY).and_then(|text| std::str::from_utf8(text).ok());
    let checksums = checksums.unwrap_or_default().split(',').map(Some).chain(std::iter::repeat(None));
    records.iter().zip(checksums).map(|(record, checksum)| list_entry(record, checksum)).collect()
}

/// Reads the manifest list of a snapshot and compares it with the checksum in the snapshot's summary, if there is one.
pub fn read_list_of(bytes: &[u8], snapshot: &Snapshot) -> Result<Vec<ManifestFile>> {
    let expected = snapshot.summary.get(checksums::LIST_KEY).map(String::as_str);
    checksums::compare_text(bytes, expected)?;
    read_list(bytes)
}

fn list_entry(record: &Record, checksum: Option<&str>) -> Result<ManifestFile> {
    let missing = |what: &str| Error::damaged(format!("a manifest list's entry without {what}"));
    let count = |id: i32| record.long(id).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let is = |record: &Record, id: i32| record.get(id) == Some(&Datum::Bool(true));
    let summary = |item: &Datum| match item {
        Datum::Record(of) => Some(FieldSummary {
            contains_null: is(of, 509),
            contains_nan: is(of, 518),
            lower: of.bytes(510).map(<[u8]>::to_vec),
            upper: of.bytes(511).map(<[u8]>::to_vec),
        }),
        _ => None,
    };
    Ok(ManifestFile {
        path: record.text(500).ok_or_else(|| missing("a path"))?.to_owned(),
        bytes: count(501),
        spec: record.long(502).and_then(|id| i32::try_from(id).ok()).unwrap_or(0),
        content: Content::of(record.long(517).unwrap_or(0))?,
        sequence: record.long(515).unwrap_or(0),
        min_sequence: record.long(516).unwrap_or(0),
        // Format 1 may leave the snapshot id out; the entries then have their own.
        snapshot_id: record.long(503).unwrap_or(0),
        files: [count(505), count(504), count(506)],
        rows: [count(513), count(512), count(514)],
        partitions: record.items(507).iter().filter_map(summary).collect(),
        checksum: checksum.filter(|text| !text.is_empty()).map(str::to_owned),
    })
}

/// Returns the Avro schema of manifest entries with these partition fields.
pub fn entry_schema(partition_fields: &str) -> String {
    const PARTITION: &str = r#""name":"r102","fields":["#;
    let schema = ENTRY_SCHEMA.trim_end();
    let at = schema.find(PARTITION).expect("a constant") + PARTITION.len();
    [&schema[..at], partition_fields, &schema[at..]].concat()
}

const ENTRY_SCHEMA: &str = include_str!("manifest/entry.avsc");
const LIST_SCHEMA: &str = include_str!("manifest/list.avsc");

#[cfg(test)]
mod tests;
