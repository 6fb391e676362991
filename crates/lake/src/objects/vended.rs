//! Credentials that are handed out for a part of a store and end: kept, and had anew before they do.
//!
//! While those that are there live, nothing waits for others: they are asked for beside the calls, and a failure costs
//! nothing. Once they have ended, or the store does not take them any more, a call waits for others. Whoever waits at the same
//! time shares one question and its answer, an error too.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use types::{Error, Result};
use vfs::{Clock, Mutex, Rank};

/// What is handed out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
    /// Milliseconds since 1970 in UTC, if it is told.
    pub ends_at_ms: Option<i64>,
}

impl fmt::Debug for Credential {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("ends_at_ms", &self.ends_at_ms).finish_non_exhaustive()
    }
}

/// Who hands them out.
pub(crate) trait Vendor: Send + Sync + fmt::Debug {
    /// Others. Waits for the network.
    fn vend(&self) -> Result<Credential>;
}

/// Others are asked for when a quarter of the life of those that are there is left, or this, if that is more.
const LEFT_MIN: Duration = Duration::from_secs(300);
/// Of which nobody said when they end, others are asked for after this.
const UNTOLD_MAX: Duration = Duration::from_secs(45 * 60);
/// While those that are there live, it is asked again so long after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Younger ones are not refused for their age, so that others would not help.
const YOUNG: Duration = Duration::from_secs(10);
/// A request is on its way for so long, and clocks differ by it: what is about to end may have ended there.
const LATE_MAX: Duration = Duration::from_secs(2);

/// The credentials of one place.
pub(crate) struct Vended {
    vendor: Box<dyn Vendor>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Whoever has it asks.
    turn: tokio::sync::Mutex<()>,
}

struct State {
    current: Arc<AwsCredential>,
    /// Those before: an error may still show them.
    before: Option<Arc<AwsCredential>>,
    /// Counts those that were had.
    number: u64,
    /// Times are of the monotonic clock, so that one that is set does not end them.
    got: Duration,
    due: Duration,
    ends: Option<Duration>,
    /// The store did not take them.
    is_refused: bool,
    /// How often it was asked for others, and what came of the last time.
    asked: u64,
    failure: Option<(Duration, Error)>,
}

/// How the current ones are.
enum Look {
    Lives(Arc<AwsCredential>),
    /// It lives, and it is time for others.
    Due(Arc<AwsCredential>),
    Ended,
}

impl fmt::Debug for Vended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials of {:?}", self.vendor)
    }
}

impl Vended {
    pub fn new(vendor: Box<dyn Vendor>, clock: Arc<dyn Clock>, first: Credential) -> Arc<Vended> {
        let state = State::of(first, Asked::now(&*clock), clock.monotonic());
        let state = Mutex::new(Rank::new(74, "lake store credentials"), state);
        Arc::new(Vended { vendor, clock, state, turn: tokio::sync::Mutex::new(()) })
    }

    /// Which ones are the current ones.
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// Credentials that have not ended as far as anybody knows, or that have just come: a clock may be wrong, and the store knows
    /// it. Only within a runtime of tokio.
    pub async fn get(self: &Arc<Self>) -> Result<Arc<AwsCredential>> {
        match self.look() {
            Look::Lives(credential) => Ok(credential),
            Look::Due(credential) => {
                let vended = self.clone();
                tokio::spawn(async move {
                    // Somebody asks already.
                    let Ok(_turn) = vended.turn.try_lock() else { return };
                    if matches!(vended.look(), Look::Due(_)) {
                        // Noted, and tried again.
                        let _ = vended.renew().await;
                    }
                });
                Ok(credential)
            }
            Look::Ended => {
                let asked = self.state.lock().asked;
                let _turn = self.turn.lock().await;
                if let Look::Lives(credential) | Look::Due(credential) = self.look() {
                    return Ok(credential);
                }
                {
                    let state = self.state.lock();
                    if state.asked != asked {
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

    fn look(&self) -> Look {
        let state = self.state.lock();
        let now = self.clock.monotonic();
        let has_failed = |(at, _): &(Duration, Error)| now < *at + AGAIN_AFTER;
        if state.is_refused || state.ends.is_some_and(|ends| now >= ends) {
            Look::Ended
        } else if now >= state.due && !state.failure.as_ref().is_some_and(has_failed) {
            Look::Due(state.current.clone())
        } else {
            Look::Lives(state.current.clone())
        }
    }

    /// Asks for others. Only for who has the turn.
    async fn renew(self: &Arc<Self>) -> Result<Arc<AwsCredential>> {
        let vended = self.clone();
        let began = Asked::now(&*self.clock);
        let asked = tokio::task::spawn_blocking(move || vended.vendor.vend()).await;
        let outcome = asked.unwrap_or_else(|_| Err(Error::internal("asking for credentials was not ended")));
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        match outcome {
            Ok(credential) => {
                let next = State::of(credential, began, now);
                let last = std::mem::replace(&mut *state, next);
                (state.number, state.asked) = (last.number + 1, last.asked + 1);
                state.before = Some(last.current);
                Ok(state.current.clone())
            }
            Err(error) => {
                state.asked += 1;
                let lives = state.ends.is_some_and(|ends| now < ends);
                let why = if state.is_refused { "are not taken any more" } else { "have ended" };
                let error = Error::new(
                    error.kind(),
                    format!("the credentials for the object store {why}, and there are no others: {error}"),
                );
                state.failure = Some((now, error.clone()));
                if state.is_refused && lives {
                    // Perhaps it was one thing alone that the store refused.
                    state.is_refused = false;
                    return Ok(state.current.clone());
                }
                Err(error)
            }
        }
    }

    /// The store refused a call that was made with those of this number, or later ones. Tells whether it may go well with others:
    /// those are there by now, or are had with the next call.
    pub fn is_refused(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        if state.number != number {
            return true;
        }
        let now = self.clock.monotonic();
        let is_about_to_end = state.ends.is_some_and(|ends| ends <= now + LATE_MAX);
        if now < state.got + YOUNG && !is_about_to_end {
            return false;
        }
        state.is_refused = true;
        true
    }

    /// A text without the secrets: some stores repeat a token in the error that refuses it.
    pub fn hide(&self, mut text: String) -> String {
        let state = self.state.lock();
        for of in std::iter::once(&state.current).chain(&state.before) {
            for secret in [Some(&of.secret_key), of.token.as_ref()].into_iter().flatten() {
                if !secret.is_empty() && text.contains(secret.as_str()) {
                    text = text.replace(secret.as_str(), "(not shown)");
                }
            }
        }
        text
    }
}

/// When it was asked for them: by then they had not ended, however late the answer came. Of the first ones it is when they came.
#[derive(Clone, Copy)]
struct Asked {
    at: Duration,
    unix_ms: i64,
}

impl Asked {
    fn now(clock: &dyn Clock) -> Asked {
        Asked { at: clock.monotonic(), unix_ms: clock.now() / 1000 }
    }
}

impl State {
    fn of(credential: Credential, asked: Asked, got: Duration) -> State {
        // One that seems to have ended when it was made is by another clock than ours: then the store says when it ends.
        let life =
            credential.ends_at_ms.map(|ends| ends.saturating_sub(asked.unix_ms)).filter(|life| *life > 0);
        let life = life.map(|life| Duration::from_millis(life as u64));
        let due = life.map_or(UNTOLD_MAX, |life| life - (life / 4).max(LEFT_MIN).min(life / 2));
        let (key_id, secret_key) = (credential.access_key, credential.secret_key);
        State {
            current: Arc::new(AwsCredential { key_id, secret_key, token: credential.session_token }),
            before: None,
            number: 0,
            got,
            due: asked.at.saturating_add(due),
            ends: life.map(|life| asked.at.saturating_add(life)),
            is_refused: false,
            asked: 0,
            failure: None,
        }
    }
}

/// Gives a client of the store what is current.
#[derive(Debug)]
pub(crate) struct Provider(pub Arc<Vended>);

#[async_trait::async_trait]
impl CredentialProvider for Provider {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |error| object_store::Error::Generic { store: "S3", source: Box::new(error) };
        self.0.get().await.map_err(failed)
    }
}
