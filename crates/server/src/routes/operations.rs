//! For whoever runs the server: health, readiness, metrics, the description of the routes.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value as Json, json};

use super::json;
use crate::app::Shared;
use crate::metrics as figures;

/// The process answers. Says nothing about its parts.
pub async fn health() -> Response {
    json(&json!({ "status": "ok" }))
}

/// Whether every part can do its work: 200 if all can, else 503 and which cannot.
pub async fn ready(State(app): State<Shared>) -> Response {
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
    let free = app.engine.env().disk.free_bytes(app.engine.dir()).ok();
    let disk_ok = free.is_some_and(|free| free >= DISK_FREE_MIN);
    let sql = app.sql.status();
    let stopping = *app.stopping.borrow();
    let ready = log_ok && engine_ok && disk_ok && !stopping;
    let body = json!({
        "ready": ready,
        "parts": {
            "log": part(log_ok, log),
            "engine": part(engine_ok, engine),
            "disk": part(disk_ok, json!({ "free_bytes": free })),
            "sql": part(true, json!({ "running": sql.running, "waiting": sql.waiting })),
            "server": part(!stopping, json!({ "stopping": stopping })),
        },
    });
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, json(&body)).into_response()
}

/// Below this the next log file may find no room.
const DISK_FREE_MIN: u64 = 128 << 20;

pub async fn metrics(State(app): State<Shared>) -> Response {
    let text = figures::text(&app);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

pub const OPENAPI: &str = include_str!("openapi.json");

pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
