//! `polynya lake erase` and `polynya lake maintain`: run the work on the server and report its result.

use std::time::Duration;

use http::Method;
use indicatif::ProgressBar;
use serde_json::Value;
use types::{Error, Kind, Result};

use crate::client::{HttpClient, escaped};
use crate::commands::tables::number;
use crate::output;
use crate::units::{ByteSize, counted, grouped};

/// Milliseconds that one request waits for the erasure. Then its progress is shown and the request is repeated.
const LOOK_MS: u64 = 1_000;

/// Erases the rows that were deleted from a table up to now, and waits without a time limit while the server works on it.
pub async fn erase(client: &mut HttpClient, table: &str) -> Result<Value> {
    let bar = spinner(format!("erasing the deleted rows of {table}"));
    let marks = client.json(Method::GET, &format!("/v1/tables/{}/watermarks", escaped(table)), None).await?;
    let lsn = number(&marks["acknowledged"]["lsn"]);
    let path = format!("/v1/tables/{}/erase?lsn={lsn}&deadline_ms={LOOK_MS}", escaped(table));
    let outcome = ask(client, &path, &bar).await;
    bar.finish_and_clear();
    outcome
}

/// Runs a table's maintenance, and returns the server's report.
pub async fn maintain(client: &mut HttpClient, table: &str) -> Result<Value> {
    let bar = spinner(format!("maintaining {table}"));
    let path = format!("/v1/tables/{}/maintain?deadline_ms=600000", escaped(table));
    let outcome = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(interrupted()),
        outcome = client.json(Method::POST, &path, None) => outcome,
    };
    bar.finish_and_clear();
    outcome
}

fn spinner(message: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.set_message(message);
    bar
}

fn interrupted() -> Error {
    Error::new(Kind::Timeout, "interrupted")
        .hint("a running server continues; the same command shows the result")
}

async fn ask(client: &mut HttpClient, path: &str, bar: &ProgressBar) -> Result<Value> {
    loop {
        let answer = tokio::select! {
            // `biased` polls the signal first, so that Ctrl-C is heard before the request is sent.
            biased;
            _ = tokio::signal::ctrl_c() => return Err(interrupted()),
            answer = client.json(Method::POST, path, None) => answer,
        };
        match answer {
            // The request's time is over and the server still works: ask again.
            Err(error) if error.kind() == Kind::Busy && error.message().contains("is not erased after") => {
                bar.set_message(error.hint_text().unwrap_or_default().to_owned());
            }
            answer => return answer,
        }
    }
}

/// Formats the report of an erasure for a terminal.
pub fn erasure_report(report: &Value) -> String {
    let table = report["table"].as_str().unwrap_or_default();
    let mut text = format!("{table}: erased the rows deleted up to lsn {}\n", number(&report["lsn"]));
    let lake = &report["lake"];
    if !lake.is_null() {
        text += &format!(
            "  lake: {} in {} rewritten, {} dropped, {} ({}) removed\n",
            counted(number(&lake["rows"]), "row"),
            counted(number(&lake["files_rewritten"]), "file"),
            counted(number(&lake["snapshots_dropped"]), "snapshot"),
            counted(number(&lake["files_removed"]), "file"),
            ByteSize(number(&lake["bytes_removed"])),
        );
        if number(&lake["foreign_files"]) > 0 {
            text += &format!(
                "  lake: {} of other programs that no snapshot names were kept: the table has all their rows\n",
                counted(number(&lake["foreign_files"]), "file")
            );
        }
    }
    let local = &report["local"];
    text += &format!(
        "  here: {} rewritten, {} of history dropped, {} ({}) removed; AS OF reaches back to lsn {}\n",
        counted(number(&local["segments_rewritten"]), "segment"),
        counted(number(&local["history_segments"]), "segment"),
        counted(number(&local["segments_removed"]), "segment"),
        ByteSize(number(&local["bytes_removed"])),
        number(&local["past_from_lsn"]),
    );
    if number(&local["segments_damaged"]) > 0 {
        text += &format!(
            "  here: {} cannot be read and were left unchanged; `polynya doctor` names them\n",
            counted(number(&local["segments_damaged"]), "segment")
        );
    }
    if local["old_lake_removed"] == true {
        text += "  here: the Iceberg table from before the lake was moved is removed\n";
    }
    let elsewhere = report["elsewhere"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !elsewhere.is_empty() {
        text += "  copies may remain in, until\n";
    }
    for of in elsewhere {
        let word = |name: &str| of[name].as_str().unwrap_or_default();
        let place = of["path"].as_str().map(|path| format!(" ({path})")).unwrap_or_default();
        text += &format!("    {}{place}: {}\n", word("what"), word("until"));
    }
    output::visible(&text).into_owned()
}

/// Formats the report of a maintenance for a terminal.
pub fn maintenance_report(report: &Value) -> String {
    let table = report["table"].as_str().unwrap_or_default();
    let change = |name: &str| {
        let (before, after) = (number(&report["before"][name]), number(&report["after"][name]));
        if before == after { grouped(after) } else { format!("{} → {}", grouped(before), grouped(after)) }
    };
    let mut text = format!(
        "{table}: data files {}, delete files {}, manifests {}, snapshots {}\n",
        change("data_files"),
        change("delete_files"),
        change("manifests"),
        change("snapshots"),
    );
    text += &format!(
        "  {} rewritten in {}, {} expired, {} ({}) removed, {} of them orphans\n",
        counted(number(&report["files_rewritten"]), "file"),
        counted(number(&report["commits"]), "commit"),
        counted(number(&report["snapshots_expired"]), "snapshot"),
        counted(number(&report["files_removed"]), "file"),
        ByteSize(number(&report["bytes_removed"])),
        grouped(number(&report["orphans_removed"])),
    );
    if number(&report["orphans_left"]) > 0 {
        text += &format!(
            "  {} of other programs that no snapshot names are kept for now: they may be committed soon\n",
            counted(number(&report["orphans_left"]), "file")
        );
    }
    output::visible(&text).into_owned()
}
