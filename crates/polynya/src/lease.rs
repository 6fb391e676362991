//! Limits how long a snapshot is kept: a lease ends after [`crate::Options::snapshot_age_max`]. So a forgotten snapshot does not
//! hold files and memory for ever (R2).

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use engine::threads::Class;
use engine::{DatabaseRoot, View};
use table::ScanPiece;
use types::{Error, Kind, Lsn, Result};
use vfs::{Mutex, Rank};

/// The age up to which a lease is shared with further snapshots of the same root. Sharing makes taking a snapshot cheap and keeps
/// the number of leases small.
const SHARED_FOR: Duration = Duration::from_millis(500);

/// The root that a snapshot reads, until the lease ends.
#[derive(Debug)]
pub(crate) struct Lease {
    root: ArcSwapOption<LeasedRoot>,
    lsn: Lsn,
    expiry: Expiry,
    /// The channel to the database's sweeper; `None` if the lease never ends.
    sweeper: Option<mpsc::Sender<SweptResource>>,
}

#[derive(Debug)]
pub(crate) struct LeasedRoot {
    pub root: Arc<DatabaseRoot>,
    /// The view of an earlier lsn, for a snapshot of the past.
    pub past: Option<View>,
}

/// The end of a lease.
#[derive(Clone, Copy, Debug)]
struct Expiry {
    since: Instant,
    longest: Duration,
}

impl Expiry {
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
    pub fn root(&self) -> Result<Arc<LeasedRoot>> {
        self.root.load_full().ok_or_else(|| self.expiry.error(self.lsn))
    }

    /// Registers the pieces of a scan, which are released when the lease ends, even if the scan is still held.
    pub fn lease_pieces(&self, pieces: Vec<ScanPiece>) -> Result<Arc<LeasedPieces>> {
        let count = pieces.len();
        let left = ArcSwapOption::from_pointee(pieces);
        let pieces = Arc::new(LeasedPieces { left, count, lsn: self.lsn, expiry: self.expiry });
        if let Some(sweeper) = &self.sweeper {
            // The receiver belongs to the database. If it is gone, nothing needs to end.
            let _ = sweeper.send(SweptResource::Pieces(Arc::downgrade(&pieces)));
        }
        // A lease that has not ended keeps the sweeper thread alive, so it will receive the pieces.
        self.root().map(|_| pieces)
    }
}

/// The pieces that a scan has still to read.
#[derive(Debug)]
pub(crate) struct LeasedPieces {
    left: ArcSwapOption<Vec<ScanPiece>>,
    pub count: usize,
    lsn: Lsn,
    expiry: Expiry,
}

impl LeasedPieces {
    /// Returns the pieces. Fails with [`Kind::Timeout`] once the snapshot has ended.
    pub fn all(&self) -> Result<Arc<Vec<ScanPiece>>> {
        self.left.load_full().ok_or_else(|| self.expiry.error(self.lsn))
    }

    pub fn release(&self) {
        self.left.store(None);
    }
}

/// A resource of the sweeper, held weakly.
enum SweptResource {
    Lease(Weak<Lease>),
    Pieces(Weak<LeasedPieces>),
}

impl SweptResource {
    /// Releases the resource if its time is up. Returns true if it stays.
    fn sweep(&self) -> bool {
        match self {
            SweptResource::Lease(lease) => lease.upgrade().is_some_and(|lease| {
                let lives = !lease.expiry.is_over();
                if !lives {
                    lease.root.store(None);
                }
                lives
            }),
            SweptResource::Pieces(pieces) => pieces.upgrade().is_some_and(|pieces| {
                let lives = !pieces.expiry.is_over();
                if !lives {
                    pieces.release();
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
    sender: mpsc::Sender<SweptResource>,
    /// True while a sweeper thread runs. It ends when there are no leases.
    is_swept: AtomicBool,
    /// The state of the sweeper thread.
    sweeper: Mutex<Sweeper>,
}

struct Sweeper {
    receiver: mpsc::Receiver<SweptResource>,
    resources: Vec<SweptResource>,
}

impl Leases {
    pub fn new(longest: Option<Duration>) -> Arc<Self> {
        let (sender, receiver) = mpsc::channel();
        let state = Sweeper { receiver, resources: Vec::new() };
        let sweeper = Mutex::new(Rank::new(36, "library snapshots"), state);
        let newest = ArcSwapOption::empty();
        Arc::new(Leases { longest, newest, sender, is_swept: AtomicBool::new(false), sweeper })
    }

    /// Returns a lease of the newest root, which may be shared.
    pub fn of(self: &Arc<Self>, root: Arc<DatabaseRoot>) -> Arc<Lease> {
        if let Some(newest) = &*self.newest.load()
            && newest.expiry.since.elapsed() < SHARED_FOR.min(newest.expiry.longest / 2)
            && newest.root.load().as_ref().is_some_and(|leased| Arc::ptr_eq(&leased.root, &root))
        {
            return newest.clone();
        }
        let lease = self.new_lease(root, None);
        if self.longest.is_some() {
            self.newest.store(Some(lease.clone()));
        }
        lease
    }

    pub fn of_past(self: &Arc<Self>, root: Arc<DatabaseRoot>, view: View) -> Arc<Lease> {
        self.new_lease(root, Some(view))
    }

    /// Returns an unshared lease of a private root, such as that of an open transaction.
    pub fn of_own(self: &Arc<Self>, root: Arc<DatabaseRoot>) -> Arc<Lease> {
        self.new_lease(root, None)
    }

    /// Drops the newest lease, so that it is not kept for further snapshots.
    pub fn close(&self) {
        self.newest.store(None);
    }

    fn new_lease(self: &Arc<Self>, root: Arc<DatabaseRoot>, past: Option<View>) -> Arc<Lease> {
        let lsn = past.as_ref().map_or(root.lsn(), View::lsn);
        let root = ArcSwapOption::from_pointee(LeasedRoot { root, past });
        let expiry = Expiry { since: Instant::now(), longest: self.longest.unwrap_or(Duration::MAX) };
        let sweeper = self.longest.map(|_| self.sender.clone());
        let lease = Arc::new(Lease { root, lsn, expiry, sweeper });
        let Some(longest) = self.longest else { return lease };
        // The receiver is in `self`, so sending cannot fail.
        let _ = self.sender.send(SweptResource::Lease(Arc::downgrade(&lease)));
        // The lease is sent before `is_swept` is read. The sweeper clears `is_swept` before it drains the channel a last time, so
        // one of the two sees the other.
        fence(Ordering::SeqCst);
        if !self.is_swept.swap(true, Ordering::AcqRel) {
            let leases = Arc::downgrade(self);
            let pause = (longest / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
            let thread = Class::Background.spawn("pn-snapshots", move || run_sweeper(&leases, pause));
            if thread.is_err() {
                // The process has reached its thread limit; the next lease tries again.
                self.is_swept.store(false, Ordering::Release);
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
        let mut sweeper = self.sweeper.lock();
        let Sweeper { receiver, resources } = &mut *sweeper;
        resources.extend(receiver.try_iter());
        resources.retain(SweptResource::sweep);
        if !resources.is_empty() {
            return true;
        }
        self.is_swept.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        // A lease sent before `is_swept` was cleared did not start another thread.
        resources.extend(receiver.try_iter());
        !resources.is_empty() && !self.is_swept.swap(true, Ordering::AcqRel)
    }
}

fn run_sweeper(leases: &Weak<Leases>, pause: Duration) {
    loop {
        thread::sleep(pause);
        // Holds a strong reference only during a sweep, so that dropping the database is left to its owner.
        match leases.upgrade() {
            Some(leases) if leases.sweep() => {}
            _ => return,
        }
    }
}
