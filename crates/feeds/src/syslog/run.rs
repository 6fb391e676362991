//! The listener's thread: sockets in, frames out.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, TcpKeepalive};

use super::datagrams::Datagrams;
use super::frame::{Frame, Frames};
use super::rows::Writer;
use super::{Counters, Options, STOP_READ_TIME_MAX, Stopping};

/// How long a message waits for others to be committed with.
const GATHER: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 64 << 10;
/// Of one socket at once, so that none is forgotten for another.
const READS_MAX: usize = 16;
/// Connections that are taken when the listener stops: more than may wait.
const LAST_CONNECTIONS_MAX: usize = 256;
/// A peer that sent nothing for this time is asked whether it is there, and is gone if it does not answer.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// Between questions, and so many of them.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// How often it is looked whether connections are still refused.
const REFUSING_PAUSE: Duration = Duration::from_secs(1);
/// After a connection could not be taken, as where there are no more file descriptors: it waits, and would be found at once again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Between rows that say how many datagrams were dropped.
const DROPPED_PAUSE: Duration = Duration::from_secs(10);
/// How long a stop waits at a time for what is still being read.
const LAST_PAUSE: Duration = Duration::from_millis(10);
/// Between warnings of connections that are refused.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Run {
    options: Options,
    tcp: TcpListener,
    datagrams: Datagrams,
    woken: UnixStream,
    writer: Writer,
    counters: Arc<Counters>,
    stopping: Arc<Stopping>,
    connections: Vec<Connection>,
    /// When the oldest message came that is not committed.
    since: Option<Instant>,
    /// When connections are taken again.
    accepts_from: Option<Instant>,
    /// When connections that are refused were last warned of.
    warned: Option<Instant>,
    /// Dropped datagrams of which a row says so, and when that was.
    reported: (u64, Option<Instant>),
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    peer: Option<IpAddr>,
    frames: Frames,
    /// When its last bytes came, or it itself.
    heard: Instant,
    /// Whether any bytes came.
    spoke: bool,
    /// Whether nothing was left when it was last read.
    is_empty: bool,
}

impl Run {
    pub fn new(
        options: Options,
        tcp: TcpListener,
        datagrams: Datagrams,
        woken: UnixStream,
        writer: Writer,
        counters: Arc<Counters>,
        stopping: Arc<Stopping>,
    ) -> Run {
        let buffer = vec![0; READ_BYTES];
        let connections = Vec::new();
        let (since, accepts_from, warned) = (None, None, None);
        Run {
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
            // From behind, since those that end leave the list.
            for at in ready.connections.into_iter().rev() {
                self.read(at);
            }
            if ready.tcp {
                self.accept(READS_MAX);
            }
            if self.is_refusing() && (self.has_place() || self.quietest().is_some()) {
                self.counters.refusing.store(false, Ordering::Relaxed);
            }
            if self.dropped_report_due().is_some_and(|due| due.is_zero()) {
                self.report_dropped();
            }
            if self.since.is_some_and(|since| since.elapsed() >= GATHER) {
                self.flush();
            }
        }
        self.last();
        if self.dropped_report_due().is_some() {
            self.report_dropped();
        }
        self.flush();
    }

    /// What the sockets hold came before the stop, and so did connections that wait to be taken. Of senders that do not stop as
    /// much as there is time for; and where nothing can be committed the rest is left to its sender.
    fn last(&mut self) {
        let until = Instant::now() + STOP_READ_TIME_MAX;
        // Before any ends: a sender that comes again would be one of those that wait.
        self.options.connections_max = self.options.connections_max.saturating_add(LAST_CONNECTIONS_MAX);
        self.accept(LAST_CONNECTIONS_MAX);
        for connection in &mut self.connections {
            connection.is_empty = false;
        }
        let goes_on = |run: &Run| !run.counters.failing.load(Ordering::Relaxed) && Instant::now() < until;
        let has_bytes = |run: &Run| run.connections.iter().any(|connection| !connection.is_empty);
        self.datagrams.drain();
        // In turns, as long as somebody has something.
        while goes_on(self) && (!self.datagrams.is_over() || has_bytes(self)) {
            self.take_datagrams();
            if !has_bytes(self) {
                self.datagrams.wait(LAST_PAUSE);
            }
            // From behind, since those that end leave the list.
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
            self.ended(connection, true);
        }
    }

    fn wait(&mut self) -> Ready {
        let now = Instant::now();
        let pause = self.accepts_from.map(|from| from.saturating_duration_since(now));
        let pause = pause.filter(|pause| !pause.is_zero());
        let accepted = if pause.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let left = self.since.map(|since| GATHER.saturating_sub(now.saturating_duration_since(since)));
        let refusing = self.is_refusing().then_some(REFUSING_PAUSE);
        let left = [left, pause, refusing, self.dropped_report_due()].into_iter().flatten().min();
        let timeout =
            left.map(|left| Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ });
        let mut ready = Ready::default();
        {
            let (woken, tcp, udp) = (self.woken.as_fd(), self.tcp.as_fd(), self.datagrams.as_fd());
            let of_connections = self.connections.iter().map(|connection| connection.stream.as_fd());
            let all = [woken, udp].into_iter().chain(of_connections);
            let all = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> =
                std::iter::once(PollFd::from_borrowed_fd(tcp, accepted)).chain(all).collect();
            if poll(&mut fds, timeout.as_ref()).is_err() {
                // Interrupted; what is ready is found the next time.
                return ready;
            }
            let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            ready.tcp = is_ready(&fds[0]);
            ready.datagrams = is_ready(&fds[2]);
            ready.connections = (0..self.connections.len()).filter(|at| is_ready(&fds[3 + at])).collect();
        }
        ready
    }

    /// Takes connections that wait, so many at most.
    fn accept(&mut self, count_max: usize) {
        for _ in 0..count_max {
            let (stream, peer) = match self.tcp.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // It ended while it waited.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                    continue;
                }
                Err(e) => {
                    tracing::debug!(error = %e, "syslog: a connection could not be taken");
                    self.accepts_from = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            if !self.has_place() && !self.make_place() {
                self.refused();
                continue;
            }
            if prepare(&stream).is_ok() {
                self.counters.connections_open.fetch_add(1, Ordering::Relaxed);
                self.connections.push(Connection {
                    stream,
                    peer: Some(peer.ip()),
                    frames: Frames::default(),
                    heard: Instant::now(),
                    spoke: false,
                    is_empty: false,
                });
            }
        }
    }

    fn has_place(&self) -> bool {
        self.connections.len() < self.options.connections_max
    }

    /// Ends the connection that was quiet for the longest; false if all are busy.
    fn make_place(&mut self) -> bool {
        while let Some(at) = self.quietest() {
            let open = self.connections.len();
            // What it sent in the meantime would be lost with it, and shows that it is not the quietest.
            if !self.read(at) {
                let connection = self.connections.swap_remove(at);
                self.counters.connections_gave_way.fetch_add(1, Ordering::Relaxed);
                self.ended(connection, true);
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
            !connection.spoke || connection.heard.elapsed() >= self.options.quiet_time_min
        };
        let quiet = self.connections.iter().enumerate().filter(|(_, connection)| is_quiet(connection));
        quiet.min_by_key(|(_, connection)| connection.heard).map(|(at, _)| at)
    }

    fn refused(&mut self) {
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

    /// Takes what there is; whether there was anything, be it the end.
    fn read(&mut self, at: usize) -> bool {
        let (mut came, mut is_over) = (false, false);
        for _ in 0..READS_MAX {
            let connection = &mut self.connections[at];
            match connection.stream.read(&mut self.buffer) {
                Ok(0) => is_over = true,
                Ok(count) => {
                    connection.frames.push(&self.buffer[..count]);
                    (connection.heard, connection.spoke) = (Instant::now(), true);
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
                self.take(frame, peer);
            }
            if is_over {
                let connection = self.connections.swap_remove(at);
                self.ended(connection, false);
                break;
            }
        }
        came
    }

    /// Takes a message whose end was the connection's, `cut` where that was not its sender's doing.
    fn ended(&mut self, mut connection: Connection, cut: bool) {
        self.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
        if let Some(frame) = connection.frames.last(self.options.message_bytes_max) {
            self.take(Frame { cut: cut || frame.cut, ..frame }, connection.peer);
        }
    }

    fn take_datagrams(&mut self) {
        for (frame, peer) in self.datagrams.take() {
            self.take(frame, Some(peer));
        }
    }

    /// How long it is until a row is due that says how many datagrams were dropped; `None` if one says it already.
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
        self.writer.take_dropped(more);
        self.since.get_or_insert_with(Instant::now);
    }

    fn take(&mut self, frame: Frame, peer: Option<IpAddr>) {
        self.writer.take(frame, peer);
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

/// A connection that is read without waiting, and that ends some time after its peer went away without a word.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_PAUSE);
    if let Err(e) = SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES)) {
        // macOS has none for a connection that its peer ended; what was sent is there to be read.
        tracing::debug!(error = %e, "syslog: a connection without keepalive");
    }
    Ok(())
}

/// Sockets that have something.
#[derive(Default)]
struct Ready {
    tcp: bool,
    datagrams: bool,
    connections: Vec<usize>,
}

#[cfg(test)]
mod tests;
