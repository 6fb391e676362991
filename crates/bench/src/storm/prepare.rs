//! Prepares the quiet minute: settings, notes, tables, and a wait until the server is idle.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use types::{Error, Result};

use super::background::{self, await_note, missing};
use super::corpus;
use super::options::Size;
use super::state::StormState;
use super::{ARCHIVE, ARTICLES, EVENTS, READINGS, check_stop};
use crate::child::Home;
use crate::http::{HttpClient, excerpt};
use crate::wire;

/// Rows of one request.
const BATCH: u64 = 500;
/// Default time that rows wait for a lake commit.
const LAKE_WAIT: Duration = Duration::from_secs(10);
/// Time within which the server must catch up.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Time without a seal or merge after which the server counts as idle.
const IDLE_AFTER: Duration = Duration::from_millis(1_500);

/// Configures the server with defaults and the few settings that a storm needs, ignoring any settings file in the current
/// directory. Returns the folder of the notes.
pub(super) fn configure(home: &mut Home, storm: Duration) -> Result<PathBuf> {
    // The server starts in our working directory and would resolve relative paths against it.
    let directory = std::path::absolute(home.directory())
        .map_err(|error| Error::io("finding the storm's directory", error))?;
    let folder = directory.join("notes");
    fs::create_dir(&folder).map_err(|error| Error::io("making the folder of the notes", error))?;
    let file = settings_file(&directory);
    fs::write(&file, "").map_err(|error| Error::io("writing the storm's settings", error))?;
    let text = |path: &Path| {
        // The vault is a list of folders, separated by commas.
        let text = path.to_str().filter(|text| !text.contains(',')).map(str::to_owned);
        text.ok_or_else(|| {
            Error::invalid(format!("the path {} is not UTF-8, or has a comma", path.display()))
                .hint("name another directory with --root")
        })
    };
    home.env("POLYNYA_CONFIG", &text(&file)?);
    // An empty address before the `=` puts the folder at the root of the site. It is explicit, since a path may contain a `=`.
    home.env("POLYNYA_SITE_VAULT", &format!("={}", text(&folder)?));
    home.env("POLYNYA_SITE_PUBLISH", "**");
    home.env("POLYNYA_LOG_LEVEL", "warn");
    // A storm shorter than the usual wait must also commit to the lake.
    let wait = (storm / 3).clamp(Duration::from_millis(500), LAKE_WAIT);
    home.env("POLYNYA_LAKE_COMMIT_WAIT", &format!("{} ms", wait.as_millis()));
    Ok(folder)
}

pub(super) fn settings_file(directory: &Path) -> PathBuf {
    directory.join("polynya.toml")
}

/// Writes every note at revision 0.
pub(super) fn write_notes(state: &StormState, folder: &Path) -> Result<()> {
    (0..state.ledger.notes.len() as u64)
        .try_for_each(|number| background::write_note(folder, state, number, 0))
}

/// Creates the tables and fills all of them but the events.
pub(super) fn create_tables(
    client: &mut HttpClient,
    state: &StormState,
    size: &Size,
    stop: &AtomicBool,
) -> Result<()> {
    let int = |name: &str| json!({ "name": name, "type": "int64", "nullable": false });
    let text = |name: &str| json!({ "name": name, "type": "string" });
    let document = [int("id"), text("title"), text("body")];
    let define = [
        (EVENTS, json!({ "columns": [int("batch"), int("slot"), int("value"), text("payload")] })),
        (
            READINGS,
            json!({ "columns": [int("id"), int("version"), text("place"), text("note")], "primary_key": ["id"] }),
        ),
        (
            ARTICLES,
            json!({ "columns": document, "primary_key": ["id"],
                    "indexes": [{ "kind": "text", "columns": ["title", "body"] }] }),
        ),
        (ARCHIVE, json!({ "columns": document })),
    ];
    for (table, definition) in define {
        wire::recreate(client, table, &definition)?;
    }
    load(client, READINGS, size.readings, stop, |id| corpus::reading(id, 0))?;
    state.ledger.articles.send(size.articles);
    load(client, ARTICLES, size.articles, stop, |id| corpus::document(&state.words, state.seed, id))?;
    state.ledger.articles.acknowledge(size.articles);
    load(client, ARCHIVE, size.archive, stop, |id| corpus::document(&state.words, state.seed ^ 1, id))
}

fn load(
    client: &mut HttpClient,
    table: &str,
    rows: u64,
    stop: &AtomicBool,
    row: impl Fn(u64) -> Value,
) -> Result<()> {
    let path = super::writers::rows_of(table);
    for first in (0..rows).step_by(BATCH as usize) {
        let last = (first + BATCH).min(rows);
        let body = Value::from((first..last).map(&row).collect::<Vec<_>>()).to_string();
        loop {
            check_stop(stop)?;
            let answer = client.request("POST", &path, "application/json", body.as_bytes())?;
            if answer.is_success() && wire::count_in(&answer.body) == Some(last - first) {
                break;
            }
            // The server refuses rows while the index lags; the client waits and retries.
            if answer.status != 429 {
                let found = excerpt(&answer.body);
                return Err(Error::invalid(format!(
                    "filling {table} was answered {}: {found}",
                    answer.status
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Waits until everything is in the indexes, on the pages and in the lake, and no seal or merge runs.
pub(super) fn settle(client: &mut HttpClient, state: &StormState, stop: &AtomicBool) -> Result<()> {
    let since = Instant::now();
    let late = |what: &str| {
        if since.elapsed() < SETTLE_MAX {
            return check_stop(stop);
        }
        Err(Error::invalid(format!("{what} was not through after {SETTLE_MAX:?}")))
    };
    while missing(client, ARTICLES, "text")?.is_none_or(|missing| missing > 0) {
        late("the text index of the articles")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    for number in 0..state.ledger.notes.len() as u64 {
        await_note(client, number, 0, stop)?;
    }
    for table in [EVENTS, READINGS, ARTICLES, ARCHIVE] {
        check_stop(stop)?;
        client.json("POST", &format!("/v1/tables/{table}/commit?deadline_ms=120000"), None)?;
    }
    let mut counts = background::seal_and_merge_counts(client)?;
    let mut still_since = Instant::now();
    while still_since.elapsed() < IDLE_AFTER {
        std::thread::sleep(Duration::from_millis(100));
        let now = background::seal_and_merge_counts(client)?;
        if now != counts {
            (counts, still_since) = (now, Instant::now());
        }
        late("sealing and merging")?;
    }
    Ok(())
}
