//! HTTP/2 with prior knowledge: the same answers, many at once, within bounds.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use polynya_server::telemetry::Close;
use serde_json::{Value as Json, json};

use crate::common::{TestServer, wait_until};

type Sender = SendRequest<Full<Bytes>>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn connect(address: SocketAddr, window: Option<u32>) -> Sender {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    if let Some(window) = window {
        builder.initial_stream_window_size(window).initial_connection_window_size(1 << 20);
    }
    let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
    // The task ends when the server or the client closes the connection.
    tokio::spawn(async move { drop(connection.await) });
    sender
}

fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"))
        .body(Full::new(body.into()))
        .unwrap()
}

async fn ask(sender: &Sender, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, Json) {
    let response = sender.clone().send_request(request(method, path, body)).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{e}: {body:?}")))
}

#[test]
fn many_requests_share_a_connection() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("h2");
    runtime().block_on(async {
        let sender = connect(running.address, None).await;
        // These are more requests than streams are allowed: the client waits for a free one.
        let writes = (0..300).map(|n| {
            let sender = sender.clone();
            tokio::spawn(async move {
                ask(&sender, "POST", "/v1/tables/t/rows", json!({"n": n}).to_string()).await
            })
        });
        for write in writes.collect::<Vec<_>>() {
            let (status, body) = write.await.unwrap();
            assert_eq!((status, &body["count"]), (200, &json!(1)), "{body}");
        }
        let sql = r#"{"sql":"SELECT count(*), sum(n) FROM t"}"#;
        let (status, body) = ask(&sender, "POST", "/v1/sql", sql).await;
        assert_eq!((status, &body["rows"]), (200, &json!([[300, 300 * 299 / 2]])));
        // Errors have the same statuses as over HTTP/1.1.
        assert_eq!(ask(&sender, "GET", "/v1/tables/none", "").await.0, 404);
        assert_eq!(ask(&sender, "GET", "/v1/tables/t/rows?limit=0", "").await.0, 400);
        assert_eq!(ask(&sender, "POST", "/v1/tables/t/rows", "{").await.0, 400);
        assert_eq!(ask(&sender, "PATCH", "/v1/tables/t/rows", "").await.0, 405);
        // An unread body blocks only its own stream.
        let (status, _) = ask(&sender, "POST", "/v1/nothing", vec![b'x'; 8 << 20]).await;
        assert_eq!(status, 404);
        assert_eq!(ask(&sender, "GET", "/health", "").await.0, 200);
    });
    assert_eq!(running.telemetry().connections_total.load(Relaxed), 1);
    wait_until(|| running.telemetry().connections_open.load(Relaxed) == 0);
    assert_eq!(running.telemetry().requests_running.load(Relaxed), 0);
    running.assert_works();
}

#[test]
fn large_bodies_come_whole_both_ways() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("h2-large");
    let rows: Vec<String> =
        (0..8_000).map(|n| json!({"n": n, "text": "x".repeat(1_000)}).to_string()).collect();
    runtime().block_on(async {
        // The window is far smaller than the answer.
        let sender = connect(running.address, Some(65_535)).await;
        let (status, body) = ask(&sender, "POST", "/v1/tables/t/rows", rows.join("\n")).await;
        assert_eq!((status, &body["count"]), (200, &json!(8_000)));
        let path = "/v1/tables/t/rows?limit=10000&columns=n,text";
        let response = sender.clone().send_request(request("GET", path, "")).await.unwrap();
        let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), length);
        let plain = running.ask("GET", path, "");
        assert!(plain.body == body, "{} and {} bytes", plain.body.len(), body.len());
        // One answer is streamed and another has trailers.
        let sql = r#"{"sql":"SELECT n, text FROM t ORDER BY n"}"#;
        let (status, body) = ask(&sender, "POST", "/v1/sql", sql).await;
        assert_eq!((status, body["rows"].as_array().unwrap().len()), (200, 8_000));
        let copy = r#"{"sql":"COPY t TO STDOUT WITH (FORMAT csv)"}"#;
        let mut asked = request("POST", "/v1/sql", copy);
        asked.headers_mut().insert("te", "trailers".parse().unwrap());
        let response = sender.clone().send_request(asked).await.unwrap();
        assert_eq!(response.status(), 200);
        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["polynya-count"], "8000");
    });
}

async fn text(response: &mut Response<Incoming>) -> Option<String> {
    let data = response.body_mut().frame().await?.ok()?.into_data().ok()?;
    Some(String::from_utf8(data.to_vec()).unwrap())
}

#[test]
fn feeds_follow_and_end_with_the_server() {
    let _limit = testkit::limit(120);
    let mut running =
        TestServer::with_options("h2-feeds", |options| options.idle_time_max = Duration::from_millis(200));
    runtime().block_on(async {
        let sender = connect(running.address, None).await;
        ask(&sender, "POST", "/v1/tables/t/rows", r#"{"n":1}"#).await;
        let mut feed =
            sender.clone().send_request(request("GET", "/v1/tables/t/tail?after=0", "")).await.unwrap();
        assert!(text(&mut feed).await.unwrap().contains("\"n\":1"));
        // A connection with an open feed is not idle, however long ago its last request was.
        let other = connect(running.address, None).await;
        assert_eq!(ask(&other, "GET", "/health", "").await.0, 200);
        while !other.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(running.telemetry().closes(Close::Idle), 1);
        ask(&sender, "POST", "/v1/tables/t/rows", r#"{"n":2}"#).await;
        assert!(text(&mut feed).await.unwrap().contains("\"n\":2"));
        let server = running.server.take().unwrap();
        let ended = tokio::task::spawn_blocking(move || server.stop(Duration::from_secs(20)));
        let rest = feed.into_body().collect().await.expect("the feed ends in order");
        assert!(rest.to_bytes().is_empty());
        assert_eq!(ended.await.unwrap(), 0, "no connection was cut");
    });
}

/// A client that does not read one answer loses that answer and no other of the connection.
#[test]
fn a_stream_that_is_not_read_is_ended_alone() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("h2-stalled", |options| {
        options.answer_pause_max = Duration::from_millis(1_500)
    });
    let row = json!({"text": "x".repeat(1_000)}).to_string();
    runtime().block_on(async {
        let sender = connect(running.address, Some(65_535)).await;
        ask(&sender, "POST", "/v1/tables/t/rows", vec![row.as_str(); 2_000].join("\n")).await;
        let unread = ["/v1/tables/t/rows?limit=2000", "/v1/tables/t/tail?after=0"];
        let mut stalled = Vec::new();
        for path in unread {
            stalled.push(sender.clone().send_request(request("GET", path, "")).await.unwrap());
        }
        while running.telemetry().closes(Close::StalledReader) < 2 {
            // Other streams of the connection are answered meanwhile.
            assert_eq!(ask(&sender, "GET", "/v1/tables/t/rows?limit=3", "").await.0, 200);
        }
        for response in stalled {
            assert!(response.into_body().collect().await.is_err(), "it does not look whole");
        }
        assert_eq!(ask(&sender, "GET", "/health", "").await.0, 200);
    });
    assert_eq!(running.telemetry().closes(Close::StalledReader), 2);
}

#[test]
fn the_authority_decides_if_a_request_is_local() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("h2-authority");
    runtime().block_on(async {
        let mut sender = connect(running.address, None).await;
        for (authority, host, status) in [
            ("localhost:8484", None, 200),
            ("127.0.0.1", None, 200),
            ("evil.example", None, 403),
            // The Host header does not override the authority.
            ("evil.example", Some("localhost"), 403),
        ] {
            let mut asked = Request::get(format!("http://{authority}/v1/tables"));
            if let Some(host) = host {
                asked = asked.header("host", host);
            }
            let response = sender.send_request(asked.body(Full::default()).unwrap()).await.unwrap();
            assert_eq!(response.status(), status, "{authority} {host:?}");
        }
        let asked = request("GET", "/v1/tables", "");
        let (mut parts, body) = asked.into_parts();
        parts.headers.insert("origin", "http://evil.example".parse().unwrap());
        let response = sender.send_request(Request::from_parts(parts, body)).await.unwrap();
        assert_eq!(response.status(), 403);
    });
}

#[test]
fn too_many_headers_are_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("h2-headers");
    runtime().block_on(async {
        let mut sender = connect(running.address, None).await;
        let with = |count: usize, bytes: usize| {
            let (mut parts, body) = request("GET", "/health", "").into_parts();
            for n in 0..count {
                let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
                parts.headers.insert(name, "x".repeat(bytes).parse().unwrap());
            }
            Request::from_parts(parts, body)
        };
        assert_eq!(sender.send_request(with(60, 10)).await.unwrap().status(), 200);
        let refused = sender.send_request(with(64, 10)).await.unwrap();
        assert_eq!(refused.status(), 431);
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let body: Json = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "too_large", "{body}");
        // These headers are larger than 64 KiB together: the server refuses them, or the client does because it knows the
        // settings.
        if let Ok(response) = sender.send_request(with(40, 4_000)).await {
            assert_eq!(response.status(), 431);
        }
    });
    running.assert_works();
}

/// A connection that sends hand-made frames.
struct RawConnection(TcpStream);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

impl RawConnection {
    fn connect(address: SocketAddr) -> RawConnection {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        RawConnection(socket)
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    /// Returns the type and the payload of the next frame, `None` once the server closed the connection.
    fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.fill(&mut payload)?;
        Some((head[3], payload))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.0.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the connection stays open")
            }
            Err(_) => None,
        }
    }

    /// Reads until the server closes the connection.
    fn read_to_end(&mut self) {
        while self.read().is_some() {}
    }
}

/// Returns the header block of `GET /health` to localhost, by HPACK's static table.
fn get() -> Vec<u8> {
    [&[0x82, 0x86, 0x04, 7][..], b"/health", &[0x41, 9], b"localhost"].concat()
}

#[test]
fn the_server_says_its_bounds_and_keeps_them() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("h2-bounds", |options| {
        options.head_time_max = Duration::from_millis(300);
        options.idle_time_max = Duration::from_millis(900);
    });
    let mut raw = RawConnection::connect(running.address);
    raw.0.write_all(&[PREFACE, &RawConnection::frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    let (kind, payload) = raw.read().unwrap();
    assert_eq!(kind, SETTINGS);
    let setting = |wanted: u16| {
        let mut settings = payload.chunks_exact(6);
        let found = settings.find(|setting| setting[..2] == wanted.to_be_bytes());
        found.map(|setting| u32::from_be_bytes(setting[2..].try_into().unwrap()))
    };
    assert_eq!((setting(3), setting(6)), (Some(128), Some(64 << 10)), "streams at once, bytes of headers");
    // A connection without requests is closed as idle.
    raw.read_to_end();
    assert_eq!(running.telemetry().closes(Close::Idle), 1);

    // Half a preface counts as an incomplete head, and a connection that does not begin with the preface is HTTP/1.1.
    let mut half = RawConnection::connect(running.address);
    half.0.write_all(&PREFACE[..10]).unwrap();
    half.read_to_end();
    assert_eq!(running.telemetry().closes(Close::SlowHead), 1);
    let mut other = running.client();
    other.send(b"PRI /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(other.status(), Some(405));
    let mut garbage = RawConnection::connect(running.address);
    garbage.0.write_all(&[PREFACE, &[0xff; 64]].concat()).unwrap();
    garbage.read_to_end();

    // Requests that are reset at once, and a header block without an end, cost the client its connection and do not harm the
    // server.
    let mut resets = RawConnection::connect(running.address);
    let mut flood = [PREFACE, &RawConnection::frame(SETTINGS, 0, 0, &[])].concat();
    for n in 0..5_000u32 {
        flood.extend(RawConnection::frame(HEADERS, 0x5, 2 * n + 1, &get()));
        flood.extend(RawConnection::frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes()));
    }
    // The server may close the connection before all frames are sent.
    let _ = resets.0.write_all(&flood);
    resets.read_to_end();
    let mut endless = RawConnection::connect(running.address);
    let mut head =
        [PREFACE, &RawConnection::frame(SETTINGS, 0, 0, &[]), &RawConnection::frame(HEADERS, 0x1, 1, &get())]
            .concat();
    for _ in 0..5_000 {
        head.extend(RawConnection::frame(
            CONTINUATION,
            0,
            1,
            &[&[0x00, 1, b'x', 0x7f, 0x81, 0x07][..], &[b'y'; 1_024]].concat(),
        ));
    }
    let _ = endless.0.write_all(&head);
    endless.read_to_end();
    wait_until(|| running.telemetry().connections_open.load(Relaxed) == 0);
    assert_eq!(running.telemetry().requests_running.load(Relaxed), 0);
    running.assert_works();
}
