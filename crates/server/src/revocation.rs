//! Ends what a key has begun once the key is removed, or may do something else.
//!
//! A request is let in once, and may run for minutes: a statement, an upload, an answer that is read slowly. So each looks again
//! once a second, when [`watch`] says so.

use std::pin::Pin;
use std::time::Duration;

use types::Principal;

use crate::app::Shared;
use crate::auth::Admitted;
use crate::failure::{Failure, Result};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ends when who was admitted would not be let in again.
pub type Revoked = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Lets whoever is under way look at the database's keys once a second.
pub async fn watch(app: Shared) {
    let mut stopping = app.stopping.subscribe();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => app.keys.send_replace(()),
            _ = stopping.changed() => return,
        }
    }
}

/// Ends when `admitted` would not be let in again.
async fn revoked(app: &Shared, admitted: &Admitted) {
    let mut looks = app.keys.subscribe();
    while admitted.still_holds(app.engine.root().keys()) {
        if looks.changed().await.is_err() {
            // The server stops, which ends everything else, too.
            return std::future::pending().await;
        }
    }
}

/// The outcome of `work`, unless who was admitted loses the right to it before.
pub async fn unless_revoked<T>(
    app: &Shared,
    admitted: &Admitted,
    work: impl Future<Output = T>,
) -> Result<T> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = revoked(app, admitted) => Err(removed(&admitted.principal)),
    }
}

/// For an answer that is on its way.
pub fn of_answer(app: Shared, admitted: Admitted) -> Revoked {
    Box::pin(async move { revoked(&app, &admitted).await })
}

/// What is said to a request that lost its key.
pub fn removed(principal: &Principal) -> Failure {
    Failure::unauthorized(
        format!("the key `{}` was removed or changed while the request was under way", principal.name),
        "ask again with a key that exists; what was committed before stays",
    )
}
