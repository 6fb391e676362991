//! This machine's record of a table in an external catalog. It is kept in the table's own directory and tells where the files
//! are, even after the table is gone from the catalog.

use serde::{Deserialize, Serialize};
use table::materializer::MaterializerDir;
use types::{Error, Kind, Result};

use crate::files;

/// The record's file name, in the table's own directory.
const FILE: &str = "catalog";
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogRecord {
    pub version: u32,
    /// The table's full name.
    pub table: String,
    /// The location in Iceberg's form.
    pub location: String,
    /// The table's UUID; `None` before it was created, while no file exists.
    pub uuid: Option<String>,
    /// True while the table is being dropped in the catalog: if it is gone afterwards, we dropped it.
    #[serde(default)]
    pub is_dropping: bool,
}

impl CatalogRecord {
    pub fn new(table: &str, location: &str, uuid: Option<&str>) -> CatalogRecord {
        let (table, location) = (table.to_owned(), location.to_owned());
        CatalogRecord { version: VERSION, table, location, uuid: uuid.map(str::to_owned), is_dropping: false }
    }

    pub fn read(place: &MaterializerDir) -> Result<Option<CatalogRecord>> {
        let path = place.dir.join(FILE);
        if !files::exists(&place.env, &path)? {
            return Ok(None);
        }
        let bytes = files::read(&place.env, &path)?;
        let record: CatalogRecord = serde_json::from_slice(&bytes).map_err(|e| {
            Error::damaged(format!("this file does not tell where a table's lake is: {e}"))
                .with("file", path.display())
                .hint("remove that file; it is written again, and what a dropped table left in the catalog has to be removed by hand")
        })?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(Error::new(Kind::Newer, format!("format {other} of {}", path.display()))),
        }
    }

    /// Writes the record durably, over an earlier one.
    pub fn write(&self, place: &MaterializerDir) -> Result<()> {
        let path = place.dir.join(FILE);
        let bytes =
            serde_json::to_vec(self).map_err(|e| Error::internal(format!("writing a record: {e}")))?;
        files::replace(&place.env, &path, &bytes)?;
        files::sync_dir(&place.env, &place.dir)
    }

    /// Removes the record, and the temporary file of an interrupted write.
    pub fn remove(place: &MaterializerDir) -> Result<()> {
        files::remove(&place.env, &place.dir.join(format!("{FILE}{}", files::TEMPORARY)))?;
        files::remove(&place.env, &place.dir.join(FILE))
    }
}
