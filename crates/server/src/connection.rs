//! One connection: what its client is doing, how long it may, and the stream that notices it.
//!
//! hyper knows timeouts for heads only, and a timer a request costs more than a look at all connections once a second.
//! So each connection keeps its phase in atomics, and [`Watch::sweep`] ends those that stay in one for too long. Over HTTP/2
//! many requests share a connection: each of its streams is a [`Connection`] of its own, with the same phases.

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

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Between requests.
    Idle = 0,
    /// Part of a request's line and headers came.
    Head = 1,
    /// The request is read and worked on; its body has its own clock.
    Working = 2,
    /// The answer is being sent.
    Answering = 3,
    /// An answer without end is being sent: only a reader that stops reading ends it.
    Following = 4,
    /// HTTP/2: requests come and are answered on its streams. It is idle while none is open.
    Carrying = 5,
    /// A WebSocket, to its end: no request comes any more. Ends as an answer without end does.
    Talking = 6,
}

#[derive(Debug)]
pub struct Connection {
    pub peer: Peer,
    opened: Instant,
    phase: AtomicU8,
    /// Milliseconds after `opened` at which the phase began.
    since_ms: AtomicU64,
    /// Milliseconds after `opened` since which a write waits for the client; 0: none does.
    blocked_ms: AtomicU64,
    pub requests: AtomicU32,
    /// A request's body was not read to its end: the client may still be sending what nobody wants.
    pub unread: AtomicBool,
    /// Told that it has to end, and why: `NOT_ENDED` until then. Each poll of a connection looks here, so it takes no lock.
    ended: AtomicWaker,
    end_reason: AtomicU8,
    /// The socket, when it was let go while its client may still be sending.
    leftover: Mutex<Option<(TcpStream, Open)>>,
    /// The streams of an HTTP/2 connection that are open.
    streams: Mutex<Vec<Weak<Connection>>>,
    /// Of a stream: the connection that it is part of.
    carrier: Option<Arc<Connection>>,
}

impl Connection {
    pub fn new(peer: Peer) -> Arc<Self> {
        Arc::new(Connection::in_phase(Phase::Idle, peer, None))
    }

    /// A stream of an HTTP/2 connection: one request and its answer.
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

    /// Whether it is one of several streams of an HTTP/2 connection.
    pub fn is_stream(&self) -> bool {
        self.carrier.is_some()
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    pub fn enter(&self, phase: Phase) {
        // The handshake's own answer ends when the talk has begun.
        if self.phase.load(Relaxed) == Phase::Talking as u8 {
            return;
        }
        self.since_ms.store(self.now_ms(), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    /// Bytes came: between requests they begin one.
    fn came(&self) {
        if self.phase.load(Relaxed) == Phase::Idle as u8 {
            self.enter(Phase::Head);
        }
    }

    /// Whether a write waits for the client.
    pub fn is_blocked(&self) -> bool {
        self.blocked_ms.load(Relaxed) != 0
    }

    /// Whether something written waits for the client from now on, or no longer.
    pub fn set_blocked(&self, blocked: bool) {
        match (blocked, self.is_blocked()) {
            (true, false) => self.blocked_ms.store(self.now_ms().max(1), Relaxed),
            (false, true) => self.blocked_ms.store(0, Relaxed),
            _ => {}
        }
    }

    /// Why the connection has to end, if it has.
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

    /// Whether no stream is open.
    fn is_free(&self) -> bool {
        self.streams.lock().iter().all(|stream| stream.strong_count() == 0)
    }

    fn end(&self, reason: Close) {
        self.end_reason.store(reason as u8, Release);
        self.ended.wake();
    }

    /// Ends its streams that are overdue: what one of them waits for need not end the others.
    fn sweep_streams(&self, options: &Options) {
        let open: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
        for stream in open {
            if let Some(reason) = stream.overdue(options) {
                stream.end(reason);
            }
        }
    }

    /// Resolves when [`Watch::sweep`] found the connection overdue, each time anew, and when the server stops. One task
    /// waits for it.
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
        // From now on it may be idle.
        if let Some(carrier) = &self.carrier {
            carrier.since_ms.store(carrier.now_ms(), Relaxed);
        }
    }
}

/// No reason.
const NOT_ENDED: u8 = u8::MAX;

/// Ends connections that are overdue.
#[derive(Debug, Default)]
pub struct Watch {
    connections: Vec<Weak<Connection>>,
}

impl Watch {
    pub fn add(&mut self, connection: &Arc<Connection>) {
        self.connections.push(Arc::downgrade(connection));
    }

    /// Ends all between their answers: the server stops.
    pub fn stop(&mut self) {
        self.connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.end(Close::Stop));
    }

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

/// Counts a connection as open for as long as its socket is.
pub struct Open(Shared);

impl Open {
    pub fn new(app: Shared) -> Self {
        app.telemetry.connections_open.fetch_add(1, Relaxed);
        Open(app)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.telemetry.connections_open.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}

/// A socket that tells its [`Connection`] what happens on it.
#[derive(Debug)]
pub struct Stream {
    /// There until it is dropped.
    socket: Option<(TcpStream, Open)>,
    connection: Arc<Connection>,
    /// An answer of ours that is being sent in the place of one of hyper's.
    instead: Option<Instead>,
}

#[derive(Debug)]
struct Instead {
    bytes: Vec<u8>,
    sent: usize,
    /// The length of what it replaces.
    replaces: usize,
}

impl Stream {
    pub fn new(socket: TcpStream, open: Open, connection: Arc<Connection>) -> Self {
        Stream { socket: Some((socket, open)), connection, instead: None }
    }

    fn socket(&mut self) -> Pin<&mut TcpStream> {
        let (socket, _) = self.socket.as_mut().expect("there until it is dropped");
        Pin::new(socket)
    }

    /// Waits for the client's first bytes, and tells whether they begin HTTP/2. They stay where they are.
    pub async fn speaks_http2(&mut self) -> bool {
        const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n";
        let mut first = [0; BEGIN.len()];
        loop {
            match self.socket().peek(&mut first).await {
                Ok(n) if n == BEGIN.len() => return first == BEGIN,
                Ok(n @ 1..) if BEGIN.starts_with(&first[..n]) => {
                    // The rest is on its way; there is no waiting for more than there is.
                    self.connection.came();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return false,
            }
        }
    }

    /// Sends our own refusal of what is no HTTP where hyper sends an empty one; `None` if `bytes` is no such one.
    fn poll_instead(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_none() {
            // While a request is worked on or answered, hyper says nothing of its own.
            let between =
                [Phase::Idle as u8, Phase::Head as u8].contains(&self.connection.phase.load(Relaxed));
            let instead = protocol::instead_of(bytes).filter(|_| between)?;
            self.instead = Some(Instead { bytes: instead, sent: 0, replaces: bytes.len() });
        }
        let mut instead = self.instead.take()?;
        while instead.sent < instead.bytes.len() {
            match self.socket().poll_write(cx, &instead.bytes[instead.sent..]) {
                Poll::Ready(Ok(n @ 1..)) => instead.sent += n,
                Poll::Pending => {
                    self.instead = Some(instead);
                    return Some(Poll::Pending);
                }
                Poll::Ready(other) => return Some(Poll::Ready(other)),
            }
        }
        Some(Poll::Ready(Ok(instead.replaces)))
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

const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 << 20;

/// After an early refusal the client may still be sending. Closing at once would reset the connection and could take
/// the answer with it, so what comes is read and thrown away for a moment.
pub async fn linger(connection: &Connection) {
    let Some((mut socket, _open)) = connection.leftover.lock().take() else { return };
    let discard = async {
        // Tells the client that nothing more comes; if that fails, there is nobody to tell.
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
            self.connection.came();
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = match self.poll_instead(cx, buf) {
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
        let result = match first.and_then(|first| self.poll_instead(cx, first)) {
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
