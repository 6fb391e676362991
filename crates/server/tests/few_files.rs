//! Alone in its process, whose limit of open files it lowers.

mod common;

use common::{Crowd, Running};
use polynya_server::telemetry::Close;
use rustix::process::{Resource, Rlimit, setrlimit};

/// 600 idle connections took every file that a process of 400 may have; the log then could not be synced, which latched
/// it until the next start.
#[test]
fn idle_connections_leave_files_to_the_log() {
    if Crowd::is_here() {
        return;
    }
    let _limit = testkit::limit(120);
    let mut crowd = Crowd::hire("idle_connections_leave_files_to_the_log");
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum: Some(400) }).unwrap();
    let running = Running::start("few-files");
    let mut ours = running.client();
    assert_eq!(ours.ask("GET", "/health", &[], b"").status, 200);
    // The soft limit was raised to the hard one, and 256 of it are kept.
    assert_eq!(crowd.gather(running.address, 600), 400 - 256 - 1);
    assert!(running.telemetry().closes(Close::TooMany) >= 600 - 143);
    // Through many files of the log, and with new segments.
    let row = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1_000));
    let mut ask = |method: &str, path: &str, body: &str| ours.ask(method, path, &[], body.as_bytes()).status;
    for _ in 0..24 {
        assert_eq!(ask("POST", "/v1/tables/t/rows", &row.repeat(1_000)), 200);
    }
    assert!(running.engine.status().log.rotations > 2);
    assert_eq!(ask("GET", "/v1/tables/t/rows?limit=1", ""), 200);
    assert_eq!(ask("POST", "/v1/sql", r#"{"sql":"SELECT count(*) FROM t"}"#), 200);
}
