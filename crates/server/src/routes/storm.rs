//! Routes that start, watch and stop a storm. They are open only to clients on this machine.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, Uri};
use serde::Deserialize;

use super::json;
use crate::app::Shared;
use crate::auth;
use crate::body;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::input;
use crate::storm::StormParameters;
use crate::values;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateQuery {
    after: Option<usize>,
}

/// Starts a storm with the parameters in the body. An empty body means the defaults.
pub async fn start(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    require_local(&connection, &parts.headers)?;
    let mut held = body::read(&app, &parts.headers, body).await?;
    values::admit(&mut held)?;
    let wanted = match held.bytes.trim_ascii() {
        [] => StormParameters::default(),
        text => input::json(text, "storm", r#"{"seconds":60,"quiet_seconds":60,"load":"full"}, or nothing"#)?,
    };
    app.storm.start(&wanted)?;
    Ok((StatusCode::ACCEPTED, json(&app.storm.shown(0))).into_response())
}

/// Returns the state of the storm, and its seconds from index `after` on.
pub async fn state(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: http::HeaderMap,
    uri: Uri,
) -> Result<Response> {
    require_local(&connection, &headers)?;
    let params: StateQuery = input::query(&uri)?;
    Ok(json(&app.storm.shown(params.after.unwrap_or(0))))
}

/// Stops the storm.
pub async fn stop(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: http::HeaderMap,
) -> Result<Response> {
    require_local(&connection, &headers)?;
    app.storm.stop()?;
    Ok((StatusCode::ACCEPTED, json(&app.storm.shown(usize::MAX))).into_response())
}

/// Refuses clients on other machines, whatever their key, because a storm takes the whole machine.
fn require_local(connection: &Connection, headers: &http::HeaderMap) -> Result<()> {
    if auth::is_direct(connection.peer, headers) {
        return Ok(());
    }
    Err(Failure::forbidden(
        "a storm takes the whole machine, so it is started and watched from this machine only",
        "open the page there, or run `polynya storm` there",
    ))
}
