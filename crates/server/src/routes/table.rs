//! The table of all routes with their scopes, classes and handlers. The router is built from this table, so every route is in it.

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter, get, on};
use http::Method;
use types::Scope;

use super::{
    ask, copy, cursors, define, iceberg, lake, operations, otlp, page, rows, search, sql, storm, tail,
    transactions, write,
};
use crate::app::Shared;
use crate::mcp;
use crate::telemetry::Class;

/// A route: a path and method with the scope that it requires.
#[derive(Debug)]
pub struct Route {
    pub method: Method,
    /// The path in axum's syntax.
    pub path: Path,
    pub class: Class,
    /// The required scope; `None` if the route is open to all clients that may connect.
    pub scope: Option<Scope>,
    /// True if its requests are recorded.
    pub recorded: bool,
    /// `None` if requests are answered before they reach the router.
    handler: Option<Handler>,
}

type Handler = fn(MethodFilter) -> MethodRouter<Shared>;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

const OPEN: Option<Scope> = None;
const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);
const ADMIN: Option<Scope> = Some(Scope::Admin);

type Path = &'static str;

const fn route(method: Method, path: Path, class: Class, scope: Option<Scope>, handler: Handler) -> Route {
    Route { method, path, class, scope, recorded: true, handler: Some(handler) }
}

const fn unrecorded(
    method: Method,
    path: Path,
    class: Class,
    scope: Option<Scope>,
    handler: Handler,
) -> Route {
    Route { method, path, class, scope, recorded: false, handler: Some(handler) }
}

/// The route of pages of the published site.
pub static PAGE: Route = page();

const fn page() -> Route {
    Route { method: GET, path: "/{page}", class: Class::Page, scope: OPEN, recorded: true, handler: None }
}

/// All routes. `/openapi.json` describes them in prose; a test compares the two.
pub static ROUTES: &[Route] = &[
    route(GET, "/v1/tables", Class::Read, READ, |m| on(m, define::list)),
    route(GET, "/v1/tables/{table}", Class::Read, READ, |m| on(m, define::describe)),
    route(PUT, "/v1/tables/{table}", Class::Define, WRITE, |m| on(m, define::put)),
    route(DELETE, "/v1/tables/{table}", Class::Define, WRITE, |m| on(m, define::remove)),
    route(POST, "/v1/tables/{table}/rows", Class::Write, WRITE, |m| on(m, write::rows)),
    route(GET, "/v1/tables/{table}/rows", Class::Read, READ, |m| on(m, rows::range)),
    route(POST, "/v1/rows", Class::Write, WRITE, |m| on(m, write::several::rows)),
    route(GET, "/v1/tables/{table}/rows/{key}", Class::Read, READ, |m| on(m, rows::by_key)),
    route(DELETE, "/v1/tables/{table}/rows/{key}", Class::Write, WRITE, |m| on(m, write::delete)),
    route(GET, "/v1/tables/{table}/tail", Class::Other, READ, |m| on(m, tail::tail)),
    route(POST, "/v1/tables/{table}/commit", Class::Other, WRITE, |m| on(m, lake::commit)),
    route(POST, "/v1/tables/{table}/erase", Class::Other, WRITE, |m| on(m, lake::erase::erase)),
    route(POST, "/v1/tables/{table}/maintain", Class::Other, WRITE, |m| on(m, lake::maintain::maintain)),
    route(GET, "/v1/tables/{table}/lake", Class::Other, READ, |m| on(m, lake::contents::status)),
    route(GET, "/v1/tables/{table}/lake/snapshots", Class::Other, READ, |m| on(m, lake::contents::snapshots)),
    route(GET, "/v1/tables/{table}/lake/files", Class::Other, READ, |m| on(m, lake::contents::files)),
    route(GET, "/v1/tables/{table}/watermarks", Class::Other, READ, |m| on(m, lake::watermarks::watermarks)),
    // The scope read is enough to use cursors, so that a consumer needs no more.
    route(GET, "/v1/tables/{table}/cursors", Class::Other, READ, |m| on(m, cursors::list)),
    route(GET, "/v1/tables/{table}/cursors/{name}", Class::Other, READ, |m| on(m, cursors::get)),
    route(PUT, "/v1/tables/{table}/cursors/{name}", Class::Other, READ, |m| on(m, cursors::put)),
    route(DELETE, "/v1/tables/{table}/cursors/{name}", Class::Other, READ, |m| on(m, cursors::remove)),
    route(GET, "/v1/tables/{table}/search", Class::Search, READ, |m| on(m, search::table)),
    route(POST, "/v1/tables/{table}/search", Class::Search, READ, |m| on(m, search::table_post)),
    route(GET, "/v1/search", Class::Search, READ, |m| on(m, search::all)),
    route(POST, "/v1/search", Class::Search, READ, |m| on(m, search::all_post)),
    route(POST, "/v1/ask", Class::Ask, READ, |m| on(m, ask::ask)),
    route(POST, "/v1/ask/stream", Class::Ask, READ, |m| on(m, ask::stream)),
    // All tools only read. The body names the tool.
    route(POST, "/mcp", Class::Ask, READ, |m| on(m, mcp::post)),
    // `engine` decides what a statement may do, and requires Write for a statement that writes.
    route(POST, "/v1/sql", Class::Sql, READ, |m| on(m, sql::sql)),
    route(POST, "/v1/copy", Class::Write, WRITE, |m| on(m, copy::copy)),
    route(POST, "/v1/transactions", Class::Write, WRITE, |m| on(m, transactions::transactions)),
    // The path to which OpenTelemetry's exporters send logs.
    route(POST, "/v1/logs", Class::Write, WRITE, |m| on(m, otlp::logs)),
    // The Iceberg REST catalog. The open route requires the key in its body.
    route(GET, "/iceberg/v1/config", Class::Other, READ, |m| on(m, iceberg::config)),
    route(POST, "/iceberg/v1/oauth/tokens", Class::Other, OPEN, |m| on(m, iceberg::oauth::tokens)),
    route(GET, "/iceberg/v1/namespaces", Class::Read, READ, |m| on(m, iceberg::list_namespaces)),
    route(POST, "/iceberg/v1/namespaces", Class::Define, WRITE, |m| on(m, iceberg::create_namespace)),
    route(GET, "/iceberg/v1/namespaces/{namespace}", Class::Read, READ, |_| {
        get(iceberg::namespace).head(iceberg::has_namespace)
    }),
    route(DELETE, "/iceberg/v1/namespaces/{namespace}", Class::Define, WRITE, |m| {
        on(m, iceberg::drop_namespace)
    }),
    route(POST, "/iceberg/v1/namespaces/{namespace}/properties", Class::Define, WRITE, |m| {
        on(m, iceberg::update_namespace)
    }),
    route(GET, "/iceberg/v1/namespaces/{namespace}/tables", Class::Read, READ, |m| {
        on(m, iceberg::list_tables)
    }),
    route(POST, "/iceberg/v1/namespaces/{namespace}/tables", Class::Define, WRITE, |m| {
        on(m, iceberg::create_table)
    }),
    route(POST, "/iceberg/v1/namespaces/{namespace}/register", Class::Define, WRITE, |m| {
        on(m, iceberg::register_table)
    }),
    route(GET, "/iceberg/v1/namespaces/{namespace}/tables/{table}", Class::Read, READ, |_| {
        get(iceberg::load_table).head(iceberg::has_table)
    }),
    route(POST, "/iceberg/v1/namespaces/{namespace}/tables/{table}", Class::Define, WRITE, |m| {
        on(m, iceberg::commit_table)
    }),
    route(DELETE, "/iceberg/v1/namespaces/{namespace}/tables/{table}", Class::Define, WRITE, |m| {
        on(m, iceberg::drop_table)
    }),
    // A key that may read a table may report the metrics of its reads.
    unrecorded(POST, "/iceberg/v1/namespaces/{namespace}/tables/{table}/metrics", Class::Other, READ, |m| {
        on(m, iceberg::report_metrics)
    }),
    route(POST, "/iceberg/v1/tables/rename", Class::Define, WRITE, |m| on(m, iceberg::rename_table)),
    route(POST, "/iceberg/v1/transactions/commit", Class::Define, WRITE, |m| {
        on(m, iceberg::commit_transaction)
    }),
    route(GET, "/iceberg/v1/namespaces/{namespace}/views", Class::Read, READ, |m| on(m, iceberg::list_views)),
    route(POST, "/iceberg/v1/namespaces/{namespace}/views", Class::Define, WRITE, |m| {
        on(m, iceberg::create_view)
    }),
    route(GET, "/iceberg/v1/namespaces/{namespace}/views/{view}", Class::Read, READ, |_| {
        get(iceberg::load_view).head(iceberg::has_view)
    }),
    route(POST, "/iceberg/v1/namespaces/{namespace}/views/{view}", Class::Define, WRITE, |m| {
        on(m, iceberg::commit_view)
    }),
    route(DELETE, "/iceberg/v1/namespaces/{namespace}/views/{view}", Class::Define, WRITE, |m| {
        on(m, iceberg::drop_view)
    }),
    route(POST, "/iceberg/v1/views/rename", Class::Define, WRITE, |m| on(m, iceberg::rename_view)),
    // Open to clients on this machine only.
    unrecorded(POST, "/v1/storm", Class::Other, ADMIN, |m| on(m, storm::start)),
    unrecorded(GET, "/v1/storm", Class::Other, ADMIN, |m| on(m, storm::state)),
    unrecorded(DELETE, "/v1/storm", Class::Other, ADMIN, |m| on(m, storm::stop)),
    unrecorded(GET, "/health", Class::Other, OPEN, |m| on(m, operations::health)),
    unrecorded(GET, "/ready", Class::Other, OPEN, |m| on(m, operations::ready)),
    unrecorded(GET, "/metrics", Class::Other, READ, |m| on(m, operations::metrics)),
    unrecorded(GET, "/openapi.json", Class::Other, OPEN, |m| on(m, operations::openapi)),
    unrecorded(GET, "/", Class::Other, OPEN, |m| on(m, page::home)),
    unrecorded(GET, "/_/", Class::Other, OPEN, |m| on(m, page::index)),
    unrecorded(GET, "/_/live", Class::Other, READ, |m| on(m, page::live)),
    unrecorded(GET, "/_/{file}", Class::Other, OPEN, |m| on(m, page::file)),
    // All other paths, which `pages` answers before they reach the router.
    page(),
];

/// Builds the router of all routes.
pub fn router() -> Router<Shared> {
    ROUTES.iter().fold(Router::new(), |router, route| match route.handler {
        Some(handler) => router.route(route.path, handler(route.filter())),
        None => router,
    })
}

impl Route {
    fn filter(&self) -> MethodFilter {
        MethodFilter::try_from(self.method.clone()).expect("the table has methods that axum knows")
    }

    /// Returns true if the route's query string is read by its handler, or ignored as for the page's files. All other routes
    /// refuse one.
    pub fn reads_query(&self) -> bool {
        let is_get = self.method == Method::GET;
        match self.path {
            "/v1/tables/{table}/rows"
            | "/v1/tables/{table}/commit"
            | "/v1/copy"
            | "/v1/rows"
            | "/v1/logs" => true,
            "/v1/tables/{table}/erase" | "/v1/tables/{table}/maintain" | "/v1/tables/{table}/lake/files" => {
                true
            }
            "/v1/tables/{table}/tail" | "/v1/tables/{table}/watermarks" | "/v1/storm" => is_get,
            // The handler of POST explains why it refuses a query string.
            "/v1/tables/{table}/search" | "/v1/search" => true,
            "/" | "/_/" | "/_/{file}" | "/{page}" => true,
            // Clients of the Iceberg catalog may send parameters that this server does not know.
            path => path.starts_with(iceberg::PREFIX),
        }
    }

    /// Returns true if the route handles an `Idempotency-Key` or may ignore it. All other routes refuse one.
    pub fn takes_key(&self) -> bool {
        match self.path {
            "/v1/tables/{table}/rows" | "/v1/rows" | "/v1/transactions" | "/v1/logs" => true,
            // A request that only reads may always be sent again.
            _ if self.method == Method::GET => true,
            // Clients of the Iceberg catalog may send a key with a commit, whose own requirements make a retry safe.
            path => path.starts_with(iceberg::PREFIX),
        }
    }
}
