//! Routes of the cursors of consumers. [`crate::cursors`] defines what a cursor is and stores it.
//!
//! A key that may read a table may move its cursors: a consumer needs only the scope `read`. Nobody else sees them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use types::{Error, Lsn, Principal, RowId, name};
use wire::text;

use super::json;
use super::write::version_of;
use crate::app::Shared;
use crate::body;
use crate::cursors::{self, Cursor, Expected};
use crate::failure::{Failure, Result};
use crate::input;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CursorBody {
    row: Option<u64>,
    lsn: Option<u64>,
}

/// Maximum number of bytes of a body, which contains only two numbers.
const BODY_BYTES_MAX: usize = 4 << 10;

pub async fn put(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path((table, cursor)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let expected = expected(&parts.headers)?;
    let mut held = body::read(&app, &parts.headers, body).await?;
    if held.bytes.len() > BODY_BYTES_MAX {
        return Err(Error::new(types::Kind::TooLarge, "a cursor is at most 4 KiB of JSON").into());
    }
    let wanted: CursorBody = input::body(&mut held, "cursor", r#"{"row": 123} or {"lsn": 45}"#)?;
    let view = app.engine.view(&principal)?;
    let snapshot = view.table(&table)?;
    let last = snapshot.next_row().0 - 1;
    match (wanted.row, wanted.lsn) {
        (None, None) => {
            return Err(Error::invalid("the cursor has neither `row` nor `lsn`")
                .hint("`row` is the last row that was processed, `lsn` the last commit; 0 is the beginning")
                .into());
        }
        (Some(row), _) if row > last => {
            return Err(Error::invalid(format!("row {row} is not there yet; the newest is {last}")).into());
        }
        (_, Some(lsn)) if Lsn(lsn) > view.lsn() => {
            return Err(
                Error::invalid(format!("lsn {lsn} is not there yet; the newest is {}", view.lsn())).into()
            );
        }
        _ => {}
    }
    drop(view);
    let place = (wanted.row.map(RowId), wanted.lsn.map(Lsn));
    let committed = cursors::put(&app, &snapshot, &cursor, place, expected).await?;
    let moved = Cursor {
        name: cursor,
        row: place.0,
        lsn: place.1,
        version: committed.first_row.unwrap_or_default(),
        moved: committed.time,
    };
    let status = if committed.deleted == 0 { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, answer(&snapshot, &moved)).into_response())
}

pub async fn get(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path((table, cursor)): Path<(String, String)>,
) -> Result<Response> {
    // Both lookups use the same root, so that the cursor belongs to the table that is seen.
    let root = app.engine.root();
    let snapshot = app.engine.view_of(root.clone(), &principal)?.table(&table)?;
    let found = {
        let _reading = vfs::read_path();
        cursors::get(&root, snapshot.def(), &cursor)?
    };
    Ok(answer(&snapshot, &found))
}

pub async fn list(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
) -> Result<Response> {
    let root = app.engine.root();
    let snapshot = app.engine.view_of(root.clone(), &principal)?.table(&table)?;
    let id = snapshot.def().id;
    let found = app.work.run(move || cursors::of_table(&root, id)).await??;
    let found: Vec<Json> = found.iter().map(|cursor| shown(&snapshot, cursor)).collect();
    Ok(json(&json!({ "cursors": found })))
}

pub async fn remove(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path((table, cursor)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    let expected = expected(&headers)?;
    let snapshot = app.engine.view(&principal)?.table(&table)?;
    let removed = cursors::remove(&app, snapshot.def().id, &cursor, expected).await?;
    match removed {
        Some(lsn) => Ok(json(&json!({ "lsn": lsn.0 }))),
        None => Err(cursors::get(&app.engine.root(), snapshot.def(), &cursor).err().map_or_else(
            || Failure::from(Error::conflict(format!("the cursor `{cursor}` was made just now"))),
            Failure::from,
        )),
    }
}

fn expected(headers: &HeaderMap) -> Result<Expected> {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Expected::Anything),
        (Some(version), None) => Ok(Expected::Version(version_of(version)?)),
        (None, Some("*")) => Ok(Expected::Absent),
        _ => Err(Error::invalid("If-None-Match takes `*` only, and not beside If-Match").into()),
    }
}

fn answer(table: &table::Snapshot, cursor: &Cursor) -> Response {
    let mut response = json(&shown(table, cursor));
    let etag = HeaderValue::from_str(&format!("\"{}\"", cursor.version)).expect("digits and quotes");
    response.headers_mut().insert(header::ETAG, etag);
    response
}

fn shown(table: &table::Snapshot, cursor: &Cursor) -> Json {
    let mut moved = Vec::new();
    text::write_timestamp(cursor.moved, &mut moved);
    json!({
        "table": name::short_table_name(&table.def().name),
        "name": cursor.name,
        "row": cursor.row.map(|row| row.0),
        "lsn": cursor.lsn.map(|lsn| lsn.0),
        "version": cursor.version.0,
        "moved": format!("{}Z", String::from_utf8_lossy(&moved)),
    })
}
