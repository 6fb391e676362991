//! Receives syslog messages as rows: over TCP and UDP, in the form of RFC 5424 and the older form that RFC 3164
//! describes.
//!
//! One thread waits for readable sockets, reads what has arrived, and commits it. While a commit is under way or
//! impossible, it reads nothing; TCP then slows its senders down. UDP has no back-pressure, so a second thread does
//! nothing but read datagrams and keeps a bounded number in memory. Datagrams that the kernel drops beyond them are
//! counted, and a row in the table reports the number. Syslog has no acknowledgement: a sender knows only that its
//! connection took the bytes.
//!
//! A sender that lost its power never closes its connection, and looks like one that has nothing to send. So the
//! kernel probes quiet connections. If all connections are in use, the one that was quiet for the longest is closed
//! for a new one.
//!
//! A message that cannot be parsed is kept whole in the row's column `message`. A message that the table refuses, such
//! as a second row with the same value in a unique index, goes into the table's dead letters
//! ([`engine::dead_letters`]). Nothing received is left out, but messages longer than [`Options::message_bytes_max`]
//! are cut.

mod datagrams;
mod frame;
mod listener_thread;
mod message;
mod rows;
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

/// The settings of a listener.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address for both TCP and UDP. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The table, `[namespace.]table`. It is made when the first message arrives.
    pub table: String,
    /// The greatest number of TCP connections. A further one replaces the connection that was quiet for the longest;
    /// if all are busy, the new one is closed.
    pub connections_max: usize,
    /// The time for which a connection counts as busy after it sent something. One that never sent anything is not
    /// busy.
    pub quiet_time_min: Duration,
    /// The greatest length of a message in bytes; longer ones are cut.
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

/// Counters of received messages and their fate.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages that were committed to the table.
    pub messages: AtomicU64,
    /// Committed messages that neither form could parse.
    pub unparsed: AtomicU64,
    /// Committed messages that were cut.
    pub cut: AtomicU64,
    /// Messages that the table refused. They are in the dead-letter table, with the reason.
    pub dead_letters: AtomicU64,
    /// Messages that could not be committed before the listener stopped, and refused messages that the dead-letter
    /// table could not take either.
    pub lost: AtomicU64,
    /// Datagrams that the kernel dropped because they arrived faster than they were read and committed. Counted on
    /// Linux only.
    pub datagrams_dropped: AtomicU64,
    pub connections_open: AtomicU64,
    /// Quiet connections that were closed for new ones.
    pub connections_gave_way: AtomicU64,
    /// Connections that were refused because all existing ones were busy.
    pub connections_refused: AtomicU64,
    /// True if a connection was refused and all connections have been busy since.
    pub refusing: AtomicBool,
    /// True if the last commit failed and is being retried.
    pub failing: AtomicBool,
}

/// The time limit for reading from the sockets after a stop was requested.
const STOP_READ_TIME_MAX: Duration = Duration::from_secs(2);
/// The time limit for committing messages after a stop was requested.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// The time at which a stop was requested, if it was.
#[derive(Debug, Default)]
struct StopRequest(OnceLock<Instant>);

impl StopRequest {
    fn begin(&self) {
        // Only the first request sets the time.
        let _ = self.0.set(Instant::now());
    }

    fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    fn has_lasted(&self, time: Duration) -> bool {
        self.0.get().is_some_and(|began| began.elapsed() >= time)
    }
}

/// A running listener. It receives messages until it is stopped or dropped.
pub struct Listener {
    address: SocketAddr,
    connections_max: usize,
    counters: Arc<Counters>,
    stopping: Arc<StopRequest>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// The number of attempts to find a port that is free for both protocols. A free TCP port may be in use for UDP.
const PORT_TRIES: usize = 20;

impl Listener {
    /// Starts listening. [`types::Kind::InUse`] if another program listens on the address.
    pub fn start(engine: Engine, options: Options) -> Result<Listener> {
        let (tcp, udp) = bind(options.listen)?;
        let failed = |e: std::io::Error| Error::io(format!("listening on {}", options.listen), e);
        let address = tcp.local_addr().map_err(failed)?;
        let (woken, wake) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        wake.set_nonblocking(true).map_err(failed)?;
        let (counters, stopping) = (Arc::<Counters>::default(), Arc::<StopRequest>::default());
        let writer = rows::Writer::new(engine, &options.table, counters.clone(), stopping.clone())?;
        let connections_max = options.connections_max;
        let datagrams = datagrams::DatagramReceiver::start(udp, options.message_bytes_max, counters.clone());
        let datagrams = datagrams.map_err(failed)?;
        let listener = listener_thread::ListenerThread::new(
            options.clone(),
            tcp,
            datagrams,
            woken,
            writer,
            counters.clone(),
            stopping.clone(),
        );
        let thread = Class::Work.spawn("pn-syslog", move || listener.run()).map_err(failed)?;
        Ok(Listener { address, connections_max, counters, stopping, wake, thread: Some(thread) })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The limit from [`Options`].
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Stops after committing all received messages, including those still in the sockets. This takes some seconds at
    /// most.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.begin();
        // A full pipe wakes the thread too.
        let _ = std::io::Write::write(&mut self.wake, &[1]);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, there is nothing left to do.
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
