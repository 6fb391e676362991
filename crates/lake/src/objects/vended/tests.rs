//! Tests of credentials that expire during a renewal, are refused, and are shared by several calls.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures::future::{join, join_all};
use sim::SimClock;
use types::Kind;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// A vendor that hands out `key-1`, `key-2` and so on.
#[derive(Default)]
struct CountingVendor {
    clock: Arc<SimClock>,
    life: Option<Duration>,
    requests: AtomicU64,
    fails: AtomicBool,
    /// The time that a response takes to arrive.
    way: Duration,
    /// Each request waits here for a message, if there is a gate.
    gate: Option<std::sync::Mutex<Receiver<()>>>,
}

#[derive(Clone)]
struct SharedVendor(Arc<CountingVendor>);

impl fmt::Debug for SharedVendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counting")
    }
}

impl CountingVendor {
    fn credential(&self, number: u64) -> Credential {
        let ends = |life: Duration| self.clock.now() / 1000 + life.as_millis() as i64;
        Credential {
            access_key: format!("key-{number}"),
            secret_key: format!("hush-{number}-"),
            session_token: Some(format!("token-{number}-")),
            ends_at_ms: self.life.map(ends),
        }
    }
}

impl Vendor for SharedVendor {
    fn vend(&self) -> Result<Credential> {
        let number = self.0.requests.fetch_add(1, Ordering::SeqCst) + 2;
        if let Some(gate) = &self.0.gate {
            gate.lock().unwrap().recv().unwrap();
        }
        if self.0.fails.load(Ordering::SeqCst) {
            Err(Error::new(Kind::Busy, "the catalog is out"))
        } else {
            let made = self.0.credential(number);
            self.0.clock.advance(self.0.way);
            Ok(made)
        }
    }
}

struct Setup {
    vended: Arc<CredentialCache>,
    vendor: Arc<CountingVendor>,
    open: Option<Sender<()>>,
}

fn setup(life: Option<Duration>, is_gated: bool) -> Setup {
    setup_with(CountingVendor { life, ..CountingVendor::default() }, is_gated)
}

fn setup_with(vendor: CountingVendor, is_gated: bool) -> Setup {
    let (sender, receiver) = channel();
    let gate = is_gated.then(|| std::sync::Mutex::new(receiver));
    let vendor = Arc::new(CountingVendor { gate, ..vendor });
    let first = vendor.credential(1);
    let vended = CredentialCache::new(Box::new(SharedVendor(vendor.clone())), vendor.clock.clone(), first);
    Setup { vended, vendor, open: is_gated.then_some(sender) }
}

impl Setup {
    fn after(&self, time: Duration) -> &Self {
        self.vendor.clock.advance(time);
        self
    }

    async fn key(&self) -> Result<String> {
        self.vended.get().await.map(|credential| credential.key_id.clone())
    }

    /// Waits until `times` requests are answered.
    async fn answered(&self, times: u64) {
        while self.vended.state.lock().requests < times {
            tokio::task::yield_now().await;
        }
    }

    fn requests(&self) -> u64 {
        self.vendor.requests.load(Ordering::SeqCst)
    }

    fn fails(&self, fails: bool) {
        self.vendor.fails.store(fails, Ordering::SeqCst);
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
}

#[test]
fn calls_that_find_expired_credentials_share_one_request() {
    let _limit = testkit::limit(60);
    run(async {
        for fails in [false, true] {
            let setup = setup(Some(HOUR), true);
            setup.after(HOUR).fails(fails);
            let all = join_all((0..8).map(|_| setup.key()));
            // Polled after all of these, which wait by then.
            let open = async { setup.open.as_ref().unwrap().send(()).unwrap() };
            let (found, ()) = join(all, open).await;
            assert_eq!(setup.requests(), 1, "fails: {fails}");
            for key in found {
                match (fails, key) {
                    (false, key) => assert_eq!(key.unwrap(), "key-2"),
                    (true, key) => assert_eq!(key.unwrap_err().kind(), Kind::Busy),
                }
            }
        }
    });
}

#[test]
fn credentials_are_renewed_in_time_without_any_call_waiting() {
    let _limit = testkit::limit(60);
    run(async {
        let setup = setup(Some(HOUR), true);
        assert_eq!(setup.after(HOUR * 3 / 4 - Duration::from_secs(1)).key().await.unwrap(), "key-1");
        tokio::task::yield_now().await;
        assert_eq!(setup.requests(), 0);
        setup.after(Duration::from_secs(1));
        // No response has come yet.
        for _ in 0..5 {
            assert_eq!(setup.key().await.unwrap(), "key-1");
            tokio::task::yield_now().await;
        }
        setup.open.as_ref().unwrap().send(()).unwrap();
        while setup.vended.number() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((setup.key().await.unwrap().as_str(), setup.requests()), ("key-2", 1));
    });
}

#[test]
fn a_failed_renewal_is_reported_only_after_the_credentials_expired() {
    let _limit = testkit::limit(60);
    run(async {
        let setup = setup(Some(HOUR), false);
        setup.after(HOUR * 3 / 4).fails(true);
        assert_eq!(setup.key().await.unwrap(), "key-1");
        setup.answered(1).await;
        // No new request is made at once.
        assert_eq!(setup.key().await.unwrap(), "key-1");
        tokio::task::yield_now().await;
        assert_eq!(setup.requests(), 1);
        assert_eq!(setup.after(RETRY_AFTER).key().await.unwrap(), "key-1");
        setup.answered(2).await;
        let error = setup.after(HOUR / 4).key().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        let said = error.to_string();
        assert!(said.contains("have expired") && said.contains("the catalog is out"), "{said}");
        assert!(!said.contains("hush") && !said.contains("token"), "{said}");
        assert!(setup.key().await.is_err());
        // The next call succeeds by itself once the vendor works again.
        setup.fails(false);
        assert_eq!(setup.key().await.unwrap(), "key-6");
    });
}

#[test]
fn refused_credentials_are_replaced_unless_they_are_young() {
    let _limit = testkit::limit(60);
    run(async {
        for life in [Some(HOUR), None] {
            let setup = setup(life, false);
            assert!(!setup.vended.note_refusal(0), "others would be refused too");
            assert_eq!(setup.key().await.unwrap(), "key-1");
            assert!(setup.after(YOUNG_AGE).vended.note_refusal(0));
            assert_eq!(setup.key().await.unwrap(), "key-2");
            // This refusal belongs to a call with the previous credentials.
            assert!(setup.after(YOUNG_AGE).vended.note_refusal(0));
            assert_eq!((setup.key().await.unwrap().as_str(), setup.requests()), ("key-2", 1));
            // If no others are available, credentials that should be valid are still used: the store may have refused only one
            // call.
            setup.fails(true);
            assert!(setup.vended.note_refusal(1));
            match life {
                Some(_) => assert_eq!(setup.key().await.unwrap(), "key-2"),
                None => {
                    let error = setup.key().await.unwrap_err().to_string();
                    assert!(error.contains("are not accepted any more"), "{error}");
                }
            }
        }
    });
}

#[test]
fn the_time_of_renewal_follows_from_the_lifetime() {
    let seconds = Duration::from_secs;
    for (life, due) in [
        (seconds(12 * 3_600), seconds(9 * 3_600)),
        (HOUR, seconds(45 * 60)),
        (seconds(12 * 60), seconds(7 * 60)),
        (seconds(8 * 60), seconds(4 * 60)),
        (seconds(20), seconds(10)),
    ] {
        let setup = setup(Some(life), false);
        let state = setup.vended.state.lock();
        assert_eq!((state.due, state.ends), (due, Some(life)));
    }
    // The expiry is unknown, or comes from a clock far behind ours.
    let state_of = |ends_at_ms| {
        let vendor = CountingVendor::default();
        let requested = RequestTime::now(&*vendor.clock);
        State::of(Credential { ends_at_ms, ..vendor.credential(1) }, requested, requested.at)
    };
    for ends_at_ms in [None, Some(0), Some(SimClock::new().now() / 1000)] {
        let state = state_of(ends_at_ms);
        assert_eq!((state.due, state.ends), (RENEWAL_AGE, None));
    }
    assert!(state_of(Some(i64::MAX)).ends.is_some());
}

/// Credentials of this kind were taken for those of another clock, and were used for 45 minutes.
#[test]
fn credentials_that_expired_on_their_way_count_as_expired() {
    let _limit = testkit::limit(60);
    run(async {
        let vendor = || CountingVendor { life: Some(HOUR), way: 2 * HOUR, ..CountingVendor::default() };
        let setup = setup_with(vendor(), false);
        assert_eq!(setup.after(HOUR * 3 / 4).key().await.unwrap(), "key-1");
        setup.answered(1).await;
        assert!(matches!(setup.vended.check(), CredentialState::Expired));
        // A call that waits for a response uses it, whatever its age.
        let setup = setup_with(vendor(), true);
        setup.after(HOUR);
        let both = join(setup.key(), setup.key());
        let open = async { setup.open.as_ref().unwrap().send(()).unwrap() };
        let (both, ()) = join(both, open).await;
        assert_eq!((both.0.unwrap(), both.1.unwrap()), ("key-2".to_owned(), "key-2".to_owned()));
        assert_eq!(setup.requests(), 1);
        assert!(matches!(setup.vended.check(), CredentialState::Expired));
    });
}

/// Credentials for a place without any rights were requested again and again if the responses were slow.
#[test]
fn credentials_count_as_young_from_their_arrival() {
    let _limit = testkit::limit(60);
    run(async {
        let vendor = CountingVendor { life: Some(HOUR), way: 2 * YOUNG_AGE, ..CountingVendor::default() };
        let setup = setup_with(vendor, false);
        assert_eq!(setup.after(HOUR).key().await.unwrap(), "key-2");
        assert!(!setup.vended.note_refusal(1));
    });
}

#[test]
fn secrets_are_shown_nowhere() {
    let _limit = testkit::limit(60);
    run(async {
        let setup = setup(None, false);
        assert!(setup.after(YOUNG_AGE).vended.note_refusal(0));
        let current = setup.vended.get().await.unwrap();
        let shown = format!("{:?} {current:?} {:?}", setup.vended, setup.vendor.credential(3));
        assert!(!shown.contains("hush") && !shown.contains("token-"), "{shown}");
        let said = "<Code>ExpiredToken</Code><Token-0>token-1-</Token-0> hush-2- token-2-";
        let hidden = setup.vended.hide(said.to_owned());
        assert!(!hidden.contains("hush") && !hidden.contains("token-"), "{hidden}");
        assert!(hidden.contains("ExpiredToken"), "{hidden}");
    });
}
