//! Messages of syslog as rows: over TCP and UDP, as RFC 5424 and as the older form that RFC 3164 describes.
//!
//! One thread waits for whatever socket has something, takes what is there, and commits it. While a commit is under way, or
//! none can be made, it reads nothing; TCP then slows its senders down. UDP knows no such thing, so a second thread does nothing
//! but read datagrams, of which some wait in memory. What the kernel drops beyond them is counted, and the table says so.
//! Syslog has no acknowledgement, so what a sender knows is only that a connection took its bytes.
//!
//! A sender that lost its power never says that it is gone, and one that has nothing to say is no different to look at. So
//! the kernel asks those that are quiet whether they are there, and where all places are taken, the connection that was quiet
//! for the longest gives way to a new one.
//!
//! What cannot be understood is kept whole as the row's `message`. What the table does not take, such as a second row where an
//! index is unique, goes into the table beside it ([`engine::dead_letters`]). Nothing that came is left out, but for what is
//! longer than [`Options::message_bytes_max`], which is cut.

mod datagrams;
mod frame;
mod message;
mod rows;
mod run;
mod socket;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::Engine;
use engine::threads::Class;
use types::{Error, Result};

/// How messages are taken in.
#[derive(Clone, Debug)]
pub struct Options {
    /// For TCP and UDP alike. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// `[namespace.]table`, made when the first message comes.
    pub table: String,
    /// TCP connections. For a further one the one that was quiet for the longest gives way; if all are busy, it is closed.
    pub connections_max: usize,
    /// A connection that said something within this time is busy. One that never said anything is not.
    pub quiet_time_min: Duration,
    /// A longer message is cut.
    pub message_bytes_max: usize,
}

impl Options {
    pub fn new(listen: SocketAddr, table: impl Into<String>) -> Self {
        Options {
            listen,
            table: table.into(),
            connections_max: 256,
            quiet_time_min: Duration::from_secs(10),
            message_bytes_max: 64 << 10,
        }
    }
}

/// What came, and what became of it.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages that are in the table.
    pub messages: AtomicU64,
    /// Those of them that were understood by neither form.
    pub unparsed: AtomicU64,
    /// Those of them that were cut.
    pub cut: AtomicU64,
    /// Messages that the table does not take. They are in the table beside it, with the reason.
    pub dead_letters: AtomicU64,
    /// Messages that could not be committed when the listener stopped, and those that the table does not take and that could
    /// not be put beside it either.
    pub lost: AtomicU64,
    /// Datagrams that the kernel dropped, since they came faster than they could be read and committed. It says so on Linux.
    pub datagrams_dropped: AtomicU64,
    pub connections_open: AtomicU64,
    /// Quiet connections that ended for new ones.
    pub connections_gave_way: AtomicU64,
    /// Connections that came while all places were taken by busy ones.
    pub connections_refused: AtomicU64,
    /// Whether a connection was refused, and all places are taken by busy ones since.
    pub refusing: AtomicBool,
    /// Whether the last commit failed, and is tried again.
    pub failing: AtomicBool,
}

/// What the sockets hold when it is asked to stop is read for so long.
const STOP_READ_TIME_MAX: Duration = Duration::from_secs(2);
/// And what was read is tried to be committed until then.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// When it was asked to stop, if it was.
#[derive(Debug, Default)]
struct Stopping(OnceLock<Instant>);

impl Stopping {
    fn begin(&self) {
        // The first time counts.
        let _ = self.0.set(Instant::now());
    }

    fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    fn has_lasted(&self, time: Duration) -> bool {
        self.0.get().is_some_and(|began| began.elapsed() >= time)
    }
}

/// Takes messages in until it is dropped or stopped.
pub struct Listener {
    address: SocketAddr,
    connections_max: usize,
    counters: Arc<Counters>,
    stopping: Arc<Stopping>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A free port is asked for with TCP; the same one may be taken for UDP.
const PORT_TRIES: usize = 20;

impl Listener {
    /// [`types::Kind::InUse`] if another program listens there.
    pub fn start(engine: Engine, options: Options) -> Result<Listener> {
        let (tcp, udp) = bind(options.listen)?;
        let failed = |e: std::io::Error| Error::io(format!("listening on {}", options.listen), e);
        let address = tcp.local_addr().map_err(failed)?;
        let (woken, wake) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        wake.set_nonblocking(true).map_err(failed)?;
        let (counters, stopping) = (Arc::<Counters>::default(), Arc::<Stopping>::default());
        let writer = rows::Writer::new(engine, &options.table, counters.clone(), stopping.clone())?;
        let connections_max = options.connections_max;
        let datagrams = datagrams::Datagrams::start(udp, options.message_bytes_max, counters.clone());
        let datagrams = datagrams.map_err(failed)?;
        let run =
            run::Run::new(options.clone(), tcp, datagrams, woken, writer, counters.clone(), stopping.clone());
        let thread = Class::Work.spawn("pn-syslog", move || run.run()).map_err(failed)?;
        Ok(Listener { address, connections_max, counters, stopping, wake, thread: Some(thread) })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// As in [`Options`].
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Commits what came, also what the sockets hold of it, and takes nothing more. That takes some seconds at most.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.begin();
        // A full pipe wakes too.
        let _ = std::io::Write::write(&mut self.wake, &[1]);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

fn bind(listen: SocketAddr) -> Result<(TcpListener, UdpSocket)> {
    let attempt = || -> std::io::Result<(TcpListener, UdpSocket)> {
        let tcp = TcpListener::bind(listen)?;
        let udp = UdpSocket::bind(tcp.local_addr()?)?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        Ok((tcp, udp))
    };
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt() {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                if listen.port() == 0 && tries < PORT_TRIES {
                    continue;
                }
                return Err(Error::new(
                    types::Kind::InUse,
                    format!("another program listens for syslog on {listen}"),
                )
                .hint("stop it, or choose another address: syslog.listen"));
            }
            other => return other.map_err(|e| Error::io(format!("listening for syslog on {listen}"), e)),
        }
    }
}
