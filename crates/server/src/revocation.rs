//! Ends the requests of a key once the key is removed or its rights change.
//!
//! A request is authenticated once and may run for minutes: a statement, an upload, an answer that is read slowly. So each
//! request checks its key again once a second, when [`watch`] notifies it.

use std::pin::Pin;
use std::time::Duration;

use types::Principal;

use crate::app::Shared;
use crate::auth::Admitted;
use crate::failure::{Failure, Result};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A future that resolves when the client would no longer be admitted.
pub type Revoked = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Notifies all running requests once a second that they have to check their keys.
pub async fn watch(app: Shared) {
    let mut stopping = app.stopping.subscribe();
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => app.keys.send_replace(()),
            _ = stopping.changed() => return,
        }
    }
}

/// Resolves when `admitted` would no longer be admitted.
async fn revoked(app: &Shared, admitted: &Admitted) {
    let mut ticks = app.keys.subscribe();
    while admitted.still_holds(app.engine.root().keys()) {
        if ticks.changed().await.is_err() {
            // The sender is gone, so the server is stopping, which ends the request anyway.
            return std::future::pending().await;
        }
    }
}

/// Runs `work` and returns its output. Fails with 401 if the client loses its rights before.
pub async fn unless_revoked<T>(
    app: &Shared,
    admitted: &Admitted,
    work: impl Future<Output = T>,
) -> Result<T> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = revoked(app, admitted) => Err(refusal(&admitted.principal)),
    }
}

/// Returns a future that ends an answer that is being sent.
pub fn watch_answer(app: Shared, admitted: Admitted) -> Revoked {
    Box::pin(async move { revoked(&app, &admitted).await })
}

/// Makes the refusal of a request whose key was removed or changed.
pub fn refusal(principal: &Principal) -> Failure {
    Failure::unauthorized(
        format!("the key `{}` was removed or changed while the request was under way", principal.name),
        "ask again with a key that exists; what was committed before stays",
    )
}
