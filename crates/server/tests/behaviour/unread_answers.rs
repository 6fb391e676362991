//! An answer that its client does not read: its age is shown, and it ends at its deadline.

use std::time::Duration;

use crate::common::{TestServer, wait_until};

#[test]
fn an_unread_answer_shows_its_age_and_ends_at_its_deadline_with_an_error() {
    let _limit = testkit::limit(120);
    let running = TestServer::start("held");
    let row = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1_000));
    for _ in 0..8 {
        assert_eq!(running.ask("POST", "/v1/tables/t/rows", &row.repeat(4_000)).status, 200);
    }
    for (accept, framed) in [("application/json", true), ("application/x-ndjson", false), ("text/csv", false)]
    {
        let mut client = running.client();
        let body = r#"{"sql":"SELECT a.text FROM t a, t b","deadline_ms":3000}"#;
        client.head("POST", "/v1/sql", &[("Accept", accept), ("Content-Length", &body.len().to_string())]);
        client.send(body.as_bytes()).unwrap();
        assert_eq!(client.answer_head().status, 200);
        wait_until(|| running.sql.status().oldest > Duration::from_millis(300));
        let ready = running.ask("GET", "/ready", "").json();
        let detail = &ready["parts"]["sql"]["detail"];
        assert_eq!(detail["running"], 1, "{ready}");
        assert!(detail["oldest_seconds"].as_f64().unwrap() > 0.2, "{ready}");
        let metrics = running.ask("GET", "/metrics", "").text();
        let age = metrics.lines().find_map(|line| line.strip_prefix("polynya_sql_oldest_seconds "));
        assert!(age.unwrap().parse::<f64>().unwrap() > 0.2, "{metrics}");
        // The statement ends although nobody reads its answer.
        wait_until(|| running.sql.status().running == 0 && running.sql.status().oldest.is_zero());
        // A client that reads late finds the error at the end of the answer.
        let (bytes, whole) = client.chunks_until_it_breaks();
        assert_eq!(whole, framed, "{accept}");
        let text = String::from_utf8_lossy(&bytes);
        if accept != "text/csv" {
            let end = &text[text.len().saturating_sub(400)..];
            assert!(
                end.contains("\"code\":\"timeout\"") && end.contains("within its deadline"),
                "{accept}: {end}"
            );
        }
    }
    running.assert_works();
}
