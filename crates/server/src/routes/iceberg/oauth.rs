//! The token endpoint, for clients that have a credential and request a token with it. A key is its own token: the endpoint
//! checks the key and returns it.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::json;

use super::problem::Result;
use crate::app::Shared;
use crate::auth;
use crate::body;
use crate::connection::Connection;

const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

#[derive(Debug, Default, Deserialize)]
struct TokenRequest {
    grant_type: Option<String>,
    /// The key in a request of type `client_credentials`. The client id is ignored.
    client_secret: Option<String>,
    /// The key in a request of type token exchange.
    subject_token: Option<String>,
}

pub async fn tokens(State(app): State<Shared>, request: Request<Body>) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let held = body::read(&app, &parts.headers, body).await?;
    let form = std::str::from_utf8(&held.bytes).ok().and_then(|text| format!("/?{text}").parse::<Uri>().ok());
    let asked = form.and_then(|uri| axum::extract::Query::<TokenRequest>::try_from_uri(&uri).ok());
    let Some(axum::extract::Query(asked)) = asked else {
        return Ok(refused(
            "invalid_request",
            "the body is a form: grant_type=client_credentials&client_secret=pk_…",
        ));
    };
    let secret = match asked.grant_type.as_deref() {
        Some("client_credentials") => asked.client_secret.or_else(|| basic(&parts.headers)),
        Some("urn:ietf:params:oauth:grant-type:token-exchange") => asked.subject_token,
        _ => return Ok(refused("unsupported_grant_type", "`grant_type` is client_credentials")),
    };
    let Some(secret) = secret.filter(|secret| !secret.is_empty()) else {
        return Ok(refused("invalid_request", "`client_secret` is the key, pk_…"));
    };
    let connection = parts.extensions.get::<std::sync::Arc<Connection>>();
    let peer = connection.ok_or_else(|| types::Error::internal("a request without a connection"))?.peer;
    let root = app.engine.root();
    if !auth::is_key(root.keys(), app.options.owner_hash, peer, &parts.headers, &secret) {
        return Ok(refused("invalid_client", "there is no such key"));
    }
    let token = json!({ "access_token": secret, "token_type": "bearer", "issued_token_type": ACCESS_TOKEN });
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, token.to_string()).into_response())
}

/// Returns the password of `Authorization: Basic …`.
fn basic(headers: &HeaderMap) -> Option<String> {
    let (scheme, coded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let coded = scheme.eq_ignore_ascii_case("basic").then(|| coded.trim())?;
    let plain = String::from_utf8(STANDARD.decode(coded).ok()?).ok()?;
    plain.split_once(':').map(|(_, secret)| secret.to_owned())
}

/// Makes a refusal in the error format of OAuth.
fn refused(error: &str, why: &str) -> Response {
    let status = if error == "invalid_client" { StatusCode::UNAUTHORIZED } else { StatusCode::BAD_REQUEST };
    let body = json!({ "error": error, "error_description": why }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
