//! Backups: taken by the process that has the directory open, into a folder of its machine.

use std::path::{Path, PathBuf};

use engine::Engine;
use serde_json::{Value, json};
use types::{Error, Result};

use super::job::{self, Lines};

/// `{dest}`, an absolute path; answers with what the backup holds.
pub fn take(engine: &Engine, body: &Value) -> Result<Lines> {
    let dest = PathBuf::from(body["dest"].as_str().unwrap_or_default());
    if !dest.is_absolute() {
        return Err(Error::invalid("`dest` is an absolute path"));
    }
    // The data directory may have been named by another way to it.
    let data = std::fs::canonicalize(engine.dir());
    let data = data.map_err(|e| Error::io(format!("finding {}", engine.dir().display()), e))?;
    if found(&dest).is_some_and(|place| place.starts_with(&data)) {
        return Err(Error::invalid(format!("{} lies in the data directory itself", dest.display()))
            .hint("name a folder elsewhere, best on another disk"));
    }
    let engine = engine.clone();
    job::start("pn-backup", move |teller| {
        let taken = engine.backup(&dest, &mut |progress| {
            teller.progress(|| json!({ "done": progress.done_bytes, "total": progress.total_bytes }))
        })?;
        Ok(json!({
            "lsn": taken.lsn.0,
            "time": super::when(taken.time),
            "tables": taken.tables,
            "rows": taken.rows,
            "files": taken.files,
            "bytes": taken.bytes,
        }))
    })
}

/// The nearest folder on the way to a path that exists, by its own name.
fn found(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|path| std::fs::canonicalize(path).ok())
}
