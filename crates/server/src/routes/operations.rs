//! For whoever runs the server: health, readiness, metrics, the description of the routes.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use engine::State as Standing;
use http::{StatusCode, header};
use serde_json::{Value as Json, json};
use types::{Principal, TableSet};

use super::json;
use crate::app::Shared;
use crate::auth;
use crate::connection::Connection;
use crate::failure::Result;
use crate::metrics as figures;

/// The process answers. Says nothing about its parts.
pub async fn health() -> Response {
    json(&json!({ "status": "ok" }))
}

/// Whether every part can do its work: 200 if all can, else 503 and which cannot.
///
/// Needs no key; paths are told to admins, and on this machine while there are no keys.
pub async fn ready(State(app): State<Shared>, request: http::request::Parts) -> Response {
    let status = app.engine.status();
    let part = |ok: bool, detail: Json| json!({ "ok": ok, "detail": detail });
    let log_ok = status.write_error.is_none();
    let log = match &status.write_error {
        // The path and the place are for logs and admins; here the kind will do.
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
            // The rest of them is served.
            "tables": part(damaged == 0, json!({ "damaged_segments": damaged })),
            // Old ones cost room, and are no reason not to be ready.
            "snapshots": part(true, snapshots),
            "sql": part(true, json!({ "running": sql.running, "waiting": sql.waiting, "oldest_seconds": sql.oldest.as_secs_f64() })),
            "server": part(!stopping, json!({ "stopping": stopping })),
        },
    });
    if let Some(archive) = &status.archive {
        // One that is away stops nothing.
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
    for other in &app.options.parts {
        let report = other.report();
        body["parts"][other.name()] = part(report.ok, report.detail);
    }
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, json(&body)).into_response()
}

/// Whether a request that needs no key comes from an admin all the same.
fn is_admin(app: &Shared, request: &http::request::Parts) -> bool {
    let Some(connection) = request.extensions.get::<Arc<Connection>>() else { return false };
    let root = app.engine.root();
    auth::principal(root.keys(), app.options.owner_hash, connection.peer, request)
        .is_ok_and(|admitted| admitted.principal.require_unlimited().is_ok())
}

/// What derives from tables, in all: names are for those who may see the tables. Never a reason not to be ready: readers take
/// in what is missing themselves.
fn derived(app: &Shared) -> Json {
    let (mut building, mut failing, mut missing) = (0, 0, 0);
    for table in app.engine.root().tables() {
        for standing in app.engine.standing(table) {
            building += u64::from(standing.state == Standing::Building);
            failing += u64::from(standing.error.is_some());
            missing = standing.missing.max(missing);
        }
    }
    let detail = json!({ "building": building, "failing": failing, "missing_rows_max": missing });
    json!({ "ok": failing == 0, "detail": detail })
}

/// Below this the next log file may find no room.
const DISK_FREE_MIN: u64 = 128 << 20;

pub async fn metrics(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
) -> Result<Response> {
    let view = app.engine.view(&principal)?;
    let admin = principal.require_unlimited().is_ok();
    let engine = principal.tables == TableSet::All;
    let rows = engine && view.searchables().iter().all(|table| view.row_filter(table).is_none());
    let text = figures::text(&app, &view.tables(), figures::Sees { admin, engine, rows });
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

pub const OPENAPI: &str = include_str!("openapi.json");

pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
