//! Requests for a backup, which the process that has the directory open takes into a folder of its machine or an object
//! store.

use std::path::{Path, PathBuf};

use engine::Engine;
use engine::backup::{Backup, Progress};
use lake::objects::Options;
use serde_json::{Value, json};
use types::{Error, Result};

use super::job::{self, JobLines, ProgressSender};
use crate::remote::Remote;

/// Takes a backup into `{dest}`, an absolute path, or into the object store of `{uri, endpoint, region, access_key,
/// secret_key, session_token}`. Answers with the backup's lsn, time and sizes. Fails with `invalid` if the folder lies in
/// the data directory.
pub fn take(engine: &Engine, body: &Value) -> Result<JobLines> {
    if let Some(uri) = body["uri"].as_str() {
        return send(engine, uri, body);
    }
    let dest = PathBuf::from(body["dest"].as_str().unwrap_or_default());
    if !dest.is_absolute() {
        return Err(Error::invalid("`dest` is an absolute path"));
    }
    // Both paths are compared without symbolic links, through which the data directory may have been named.
    let data = std::fs::canonicalize(engine.dir());
    let data = data.map_err(|e| Error::io(format!("finding {}", engine.dir().display()), e))?;
    if existing_ancestor(&dest).is_some_and(|place| place.starts_with(&data)) {
        return Err(Error::invalid(format!("{} lies in the data directory itself", dest.display()))
            .hint("name a folder elsewhere, best on another disk"));
    }
    let engine = engine.clone();
    job::start("pn-backup", move |sender| {
        let taken = engine.backup(&dest, &mut |progress| report_progress(sender, progress))?;
        Ok(backup_json(&taken))
    })
}

/// Sends a backup to an object store, with the credentials of the request, or the server's own if it has none.
fn send(engine: &Engine, uri: &str, body: &Value) -> Result<JobLines> {
    let given = |name: &str| body[name].as_str().map(str::to_owned);
    let options = Options {
        endpoint: given("endpoint"),
        region: given("region"),
        access_key: given("access_key"),
        secret_key: given("secret_key"),
        session_token: given("session_token"),
        ..Options::default()
    };
    let owner = lake::database_id(engine.env(), engine.dir())?;
    let remote = Remote::connect(uri, options, &owner)?;
    let engine = engine.clone();
    job::start("pn-backup", move |sender| {
        let sent = engine.send_backup(&remote, &mut |progress| report_progress(sender, progress))?;
        let mut shown = backup_json(&sent.backup);
        shown["found_files"] = sent.found_files.into();
        shown["found_bytes"] = sent.found_bytes.into();
        Ok(shown)
    })
}

fn report_progress(sender: &mut ProgressSender, progress: Progress) -> Result<()> {
    sender.progress(|| json!({ "done": progress.done_bytes, "total": progress.total_bytes }))
}

fn backup_json(taken: &Backup) -> Value {
    json!({
        "lsn": taken.lsn.0,
        "time": super::timestamp_text(taken.time),
        "tables": taken.tables,
        "rows": taken.rows,
        "files": taken.files,
        "bytes": taken.bytes,
        "lacks": taken.lacks,
    })
}

/// Returns the canonical path of the nearest existing ancestor of `path`, or of `path` itself.
fn existing_ancestor(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|path| std::fs::canonicalize(path).ok())
}
