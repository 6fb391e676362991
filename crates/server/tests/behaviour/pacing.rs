//! Writers that are too fast are slowed down, then refused, and no accepted row is lost uncounted.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::json;

use crate::common::{TestServer, wait_until};

fn metric(running: &TestServer, name: &str) -> u64 {
    let metrics = running.ask("GET", "/metrics", "").text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn count(running: &TestServer) -> u64 {
    let answer = running.ask("POST", "/v1/sql", r#"{"sql":"SELECT count(*) FROM t"}"#);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["rows"][0][0].as_u64().unwrap()
}

/// On a full disk every one of these rows was answered 202, counted as committed, and lost.
#[test]
fn on_a_full_disk_rows_in_memory_are_refused_as_durable_ones_are() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let running = TestServer::on_simulated_machine("memory-full", &machine, engine::Options::default());
    let body = json!({"text": "x".repeat(100_000)}).to_string();
    let in_memory = || running.ask("POST", "/v1/tables/t/rows?ack=memory", &body);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", &body).status, 200);
    machine.disk.set_free_bytes(Some(0));
    let known = || {
        let telemetry = running.telemetry();
        (telemetry.rows_in.load(Relaxed), telemetry.rows_lost.load(Relaxed))
    };
    let mut answered = 0;
    let mut accept_until_refused = || loop {
        let answer = in_memory();
        match answer.status {
            202 => answered += 1,
            _ => break answer,
        }
    };
    let refused = accept_until_refused();
    assert_eq!((refused.status, refused.error().0.as_str()), (503, "disk_full"), "{}", refused.text());
    // The first refusal may have hit a whole frame of rows: the log may still have room for a single row.
    accept_until_refused();
    for _ in 0..50 {
        assert_eq!(in_memory().status, 503);
    }
    // Every row that was accepted before the disk was known to be full is counted as committed or as lost.
    wait_until(|| known().0 + known().1 == answered + 1);
    let (there, lost) = known();
    assert_eq!((count(&running), metric(&running, "polynya_ingest_lost_rows_total")), (there, lost));
    machine.disk.set_free_bytes(None);
    assert_eq!(in_memory().status, 202, "it finds out by itself that there is room");
    assert_eq!(in_memory().status, 202);
    wait_until(|| known().0 == there + 2);
    assert_eq!((count(&running), known().1), (there + 2, lost));
}

/// A row was lost if its table got a new column between the row's answer and its commit.
#[test]
fn rows_in_memory_are_not_lost_to_new_columns() {
    let _limit = testkit::limit(240);
    let running = TestServer::on_a_slow_disk("memory-columns", Duration::from_millis(5));
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"n":0}"#).status, 200);
    const CLIENTS: u64 = 32;
    const EACH: u64 = 20;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let running = &running;
            scope.spawn(move || {
                let mut http = running.client();
                for n in 0..EACH {
                    let body = format!(r#"{{"n":{n},"c{client}_{n}":{n}}}"#);
                    let answer = http.ask("POST", "/v1/tables/t/rows?ack=memory", &[], body.as_bytes());
                    assert_eq!(answer.status, 202, "{}", answer.text());
                }
            });
        }
    });
    let telemetry = running.telemetry();
    let done = || telemetry.rows_in.load(Relaxed) + telemetry.rows_lost.load(Relaxed);
    wait_until(|| done() == CLIENTS * EACH + 1);
    assert_eq!((count(&running), telemetry.rows_lost.load(Relaxed)), (CLIENTS * EACH + 1, 0));
}

/// Rows whose key is taken by the time of their commit are lost, and counted.
#[test]
fn rows_in_memory_whose_key_is_taken_are_counted_as_lost() {
    let _limit = testkit::limit(60);
    let running = TestServer::start("memory-taken");
    let table = r#"{"columns":[{"name":"id","type":"int64"}],"primary_key":["id"]}"#;
    assert_eq!(running.ask("PUT", "/v1/tables/t", table).status, 201);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"id":1}"#).status, 200);
    let answer = running.ask("POST", "/v1/tables/t/rows?ack=memory&mode=insert", r#"{"id":2}"#);
    assert_eq!(answer.status, 202, "{}", answer.text());
    wait_until(|| running.telemetry().rows_in.load(Relaxed) == 2);
    assert_eq!((count(&running), running.telemetry().rows_lost.load(Relaxed)), (2, 0));
    let answer = running.ask("POST", "/v1/tables/t/rows?ack=memory&mode=insert", r#"{"id":1}"#);
    match answer.status {
        // The conflict was found before the row was accepted.
        409 => assert_eq!(running.telemetry().rows_lost.load(Relaxed), 0),
        _ => wait_until(|| running.telemetry().rows_lost.load(Relaxed) == 1),
    }
    assert_eq!(count(&running), 2);
}

#[test]
fn writers_are_slowed_down_then_refused_and_counted_and_readers_are_answered() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let options = engine::Options {
        debt_soft_bytes: 64 << 10,
        debt_hard_bytes: 512 << 10,
        pace_max: Duration::from_millis(20),
        ..engine::Options::default()
    };
    let running = TestServer::on_simulated_machine("pacing", &machine, options);
    let body = json!({"text": "x".repeat(10_000)}).to_string();
    let write = || running.ask("POST", "/v1/tables/t/rows", &body);
    assert_eq!(write().status, 200);
    // Without free space nothing can be sealed, but the log has room.
    machine.disk.set_free_bytes(Some(0));
    let mut acknowledged = 1;
    let paced = || metric(&running, "polynya_paced_requests_total");
    let by_debt = || metric(&running, "polynya_refused_busy_total{reason=\"debt\"}");
    let refused = loop {
        let answer = write();
        match answer.status {
            200 => acknowledged += 1,
            _ => break answer,
        }
        assert_eq!(by_debt(), 0);
    };
    assert!(paced() > 5, "delay comes first: {}", paced());
    assert_eq!((refused.status, refused.error().0.as_str()), (429, "busy"), "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    for _ in 0..20 {
        assert_eq!(write().status, 429);
    }
    assert_eq!(by_debt(), 21);
    assert_eq!(running.ask("GET", "/v1/tables/t/rows?limit=2", "").status, 200);
    assert_eq!(count(&running), acknowledged);
    machine.disk.set_free_bytes(None);
    let mut answer = write();
    while answer.status == 429 {
        // Sealing is tried again some time after it failed for want of space.
        machine.clock.advance(Duration::from_secs(60));
        running.engine.wait_for_commit(running.engine.root().lsn(), Duration::from_millis(20)).unwrap();
        answer = write();
    }
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(count(&running), acknowledged + 1);
}

#[test]
fn a_body_waits_for_room_before_it_is_refused() {
    let _limit = testkit::limit(120);
    let bodies = "polynya_refused_busy_total{reason=\"bodies\"}";
    let body = json!({"text": "x".repeat(50_000)}).to_string();
    for (wait, status) in [(Duration::from_millis(50), 429), (Duration::from_secs(60), 200)] {
        let running = TestServer::with_options("bodies", |options| {
            options.body_bytes_total_max = 80_000;
            options.body_room_wait = wait;
            options.record_requests = false;
        });
        let telemetry = running.telemetry();
        let held = || telemetry.body_bytes_held.load(Relaxed);
        let mut slow = running.client();
        slow.head("POST", "/v1/tables/t/rows", &[("Content-Length", "90000")]);
        slow.send(&[b' '; 80_000]).unwrap();
        wait_until(|| held() >= 80_000);
        let mut quick = running.client();
        quick.head("POST", "/v1/tables/t/rows", &[("Content-Length", &body.len().to_string())]);
        quick.send(body.as_bytes()).unwrap();
        wait_until(|| telemetry.paced.load(Relaxed) > 0);
        if status == 200 {
            drop(slow);
        }
        let answer = quick.answer();
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(metric(&running, bodies), u64::from(status == 429));
    }
}
