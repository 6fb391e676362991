//! Combines every kind of body with every kind of fault: contradictory headers, damaged compression, wrong keys. A fault is
//! refused with its code, the table stays as it was, and the same body without the fault is accepted.

use engine::{ApiKey, Op, Transaction};
use types::{Principal, Scope, TableSet};

use super::bodies::{
    ARROW, CSV, JSON, NDJSON, PROTOBUF, arrow, assert_refused, gzip, int, ints, protobuf, rows, send,
    start_with_table, state, valid_bodies,
};
use super::common::TestServer;

/// A way to spoil a valid request.
struct BodyFault {
    name: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    /// Derives the body from the valid one.
    bytes: fn(&[u8]) -> Vec<u8>,
    status: u16,
    code: &'static str,
}

fn unchanged(body: &[u8]) -> Vec<u8> {
    body.to_vec()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, 1).unwrap()
}

/// Flips a bit in the middle of a compressed body.
fn flip_middle_bit(mut packed: Vec<u8>) -> Vec<u8> {
    let middle = packed.len() / 2;
    packed[middle] ^= 0x20;
    packed
}

fn faults() -> Vec<BodyFault> {
    let fault = |name, headers: &[(&'static str, &'static str)], bytes, status, code| BodyFault {
        name,
        headers: headers.to_vec(),
        bytes,
        status,
        code,
    };
    const LONG: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\
                        kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\
                        kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
    vec![
        fault("nothing in it", &[("Content-Length", "0")], |_| Vec::new(), 400, "invalid"),
        fault("plain, and said to be gzip", &[("Content-Encoding", "gzip")], unchanged, 400, "invalid"),
        fault("plain, and said to be zstd", &[("Content-Encoding", "zstd")], unchanged, 400, "invalid"),
        fault("zstd, and said to be gzip", &[("Content-Encoding", "gzip")], zstd, 400, "invalid"),
        fault("gzip, and said to be zstd", &[("Content-Encoding", "zstd")], gzip, 400, "invalid"),
        fault(
            "gzip that is cut",
            &[("Content-Encoding", "gzip")],
            |b| gzip(b)[..20].to_vec(),
            400,
            "invalid",
        ),
        fault("zstd that is cut", &[("Content-Encoding", "zstd")], |b| zstd(b)[..8].to_vec(), 400, "invalid"),
        fault("spoiled gzip", &[("Content-Encoding", "gzip")], |b| flip_middle_bit(gzip(b)), 400, "invalid"),
        fault(
            "gzip with something behind it",
            &[("Content-Encoding", "gzip")],
            |b| [gzip(b), b"more".to_vec()].concat(),
            400,
            "invalid",
        ),
        fault(
            "zstd with something behind it",
            &[("Content-Encoding", "zstd")],
            |b| [zstd(b), b"more".to_vec()].concat(),
            400,
            "invalid",
        ),
        fault("an unknown packing", &[("Content-Encoding", "br")], unchanged, 415, "unsupported_media_type"),
        fault(
            "two packings",
            &[("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")],
            |b| gzip(&gzip(b)),
            400,
            "invalid",
        ),
        fault(
            "one packing, and none",
            &[("Content-Encoding", "identity"), ("Content-Encoding", "gzip")],
            unchanged,
            400,
            "invalid",
        ),
        fault("an empty idempotency key", &[("Idempotency-Key", "")], unchanged, 400, "invalid"),
        fault("a long idempotency key", &[("Idempotency-Key", LONG)], unchanged, 400, "invalid"),
        fault("an idempotency key of letters", &[("Idempotency-Key", "käse")], unchanged, 400, "invalid"),
        fault(
            "two idempotency keys",
            &[("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
            unchanged,
            400,
            "invalid",
        ),
        fault(
            "an idempotency key of another",
            &[("Idempotency-Key", "taken")],
            unchanged,
            422,
            "idempotency_key_reused",
        ),
        fault("a version that is no number", &[("If-Match", "\"x\"")], unchanged, 400, "invalid"),
        fault("a version for two rows", &[("If-Match", "\"1\"")], unchanged, 400, "invalid"),
    ]
}

#[test]
fn every_kind_of_body_with_every_fault_changes_nothing() {
    let _limit = testkit::limit(120);
    let running = start_with_table("matrix");
    let key = [("Idempotency-Key", "taken")];
    assert_eq!(send(&running, "", &key, br#"{"id":0,"s":"another"}"#).status, 200);
    let before = state(&running);
    for (media, body) in valid_bodies() {
        for fault in faults() {
            let mut headers = vec![("Content-Type", media)];
            headers.extend(&fault.headers);
            for query in ["", "?mode=insert", "?on_error=skip"] {
                let answer = send(&running, query, &headers, &(fault.bytes)(&body));
                let what = format!("{media} {query}: {}", fault.name);
                let said = (answer.status, answer.error().0);
                assert_eq!(said, (fault.status, fault.code.to_owned()), "{what}: {}", answer.text());
                assert!(!answer.error().1.is_empty(), "{what}");
                assert_eq!(state(&running), before, "{what}");
            }
        }
    }
    // The charset is not UTF-8, or differs from the text.
    for media in [JSON, NDJSON, CSV] {
        for charset in ["iso-8859-1", "utf-16", "\"Windows-1252\"", "none"] {
            let said = format!("{media}; charset={charset}");
            let body =
                if media == CSV { &b"id,s\n1,\xc3\xa9\n"[..] } else { b"{\"id\":1,\"s\":\"\xc3\xa9\"}\n" };
            let answer = send(&running, "", &[("Content-Type", &said)], body);
            let found = (answer.status, answer.error().0);
            assert_eq!(found, (415, "unsupported_media_type".to_owned()), "{said}: {}", answer.text());
            assert_eq!(state(&running), before, "{said}");
        }
    }
    for (media, body) in valid_bodies() {
        let twice = [("Content-Type", media), ("Content-Type", "text/csv")];
        assert_eq!(send(&running, "", &twice, &body).status, 400, "{media}, and CSV");
        for other in [JSON, NDJSON, CSV, ARROW, PROTOBUF] {
            let lines = |media| matches!(media, JSON | NDJSON);
            if other == media || lines(other) && lines(media) && media != JSON {
                continue;
            }
            let answer = send(&running, "?create=false", &[("Content-Type", other)], &body);
            let is_taken = lines(other) && lines(media);
            assert_eq!(answer.status == 200, is_taken, "{media} as {other}: {}", answer.text());
            if !is_taken {
                assert!(matches!(answer.status, 400 | 413 | 422), "{media} as {other}: {}", answer.text());
            }
        }
    }
    // Without a fault each body is accepted, plain and compressed, with UTF-8 as its charset.
    for (media, body) in valid_bodies() {
        let text = format!("{media}; charset=\"UTF-8\"");
        for (encoding, bytes) in [("identity", body.clone()), ("gzip", gzip(&body)), ("zstd", zstd(&body))] {
            let headers = [("Content-Type", text.as_str()), ("Content-Encoding", encoding)];
            let answer = send(&running, "", &headers, &bytes);
            assert_eq!((answer.status, &answer.json()["count"]), (200, &2.into()), "{media} {encoding}");
        }
    }
    assert_eq!(rows(&running, "t"), 3);
    running.assert_works();
}

#[test]
fn a_column_that_is_named_twice_is_refused_in_every_kind_of_body() {
    let _limit = testkit::limit(60);
    let running = start_with_table("matrix-twice");
    for (first, second) in [("id", "id"), ("id", "ID"), ("new", "new"), ("new", "NEW")] {
        let text = format!("{{\"id\":1,\"{first}\":1,\"{second}\":2}}\n");
        for (media, body) in [
            (JSON, text.clone().into_bytes()),
            (NDJSON, text.clone().into_bytes()),
            (CSV, format!("{first},{second}\n1,2\n").into_bytes()),
            (ARROW, arrow(vec![(first, ints(&[Some(1)])), (second, ints(&[Some(2)]))])),
            (PROTOBUF, protobuf(&[first, second], &[vec![int(1), int(2)]])),
        ] {
            assert_refused(&running, &[("Content-Type", media)], &body, 422, "schema");
        }
    }
    running.assert_works();
}

/// A bit flips on the way, whichever it is: a body with a checksum is stored unchanged or not at all.
#[test]
fn no_bit_of_a_packed_body_changes_what_is_stored() {
    let _limit = testkit::limit(120);
    let running = start_with_table("matrix-bits");
    let mut client = running.client();
    for (media, body) in valid_bodies() {
        let mut summed = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        summed.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut summed, &body).unwrap();
        for (encoding, packed) in [("gzip", gzip(&body)), ("zstd", summed.finish().unwrap())] {
            for bit in (0..packed.len() * 8).step_by(3) {
                let mut sent = packed.clone();
                sent[bit / 8] ^= 1 << (bit % 8);
                let headers = [("Content-Type", media), ("Content-Encoding", encoding)];
                let answer = client.ask("POST", "/v1/tables/t/rows", &headers, &sent);
                let what = format!("{media} {encoding} bit {bit}: {}", answer.text());
                assert!(matches!(answer.status, 200 | 400 | 413), "{what}");
                // Some bits of a compression header carry no meaning.
                let count = &answer.json()["count"];
                assert!(answer.status != 200 || *count == 2, "{what}");
                if answer.header("connection") == Some("close") {
                    client = running.client();
                }
            }
        }
    }
    let found = running.ask("POST", "/v1/sql", r#"{"sql":"SELECT id, s, n FROM t ORDER BY id"}"#);
    let expected = serde_json::json!([[0, "first", null], [1, "a", null], [2, "b", null]]);
    assert_eq!(found.json()["rows"], expected, "{}", found.text());
    running.assert_works();
}

fn put_key(running: &TestServer, name: &str, scope: Scope, tables: TableSet) -> String {
    let secret = format!("pk_{name}");
    let hash = polynya_server::hash_of(&secret);
    let key = ApiKey { name: name.into(), hash, scope, tables, created: 0 };
    running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    format!("Bearer {secret}")
}

#[test]
fn a_wrong_key_stores_nothing_whatever_it_sends() {
    let _limit = testkit::limit(60);
    let running = start_with_table("matrix-keys");
    let admin = put_key(&running, "admin", Scope::Admin, TableSet::All);
    let reader = put_key(&running, "reader", Scope::Read, TableSet::All);
    let other = put_key(&running, "other", Scope::Write, TableSet::Only(vec!["main.u".into()]));
    let cut = admin[..admin.len() - 1].to_owned();
    let before = state(&running);
    for (media, body) in valid_bodies() {
        for query in ["", "?chunked=true", "?on_error=skip", "?mode=insert"] {
            for (key, status) in [
                (None, 401),
                (Some(cut.as_str()), 401),
                (Some("Bearer "), 401),
                (Some("Basic YWRtaW46YWRtaW4="), 401),
                (Some(reader.as_str()), 403),
                // This key does not see the table, so the request would create it.
                (Some(other.as_str()), 403),
            ] {
                let mut headers = vec![("Content-Type", media)];
                headers.extend(key.map(|key| ("Authorization", key)));
                let answer = send(&running, query, &headers, &body);
                let what = format!("{media} {query} {key:?}: {}", answer.text());
                assert_eq!(answer.status, status, "{what}");
                assert_eq!(state(&running), before, "{what}");
            }
        }
    }
    let headers = [("Content-Type", JSON), ("Authorization", admin.as_str())];
    assert_eq!(send(&running, "", &headers, br#"{"id":1}"#).status, 200);
}
