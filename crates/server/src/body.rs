//! Reads the body of a request within its bounds: size, pace, and the memory of all bodies together.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::BodyExt;
use types::{Error, Kind};

use crate::app::Shared;
use crate::failure::{Failure, Result};
use crate::telemetry::Close;

/// A body and its share of the memory that all bodies may take together. The share is returned when it is dropped.
pub struct RequestBody {
    pub bytes: Bytes,
    app: Shared,
    share: usize,
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.share > 0 {
            self.app.telemetry.body_bytes_held.fetch_sub(self.share, Relaxed);
            self.app.body_room.notify_waiters();
        }
    }
}

impl RequestBody {
    /// Wraps bytes that do not count against the shared memory yet.
    pub fn of(app: &Shared, bytes: Bytes) -> RequestBody {
        RequestBody { bytes, app: app.clone(), share: 0 }
    }

    pub fn app(&self) -> &Shared {
        &self.app
    }

    /// Takes memory for the first piece of a body, and waits up to `body_room_wait` for it. Only a body that holds nothing may
    /// wait: of two bodies that each hold a part and wait for more, neither would proceed.
    async fn grow_or_wait(&mut self, bytes: usize) -> Result<()> {
        if self.try_grow(bytes) {
            return Ok(());
        }
        let app = self.app.clone();
        app.telemetry.paced.fetch_add(1, Relaxed);
        let due = tokio::time::Instant::now() + app.options.body_room_wait;
        loop {
            let mut freed = std::pin::pin!(app.body_room.notified());
            // Once enabled, `freed` sees every notification from here on.
            freed.as_mut().enable();
            if self.try_grow(bytes) {
                return Ok(());
            }
            if tokio::time::timeout_at(due, freed).await.is_err() {
                return self.grow(bytes);
            }
        }
    }

    /// Takes `bytes` of the shared memory. Returns false, and takes nothing, if there is not that much.
    fn try_grow(&mut self, bytes: usize) -> bool {
        let held = &self.app.telemetry.body_bytes_held;
        if held.fetch_add(bytes, Relaxed) + bytes > self.app.options.body_bytes_total_max {
            held.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.share += bytes;
        true
    }

    /// Takes more of the shared memory, for instance for the decompressed body. Fails with [`Kind::Busy`] if there is not that
    /// much.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        if !self.try_grow(bytes) {
            self.app.telemetry.bodies_refused.fetch_add(1, Relaxed);
            return Err(Error::new(
                Kind::Busy,
                "the bodies of other requests fill the memory set aside for them",
            )
            .hint("send it again a little later")
            .into());
        }
        Ok(())
    }
}

/// Reads the whole body. A body over the limit is refused as early as possible: by its Content-Length before any byte is read.
pub async fn read<B: Body<Data = Bytes> + Unpin>(
    app: &Shared,
    headers: &HeaderMap,
    mut body: B,
) -> Result<RequestBody> {
    let options = &app.options;
    let mut held = RequestBody::of(app, Bytes::new());
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
        .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let too_large = || {
        app.telemetry.closed(Close::LargeBody);
        Failure::body_too_large(options.body_bytes_max)
    };
    if announced.is_some_and(|n| n > options.body_bytes_max) {
        return Err(too_large());
    }
    let started = Instant::now();
    let mut first: Option<Bytes> = None;
    let mut whole: Option<BytesMut> = None;
    let mut len = 0;
    loop {
        let wait = options.body_pause_max.min(options.body_time_max.saturating_sub(started.elapsed()));
        let frame = match tokio::time::timeout(wait, body.frame()).await {
            Ok(frame) => frame,
            Err(_) => {
                app.telemetry.closed(Close::SlowBody);
                return Err(Failure::slow_body());
            }
        };
        let data = match frame {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_trailers) => continue,
            },
            Some(Err(_)) => return Err(Failure::cut_body()),
        };
        len += data.len();
        if len > options.body_bytes_max {
            return Err(too_large());
        }
        if first.is_none() && whole.is_none() {
            held.grow_or_wait(data.len()).await?
        } else {
            held.grow(data.len())?
        }
        match (&mut first, &mut whole) {
            (None, None) => first = Some(data),
            (_, Some(whole)) => whole.extend_from_slice(&data),
            (Some(one), None) => {
                // Reserves room for the announced length, but bounds the memory that a client can claim with one small piece.
                let mut joined = BytesMut::with_capacity(announced.unwrap_or(0).min(1 << 20).max(2 * len));
                joined.extend_from_slice(one);
                joined.extend_from_slice(&data);
                whole = Some(joined);
            }
        }
    }
    app.telemetry.bytes_in.fetch_add(len as u64, Relaxed);
    held.bytes = match whole {
        Some(whole) => whole.freeze(),
        None => first.unwrap_or_default(),
    };
    Ok(held)
}
