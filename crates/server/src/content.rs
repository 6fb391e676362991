//! Decodes `Content-Encoding` within a bound, so that a small body cannot become a large one.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, header};
use types::{Error, Kind, Result, name};

use crate::failure::Failure;

/// The compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Returns the encoding that the request's header names. Fails if it names an unknown one or appears twice.
    pub fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let said = single(headers, &header::CONTENT_ENCODING)?.unwrap_or_default();
        Encoding::parse(said).ok_or_else(|| {
            let what = format!("the Content-Encoding `{}` is not supported", name::printable(said));
            Failure::unsupported(what, "send gzip, zstd or neither")
        })
    }

    /// Parses the header's value. Returns `None` for an unknown encoding.
    pub fn parse(header: &str) -> Option<Self> {
        match header.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Encoding::Identity),
            "gzip" | "x-gzip" => Some(Encoding::Gzip),
            "zstd" => Some(Encoding::Zstd),
            _ => None,
        }
    }
}

/// Returns the value of a header that may appear once or not at all. Fails if it appears twice, because a proxy in front could
/// read the other value than this server.
pub fn single<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a str>, Failure> {
    let mut values = headers.get_all(name).iter();
    let said = values.next().map(|value| value.to_str().unwrap_or("\u{fffd}"));
    match values.next() {
        None => Ok(said),
        Some(_) => {
            let error = Error::invalid(format!("the header `{name}` is present more than once"));
            Err(error.hint("send it once").into())
        }
    }
}

/// Refuses text that is declared as another charset than UTF-8. Read as UTF-8 it could become different text, and nobody would
/// notice.
pub fn is_utf8(media_type: &str) -> Result<(), Failure> {
    let charset = media_type.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    match charset.as_deref() {
        None | Some("utf-8" | "utf8" | "us-ascii" | "ascii") => Ok(()),
        Some(other) => Err(Failure::unsupported(
            format!("the body's charset is `{}`, but text must be UTF-8", name::printable(other)),
            "send it as UTF-8",
        )),
    }
}

/// Decompresses a body into at most `bytes_max` bytes. Memory grows with the actual data, never with the size that a header
/// claims.
pub fn decompress(encoding: Encoding, body: &[u8], bytes_max: usize) -> Result<Vec<u8>> {
    let result = match encoding {
        Encoding::Identity => return Ok(body.to_vec()),
        Encoding::Gzip => read_bounded(flate2::read::MultiGzDecoder::new(body), bytes_max),
        Encoding::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(body).and_then(|mut decoder| {
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Ok(decoder)
            });
            decoder.and_then(|decoder| read_bounded(decoder, bytes_max))
        }
    };
    let name = if encoding == Encoding::Gzip { "gzip" } else { "zstd" };
    match result {
        Ok(plain) if plain.len() > bytes_max => Err(Error::new(
            Kind::TooLarge,
            format!("the body decompresses to more than {} MiB", bytes_max >> 20),
        )
        .hint("send it in several requests")),
        Ok(plain) => Ok(plain),
        Err(e) => Err(Error::invalid(format!("the body is not a complete {name} stream: {e}"))),
    }
}

/// Returns a reader of the decompressed bytes, for readers that bound what they keep. The number of bytes is not bounded, but
/// their ratio to the compressed bytes is (see `RATIO_MAX`). An error of the inner reader is passed on unchanged.
pub fn reader(encoding: Encoding, body: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>> {
    let name = match encoding {
        Encoding::Identity => return Ok(Box::new(body)),
        Encoding::Gzip => "gzip",
        Encoding::Zstd => "zstd",
    };
    let packed = Arc::new(AtomicU64::new(0));
    let body = Counted { inner: body, bytes: packed.clone() };
    let inner: Box<dyn Read + Send> = match encoding {
        Encoding::Zstd => {
            let decoder = zstd::stream::read::Decoder::new(body).and_then(|mut decoder| {
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Ok(decoder)
            });
            Box::new(decoder.map_err(|e| Error::io("starting to decompress", e))?)
        }
        _ => Box::new(flate2::read::MultiGzDecoder::new(body)),
    };
    Ok(Box::new(Plain { inner, name, packed, plain: 0 }))
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Decompressed bytes whose ratio to the compressed ones is bounded.
struct Plain {
    inner: Box<dyn Read + Send>,
    name: &'static str,
    packed: Arc<AtomicU64>,
    plain: u64,
}

impl Read for Plain {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(bytes).map_err(|error| {
            if error.get_ref().is_some_and(|inner| inner.is::<Error>()) {
                return error;
            }
            let message = format!("the body is not a complete {} stream: {error}", self.name);
            std::io::Error::other(Error::invalid(message))
        })?;
        self.plain += read as u64;
        let packed = self.packed.load(Ordering::Relaxed);
        if self.plain <= FREE_BYTES + packed.saturating_mul(RATIO_MAX) {
            return Ok(read);
        }
        let message = format!(
            "{} KiB of {} became {} MiB; a stream may become {RATIO_MAX} times as large beyond the first {} MiB",
            packed >> 10,
            self.name,
            self.plain >> 20,
            FREE_BYTES >> 20
        );
        let error =
            Error::new(Kind::TooLarge, message).hint("send it less compressed, or in several requests");
        Err(std::io::Error::other(error))
    }
}

/// The largest ratio of decompressed to compressed bytes, after the first [`FREE_BYTES`]. Rows as text have ratios of 5 to 30. A
/// few megabytes of zeros become gigabytes, which would take seconds of a thread before the first of them is refused.
const RATIO_MAX: u64 = 200;
/// Decompressed bytes to which the ratio does not apply.
const FREE_BYTES: u64 = 64 << 20;

/// The largest window as a power of two: 8 MiB, which zstd's specification asks every decoder to support.
const WINDOW_LOG_MAX: u32 = 23;

fn read_bounded(reader: impl Read, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    reader.take(bytes_max as u64 + 1).read_to_end(&mut plain)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn both_encodings_come_back() {
        let plain = b"{\"a\":1}\n".repeat(1000);
        assert_eq!(decompress(Encoding::Gzip, &gzip(&plain), 1 << 20).unwrap(), plain);
        let zstd = zstd::encode_all(&plain[..], 3).unwrap();
        assert_eq!(decompress(Encoding::Zstd, &zstd, plain.len()).unwrap(), plain);
    }

    #[test]
    fn a_bomb_is_refused_at_the_bound() {
        let bomb = vec![0; 64 << 20];
        for (encoding, packed) in
            [(Encoding::Gzip, gzip(&bomb)), (Encoding::Zstd, zstd::encode_all(&bomb[..], 3).unwrap())]
        {
            assert!(packed.len() < 100_000);
            assert_eq!(decompress(encoding, &packed, 1 << 20).unwrap_err().kind(), Kind::TooLarge);
        }
    }

    /// A bomb of 4 GB occupied a thread for 11 to 18 seconds.
    #[test]
    fn a_stream_that_becomes_far_larger_than_it_came_ends_early_and_others_do_not() {
        let zeros = |mib: usize| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            (0..mib).for_each(|_| encoder.write_all(&[0; 1 << 20]).unwrap());
            encoder.finish().unwrap()
        };
        let read = |encoding, packed: Vec<u8>| {
            let mut plain = reader(encoding, std::io::Cursor::new(packed)).unwrap();
            let mut bytes = 0;
            let mut buffer = vec![0; 1 << 16];
            loop {
                match plain.read(&mut buffer) {
                    Ok(0) => return (Ok(()), bytes),
                    Ok(read) => bytes += read as u64,
                    Err(error) => return (Err(error), bytes),
                }
            }
        };
        for (encoding, packed) in [
            (Encoding::Gzip, zeros(300)),
            (Encoding::Zstd, zstd::encode_all(std::io::repeat(0).take(300 << 20), 1).unwrap()),
        ] {
            let (outcome, bytes) = read(encoding, packed);
            let error = outcome.unwrap_err().into_inner().unwrap().downcast::<Error>().unwrap();
            assert_eq!(error.kind(), Kind::TooLarge, "{error}");
            assert!(bytes < 100 << 20, "{bytes}");
        }
        assert_eq!(read(Encoding::Gzip, zeros(60)).1, 60 << 20);
        let rows: String = (0..3_500_000).map(|i| format!("{{\"id\":{i},\"kind\":\"event\"}}\n")).collect();
        let packed = zstd::encode_all(rows.as_bytes(), 1).unwrap();
        assert!(rows.len() > 96 << 20);
        assert_eq!(read(Encoding::Zstd, packed).1, rows.len() as u64);
    }

    #[test]
    fn a_cut_or_broken_stream_is_an_error() {
        let packed = gzip(b"hello hello hello");
        assert!(decompress(Encoding::Gzip, &packed[..packed.len() - 4], 100).is_err());
        assert!(decompress(Encoding::Zstd, &packed, 100).is_err());
    }
}
