//! The Iceberg REST catalog at `/iceberg/v1`: namespaces, tables and views of other engines, and those of Polynya's own tables
//! that have a lake. This file parses requests and writes answers; the modules below do the work.

mod commit;
mod names;
mod namespaces;
pub mod oauth;
mod offer;
pub mod problem;
mod service;
mod state;
mod tables;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Request, StatusCode, Uri, header};
use lake::catalog::string_map;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use types::{Error, Principal, name};

use self::commit::Commit;
use self::names::Ident;
use self::problem::{Problem, Result};
pub use self::service::Catalog;
use self::state::EntryKind;
use self::tables::{LoadedMetadata, Snapshots};
use super::{ROUTES, write};
use crate::app::Shared;
use crate::body::{self, RequestBody};
use crate::content::Encoding;
use crate::values;

/// The prefix of all paths of the catalog.
pub const PREFIX: &str = "/iceberg/";

/// The query parameters of all routes of the catalog. Unknown ones are ignored, since clients of other versions may send them.
#[derive(Debug, Default, Deserialize)]
struct CatalogQuery {
    parent: Option<String>,
    #[serde(rename = "pageToken")]
    page_token: Option<String>,
    #[serde(rename = "pageSize")]
    page_size: Option<String>,
    snapshots: Option<String>,
    #[serde(rename = "purgeRequested")]
    purge_requested: Option<String>,
}

impl CatalogQuery {
    fn of(uri: &Uri) -> Result<CatalogQuery> {
        let asked = axum::extract::Query::<CatalogQuery>::try_from_uri(uri);
        asked.map(|asked| asked.0).map_err(|_| Problem::bad("the query string is invalid"))
    }

    /// Parses a boolean parameter. A missing one is false.
    fn switch(value: &Option<String>, called: &str) -> Result<bool> {
        // PyIceberg writes `False`.
        match value.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::bad(format!("`{called}` is true or false"))),
        }
    }

    /// Returns the requested page of sorted names, and the token for the next page. Without a token there is one page with all
    /// names.
    fn page<T: Ord>(&self, all: BTreeSet<T>, text: impl Fn(&T) -> String) -> Result<(Vec<T>, Json)> {
        let Some(token) = &self.page_token else { return Ok((all.into_iter().collect(), Json::Null)) };
        let size = match self.page_size.as_deref() {
            None => usize::MAX,
            Some(size) => size.parse().ok().filter(|size| *size > 0).ok_or_else(|| {
                Problem::bad(format!(
                    "`pageSize` is a number from 1 on, `{}` was given",
                    name::printable(size)
                ))
            })?,
        };
        // A token is the last name of the previous page, so names that are added or removed in between do not shift the pages.
        let mut rest = all.into_iter().skip_while(|one| !token.is_empty() && text(one) <= *token).peekable();
        let mut page: Vec<T> = Vec::new();
        while page.len() < size
            && let Some(one) = rest.next()
        {
            page.push(one);
        }
        let next = match rest.peek() {
            Some(_) => page.last().map_or(Json::Null, |last| text(last).into()),
            None => Json::Null,
        };
        Ok((page, next))
    }
}

fn catalog(app: &Shared) -> Result<&Arc<Catalog>> {
    let missing = || Error::not_found("this server has no Iceberg catalog");
    app.catalog.as_ref().ok_or_else(|| missing().into())
}

/// Reads the JSON body of a request. The second result holds the memory of its values.
async fn body_of<T: DeserializeOwned>(app: &Shared, request: Request<Body>) -> Result<(T, RequestBody)> {
    let (parts, body) = request.into_parts();
    let mut held = body::read(app, &parts.headers, body).await?;
    let encoding = parts.headers.get(header::CONTENT_ENCODING).map_or(Some(""), |value| value.to_str().ok());
    let encoding = encoding.and_then(Encoding::parse);
    let encoding = encoding.ok_or_else(|| Problem::bad("bodies come plain, as gzip or as zstd"))?;
    write::decompress(app, &mut held, encoding).await?;
    values::admit(&mut held)?;
    let read = serde_json::from_slice(&held.bytes);
    Ok((read.map_err(|e| Problem::bad(format!("the body does not fit: {e}")))?, held))
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn answer(body: &Json) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Returns the answer with a table or view. Its metadata is JSON text already and is copied without being parsed.
fn loaded(loaded: LoadedMetadata, etag: Option<String>) -> Response {
    let location = match loaded.metadata_location.as_str() {
        "" => Json::Null,
        location => location.into(),
    };
    let body = format!(r#"{{"metadata-location":{location},"metadata":{},"config":{{}}}}"#, loaded.metadata);
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(etag) = etag.and_then(|etag| etag.parse().ok()) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// Returns the ETag of a loaded table, a hash of its location and metadata. The location alone would not do: a table that is
/// dropped and made again begins with a metadata file of the same name.
fn etag_of(loaded: &LoadedMetadata, snapshots: Snapshots) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(loaded.metadata_location.as_bytes()).update(b"\0").update(loaded.metadata.as_bytes());
    let hash = hasher.finalize().to_hex();
    let of = if snapshots == Snapshots::Refs { "-refs" } else { "" };
    format!("\"{}{of}\"", &hash[..32])
}

fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|value| value.split(',')).any(|one| one.trim().trim_start_matches("W/") == etag)
}

/// Answers the first request of clients: no settings to override, and the list of routes.
pub async fn config(State(app): State<Shared>) -> Result<Response> {
    catalog(&app)?;
    let spec = |path: &str| format!("/v1/{{prefix}}/{}", path.trim_start_matches("/iceberg/v1/"));
    let mut endpoints: Vec<String> = Vec::new();
    for route in ROUTES.iter().filter(|route| route.path.starts_with(PREFIX)) {
        match route.path {
            "/iceberg/v1/config" | "/iceberg/v1/oauth/tokens" => {}
            path => endpoints.push(format!("{} {}", route.method, spec(path))),
        }
        if matches!(route.path.rsplit('/').next(), Some("{namespace}" | "{table}" | "{view}"))
            && route.method == http::Method::GET
        {
            endpoints.push(format!("HEAD {}", spec(route.path)));
        }
    }
    Ok(answer(&json!({ "defaults": app.options.catalog_defaults, "overrides": {}, "endpoints": endpoints })))
}

type PrincipalExtension = Extension<Arc<Principal>>;

pub async fn list_namespaces(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    request: Request<Body>,
) -> Result<Response> {
    let asked = CatalogQuery::of(request.uri())?;
    let parent = asked.parent.as_deref().filter(|parent| !parent.is_empty()).map(names::namespace);
    let found = catalog(&app)?.run(move |c| c.namespaces(&principal, &parent.unwrap_or_default())).await?;
    let (page, next) = asked.page(found, |namespace| namespace.join("\u{1f}"))?;
    Ok(answer(&json!({ "namespaces": page, "next-page-token": next })))
}

#[derive(Debug, Deserialize)]
struct NewNamespace {
    namespace: Vec<String>,
    #[serde(default)]
    properties: Json,
}

pub async fn create_namespace(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    request: Request<Body>,
) -> Result<Response> {
    let (asked, _held): (NewNamespace, RequestBody) = body_of(&app, request).await?;
    let properties = string_map(&asked.properties, "a property")?;
    let result = json!({ "namespace": asked.namespace, "properties": properties });
    catalog(&app)?.run(move |c| c.create_namespace(&principal, &asked.namespace, &properties)).await?;
    Ok(answer(&result))
}

pub async fn namespace(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
) -> Result<Response> {
    let catalog = catalog(&app)?;
    let namespace = names::namespace(&namespace);
    let (name, location) = (namespace.clone(), catalog.store.namespace_location(&namespace));
    let known = catalog.run(move |c| c.namespace(&c.state(), &principal, &namespace)).await?;
    let mut properties = known.map(|known| known.entry.properties).unwrap_or_default();
    // Trino chooses the location of a new table below this one. Without it Trino makes the table at once, and then refuses it
    // because its directory is not empty: it contains the metadata file.
    properties.entry("location").or_insert_with(|| location.into());
    Ok(answer(&json!({ "namespace": name, "properties": properties })))
}

pub async fn has_namespace(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
) -> Result<Response> {
    let namespace = names::namespace(&namespace);
    catalog(&app)?.run(move |c| c.namespace(&c.state(), &principal, &namespace)).await?;
    Ok(no_content())
}

pub async fn drop_namespace(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
) -> Result<Response> {
    let namespace = names::namespace(&namespace);
    catalog(&app)?.run(move |c| c.drop_namespace(&principal, &namespace)).await?;
    Ok(no_content())
}

#[derive(Debug, Deserialize)]
struct Properties {
    #[serde(default)]
    removals: Option<BTreeSet<String>>,
    #[serde(default)]
    updates: Json,
}

pub async fn update_namespace(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (asked, _held): (Properties, RequestBody) = body_of(&app, request).await?;
    let (removals, updates) = (asked.removals.unwrap_or_default(), string_map(&asked.updates, "a property")?);
    let namespace = names::namespace(&namespace);
    let update = move |c: &Catalog| c.update_namespace(&principal, &namespace, &removals, &updates);
    let result = catalog(&app)?.run(update).await?;
    Ok(answer(&json!({ "updated": result.updated, "removed": result.removed, "missing": result.missing })))
}

async fn list(
    app: Shared,
    principal: Arc<Principal>,
    namespace: String,
    uri: &Uri,
    kind: EntryKind,
) -> Result<Response> {
    let asked = CatalogQuery::of(uri)?;
    let namespace = names::namespace(&namespace);
    let of = namespace.clone();
    let found = catalog(&app)?.run(move |c| c.list(&principal, &namespace, kind)).await?;
    let (page, next) = asked.page(found, String::clone)?;
    let identifiers: Vec<Json> = page.iter().map(|name| json!({ "namespace": of, "name": name })).collect();
    Ok(answer(&json!({ "identifiers": identifiers, "next-page-token": next })))
}

pub async fn list_tables(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    list(app, principal, namespace, request.uri(), EntryKind::Table).await
}

pub async fn list_views(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    list(app, principal, namespace, request.uri(), EntryKind::View).await
}

/// Returns the identifier of a new table or view, whose name is in the body.
fn ident_in_body(namespace: &str, body: &Json) -> Result<Ident> {
    let name = body["name"].as_str().ok_or_else(|| Problem::bad("`name` is missing"))?;
    Ok(Ident::new(names::namespace(namespace), name))
}

pub async fn create_table(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (body, _held): (Json, RequestBody) = body_of(&app, request).await?;
    let ident = ident_in_body(&namespace, &body)?;
    let made = catalog(&app)?.run(move |c| c.create(&principal, &ident, &body)).await?;
    let etag = (!made.metadata_location.is_empty()).then(|| etag_of(&made, Snapshots::All));
    Ok(loaded(made, etag))
}

pub async fn register_table(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (body, _held): (Json, RequestBody) = body_of(&app, request).await?;
    let ident = ident_in_body(&namespace, &body)?;
    let made = catalog(&app)?.run(move |c| c.register(&principal, &ident, &body)).await?;
    let etag = etag_of(&made, Snapshots::All);
    Ok(loaded(made, Some(etag)))
}

pub async fn load_table(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, table)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response> {
    let asked = CatalogQuery::of(request.uri())?;
    let snapshots = match asked.snapshots.as_deref() {
        None | Some("all") => Snapshots::All,
        Some("refs") => Snapshots::Refs,
        Some(other) => {
            let other = name::printable(other);
            return Err(Problem::bad(format!("`snapshots` is all or refs, `{other}` was given")));
        }
    };
    let ident = Ident::new(names::namespace(&namespace), table);
    let found = catalog(&app)?.run(move |c| c.load(&principal, &ident, snapshots)).await?;
    let etag = etag_of(&found, snapshots);
    if is_known(request.headers(), &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    Ok(loaded(found, Some(etag)))
}

pub async fn has_table(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, table)): Path<(String, String)>,
) -> Result<Response> {
    let ident = Ident::new(names::namespace(&namespace), table);
    catalog(&app)?.run(move |c| c.find(&c.state(), &principal, &ident).map(drop)).await?;
    Ok(no_content())
}

pub async fn commit_table(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, table)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response> {
    let (body, _held): (Json, RequestBody) = body_of(&app, request).await?;
    let commit = Commit::parse(Ident::new(names::namespace(&namespace), table), &body)?;
    let made = catalog(&app)?.commit_all(principal, vec![commit]).await?;
    let made = made.into_iter().next().ok_or_else(|| Error::internal("a commit without a table"))?;
    let etag = etag_of(&made, Snapshots::All);
    Ok(loaded(made, Some(etag)))
}

pub async fn drop_table(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, table)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response> {
    let purge = CatalogQuery::switch(&CatalogQuery::of(request.uri())?.purge_requested, "purgeRequested")?;
    let ident = Ident::new(names::namespace(&namespace), table);
    catalog(&app)?.run(move |c| c.drop(&principal, &ident, purge)).await?;
    Ok(no_content())
}

/// Accepts the metrics of a client's scan or commit, so that clients do not complain, and discards them.
pub async fn report_metrics(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, table)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response> {
    let (report, _held): (Json, RequestBody) = body_of(&app, request).await?;
    if !report["report-type"].is_string() {
        return Err(Problem::bad("`report-type` is missing"));
    }
    let ident = Ident::new(names::namespace(&namespace), table);
    catalog(&app)?.run(move |c| c.find(&c.state(), &principal, &ident).map(drop)).await?;
    Ok(no_content())
}

#[derive(Debug, Deserialize)]
struct Rename {
    source: Ident,
    destination: Ident,
}

async fn rename(
    app: Shared,
    principal: Arc<Principal>,
    request: Request<Body>,
    kind: EntryKind,
) -> Result<Response> {
    let (asked, _held): (Rename, RequestBody) = body_of(&app, request).await?;
    let rename = move |c: &Catalog| c.rename(&principal, &asked.source, &asked.destination, kind);
    catalog(&app)?.run(rename).await?;
    Ok(no_content())
}

pub async fn rename_table(
    State(app): State<Shared>,
    Extension(who): PrincipalExtension,
    request: Request<Body>,
) -> Result<Response> {
    rename(app, who, request, EntryKind::Table).await
}

pub async fn rename_view(
    State(app): State<Shared>,
    Extension(who): PrincipalExtension,
    request: Request<Body>,
) -> Result<Response> {
    rename(app, who, request, EntryKind::View).await
}

pub async fn commit_transaction(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    request: Request<Body>,
) -> Result<Response> {
    let (body, _held): (Json, RequestBody) = body_of(&app, request).await?;
    let commits = Commit::parse_all(&body)?;
    catalog(&app)?.commit_all(principal, commits).await?;
    Ok(no_content())
}

pub async fn create_view(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path(namespace): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (body, _held): (Json, RequestBody) = body_of(&app, request).await?;
    let ident = ident_in_body(&namespace, &body)?;
    let made = catalog(&app)?.run(move |c| c.create_view(&principal, &ident, &body)).await?;
    Ok(loaded(made, None))
}

pub async fn load_view(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, view)): Path<(String, String)>,
) -> Result<Response> {
    let ident = Ident::new(names::namespace(&namespace), view);
    let found = catalog(&app)?.run(move |c| c.load_view(&principal, &ident)).await?;
    Ok(loaded(found, None))
}

pub async fn has_view(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, view)): Path<(String, String)>,
) -> Result<Response> {
    let ident = Ident::new(names::namespace(&namespace), view);
    catalog(&app)?.run(move |c| c.find_view(&c.state(), &principal, &ident).map(drop)).await?;
    Ok(no_content())
}

pub async fn commit_view(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, view)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response> {
    let (body, _held): (Json, RequestBody) = body_of(&app, request).await?;
    let ident = Ident::new(names::namespace(&namespace), view);
    let made = catalog(&app)?.run(move |c| c.commit_view(&principal, &ident, &body)).await?;
    Ok(loaded(made, None))
}

pub async fn drop_view(
    State(app): State<Shared>,
    Extension(principal): PrincipalExtension,
    Path((namespace, view)): Path<(String, String)>,
) -> Result<Response> {
    let ident = Ident::new(names::namespace(&namespace), view);
    catalog(&app)?.run(move |c| c.drop_view(&principal, &ident)).await?;
    Ok(no_content())
}
