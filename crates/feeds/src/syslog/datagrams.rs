//! Reads datagrams on a thread that does nothing else: the kernel holds few, and drops what comes beyond them.
//!
//! What was read waits in memory until the listener's thread takes it. Where that is behind by [`WAITING_BYTES_MAX`], reading
//! waits, and what the kernel drops meanwhile is counted.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::threads::Class;
use rustix::event::{PollFd, PollFlags, poll};
use vfs::{Condvar, Mutex, Rank};

use super::frame::Frame;
use super::{Counters, socket};

/// The longest datagram there is.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Datagrams that wait for the listener's thread.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// What one of them takes beside its bytes.
const ENTRY_BYTES: usize = 128;
/// So many are handed over at once, at most.
const BATCH_MAX: usize = 256;

/// A message and where it came from.
pub(super) type Datagram = (Frame, IpAddr);

pub(super) struct Datagrams {
    shared: Arc<Shared>,
    /// Has something to read when datagrams wait, or no more will come.
    arrived: UnixStream,
    /// Wakes the reading thread.
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// That some were taken, that reading is to end, or that it ended.
    changed: Condvar,
}

struct State {
    waiting: Vec<Datagram>,
    bytes: usize,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Phase {
    Reads,
    /// What the kernel holds is read, and then no more.
    Drains,
    /// Nothing more is read.
    Ends,
    Over,
}

impl Datagrams {
    /// `socket` does not block. A message longer than `bytes_max` is cut.
    pub fn start(socket: UdpSocket, bytes_max: usize, counters: Arc<Counters>) -> io::Result<Datagrams> {
        socket::grow(&socket);
        let (arrived, notice) = UnixStream::pair()?;
        let (woken, wake) = UnixStream::pair()?;
        for stream in [&arrived, &notice, &woken, &wake] {
            stream.set_nonblocking(true)?;
        }
        let state = State { waiting: Vec::new(), bytes: 0, phase: Phase::Reads };
        let shared = Arc::new(Shared {
            state: Mutex::new(Rank::new(86, "syslog datagrams"), state),
            changed: Condvar::new(),
        });
        let buffer = vec![0; DATAGRAM_BYTES];
        let reader =
            Reader { socket, shared: shared.clone(), notice, woken, counters, bytes_max, buffer, dropped: 0 };
        // Those who send wait for nobody, so it goes before what decodes and commits.
        let thread = Class::Interactive.spawn("pn-syslog-udp", move || reader.run())?;
        Ok(Datagrams { shared, arrived, wake, thread: Some(thread) })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }

    /// All that wait.
    pub fn take(&self) -> Vec<Datagram> {
        // Before the lock: a notice of what comes afterwards stays.
        while matches!(io::Read::read(&mut &self.arrived, &mut [0; 64]), Ok(64)) {}
        let mut state = self.shared.state.lock();
        state.bytes = 0;
        let taken = std::mem::take(&mut state.waiting);
        drop(state);
        self.shared.changed.notify_all();
        taken
    }

    /// Reads what the kernel holds, and then no more.
    pub fn drain(&self) {
        self.enter(Phase::Drains);
    }

    /// Whether none wait and no more will come.
    pub fn is_over(&self) -> bool {
        let state = self.shared.state.lock();
        state.phase == Phase::Over && state.waiting.is_empty()
    }

    /// Waits until some wait or no more will come, and no longer than that.
    pub fn wait(&self, time: Duration) {
        let mut state = self.shared.state.lock();
        if state.phase < Phase::Over && state.waiting.is_empty() {
            self.shared.changed.wait_for(&mut state, time);
        }
    }

    /// Ends reading at once, and gives what nobody took.
    pub fn end(&mut self) -> Vec<Datagram> {
        self.enter(Phase::Ends);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
        self.take()
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.shared.state.lock();
        if state.phase < phase {
            state.phase = phase;
        }
        drop(state);
        self.shared.changed.notify_all();
        // A full pipe wakes too.
        let _ = io::Write::write(&mut &self.wake, &[1]);
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread.
struct Reader {
    socket: UdpSocket,
    shared: Arc<Shared>,
    notice: UnixStream,
    woken: UnixStream,
    counters: Arc<Counters>,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// What the kernel's counter was when it was last read.
    dropped: u32,
}

impl Reader {
    fn run(mut self) {
        loop {
            let (batch, is_empty) = self.read();
            self.count_dropped();
            let phase = self.hand_over(batch);
            if phase >= Phase::Ends || (phase == Phase::Drains && is_empty) {
                break;
            }
            if is_empty {
                self.wait();
            }
        }
        self.shared.state.lock().phase = Phase::Over;
        self.shared.changed.notify_all();
        let _ = io::Write::write(&mut &self.notice, &[1]);
    }

    /// Some of what the kernel holds, and whether that was all.
    fn read(&mut self) -> (Vec<Datagram>, bool) {
        let mut batch = Vec::new();
        for _ in 0..BATCH_MAX {
            let Ok((count, peer)) = self.socket.recv_from(&mut self.buffer) else { return (batch, true) };
            let kept = count.min(self.bytes_max);
            let end = self.buffer[..kept].iter().rposition(|b| !matches!(b, b'\n' | b'\r' | 0));
            let Some(last) = end else { continue };
            let frame = Frame { bytes: self.buffer[..=last].to_vec(), cut: kept < count };
            batch.push((frame, peer.ip()));
        }
        (batch, false)
    }

    fn count_dropped(&mut self) {
        let Some(now) = socket::dropped(&self.socket) else { return };
        let more = now.wrapping_sub(self.dropped);
        self.dropped = now;
        self.counters.datagrams_dropped.fetch_add(more.into(), Ordering::Relaxed);
    }

    /// Waits while too many wait already.
    fn hand_over(&self, batch: Vec<Datagram>) -> Phase {
        let mut state = self.shared.state.lock();
        while !batch.is_empty() && state.bytes >= WAITING_BYTES_MAX && state.phase < Phase::Ends {
            self.shared.changed.wait(&mut state);
        }
        let phase = state.phase;
        if batch.is_empty() {
            return phase;
        }
        let was_empty = state.waiting.is_empty();
        state.bytes += batch.iter().map(|(frame, _)| frame.bytes.len() + ENTRY_BYTES).sum::<usize>();
        state.waiting.extend(batch);
        drop(state);
        self.shared.changed.notify_all();
        if was_empty {
            // A full pipe wakes too.
            let _ = io::Write::write(&mut &self.notice, &[1]);
        }
        phase
    }

    /// Until there is a datagram, or something else to do.
    fn wait(&self) {
        let fds = [self.socket.as_fd(), self.woken.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // Interrupted is ready too.
        let _ = poll(&mut fds, None);
        let _ = io::Read::read(&mut &self.woken, &mut [0; 64]);
    }
}
