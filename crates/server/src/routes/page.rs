//! Routes of the first page and its feed.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, header};

use super::Endless;
use crate::app::Shared;
use crate::auth::Admitted;
use crate::failure::{Failure, Result};

/// Redirects the root to the page if there is no site. The body says how to publish one.
pub async fn home() -> Response {
    const HINT: &str = "No notes are published here. `polynya publish FOLDER` makes a folder of Markdown the site at this \
                        address, and so does `vault = \"FOLDER\"` under `[site]` in polynya.toml. This machine is at /_/.\n";
    let mut response = Redirect::temporary("/_/").into_response();
    *response.body_mut() = Body::from(HINT);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

pub async fn index(State(app): State<Shared>, headers: HeaderMap) -> Result<Response> {
    app.assets.answer("", &headers).ok_or_else(|| Failure::no_route("/_/", None))
}

pub async fn file(
    State(app): State<Shared>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    app.assets.answer(&file, &headers).ok_or_else(|| Failure::no_route(&format!("/_/{file}"), None))
}

/// Streams one JSON sample a second as server-sent events. All viewers share the samples. The stream ends when its key is
/// removed.
pub async fn live(State(app): State<Shared>, Extension(admitted): Extension<Admitted>) -> Response {
    let samples = app.live.subscribe();
    let stopping = app.stopping.subscribe();
    let events = stream::unfold(
        (samples, stopping, app, admitted, true),
        |(mut samples, mut stopping, app, admitted, first)| async move {
            // The last sample is sent at once, unless it is old because nobody was watching.
            if !first || samples.borrow().is_stale() {
                tokio::select! {
                    changed = samples.changed() => changed.ok()?,
                    _ = stopping.changed() => return None,
                }
            }
            if !admitted.still_holds(app.engine.root().keys()) {
                return None;
            }
            let sample = samples.borrow_and_update().clone();
            let event = Bytes::from(format!("data: {}\n\n", sample.text(&admitted.principal)));
            Some((Ok::<_, Infallible>(event), (samples, stopping, app, admitted, false)))
        },
    );
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    let mut response = (headers, Body::from_stream(events)).into_response();
    response.extensions_mut().insert(Endless);
    response
}
