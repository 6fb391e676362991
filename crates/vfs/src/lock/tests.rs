use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

/// Returns the counters of a rank. Every test uses its own ranks, since the counters belong to the process.
fn stats_of(rank: Rank) -> LockStats {
    lock_stats().into_iter().find(|stats| stats.rank == rank.order).unwrap_or_default()
}

/// Returns the message of the panic that `run` must end with.
fn panic_of(run: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("this must panic");
    payload
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| payload.downcast_ref::<&str>().unwrap().to_string())
}

#[test]
fn acquisitions_are_counted_by_rank_and_waits_only_when_another_thread_holds_the_lock() {
    let _limit = testkit::limit(30);
    const RANK: Rank = Rank::new(1, "counted");
    let lock = Arc::new(Mutex::new(RANK, 0));
    for _ in 0..3 {
        *lock.lock() += 1;
    }
    let before = stats_of(RANK);
    assert_eq!((before.name, before.acquisitions, before.waits), ("counted", 3, 0));

    let held = lock.lock();
    let waiter = thread::spawn({
        let lock = lock.clone();
        move || *lock.lock() += 1
    });
    while stats_of(RANK).waits == 0 {
        thread::yield_now();
    }
    assert!(lock.try_lock().is_none());
    drop(held);
    waiter.join().unwrap();
    let after = stats_of(RANK);
    assert_eq!((after.acquisitions, after.waits), (5, 1), "three, the holder's and the waiter's");
    assert!(after.waited > Duration::ZERO);
    assert_eq!(*lock.lock(), 4);
}

#[test]
fn locks_taken_in_ascending_rank_nest() {
    let outer = Mutex::new(Rank::new(2, "outer"), "a");
    let inner = Mutex::new(Rank::new(3, "inner"), "b");
    for _ in 0..2 {
        let first = outer.lock();
        let second = inner.lock();
        // The locks are released in the order of taking: the held locks must not be tracked as a stack.
        drop(first);
        assert_eq!(*second, "b");
    }
    drop(inner.lock());
    drop(outer.lock());
}

#[test]
#[cfg(debug_assertions)]
fn a_lock_of_lower_or_equal_rank_is_refused_while_another_is_held() {
    let low = Mutex::new(Rank::new(4, "low"), ());
    let high = Mutex::new(Rank::new(5, "high"), ());
    let twin = Mutex::new(Rank::new(5, "high"), ());
    let held = high.lock();
    assert_eq!(
        panic_of(|| drop(low.lock())),
        "locks are taken in ascending rank, but \"low\" (rank 4) is asked for under \"high\" (rank 5)"
    );
    assert!(panic_of(|| drop(twin.lock())).contains("ascending rank"));
    assert!(panic_of(|| drop(high.lock())).contains("ascending rank"), "a lock taken twice deadlocks");
    assert!(low.try_lock().is_some(), "an attempt cannot deadlock");
    drop(held);
    drop(low.lock());
}

#[test]
#[cfg(debug_assertions)]
fn two_kinds_of_lock_with_one_rank_are_found_out() {
    let first = Mutex::new(Rank::new(6, "this"), ());
    let second = Mutex::new(Rank::new(6, "that"), ());
    drop(first.lock());
    assert!(panic_of(|| drop(second.lock())).contains("share the rank 6"));
}

#[test]
#[cfg(debug_assertions)]
fn a_reader_may_try_a_lock_but_never_take_one() {
    let _limit = testkit::limit(30);
    const RANK: Rank = Rank::new(7, "for writers");
    let lock = Mutex::new(RANK, ());
    let outer = read_path();
    drop(read_path());
    assert!(on_read_path(), "scopes nest");
    assert_eq!(
        panic_of(|| drop(lock.lock())),
        "R1: a reader must wait for nobody, but takes the lock \"for writers\" (rank 7)"
    );
    assert!(lock.try_lock().is_some());
    thread::scope(|scope| {
        scope.spawn(|| assert!(!on_read_path(), "the mark is the thread's")).join().unwrap();
    });
    drop(outer);
    drop(lock.lock());
    assert_eq!(stats_of(RANK).read_path_locks, 1);
}

#[test]
fn a_notification_wakes_and_a_timeout_ends_the_wait() {
    let _limit = testkit::limit(30);
    let shared = Arc::new((Mutex::new(Rank::new(8, "signal"), false), Condvar::new()));
    let notifier = thread::spawn({
        let shared = shared.clone();
        move || {
            *shared.0.lock() = true;
            shared.1.notify_all();
        }
    });
    let mut ready = shared.0.lock();
    while !*ready {
        shared.1.wait(&mut ready);
    }
    notifier.join().unwrap();
    assert!(!shared.1.wait_for(&mut ready, Duration::from_millis(1)));
}

#[test]
#[cfg(debug_assertions)]
fn waiting_for_a_notification_while_holding_another_lock_is_refused() {
    let other = Mutex::new(Rank::new(9, "other"), ());
    let own = Mutex::new(Rank::new(10, "own"), ());
    let condvar = Condvar::new();
    let _other = other.lock();
    let mut guard = own.lock();
    let message = panic_of(|| assert!(condvar.wait_for(&mut guard, Duration::from_millis(1))));
    assert!(message.contains("must not hold \"other\""), "{message}");
}

#[test]
fn a_thread_that_panicked_under_the_lock_leaves_it_usable() {
    let lock = Mutex::new(Rank::new(11, "panicked"), 1);
    panic_of(|| {
        let _held = lock.lock();
        panic!("on purpose");
    });
    assert_eq!(*lock.lock(), 1);
    assert!(format!("{lock:?}").contains("value: 1"));
}
