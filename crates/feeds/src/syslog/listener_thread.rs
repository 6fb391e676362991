//! The listener's thread: reads the sockets and passes messages to the writer.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, TcpKeepalive};

use super::datagrams::DatagramReceiver;
use super::frame::{Frame, FrameSplitter};
use super::rows::Writer;
use super::{Counters, Options, STOP_READ_TIME_MAX, StopRequest};

/// The time that a message waits for others to share its commit.
const GATHER: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 64 << 10;
/// The greatest number of reads from one socket in a row, so that other sockets get their turn.
const READS_MAX: usize = 16;
/// The number of connections accepted after a stop was requested. It exceeds the kernel's backlog.
const LAST_CONNECTIONS_MAX: usize = 256;
/// The quiet time after which the kernel probes a peer. A peer that does not answer is considered gone.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// The time between probes.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// Time between checks whether connections still have to be refused.
const REFUSING_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted, for example for lack of file descriptors. The connection stays
/// in the backlog, and without a pause the thread would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Time between rows that report dropped datagrams.
const DROPPED_PAUSE: Duration = Duration::from_secs(10);
/// The pause between looks for further datagrams during a stop.
const LAST_PAUSE: Duration = Duration::from_millis(10);
/// Time between warnings about refused connections.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct ListenerThread {
    options: Options,
    tcp: TcpListener,
    datagrams: DatagramReceiver,
    woken: UnixStream,
    writer: Writer,
    counters: Arc<Counters>,
    stopping: Arc<StopRequest>,
    connections: Vec<Connection>,
    /// The arrival time of the oldest message that is not committed.
    since: Option<Instant>,
    /// The time from which connections are accepted again.
    accepts_from: Option<Instant>,
    /// The time of the last warning about refused connections.
    warned: Option<Instant>,
    /// The number of dropped datagrams that rows have reported, and the time of the last report.
    reported: (u64, Option<Instant>),
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    peer: Option<IpAddr>,
    frames: FrameSplitter,
    /// The time of the last received bytes, or of the connection itself.
    last_received: Instant,
    /// True if any bytes were received.
    has_sent: bool,
    /// True if the last read found nothing more.
    is_empty: bool,
}

impl ListenerThread {
    pub fn new(
        options: Options,
        tcp: TcpListener,
        datagrams: DatagramReceiver,
        woken: UnixStream,
        writer: Writer,
        counters: Arc<Counters>,
        stopping: Arc<StopRequest>,
    ) -> ListenerThread {
        let buffer = vec![0; READ_BYTES];
        let connections = Vec::new();
        let (since, accepts_from, warned) = (None, None, None);
        ListenerThread {
            options,
            tcp,
            datagrams,
            woken,
            writer,
            counters,
            stopping,
            connections,
            since,
            accepts_from,
            warned,
            reported: (0, None),
            buffer,
        }
    }

    pub fn run(mut self) {
        while !self.stopping.has_begun() {
            let ready = self.wait();
            if ready.datagrams {
                self.take_datagrams();
            }
            // The order is reversed because connections that end are removed from the list.
            for at in ready.connections.into_iter().rev() {
                self.read(at);
            }
            if ready.tcp {
                self.accept(READS_MAX);
            }
            if self.is_refusing() && (self.has_capacity() || self.quietest().is_some()) {
                self.counters.refusing.store(false, Ordering::Relaxed);
            }
            if self.dropped_report_due().is_some_and(|due| due.is_zero()) {
                self.report_dropped();
            }
            if self.since.is_some_and(|since| since.elapsed() >= GATHER) {
                self.flush();
            }
        }
        self.read_until_stop();
        if self.dropped_report_due().is_some() {
            self.report_dropped();
        }
        self.flush();
    }

    /// Reads what the sockets held before the stop, including connections in the backlog. Senders that do not stop are
    /// read only as long as time allows. If nothing can be committed, the rest is left to its sender.
    fn read_until_stop(&mut self) {
        let until = Instant::now() + STOP_READ_TIME_MAX;
        // The limit is raised before any connection ends: a sender that reconnects would be in the backlog too.
        self.options.connections_max = self.options.connections_max.saturating_add(LAST_CONNECTIONS_MAX);
        self.accept(LAST_CONNECTIONS_MAX);
        for connection in &mut self.connections {
            connection.is_empty = false;
        }
        let goes_on =
            |run: &ListenerThread| !run.counters.failing.load(Ordering::Relaxed) && Instant::now() < until;
        let has_bytes = |run: &ListenerThread| run.connections.iter().any(|connection| !connection.is_empty);
        self.datagrams.drain();
        // All sockets are read in turns as long as any has data.
        while goes_on(self) && (!self.datagrams.is_over() || has_bytes(self)) {
            self.take_datagrams();
            if !has_bytes(self) {
                self.datagrams.wait(LAST_PAUSE);
            }
            // The order is reversed because connections that end are removed from the list.
            for at in (0..self.connections.len()).rev() {
                if goes_on(self) && !self.connections[at].is_empty {
                    self.read(at);
                }
            }
        }
        let left = self.datagrams.end().len();
        if left > 0 {
            self.counters.lost.fetch_add(left as u64, Ordering::Relaxed);
            tracing::error!(messages = left, "syslog: datagrams that came before the stop were lost");
        }
        for connection in std::mem::take(&mut self.connections) {
            self.finish_connection(connection, true);
        }
    }

    fn wait(&mut self) -> ReadySockets {
        let now = Instant::now();
        let pause = self.accepts_from.map(|from| from.saturating_duration_since(now));
        let pause = pause.filter(|pause| !pause.is_zero());
        let accepted = if pause.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let left = self.since.map(|since| GATHER.saturating_sub(now.saturating_duration_since(since)));
        let refusing = self.is_refusing().then_some(REFUSING_PAUSE);
        let left = [left, pause, refusing, self.dropped_report_due()].into_iter().flatten().min();
        let timeout =
            left.map(|left| Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ });
        let mut ready = ReadySockets::default();
        {
            let (woken, tcp, udp) = (self.woken.as_fd(), self.tcp.as_fd(), self.datagrams.as_fd());
            let of_connections = self.connections.iter().map(|connection| connection.stream.as_fd());
            let all = [woken, udp].into_iter().chain(of_connections);
            let all = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> =
                std::iter::once(PollFd::from_borrowed_fd(tcp, accepted)).chain(all).collect();
            if poll(&mut fds, timeout.as_ref()).is_err() {
                // The wait was interrupted; the next one finds what is ready.
                return ready;
            }
            let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            ready.tcp = is_ready(&fds[0]);
            ready.datagrams = is_ready(&fds[2]);
            ready.connections = (0..self.connections.len()).filter(|at| is_ready(&fds[3 + at])).collect();
        }
        ready
    }

    /// Accepts up to `count_max` connections from the backlog.
    fn accept(&mut self, count_max: usize) {
        for _ in 0..count_max {
            let (stream, peer) = match self.tcp.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The connection ended while it was in the backlog.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                    continue;
                }
                Err(e) => {
                    tracing::debug!(error = %e, "syslog: a connection could not be accepted");
                    self.accepts_from = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            if !self.has_capacity() && !self.close_quietest() {
                self.count_refused();
                continue;
            }
            if prepare(&stream).is_ok() {
                self.counters.connections_open.fetch_add(1, Ordering::Relaxed);
                self.connections.push(Connection {
                    stream,
                    peer: Some(peer.ip()),
                    frames: FrameSplitter::default(),
                    last_received: Instant::now(),
                    has_sent: false,
                    is_empty: false,
                });
            }
        }
    }

    fn has_capacity(&self) -> bool {
        self.connections.len() < self.options.connections_max
    }

    /// Closes the connection that was quiet for the longest. Returns false if all are busy.
    fn close_quietest(&mut self) -> bool {
        while let Some(at) = self.quietest() {
            let open = self.connections.len();
            // The connection is read first. Bytes that arrived meanwhile would otherwise be lost, and they show that
            // it is not the quietest.
            if !self.read(at) {
                let connection = self.connections.swap_remove(at);
                self.counters.connections_gave_way.fetch_add(1, Ordering::Relaxed);
                self.finish_connection(connection, true);
                return true;
            }
            if self.connections.len() < open {
                return true;
            }
        }
        false
    }

    fn quietest(&self) -> Option<usize> {
        let is_quiet = |connection: &Connection| {
            !connection.has_sent || connection.last_received.elapsed() >= self.options.quiet_time_min
        };
        let quiet = self.connections.iter().enumerate().filter(|(_, connection)| is_quiet(connection));
        quiet.min_by_key(|(_, connection)| connection.last_received).map(|(at, _)| at)
    }

    fn count_refused(&mut self) {
        self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
        self.counters.refusing.store(true, Ordering::Relaxed);
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_PAUSE) {
            self.warned = Some(Instant::now());
            let connections = self.connections.len();
            tracing::warn!(connections, "syslog: all connections are busy; new ones are refused");
        }
    }

    fn is_refusing(&self) -> bool {
        self.counters.refusing.load(Ordering::Relaxed)
    }

    /// Reads what has arrived on a connection. Returns true if there were bytes or the end of the stream.
    fn read(&mut self, at: usize) -> bool {
        let (mut came, mut is_over) = (false, false);
        for _ in 0..READS_MAX {
            let connection = &mut self.connections[at];
            match connection.stream.read(&mut self.buffer) {
                Ok(0) => is_over = true,
                Ok(count) => {
                    connection.frames.push(&self.buffer[..count]);
                    (connection.last_received, connection.has_sent) = (Instant::now(), true);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    connection.is_empty = true;
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => is_over = true,
            }
            came = true;
            let peer = connection.peer;
            while let Some(frame) = self.connections[at].frames.next(self.options.message_bytes_max) {
                self.push(frame, peer);
            }
            if is_over {
                let connection = self.connections.swap_remove(at);
                self.finish_connection(connection, false);
                break;
            }
        }
        came
    }

    /// Takes the last message of a connection that has ended. `cut` is true if the listener ended it, not the sender.
    fn finish_connection(&mut self, mut connection: Connection, cut: bool) {
        self.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
        if let Some(frame) = connection.frames.last(self.options.message_bytes_max) {
            self.push(Frame { cut: cut || frame.cut, ..frame }, connection.peer);
        }
    }

    fn take_datagrams(&mut self) {
        for (frame, peer) in self.datagrams.take() {
            self.push(frame, Some(peer));
        }
    }

    /// Returns the time until a row about dropped datagrams is due; `None` if all of them are reported.
    fn dropped_report_due(&self) -> Option<Duration> {
        let (reported, at) = self.reported;
        let is_due = self.counters.datagrams_dropped.load(Ordering::Relaxed) > reported;
        is_due.then(|| at.map_or(Duration::ZERO, |at| DROPPED_PAUSE.saturating_sub(at.elapsed())))
    }

    fn report_dropped(&mut self) {
        let dropped = self.counters.datagrams_dropped.load(Ordering::Relaxed);
        let more = dropped - self.reported.0;
        self.reported = (dropped, Some(Instant::now()));
        tracing::warn!(datagrams = more, "syslog: datagrams were lost: they came faster than they were read");
        self.writer.push_dropped_notice(more);
        self.since.get_or_insert_with(Instant::now);
    }

    fn push(&mut self, frame: Frame, peer: Option<IpAddr>) {
        self.writer.push(frame, peer);
        if self.writer.is_full() {
            self.flush();
        } else {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn flush(&mut self) {
        if !self.writer.is_empty() {
            self.writer.flush();
        }
        self.since = None;
    }
}

/// Makes a connection non-blocking, and makes it end some time after its peer has silently gone away.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_PAUSE);
    if let Err(e) = SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES)) {
        // macOS refuses keepalive for a connection that its peer has ended; the received bytes can still be read.
        tracing::debug!(error = %e, "syslog: a connection without keepalive");
    }
    Ok(())
}

/// The sockets that can be read.
#[derive(Default)]
struct ReadySockets {
    tcp: bool,
    datagrams: bool,
    connections: Vec<usize>,
}

#[cfg(test)]
mod tests;
