//! Reading a request's body within its bounds: size, pace, and the memory of all bodies together.

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

/// A body and its share of the memory that bodies may take together.
pub struct Held {
    pub bytes: Bytes,
    app: Shared,
    share: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.app.telemetry.body_bytes_held.fetch_sub(self.share, Relaxed);
    }
}

impl Held {
    /// Takes more of the shared memory, as for the decompressed body.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let held = &self.app.telemetry.body_bytes_held;
        if held.fetch_add(bytes, Relaxed) + bytes > self.app.options.body_bytes_total_max {
            held.fetch_sub(bytes, Relaxed);
            return Err(Error::new(
                Kind::Busy,
                "the bodies of other requests fill the memory set aside for them",
            )
            .hint("send it again a little later")
            .into());
        }
        self.share += bytes;
        Ok(())
    }
}

/// Reads the whole body. A body over the limit is refused at its first sign: by its Content-Length before a byte of it
/// is read.
pub async fn read<B: Body<Data = Bytes> + Unpin>(
    app: &Shared,
    headers: &HeaderMap,
    mut body: B,
) -> Result<Held> {
    let options = &app.options;
    let mut held = Held { bytes: Bytes::new(), app: app.clone(), share: 0 };
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
        held.grow(data.len())?;
        match (&mut first, &mut whole) {
            (None, None) => first = Some(data),
            (_, Some(whole)) => whole.extend_from_slice(&data),
            (Some(one), None) => {
                // Room for what was announced, but no more than a client can make us hold by one small piece.
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
