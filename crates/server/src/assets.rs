//! The files of the page: embedded in the binary, compressed and tagged once at start (O1).

use std::collections::HashMap;
use std::io::Write;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

mod files {
    include!(concat!(env!("OUT_DIR"), "/ui.rs"));
}

/// Lets only our own files run or load, and lets no other page frame this one.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

pub struct Assets(HashMap<&'static str, Asset>);

struct Asset {
    media_type: &'static str,
    plain: Bytes,
    /// `None` if compression does not make the file smaller.
    gzip: Option<Bytes>,
    etag: HeaderValue,
    gzip_etag: HeaderValue,
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json" | "webmanifest") => "application/json",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

impl Assets {
    pub fn load() -> Assets {
        let mut assets = HashMap::new();
        for &(name, plain) in files::FILES {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            let packed = encoder.write_all(plain).and_then(|()| encoder.finish()).ok();
            let tag = &blake3::hash(plain).to_hex()[..20];
            let header = |text: String| HeaderValue::from_str(&text).expect("hexadecimal digits and quotes");
            let asset = Asset {
                media_type: media_type(name),
                plain: Bytes::from_static(plain),
                gzip: packed.filter(|packed| packed.len() < plain.len()).map(Bytes::from),
                etag: header(format!("\"{tag}\"")),
                gzip_etag: header(format!("\"{tag}-gz\"")),
            };
            assets.insert(name, asset);
        }
        Assets(assets)
    }

    /// Returns the answer with the file of this name (`index.html` for an empty name), or `None` if there is no such file.
    pub fn answer(&self, name: &str, request: &HeaderMap) -> Option<Response> {
        let asset = self.0.get(if name.is_empty() { "index.html" } else { name })?;
        let wants = |header: header::HeaderName, word: &str| {
            request.get_all(header).iter().filter_map(|v| v.to_str().ok()).any(|v| v.contains(word))
        };
        let (body, etag, packed) = match &asset.gzip {
            Some(gzip) if wants(header::ACCEPT_ENCODING, "gzip") => (gzip, &asset.gzip_etag, true),
            _ => (&asset.plain, &asset.etag, false),
        };
        let known = etag.to_str().is_ok_and(|etag| wants(header::IF_NONE_MATCH, etag));
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, asset.media_type)], body.clone()).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, etag.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        // A new binary has new files under the same names, so browsers must revalidate each time and get 304 for an unchanged
        // file.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if packed && !known {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Some(response)
    }
}
