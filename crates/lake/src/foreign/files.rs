//! Lists a snapshot's files, and finds the rows that are deleted by position.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::avro::{self, Datum, Record};
use iceberg::manifest;
use iceberg::spec::{self, Specs};
use roaring::RoaringTreemap;
use types::{Error, Kind, Result};

use super::equality::EqualityDeleteFile;
use super::parquet_file::catch_panics;
use super::{DataFile, FileLocator, deletion_vector};
use crate::delete_file;

/// Returns an error that says what cannot be read, with a hint what to do about it.
fn refused(what: &str, hint: &str) -> Error {
    Error::new(Kind::Invalid, what).hint(hint)
}

pub(super) const REWRITE_HINT: &str = "let the program that writes the table rewrite its data files (Spark: `CALL … \
                       rewrite_data_files(table => …, options => map('delete-file-threshold', '1'))`), and import it then";

/// Returns the error for an encrypted table. Its manifests are encrypted too.
pub(super) fn encrypted() -> Error {
    refused("the Iceberg table's files are encrypted", "decrypt them first")
}

/// Returns the data files of a snapshot, in the order of their rows, and its equality deletes.
pub(super) fn read(
    locator: &FileLocator,
    list: &str,
    specs: &Specs,
) -> Result<(Vec<DataFile>, Vec<EqualityDeleteFile>)> {
    let bytes = locator.read(list)?;
    let in_list = |e: Error| e.with("file", list);
    let (_, listed) = avro::read(&bytes).map_err(in_list)?;
    if listed.iter().any(|manifest| manifest.get(519).is_some()) {
        return Err(in_list(encrypted()));
    }
    let manifests = manifest::read_list(&bytes).map_err(in_list)?;
    let mut found = SnapshotFiles::default();
    for of in &manifests {
        let (_, records) = avro::read(&locator.read(&of.path)?).map_err(|e| e.with("file", &of.path))?;
        for record in &records {
            found.add(record, of, specs).map_err(|e| e.with("file", &of.path))?;
        }
    }
    found.apply_deletes(locator)
}

/// The files that a snapshot's manifests name.
#[derive(Default)]
struct SnapshotFiles {
    data: Vec<DataFile>,
    positions: Vec<PositionDeleteFile>,
    vectors: Vec<DeletionVector>,
    equality: Vec<EqualityDeleteFile>,
}

/// A file of deleted positions.
struct PositionDeleteFile {
    file: DataFile,
    /// The only data file to which the deletes apply, if the manifest names one.
    of: Option<String>,
}

/// A deletion vector in a Puffin file.
struct DeletionVector {
    file: DataFile,
    of: String,
    offset: u64,
    len: u64,
}

impl SnapshotFiles {
    fn add(&mut self, record: &Record, of: &manifest::ManifestFile, specs: &Specs) -> Result<()> {
        const ADDED: i64 = 1;
        const DELETED: i64 = 2;
        let missing = |what: &str| Error::damaged(format!("a manifest entry without {what}"));
        let status = record.long(0).ok_or_else(|| missing("a status"))?;
        if status == DELETED {
            return Ok(());
        }
        // An added entry without a sequence number inherits its manifest's. Format 1 has no sequence numbers; they count as 0.
        let inherited = (status == ADDED || of.sequence == 0).then_some(of.sequence);
        let sequence = record.long(3).or(inherited).ok_or_else(|| missing("a sequence number"))?;
        let entry = record.record(2).ok_or_else(|| missing("a file"))?;
        if entry.get(131).is_some() {
            return Err(encrypted());
        }
        let count =
            |id, what| entry.long(id).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| missing(what));
        let file = DataFile {
            path: entry.text(100).ok_or_else(|| missing("a path"))?.to_owned(),
            spec: of.spec,
            partition: spec::find(specs, of.spec)?.partition(entry.record(102)),
            sequence,
            rows: count(103, "a count of rows")?,
            bytes: count(104, "a size")?,
            deleted: Arc::default(),
        };
        let format = entry.text(101).unwrap_or_default().to_lowercase();
        let only = entry.text(143).map(str::to_owned);
        match (entry.long(134).unwrap_or(0), format.as_str()) {
            (0, "parquet") => self.data.push(file),
            (1, "parquet") => self.positions.push(PositionDeleteFile { file, of: only }),
            (1, "puffin") => self.vectors.push(DeletionVector {
                file,
                of: only.ok_or_else(|| missing("the data file of a deletion vector"))?,
                offset: count(144, "the place of a deletion vector")?,
                len: count(145, "the length of a deletion vector")?,
            }),
            (2, "parquet") => self.equality.push(EqualityDeleteFile { file, ids: equality_ids(entry)? }),
            (0, _) => {
                let what = format!("the Iceberg table has a data file of format `{format}`; Parquet is read");
                return Err(refused(&what, REWRITE_HINT));
            }
            (1 | 2, _) => {
                let what = format!("the Iceberg table has deletes of format `{format}`; Parquet is read");
                return Err(refused(&what, REWRITE_HINT));
            }
            (other, _) => return Err(Error::damaged(format!("{other} is not a kind of content"))),
        }
        Ok(())
    }

    /// Applies the deletes by position to the data files, and sorts these.
    fn apply_deletes(mut self, locator: &FileLocator) -> Result<(Vec<DataFile>, Vec<EqualityDeleteFile>)> {
        self.data.sort_by(|a, b| (a.sequence, &a.path).cmp(&(b.sequence, &b.path)));
        let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, file) in self.data.iter().enumerate() {
            by_path.entry(&file.path).or_default().push(at);
        }
        let by_path = |path: &str| by_path.get(path).map(Vec::as_slice).unwrap_or_default();
        let mut deleted: HashMap<usize, RoaringTreemap> = HashMap::new();
        let mut vectors: HashMap<&str, &DeletionVector> = HashMap::new();
        for vector in &self.vectors {
            let in_file = |e: Error| e.with("file", &vector.file.path);
            if vectors.insert(&vector.of, vector).is_some() {
                let what = format!("two deletion vectors of one data file, {}", vector.of);
                return Err(in_file(Error::damaged(what)));
            }
            // Manifests may still list the vector of a data file that is gone.
            let of = by_path(&vector.of);
            if !of.is_empty() {
                let positions = vector.read(locator).map_err(in_file)?;
                for at in of {
                    vector.check_applies_to(&self.data[*at]).map_err(in_file)?;
                    deleted.insert(*at, positions.clone());
                }
            }
        }
        for PositionDeleteFile { file, of: only } in &self.positions {
            let in_file = |e: Error| e.with("file", &file.path);
            let bytes = locator.read(&file.path)?;
            for of in catch_panics(|| delete_file::read(bytes)).map_err(in_file)? {
                if only.as_ref().is_some_and(|only| **only != *of.path) {
                    let what =
                        "a file of deleted positions speaks of another data file than its manifest says";
                    return Err(in_file(Error::damaged(what)));
                }
                // A deletion vector includes all earlier deletes by position.
                if vectors.contains_key(&*of.path) {
                    continue;
                }
                for at in by_path(&of.path) {
                    let data = &self.data[*at];
                    if data.sequence > file.sequence {
                        continue;
                    }
                    same_partition(data, file).map_err(in_file)?;
                    deleted.entry(*at).or_default().extend(of.positions.iter().copied());
                }
            }
        }
        for (at, positions) in deleted {
            let file = &mut self.data[at];
            if positions.max().is_some_and(|last| last >= file.rows) {
                let error = Error::damaged("a row is deleted that its data file does not have");
                return Err(error.with("file", &file.path));
            }
            file.deleted = Arc::new(positions);
        }
        Ok((self.data, self.equality))
    }
}

/// Returns the field ids of the columns by which an equality delete file deletes.
fn equality_ids(entry: &Record) -> Result<Vec<i32>> {
    let id = |item: &Datum| if let Datum::Long(id) = item { i32::try_from(*id).ok() } else { None };
    let ids: Option<Vec<i32>> = entry.items(135).iter().map(id).collect();
    ids.filter(|ids| !ids.is_empty())
        .ok_or_else(|| Error::damaged("equality deletes that do not name their columns"))
}

fn same_partition(data: &DataFile, deletes: &DataFile) -> Result<()> {
    if (data.spec, &data.partition) == (deletes.spec, &deletes.partition) {
        Ok(())
    } else {
        let path = &data.path;
        Err(Error::damaged(format!("deletes of rows of {path}, which is in another partition")))
    }
}

impl DeletionVector {
    fn check_applies_to(&self, data: &DataFile) -> Result<()> {
        if data.sequence > self.file.sequence {
            let path = &data.path;
            return Err(Error::damaged(format!(
                "a deletion vector that is older than its data file, {path}"
            )));
        }
        same_partition(data, &self.file)
    }

    fn read(&self, locator: &FileLocator) -> Result<RoaringTreemap> {
        if self.offset.checked_add(self.len).is_none_or(|end| end > self.file.bytes) {
            return Err(Error::damaged("a deletion vector beyond the end of its file"));
        }
        let blob = locator.store.read_range(&locator.find(&self.file.path)?, self.offset, self.len)?;
        if blob.len() as u64 != self.len {
            return Err(Error::damaged("a deletion vector beyond the end of its file"));
        }
        let positions = deletion_vector::positions(&blob)?;
        if positions.len() == self.file.rows {
            Ok(positions)
        } else {
            Err(Error::damaged(format!(
                "a deletion vector of {} rows, and its manifest says {}",
                positions.len(),
                self.file.rows
            )))
        }
    }
}
