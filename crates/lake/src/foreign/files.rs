//! Which files a snapshot has, and which rows of them are deleted.

use std::collections::HashMap;
use std::sync::Arc;

use types::{Error, Kind, Result};

use super::{DataFile, Place};
use crate::avro::{self, Record};
use crate::delete_file;
use crate::manifest;
use crate::spec::{self, Specs};

/// What cannot be read, and what to do about it.
fn refused(what: &str, hint: &str) -> Error {
    Error::new(Kind::Invalid, what).hint(hint)
}

const REWRITE: &str = "let the program that writes the table rewrite its data files (Spark: `CALL … \
                       rewrite_data_files(table => …, options => map('delete-file-threshold', '1'))`), and import it then";

/// The data files of a snapshot, in the order of their rows.
pub(super) fn read(place: &Place, list: &str, specs: &Specs) -> Result<Vec<DataFile>> {
    let manifests = manifest::read_list(&place.read(list)?).map_err(|e| e.with("file", list))?;
    let mut data = Vec::new();
    let mut deleted: HashMap<String, Vec<u64>> = HashMap::new();
    for of in &manifests {
        let (_, records) = avro::read(&place.read(&of.path)?).map_err(|e| e.with("file", &of.path))?;
        for record in &records {
            entry(place, record, of, specs, &mut data, &mut deleted).map_err(|e| e.with("file", &of.path))?;
        }
    }
    for file in &mut data {
        let Some(mut positions) = deleted.remove(&file.path) else { continue };
        positions.sort_unstable();
        positions.dedup();
        if positions.last().is_some_and(|last| *last >= file.rows) {
            return Err(
                Error::damaged("a row is deleted that its data file does not have").with("file", &file.path)
            );
        }
        file.deleted = Arc::new(positions);
    }
    data.sort_by(|a, b| (a.sequence, &a.path).cmp(&(b.sequence, &b.path)));
    Ok(data)
}

fn entry(
    place: &Place,
    record: &Record,
    of: &manifest::ManifestFile,
    specs: &Specs,
    data: &mut Vec<DataFile>,
    deleted: &mut HashMap<String, Vec<u64>>,
) -> Result<()> {
    const DELETED: i64 = 2;
    let missing = |what: &str| Error::damaged(format!("a manifest entry without {what}"));
    if record.long(0).ok_or_else(|| missing("a status"))? == DELETED {
        return Ok(());
    }
    let file = record.record(2).ok_or_else(|| missing("a file"))?;
    let path = file.text(100).ok_or_else(|| missing("a path"))?.to_owned();
    let format = file.text(101).unwrap_or_default();
    if file.get(131).is_some() {
        return Err(refused("the Iceberg table's files are encrypted", "decrypt them first"));
    }
    let count = |id, what| file.long(id).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| missing(what));
    match file.long(134).unwrap_or(0) {
        0 if format.eq_ignore_ascii_case("parquet") => data.push(DataFile {
            spec: of.spec,
            partition: spec::find(specs, of.spec)?.partition(file.record(102)),
            sequence: record.long(3).unwrap_or(of.sequence),
            rows: count(103, "a count of rows")?,
            bytes: count(104, "a size")?,
            deleted: Arc::default(),
            path,
        }),
        0 => {
            let what = format!("the Iceberg table has a data file of format `{format}`; Parquet is read");
            return Err(refused(&what, REWRITE));
        }
        1 if format.eq_ignore_ascii_case("parquet") => {
            for of in delete_file::read(place.read(&path)?).map_err(|e| e.with("file", &path))? {
                deleted.entry(of.path.to_string()).or_default().extend(of.positions);
            }
        }
        1 => {
            let what = format!("the Iceberg table has deletes of format `{format}` (deletion vectors, say)");
            return Err(refused(&what, REWRITE));
        }
        2 => {
            let what = "the Iceberg table has equality deletes, which say by values which rows are gone";
            return Err(refused(what, REWRITE));
        }
        other => return Err(Error::damaged(format!("{other} is no kind of content"))),
    }
    Ok(())
}
