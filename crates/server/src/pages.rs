//! The published site: it answers every path that is not a route.
//!
//! Pages are rendered before they are requested. To answer, the server loads the newest root, looks the path up as it was sent
//! and clones reference-counted bytes, so no allocation grows with the size of the page. No key is required, because only
//! published notes have a page. While no key exists, only programs on this machine are answered, as on all routes. Only search
//! ([`search`]) renders its page for the request.

mod conditions;
mod search;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use site::{Encoded, Page, PageLookup, Site};

use crate::app::App;
use crate::auth::{self, Peer};
use crate::failure::Failure;
use conditions::Span;

/// First segments of the paths that belong to routes. The site gives no page such an address.
const ROUTE_SEGMENTS: [&str; 8] = ["v1", "_", "health", "ready", "metrics", "openapi.json", "mcp", "iceberg"];

/// Returns true if a path belongs to the site: if no route begins like it.
fn is_site_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let first = rest.split_once('/').map_or(rest, |(first, _)| first);
    !ROUTE_SEGMENTS.contains(&first)
}

/// The result of a request for the site.
/// The answer is complete.
pub enum PageResult {
    Response(Response),
    /// The request is a search for these words. Only [`search::answer`] may wait.
    Search(String),
}

/// Answers a request for the site. Returns `None` if the path is a route's or if there is no vault.
pub async fn answer(app: &App, parts: &Parts, peer: Peer) -> Option<Response> {
    match look_up(app, parts, peer)? {
        PageResult::Response(response) => Some(response),
        PageResult::Search(words) => Some(Box::pin(search::answer(app, words, &parts.headers)).await),
    }
}

/// Finds the page without waiting, or returns the words of a search.
fn look_up(app: &App, parts: &Parts, peer: Peer) -> Option<PageResult> {
    let table = app.options.site.as_deref()?;
    if !is_site_path(parts.uri.path()) {
        return None;
    }
    let _reading = vfs::read_path();
    let root = app.engine.root();
    let snapshot = root.table(table).filter(|table| table.def().is_vault())?;
    if root.keys().is_empty()
        && let Err(failure) = auth::principal(root.keys(), app.options.owner_hash, peer, parts)
    {
        return Some(PageResult::Response(failure.into_response()));
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        let mut response = Failure::method_not_allowed(parts.method.as_str(), &[&Method::GET, &Method::HEAD])
            .into_response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(PageResult::Response(response));
    }
    let Some(site) = root.derived(site::NAME, snapshot.def().id).and_then(|p| p.published::<Site>()) else {
        return Some(PageResult::Response(rendering_response()));
    };
    if let Some(words) = search::words(app, &site.vault, &parts.uri) {
        return Some(PageResult::Search(words));
    }
    Some(PageResult::Response(match site.vault.find(parts.uri.path()) {
        PageLookup::Page(page) => page_response(page, &parts.headers),
        PageLookup::Missing(page) => page_response(page, &parts.headers),
        PageLookup::Moved(url) => redirect_response(url, parts.uri.query()),
    }))
}

/// Answers requests between the start and the end of the first rendering.
fn rendering_response() -> Response {
    const TEXT: &str = "The pages of this site are being made. Try again in a moment.\n";
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::RETRY_AFTER, HeaderValue::from_static("1")),
        (header::REFRESH, HeaderValue::from_static("1")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::SERVICE_UNAVAILABLE, headers, TEXT).into_response()
}

fn redirect_response(url: &str, query: Option<&str>) -> Response {
    let target = match query {
        Some(query) => format!("{url}?{query}"),
        None => url.to_owned(),
    };
    // The address is percent-encoded and the query comes from a parsed request, so both are valid in a header.
    let Ok(target) = HeaderValue::try_from(target) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [(header::LOCATION, target), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    (StatusCode::MOVED_PERMANENTLY, headers).into_response()
}

fn page_response(page: &Page, request: &HeaderMap) -> Response {
    let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::OK);
    let is_there = status == StatusCode::OK;
    let packed = page.gzip.as_ref().filter(|_| conditions::accepts_gzip(request));
    let Encoded { bytes, etag } = packed.unwrap_or(&page.plain);
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.reserve(12);
    let mut put = |name: HeaderName, value: HeaderValue| drop(headers.insert(name, value));
    put(header::CACHE_CONTROL, HeaderValue::from_static(page.cache_control));
    put(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page.security_policy));
    put(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    put(header::REFERRER_POLICY, HeaderValue::from_static("strict-origin-when-cross-origin"));
    if page.gzip.is_some() {
        put(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if is_there {
        if let Ok(etag) = HeaderValue::from_str(etag) {
            put(header::ETAG, etag);
        }
        if conditions::is_current(request, etag) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        if let Some(modified) = page.last_modified.as_deref().and_then(|m| HeaderValue::from_str(m).ok()) {
            put(header::LAST_MODIFIED, modified);
        }
    }
    put(header::CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    if packed.is_some() {
        put(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    // Only files that are not compressed are served in ranges: recordings, pictures, archives.
    let span = match page.gzip {
        None if is_there => {
            put(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            conditions::span(request, etag, bytes.len())
        }
        _ => Span::Whole,
    };
    let (status, body) = match span {
        Span::Whole => (status, bytes.clone()),
        Span::Part(from, end) => {
            let range = format!("bytes {from}-{}/{}", end - 1, bytes.len());
            put(header::CONTENT_RANGE, HeaderValue::try_from(range).expect("digits"));
            (StatusCode::PARTIAL_CONTENT, bytes.slice(from..end))
        }
        Span::Outside => {
            let range = format!("bytes */{}", bytes.len());
            put(header::CONTENT_RANGE, HeaderValue::try_from(range).expect("digits"));
            put(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            let text = format!("The file has {} bytes, and none of them is in this range.\n", bytes.len());
            (StatusCode::RANGE_NOT_SATISFIABLE, Bytes::from(text))
        }
    };
    *response.status_mut() = status;
    *response.body_mut() = Body::from(body);
    response
}

#[cfg(test)]
mod tests;
