use super::*;
use crate::Micros;
use std::thread;

/// A clock that moves only when a test advances it.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn advance(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Finds a thread by name, because concurrent tests share the list.
fn status_of(name: &str) -> Option<Status> {
    heartbeats().into_iter().find(|status| status.name == name)
}

#[test]
fn the_longest_turn_is_kept_for_ever_and_the_recent_one_for_ten_seconds() {
    let clock = Arc::new(ManualClock::default());
    let heart = register(clock.clone(), "turns", "interactive");
    for took in [3, 40, 7] {
        heart.busy();
        clock.advance(took);
        heart.idle();
        clock.advance(1000);
    }
    let status = status_of("turns").unwrap();
    assert_eq!(
        status,
        Status {
            name: "turns".into(),
            class: "interactive",
            busy_for: None,
            turns: 3,
            longest: ms(40),
            longest_recent: ms(40)
        }
    );
    clock.advance(9000);
    assert_eq!(status_of("turns").unwrap().longest_recent, ms(7), "the turn of 40 ms is eleven seconds old");
    clock.advance(60_000);
    let late = status_of("turns").unwrap();
    assert_eq!((late.longest, late.longest_recent), (ms(40), ms(0)));
}

#[test]
fn a_turn_that_has_not_ended_counts_while_it_runs() {
    let clock = Arc::new(ManualClock::default());
    let heart = register(clock.clone(), "hangs", "work");
    let turn = heart.turn();
    clock.advance(5000);
    let status = status_of("hangs").unwrap();
    assert_eq!(status.busy_for, Some(ms(5000)));
    assert_eq!((status.longest, status.longest_recent, status.turns), (ms(5000), ms(5000), 0));
    drop(turn);
    let status = status_of("hangs").unwrap();
    assert_eq!((status.busy_for, status.turns, status.longest), (None, 1, ms(5000)));
}

#[test]
fn a_loop_that_is_never_idle_ends_one_turn_with_the_next() {
    let clock = Arc::new(ManualClock::default());
    let heart = register(clock.clone(), "loop", "work");
    for _ in 0..100 {
        heart.busy();
        clock.advance(2);
    }
    let status = status_of("loop").unwrap();
    assert_eq!((status.turns, status.longest, status.busy_for), (99, ms(2), Some(ms(2))));
}

#[test]
fn a_thread_that_ended_is_no_longer_listed() {
    let _limit = testkit::limit(30);
    let listed = thread::spawn(|| {
        let _heart = register(Arc::new(ManualClock::default()), "short-lived", "background");
        status_of("short-lived").is_some()
    });
    assert!(listed.join().unwrap());
    assert_eq!(status_of("short-lived"), None);
}
