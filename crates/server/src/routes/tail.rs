//! The change feed of a table, as server-sent events or over a WebSocket (`tail/socket.rs`).
//!
//! `event: insert` carries a row, `event: delete` its `_row_id`. Within a commit deletes come first, so an update is a delete and
//! an insert. The last event of a commit carries `id: <lsn>`. A client that reconnects with it (`Last-Event-ID`, which browsers
//! send by themselves, or `?after=`) misses nothing and gets nothing twice.

mod encoder;
mod feed;
mod socket;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::DatabaseRoot;
use futures::stream;
use http::{HeaderMap, Request, header};
use serde::Deserialize;
use serde_json::json;
use types::{Error, Lsn, Principal, TableDef};

use self::encoder::Events;
use self::feed::Feed;
use super::Endless;
use crate::app::Shared;
use crate::auth::{self, Admitted};
use crate::cursors;
use crate::failure::Result;
use crate::input;
use crate::partition::Partition;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TailQuery {
    after: Option<u64>,
    /// The name of a cursor of the table. The feed begins after the cursor's lsn.
    cursor: Option<String>,
    /// Restricts the rows to this partition.
    partition: Option<String>,
}

pub async fn tail(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(admitted): Extension<Admitted>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: TailQuery = input::query(request.uri())?;
    let resumed = last_event(request.headers())?;
    // Both lookups use the same root, so that the cursor belongs to the table that is followed.
    let root = app.engine.root();
    let view = app.engine.view_of(root.clone(), &principal)?;
    let snapshot = view.table(&table)?;
    let began = match &params.cursor {
        None => params.after,
        Some(_) if params.after.is_some() => {
            return Err(Error::invalid("`cursor` cannot be combined with `after`").into());
        }
        Some(cursor) => Some(lsn_of(&root, snapshot.def(), cursor)?),
    };
    drop(root);
    // A browser that reconnects repeats its first URL. The id of its last event is the later position.
    let after = resumed.or(began).map_or(view.lsn(), Lsn);
    if after > view.lsn() {
        return Err(
            Error::invalid(format!("lsn {after} is not there yet; the newest is {}", view.lsn())).into()
        );
    }
    // An error that would end the stream at its first event is answered now, with a status.
    if after < snapshot.history_floor() {
        snapshot.changes_page(after, 1)?;
    }
    if let Some(partition) = &params.partition {
        Partition::parse(snapshot.def(), partition)?;
    }
    let feed = Feed::new(app, principal, admitted, &snapshot, after, params.partition);
    drop((view, snapshot));
    if auth::opens_websocket(request.headers()) {
        return socket::open(request, feed).await;
    }
    let events = stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.next::<Events>().await {
            Ok(Some(piece)) => Some((Ok::<_, std::convert::Infallible>(piece), Some(feed))),
            Ok(None) => None,
            Err(failure) => {
                let last = format!("event: error\ndata: {}\n\n", json!({ "error": failure.to_json() }));
                Some((Ok(Bytes::from(last)), None))
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    let mut response = (headers, Body::from_stream(events)).into_response();
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// Returns the last commit that a cursor's consumer has processed. Fails if the cursor has a row only.
fn lsn_of(root: &DatabaseRoot, table: &TableDef, cursor: &str) -> Result<u64> {
    let _reading = vfs::read_path();
    let lsn = cursors::get(root, table, cursor)?.lsn;
    let lsn = lsn.ok_or_else(|| {
        Error::invalid(format!("the cursor `{cursor}` has a row and no lsn"))
            .hint("use it with …/rows, or set its `lsn`")
    });
    Ok(lsn?.0)
}

/// Returns the lsn of the last event that a reconnecting client of server-sent events received.
fn last_event(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let lsn = id.to_str().ok().and_then(|id| id.trim().parse().ok());
    Ok(Some(lsn.ok_or_else(|| {
        Error::invalid("Last-Event-ID is not an lsn").hint("send the `id` of the last event that came")
    })?))
}
