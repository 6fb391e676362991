//! A table's change feed over a WebSocket.

use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::{Op, Transaction};
use polynya_server::telemetry::Close;
use serde_json::{Value as Json, json};
use types::{Principal, Scope, TableSet};

use crate::common::{Client, Response, TestServer, wait_until};
use crate::put_key;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

const HANDSHAKE: [(&str, &str); 4] = [
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "WebSocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// The client's end of a WebSocket, which can also break the protocol.
struct Socket {
    client: Client,
    /// True if the client answers pings.
    answers_pings: bool,
}

impl Socket {
    fn open(running: &TestServer, path: &str, headers: &[(&str, &str)]) -> Result<Socket, Response> {
        let mut client = running.client();
        client.head("GET", path, &[&HANDSHAKE, headers].concat());
        let head = client.answer_head();
        if head.status == 101 {
            // The key and its answer are the example of RFC 6455.
            assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
            return Ok(Socket { client, answers_pings: true });
        }
        let mut body = vec![0; head.header("content-length").map_or(0, |length| length.parse().unwrap())];
        client.reader.read_exact(&mut body).unwrap();
        Err(Response { body, ..head })
    }

    /// Sends a masked frame.
    fn send(&mut self, opcode: u8, payload: &[u8]) {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            short @ ..126 => frame.push(0x80 | short as u8),
            long => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&u16::try_from(long).unwrap().to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.client.send(&frame).unwrap();
    }

    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.client.reader.read_exact(&mut head).ok()?;
        assert_eq!(head[0] & 0xf0, 0x80, "one frame a message");
        assert_eq!(head[1] & 0x80, 0, "a server masks nothing");
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.client.reader.read_exact(&mut long).unwrap();
                usize::from(u16::from_be_bytes(long))
            }
            127 => {
                let mut long = [0; 8];
                self.client.reader.read_exact(&mut long).unwrap();
                usize::try_from(u64::from_be_bytes(long)).unwrap()
            }
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.client.reader.read_exact(&mut payload).ok()?;
        Some((head[0] & 0x0f, payload))
    }

    /// Returns the next message and answers pings. A close frame returns `Err` with its code.
    fn message(&mut self) -> Result<Json, Option<u16>> {
        loop {
            match self.frame() {
                Some((TEXT, text)) => return Ok(serde_json::from_slice(&text).unwrap()),
                Some((PING, payload)) if self.answers_pings => self.send(PONG, &payload),
                Some((PING | PONG, _)) => {}
                Some((CLOSE, payload)) => {
                    return Err(payload.first_chunk().map(|code| u16::from_be_bytes(*code)));
                }
                Some(other) => panic!("{other:?}"),
                None => return Err(None),
            }
        }
    }

    /// Returns messages up to a `resume` of at least this lsn.
    fn messages_until(&mut self, lsn: u64) -> Vec<Json> {
        let mut messages = Vec::new();
        loop {
            let message = self.message().unwrap();
            let at = message["lsn"].as_u64().unwrap();
            let ends = message["event"] == "resume" && at >= lsn;
            messages.push(message);
            if ends {
                return messages;
            }
        }
    }

    /// Reads to the end and returns the code of the close frame.
    fn close_code(&mut self) -> Option<u16> {
        loop {
            if let Err(code) = self.message() {
                return code;
            }
        }
    }
}

fn lsn_of(running: &TestServer, method: &str, path: &str, body: &str) -> u64 {
    let answer = running.ask(method, path, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["lsn"].as_u64().unwrap()
}

#[test]
fn a_websocket_tells_inserts_and_deletes_and_resumes_where_it_was_cut() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("ws");
    let columns =
        r#"{"columns":[{"name":"k","type":"string"},{"name":"n","type":"int64"}],"primary_key":["k"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", columns).status, 201);
    let write = |body: &str| lsn_of(&running, "POST", "/v1/tables/t/rows", body);
    let first = write(r#"[{"k":"a","n":1},{"k":"ä","n":2}]"#);
    let mut socket = Socket::open(&running, "/v1/tables/t/tail?after=0", &[]).unwrap();
    let told = socket.messages_until(first);
    let rows: Vec<_> =
        told.iter().map(|m| (&m["event"], &m["lsn"], &m["row"]["k"], &m["row"]["n"])).collect();
    let (insert, resume, null, lsn) = (json!("insert"), json!("resume"), Json::Null, json!(first));
    assert_eq!(
        rows,
        [
            (&insert, &lsn, &json!("a"), &json!(1)),
            (&insert, &lsn, &json!("ä"), &json!(2)),
            (&resume, &lsn, &null, &null)
        ]
    );
    // An update is a delete and an insert in one commit, deletes first.
    let update = write(r#"{"k":"a","n":3}"#);
    let delete = lsn_of(&running, "DELETE", "/v1/tables/t/rows/a", "");
    let mut told = socket.messages_until(update);
    if told.last().unwrap()["lsn"] == update {
        told.extend(socket.messages_until(delete));
    }
    told.retain(|message| message["event"] != "resume");
    let short: Vec<_> = told.iter().map(|m| (m["event"].as_str().unwrap(), &m["row"]["_row_id"])).collect();
    let (one, three) = (json!(1), json!(3));
    let seen_at_once = vec![("delete", &one), ("delete", &three)];
    let seen_one_by_one = vec![("delete", &one), ("insert", &three), ("delete", &three)];
    assert!(short == seen_at_once || short == seen_one_by_one, "{told:?}");
    // A new connection resumes at the lsn of the last message.
    drop(socket);
    let missed = write(r#"{"k":"b","n":4}"#);
    let mut socket = Socket::open(&running, &format!("/v1/tables/t/tail?after={delete}"), &[]).unwrap();
    let told = socket.messages_until(missed);
    assert_eq!((&told[0]["event"], &told[0]["row"]["k"]), (&json!("insert"), &json!("b")));
    // Without `after` the feed begins at the present.
    let mut now = Socket::open(&running, "/v1/tables/t/tail", &[]).unwrap();
    let new = write(r#"{"k":"c","n":5}"#);
    assert_eq!(now.messages_until(new)[0]["row"]["k"], "c");
    assert_eq!(socket.messages_until(new)[0]["row"]["k"], "c");
    // The server answers the client's close frame and closes the connection.
    socket.send(CLOSE, &1000u16.to_be_bytes());
    assert_eq!(socket.close_code(), Some(1000));
    assert!(socket.client.is_closed());
    now.send(PING, b"there?");
    loop {
        match now.frame().unwrap() {
            (PONG, payload) => break assert_eq!(payload, b"there?"),
            (PING | TEXT, _) => {}
            other => panic!("{other:?}"),
        }
    }
    drop(now);
    wait_until(|| running.telemetry().connections_open.load(Relaxed) == 0);
}

#[test]
fn a_handshake_is_admitted_like_every_other_request() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("ws-admitted");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    let open = |headers: &[(&str, &str)]| Socket::open(&running, "/v1/tables/t/tail", headers);
    let refused = |headers: &[(&str, &str)]| match open(headers) {
        Ok(_) => panic!("{headers:?} was let in"),
        Err(answer) => (answer.status, answer.error().0),
    };
    // Without API keys, programs and pages of this machine are admitted and pages of other sites are not.
    let own = format!("http://localhost:{}", running.address.port());
    let host = format!("localhost:{}", running.address.port());
    open(&[("Host", &host), ("Origin", &own)]).unwrap();
    for origin in ["http://evil.example", "null", "https://localhost", "http://localhost:1"] {
        assert_eq!(refused(&[("Host", &host), ("Origin", origin)]), (403, "forbidden".into()), "{origin}");
    }
    let fetched = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "websocket")];
    assert_eq!(refused(&fetched), (403, "forbidden".into()));
    assert_eq!(refused(&[("X-Forwarded-For", "192.0.2.1")]).0, 403);

    let admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let reader = put_key(&running, "reader", Scope::Read, TableSet::Only(vec!["main.u".into()]));
    assert_eq!(refused(&[]), (401, "unauthorized".into()));
    let bearer = format!("Bearer {admin}");
    open(&[("Authorization", &bearer)]).unwrap();
    // A page cannot set the `Authorization` header, but it can request protocols.
    let protocols = format!("polynya, bearer.{admin}");
    let mut client = running.client();
    let asked =
        [&HANDSHAKE[..], &[("Sec-WebSocket-Protocol", &protocols), ("Origin", "http://evil.example")]];
    client.head("GET", "/v1/tables/t/tail", &asked.concat());
    let answer = client.answer_head();
    assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, Some("polynya")));
    for wrong in ["polynya, bearer.pk_wrong", "polynya", "bearer."] {
        assert_eq!(refused(&[("Sec-WebSocket-Protocol", wrong)]).0, 401, "{wrong}");
    }
    // A key in the protocols opens only WebSockets.
    let mut client = running.client();
    assert_eq!(client.ask("GET", "/v1/tables", &[("Sec-WebSocket-Protocol", &protocols)], b"").status, 401);
    // Invariant A1: a hidden table is answered like a missing one.
    let protocols = format!("polynya, bearer.{reader}");
    assert_eq!(refused(&[("Sec-WebSocket-Protocol", &protocols)]), (404, "not_found".into()));
    running
        .engine
        .commit(&Principal::local(), Transaction::new(vec![Op::RemoveKey { name: "admin".into() }]))
        .unwrap();
    assert_eq!(refused(&[("Authorization", &bearer)]).0, 401);
}

#[test]
fn an_invalid_handshake_is_refused() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("ws-handshake");
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    let with = |name: &str, value: Option<&'static str>| -> Vec<(&str, &str)> {
        let kept = HANDSHAKE.iter().copied().filter(|(other, _)| *other != name);
        let changed =
            value.map(|value| HANDSHAKE.iter().find(|(other, _)| *other == name).map(|(n, _)| (*n, value)));
        kept.chain(changed.flatten()).collect()
    };
    let path = "/v1/tables/t/tail";
    for headers in [
        with("Connection", None),
        with("Connection", Some("close")),
        with("Sec-WebSocket-Version", None),
        with("Sec-WebSocket-Version", Some("8")),
        with("Sec-WebSocket-Key", None),
    ] {
        let answer = running.client().ask("GET", path, &headers, b"");
        assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{headers:?}");
        assert!(answer.error().1.contains("this is not a WebSocket handshake"), "{}", answer.text());
    }
    let answer = running.client().ask("GET", path, &HANDSHAKE, b"body");
    assert_eq!((answer.status, answer.error().0.as_str()), (400, "invalid"), "{}", answer.text());
    // Errors of the feed itself are answered before the protocol changes.
    for (path, status) in [
        ("/v1/tables/t/tail?after=99999", 400),
        ("/v1/tables/t/tail?after=x", 400),
        ("/v1/tables/none/tail", 404),
        ("/v1/tables/t/rows", 200),
    ] {
        assert_eq!(running.client().ask("GET", path, &HANDSHAKE, b"").status, status, "{path}");
    }
    // HTTP/1.0 cannot change protocols, so the server must not answer 101.
    let mut old = running.client();
    let head: String = HANDSHAKE.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    old.send(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{head}\r\n").as_bytes()).unwrap();
    assert_ne!(old.status(), Some(101));
    running.assert_works();
}

#[test]
fn it_closes_with_the_reason() {
    let _limit = testkit::limit(60);
    let mut running = TestServer::start("ws-closes");
    for table in ["t", "dropped"] {
        assert_eq!(running.ask("POST", &format!("/v1/tables/{table}/rows"), r#"{"a":1}"#).status, 200);
    }
    let open = |running: &TestServer, path: &str| Socket::open(running, path, &[]).unwrap();
    // The feed accepts no messages.
    let mut talker = open(&running, "/v1/tables/t/tail");
    talker.send(TEXT, b"{\"after\":0}");
    assert_eq!(talker.close_code(), Some(1003));
    // Violations of the protocol and oversized messages close the connection.
    let mut large = open(&running, "/v1/tables/t/tail");
    large.send(TEXT, &vec![b'x'; 60_000]);
    assert_eq!(large.close_code(), Some(1002));
    let mut bare = open(&running, "/v1/tables/t/tail");
    bare.client.send(b"\x81\x01x").unwrap();
    assert_eq!(bare.close_code(), Some(1002), "frames of a client are masked");
    let mut garbage = open(&running, "/v1/tables/t/tail");
    garbage.client.send(b"GET /health HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(garbage.close_code(), Some(1002));

    let mut dropped = open(&running, "/v1/tables/dropped/tail");
    lsn_of(&running, "DELETE", "/v1/tables/dropped", "");
    let last = dropped.message().unwrap();
    assert_eq!((&last["event"], &last["error"]["code"]), (&json!("error"), &json!("not_found")), "{last}");
    assert_eq!(dropped.close_code(), Some(4404));

    let secret = put_key(&running, "watcher", Scope::Read, TableSet::All);
    let bearer = format!("Bearer {secret}");
    let mut barred = Socket::open(&running, "/v1/tables/t/tail", &[("Authorization", &bearer)]).unwrap();
    let remove = Op::RemoveKey { name: "watcher".into() };
    running.engine.commit(&Principal::local(), Transaction::new(vec![remove])).unwrap();
    assert_eq!(barred.message().unwrap()["error"]["code"], "unauthorized");
    assert_eq!(barred.close_code(), Some(1008));

    let mut stopped = open(&running, "/v1/tables/t/tail");
    let server = running.server.take().unwrap();
    let ended = std::thread::spawn(move || server.stop(Duration::from_secs(20)));
    assert_eq!(stopped.close_code(), Some(1001));
    drop(stopped);
    assert_eq!(ended.join().unwrap(), 0, "no connection was cut");
}

/// A reader gets a commit larger than the socket buffers complete and in order. A client that does not read is sent no more.
#[test]
fn a_client_that_does_not_read_holds_up_only_its_own_feed() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("ws-slow", |options| {
        options.record_requests = false;
        options.answer_pause_max = Duration::from_secs(2);
    });
    const ROWS: u64 = 40_000;
    let row = |n: u64| json!({"n": n, "text": "x".repeat(1_000)}).to_string();
    let body: Vec<String> = (1..=ROWS).map(row).collect();
    let lsn = lsn_of(&running, "POST", "/v1/tables/t/rows", &body.join("\n"));
    let mut idle = Socket::open(&running, "/v1/tables/t/tail?after=0", &[]).unwrap();
    idle.answers_pings = false;
    // The idle client is disconnected with most of the commit unread.
    wait_until(|| running.telemetry().closes(Close::StalledReader) == 1);
    wait_until(|| running.telemetry().connections_open.load(Relaxed) == 0);
    let sent = running.telemetry().bytes_out.load(Relaxed);
    assert!(sent < 20 << 20, "{sent} bytes of 40 MB went nowhere");

    let mut reading = Socket::open(&running, "/v1/tables/t/tail?after=0", &[]).unwrap();
    let told = reading.messages_until(lsn);
    assert_eq!(told.len() as u64, ROWS + 1, "every row, and one resume at the end of the commit");
    assert!(told.iter().zip(1..=ROWS).all(|(message, n)| message["row"]["n"] == n));
    // The same changes arrive as server-sent events.
    let mut client = running.client();
    client.head("GET", "/v1/tables/t/tail?after=0", &[]);
    assert_eq!(client.answer_head().status, 200);
    let text = client.events_until(lsn);
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let all = (1..=ROWS).all(|n| serde_json::from_str::<Json>(rows.next().unwrap()).unwrap()["n"] == n);
    assert!(all && rows.next().is_none());
    assert_eq!(text.matches("id: ").count(), 1);
}

#[test]
fn a_client_that_answers_no_pings_is_disconnected_and_others_stay() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("ws-silent", |options| {
        options.record_requests = false;
        options.answer_pause_max = Duration::from_millis(800);
        options.idle_time_max = Duration::from_millis(300);
    });
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    let mut polite = Socket::open(&running, "/v1/tables/t/tail", &[]).unwrap();
    let mut silent = Socket::open(&running, "/v1/tables/t/tail", &[]).unwrap();
    silent.answers_pings = false;
    let ended = std::thread::spawn(move || silent.close_code());
    let stays = std::thread::spawn(move || (polite.message(), polite));
    assert_eq!(ended.join().unwrap(), None, "it is cut");
    assert_eq!(running.telemetry().closes(Close::StalledReader), 1);
    // By now the time limits of idle connections and of unread answers have long passed.
    let lsn = lsn_of(&running, "POST", "/v1/tables/t/rows", r#"{"a":2}"#);
    let (message, _polite) = stays.join().unwrap();
    assert_eq!(
        (&message.as_ref().unwrap()["row"]["a"], &message.as_ref().unwrap()["lsn"]),
        (&json!(2), &json!(lsn))
    );
    assert_eq!(running.telemetry().closes(Close::StalledReader), 1);
}

#[test]
fn websockets_count_as_connections() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("ws-count", |options| options.connections_max = 3);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"a":1}"#).status, 200);
    wait_until(|| running.telemetry().connections_open.load(Relaxed) == 0);
    let sockets: Vec<Socket> =
        (0..3).map(|_| Socket::open(&running, "/v1/tables/t/tail", &[]).unwrap()).collect();
    assert_eq!(running.ask("GET", "/health", "").status, 503);
    drop(sockets);
    wait_until(|| running.telemetry().connections_open.load(Relaxed) == 0);
    assert_eq!(running.ask("GET", "/health", "").status, 200);
}
