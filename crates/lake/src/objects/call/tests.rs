//! Tests of the errors that a store's responses become, over a real connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use types::{Error, Kind};
use vfs::Env;

use super::super::{Objects, Options};
use super::{is_ended, is_refused};

/// Returns a place in an empty store that answers every conditional put with this status and code.
fn answering(status: u16, code: &'static str) -> Objects {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap(), status, code)));
    let text = |text: &str| Some(text.to_owned());
    let options = Options {
        endpoint: Some(endpoint),
        region: text("us-east-1"),
        access_key: text("key"),
        secret_key: text("secret"),
        ..Options::default()
    };
    Objects::connect("s3://bucket/lake", &options, "ours").unwrap()
}

fn serve(stream: TcpStream, status: u16, code: &str) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut is_conditional) = (0, false);
    for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        is_conditional |= line.starts_with("if-none-match:");
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).unwrap();
    let (status, code) = if is_conditional { (status, code) } else { (404, "NoSuchKey") };
    let body = format!("<Error><Code>{code}</Code><Message>so</Message></Error>");
    let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut stream = reader.into_inner();
    // The client may have closed the connection.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

fn refused(status: u16, code: &'static str) -> Error {
    let error = answering(status, code).ensure_usable(&Env::real()).unwrap_err();
    assert_eq!(error.kind(), Kind::Io, "{error}");
    error
}

/// A store that refused permanently was taken for one that was temporarily unavailable: rows were accepted that could never
/// land.
#[test]
fn permanent_refusals_of_a_store_are_distinguished_from_passing_ones() {
    let _limit = testkit::limit(120);
    for (status, code, means, hint) in [
        (400, "InvalidArgument", "does not accept the request", "conditional writes"),
        (401, "Unauthorized", "the key is wrong, or may not do this", "what it may do"),
        (403, "AccessDenied", "the key is wrong, or may not do this", "what it may do"),
        (403, "SignatureDoesNotMatch", "the key is wrong, or may not do this", "check the store's key"),
        (404, "NoSuchBucket", "there is no such bucket", "make the bucket"),
        (501, "NotImplemented", "the store cannot do this", "conditional writes"),
    ] {
        let error = refused(status, code);
        assert!(is_refused(&error) && !is_ended(&error), "{status} {code}: {error}");
        assert!(error.message().contains(means) && error.message().contains(code), "{status}: {error}");
        assert!(error.hint_text().unwrap().contains(hint), "{status}: {error:?}");
    }
    for code in ["ExpiredToken", "InvalidToken"] {
        let error = refused(400, code);
        assert!(is_refused(&error) && is_ended(&error), "{error}");
    }
    for (status, code) in [
        (400, "RequestTimeout"),
        (403, "RequestTimeTooSkewed"),
        (429, "SlowDown"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ] {
        let error = refused(status, code);
        assert!(!is_refused(&error), "{status} {code}: {error}");
        let is_of_clock = error.hint_text().is_some_and(|hint| hint.contains("clock"));
        assert_eq!(is_of_clock, code == "RequestTimeTooSkewed", "{error:?}");
    }
}
