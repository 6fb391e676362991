//! How long a snapshot is held: it ends at [`crate::Options::snapshot_age_max`], so that nobody who forgot one keeps files and
//! memory for ever (R2).

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use engine::threads::Class;
use engine::{Root, View};
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
    since: Instant,
    longest: Duration,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub root: Arc<Root>,
    /// Of the past.
    pub then: Option<View>,
}

impl Lease {
    fn new(root: Arc<Root>, then: Option<View>, longest: Duration) -> Arc<Self> {
        let lsn = then.as_ref().map_or(root.lsn(), View::lsn);
        let held = ArcSwapOption::from_pointee(Held { root, then });
        Arc::new(Lease { held, lsn, since: Instant::now(), longest })
    }

    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// [`Kind::Timeout`] once it has ended.
    pub fn held(&self) -> Result<Arc<Held>> {
        self.held.load_full().ok_or_else(|| {
            let longest = self.longest.as_secs_f64();
            Error::new(Kind::Timeout, format!("the snapshot was held for {longest} s and has ended"))
                .with("lsn", self.lsn)
                .hint("take a new one, or open the database with a longer Options::snapshot_age_max")
        })
    }
}

/// The leases of a database.
pub(crate) struct Leases {
    longest: Option<Duration>,
    /// The last one, to be shared. Let go of when nobody uses it.
    newest: ArcSwapOption<Lease>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    given: Vec<Weak<Lease>>,
    /// Whether a thread looks after them. It ends when there is none.
    watched: bool,
}

impl Leases {
    pub fn new(longest: Option<Duration>) -> Arc<Self> {
        let state = Mutex::new(Rank::new(36, "library snapshots"), State::default());
        Arc::new(Leases { longest, newest: ArcSwapOption::empty(), state })
    }

    /// A lease of the newest root.
    pub fn of(self: &Arc<Self>, root: Arc<Root>) -> Arc<Lease> {
        if let Some(newest) = &*self.newest.load()
            && newest.since.elapsed() < SHARED_FOR.min(newest.longest / 2)
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
        let Some(longest) = self.longest else { return Lease::new(root, then, Duration::MAX) };
        let lease = Lease::new(root, then, longest);
        let mut state = self.state.lock();
        state.given.push(Arc::downgrade(&lease));
        let begin = !std::mem::replace(&mut state.watched, true);
        drop(state);
        if begin {
            let leases = Arc::downgrade(self);
            let pause = (longest / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
            let watching = Class::Background.spawn("pn-snapshots", move || watch(&leases, pause));
            if watching.is_err() {
                // A process at its limit: the next one tries again.
                self.state.lock().watched = false;
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
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        state.given.retain(|lease| {
            let Some(lease) = lease.upgrade() else { return false };
            let lives = lease.since.elapsed() < lease.longest;
            if !lives {
                ended.push(lease);
            }
            lives
        });
        state.watched = !state.given.is_empty();
        let more = state.watched;
        drop(state);
        // Freed outside the lock.
        ended.into_iter().for_each(|lease| lease.held.store(None));
        more
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
