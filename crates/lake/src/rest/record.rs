//! What this machine keeps of a table in a catalog elsewhere, in the table's own directory: where its files are, for when
//! the table is gone there.

use serde::{Deserialize, Serialize};
use table::materializer::MaterializerDir;
use types::{Error, Kind, Result};

use crate::files;

/// In a table's own directory.
const FILE: &str = "catalog";
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    /// The full name.
    pub table: String,
    /// As Iceberg calls it.
    pub location: String,
    /// `None`: it is to be made, and nothing is there yet.
    pub uuid: Option<String>,
    /// It is being dropped there: if it is gone, that was us.
    #[serde(default)]
    pub is_dropping: bool,
}

impl Record {
    pub fn new(table: &str, location: &str, uuid: Option<&str>) -> Record {
        let (table, location) = (table.to_owned(), location.to_owned());
        Record { version: VERSION, table, location, uuid: uuid.map(str::to_owned), is_dropping: false }
    }

    pub fn read(place: &MaterializerDir) -> Result<Option<Record>> {
        let path = place.dir.join(FILE);
        if !files::exists(&place.env, &path)? {
            return Ok(None);
        }
        let bytes = files::read(&place.env, &path)?;
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| {
            Error::damaged(format!("this says nothing of where a table's lake is: {e}"))
                .with("file", path.display())
                .hint("remove that file; it is written anew, and what a dropped table left in the catalog has to be removed by hand")
        })?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(Error::new(Kind::Newer, format!("format {other} of {}", path.display()))),
        }
    }

    /// Puts it in place of another one, durable.
    pub fn write(&self, place: &MaterializerDir) -> Result<()> {
        let path = place.dir.join(FILE);
        let bytes =
            serde_json::to_vec(self).map_err(|e| Error::internal(format!("writing a record: {e}")))?;
        files::replace(&place.env, &path, &bytes)?;
        files::sync_dir(&place.env, &place.dir)
    }

    /// Lets go of it, and of what a kill left when it was written.
    pub fn remove(place: &MaterializerDir) -> Result<()> {
        files::remove(&place.env, &place.dir.join(format!("{FILE}{}", files::TEMPORARY)))?;
        files::remove(&place.env, &place.dir.join(FILE))
    }
}
