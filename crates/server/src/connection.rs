//! One connection: its phase, its time limits, and the stream that notices what happens on the socket.
//!
//! hyper has a timeout for request heads only, and a timer for each request costs more than a look at all connections once a
//! second. So each connection keeps its phase in atomics, and [`Sweeper::sweep`] ends those that stay in one phase for too long.
//! Over HTTP/2 many requests share a connection: each of its streams is a [`Connection`] of its own, with the same phases.

use std::pin::Pin;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io};

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use vfs::{Mutex, Rank};

use crate::app::Shared;
use crate::auth::Peer;
use crate::options::Options;
use crate::protocol;
use crate::telemetry::Close;

/// The phase of a connection, which decides its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The connection is between requests.
    Idle = 0,
    /// A part of a request's line and headers has arrived.
    Head = 1,
    /// The request is being read and handled. Its body has its own time limit.
    Working = 2,
    /// The answer is being sent.
    Answering = 3,
    /// An answer without end is being sent. It has no time limit, unless its reader stops reading.
    Following = 4,
    /// An HTTP/2 connection, whose streams carry the requests. It is idle while no stream is open.
    Carrying = 5,
    /// A WebSocket, for the rest of the connection. It has no time limit, unless its reader stops reading.
    Talking = 6,
}

#[derive(Debug)]
pub struct Connection {
    pub peer: Peer,
    opened: Instant,
    phase: AtomicU8,
    /// Milliseconds after `opened` at which the phase began.
    since_ms: AtomicU64,
    /// Milliseconds after `opened` since which a write waits for the client; 0 if no write waits.
    blocked_ms: AtomicU64,
    pub requests: AtomicU32,
    /// True if a request's body was not read to its end, so that the client may still be sending it.
    pub unread: AtomicBool,
    /// Wakes the task that waits in [`Connection::ended`]. Each poll of a connection reads `end_reason`, so neither is behind a
    /// lock.
    ended: AtomicWaker,
    /// The reason why the connection has to end, or [`NOT_ENDED`].
    end_reason: AtomicU8,
    /// The socket, if it was dropped while its client may still be sending. See [`linger`].
    leftover: Mutex<Option<(TcpStream, OpenGuard)>>,
    /// The open streams of an HTTP/2 connection.
    streams: Mutex<Vec<Weak<Connection>>>,
    /// The HTTP/2 connection that this stream is part of; `None` for a connection.
    carrier: Option<Arc<Connection>>,
}

impl Connection {
    pub fn new(peer: Peer) -> Arc<Self> {
        Arc::new(Connection::in_phase(Phase::Idle, peer, None))
    }

    /// Opens a stream of an HTTP/2 connection: one request and its answer.
    pub fn open_stream(self: &Arc<Self>) -> Arc<Self> {
        let stream = Arc::new(Connection::in_phase(Phase::Working, self.peer, Some(self.clone())));
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        drop(streams);
        stream
    }

    fn in_phase(phase: Phase, peer: Peer, carrier: Option<Arc<Connection>>) -> Self {
        Connection {
            peer,
            opened: Instant::now(),
            phase: AtomicU8::new(phase as u8),
            since_ms: AtomicU64::new(0),
            blocked_ms: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            unread: AtomicBool::new(false),
            ended: AtomicWaker::new(),
            end_reason: AtomicU8::new(NOT_ENDED),
            leftover: Mutex::new(Rank::new(14, "server leftover socket"), None),
            streams: Mutex::new(Rank::new(15, "server streams"), Vec::new()),
            carrier,
        }
    }

    /// Returns true for a stream of an HTTP/2 connection.
    pub fn is_stream(&self) -> bool {
        self.carrier.is_some()
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    pub fn enter(&self, phase: Phase) {
        // The answer to the handshake may end after the WebSocket has begun.
        if self.phase.load(Relaxed) == Phase::Talking as u8 {
            return;
        }
        self.since_ms.store(self.now_ms(), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    /// Notes that bytes arrived. Between requests they begin a new one.
    fn note_bytes(&self) {
        if self.phase.load(Relaxed) == Phase::Idle as u8 {
            self.enter(Phase::Head);
        }
    }

    /// Returns true if a write waits for the client.
    pub fn is_blocked(&self) -> bool {
        self.blocked_ms.load(Relaxed) != 0
    }

    /// Sets whether a write waits for the client. The time since it waits is kept while the state does not change.
    pub fn set_blocked(&self, blocked: bool) {
        match (blocked, self.is_blocked()) {
            (true, false) => self.blocked_ms.store(self.now_ms().max(1), Relaxed),
            (false, true) => self.blocked_ms.store(0, Relaxed),
            _ => {}
        }
    }

    /// Returns the reason to end the connection if it has exceeded a time limit.
    fn overdue(&self, options: &Options) -> Option<Close> {
        let now = self.now_ms();
        let since = |ms: u64| Duration::from_millis(now.saturating_sub(ms));
        let blocked = self.blocked_ms.load(Relaxed);
        if blocked > 0 && since(blocked) > options.answer_pause_max {
            return Some(Close::StalledReader);
        }
        let spent = since(self.since_ms.load(Relaxed));
        match self.phase.load(Relaxed) {
            0 if spent > options.idle_time_max => Some(Close::Idle),
            1 if spent > options.head_time_max => Some(Close::SlowHead),
            3 if spent > options.answer_time_max => Some(Close::SlowReader),
            5 if spent > options.idle_time_max && self.is_free() => Some(Close::Idle),
            _ => None,
        }
    }

    /// Returns true if no stream is open.
    fn is_free(&self) -> bool {
        self.streams.lock().iter().all(|stream| stream.strong_count() == 0)
    }

    fn end(&self, reason: Close) {
        self.end_reason.store(reason as u8, Release);
        self.ended.wake();
    }

    /// Ends the streams that are overdue. The other streams of the connection go on.
    fn sweep_streams(&self, options: &Options) {
        let open: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
        for stream in open {
            if let Some(reason) = stream.overdue(options) {
                stream.end(reason);
            }
        }
    }

    /// Resolves like [`Connection::ended`], but ignores a stop of the server. For answers that notice the stop themselves and
    /// have a last message to send.
    pub async fn ended_by_limit(&self) -> Close {
        loop {
            let reason = self.ended().await;
            if reason != Close::Stop {
                return reason;
            }
        }
    }

    /// Resolves with the reason each time that [`Sweeper::sweep`] finds the connection overdue, and when the server stops. Only
    /// one task may wait at a time.
    pub async fn ended(&self) -> Close {
        std::future::poll_fn(|cx| {
            self.ended.register(cx.waker());
            match self.end_reason.swap(NOT_ENDED, AcqRel) {
                NOT_ENDED => Poll::Pending,
                reason => Poll::Ready(Close::ALL.get(usize::from(reason)).copied().unwrap_or(Close::Stop)),
            }
        })
        .await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // From now on the connection may be idle, so its idle time starts here.
        if let Some(carrier) = &self.carrier {
            carrier.since_ms.store(carrier.now_ms(), Relaxed);
        }
    }
}

/// The value of `end_reason` while there is no reason to end.
const NOT_ENDED: u8 = u8::MAX;

/// Finds and ends the connections that are overdue.
#[derive(Debug, Default)]
pub struct Sweeper {
    connections: Vec<Weak<Connection>>,
}

impl Sweeper {
    pub fn add(&mut self, connection: &Arc<Connection>) {
        self.connections.push(Arc::downgrade(connection));
    }

    /// Asks all connections to end between answers, because the server stops.
    pub fn stop(&mut self) {
        self.connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.end(Close::Stop));
    }

    /// Ends the connections and streams that are overdue, and forgets closed ones. Runs once a second.
    pub fn sweep(&mut self, options: &Options) {
        self.connections.retain(|weak| {
            let Some(connection) = weak.upgrade() else { return false };
            if let Some(reason) = connection.overdue(options) {
                connection.end(reason);
            }
            connection.sweep_streams(options);
            true
        });
    }
}

/// Counts a connection as open for the lifetime of its socket.
pub struct OpenGuard(Shared);

impl OpenGuard {
    pub fn new(app: Shared) -> Self {
        app.telemetry.connections_open.fetch_add(1, Relaxed);
        OpenGuard(app)
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.telemetry.connections_open.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for OpenGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}

/// A socket that reports to its [`Connection`] what happens on it.
#[derive(Debug)]
pub struct Stream {
    /// `Some` until the stream is dropped.
    socket: Option<(TcpStream, OpenGuard)>,
    connection: Arc<Connection>,
    /// Our own answer that is being sent instead of one of hyper's.
    replacement: Option<Replacement>,
}

#[derive(Debug)]
struct Replacement {
    bytes: Vec<u8>,
    sent: usize,
    /// The number of bytes of hyper's answer, which it must be told were written.
    replaces: usize,
}

impl Stream {
    pub fn new(socket: TcpStream, open: OpenGuard, connection: Arc<Connection>) -> Self {
        Stream { socket: Some((socket, open)), connection, replacement: None }
    }

    fn socket(&mut self) -> Pin<&mut TcpStream> {
        let (socket, _) = self.socket.as_mut().expect("there until it is dropped");
        Pin::new(socket)
    }

    /// Waits for the first bytes of the client and returns true if they begin HTTP/2. The bytes are peeked at and stay in the
    /// socket.
    pub async fn speaks_http2(&mut self) -> bool {
        const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n";
        let mut first = [0; BEGIN.len()];
        loop {
            match self.socket().peek(&mut first).await {
                Ok(n) if n == BEGIN.len() => return first == BEGIN,
                Ok(n @ 1..) if BEGIN.starts_with(&first[..n]) => {
                    // The rest is on its way. A socket cannot wait for more bytes than it already has, so this polls.
                    self.connection.note_bytes();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return false,
            }
        }
    }

    /// Sends our own refusal in place of hyper's empty one if the client did not speak HTTP. Returns `None` if `bytes` is not
    /// such a refusal of hyper's.
    fn poll_replacement(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.replacement.is_none() {
            // While a request is handled or answered, hyper sends no response of its own.
            let between =
                [Phase::Idle as u8, Phase::Head as u8].contains(&self.connection.phase.load(Relaxed));
            let replacement = protocol::replacement_of(bytes).filter(|_| between)?;
            self.replacement = Some(Replacement { bytes: replacement, sent: 0, replaces: bytes.len() });
        }
        let mut replacement = self.replacement.take()?;
        while replacement.sent < replacement.bytes.len() {
            match self.socket().poll_write(cx, &replacement.bytes[replacement.sent..]) {
                Poll::Ready(Ok(n @ 1..)) => replacement.sent += n,
                Poll::Pending => {
                    self.replacement = Some(replacement);
                    return Some(Poll::Pending);
                }
                Poll::Ready(other) => return Some(Poll::Ready(other)),
            }
        }
        Some(Poll::Ready(Ok(replacement.replaces)))
    }

    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.connection.set_blocked(result.is_pending());
        result
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let in_head = self.connection.phase.load(Relaxed) == Phase::Head as u8;
        if in_head || self.connection.unread.load(Relaxed) {
            *self.connection.leftover.lock() = self.socket.take();
        }
    }
}

/// The time that an ended connection is drained for.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// The number of bytes that are drained from an ended connection.
const LINGER_BYTES: usize = 256 << 20;

/// Drains the socket of a connection that was refused early. The client may still be sending, and closing at once would reset the
/// connection and could lose the answer. So incoming bytes are read and discarded for a moment.
pub async fn linger(connection: &Connection) {
    let Some((mut socket, _open)) = connection.leftover.lock().take() else { return };
    let discard = async {
        // Tells the client that nothing more will come. The error is ignored, because no client is left to hear of it.
        let _ = socket.shutdown().await;
        let mut scratch = [0; 4 << 10];
        let mut left = LINGER_BYTES;
        while let Ok(n @ 1..) = socket.read(&mut scratch).await {
            left = left.saturating_sub(n);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME, discard).await;
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = self.socket().poll_read(cx, buf);
        if buf.filled().len() > before {
            self.connection.note_bytes();
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = match self.poll_replacement(cx, buf) {
            Some(result) => result,
            None => self.socket().poll_write(cx, buf),
        };
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        let result = match first.and_then(|first| self.poll_replacement(cx, first)) {
            Some(result) => result,
            None => self.socket().poll_write_vectored(cx, bufs),
        };
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_shutdown(cx)
    }
}
