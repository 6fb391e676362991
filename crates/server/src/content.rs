//! `Content-Encoding`: undone within a bound, so that a small body cannot become a large one.

use std::io::Read;

use http::{HeaderMap, header};
use types::{Error, Kind, Result, name};

use crate::failure::Failure;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// What a request says that its body is.
    pub fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let said = single(headers, &header::CONTENT_ENCODING)?.unwrap_or_default();
        Encoding::parse(said).ok_or_else(|| {
            let what = format!("`{}` cannot be undone", name::printable(said));
            Failure::unsupported(what, "send gzip, zstd or neither")
        })
    }

    /// From the header's value; `None` if we do not know it.
    pub fn parse(header: &str) -> Option<Self> {
        match header.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Encoding::Identity),
            "gzip" | "x-gzip" => Some(Encoding::Gzip),
            "zstd" => Some(Encoding::Zstd),
            _ => None,
        }
    }
}

/// What a header says that stands once, or not at all. Two of them would mean one thing here and another to whatever
/// program stands before.
pub fn single<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a str>, Failure> {
    let mut values = headers.get_all(name).iter();
    let said = values.next().map(|value| value.to_str().unwrap_or("\u{fffd}"));
    match values.next() {
        None => Ok(said),
        Some(_) => {
            let error = Error::invalid(format!("the header `{name}` is there more than once"));
            Err(error.hint("send it once").into())
        }
    }
}

/// Refuses text that is said to be anything but UTF-8: read as that it could be other text, and nobody would notice.
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
            format!("the body is said to be `{}`, and text is read as UTF-8", name::printable(other)),
            "send it as UTF-8",
        )),
    }
}

/// The plain bytes, at most `bytes_max` of them: memory grows with what is really there, never with what a header
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
        Err(e) => Err(Error::invalid(format!("the body is no complete {name} stream: {e}"))),
    }
}

/// The plain bytes as they are read, any number of them: for readers that bound what they keep. An error of the reader behind
/// it comes as it is.
pub fn reader(encoding: Encoding, body: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>> {
    let name = match encoding {
        Encoding::Identity => return Ok(Box::new(body)),
        Encoding::Gzip => "gzip",
        Encoding::Zstd => "zstd",
    };
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
    Ok(Box::new(Plain { inner, name }))
}

struct Plain {
    inner: Box<dyn Read + Send>,
    name: &'static str,
}

impl Read for Plain {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.inner.read(bytes).map_err(|error| {
            if error.get_ref().is_some_and(|inner| inner.is::<Error>()) {
                return error;
            }
            let message = format!("the body is no complete {} stream: {error}", self.name);
            std::io::Error::other(Error::invalid(message))
        })
    }
}

/// A window of 8 MiB, what zstd's specification asks every reader to support.
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

    #[test]
    fn a_cut_or_broken_stream_is_an_error() {
        let packed = gzip(b"hello hello hello");
        assert!(decompress(Encoding::Gzip, &packed[..packed.len() - 4], 100).is_err());
        assert!(decompress(Encoding::Zstd, &packed, 100).is_err());
    }
}
