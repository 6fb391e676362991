use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use site::{Change, File, Options, Vault};

use super::conditions::{Span, accepts_gzip, is_current, span};
use super::*;

fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
    all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

#[test]
fn gzip_is_sent_to_those_who_take_it() {
    for (said, takes) in [
        ("gzip", true),
        ("gzip, deflate, br", true),
        ("GZIP;q=0.5", true),
        ("br;q=1, *;q=0.1", true),
        ("*", true),
        ("gzip;q=0", false),
        ("gzip;q=0.0, *", false),
        ("identity", false),
        ("identity, gzip;q=0.5", false),
        ("identity;q=0.5, gzip;q=0.5", true),
        ("deflate", false),
        ("", false),
        ("gzipped", false),
    ] {
        assert_eq!(accepts_gzip(&headers(&[(header::ACCEPT_ENCODING, said)])), takes, "{said}");
    }
    assert!(!accepts_gzip(&HeaderMap::new()));
}

#[test]
fn a_version_is_known_by_its_tag() {
    for (said, known) in [
        ("\"a\"", true),
        ("W/\"a\"", true),
        ("\"b\", \"a\"", true),
        ("*", true),
        ("\"aa\"", false),
        ("a", false),
    ] {
        assert_eq!(is_current(&headers(&[(header::IF_NONE_MATCH, said)]), "\"a\""), known, "{said}");
    }
}

#[test]
fn one_range_is_cut_and_nonsense_gets_everything() {
    let of = |range: &str| span(&headers(&[(header::RANGE, range)]), "\"a\"", 100);
    assert_eq!(of("bytes=0-9"), Span::Part(0, 10));
    assert_eq!(of("bytes=90-"), Span::Part(90, 100));
    assert_eq!(of("bytes=90-1000"), Span::Part(90, 100));
    assert_eq!(of("bytes=-10"), Span::Part(90, 100));
    assert_eq!(of("bytes=-1000"), Span::Part(0, 100));
    assert_eq!(of("bytes=100-"), Span::Outside);
    assert_eq!(of("bytes=-0"), Span::Outside);
    for whole in ["bytes=9-0", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,5-6", "pages=1-2", "bytes=+1-2"] {
        assert_eq!(of(whole), Span::Whole, "{whole}");
    }
    let if_range =
        |tag| span(&headers(&[(header::RANGE, "bytes=0-9"), (header::IF_RANGE, tag)]), "\"a\"", 100);
    assert_eq!(if_range("\"a\""), Span::Part(0, 10));
    assert_eq!(if_range("\"b\""), Span::Whole);
}

#[test]
fn routes_are_not_the_sites() {
    for path in ["/v1/tables", "/_/", "/_", "/health", "/openapi.json", "/mcp", "*"] {
        assert!(!is_site_path(path), "{path}");
    }
    for path in ["/", "/v10", "/_x", "/health-food", "/a/v1/b", "/%5F/"] {
        assert!(is_site_path(path), "{path}");
    }
}

#[test]
fn the_sites_options_leave_the_routes_alone() {
    let reserved = Options::default().reserved;
    assert!(ROUTE_SEGMENTS.iter().all(|first| reserved.contains(&(*first).to_owned())), "{reserved:?}");
    for route in crate::routes::ROUTES.iter().filter(|route| !matches!(route.path, "/" | "/{page}")) {
        assert!(!is_site_path(route.path), "{}", route.path);
    }
}

/// The bytes of an answer are those of the page, not a copy, so no allocation grows with the page.
#[tokio::test]
async fn an_answer_shares_the_bytes_of_its_page() {
    let _limit = testkit::limit(30);
    let text = format!("---\npublish: true\n---\n{}", "many words ".repeat(20_000));
    let vault = Vault::new(Options::default()).unwrap();
    let vault = vault.apply([Change::Put(File { path: "a.md".into(), bytes: text.into(), modified: None })]);
    let page = vault.page("/a").unwrap();
    for (said, expected) in [("gzip", &page.gzip.as_ref().unwrap().bytes), ("identity", &page.plain.bytes)] {
        let response = page_response(page, &headers(&[(header::ACCEPT_ENCODING, said)]));
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = response.into_body();
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        let sent: Bytes = frame.into_data().unwrap();
        assert_eq!((sent.as_ptr(), sent.len()), (expected.as_ptr(), expected.len()), "{said}");
    }
}
