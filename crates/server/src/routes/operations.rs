//! Routes for operators: health, readiness, metrics, and the description of the routes.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use engine::MaterializerPhase;
use http::{StatusCode, header};
use serde_json::{Value as Json, json};
use types::{Principal, TableSet};

use super::json;
use crate::app::Shared;
use crate::auth;
use crate::connection::Connection;
use crate::failure::Result;
use crate::metrics as figures;

/// Answers that the process is alive. It says nothing about the components.
pub async fn health() -> Response {
    json(&json!({ "status": "ok" }))
}

/// Answers 200 if every essential component can do its work, else 503. The body reports all components.
///
/// No key is required. Paths are shown only to admins, and to this machine while there are no keys.
pub async fn ready(State(app): State<Shared>, request: http::request::Parts) -> Response {
    let status = app.engine.status();
    let part = |ok: bool, detail: Json| json!({ "ok": ok, "detail": detail });
    let log_ok = status.write_error.is_none();
    let log = match &status.write_error {
        // The path and the message are for logs and admins. Everybody else sees the kind of the error.
        Some(error) => json!(error.kind().name()),
        None => json!({ "durable_lsn": status.log.durable_lsn.0 }),
    };
    let engine_ok = !status.closing && status.debt_bytes < status.debt_hard_bytes;
    let engine = json!({ "closing": status.closing, "debt_bytes": status.debt_bytes, "debt_hard_bytes": status.debt_hard_bytes });
    let snapshots = json!({
        "held": status.roots_retired,
        "oldest_seconds": status.oldest_root_age.as_secs_f64(),
        "held_bytes": status.held_bytes,
    });
    let damaged = app.engine.root().damaged_segments();
    let free = app.engine.env().disk.free_bytes(app.engine.dir()).ok();
    let disk_ok = free.is_some_and(|free| free >= DISK_FREE_MIN);
    let sql = app.sql.status();
    let stopping = *app.stopping.borrow();
    let ready = log_ok && engine_ok && disk_ok && !stopping;
    let mut body = json!({
        "ready": ready,
        "parts": {
            "log": part(log_ok, log),
            "engine": part(engine_ok, engine),
            "disk": part(disk_ok, json!({ "free_bytes": free })),
            "derived": derived(&app),
            // Damaged segments do not make the server unready: all other rows are served.
            "tables": part(damaged == 0, json!({ "damaged_segments": damaged })),
            // Old snapshots cost disk space, but do not make the server unready.
            "snapshots": part(true, snapshots),
            "sql": part(true, json!({ "running": sql.running, "waiting": sql.waiting, "oldest_seconds": sql.oldest.as_secs_f64() })),
            "server": part(!stopping, json!({ "stopping": stopping })),
        },
    });
    if let Some(archive) = &status.archive {
        // An archive that cannot be written to stops nothing.
        let mut detail = json!({
            "lsn": archive.lsn.0,
            "files_waiting": archive.files_waiting,
            "gaps": archive.gaps,
            "error": archive.error.as_ref().map(|error| error.kind().name()),
        });
        if is_admin(&app, &request) {
            detail["path"] = json!(archive.dir.display().to_string());
            detail["reason"] = json!(archive.error.as_ref().map(ToString::to_string));
        }
        body["parts"]["archive"] = part(archive.error.is_none(), detail);
    }
    for other in &app.options.components {
        let report = other.report();
        body["parts"][other.name()] = part(report.ok, report.detail);
    }
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, json(&body)).into_response()
}

/// Returns true if a request that requires no key comes from an admin.
fn is_admin(app: &Shared, request: &http::request::Parts) -> bool {
    let Some(connection) = request.extensions.get::<Arc<Connection>>() else { return false };
    let root = app.engine.root();
    auth::principal(root.keys(), app.options.owner_hash, connection.peer, request)
        .is_ok_and(|admitted| admitted.principal.require_unlimited().is_ok())
}

/// Summarises the materializers of all tables. Table names are left out, because only principals that may see the tables may know
/// them. A materializer that lags or fails does not make the server unready: readers scan the missing rows themselves.
fn derived(app: &Shared) -> Json {
    let (mut building, mut failing, mut missing) = (0, 0, 0);
    for table in app.engine.root().tables() {
        for standing in app.engine.materializer_progress(table) {
            building += u64::from(standing.state == MaterializerPhase::Building);
            failing += u64::from(standing.error.is_some());
            missing = standing.missing.max(missing);
        }
    }
    let detail = json!({ "building": building, "failing": failing, "missing_rows_max": missing });
    json!({ "ok": failing == 0, "detail": detail })
}

/// Free bytes of the disk below which the server is not ready, because the next log file may not fit.
const DISK_FREE_MIN: u64 = 128 << 20;

pub async fn metrics(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
) -> Result<Response> {
    let view = app.engine.view(&principal)?;
    let admin = principal.require_unlimited().is_ok();
    let engine = principal.tables == TableSet::All;
    let rows = engine && view.searchables().iter().all(|table| view.row_filter(table).is_none());
    let text = figures::text(&app, &view.tables(), figures::Visibility { admin, engine, rows });
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

pub const OPENAPI: &str = include_str!("openapi.json");

pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
