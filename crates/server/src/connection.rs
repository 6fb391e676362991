//! One connection: what its client is doing, how long it may, and the stream that notices it.
//!
//! hyper knows timeouts for heads only, and a timer a request costs more than a look at all connections once a second.
//! So each connection keeps its phase in atomics, and [`Watch::sweep`] ends those that stay in one for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use vfs::{Mutex, Rank};

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
    ended: Notify,
    end_reason: AtomicU8,
    /// The socket, when it was let go while its client may still be sending.
    leftover: Mutex<Option<TcpStream>>,
}

impl Connection {
    pub fn new(peer: Peer) -> Arc<Self> {
        Arc::new(Connection {
            peer,
            opened: Instant::now(),
            phase: AtomicU8::new(Phase::Idle as u8),
            since_ms: AtomicU64::new(0),
            blocked_ms: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            unread: AtomicBool::new(false),
            ended: Notify::new(),
            end_reason: AtomicU8::new(u8::MAX),
            leftover: Mutex::new(Rank::new(14, "server leftover socket"), None),
        })
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    pub fn enter(&self, phase: Phase) {
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
            _ => None,
        }
    }

    /// Resolves when [`Watch::sweep`] found the connection overdue.
    pub async fn ended(&self) -> Close {
        self.ended.notified().await;
        Close::ALL.get(usize::from(self.end_reason.load(Relaxed))).copied().unwrap_or(Close::Stop)
    }
}

/// Ends connections that are overdue.
#[derive(Debug, Default)]
pub struct Watch {
    connections: Vec<std::sync::Weak<Connection>>,
}

impl Watch {
    pub fn add(&mut self, connection: &Arc<Connection>) {
        self.connections.push(Arc::downgrade(connection));
    }

    pub fn sweep(&mut self, options: &Options) {
        self.connections.retain(|weak| {
            let Some(connection) = weak.upgrade() else { return false };
            if let Some(reason) = connection.overdue(options) {
                connection.end_reason.store(reason as u8, Relaxed);
                connection.ended.notify_one();
            }
            true
        });
    }
}

/// A socket that tells its [`Connection`] what happens on it.
#[derive(Debug)]
pub struct Stream {
    /// There until it is dropped.
    socket: Option<TcpStream>,
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
    pub fn new(socket: TcpStream, connection: Arc<Connection>) -> Self {
        Stream { socket: Some(socket), connection, instead: None }
    }

    fn socket(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.socket.as_mut().expect("there until it is dropped"))
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
        let blocked = &self.connection.blocked_ms;
        match &result {
            Poll::Pending if blocked.load(Relaxed) == 0 => {
                blocked.store(self.connection.now_ms().max(1), Relaxed)
            }
            Poll::Pending => {}
            Poll::Ready(_) if blocked.load(Relaxed) != 0 => blocked.store(0, Relaxed),
            Poll::Ready(_) => {}
        }
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
    let Some(mut socket) = connection.leftover.lock().take() else { return };
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
