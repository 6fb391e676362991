//! The storm: started, watched and ended by whoever sits at this machine.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, Uri};
use serde::Deserialize;

use super::json;
use crate::app::Shared;
use crate::asked;
use crate::auth;
use crate::body;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::storm::Wanted;
use crate::values;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    after: Option<usize>,
}

/// Starts one with what the body says; nothing is as good.
pub async fn start(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    here(&connection, &parts.headers)?;
    let mut held = body::read(&app, &parts.headers, body).await?;
    values::admit(&mut held)?;
    let wanted = match held.bytes.trim_ascii() {
        [] => Wanted::default(),
        text => asked::json(text, "storm", r#"{"seconds":60,"quiet_seconds":60,"load":"full"}, or nothing"#)?,
    };
    app.storm.start(&wanted)?;
    Ok((StatusCode::ACCEPTED, json(&app.storm.shown(0))).into_response())
}

/// Where it is, and its seconds from a number on.
pub async fn state(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: http::HeaderMap,
    uri: Uri,
) -> Result<Response> {
    here(&connection, &headers)?;
    let asked: Asked = asked::query(&uri)?;
    Ok(json(&app.storm.shown(asked.after.unwrap_or(0))))
}

/// Ends it.
pub async fn stop(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: http::HeaderMap,
) -> Result<Response> {
    here(&connection, &headers)?;
    app.storm.stop()?;
    Ok((StatusCode::ACCEPTED, json(&app.storm.shown(usize::MAX))).into_response())
}

/// It takes the whole machine: not from elsewhere, whatever key is sent.
fn here(connection: &Connection, headers: &http::HeaderMap) -> Result<()> {
    if auth::is_direct(connection.peer, headers) {
        return Ok(());
    }
    Err(Failure::forbidden(
        "a storm takes the whole machine, so it is started and watched from this machine only",
        "open the page there, or run `polynya storm` there",
    ))
}
