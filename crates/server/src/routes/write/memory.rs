//! `ack=memory`: the client is answered once its rows wait for the commit thread, which treats them like any others.
//!
//! The rows are lost if the machine or the process ends before they are durable, or if they conflict with the table's contents by
//! then: an existing key, or an unexpected version. A change of the table's columns does not lose them: the body is kept until
//! its rows are durable, and decoded again. While the log has no room, no request is answered ahead of its commit.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::sync::oneshot;

use super::{Attempts, RowCount, Settled, Submitted};
use crate::app::Shared;
use crate::body::RequestBody;
use crate::failure::{Failure, Result};
use crate::log_throttle;

/// Maximum number of requests that are answered before their rows are committed. A further one waits for its commit.
pub const AHEAD_MAX: usize = 16_384;
/// Time that acknowledged rows are retried while writers are refused because of too much load.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two such attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Submits a body. If it is admitted, a task waits for the commit. Otherwise it fails like a durable write.
pub(super) async fn admitted<T: RowCount>(attempts: Attempts<T>, held: RequestBody) -> Result<Settled<T>> {
    let app = attempts.app.clone();
    let place = app.ahead.clone().try_acquire_owned();
    // While the log is full, a write waits for its commit. Its success is how the log shows that there is room again.
    let Some(place) = place.ok().filter(|_| !app.engine.lacks_room()) else {
        let settled = attempts.settled(None).await;
        drop(held);
        return settled;
    };
    let (seen, submitted) = attempts.submit().await?;
    let (summary, mut receiver) = match submitted {
        Submitted::Waiting(summary, receiver) => (summary, receiver),
        other => return attempts.settled(Some((seen, other))).await,
    };
    if let Some(known) = known(&mut receiver) {
        return attempts.settled(Some((seen, Submitted::Waiting(summary, known)))).await;
    }
    let first = (seen, Submitted::Waiting(summary.clone(), receiver));
    let rows = summary.rows();
    tokio::spawn(async move {
        match settled(&attempts, first).await {
            Ok(Settled::Committed(summary, _)) => {
                app.telemetry.rows_in.fetch_add(summary.rows() as u64, Relaxed);
            }
            Ok(_) => {}
            Err(failure) => lost(&app, rows, &failure),
        }
        drop((held, place));
    });
    Ok(Settled::Admitted(summary))
}

/// Returns a receiver of the outcome if it is already known.
fn known<C>(receiver: &mut oneshot::Receiver<C>) -> Option<oneshot::Receiver<C>> {
    let (sender, known) = oneshot::channel();
    match receiver.try_recv() {
        Err(oneshot::error::TryRecvError::Empty) => return None,
        // The send cannot fail, because `known` is its receiver.
        Ok(result) => drop(sender.send(result)),
        Err(oneshot::error::TryRecvError::Closed) => drop(sender),
    }
    Some(known)
}

/// Waits for the outcome of an admitted body, and retries while writers are refused because of too much load.
async fn settled<T: RowCount>(
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
    if let Some(times) = log_throttle::note_failure("ack=memory") {
        let why = failure.message();
        tracing::warn!(why, times, "rows that `ack=memory` had answered for were not committed");
    }
}
