//! Rows and changes of one partition of a table.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::common::TestServer;

/// Starts a server whose tables soon have segments and a head, each with several pages of blocks.
fn start(name: &str) -> TestServer {
    let options = engine::Options { seal_rows: 700, ..engine::Options::default() };
    TestServer::with_engine_options(name, options, |options| options.record_requests = false)
}

fn create_table(running: &TestServer, by: &[&str]) {
    let columns = json!({
        "columns": [
            {"name": "n", "type": "int64"}, {"name": "country", "type": "string"},
            {"name": "user", "type": "int64"}, {"name": "at", "type": "timestamp"}
        ],
        "partition_by": by,
    });
    let made = running.ask("PUT", "/v1/tables/t", &columns.to_string());
    assert_eq!(made.status, 201, "{}", made.text());
}

fn row(n: u64) -> Json {
    let country = ["de", "fr", "it", "a/b"].get((n * 7 % 5) as usize);
    let day = n / 400 + 1;
    json!({"n": n, "country": country, "user": n * 31 % 97, "at": format!("2026-11-{day:02}T{:02}:00:00Z", n % 24)})
}

fn write(running: &TestServer, rows: std::ops::Range<u64>) -> u64 {
    let rows: Vec<Json> = rows.map(row).collect();
    let answer = running.ask("POST", "/v1/tables/t/rows", &json!(rows).to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["lsn"].as_u64().unwrap()
}

/// Reads all rows of a partition, page by page.
fn read(running: &TestServer, partition: &str, limit: usize) -> Vec<u64> {
    let mut found = Vec::new();
    let mut from = json!(1);
    while !from.is_null() {
        let path = format!("/v1/tables/t/rows?partition={partition}&limit={limit}&from={from}&columns=n");
        let page = running.ask("GET", &path, "");
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        let page = page.json();
        let rows = page["rows"].as_array().unwrap();
        assert!(rows.len() <= limit);
        found.extend(rows.iter().map(|row| row["n"].as_u64().unwrap()));
        from = page["next"].clone();
    }
    found
}

#[test]
fn the_rows_of_a_partition_come_in_their_order_wherever_they_lie() {
    let _limit = testkit::limit(120);
    let running = start("partitions");
    create_table(&running, &["country", "days(at)", "bucket(4, user)"]);
    const ROWS: u64 = 4_000;
    for first in (0..ROWS).step_by(250) {
        write(&running, first..first + 250);
    }
    // Some rows are deleted.
    let gone = running.ask("POST", "/v1/sql", r#"{"sql":"DELETE FROM t WHERE n % 11 = 3"}"#);
    assert_eq!(gone.status, 200, "{}", gone.text());
    let live = || (0..ROWS).filter(|n| n % 11 != 3);
    let of = |country: &Json| live().filter(|n| row(*n)["country"] == *country).collect::<Vec<u64>>();
    for limit in [10_000, 100, 7] {
        assert_eq!(read(&running, "country=de", limit), of(&json!("de")), "{limit}");
    }
    assert_eq!(read(&running, "country=a%252Fb", 1_000), of(&json!("a/b")));
    assert_eq!(read(&running, "country=__HIVE_DEFAULT_PARTITION__", 1_000), of(&Json::Null));
    assert_eq!(read(&running, "country=gb", 1_000), [0u64; 0]);
    let day = |day: u64| live().filter(move |n| n / 400 + 1 == day).collect::<Vec<u64>>();
    assert_eq!(read(&running, "at_day=2026-11-03", 1_000), day(3));
    assert_eq!(read(&running, "at_day=2025-11-03", 1_000), [0u64; 0]);
    let both: Vec<u64> = day(3).into_iter().filter(|n| row(*n)["country"] == "it").collect();
    assert_eq!(read(&running, "country=it/at_day=2026-11-03", 50), both);
    // Each row is in one bucket, and all rows of a user are in the same one.
    let buckets: Vec<Vec<u64>> =
        (0..4).map(|n| read(&running, &format!("user_bucket_4={n}"), 10_000)).collect();
    let mut all = buckets.concat();
    all.sort_unstable();
    assert_eq!(all, live().collect::<Vec<_>>());
    for (at, bucket) in buckets.iter().enumerate() {
        assert!(bucket.is_sorted() && !bucket.is_empty());
        let users: BTreeSet<u64> = bucket.iter().map(|n| n * 31 % 97).collect();
        let others = buckets.iter().enumerate().filter(|(other, _)| *other != at);
        assert!(others.flat_map(|(_, rows)| rows).all(|n| !users.contains(&(n * 31 % 97))));
    }
    // `partition` combines with other parameters and other formats.
    let path = "/v1/tables/t/rows?partition=country=de&since=2000-01-01T00:00:00Z&columns=n&limit=2";
    let mut client = running.client();
    let csv = client.ask("GET", path, &[("Accept", "text/csv")], b"");
    let wanted = of(&json!("de"));
    assert_eq!(csv.text().lines().collect::<Vec<_>>(), ["n", &wanted[0].to_string(), &wanted[1].to_string()]);
    assert_eq!(csv.header("polynya-next"), Some((wanted[1] + 2).to_string().as_str()));
}

/// A rare partition: zone maps rule out most blocks, and the number of other rows that one request reads is bounded.
#[test]
fn one_request_reads_a_bounded_number_of_rows() {
    let _limit = testkit::limit(240);
    let running = TestServer::with_options("partitions-bounded", |options| options.record_requests = false);
    create_table(&running, &["country", "bucket(4, user)"]);
    let mut lines = String::new();
    for n in 0..300_000u64 {
        let country = if n % 2 == 0 { "a" } else { "c" };
        lines += &format!("{{\"n\":{n},\"country\":\"{country}\"}}\n");
    }
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", &lines).status, 200);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"n":300000,"country":"b"}"#).status, 200);
    let first = running.ask("GET", "/v1/tables/t/rows?partition=country=b", "").json();
    assert_eq!(first["rows"], json!([]));
    let next = first["next"].as_u64().unwrap();
    assert!((262_144..300_000).contains(&next), "{next}");
    assert_eq!(read(&running, "country=b", 10), [300_000]);
    // A value outside of all zone maps reads nothing.
    let none = running.ask("GET", "/v1/tables/t/rows?partition=country=d", "").json();
    assert_eq!((&none["rows"], &none["next"]), (&json!([]), &Json::Null));
    let none = running.ask("GET", "/v1/tables/t/rows?partition=user_bucket_4=1", "").json();
    assert_eq!((&none["rows"], &none["next"]), (&json!([]), &Json::Null), "all users are null");
}

#[test]
fn a_feed_of_a_partition_tells_its_rows_and_all_deletes() {
    let _limit = testkit::limit(120);
    let running = start("partitions-tail");
    create_table(&running, &["country"]);
    write(&running, 0..3_000);
    let lsn = write(&running, 3_000..3_005);
    let follow = |path: &str, lsn: u64| {
        let mut client = running.client();
        client.head("GET", path, &[]);
        assert_eq!(client.answer_head().status, 200);
        client.events_until(lsn)
    };
    let told = follow("/v1/tables/t/tail?after=0&partition=country=fr", lsn);
    let rows: Vec<Json> =
        told.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let wanted: Vec<Json> =
        (0..3_005).map(row).filter(|row| row["country"] == "fr").map(|row| row["n"].clone()).collect();
    assert_eq!(rows.iter().map(|row| row["n"].clone()).collect::<Vec<_>>(), wanted);
    // The partition of a deleted row is no longer known, so the feed shows all deletes.
    let gone = running.ask("POST", "/v1/sql", r#"{"sql":"DELETE FROM t WHERE n < 10"}"#).json();
    let deleted = gone["lsn"].as_u64().unwrap();
    let told = follow(&format!("/v1/tables/t/tail?after={lsn}&partition=country=fr"), deleted);
    assert_eq!(told.matches("event: delete").count(), 10, "{told}");
    // A feed with nothing to show still sends resume points, along with other rows or after a while.
    let other = write(&running, 3_005..3_006);
    assert_ne!(row(3_005)["country"], "fr");
    let mine = write(&running, 3_006..3_016);
    let told = follow(&format!("/v1/tables/t/tail?after={deleted}&partition=country=fr"), mine);
    assert!(!told.contains(&format!("id: {other}\n")) && told.contains("\"country\":\"fr\""), "{told}");
}

#[test]
fn an_unknown_partition_is_refused() {
    let _limit = testkit::limit(60);
    let running = start("partitions-none");
    assert_eq!(running.ask("POST", "/v1/tables/plain/rows", r#"{"n":1}"#).status, 200);
    create_table(&running, &["country", "days(_time)"]);
    write(&running, 0..3);
    for (path, why) in [
        ("plain/rows?partition=n=1", "there is no partition field `n`"),
        ("plain/tail?partition=n=1", "there is no partition field `n`"),
        ("t/rows?partition=land=de", "there is no partition field `land`"),
        ("t/rows?partition=country", "`partition` is name=value"),
        ("t/tail?partition=country", "`partition` is name=value"),
        ("t/rows?partition=_time_day=today", "`_time_day` is a day as 2026-11-21"),
    ] {
        let refused = running.ask("GET", &format!("/v1/tables/{path}"), "");
        assert_eq!(
            (refused.status, refused.error().0.as_str()),
            (400, "invalid"),
            "{path}: {}",
            refused.text()
        );
        assert!(refused.error().1.contains(why), "{path}: {}", refused.text());
    }
    // A feed ends when its table loses the partition field.
    let mut client = running.client();
    client.head("GET", "/v1/tables/t/tail?partition=country=de", &[]);
    assert_eq!(client.answer_head().status, 200);
    let changed = running.ask("PUT", "/v1/tables/t", r#"{"columns":[],"partition_by":["days(_time)"]}"#);
    assert_eq!(changed.status, 200, "{}", changed.text());
    write(&running, 3..4);
    let mut told = String::new();
    while let Some(piece) = client.chunk() {
        told += &String::from_utf8(piece).unwrap();
    }
    assert!(
        told.starts_with("event: error") && told.contains("there is no partition field `country`"),
        "{told}"
    );
}

/// An answer that reached its size limit exactly at the end of a page of 256 rows failed in the middle.
#[test]
fn an_answer_that_is_full_at_the_end_of_a_page_says_where_to_go_on() {
    let _limit = testkit::limit(60);
    for bytes_max in [1, 2_700, 2_800, 4_000] {
        let running = TestServer::with_options("rows-full", |options| options.rows_bytes_max = bytes_max);
        let rows: Vec<Json> = (1_000..2_000).map(|n| json!({"n": n})).collect();
        assert_eq!(running.ask("POST", "/v1/tables/t/rows", &json!(rows).to_string()).status, 200);
        let (mut from, mut read) = (json!(1), 0);
        while !from.is_null() {
            let page = running.ask("GET", &format!("/v1/tables/t/rows?columns=n&from={from}"), "");
            assert_eq!(page.status, 200, "{bytes_max}: {}", page.text());
            read += page.json()["rows"].as_array().unwrap().len();
            from = page.json()["next"].clone();
        }
        assert_eq!(read, 1_000, "{bytes_max}");
    }
}
