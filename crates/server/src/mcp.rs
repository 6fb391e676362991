//! Model Context Protocol at `/mcp`: tools for the clients of language models. The tools only read.
//!
//! The transport is rmcp's streamable HTTP without sessions: every request is authenticated by its key like any other request, so
//! the removal of a key takes effect at once. The principal is passed on in the request's extensions (A1). Only this module and
//! its children use rmcp.
//!
//! A tool answers with structured content, described by the tool's schema ([`schema`]), and repeats it as text for clients that
//! read only text. A failure inside a tool is an answer with `isError`, so that a model can read the hint.

mod schema;
mod tools;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use types::Principal;

use crate::app::Shared;
use crate::body;
use crate::failure::{Failure, Result};
use crate::values;

type Service = StreamableHttpService<Handler, NeverSessionManager>;

const INSTRUCTIONS: &str = "Polynya keeps tables, notes and metrics on this server. Begin with `tables` to see what there is. \
    `ask` answers questions in plain words over metrics, requests, tables, notes and changes; `search` finds texts by their \
    words; `get` reads one row or note; `sql` takes one statement in PostgreSQL's dialect that only reads. Times are UTC.";

/// Answers a POST to `/mcp`.
pub async fn post(State(app): State<Shared>, request: Request<Body>) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    if !is_same_site(&parts.headers) {
        let hint = "programs send no Origin; a page of this server's own name may";
        return Err(Failure::forbidden("the request was made by another site's page", hint));
    }
    let mut held = body::read(&app, &parts.headers, body).await?;
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&held.bytes) {
        return Ok(refused(-32700, &format!("the body is not JSON: {error}")));
    }
    values::admit(&mut held)?;
    if held.bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Ok(refused(-32600, "batches are no longer part of the protocol: send one message a request"));
    }
    // A client that accepts a single JSON answer need not also accept a stream, which rmcp requires.
    let accepts = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
    if accepts.contains("*/*") || accepts.contains("application/json") {
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    }
    let service = service(&app);
    let answer = service.handle(Request::from_parts(parts, Full::new(held.bytes.clone()))).await;
    let (mut parts, body) = answer.into_parts();
    let is_text = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_none_or(|media| media.as_bytes().starts_with(b"text/plain"));
    if parts.status.is_client_error() && is_text {
        // rmcp sends some of its refusals as plain text. Errors of this server are always JSON.
        let text = axum::body::to_bytes(Body::new(body), 64 << 10).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let code = if parts.status == StatusCode::UNSUPPORTED_MEDIA_TYPE { -32600 } else { -32000 };
        let mut response = refused(code, &text);
        // A body that rmcp cannot parse as a message is a bad request. rmcp blames the media type.
        *response.status_mut() = match parts.status {
            StatusCode::UNSUPPORTED_MEDIA_TYPE if text.starts_with("fail to") => StatusCode::BAD_REQUEST,
            status => status,
        };
        return Ok(response);
    }
    parts.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Response::from_parts(parts, Body::new(body)).into_response())
}

/// Returns true if the request has no Origin or that of this server. The protocol demands this check, also for requests with a
/// key.
fn is_same_site(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().unwrap_or_default();
    let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    site.is_some_and(|site| Some(site) == host)
}

/// Returns a JSON-RPC error without the id of a request.
fn refused(code: i32, message: &str) -> Response {
    let message = types::name::printable(message);
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    (StatusCode::BAD_REQUEST, super::routes::json(&body)).into_response()
}

fn service(app: &Shared) -> Service {
    // Without keys, the Host header was checked when the request was admitted, as on all routes. With keys, a page of a host name
    // that was pointed at this server has no key.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(app.options.body_bytes_max)
        .disable_allowed_hosts();
    let app = app.clone();
    StreamableHttpService::new(move || Ok(Handler { app: app.clone() }), Arc::default(), config)
}

#[derive(Clone)]
struct Handler {
    app: Shared,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("polynya", env!("CARGO_PKG_VERSION")).with_title("Polynya");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(schema::tools().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        schema::tools().iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let parts = context.extensions.get::<http::request::Parts>();
        let principal = parts.and_then(|parts| parts.extensions.get::<Arc<Principal>>()).cloned();
        let Some(principal) = principal else {
            return Err(ErrorData::internal_error("the request has no principal", None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let call = tools::Call { app: &self.app, principal: &principal };
        let outcome = match request.name.as_ref() {
            "search" => call.search(arguments).await,
            "sql" => call.sql(arguments).await,
            "ask" => call.ask(arguments).await,
            "get" => call.get(arguments).await,
            "tables" => call.tables(arguments),
            other => {
                let tools: Vec<&str> = schema::tools().iter().map(|tool| tool.name.as_ref()).collect();
                let message = format!(
                    "there is no tool `{}`; there are {}",
                    types::name::printable(other),
                    tools.join(", ")
                );
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        Ok(match outcome {
            Ok(tools::ToolAnswer { text, value }) => {
                let mut result = CallToolResult::structured(value);
                result.content = vec![ContentBlock::text(text)];
                result
            }
            Err(failure) => error(&failure),
        }
        .into())
    }
}

/// Returns the answer of a tool that failed.
fn error(failure: &Failure) -> CallToolResult {
    let shown = failure.to_json();
    let text = |name: &str| shown[name].as_str().unwrap_or_default();
    let hint = if text("hint").is_empty() { String::new() } else { format!("\n{}", text("hint")) };
    CallToolResult::error(vec![ContentBlock::text(format!("{}: {}{hint}", text("code"), text("message")))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_says_what_it_takes_and_gives() {
        for tool in schema::tools() {
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            let output = tool.output_schema.as_ref().unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
            assert!(tool.annotations.as_ref().unwrap().read_only_hint.unwrap());
            assert!(tool.description.as_ref().is_some_and(|text| text.len() > 40));
            for name in tool.input_schema["required"].as_array().unwrap() {
                assert!(tool.input_schema["properties"][name.as_str().unwrap()].is_object(), "{}", tool.name);
            }
        }
    }
}
