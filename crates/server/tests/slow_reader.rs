//! Runs alone in its process, because it measures the process's memory.

mod common;

use std::io::Read;
use std::time::{Duration, Instant};

use common::{Client, TestServer, resident_bytes, wait_until};
use polynya_server::telemetry::Close;

/// A client that reads a byte a second occupies only bounded memory, and only for a bounded time.
#[test]
fn a_reader_of_a_byte_a_second_is_disconnected_in_time_and_occupies_little_memory() {
    let _limit = testkit::limit(120);
    let running = TestServer::with_options("slow_reader", |o| o.answer_time_max = Duration::from_secs(2));
    let row = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1_000));
    for _ in 0..8 {
        assert_eq!(running.ask("POST", "/v1/tables/t/rows", &row.repeat(4_000)).status, 200);
    }
    let before = resident_bytes();
    let started = Instant::now();
    let mut clients: Vec<Client> = (0..4).map(|_| running.client()).collect();
    for client in &mut clients {
        let body = r#"{"sql":"SELECT a.text FROM t a, t b"}"#;
        client.head(
            "POST",
            "/v1/sql",
            &[("Accept", "application/x-ndjson"), ("Content-Length", &body.len().to_string())],
        );
        client.send(body.as_bytes()).unwrap();
    }
    let mut byte = [0];
    while running.telemetry().closes(Close::SlowReader) + running.telemetry().closes(Close::StalledReader) < 4
    {
        for client in &mut clients {
            let _ = client.reader.read(&mut byte);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert!(started.elapsed() < Duration::from_secs(60));
    assert!(resident_bytes().saturating_sub(before) < 512 << 20, "grew by {}", resident_bytes() - before);
    // The end of a connection ends its statement.
    wait_until(|| running.sql.status().running == 0);
    running.assert_works();
}
