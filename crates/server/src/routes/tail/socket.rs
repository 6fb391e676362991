//! The change feed over a WebSocket: `{"event":"insert","lsn":…,"row":{…}}`, `"delete"` with the row's `_row_id`, and after whole
//! commits `{"event":"resume","lsn":…}`, with the lsn from which a client may resume (`?after=`).
//!
//! The client sends nothing but pings, pongs and a close frame. The next piece of the feed is read only after the one before was
//! written to the socket, so there is no queue. The connection is counted like any other, and is ended if its client stops
//! reading.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use futures::SinkExt;
use http::{Request, StatusCode};
use serde_json::json;
use types::Error;

use super::encoder::Messages;
use super::feed::{Feed, HEARTBEAT};
use crate::auth;
use crate::connection::{Connection, Phase};
use crate::failure::{Failure, Result};
use crate::routes::Endless;
use crate::telemetry::Close;

/// Maximum bytes of a message of the client. Control frames have at most 125 bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const READ_BUFFER_BYTES: usize = 4 << 10;
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Time that the server waits for the client's close frame.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum bytes of the reason in a close frame.
const REASON_BYTES_MAX: usize = 123;

/// Answers the handshake. The feed begins once the connection is a WebSocket.
pub async fn open(request: Request<Body>, feed: Feed) -> Result<Response> {
    let (mut parts, _) = request.into_parts();
    let connection = parts.extensions.get::<Arc<Connection>>().expect("set for each request").clone();
    let refuse = |why: String| Failure::from(Error::invalid(why).hint("RFC 6455 defines the handshake"));
    if connection.is_stream() {
        let hint = "open a WebSocket over HTTP/1.1; over HTTP/2 the feed comes as server-sent events";
        return Err(Error::invalid("a WebSocket is not opened over HTTP/2").hint(hint).into());
    }
    if connection.unread.load(Relaxed) {
        return Err(refuse("a WebSocket handshake has no body".to_owned()));
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|e| refuse(format!("this is not a WebSocket handshake: {e}")))?;
    let mut response = upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .protocols([auth::WEBSOCKET_PROTOCOL])
        .on_upgrade(move |socket| serve_feed(socket, feed, connection));
    response.extensions_mut().insert(Endless);
    Ok(response)
}

async fn serve_feed(mut socket: WebSocket, feed: Feed, connection: Arc<Connection>) {
    connection.enter(Phase::Talking);
    let app = feed.app.clone();
    let feed_end = tokio::select! {
        feed_end = follow(&mut socket, feed) => feed_end,
        reason = connection.ended_by_limit() => FeedEnd::OverLimit(reason),
    };
    let (code, reason) = match feed_end {
        FeedEnd::Close(code, reason) => (code, reason),
        FeedEnd::OverLimit(reason) => return app.telemetry.closed(reason),
        FeedEnd::ClientGone => (close_code::NORMAL, String::new()),
    };
    if code == close_code::AWAY {
        app.telemetry.closed(Close::Stop);
    }
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let frame = CloseFrame { code, reason: Utf8Bytes::from(&reason[..end]) };
    let close = async {
        // The error is ignored, because a client that is gone needs no close frame.
        let _ = socket.send(Message::Close(Some(frame))).await;
        while let Some(Ok(_)) = socket.recv().await {}
    };
    let _ = tokio::time::timeout(CLOSE_WAIT_MAX, close).await;
}

/// The end of a feed over a WebSocket.
enum FeedEnd {
    /// The server closes the WebSocket with this code and reason.
    Close(u16, String),
    /// The client closed it or is gone.
    ClientGone,
    /// The client broke a limit.
    OverLimit(Close),
}

type Piece = Option<Vec<Utf8Bytes>>;

/// Returns the next piece of the feed. The future owns the feed, so that `select!` can poll it again and loses no changes.
async fn next(mut feed: Feed) -> (Feed, Result<Piece>) {
    let piece = feed.next::<Messages>().await;
    (feed, piece)
}

async fn follow(socket: &mut WebSocket, feed: Feed) -> FeedEnd {
    let app = feed.app.clone();
    let silence_max = app.options.answer_pause_max;
    let heartbeat = HEARTBEAT.min(silence_max / 4);
    let mut pings = tokio::time::interval(heartbeat);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Sent rows and received pongs both prove that the client is alive. A client that does not read blocks the socket, which the
    // connection's time limits cover.
    let mut last_heard = Instant::now();
    let mut piece = Box::pin(next(feed));
    loop {
        tokio::select! {
            (feed, next_piece) = &mut piece => {
                match next_piece {
                    Ok(Some(messages)) => {
                        if messages.len() > 1 {
                            last_heard = Instant::now();
                        }
                        for message in messages {
                            app.telemetry.bytes_out.fetch_add(message.len() as u64, Relaxed);
                            if socket.feed(Message::Text(message)).await.is_err() {
                                return FeedEnd::ClientGone;
                            }
                        }
                        if socket.flush().await.is_err() {
                            return FeedEnd::ClientGone;
                        }
                    }
                    Ok(None) => return FeedEnd::Close(close_code::AWAY, "the server stops".to_owned()),
                    Err(failure) => return refuse(socket, &failure).await,
                }
                piece = Box::pin(next(feed));
            }
            message = socket.recv() => match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => last_heard = Instant::now(),
                Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                    let reason = "the feed takes no messages; open a new one with another `after`";
                    return FeedEnd::Close(close_code::UNSUPPORTED, reason.to_owned());
                }
                Some(Ok(Message::Close(_))) | None => return FeedEnd::ClientGone,
                // The client sent bytes that are not frames, or a message over the limit.
                Some(Err(error)) => return FeedEnd::Close(close_code::PROTOCOL, error.to_string()),
            },
            _ = pings.tick() => {
                if last_heard.elapsed() > silence_max {
                    return FeedEnd::OverLimit(Close::StalledReader);
                }
                if socket.send(Message::Ping(Default::default())).await.is_err() {
                    return FeedEnd::ClientGone;
                }
            }
        }
    }
}

/// Sends the error as an event, and chooses the close code: a policy violation for a revoked key, else 4000 plus the error's
/// status.
async fn refuse(socket: &mut WebSocket, failure: &Failure) -> FeedEnd {
    let last = json!({ "event": "error", "error": failure.to_json() }).to_string();
    if socket.send(Message::Text(last.into())).await.is_err() {
        return FeedEnd::ClientGone;
    }
    let code = match failure.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => close_code::POLICY,
        status => 4_000 + status.as_u16(),
    };
    FeedEnd::Close(code, failure.message().to_owned())
}
