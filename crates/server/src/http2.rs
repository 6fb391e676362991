//! HTTP/2, for clients that begin with it (prior knowledge): many requests at once over one connection.
//!
//! Each stream is a [`Connection`] of its own, so that phases, limits and counts are those of HTTP/1.1. What a client does
//! with one stream ends that stream; what it does with its socket ends them all. hyper runs each stream as a future that
//! [`Streams`] spawns, which is how one can be ended alone. A WebSocket is opened over HTTP/1.1.

use std::sync::Arc;

use http::header;
use http::uri::Authority;
use http::{HeaderValue, Request};
use hyper::rt::Executor;
use hyper::server::conn::http2;

use crate::app::Shared;
use crate::connection::Connection;
use crate::failure::Failure;

/// Requests at once over one connection.
const STREAMS_MAX: u32 = 128;
/// What a client may send of a body, and of all bodies of a connection, before it was read.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What waits to be sent of one answer; more of it is not asked for.
const SEND_BYTES_MAX: usize = 128 << 10;
/// Pieces in which answers are handed over: what their client does not take is not taken from them either.
pub const PIECE_BYTES: usize = 64 << 10;

tokio::task_local! {
    static STREAM: Arc<Connection>;
}

/// Within what hyper does for a stream: the stream.
pub fn stream() -> Arc<Connection> {
    STREAM.with(Arc::clone)
}

pub fn builder(app: &Shared, connection: &Arc<Connection>) -> http2::Builder<Streams> {
    let streams = Streams { app: app.clone(), connection: connection.clone() };
    let mut http = http2::Builder::new(streams);
    http.max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_header_list_size(u32::try_from(app.options.head_bytes_max).unwrap_or(u32::MAX));
    http
}

/// Runs the streams of a connection, each until it is answered or overdue.
#[derive(Clone)]
pub struct Streams {
    app: Shared,
    connection: Arc<Connection>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, answering: F) {
        let (app, stream) = (self.app.clone(), self.connection.open_stream());
        tokio::spawn(STREAM.scope(stream.clone(), async move {
            tokio::select! {
                () = answering => {}
                // Dropping what answers resets the stream.
                reason = stream.ended() => app.telemetry.closed(reason),
            }
        }));
    }
}

/// Brings the head of a stream's request to what the rest of the server expects, which is HTTP/1.1's; refuses one over the
/// limits that hyper does not know here.
pub fn admit<B>(request: &mut Request<B>, app: &Shared) -> Result<(), Failure> {
    let authority = request.uri().authority().map(Authority::as_str).map(HeaderValue::from_str);
    if let Some(Ok(host)) = authority {
        // It says which host is meant, whatever else is sent.
        request.headers_mut().insert(header::HOST, host);
    }
    if request.headers().len() > app.options.headers_max {
        return Err(Failure::head_too_large(app.options.headers_max));
    }
    let running = app.telemetry.requests_running.load(std::sync::atomic::Ordering::Relaxed);
    if running > app.options.connections_max {
        return Err(Failure::too_many_requests_at_once());
    }
    Ok(())
}
