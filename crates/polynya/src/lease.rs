//! How long a snapshot is held: it ends at [`crate::Options::snapshot_age_max`], so that nobody who forgot one keeps files and
//! memory for ever (R2).

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

/// A lease that is younger is given to whoever takes a snapshot of the same root: so many may be taken, and so little is kept
/// of them.
const SHARED_FOR: Duration = Duration::from_millis(500);

/// What a snapshot reads, until its time is up.
#[derive(Debug)]
pub(crate) struct Lease {
    held: ArcSwapOption<Held>,
    lsn: Lsn,
    end: End,
    /// Of the database; `None` if there is no end.
    given: Option<mpsc::Sender<Given>>,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub root: Arc<Root>,
    /// Of the past.
    pub then: Option<View>,
}

/// When something that was given ends.
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

    /// [`Kind::Timeout`] once it has ended.
    pub fn held(&self) -> Result<Arc<Held>> {
        self.held.load_full().ok_or_else(|| self.end.error(self.lsn))
    }

    /// Pieces that go when the snapshot ends, whoever holds it.
    pub fn lend(&self, pieces: Vec<Piece>) -> Result<Arc<Pieces>> {
        let count = pieces.len();
        let left = ArcSwapOption::from_pointee(pieces);
        let pieces = Arc::new(Pieces { left, count, lsn: self.lsn, end: self.end });
        if let Some(given) = &self.given {
            // Its other end is the database's.
            let _ = given.send(Given::Pieces(Arc::downgrade(&pieces)));
        }
        // As long as this one has not ended, a thread looks at what was sent.
        self.held().map(|_| pieces)
    }
}

/// What a scan has still to read.
#[derive(Debug)]
pub(crate) struct Pieces {
    left: ArcSwapOption<Vec<Piece>>,
    pub count: usize,
    lsn: Lsn,
    end: End,
}

impl Pieces {
    /// [`Kind::Timeout`] once the snapshot has ended.
    pub fn all(&self) -> Result<Arc<Vec<Piece>>> {
        self.left.load_full().ok_or_else(|| self.end.error(self.lsn))
    }

    pub fn let_go(&self) {
        self.left.store(None);
    }
}

/// What has an end.
enum Given {
    Lease(Weak<Lease>),
    Pieces(Weak<Pieces>),
}

impl Given {
    /// Ends it if its time is up. Whether it lives on.
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

/// The leases of a database. Who takes a snapshot waits for nobody: those given are sent to the thread that looks after them.
pub(crate) struct Leases {
    longest: Option<Duration>,
    /// The last one, to be shared. Let go of when nobody uses it.
    newest: ArcSwapOption<Lease>,
    given: mpsc::Sender<Given>,
    /// Whether a thread looks after them. It ends when there is none.
    watched: AtomicBool,
    /// That thread's.
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

    /// A lease of the newest root.
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

    /// A lease of a root that is nobody else's, such as that of an open transaction.
    pub fn of_own(self: &Arc<Self>, root: Arc<Root>) -> Arc<Lease> {
        self.given(root, None)
    }

    /// Nothing is kept for those to come.
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
        // Its other end is in `self`.
        let _ = self.given.send(Given::Lease(Arc::downgrade(&lease)));
        // Sent before it is asked who looks, as who looks asks before it leaves.
        fence(Ordering::SeqCst);
        if !self.watched.swap(true, Ordering::AcqRel) {
            let leases = Arc::downgrade(self);
            let pause = (longest / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
            let watching = Class::Background.spawn("pn-snapshots", move || watch(&leases, pause));
            if watching.is_err() {
                // A process at its limit: the next one tries again.
                self.watched.store(false, Ordering::Release);
            }
        }
        lease
    }

    /// Ends those whose time is up. False: there are none left to look after.
    fn sweep(&self) -> bool {
        let newest = self.newest.load_full();
        // This one and the one that is kept.
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
        // Who gave one before that did not begin another thread.
        given.extend(arriving.try_iter());
        !given.is_empty() && !self.watched.swap(true, Ordering::AcqRel)
    }
}

fn watch(leases: &Weak<Leases>, pause: Duration) {
    loop {
        thread::sleep(pause);
        // Never longer than a sweep: whoever drops the database does it himself.
        match leases.upgrade() {
            Some(leases) if leases.sweep() => {}
            _ => return,
        }
    }
}
