//! The routes: the table of all routes, and the path of a request through them.

mod ask;
pub mod copy;
mod cursors;
pub mod define;
pub mod iceberg;
mod incoming;
pub(crate) mod lake;
mod operations;
mod otlp;
mod page;
pub mod rows;
pub mod search;
mod sql;
mod storm;
mod suggestions;
mod table;
mod tail;
mod transactions;
mod write;

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tower::ServiceExt;
use types::Scope;

use crate::app::{App, Shared};
use crate::auth::{self, Admitted, Peer};
use crate::connection::{Connection, Phase};
use crate::failure::Failure;
use crate::http2;
use crate::idempotency;
use crate::input;
use crate::protocol;
use crate::record::RequestNote;
use crate::revocation::{self, Revoked};
use crate::telemetry::Class;
pub use table::{ROUTES, Route};
pub use write::AHEAD_MAX;

/// The route that is recorded for a request without a route, because a client may send any text as the path.
const NO_ROUTE: &str = "(none)";
/// Characters of a method that are recorded, because a client may send any word as the method.
const METHOD_CHARS_MAX: usize = 20;

pub fn router(app: &Shared) -> Router {
    table::router()
        .method_not_allowed_fallback(|method: Method, matched: MatchedPath| async move {
            let path = matched.as_str();
            refused(path, Failure::method_not_allowed(method.as_str(), &suggestions::methods(path)))
        })
        .route_layer(from_fn_with_state(app.clone(), admit))
        .fallback(any(|request: Request<Body>| async move {
            let path = request.uri().path();
            refused(path, Failure::no_route(path, suggestions::path(path)))
        }))
        .with_state(app.clone())
}

/// Makes the answer to a request that is refused before its handler runs, in the error format of the API that `path` belongs to.
fn refused(path: &str, failure: Failure) -> Response {
    if path.starts_with(iceberg::PREFIX) {
        iceberg::problem::Problem::from(failure).into_response()
    } else {
        failure.into_response()
    }
}

/// The results of authentication, which travel with the answer to the place where it is counted and recorded.
#[derive(Clone, Debug)]
struct RouteMatch {
    route: &'static Route,
    /// `None` if the request was refused or the route is open.
    asker: Option<Admitted>,
}

/// Marks an answer whose request must not be recorded, because it reads the records.
#[derive(Clone, Copy, Debug)]
struct Unrecorded;

/// Marks an answer without end.
#[derive(Clone, Copy, Debug)]
struct Endless;

async fn admit(
    State(app): State<Shared>,
    matched: MatchedPath,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let Some(route) = ROUTES.iter().find(|r| r.path == matched.as_str() && r.method == *method) else {
        return next.run(request).await;
    };
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Arc<Connection>>().expect("set for each request").peer;
    let (asker, answered) = match admitted(&app, route, peer, &parts) {
        Ok(None) => (None, Ok(next.run(Request::from_parts(parts, body)).await)),
        Ok(Some(asker)) => {
            parts.extensions.insert(Arc::new(asker.principal.clone()));
            parts.extensions.insert(asker.clone());
            let answer = next.run(Request::from_parts(parts, body));
            let answered = revocation::unless_revoked(&app, &asker, answer).await;
            (Some(asker), answered)
        }
        Err(failure) => (None, Err(failure)),
    };
    let mut response = answered.unwrap_or_else(|failure| refused(route.path, failure));
    response.extensions_mut().insert(RouteMatch { route, asker });
    response
}

/// Authenticates and authorizes a request for `route`. Returns `None` if the route is open and there are keys. Also refuses
/// forms, and a query string or Idempotency-Key on routes that take none.
fn admitted(app: &App, route: &Route, peer: Peer, parts: &Parts) -> Result<Option<Admitted>, Failure> {
    let root = app.engine.root();
    let admitted = match route.scope {
        // While there are no keys, even the page is not open to everybody. Health always is.
        None if !root.keys().is_empty() || matches!(route.path, "/health" | "/ready") => Ok(None),
        scope => auth::principal(root.keys(), app.options.owner_hash, peer, parts)
            .and_then(|admitted| match scope {
                // Admin routes concern the whole process, so a key that is limited to some tables is refused.
                Some(Scope::Admin) => {
                    admitted.principal.require_unlimited().map(|()| admitted).map_err(Failure::from)
                }
                Some(scope) => admitted.principal.require(scope).map(|()| admitted).map_err(Failure::from),
                None => Ok(admitted),
            })
            .map(Some),
    };
    drop(root);
    let admitted = admitted?;
    input::refuse_form(&parts.method, &parts.headers)?;
    if !route.reads_query() {
        input::refuse_query(&parts.uri)?;
    }
    if !route.takes_key() {
        idempotency::refuse_key(&parts.headers, &route.method, route.path)?;
    }
    Ok(admitted)
}

/// Handles `POST /v1/tables/{table}/rows` without the router. The router looks for a handler among all routes, boxes the request
/// between its layers and adds extensions, which is a good part of the cost of a small request. Authentication and checks are
/// those of [`admit`].
async fn insert_rows(
    app: &Shared,
    connection: &Arc<Connection>,
    parts: &Parts,
    body: Incoming,
    table: &str,
) -> (Response, RouteMatch) {
    static ROUTE: LazyLock<&Route> = LazyLock::new(|| {
        let is_it = |route: &&Route| route.method == Method::POST && route.path == "/v1/tables/{table}/rows";
        ROUTES.iter().find(is_it).expect("there is such a route")
    });
    let (route, body) = (*ROUTE, TrackedBody { body, connection: connection.clone() });
    let asker = match admitted(app, route, connection.peer, parts) {
        Ok(admitted) => admitted.expect("the route is open to nobody without a key"),
        Err(failure) => return (refused(route.path, failure), RouteMatch { route, asker: None }),
    };
    let principal = Arc::new(asker.principal.clone());
    let taken = write::insert_rows(app.clone(), principal, &asker, table, parts, body);
    let response = revocation::unless_revoked(app, &asker, taken).await.and_then(|taken| taken);
    (response.into_response(), RouteMatch { route, asker: Some(asker) })
}

/// Handles a request: finds its answer, counts it, and watches the connection's phase.
pub async fn handle(
    app: Shared,
    router: Router,
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
) -> Response<AnswerBody> {
    connection.enter(Phase::Working);
    connection.requests.fetch_add(1, Relaxed);
    let running = Running::new(app.clone());
    let started = Instant::now();
    let method = request.method().clone();
    let bytes_in = request.body().size_hint().exact().unwrap_or(0);
    connection.unread.store(!request.body().is_end_stream(), Relaxed);
    let admitted = if connection.is_stream() { http2::admit(&mut request, &app) } else { Ok(()) };
    let refused = admitted
        .and_then(|()| protocol::refuse_ambiguous(request.uri(), request.version(), request.headers()))
        .err();
    let (mut parts, body) = request.into_parts();
    let page = match refused {
        Some(_) => None,
        None => crate::pages::answer(&app, &parts, connection.peer).await,
    };
    // The path is needed only for the record.
    let is_page = page.is_some();
    let path = (!is_page && app.recorder.is_on()).then(|| parts.uri.path().to_owned());
    let (mut response, route_match) = match (page, refused) {
        (_, Some(failure)) => {
            let mut response = failure.into_response();
            if !connection.is_stream() {
                // It is not certain where the ambiguous request ends, so no further one is read from the connection.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            (response, None)
        }
        (Some(response), None) => (response, Some(RouteMatch { route: &table::PAGE, asker: None })),
        (None, None) => match write::table_of_rows(&parts) {
            Some(table) => {
                let (response, route_match) = insert_rows(&app, &connection, &parts, body, table).await;
                (response, Some(route_match))
            }
            None => {
                parts.extensions.insert(connection.clone());
                let body = Body::new(TrackedBody { body, connection: connection.clone() });
                match router.oneshot(Request::from_parts(parts, body)).await {
                    Ok(mut response) => {
                        let route_match = response.extensions_mut().remove::<RouteMatch>();
                        (response, route_match)
                    }
                    Err(never) => match never {},
                }
            }
        },
    };
    if !is_page {
        protocol::add_default_headers(response.headers_mut());
    }
    let duration = started.elapsed();
    let class = route_match.as_ref().map_or(Class::Other, |route_match| route_match.route.class);
    app.telemetry.answered(class, response.status().as_u16(), duration);
    if connection.unread.load(Relaxed) && !connection.is_stream() {
        // The unread rest of the body precedes the next request, and is not worth reading.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let recorded = response.extensions_mut().remove::<Unrecorded>().is_none();
    let recorded = recorded && route_match.as_ref().is_none_or(|route_match| route_match.route.recorded);
    let note = (recorded && app.recorder.has_room(&app.telemetry)).then(|| {
        let route = route_match.as_ref().map_or(NO_ROUTE, |route_match| route_match.route.path);
        let table = route_match.as_ref().and(path.as_deref()).and_then(table_of);
        // Reading the records must not fill them. This applies to reads only, or a reserved table name would hide any request.
        let moves_cursor =
            route_match.as_ref().is_some_and(|route_match| route_match.route.path.contains("/cursors/"));
        let about_itself = (method == Method::GET || moves_cursor)
            && response.status().is_success()
            && table.as_deref().is_some_and(types::name::is_reserved);
        (!about_itself).then(|| RequestNote {
            time: app.engine.env().clock.now() - duration.as_micros() as i64,
            method: method.as_str().chars().take(METHOD_CHARS_MAX).collect(),
            route,
            status: response.status().as_u16(),
            duration,
            bytes_in,
            bytes_out: 0,
            principal: route_match
                .as_ref()
                .and_then(|route_match| route_match.asker.as_ref())
                .map(|a| a.principal.name.clone()),
            table,
        })
    });
    let note = note.flatten();
    let endless = response.extensions_mut().remove::<Endless>().is_some();
    connection.enter(if endless { Phase::Following } else { Phase::Answering });
    response.map(|body| {
        // A feed checks its key itself and reports the removal. A complete body needs no check.
        let is_complete = endless || body.size_hint().exact().is_some();
        let asker = route_match.and_then(|route_match| route_match.asker).filter(|_| !is_complete);
        let revoked = asker.map(|asker| revocation::watch_answer(running.0.clone(), asker));
        AnswerBody { body, rest: Bytes::new(), bytes: 0, note, revoked, connection, running }
    })
}

/// Returns the table that a path names, as the request spelled it.
fn table_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/tables/")?;
    let table = rest.split('/').next()?;
    // The name is recorded as it was sent (it may be percent-encoded), cut to the length of a name.
    Some(table.chars().take(types::name::PART_CHARS_MAX).collect())
}

/// Counts a request as running until its answer is dropped.
struct Running(Shared);

impl Running {
    fn new(app: Shared) -> Self {
        app.telemetry.requests_running.fetch_add(1, Relaxed);
        Running(app)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.telemetry.requests_running.fetch_sub(1, Relaxed);
    }
}

/// The body of a request. Clears the connection's `unread` flag when all of it was read.
struct TrackedBody {
    body: Incoming,
    connection: Arc<Connection>,
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.connection.unread.store(false, Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. When it is dropped, the connection is between requests again and the request is recorded.
pub struct AnswerBody {
    body: Body,
    /// The rest of the last frame of an HTTP/2 answer, which is handed over in pieces.
    rest: Bytes,
    bytes: u64,
    note: Option<RequestNote>,
    /// Aborts the answer when it resolves.
    revoked: Option<Revoked>,
    connection: Arc<Connection>,
    running: Running,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(revoked) = &mut self.revoked
            && revoked.as_mut().poll(cx).is_ready()
        {
            (self.revoked, self.body, self.rest) = (None, Body::empty(), Bytes::new());
            return Poll::Ready(Some(Err(axum::Error::new("the key was removed or changed"))));
        }
        if !self.connection.is_stream() {
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            if let Poll::Ready(Some(Ok(frame))) = &frame
                && let Some(data) = frame.data_ref()
            {
                self.bytes += data.len() as u64;
            }
            return frame;
        }
        // hyper polls for more only after the client has taken the last piece.
        self.connection.set_blocked(false);
        if self.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = self.rest.len().min(http2::PIECE_BYTES);
        let piece = self.rest.split_to(piece);
        self.bytes += piece.len() as u64;
        self.connection.set_blocked(true);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut total = SizeHint::new();
        total.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            total.set_upper(upper + rest);
        }
        total
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.connection.enter(Phase::Idle);
        let app = &self.running.0;
        app.telemetry.bytes_out.fetch_add(self.bytes, Relaxed);
        if let Some(mut note) = self.note.take() {
            note.bytes_out = self.bytes;
            app.recorder.note(note, &app.telemetry);
        }
    }
}

/// Returns a JSON answer.
pub fn json(value: &serde_json::Value) -> Response {
    let mut text = value.to_string();
    text.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Converts a duration to milliseconds with three decimals.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests;
