//! One connection: what its client is doing, how long it may, and the stream that notices it.
//!
//! hyper knows timeouts for heads only, and a timer a request costs more than a look at all connections once a second.
//! So each connection keeps its phase in atomics, and [`Watch::sweep`] ends those that stay in one for too long.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use crate::options::Options;
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
    pub peer: SocketAddr,
    opened: Instant,
    phase: AtomicU8,
    /// Milliseconds after `opened` at which the phase began.
    since_ms: AtomicU64,
    /// Milliseconds after `opened` since which a write waits for the client; 0: none does.
    blocked_ms: AtomicU64,
    pub requests: AtomicU32,
    /// The client may still be sending a body that nobody wants.
    pub unread: AtomicBool,
    ended: Notify,
    end_reason: AtomicU8,
}

impl Connection {
    pub fn new(peer: SocketAddr) -> Arc<Self> {
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
    socket: TcpStream,
    connection: Arc<Connection>,
    lingering: Option<Lingering>,
}

/// After an early refusal the client may still be sending. Closing at once would reset the connection and could take
/// the answer with it, so what comes is read and thrown away for a moment.
#[derive(Debug)]
struct Lingering {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 << 20;

impl Stream {
    pub fn new(socket: TcpStream, connection: Arc<Connection>) -> Self {
        Stream { socket, connection, lingering: None }
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

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.connection.came();
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            // A head that was refused half-way has more behind it, too.
            let in_head = self.connection.phase.load(Relaxed) == Phase::Head as u8;
            if !in_head && !self.connection.unread.load(Relaxed) {
                return Poll::Ready(Ok(()));
            }
            self.lingering =
                Some(Lingering { until: Box::pin(sleep(LINGER_TIME)), bytes_left: LINGER_BYTES });
        }
        let Stream { socket, lingering: Some(lingering), .. } = &mut *self else {
            unreachable!("made above")
        };
        let mut scratch = [0; 16 << 10];
        loop {
            if lingering.until.as_mut().poll(cx).is_ready() || lingering.bytes_left == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *socket).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {
                    lingering.bytes_left = lingering.bytes_left.saturating_sub(buf.filled().len());
                }
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}
