//! Tests over a real connection to slow, silent and broken servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::crashes;
use super::super::support::small;
use super::fake_catalog::{FakeCatalog, Fate};
use super::land;
use crate::Options;
use crate::rest::Catalog;
use crate::rest::http::{Body, Method, Request, TransportError};

/// A server of HTTP/1.1 in front of a [`FakeCatalog`], on this machine. A lost response becomes a closed connection, and one that
/// never comes becomes a connection that stays open.
struct HttpFront {
    url: String,
}

impl HttpFront {
    fn start(fake: &FakeCatalog) -> HttpFront {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/base", listener.local_addr().unwrap());
        // Connections that stay open without a response.
        let silent: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (fake, kept) = (fake.clone(), silent);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (fake, kept) = (fake.clone(), kept.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &fake, &kept));
            }
        });
        HttpFront { url }
    }

    fn catalog(&self, call_max: Duration) -> Catalog {
        let options = crate::rest::Options {
            uri: self.url.clone(),
            credential: Some("me:secret&+".into()),
            call_max: Some(call_max),
            ..Default::default()
        };
        Catalog::connect(&options, "database").unwrap()
    }
}

fn serve(mut stream: TcpStream, fake: &FakeCatalog, silent: &Mutex<Vec<TcpStream>>) {
    while let Some(request) = read(&mut stream) {
        match fake.respond(&request) {
            Ok(response) => {
                let head = format!(
                    "HTTP/1.1 {} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    response.status,
                    response.body.len()
                );
                if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&response.body)).is_err()
                {
                    return;
                }
            }
            Err(TransportError::NotSent(_)) => return,
            // A part of a response, and then the end of the connection.
            Err(TransportError::Unknown(why)) if why.contains("closed") => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 1000\r\n\r\n{\"meta");
                return;
            }
            Err(TransportError::Unknown(_)) => return silent.lock().unwrap().push(stream),
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<Request> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let method = match first.next()? {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        other => panic!("{other}"),
    };
    let url = first.next()?.to_owned();
    let headers: Vec<(String, &str)> =
        lines.filter_map(|line| line.split_once(": ")).map(|(k, v)| (k.to_lowercase(), v)).collect();
    let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let body = match header("content-type") {
        None => None,
        Some("application/json") => Some(Body::Json(Bytes::from(body))),
        Some("application/x-www-form-urlencoded") => Some(Body::Form(String::from_utf8(body).unwrap())),
        Some(other) => panic!("{other}"),
    };
    let bearer = header("authorization").map(|value| value.strip_prefix("Bearer ").unwrap().to_owned());
    let wants_credentials = header("x-iceberg-access-delegation") == Some("vended-credentials");
    Some(Request { method, url, bearer, wants_credentials, body })
}

/// Each of the first calls fails in every way, over sockets.
#[test]
fn a_lake_lands_over_a_connection_that_fails_in_every_way() {
    let _limit = testkit::limit(300);
    for fate in [
        Fate::Well,
        Fate::Lost,
        Fate::Dropped,
        Fate::Late,
        Fate::Before(500),
        Fate::After(503),
        Fate::Refused,
    ] {
        for call in 1..=9 {
            let fake = FakeCatalog::default();
            fake.wants_a_new_token();
            let front = HttpFront::start(&fake);
            let catalog = front.catalog(Duration::from_millis(300));
            let mut bench = crashes::begin_in(&[0], Options { catalog: Some(catalog), ..small() });
            fake.fail(call, false, fate);
            for round in 0..3 {
                bench.keys(round * 10..round * 10 + 10);
                let mut tries = 0;
                while let Err(error) = bench.try_land() {
                    tries += 1;
                    assert!(tries < 4, "call {call}, {fate:?}: {error}");
                }
            }
            fake.works_again();
            fake.deliver();
            land(&mut bench, &fake);
        }
    }
}

/// A server that accepts a connection and never answers costs the time limit, and no more.
#[test]
fn a_catalog_that_does_not_answer_costs_the_configured_time() {
    let _limit = testkit::limit(60);
    let fake = FakeCatalog::default();
    let front = HttpFront::start(&fake);
    let catalog = front.catalog(Duration::from_millis(200));
    fake.fail(1, true, Fate::Dropped);
    let begun = Instant::now();
    let error = catalog.ensure_usable().unwrap_err();
    let took = begun.elapsed();
    assert_eq!(error.kind(), types::Kind::Io, "{error}");
    assert!(error.to_string().contains("no answer within 0.2 s"), "{error}");
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(20), "{took:?}");
    // An address without a server is reported as such.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = crate::rest::Options { uri: format!("http://{gone}"), ..Default::default() };
    let error = Catalog::connect(&options, "database").unwrap().ensure_usable().unwrap_err();
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}
