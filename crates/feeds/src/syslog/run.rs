//! The listener's thread: sockets in, frames out.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::{Frame, Frames};
use super::rows::Writer;
use super::{Counters, Options};

/// How long a message waits for others to be committed with.
const GATHER: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 64 << 10;
/// The longest datagram there is.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Of one socket at once, so that none is forgotten for another.
const READS_MAX: usize = 16;

pub(super) struct Run {
    options: Options,
    tcp: TcpListener,
    udp: UdpSocket,
    woken: UnixStream,
    writer: Writer,
    counters: Arc<Counters>,
    stopping: Arc<AtomicBool>,
    connections: Vec<Connection>,
    /// When the oldest message came that is not committed.
    since: Option<Instant>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    peer: Option<IpAddr>,
    frames: Frames,
}

impl Run {
    pub fn new(
        options: Options,
        tcp: TcpListener,
        udp: UdpSocket,
        woken: UnixStream,
        writer: Writer,
        counters: Arc<Counters>,
        stopping: Arc<AtomicBool>,
    ) -> Run {
        let buffer = vec![0; READ_BYTES.max(DATAGRAM_BYTES)];
        let (connections, since) = (Vec::new(), None);
        Run { options, tcp, udp, woken, writer, counters, stopping, connections, since, buffer }
    }

    pub fn run(mut self) {
        while !self.stopping.load(Ordering::Acquire) {
            let ready = self.wait();
            if ready.udp {
                self.datagrams();
            }
            // From behind, since those that end leave the list.
            for at in ready.connections.into_iter().rev() {
                self.read(at);
            }
            if ready.tcp {
                self.accept();
            }
            if self.since.is_some_and(|since| since.elapsed() >= GATHER) {
                self.flush();
            }
        }
        // What is in the sockets still came before the stop.
        for at in (0..self.connections.len()).rev() {
            self.read(at);
        }
        self.datagrams();
        for connection in std::mem::take(&mut self.connections) {
            self.ended(connection);
        }
        self.flush();
    }

    fn wait(&mut self) -> Ready {
        let left = self.since.map(|since| GATHER.saturating_sub(since.elapsed()));
        let timeout = left.map(|left| Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as _ });
        let mut ready = Ready::default();
        {
            let (woken, tcp, udp) = (self.woken.as_fd(), self.tcp.as_fd(), self.udp.as_fd());
            let of_connections = self.connections.iter().map(|connection| connection.stream.as_fd());
            let all = [woken, tcp, udp].into_iter().chain(of_connections);
            let mut fds: Vec<PollFd<'_>> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            if poll(&mut fds, timeout.as_ref()).is_err() {
                // Interrupted; what is ready is found the next time.
                return ready;
            }
            let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            ready.tcp = is_ready(&fds[1]);
            ready.udp = is_ready(&fds[2]);
            ready.connections = (0..self.connections.len()).filter(|at| is_ready(&fds[3 + at])).collect();
        }
        ready
    }

    fn accept(&mut self) {
        while let Ok((stream, peer)) = self.tcp.accept() {
            if self.connections.len() >= self.options.connections_max {
                self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if stream.set_nonblocking(true).is_ok() {
                self.counters.connections_open.fetch_add(1, Ordering::Relaxed);
                self.connections.push(Connection {
                    stream,
                    peer: Some(peer.ip()),
                    frames: Frames::default(),
                });
            }
        }
    }

    fn read(&mut self, at: usize) {
        let mut is_over = false;
        for _ in 0..READS_MAX {
            let connection = &mut self.connections[at];
            match connection.stream.read(&mut self.buffer) {
                Ok(0) => is_over = true,
                Ok(count) => connection.frames.push(&self.buffer[..count]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => is_over = true,
            }
            let peer = connection.peer;
            while let Some(frame) = self.connections[at].frames.next(self.options.message_bytes_max) {
                self.take(frame, peer);
            }
            if is_over {
                let connection = self.connections.swap_remove(at);
                self.ended(connection);
                break;
            }
        }
    }

    /// A message whose end was the connection's.
    fn ended(&mut self, mut connection: Connection) {
        self.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
        if let Some(frame) = connection.frames.last(self.options.message_bytes_max) {
            self.take(frame, connection.peer);
        }
    }

    fn datagrams(&mut self) {
        // Each is one message.
        for _ in 0..READS_MAX * 64 {
            let Ok((count, peer)) = self.udp.recv_from(&mut self.buffer) else { return };
            let kept = count.min(self.options.message_bytes_max);
            let end = self.buffer[..kept].iter().rposition(|b| !matches!(b, b'\n' | b'\r' | 0));
            let Some(last) = end else { continue };
            let frame = Frame { bytes: self.buffer[..=last].to_vec(), cut: kept < count };
            self.take(frame, Some(peer.ip()));
        }
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

/// Sockets that have something.
#[derive(Default)]
struct Ready {
    tcp: bool,
    udp: bool,
    connections: Vec<usize>,
}
