//! `polynya lake`, `polynya lake snapshots` and `polynya lake files`: request the state of the lake and format it as tables.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use types::{Kind, Result};

use crate::client::{HttpClient, escaped};
use crate::commands::tables::number;
use crate::control::timestamp_text;
use crate::output::Table;
use crate::units::{ByteSize, counted, grouped};

/// Requests for the status of a lake that the server is still opening.
const OPEN_TRIES: usize = 50;
/// Pause between two of these requests.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// Requests the status of a table's lake. A server that has just started gets 5 s to open the lake. A damaged lake becomes
/// a status with an `error`.
pub async fn status(client: &mut HttpClient, table: &str) -> Result<Value> {
    let path = format!("/v1/tables/{}/lake", escaped(table));
    for _ in 0..OPEN_TRIES {
        match client.json(Method::GET, &path, None).await {
            Ok(status) if !status["lake"].is_null() || status["error"].is_string() => return Ok(status),
            // The status carries the error, so that the lakes of the other tables are still shown.
            Err(error) if error.kind() == Kind::Damaged => {
                return Ok(json!({ "table": table, "lake": null, "error": error.to_string() }));
            }
            Err(error) if error.kind() != Kind::Busy => return Err(error),
            _ => tokio::time::sleep(OPEN_PAUSE).await,
        }
    }
    client.json(Method::GET, &path, None).await
}

/// Formats the status of all lakes as a table. The last column tells the error of a table that does not land.
pub fn status_table(all: &[Value]) -> String {
    if all.is_empty() {
        return "No table has a lake; tables of a server do unless they say `lake = false`.\n".into();
    }
    let numbers = ["rows", "size", "data files", "deletes", "snapshots", "behind", "lag"];
    let mut out = Table::new([
        "table",
        "rows",
        "size",
        "data files",
        "deletes",
        "snapshots",
        "behind",
        "lag",
        "last commit",
        "newest metadata",
    ])
    .right(|title| numbers.contains(&title))
    .whole(|title| title == "newest metadata");
    for status in all {
        let lake = &status["lake"];
        let place = match status["error"].as_str() {
            Some(error) => format!("does not land: {error}"),
            None => lake["metadata"]
                .as_str()
                .unwrap_or(if lake.is_null() { "nothing yet" } else { "" })
                .to_owned(),
        };
        out.push([
            status["table"].as_str().unwrap_or_default().to_owned(),
            grouped(number(&lake["rows"])),
            ByteSize(number(&lake["bytes"])).to_string(),
            grouped(number(&lake["files"])),
            grouped(number(&lake["delete_files"])),
            grouped(number(&lake["snapshots"])),
            grouped(number(&status["lag"]["rows"])),
            lag(status["lag"]["seconds"].as_f64().unwrap_or(0.0)),
            if lake.is_null() { String::new() } else { time(&lake["committed_ms"]) },
            place,
        ]);
    }
    out.render()
}

/// Formats the lag of a lake. A positive lag never becomes `0 s`, which would mean that nothing is missing.
fn lag(seconds: f64) -> String {
    match seconds {
        ..=0.0 => "0 s".to_owned(),
        ..1.0 => format!("{:.0} ms", (seconds * 1_000.0).max(1.0)),
        _ => format!("{seconds:.1} s"),
    }
}

/// Formats a time in milliseconds since 1970, to the second.
fn time(ms: &Value) -> String {
    let text = timestamp_text(ms.as_i64().unwrap_or(0).saturating_mul(1_000));
    text.split('.').next().unwrap_or_default().trim_end_matches('Z').replace('T', " ")
}

pub async fn snapshots(client: &mut HttpClient, table: &str) -> Result<Value> {
    let path = format!("/v1/tables/{}/lake/snapshots", escaped(table));
    let mut answer: Value = client.json(Method::GET, &path, None).await?;
    if answer["snapshots"].as_array().is_none_or(Vec::is_empty) {
        // The status tells why there is no snapshot.
        let status = status(client, table).await?;
        answer["waiting_rows"] = status["lag"]["rows"].clone();
        answer["error"] = status["error"].clone();
    }
    Ok(answer)
}

pub fn snapshots_table(answer: &Value) -> String {
    let all = answer["snapshots"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        return match (answer["error"].as_str(), number(&answer["waiting_rows"])) {
            (Some(error), _) => format!("The table has no snapshot yet: {error}\n"),
            (None, 0) => "The table has no snapshot yet: it has had no rows.\n".into(),
            (None, rows) => format!(
                "The table has no snapshot yet: {} wait for the first commit. `polynya lake commit` makes it now.\n",
                counted(rows, "row")
            ),
        };
    }
    let numbers = ["snapshot", "rows", "added", "data files", "deletes", "size", "row", "lsn"];
    let mut out = Table::new([
        "snapshot",
        "committed",
        "operation",
        "rows",
        "added",
        "data files",
        "deletes",
        "size",
        "row",
        "lsn",
        "",
    ])
    .right(|title| numbers.contains(&title));
    for snapshot in all {
        let counted = |name: &str| snapshot[name].as_u64().map(grouped).unwrap_or_default();
        out.push([
            snapshot["snapshot_id"].as_str().unwrap_or_default().to_owned(),
            time(&snapshot["committed_ms"]),
            snapshot["operation"].as_str().unwrap_or_default().to_owned(),
            counted("rows"),
            counted("added_rows"),
            counted("data_files"),
            counted("delete_files"),
            ByteSize(number(&snapshot["bytes"])).to_string(),
            counted("row"),
            counted("lsn"),
            if snapshot["current"] == true { "current" } else { "" }.to_owned(),
        ]);
    }
    out.render()
}

/// Requests all files of a table's current snapshot, in pages. If the snapshot changes meanwhile, the list starts over, so
/// that all files are of one snapshot.
pub async fn files(client: &mut HttpClient, table: &str) -> Result<Value> {
    const PAGE: usize = 10_000;
    let mut all: Vec<Value> = Vec::new();
    let mut snapshot = Value::Null;
    loop {
        let from = all.len();
        let path = format!("/v1/tables/{}/lake/files?from={from}&limit={PAGE}", escaped(table));
        let mut answer = client.json(Method::GET, &path, None).await?;
        if from > 0 && answer["snapshot_id"] != snapshot {
            all.clear();
            continue;
        }
        snapshot = answer["snapshot_id"].take();
        all.extend(answer["files"].as_array().cloned().unwrap_or_default());
        if answer["next"].is_null() {
            return Ok(json!({ "table": answer["table"], "snapshot_id": snapshot, "files": all }));
        }
    }
}

pub fn files_table(answer: &Value) -> String {
    let all = answer["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        return "The table has no file yet: it has no rows.\n".into();
    }
    let numbers = ["rows", "deleted", "size", "spec", "sequence"];
    let mut out = Table::new(["content", "partition", "rows", "deleted", "size", "spec", "sequence", "path"])
        .right(|title| numbers.contains(&title))
        .whole(|title| title == "path");
    for file in all {
        let values = file["partition"].as_object().into_iter().flatten();
        let partition: Vec<String> =
            values.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("null"))).collect();
        out.push([
            file["content"].as_str().unwrap_or_default().to_owned(),
            partition.join(", "),
            grouped(number(&file["rows"])),
            file["deleted_rows"].as_u64().map(grouped).unwrap_or_default(),
            ByteSize(number(&file["bytes"])).to_string(),
            number(&file["spec"]).to_string(),
            number(&file["sequence"]).to_string(),
            file["path"].as_str().unwrap_or_default().to_owned(),
        ]);
    }
    out.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command printed "it has had no rows" while 20,001 rows waited for the first commit.
    #[test]
    fn a_table_without_a_snapshot_says_what_it_waits_for() {
        let shown = |waiting: u64, error: Value| {
            snapshots_table(&json!({ "snapshots": [], "waiting_rows": waiting, "error": error }))
        };
        assert!(shown(0, Value::Null).contains("it has had no rows"));
        assert!(shown(20_001, Value::Null).contains("20,001 rows wait for the first commit"));
        assert!(shown(3, "the disk is full".into()).contains("no snapshot yet: the disk is full"));
    }
}
