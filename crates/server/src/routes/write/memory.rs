//! `ack=memory`: answered once the rows wait for the commit thread, which then does with them what it does with any.
//!
//! They are lost if the machine or the process ends before they are durable, or if they do not fit to what is in the table by
//! then: a key that exists, a version that is not the expected one. A table that got other columns meanwhile is no such reason: the
//! body is kept until its rows are durable, and decoded again. While the log has no room nothing is answered ahead.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::sync::oneshot;

use super::{Attempts, Counted, Settled, Submitted};
use crate::app::Shared;
use crate::body::Held;
use crate::failure::{Failure, Result};
use crate::told;

/// So many requests may be answered before their rows are committed; a further one waits for its commit.
pub const AHEAD_MAX: usize = 16_384;
/// How long rows that were answered for are tried again where writers are refused because there is too much at once.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Submits, and leaves what becomes of it to a task if it was admitted. Refused as a durable write is.
pub(super) async fn admitted<T: Counted>(attempts: Attempts<T>, held: Held) -> Result<Settled<T>> {
    let app = attempts.app.clone();
    let place = app.ahead.clone().try_acquire_owned();
    // A write that finds the log full is how it shows that there is room again, and is told what became of it.
    let Some(place) = place.ok().filter(|_| !app.engine.lacks_room()) else {
        let settled = attempts.settled(None).await;
        drop(held);
        return settled;
    };
    let (seen, submitted) = attempts.submit().await?;
    let (told, mut receiver) = match submitted {
        Submitted::Waiting(told, receiver) => (told, receiver),
        other => return attempts.settled(Some((seen, other))).await,
    };
    if let Some(known) = known(&mut receiver) {
        return attempts.settled(Some((seen, Submitted::Waiting(told, known)))).await;
    }
    let first = (seen, Submitted::Waiting(told.clone(), receiver));
    let rows = told.rows();
    tokio::spawn(async move {
        match settled(&attempts, first).await {
            Ok(Settled::Committed(told, _)) => {
                app.telemetry.rows_in.fetch_add(told.rows() as u64, Relaxed);
            }
            Ok(_) => {}
            Err(failure) => lost(&app, rows, &failure),
        }
        drop((held, place));
    });
    Ok(Settled::Admitted(told))
}

/// What was refused, or committed, before anybody waited for it.
fn known<C>(receiver: &mut oneshot::Receiver<C>) -> Option<oneshot::Receiver<C>> {
    let (sender, known) = oneshot::channel();
    match receiver.try_recv() {
        Err(oneshot::error::TryRecvError::Empty) => return None,
        // `known` is there to hear it.
        Ok(result) => drop(sender.send(result)),
        Err(oneshot::error::TryRecvError::Closed) => drop(sender),
    }
    Some(known)
}

async fn settled<T: Counted>(
    attempts: &Attempts<T>,
    first: (types::Lsn, Submitted<T>),
) -> Result<Settled<T>> {
    let started = Instant::now();
    let mut first = Some(first);
    loop {
        match attempts.settled(first.take()).await {
            Err(failure)
                if failure.status() == StatusCode::TOO_MANY_REQUESTS && started.elapsed() < BUSY_PATIENCE =>
            {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            other => return other,
        }
    }
}

fn lost(app: &Shared, rows: usize, failure: &Failure) {
    app.telemetry.rows_lost.fetch_add(rows as u64, Relaxed);
    if let Some(times) = told::of_requests("ack=memory") {
        let why = failure.message();
        tracing::warn!(why, times, "rows that `ack=memory` had answered for were not committed");
    }
}
