//! Reads datagrams on a thread that does nothing else, because the kernel buffers few and drops the rest.
//!
//! Datagrams wait in memory until the listener's thread takes them. If [`WAITING_BYTES_MAX`] are waiting, reading
//! pauses, and the datagrams that the kernel drops meanwhile are counted.

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

/// The size of the largest possible datagram.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Bytes of datagrams that may wait for the listener's thread.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Overhead in bytes of a waiting datagram.
const ENTRY_BYTES: usize = 128;
/// The greatest number of datagrams handed over at once.
const BATCH_MAX: usize = 256;

/// A message and its sender's address.
pub(super) type Datagram = (Frame, IpAddr);

pub(super) struct DatagramReceiver {
    shared: Arc<Shared>,
    /// Readable when datagrams are waiting or when no more will come.
    arrived: UnixStream,
    /// Wakes the reading thread.
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Signals that datagrams were taken, that reading must end, or that it has ended.
    changed: Condvar,
}

struct State {
    waiting: Vec<Datagram>,
    bytes: usize,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Phase {
    Reading,
    /// The kernel's buffer is read to its end, and then reading ends.
    Draining,
    /// Reading ends at once.
    Ending,
    Ended,
}

impl DatagramReceiver {
    /// Starts the reading thread. `socket` must be non-blocking. Messages longer than `bytes_max` are cut.
    pub fn start(
        socket: UdpSocket,
        bytes_max: usize,
        counters: Arc<Counters>,
    ) -> io::Result<DatagramReceiver> {
        socket::grow(&socket);
        let (arrived, notice) = UnixStream::pair()?;
        let (woken, wake) = UnixStream::pair()?;
        for stream in [&arrived, &notice, &woken, &wake] {
            stream.set_nonblocking(true)?;
        }
        let state = State { waiting: Vec::new(), bytes: 0, phase: Phase::Reading };
        let shared = Arc::new(Shared {
            state: Mutex::new(Rank::new(86, "syslog datagrams"), state),
            changed: Condvar::new(),
        });
        let buffer = vec![0; DATAGRAM_BYTES];
        let reader =
            Reader { socket, shared: shared.clone(), notice, woken, counters, bytes_max, buffer, dropped: 0 };
        // UDP senders do not wait, so this thread has priority over those that decode and commit.
        let thread = Class::Interactive.spawn("pn-syslog-udp", move || reader.run())?;
        Ok(DatagramReceiver { shared, arrived, wake, thread: Some(thread) })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }

    /// Takes all waiting datagrams.
    pub fn take(&self) -> Vec<Datagram> {
        // The notices are read before the lock is taken, so that a notice of later datagrams stays.
        while matches!(io::Read::read(&mut &self.arrived, &mut [0; 64]), Ok(64)) {}
        let mut state = self.shared.state.lock();
        state.bytes = 0;
        let taken = std::mem::take(&mut state.waiting);
        drop(state);
        self.shared.changed.notify_all();
        taken
    }

    /// Reads what the kernel has buffered, and then ends reading.
    pub fn drain(&self) {
        self.enter(Phase::Draining);
    }

    /// Returns true if no datagrams are waiting and no more will come.
    pub fn is_over(&self) -> bool {
        let state = self.shared.state.lock();
        state.phase == Phase::Ended && state.waiting.is_empty()
    }

    /// Waits until datagrams are waiting, no more will come, or the time has passed.
    pub fn wait(&self, time: Duration) {
        let mut state = self.shared.state.lock();
        if state.phase < Phase::Ended && state.waiting.is_empty() {
            self.shared.changed.wait_for(&mut state, time);
        }
    }

    /// Ends reading at once, and returns the datagrams that are still waiting.
    pub fn end(&mut self) -> Vec<Datagram> {
        self.enter(Phase::Ending);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, there is nothing left to do.
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
        // A full pipe wakes the thread too.
        let _ = io::Write::write(&mut &self.wake, &[1]);
    }
}

impl Drop for DatagramReceiver {
    fn drop(&mut self) {
        self.end();
    }
}

/// The state of the reading thread.
struct Reader {
    socket: UdpSocket,
    shared: Arc<Shared>,
    notice: UnixStream,
    woken: UnixStream,
    counters: Arc<Counters>,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// The kernel's drop counter at the last query.
    dropped: u32,
}

impl Reader {
    fn run(mut self) {
        loop {
            let (batch, is_empty) = self.read();
            self.count_dropped();
            let phase = self.hand_over(batch);
            if phase >= Phase::Ending || (phase == Phase::Draining && is_empty) {
                break;
            }
            if is_empty {
                self.wait();
            }
        }
        self.shared.state.lock().phase = Phase::Ended;
        self.shared.changed.notify_all();
        let _ = io::Write::write(&mut &self.notice, &[1]);
    }

    /// Reads up to [`BATCH_MAX`] datagrams. The flag is true if the kernel has no more.
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

    /// Hands datagrams over. Blocks while too many are waiting already.
    fn hand_over(&self, batch: Vec<Datagram>) -> Phase {
        let mut state = self.shared.state.lock();
        while !batch.is_empty() && state.bytes >= WAITING_BYTES_MAX && state.phase < Phase::Ending {
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
            // A full pipe wakes the thread too.
            let _ = io::Write::write(&mut &self.notice, &[1]);
        }
        phase
    }

    /// Waits until a datagram arrives or the thread is woken.
    fn wait(&self) {
        let fds = [self.socket.as_fd(), self.woken.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted wait counts as ready.
        let _ = poll(&mut fds, None);
        let _ = io::Read::read(&mut &self.woken, &mut [0; 64]);
    }
}
