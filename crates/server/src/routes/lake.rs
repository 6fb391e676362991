//! Routes of the lake. This file lands a table on request; [`watermarks`] reports progress, and [`contents`] lists a lake's
//! contents.

pub mod contents;
pub mod erase;
pub mod maintain;
pub mod watermarks;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request;
use lake::{Lake, MissingChanges};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use table::materializer::Position;
use types::{Error, Kind, Principal, Scope, name};

use super::json;
use crate::app::Shared;
use crate::failure::Result;
use crate::input;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadlineQuery {
    deadline_ms: Option<u64>,
}

const DEADLINE: Duration = Duration::from_secs(60);
const DEADLINE_MAX: Duration = Duration::from_secs(600);

/// Returns the time limit of a request, by default 60 s and at most 600 s.
fn deadline(asked_ms: Option<u64>) -> Result<Duration> {
    Ok(input::deadline(asked_ms)?.unwrap_or(DEADLINE).min(DEADLINE_MAX))
}

/// Lands the current rows of the table in the lake, and answers once they are there.
pub async fn commit(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: DeadlineQuery = input::query(request.uri())?;
    let deadline = deadline(params.deadline_ms)?;
    let wanted = app.engine.view(&principal)?.table(&table)?;
    let short = name::short_table_name(&wanted.def().name).to_owned();
    check_followed(&app, &wanted)?;
    let id = wanted.def().id;
    // The cause of earlier failures may be gone, so only failures from now on count.
    let failed_before = standing(&app, &wanted).map_or(0, |standing| standing.failures);
    let landing = async {
        let mut lsn = app.lsn.subscribe();
        let mut is_rebuilt = false;
        loop {
            // The receiver is marked before the root is loaded, so that any later change wakes this task.
            lsn.borrow_and_update();
            let root = app.engine.root();
            if root.tables().all(|table| table.def().id != id) {
                return Err(Error::not_found(format!("table `{short}` was dropped")).into());
            }
            if let Some(position) = root.derived(lake::NAME, id).cloned() {
                let (wanted, found) = (wanted.clone(), position.clone());
                let look = move || Ok::<_, Error>((MissingChanges::at(&found, &wanted)?, is_there(&found)?));
                let (lacks, is_there) = app.work.run(look).await??;
                match lacks.any() {
                    false if is_there => return position_json(&position, &principal),
                    // The lake's files were removed from outside. Without new rows nothing else would notice, so the lake is
                    // rebuilt.
                    false if !is_rebuilt => {
                        is_rebuilt = true;
                        app.engine.rebuild(lake::NAME, id);
                    }
                    _ => {}
                }
            }
            app.engine.hurry(lake::NAME, id);
            // A log that takes no more writes takes no checkpoint either.
            if let Some(error) = app.engine.status().write_error {
                return Err(redacted(error, &principal).into());
            }
            if let Some(standing) = standing(&app, &wanted)
                && standing.failures > failed_before + UNDER_WAY
                && let Some(error) = standing.error
            {
                return Err(redacted(error, &principal).into());
            }
            // A failed step publishes nothing, so this also polls.
            let _ = tokio::time::timeout(FAILURE_EVERY, lsn.changed()).await;
        }
    };
    match tokio::time::timeout(deadline, landing).await {
        Ok(landed) => Ok(json(&landed?)),
        Err(_) => {
            let ms = deadline.as_millis();
            Err(Error::new(Kind::Timeout, format!("the table did not land within {ms} ms"))
                .hint("it goes on landing; ask again, or with a larger deadline_ms")
                .into())
        }
    }
}

/// Number of failures that are ignored: a step that was already running may still fail for a cause that is gone.
const UNDER_WAY: u64 = 1;
/// Time between two checks for failures.
const FAILURE_EVERY: Duration = Duration::from_millis(200);

/// Returns true if the files of a published lake exist.
fn is_there(position: &Position) -> types::Result<bool> {
    position.published::<Lake>().map_or(Ok(true), |lake| lake.is_there())
}

/// Returns the error for a table that does not land. Only admins see paths and messages; others see the kind of the error.
fn redacted(error: Error, principal: &Principal) -> Error {
    if principal.require(Scope::Admin).is_ok() {
        return error;
    }
    Error::new(error.kind(), format!("the table cannot land: {}", error.kind().name()))
        .hint("an admin's key and the server's log tell more")
}

fn check_followed(app: &Shared, table: &table::Snapshot) -> types::Result<()> {
    if standing(app, table).is_some() {
        return Ok(());
    }
    Err(Error::invalid(format!("the table `{}` has no lake", name::short_table_name(&table.def().name)))
        .hint("make it with `\"lake\": true`; `lake.enabled` decides for tables that do not say"))
}

fn standing(app: &Shared, table: &table::Snapshot) -> Option<engine::MaterializerProgress> {
    app.engine.materializer_progress(table).into_iter().find(|standing| standing.materializer == lake::NAME)
}

/// Returns the JSON of the lake's position and size. Paths are shown to admins only.
fn position_json(position: &Position, principal: &Principal) -> Result<Json> {
    let lake =
        position.published::<Lake>().ok_or_else(|| Error::internal("the lake published something else"))?;
    let mut shown = json!({
        // A snapshot id may exceed 2^53, so it is written as text.
        "snapshot_id": lake.snapshot_id().map(|id| id.to_string()),
        "row": position.checkpoint.row.0,
        "lsn": position.checkpoint.lsn.0,
        "rows": lake.rows(),
        "files": lake.data.len(),
        "delete_files": lake.deletes.len(),
        "bytes": lake.bytes(),
        "committed_ms": lake.metadata.last_updated_ms,
    });
    if principal.require(Scope::Admin).is_ok() {
        // The path is for other programs on this machine, so it is absolute.
        shown["metadata"] = if lake.store.is_remote() || lake.is_in_catalog() {
            json!(lake.metadata_location())
        } else {
            let path = lake.metadata_path();
            json!(std::path::absolute(&path).unwrap_or(path))
        };
    }
    Ok(shown)
}
