//! Caches temporary credentials that are handed out for a part of a store, and renews them before they expire.
//!
//! While the current credentials are valid no call waits for new ones: they are requested in the background, and a failure
//! costs nothing. Once the current ones have expired, or the store refuses them, a call waits for new ones. Calls that wait at
//! the same time share one request and its result, even if that is an error.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use types::{Error, Result};
use vfs::{Clock, Mutex, Rank};

/// A credential as it is handed out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
    /// The expiry in milliseconds since 1970 in UTC, if it is known.
    pub ends_at_ms: Option<i64>,
}

impl fmt::Debug for Credential {
    /// Shows no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("ends_at_ms", &self.ends_at_ms).finish_non_exhaustive()
    }
}

/// Hands out credentials.
pub(crate) trait Vendor: Send + Sync + fmt::Debug {
    /// Requests new credentials. Waits for the network.
    fn vend(&self) -> Result<Credential>;
}

/// Remaining life at which new credentials are requested; a quarter of the whole life if that is more, and never more than half
/// of it.
const RENEWAL_LEAD_MIN: Duration = Duration::from_secs(300);
/// Age at which new credentials are requested if the current ones tell no expiry.
const RENEWAL_AGE: Duration = Duration::from_secs(45 * 60);
/// Time between a failed request and the next one, while the current credentials are valid.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Age below which credentials are not refused because of it, so that new ones would not help.
const YOUNG_AGE: Duration = Duration::from_secs(10);
/// Time that a request may take to arrive, and by which clocks may differ: credentials that expire within it may arrive
/// expired.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(2);

/// The credentials of one place.
pub(crate) struct CredentialCache {
    vendor: Box<dyn Vendor>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by the task that requests new credentials.
    turn: tokio::sync::Mutex<()>,
}

struct State {
    current: Arc<AwsCredential>,
    /// The previous credentials, which an error's text may still contain.
    previous: Option<Arc<AwsCredential>>,
    /// The number of renewals so far; identifies the current credentials.
    number: u64,
    /// The time when the current credentials came. The times here are those of the monotonic clock, which nobody can set.
    received: Duration,
    due: Duration,
    ends: Option<Duration>,
    /// True if the store refused the current credentials.
    is_refused: bool,
    /// The number of requests for new credentials so far. `failure` has the time and error of the last one, if it failed.
    requests: u64,
    failure: Option<(Duration, Error)>,
}

/// The condition of the current credentials.
enum CredentialState {
    Valid(Arc<AwsCredential>),
    /// The credentials are valid, and it is time to request new ones.
    Due(Arc<AwsCredential>),
    Expired,
}

impl fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials of {:?}", self.vendor)
    }
}

impl CredentialCache {
    pub fn new(vendor: Box<dyn Vendor>, clock: Arc<dyn Clock>, first: Credential) -> Arc<CredentialCache> {
        let state = State::of(first, RequestTime::now(&*clock), clock.monotonic());
        let state = Mutex::new(Rank::new(74, "lake store credentials"), state);
        Arc::new(CredentialCache { vendor, clock, state, turn: tokio::sync::Mutex::new(()) })
    }

    /// Returns the number of the current credentials, for [`CredentialCache::note_refusal`].
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// Returns credentials that are valid as far as is known, or that have just been handed out: this machine's clock may be
    /// wrong, and the store decides. Must be called within a tokio runtime.
    pub async fn get(self: &Arc<Self>) -> Result<Arc<AwsCredential>> {
        match self.check() {
            CredentialState::Valid(credential) => Ok(credential),
            CredentialState::Due(credential) => {
                let vended = self.clone();
                tokio::spawn(async move {
                    // Another task requests them already.
                    let Ok(_turn) = vended.turn.try_lock() else { return };
                    if matches!(vended.check(), CredentialState::Due(_)) {
                        // The failure is recorded, and the request repeated later.
                        let _ = vended.renew().await;
                    }
                });
                Ok(credential)
            }
            CredentialState::Expired => {
                let requests = self.state.lock().requests;
                let _turn = self.turn.lock().await;
                if let CredentialState::Valid(credential) | CredentialState::Due(credential) = self.check() {
                    return Ok(credential);
                }
                {
                    let state = self.state.lock();
                    if state.requests != requests {
                        return match &state.failure {
                            Some((_, error)) => Err(error.clone()),
                            None => Ok(state.current.clone()),
                        };
                    }
                }
                self.renew().await
            }
        }
    }

    fn check(&self) -> CredentialState {
        let state = self.state.lock();
        let now = self.clock.monotonic();
        let has_failed = |(at, _): &(Duration, Error)| now < *at + RETRY_AFTER;
        if state.is_refused || state.ends.is_some_and(|ends| now >= ends) {
            CredentialState::Expired
        } else if now >= state.due && !state.failure.as_ref().is_some_and(has_failed) {
            CredentialState::Due(state.current.clone())
        } else {
            CredentialState::Valid(state.current.clone())
        }
    }

    /// Requests new credentials. The caller must hold the turn.
    async fn renew(self: &Arc<Self>) -> Result<Arc<AwsCredential>> {
        let vended = self.clone();
        let began = RequestTime::now(&*self.clock);
        let answered = tokio::task::spawn_blocking(move || vended.vendor.vend()).await;
        let outcome =
            answered.unwrap_or_else(|_| Err(Error::internal("asking for credentials was not ended")));
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        match outcome {
            Ok(credential) => {
                let next = State::of(credential, began, now);
                let last = std::mem::replace(&mut *state, next);
                (state.number, state.requests) = (last.number + 1, last.requests + 1);
                state.previous = Some(last.current);
                Ok(state.current.clone())
            }
            Err(error) => {
                state.requests += 1;
                let lives = state.ends.is_some_and(|ends| now < ends);
                let why = if state.is_refused { "are not accepted any more" } else { "have expired" };
                let error = Error::new(
                    error.kind(),
                    format!("the credentials for the object store {why}, and there are no others: {error}"),
                );
                state.failure = Some((now, error.clone()));
                if state.is_refused && lives {
                    // The store may have refused only this one call.
                    state.is_refused = false;
                    return Ok(state.current.clone());
                }
                Err(error)
            }
        }
    }

    /// Records that the store refused a call made with the credentials `number`, or with later ones. Returns true if a
    /// repetition of the call may succeed: newer credentials exist already, or the next call requests them.
    pub fn note_refusal(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        if state.number != number {
            return true;
        }
        let now = self.clock.monotonic();
        let is_about_to_end = state.ends.is_some_and(|ends| ends <= now + CLOCK_SKEW_MAX);
        if now < state.received + YOUNG_AGE && !is_about_to_end {
            return false;
        }
        state.is_refused = true;
        true
    }

    /// Replaces the secrets in a text: some stores repeat a token in the error that refuses it.
    pub fn hide(&self, mut text: String) -> String {
        let state = self.state.lock();
        for of in std::iter::once(&state.current).chain(&state.previous) {
            for secret in [Some(&of.secret_key), of.token.as_ref()].into_iter().flatten() {
                if !secret.is_empty() && text.contains(secret.as_str()) {
                    text = text.replace(secret.as_str(), "(not shown)");
                }
            }
        }
        text
    }
}

/// The time of a request for credentials. They were valid then, however late the response came. For the first ones, the time
/// when they came.
#[derive(Clone, Copy)]
struct RequestTime {
    at: Duration,
    unix_ms: i64,
}

impl RequestTime {
    fn now(clock: &dyn Clock) -> RequestTime {
        RequestTime { at: clock.monotonic(), unix_ms: clock.now() / 1000 }
    }
}

impl State {
    fn of(credential: Credential, requested: RequestTime, received: Duration) -> State {
        // A credential that seems to have expired when it was issued was issued by another clock. The store then decides when
        // it expires.
        let life =
            credential.ends_at_ms.map(|ends| ends.saturating_sub(requested.unix_ms)).filter(|life| *life > 0);
        let life = life.map(|life| Duration::from_millis(life as u64));
        let due = life.map_or(RENEWAL_AGE, |life| life - (life / 4).max(RENEWAL_LEAD_MIN).min(life / 2));
        let (key_id, secret_key) = (credential.access_key, credential.secret_key);
        State {
            current: Arc::new(AwsCredential { key_id, secret_key, token: credential.session_token }),
            previous: None,
            number: 0,
            received,
            due: requested.at.saturating_add(due),
            ends: life.map(|life| requested.at.saturating_add(life)),
            is_refused: false,
            requests: 0,
            failure: None,
        }
    }
}

/// Provides a store's client with the current credentials.
#[derive(Debug)]
pub(crate) struct Provider(pub Arc<CredentialCache>);

#[async_trait::async_trait]
impl CredentialProvider for Provider {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |error| object_store::Error::Generic { store: "S3", source: Box::new(error) };
        self.0.get().await.map_err(failed)
    }
}
