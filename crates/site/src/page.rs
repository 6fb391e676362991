//! A page as it is sent: complete bytes, prepared in advance, in every encoding on offer.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};

use crate::note::date;

/// A complete HTTP answer. Cloning it increments reference counts and copies no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// HTTP status: 200, or 404 for the page of unknown addresses.
    pub status: u16,
    pub content_type: &'static str,
    pub plain: Encoded,
    /// The compressed page; absent if compression does not make it smaller.
    pub gzip: Option<Encoded>,
    /// The `Last-Modified` header: the time at which a source file of the page last changed. The page may change while
    /// this stays the same (a page that linked to it is gone), so an answer of 304 must depend on the ETag.
    pub last_modified: Option<Box<str>>,
    pub cache_control: &'static str,
    /// The value of `Content-Security-Policy`.
    pub security_policy: &'static str,
}

/// One encoding of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: Bytes,
    /// The strong ETag, including its quotes. It differs between the encodings of one page.
    pub etag: Box<str>,
}

impl Encoded {
    fn new(bytes: Bytes, kind: &str) -> Encoded {
        let hash = blake3::hash(&bytes).to_hex();
        Encoded { bytes, etag: format!("\"{}{kind}\"", &hash[..32]).into() }
    }
}

/// `Cache-Control` for pages that change: a browser asks each time and usually gets 304, so a change is visible at
/// once.
pub(crate) const REVALIDATE: &str = "no-cache";
/// `Cache-Control` for files with a hash of their content in their name.
pub(crate) const FOREVER: &str = "public, max-age=31536000, immutable";

/// Content security policy of pages. No script runs, whatever a note contains.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' https: http: data:; \
     media-src 'self' https:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'";
/// Content security policy of files. A file is only displayed: an SVG opened by itself must not act in the name of the
/// site.
const FILE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'; sandbox";

pub(crate) const HTML: &str = "text/html; charset=utf-8";

impl Page {
    pub(crate) fn html(html: String, modified: Option<i64>) -> Page {
        Page::text(HTML, html, modified)
    }

    pub(crate) fn text(content_type: &'static str, text: String, modified: Option<i64>) -> Page {
        let bytes = Bytes::from(text);
        Page {
            status: 200,
            content_type,
            gzip: compress(&bytes),
            plain: Encoded::new(bytes, ""),
            last_modified: modified.map(|seconds| date::http(seconds).into()),
            cache_control: REVALIDATE,
            security_policy: PAGE_POLICY,
        }
    }

    pub(crate) fn file(content_type: &'static str, bytes: Bytes, modified: Option<i64>) -> Page {
        let is_text = content_type.starts_with("text/")
            || content_type.contains("json")
            || content_type.contains("xml;")
            || content_type.ends_with("+xml");
        let is_document = content_type == "application/pdf";
        Page {
            status: 200,
            content_type,
            gzip: if is_text { compress(&bytes) } else { None },
            plain: Encoded::new(bytes, ""),
            last_modified: modified.map(|seconds| date::http(seconds).into()),
            cache_control: REVALIDATE,
            // The PDF viewer of a browser does not work in a sandbox, and runs nothing in the site's name.
            security_policy: if is_document {
                "default-src 'self'; style-src 'unsafe-inline'; object-src 'self'"
            } else {
                FILE_POLICY
            },
        }
    }
}

/// Compresses bytes with gzip, or returns `None` if that does not make them smaller. The header holds no name and no
/// time, so that equal input gives equal output.
fn compress(bytes: &Bytes) -> Option<Encoded> {
    let mut gzip =
        GzBuilder::new().mtime(0).write(Vec::with_capacity(bytes.len() / 3 + 64), Compression::new(6));
    gzip.write_all(bytes).ok()?;
    let packed = gzip.finish().ok()?;
    (packed.len() < bytes.len()).then(|| Encoded::new(packed.into(), "-gzip"))
}
