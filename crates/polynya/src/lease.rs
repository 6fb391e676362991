//! Limits how long a snapshot is kept: a lease ends after [`crate::Options::snapshot_age_max`]. So a forgotten snapshot does not
//! hold files and memory for ever (R2).

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use engine::threads::Class;
use engine::{Root, View};
use table::Piece;
use types::{Error, Kind, Lsn, Result};
use vfs::{Mutex, Rank};

/// The age up to which a lease is shared with further snapshots of the same root. Sharing makes taking a snapshot cheap and keeps
/// the number of leases small.
const SHARED_FOR: Duration = Duration::from_millis(500);

/// The root that a snapshot reads, until the lease ends.
#[derive(Debug)]
pub(crate) struct Lease {
    held: ArcSwapOption<Held>,
    lsn: Lsn,
    end: End,
    /// The channel to the database's sweeper; `None` if the lease never ends.
    given: Option<mpsc::Sender<Given>>,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub root: Arc<Root>,
    /// The view of an earlier lsn, for a snapshot of the past.
    pub then: Option<View>,
}

/// The end of a lease.
#[derive(Clone, Copy, Debug)]
struct End {
    since: Instant,
    longest: Duration,
}

impl End {
    fn is_over(&self) -> bool {
        self.since.elapsed() >= self.longest
    }

    fn error(&self, lsn: Lsn) -> Error {
        let longest = self.longest.as_secs_f64();
        Error::new(Kind::Timeout, format!("the snapshot was held for {longest} s and has ended"))
            .with("lsn", lsn)
            .hint("take a new one, or open the database with a longer Options::snapshot_age_max")
    }
}

impl Lease {
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the root. Fails with [`Kind::Timeout`] once the lease has ended.
    pub fn held(&self) -> Result<Arc<Held>> {
        self.held.load_full().ok_or_else(|| self.end.error(self.lsn))
    }

    /// Registers the pieces of a scan, which are released when the lease ends, even if the scan is still held.
    pub fn lend(&self, pieces: Vec<Piece>) -> Result<Arc<Pieces>> {
        let count = pieces.len();
        let left = ArcSwapOption::from_pointee(pieces);
        let pieces = Arc::new(Pieces { left, count, lsn: self.lsn, end: self.end });
        if let Some(given) = &self.given {
            // The receiver belongs to the database. If it is gone, nothing needs to end.
            let _ = given.send(Given::Pieces(Arc::downgrade(&pieces)));
        }
        // A lease that has not ended keeps the sweeper thread alive, so it will receive the pieces.
        self.held().map(|_| pieces)
    }
}

/// The pieces that a scan has still to read.
#[derive(Debug)]
pub(crate) struct Pieces {
    left: ArcSwapOption<Vec<Piece>>,
    pub count: usize,
    lsn: Lsn,
    end: End,
}

impl Pieces {
    /// Returns the pieces. Fails with [`Kind::Timeout`] once the snapshot has ended.
    pub fn all(&self) -> Result<Arc<Vec<Piece>>> {
        self.left.load_full().ok_or_else(|| self.end.error(self.lsn))
    }

    pub fn let_go(&self) {
        self.left.store(None);
    }
}

/// A resource of the sweeper, held weakly.
enum Given {
    Lease(Weak<Lease>),
    Pieces(Weak<Pieces>),
}

impl Given {
    /// Releases the resource if its time is up. Returns true if it stays.
    fn lives(&self) -> bool {
        match self {
            Given::Lease(lease) => lease.upgrade().is_some_and(|lease| {
                let lives = !lease.end.is_over();
                if !lives {
                    lease.held.store(None);
                }
                lives
            }),
            Given::Pieces(pieces) => pieces.upgrade().is_some_and(|pieces| {
                let lives = !pieces.end.is_over();
                if !lives {
                    pieces.let_go();
                }
                lives
            }),
        }
    }
}

/// All leases of a database. Taking a snapshot never waits: new leases are sent to the sweeper thread through a channel.
pub(crate) struct Leases {
    longest: Option<Duration>,
    /// The newest lease, for sharing. The sweeper drops it when no snapshot uses it.
    newest: ArcSwapOption<Lease>,
    given: mpsc::Sender<Given>,
    /// True while a sweeper thread runs. It ends when there are no leases.
    watched: AtomicBool,
    /// The state of the sweeper thread.
    watch: Mutex<Watch>,
}

struct Watch {
    arriving: mpsc::Receiver<Given>,
    given: Vec<Given>,
}

impl Leases {
    pub fn new(longest: Option<Duration>) -> Arc<Self> {
        let (given, arriving) = mpsc::channel();
        let watch = Mutex::new(Rank::new(36, "library snapshots"), Watch { arriving, given: Vec::new() });
        let newest = ArcSwapOption::empty();
        Arc::new(Leases { longest, newest, given, watched: AtomicBool::new(false), watch })
    }

    /// Returns a lease of the newest root, which may be shared.
    pub fn of(self: &Arc<Self>, root: Arc<Root>) -> Arc<Lease> {
        if let Some(newest) = &*self.newest.load()
            && newest.end.since.elapsed() < SHARED_FOR.min(newest.end.longest / 2)
            && newest.held.load().as_ref().is_some_and(|held| Arc::ptr_eq(&held.root, &root))
        {
            return newest.clone();
        }
        let lease = self.given(root, None);
        if self.longest.is_some() {
            self.newest.store(Some(lease.clone()));
        }
        lease
    }

    pub fn of_past(self: &Arc<Self>, root: Arc<Root>, view: View) -> Arc<Lease> {
        self.given(root, Some(view))
    }

    /// Returns an unshared lease of a private root, such as that of an open transaction.
    pub fn of_own(self: &Arc<Self>, root: Arc<Root>) -> Arc<Lease> {
        self.given(root, None)
    }

    /// Drops the newest lease, so that it is not kept for further snapshots.
    pub fn close(&self) {
        self.newest.store(None);
    }

    fn given(self: &Arc<Self>, root: Arc<Root>, then: Option<View>) -> Arc<Lease> {
        let lsn = then.as_ref().map_or(root.lsn(), View::lsn);
        let held = ArcSwapOption::from_pointee(Held { root, then });
        let end = End { since: Instant::now(), longest: self.longest.unwrap_or(Duration::MAX) };
        let given = self.longest.map(|_| self.given.clone());
        let lease = Arc::new(Lease { held, lsn, end, given });
        let Some(longest) = self.longest else { return lease };
        // The receiver is in `self`, so sending cannot fail.
        let _ = self.given.send(Given::Lease(Arc::downgrade(&lease)));
        // The lease is sent before `watched` is read. The sweeper clears `watched` before it drains the channel a last time, so
        // one of the two sees the other.
        fence(Ordering::SeqCst);
        if !self.watched.swap(true, Ordering::AcqRel) {
            let leases = Arc::downgrade(self);
            let pause = (longest / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
            let watching = Class::Background.spawn("pn-snapshots", move || watch(&leases, pause));
            if watching.is_err() {
                // The process has reached its thread limit; the next lease tries again.
                self.watched.store(false, Ordering::Release);
            }
        }
        lease
    }

    /// Ends the leases whose time is up. Returns false if none is left.
    fn sweep(&self) -> bool {
        let newest = self.newest.load_full();
        // Two references: this one and the one in `newest`.
        if newest.is_some_and(|newest| Arc::strong_count(&newest) <= 2) {
            self.newest.store(None);
        }
        let mut watch = self.watch.lock();
        let Watch { arriving, given } = &mut *watch;
        given.extend(arriving.try_iter());
        given.retain(Given::lives);
        if !given.is_empty() {
            return true;
        }
        self.watched.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        // A lease sent before `watched` was cleared did not start another thread.
        given.extend(arriving.try_iter());
        !given.is_empty() && !self.watched.swap(true, Ordering::AcqRel)
    }
}

fn watch(leases: &Weak<Leases>, pause: Duration) {
    loop {
        thread::sleep(pause);
        // Holds a strong reference only during a sweep, so that dropping the database is left to its owner.
        match leases.upgrade() {
            Some(leases) if leases.sweep() => {}
            _ => return,
        }
    }
}
