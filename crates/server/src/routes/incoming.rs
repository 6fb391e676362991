//! Reads a body as it arrives, in a thread of its own, so that a body of any size takes little memory.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use engine::threads::Class;
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot};
use types::{Error, Kind};

use crate::app::Shared;
use crate::failure::{Failure, Result};
use crate::telemetry::Close;

/// Maximum number of pieces of a body that are queued between its connection and the thread that reads it.
const PIECES_WAITING_MAX: usize = 8;
/// Bytes that must arrive in each [`Options::body_time_max`](crate::Options::body_time_max).
const SLOW_BYTES: usize = 1 << 20;

/// Runs `job` over a body in a thread with this name. Returns the job's result, and the failure of the body if it broke off: the
/// job itself learns only that no more bytes come.
pub async fn read<T: Send + 'static, E: From<Error> + Send + 'static>(
    app: &Shared,
    body: Body,
    name: &str,
    job: impl FnOnce(BodyReader) -> Result<T, E> + Send + 'static,
) -> Result<(Result<T, E>, Option<Failure>)> {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
    let (done, mut outcome) = oneshot::channel();
    let alive = Arc::new(());
    let client = WaitingClient(Arc::downgrade(&alive));
    let thread = Class::Work.spawn(name, move || {
        let input = BodyReader { pieces, piece: Bytes::new(), ended: false, client };
        let result = catch_unwind(AssertUnwindSafe(|| job(input)));
        let bug = |_| Err(Error::internal("reading a body met a bug of Polynya").into());
        // The send fails if nobody waits for the result any more.
        let _ = done.send(result.unwrap_or_else(bug));
    });
    thread.map_err(|error| Error::io("starting a thread", error))?;
    let (result, broken) = tokio::select! {
        biased;
        result = &mut outcome => (result, None),
        fed = feed(app, body, sender) => (outcome.await, fed.err()),
    };
    drop(alive);
    Ok((result.unwrap_or_else(|_| Err(Error::internal("a body was read without an answer").into())), broken))
}

/// The client that sent a body and waits for the answer.
#[derive(Clone, Debug)]
pub struct WaitingClient(Weak<()>);

impl WaitingClient {
    /// Makes a client that waits as long as `alive` exists.
    #[cfg(test)]
    pub fn of(alive: &Arc<()>) -> Self {
        WaitingClient(Arc::downgrade(alive))
    }

    /// Fails once the client no longer waits.
    pub fn check(&self) -> Result<(), Error> {
        match self.0.strong_count() {
            0 => Err(Error::new(Kind::Closed, "the client that sent the body is gone")),
            _ => Ok(()),
        }
    }
}

/// A piece of a body on its way to the reading thread.
enum BodyPiece {
    Data(Bytes),
    /// The end of a complete body. If the channel ends without it, the body was cut.
    End,
}

/// Passes the body on as it arrives, at the pace of its reader.
async fn feed(app: &Shared, mut body: Body, sender: mpsc::Sender<BodyPiece>) -> Result<()> {
    let options = &app.options;
    let slow = || {
        app.telemetry.closed(Close::SlowBody);
        Failure::slow_body()
    };
    let (mut waited, mut came) = (Duration::ZERO, 0);
    loop {
        let since = Instant::now();
        let frame = tokio::time::timeout(options.body_pause_max, body.frame()).await.map_err(|_| slow())?;
        waited += since.elapsed();
        let data = match frame {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_trailers) => continue,
            },
            Some(Err(_)) => return Err(Failure::cut_body()),
        };
        came += data.len();
        if came >= SLOW_BYTES {
            (waited, came) = (Duration::ZERO, 0);
        } else if waited > options.body_time_max {
            return Err(slow());
        }
        app.telemetry.bytes_in.fetch_add(data.len() as u64, Relaxed);
        app.telemetry.ingest_bytes.fetch_add(data.len() as u64, Relaxed);
        if sender.send(BodyPiece::Data(data)).await.is_err() {
            // The reader has stopped early and already has its result.
            return Ok(());
        }
    }
    // The reader may have stopped.
    let _ = sender.send(BodyPiece::End).await;
    Ok(())
}

/// A body, for a thread to read from.
pub struct BodyReader {
    pieces: mpsc::Receiver<BodyPiece>,
    piece: Bytes,
    ended: bool,
    client: WaitingClient,
}

impl BodyReader {
    pub fn client(&self) -> WaitingClient {
        self.client.clone()
    }
}

impl Read for BodyReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(BodyPiece::Data(data)) => self.piece = data,
                Some(BodyPiece::End) => self.ended = true,
                None => return Err(io::Error::other(Error::new(Kind::Closed, "the body ended early"))),
            }
        }
        let count = self.piece.len().min(bytes.len());
        bytes[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
