//! A change feed over a WebSocket: `{"event":"insert","lsn":…,"row":{…}}`, `"delete"` with the row's `_row_id`, and
//! `{"event":"resume","lsn":…}` behind whole commits, from whose lsn a client may resume (`?after=`).
//!
//! The client says nothing but pings, pongs and its farewell. The next piece of the feed is read when the one before is in the
//! socket, so there is no queue. The connection counts, and ends when it is not read, as any other.

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

use super::feed::{Feed, HEARTBEAT};
use super::form::Messages;
use crate::auth;
use crate::connection::{Connection, Phase};
use crate::failure::{Failure, Result};
use crate::routes::Follows;
use crate::telemetry::Close;

/// What a client may send at once: control frames are at most 125 bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const READ_BUFFER_BYTES: usize = 4 << 10;
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// How long the client's farewell is waited for.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Of a close frame's reason.
const REASON_BYTES_MAX: usize = 123;

/// Answers a handshake, and lets the feed begin when the connection is a WebSocket.
pub async fn open(request: Request<Body>, feed: Feed) -> Result<Response> {
    let (mut parts, _) = request.into_parts();
    let connection = parts.extensions.get::<Arc<Connection>>().expect("set for each request").clone();
    let refuse = |why: String| Failure::from(Error::invalid(why).hint("RFC 6455 has the handshake"));
    if connection.is_stream() {
        let hint = "open a WebSocket over HTTP/1.1; over HTTP/2 the feed comes as server-sent events";
        return Err(Error::invalid("a WebSocket is not opened over HTTP/2").hint(hint).into());
    }
    if connection.unread.load(Relaxed) {
        return Err(refuse("a WebSocket's handshake has no body".to_owned()));
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|e| refuse(format!("this is no WebSocket's handshake: {e}")))?;
    let mut response = upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .protocols([auth::WEBSOCKET_PROTOCOL])
        .on_upgrade(move |socket| talk(socket, feed, connection));
    response.extensions_mut().insert(Follows);
    Ok(response)
}

async fn talk(mut socket: WebSocket, feed: Feed, connection: Arc<Connection>) {
    connection.enter(Phase::Talking);
    let app = feed.app.clone();
    let farewell = tokio::select! {
        farewell = follow(&mut socket, feed) => farewell,
        reason = connection.cut() => Farewell::Cut(reason),
    };
    let (code, reason) = match farewell {
        Farewell::Said(code, reason) => (code, reason),
        Farewell::Cut(reason) => return app.telemetry.closed(reason),
        Farewell::Heard => (close_code::NORMAL, String::new()),
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
        // Whoever is gone already needs no farewell.
        let _ = socket.send(Message::Close(Some(frame))).await;
        while let Some(Ok(_)) = socket.recv().await {}
    };
    let _ = tokio::time::timeout(FAREWELL_MAX, close).await;
}

/// How a feed over a WebSocket ends.
enum Farewell {
    /// We say why.
    Said(u16, String),
    /// The client closed it, or is gone.
    Heard,
    /// It broke a limit.
    Cut(Close),
}

type Piece = Option<Vec<Utf8Bytes>>;

/// Owns the feed, so that what it was about to tell is not lost when something else comes first.
async fn next(mut feed: Feed) -> (Feed, Result<Piece>) {
    let piece = feed.next::<Messages>().await;
    (feed, piece)
}

async fn follow(socket: &mut WebSocket, feed: Feed) -> Farewell {
    let app = feed.app.clone();
    let silence_max = app.options.answer_pause_max;
    let heartbeat = HEARTBEAT.min(silence_max / 4);
    let mut pings = tokio::time::interval(heartbeat);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Rows that were taken show that somebody is there, as pongs do. One who takes none holds up the socket, which is watched.
    let mut heard = Instant::now();
    let mut piece = Box::pin(next(feed));
    loop {
        tokio::select! {
            (feed, told) = &mut piece => {
                match told {
                    Ok(Some(messages)) => {
                        if messages.len() > 1 {
                            heard = Instant::now();
                        }
                        for message in messages {
                            app.telemetry.bytes_out.fetch_add(message.len() as u64, Relaxed);
                            if socket.feed(Message::Text(message)).await.is_err() {
                                return Farewell::Heard;
                            }
                        }
                        if socket.flush().await.is_err() {
                            return Farewell::Heard;
                        }
                    }
                    Ok(None) => return Farewell::Said(close_code::AWAY, "the server stops".to_owned()),
                    Err(failure) => return refuse(socket, &failure).await,
                }
                piece = Box::pin(next(feed));
            }
            message = socket.recv() => match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => heard = Instant::now(),
                Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                    let reason = "the feed takes no messages; ask for it anew with another `after`";
                    return Farewell::Said(close_code::UNSUPPORTED, reason.to_owned());
                }
                Some(Ok(Message::Close(_))) | None => return Farewell::Heard,
                // No frames of a client, or more than one of them may hold.
                Some(Err(error)) => return Farewell::Said(close_code::PROTOCOL, error.to_string()),
            },
            _ = pings.tick() => {
                if heard.elapsed() > silence_max {
                    return Farewell::Cut(Close::StalledReader);
                }
                if socket.send(Message::Ping(Default::default())).await.is_err() {
                    return Farewell::Heard;
                }
            }
        }
    }
}

/// Says why the feed ends, as an event and by the code: that of the key is a policy's, others are 4000 and the error's status.
async fn refuse(socket: &mut WebSocket, failure: &Failure) -> Farewell {
    let last = json!({ "event": "error", "error": failure.to_json() }).to_string();
    if socket.send(Message::Text(last.into())).await.is_err() {
        return Farewell::Heard;
    }
    let code = match failure.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => close_code::POLICY,
        status => 4_000 + status.as_u16(),
    };
    Farewell::Said(code, failure.message().to_owned())
}
