//! The listener's thread: sockets in, frames out.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, TcpKeepalive};

use super::frame::{Frame, Frames};
use super::rows::Writer;
use super::{Counters, Options, STOP_READ_TIME_MAX, Stopping};

/// How long a message waits for others to be committed with.
const GATHER: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 64 << 10;
/// The longest datagram there is.
const DATAGRAM_BYTES: usize = 64 << 10;
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
/// Between warnings of connections that are refused.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Run {
    options: Options,
    tcp: TcpListener,
    udp: UdpSocket,
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
        udp: UdpSocket,
        woken: UnixStream,
        writer: Writer,
        counters: Arc<Counters>,
        stopping: Arc<Stopping>,
    ) -> Run {
        let buffer = vec![0; READ_BYTES.max(DATAGRAM_BYTES)];
        let connections = Vec::new();
        let (since, accepts_from, warned) = (None, None, None);
        Run {
            options,
            tcp,
            udp,
            woken,
            writer,
            counters,
            stopping,
            connections,
            since,
            accepts_from,
            warned,
            buffer,
        }
    }

    pub fn run(mut self) {
        while !self.stopping.has_begun() {
            let ready = self.wait();
            if ready.udp {
                self.datagrams(READS_MAX * 64);
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
            if self.since.is_some_and(|since| since.elapsed() >= GATHER) {
                self.flush();
            }
        }
        self.last();
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
        let mut has_datagrams = true;
        // In turns, as long as somebody has something.
        while goes_on(self)
            && (has_datagrams || self.connections.iter().any(|connection| !connection.is_empty))
        {
            has_datagrams = has_datagrams && self.datagrams(READS_MAX);
            // From behind, since those that end leave the list.
            for at in (0..self.connections.len()).rev() {
                if goes_on(self) && !self.connections[at].is_empty {
                    self.read(at);
                }
            }
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
        let left = [left, pause, self.is_refusing().then_some(REFUSING_PAUSE)].into_iter().flatten().min();
        let timeout =
            left.map(|left| Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ });
        let mut ready = Ready::default();
        {
            let (woken, tcp, udp) = (self.woken.as_fd(), self.tcp.as_fd(), self.udp.as_fd());
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
            ready.udp = is_ready(&fds[2]);
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

    /// Takes so many at most; whether there may be more.
    fn datagrams(&mut self, count_max: usize) -> bool {
        // Each is one message.
        for _ in 0..count_max {
            let Ok((count, peer)) = self.udp.recv_from(&mut self.buffer) else { return false };
            let kept = count.min(self.options.message_bytes_max);
            let end = self.buffer[..kept].iter().rposition(|b| !matches!(b, b'\n' | b'\r' | 0));
            let Some(last) = end else { continue };
            let frame = Frame { bytes: self.buffer[..=last].to_vec(), cut: kept < count };
            self.take(frame, Some(peer.ip()));
        }
        true
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
    udp: bool,
    connections: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// One whose thread the test is.
    fn run(dir: &testkit::TempDir, change: impl FnOnce(&mut Options)) -> Run {
        let path = dir.path().join("data");
        let engine = engine::Engine::open(vfs::Env::real(), &path, engine::Options::default()).unwrap();
        let mut options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)), "syslog");
        change(&mut options);
        let (tcp, udp) = crate::syslog::bind(options.listen).unwrap();
        let (woken, _) = UnixStream::pair().unwrap();
        let (counters, stopping) = (Arc::<Counters>::default(), Arc::<Stopping>::default());
        let writer = Writer::new(engine, &options.table, counters.clone(), stopping.clone()).unwrap();
        Run::new(options, tcp, udp, woken, writer, counters, stopping)
    }

    fn connect(run: &Run) -> TcpStream {
        TcpStream::connect(run.tcp.local_addr().unwrap()).unwrap()
    }

    /// Until it came on our side.
    fn wait_for(connection: &Connection, what: PollFlags) {
        while poll(&mut [PollFd::new(&connection.stream, what)], None).is_err() {}
    }

    /// A device that lost its power kept its place for good.
    #[test]
    fn a_peer_that_is_quiet_is_asked_whether_it_is_there() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let mut run = run(&dir, |_| {});
        let _sender = connect(&run);
        run.accept(READS_MAX);
        let socket = SockRef::from(&run.connections[0].stream);
        assert!(socket.keepalive().unwrap());
        let times = [socket.tcp_keepalive_time(), socket.tcp_keepalive_interval()].map(Result::unwrap);
        assert_eq!(times.map(|time| time.as_secs()), [60, 15]);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    }

    /// It was dropped with what it had sent.
    #[test]
    fn a_connection_without_keepalive_is_read() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut stream = TcpStream::from(OwnedFd::from(ours));
        prepare(&stream).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// The thread span while there were no file descriptors.
    #[test]
    fn a_connection_that_cannot_be_taken_is_not_tried_without_end() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let mut run = run(&dir, |_| {});
        // There is something, and no connection comes of it.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"?", socket.local_addr().unwrap()).unwrap();
        run.tcp = TcpListener::from(OwnedFd::from(socket));
        while !run.wait().tcp {}
        let from = Instant::now();
        run.accept(READS_MAX);
        while !run.wait().tcp {}
        assert!(from.elapsed() >= ACCEPT_PAUSE, "{:?}", from.elapsed());
    }

    /// Connections that waited to be taken were ended with all that they had sent.
    #[test]
    fn what_the_sockets_hold_at_the_stop_came_before_it() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let mut run = run(&dir, |options| options.connections_max = 2);
        let engine = run.writer.engine().clone();
        let mut senders: Vec<TcpStream> = (0..2).map(|_| connect(&run)).collect();
        run.accept(READS_MAX);
        senders.extend((0..20).map(|_| connect(&run)));
        for sender in &mut senders {
            sender.write_all(b"<13>1 - - - - - - whole\n<13>1 - - - - - - half").unwrap();
        }
        run.stopping.begin();
        let counters = run.counters.clone();
        run.run();
        assert_eq!(engine.root().table("main.syslog").unwrap().rows(), 2 * 22);
        let counted = [
            &counters.connections_gave_way,
            &counters.connections_refused,
            &counters.connections_open,
            &counters.lost,
        ];
        assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [0; 4]);
    }

    #[test]
    fn more_than_is_read_at_once_is_read_to_its_end() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let mut run = run(&dir, |_| {});
        let engine = run.writer.engine().clone();
        run.buffer = vec![0; 1 << 10];
        let mut sender = connect(&run);
        run.accept(READS_MAX);
        let line = format!("<13>1 - - - - - - {}\n", "x".repeat(100));
        let lines = line.repeat(400);
        assert!(lines.len() > 2 * READS_MAX * run.buffer.len());
        sender.write_all(lines.as_bytes()).unwrap();
        while rustix::io::ioctl_fionread(&run.connections[0].stream).unwrap() < lines.len() as u64 {
            std::thread::yield_now();
        }
        run.stopping.begin();
        run.run();
        assert_eq!(engine.root().table("main.syslog").unwrap().rows(), 400);
    }

    #[test]
    fn senders_that_do_not_stop_do_not_hold_up_the_stop() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let mut run = run(&dir, |_| {});
        let address = run.tcp.local_addr().unwrap();
        let first = connect(&run);
        run.accept(READS_MAX);
        let lines = "<13>1 - - - - - - x\n".repeat(1_000);
        let is_over = AtomicBool::new(false);
        let write_on = |mut stream: TcpStream, times: usize| {
            (0..times).try_for_each(|_| stream.write_all(lines.as_bytes()))
        };
        std::thread::scope(|scope| {
            // Until the listener ends it.
            scope.spawn(|| write_on(first, usize::MAX));
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed)
                    && let Ok(stream) = TcpStream::connect(address)
                {
                    let _ = write_on(stream, 10);
                }
            });
            run.stopping.begin();
            run.run();
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_came_before_a_connection_gave_way_is_read_first() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let mut run = run(&dir, |options| {
            (options.connections_max, options.quiet_time_min) = (2, Duration::from_secs(3_600));
        });
        // Before its bytes are read, the one that speaks is taken for the one that was quiet for longer.
        let (mut speaks, _quiet) = (connect(&run), connect(&run));
        run.accept(READS_MAX);
        speaks.write_all(b"<13>1 - - - - - - said\n").unwrap();
        wait_for(&run.connections[0], PollFlags::IN);
        let mut third = connect(&run);
        run.accept(READS_MAX);
        let ports = |run: &Run| -> Vec<u16> {
            let peers =
                run.connections.iter().map(|connection| connection.stream.peer_addr().unwrap().port());
            peers.collect()
        };
        assert_eq!(ports(&run), [&speaks, &third].map(|stream| stream.local_addr().unwrap().port()));
        // The end of one is found here too, with what it sent before.
        third.write_all(b"<13>1 - - - - - - last").unwrap();
        drop(third);
        wait_for(&run.connections[1], PollFlags::RDHUP);
        let fourth = connect(&run);
        run.accept(READS_MAX);
        assert_eq!(ports(&run), [&speaks, &fourth].map(|stream| stream.local_addr().unwrap().port()));
        run.flush();
        let counted =
            [&run.counters.messages, &run.counters.connections_gave_way, &run.counters.connections_open];
        assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [2, 1, 2]);
    }
}
