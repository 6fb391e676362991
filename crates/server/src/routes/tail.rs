//! A table's change feed as server-sent events.
//!
//! `event: insert` carries a row, `event: delete` its `_row_id`; within a commit deletes come first, so an update is a
//! delete and an insert. The last event of a commit carries `id: <lsn>`: a client that reconnects with it
//! (`Last-Event-ID`, which browsers send by themselves, or `?after=`) misses nothing and sees nothing twice.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::{Request, header};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use types::{Error, Lsn, Principal, Result as CoreResult, TableId, name};

use super::Follows;
use crate::app::Shared;
use crate::asked;
use crate::auth::Admitted;
use crate::failure::{Failure, Result};
use wire::out;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    after: Option<u64>,
}

/// Rows and deletes of one piece of the stream, about.
const PAGE_ROWS: usize = 500;
const HEARTBEAT: Duration = Duration::from_secs(15);

pub async fn tail(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(admitted): Extension<Admitted>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let asked: Asked = asked::query(request.uri())?;
    let resumed = match request.headers().get("last-event-id") {
        None => None,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.trim().parse().ok()).ok_or_else(|| {
            Error::invalid("Last-Event-ID is no lsn").hint("send the `id` of the last event that came")
        })?),
    };
    let view = app.engine.view(&principal)?;
    let snapshot = view.table(&table)?;
    // A reconnecting browser repeats the URL it began with; where it stopped says more.
    let after = resumed.or(asked.after).map_or(view.lsn(), Lsn);
    if after > view.lsn() {
        return Err(
            Error::invalid(format!("lsn {after} is not there yet; the newest is {}", view.lsn())).into()
        );
    }
    // Says now, with a status, what would end the stream at its first event.
    if after < snapshot.history_floor() {
        snapshot.changes(after, 1, snapshot.all_columns())?;
    }
    let lsn = app.lsn.subscribe();
    let stopping = app.stopping.subscribe();
    let full_name = snapshot.def().name.clone();
    let feed = Feed { id: snapshot.def().id, app, principal, admitted, full_name, after, lsn, stopping };
    let events = stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.next().await {
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
    response.extensions_mut().insert(Follows);
    Ok(response)
}

struct Feed {
    app: Shared,
    principal: Arc<Principal>,
    admitted: Admitted,
    full_name: String,
    id: TableId,
    after: Lsn,
    lsn: watch::Receiver<Lsn>,
    stopping: watch::Receiver<bool>,
}

impl Feed {
    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if *self.stopping.borrow() {
                return Ok(None);
            }
            self.still_allowed()?;
            // Seen before the view is taken, so that what comes behind it wakes us.
            self.lsn.borrow_and_update();
            let view = self.app.engine.view(&self.principal)?;
            let gone = || {
                Error::not_found(format!("table `{}` was dropped", name::short_table_name(&self.full_name)))
            };
            let snapshot = view.find(&self.full_name).filter(|s| s.def().id == self.id).ok_or_else(gone)?;
            if snapshot.lsn() > self.after {
                let after = self.after;
                let (next, text) = self.app.work.run(move || page(&snapshot, after)).await??;
                let moved = next > self.after;
                self.after = next;
                if !text.is_empty() {
                    return Ok(Some(text.into()));
                }
                if moved {
                    continue;
                }
            }
            tokio::select! {
                _ = self.lsn.changed() => {}
                _ = self.stopping.changed() => {}
                () = tokio::time::sleep(HEARTBEAT) => {
                    // Nothing of this table happened up to here: a client may resume from it.
                    let seen = self.after.max(view.lsn());
                    self.after = seen;
                    return Ok(Some(Bytes::from(format!(": still here\nid: {seen}\n\n"))));
                }
            }
        }
    }

    /// A key may be removed while its stream runs.
    fn still_allowed(&self) -> Result<()> {
        if self.admitted.still_holds(self.app.engine.root().keys()) {
            Ok(())
        } else {
            Err(Failure::unauthorized("the key was removed or changed", "ask again with one that exists"))
        }
    }
}

fn page(snapshot: &table::Snapshot, after: Lsn) -> CoreResult<(Lsn, Vec<u8>)> {
    let changes = snapshot.changes(after, PAGE_ROWS, snapshot.all_columns())?;
    let json = out::json::Writer::new(snapshot.arrow_schema());
    let mut out = Vec::new();
    let mut deleted = changes.deleted.iter().peekable();
    // Every event but the last of its commit goes without an id.
    let mut last: Option<Lsn> = None;
    let mut event = |lsn: Lsn, kind: &str, data: &[u8], out: &mut Vec<u8>| {
        if let Some(before) = last.filter(|before| *before != lsn) {
            end(Some(before), out);
        } else if last.is_some() {
            end(None, out);
        }
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        out.extend_from_slice(data);
        out.push(b'\n');
        last = Some(lsn);
    };
    let delete = |row: types::RowId| format!("{{\"_row_id\":{row}}}");
    let mut text = Vec::new();
    for inserted in &changes.inserted {
        text.clear();
        json.rows(&inserted.batch, &mut text);
        // JSON has no bare line breaks, so each line is a row.
        let mut lines = text.split(|b| *b == b'\n');
        for (lsn, rows) in &inserted.runs {
            while let Some((row, at)) = deleted.next_if(|(_, at)| at <= lsn) {
                event(*at, "delete", delete(*row).as_bytes(), &mut out);
            }
            for line in lines.by_ref().take(*rows) {
                event(*lsn, "insert", line, &mut out);
            }
        }
    }
    for (row, at) in deleted {
        event(*at, "delete", delete(*row).as_bytes(), &mut out);
    }
    if last.is_some() {
        // The page ends with whole commits.
        end(Some(changes.next), &mut out);
    }
    Ok((changes.next, out))
}

fn end(id: Option<Lsn>, out: &mut Vec<u8>) {
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.push(b'\n');
}
