//! The project's lock: counted, ordered, and forbidden to readers.
//!
//! It makes three mistakes visible that otherwise show only as a rare stall:
//! - *contention*: [`lock_stats`] tells for each [`Rank`] how often and how long threads had to wait;
//! - *deadlock by order*: locks must be taken in ascending rank. Debug builds panic at the first acquisition that is
//!   out of order, even if no other thread is involved at that moment;
//! - *a waiting reader* (R1): a thread inside [`read_path`] must take no lock. Debug builds panic; release builds
//!   count such acquisitions and show the count in metrics.

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The position of a lock in the total order of all locks of the program. A thread that holds a lock may take only
/// locks of higher rank, so the outer crates' locks have the lower numbers: server 10 to 29, query 30 to 39, engine 40
/// to 69, table 70 to 79, commitlog 80 to 99. The innermost locks of all have 100 to 127.
///
/// Two locks that are never held together may share a rank if they also share the name; they are then counted
/// together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    order: u8,
    name: &'static str,
}

const RANKS: usize = 128;

impl Rank {
    /// Makes a rank. `order` is below 128; `name` is for metrics and messages, such as `"commit queue"`.
    pub const fn new(order: u8, name: &'static str) -> Self {
        assert!((order as usize) < RANKS, "lock ranks end at 127");
        Rank { order, name }
    }

    fn counters(self) -> &'static Counters {
        &COUNTERS[usize::from(self.order)]
    }
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (rank {})", self.name, self.order)
    }
}

/// A mutual exclusion lock without poisoning. A thread that panics while it holds the lock leaves the value as it is,
/// so the value must be consistent after every statement.
pub struct Mutex<T: ?Sized> {
    rank: Rank,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    pub const fn new(rank: Rank, value: T) -> Self {
        Mutex { rank, inner: parking_lot::Mutex::new(value) }
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds the lock. Debug builds panic if the thread is on the read path or holds a
    /// lock of the same or a higher rank.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let counters = self.rank.counters();
        order::check(self.rank);
        counters.count_acquisition(self.rank);
        let on_read_path = on_read_path();
        if on_read_path {
            counters.read_path_locks.fetch_add(1, Relaxed);
            if cfg!(debug_assertions) {
                panic!("R1: a reader must wait for nobody, but takes the lock {:?}", self.rank);
            }
        }
        let guard = match self.inner.try_lock() {
            Some(guard) => guard,
            None => {
                // The wait is counted before it begins, so that an endless wait is visible too.
                counters.waits.fetch_add(1, Relaxed);
                counters.read_path_waits.fetch_add(u64::from(on_read_path), Relaxed);
                let start = Instant::now();
                let guard = self.inner.lock();
                counters.waited_ns.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
                guard
            }
        };
        order::push(self.rank);
        MutexGuard { inner: guard, rank: self.rank }
    }

    /// Takes the lock if it is free. This cannot deadlock and cannot stall, so it is allowed out of order and on the
    /// read path.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock()?;
        self.rank.counters().count_acquisition(self.rank);
        order::push(self.rank);
        Some(MutexGuard { inner: guard, rank: self.rank })
    }

    /// Returns the value without locking: an exclusive reference proves that no other thread has one.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        out.field("rank", &self.rank);
        match self.inner.try_lock() {
            Some(value) => out.field("value", &&*value),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// Releases the lock when dropped. Cannot be sent to another thread.
pub struct MutexGuard<'a, T: ?Sized> {
    inner: parking_lot::MutexGuard<'a, T>,
    rank: Rank,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        order::pop(self.rank);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

/// A condition variable: lets threads that hold a [`Mutex`] wait until other threads change the guarded value.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again. May also wake without a notification. Debug
    /// builds panic if the thread holds another lock, which would stay taken for an unbounded time.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        check_wait(guard.rank);
        self.0.wait(&mut guard.inner);
    }

    /// Waits like [`Condvar::wait`], but no longer than `timeout`. Returns true if it was notified (or woke by chance)
    /// before.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        check_wait(guard.rank);
        !self.0.wait_for(&mut guard.inner, timeout).timed_out()
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[track_caller]
fn check_wait(rank: Rank) {
    order::check_alone(rank);
    if on_read_path() {
        rank.counters().read_path_waits.fetch_add(1, Relaxed);
        if cfg!(debug_assertions) {
            panic!("R1: a reader must wait for nobody, but waits for a notification under {rank:?}");
        }
    }
}

/// Marks the thread as answering a read until the returned value is dropped. The thread may take no [`Mutex`] and wait
/// for no [`Condvar`] in that time (R1). Scopes nest.
#[must_use = "the scope ends when the value is dropped"]
pub fn read_path() -> ReadPath {
    crate::faults::register_reader();
    READ_PATH_DEPTH.with(|depth| depth.set(depth.get() + 1));
    ReadPath { _stays_on_its_thread: PhantomData }
}

/// Returns true if this thread is inside a [`read_path`] scope.
pub fn on_read_path() -> bool {
    READ_PATH_DEPTH.with(|depth| depth.get() > 0)
}

/// The scope that [`read_path`] opens; it ends when this is dropped.
#[derive(Debug)]
pub struct ReadPath {
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for ReadPath {
    fn drop(&mut self) {
        READ_PATH_DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

thread_local! {
    static READ_PATH_DEPTH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The counters of the locks of one rank since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    pub rank: u8,
    pub name: &'static str,
    /// The number of times that a lock of this rank was taken.
    pub acquisitions: u64,
    /// The number of acquisitions that had to wait because another thread held the lock.
    pub waits: u64,
    /// The sum of those waits.
    pub waited: Duration,
    /// The number of acquisitions inside [`read_path`]. Any value but 0 is a defect (R1).
    pub read_path_locks: u64,
    /// The number of those acquisitions, and of waits for a notification, in which the reader had to wait.
    pub read_path_lock_waits: u64,
}

/// Returns the counters of all ranks in use, by rank. Takes no lock.
pub fn lock_stats() -> Vec<LockStats> {
    let used = |(rank, counters): (usize, &Counters)| {
        Some(LockStats {
            rank: rank as u8,
            name: counters.name.get()?,
            acquisitions: counters.acquisitions.load(Relaxed),
            waits: counters.waits.load(Relaxed),
            waited: Duration::from_nanos(counters.waited_ns.load(Relaxed)),
            read_path_locks: counters.read_path_locks.load(Relaxed),
            read_path_lock_waits: counters.read_path_waits.load(Relaxed),
        })
    };
    COUNTERS.iter().enumerate().filter_map(used).collect()
}

static COUNTERS: [Counters; RANKS] = [const { Counters::new() }; RANKS];

/// Counters have cache lines of their own, so that counting one lock does not slow another.
#[repr(align(128))]
struct Counters {
    name: OnceLock<&'static str>,
    acquisitions: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    read_path_locks: AtomicU64,
    read_path_waits: AtomicU64,
}

impl Counters {
    const fn new() -> Self {
        Counters {
            name: OnceLock::new(),
            acquisitions: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            read_path_locks: AtomicU64::new(0),
            read_path_waits: AtomicU64::new(0),
        }
    }

    #[track_caller]
    fn count_acquisition(&self, rank: Rank) {
        self.acquisitions.fetch_add(1, Relaxed);
        let name = *self.name.get_or_init(|| rank.name);
        debug_assert_eq!(
            name, rank.name,
            "two kinds of lock share the rank {}; give one another number",
            rank.order
        );
    }
}

/// The locks that this thread holds. Only debug builds track them.
mod order {
    use super::Rank;
    #[cfg(debug_assertions)]
    use std::cell::RefCell;

    #[cfg(debug_assertions)]
    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Panics unless the rank is above those of all locks held. This order makes it impossible for two threads to wait
    /// for each other.
    #[track_caller]
    #[inline]
    pub(super) fn check(_rank: Rank) {
        #[cfg(debug_assertions)]
        if let Some(top) = HELD.with_borrow(|held| held.iter().copied().max_by_key(|held| held.order))
            && top.order >= _rank.order
        {
            panic!("locks are taken in ascending rank, but {_rank:?} is asked for under {top:?}");
        }
    }

    #[track_caller]
    #[inline]
    pub(super) fn check_alone(_rank: Rank) {
        #[cfg(debug_assertions)]
        if let Some(other) = HELD.with_borrow(|held| held.iter().copied().find(|held| *held != _rank)) {
            panic!("a thread that waits for a notification under {_rank:?} must not hold {other:?}");
        }
    }

    #[inline]
    pub(super) fn push(_rank: Rank) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| held.push(_rank));
    }

    /// Removes a lock from those held. Guards may be dropped in any order.
    #[inline]
    pub(super) fn pop(_rank: Rank) {
        // The destructor of another thread-local may drop a guard after this one is gone.
        #[cfg(debug_assertions)]
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|held| *held == _rank) {
                held.remove(at);
            }
        });
    }
}
