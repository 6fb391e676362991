//! HTTP/2 with prior knowledge, for clients that begin with its preface: many requests at once over one connection.
//!
//! Each stream is a [`Connection`] of its own, so that it has the phases, limits and counts of HTTP/1.1. A limit that a client
//! breaks with one stream ends that stream; one that it breaks with its socket ends them all. hyper runs each stream as a future
//! that [`Streams`] spawns, which makes it possible to end a single stream. A WebSocket can be opened over HTTP/1.1 only.

use std::sync::Arc;

use http::header;
use http::uri::Authority;
use http::{HeaderValue, Request};
use hyper::rt::Executor;
use hyper::server::conn::http2;

use crate::app::Shared;
use crate::connection::Connection;
use crate::failure::Failure;

/// Maximum number of concurrent requests of one connection.
const STREAMS_MAX: u32 = 128;
/// Bytes of one body that a client may send before the server reads them.
const STREAM_WINDOW: u32 = 512 << 10;
/// Bytes of all bodies of a connection that a client may send before the server reads them.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of one answer that may be buffered for sending. The answer is not polled for more until they are sent.
const SEND_BYTES_MAX: usize = 128 << 10;
/// Bytes of the pieces in which answers are handed to hyper. While a client does not read, no further piece is taken from the
/// answer.
pub const PIECE_BYTES: usize = 64 << 10;

tokio::task_local! {
    static STREAM: Arc<Connection>;
}

/// Returns the stream that is served. May only be called inside a future that [`Streams`] runs.
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

/// Spawns the streams of a connection. Each runs until it is answered or overdue.
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
                // Dropping the future resets the stream.
                reason = stream.ended() => app.telemetry.closed(reason),
            }
        }));
    }
}

/// Converts the head of a stream's request into the form of HTTP/1.1, which the rest of the server expects. Refuses a request
/// over the limits that hyper does not check here.
pub fn admit<B>(request: &mut Request<B>, app: &Shared) -> Result<(), Failure> {
    let authority = request.uri().authority().map(Authority::as_str).map(HeaderValue::from_str);
    if let Some(Ok(host)) = authority {
        // `:authority` names the host, and replaces any `Host` header.
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
