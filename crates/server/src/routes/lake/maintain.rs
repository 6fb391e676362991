//! Maintenance of the lake: on request, and by a periodic check for due work.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request;
use lake::{Extent, MaintenanceReport};
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use types::{Error, Kind, Principal, name};

use super::{DeadlineQuery, check_followed, deadline, redacted};
use crate::app::Shared;
use crate::failure::Result;
use crate::input;
use crate::routes::json;

/// Makes the lake of a table as small as possible without losing a kept snapshot. Answers with what was done.
pub async fn maintain(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: DeadlineQuery = input::query(request.uri())?;
    let deadline = deadline(params.deadline_ms)?;
    let found = app.engine.view(&principal)?.table(&table)?;
    check_followed(&app, &found)?;
    let Some(materializer) = app.options.lake.clone() else {
        return Err(Error::invalid("this server keeps no lake").into());
    };
    if let Some(error) = app.engine.status().write_error {
        return Err(redacted(error, &principal).into());
    }
    let (sender, receiver) = oneshot::channel();
    let id = found.def().id;
    // The send fails if the client has left.
    materializer.maintain(id, Box::new(move |outcome| drop(sender.send(outcome))));
    app.engine.hurry(lake::NAME, id);
    let short = name::short_table_name(&found.def().name).to_owned();
    drop(found);
    match tokio::time::timeout(deadline, receiver).await {
        Ok(Ok(Ok(done))) => {
            let mut answer = report(&done);
            answer["table"] = json!(short);
            Ok(json(&answer))
        }
        Ok(Ok(Err(error))) => Err(redacted(error, &principal).into()),
        Ok(Err(_)) => Err(Error::new(Kind::Closed, "the server stops").into()),
        Err(_) => {
            let ms = deadline.as_millis();
            Err(Error::new(Kind::Timeout, format!("the maintenance did not end within {ms} ms"))
                .hint("it goes on; ask again, or with a larger deadline_ms")
                .into())
        }
    }
}

fn report(done: &MaintenanceReport) -> Json {
    json!({
        "before": extent(&done.before),
        "after": extent(&done.after),
        "commits": done.commits,
        "files_rewritten": done.files_rewritten,
        "snapshots_expired": done.snapshots_expired,
        "files_removed": done.files_removed,
        "bytes_removed": done.bytes_removed,
        "orphans_removed": done.orphans_removed,
        "orphans_left": done.orphans_left,
    })
}

fn extent(extent: &Extent) -> Json {
    json!({
        "data_files": extent.data_files,
        "delete_files": extent.delete_files,
        "deleted_rows": extent.deleted_rows,
        "manifests": extent.manifests,
        "snapshots": extent.snapshots,
        "metadata_files": extent.metadata_files,
        "bytes": extent.bytes,
    })
}

/// Time between two checks for tables whose lake needs maintenance although no rows are missing in it. A check costs a few
/// comparisons for each table, and no I/O.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the periodic check until the server stops.
pub async fn run(app: Shared) {
    let Some(materializer) = app.options.lake.clone() else { return };
    let mut stopping = app.stopping.subscribe();
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            _ = stopping.changed() => return,
        }
        check_tables(&app, &materializer);
    }
}

fn check_tables(app: &Shared, materializer: &lake::Materializer) {
    let root = app.engine.root();
    for table in root.tables() {
        let id = table.def().id;
        let Some(position) = root.derived(lake::NAME, id) else { continue };
        if materializer.request_due_maintenance(app.engine.env(), id, position) {
            app.engine.hurry(lake::NAME, id);
        }
    }
}
