//! Runs alone in its process, because it lowers the limit of open files.

mod common;

use common::{ClientProcess, TestServer};
use polynya_server::telemetry::Close;
use rustix::process::{Resource, Rlimit, setrlimit};

/// 600 idle connections took all file descriptors of a process that may have 400. The log could then not be synced, which latched
/// it until the next start.
#[test]
fn idle_connections_leave_files_to_the_log() {
    if ClientProcess::run_if_child() {
        return;
    }
    let _limit = testkit::limit(120);
    let mut clients = ClientProcess::spawn("idle_connections_leave_files_to_the_log");
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum: Some(400) }).unwrap();
    let running = TestServer::start("few-files");
    let mut ours = running.client();
    assert_eq!(ours.ask("GET", "/health", &[], b"").status, 200);
    // The server raises the soft limit to the hard one and reserves 256 descriptors for files.
    assert_eq!(clients.connect(running.address, 600), 400 - 256 - 1);
    assert!(running.telemetry().closes(Close::TooMany) >= 600 - 143);
    // These rows fill several log files and are sealed into segments.
    let row = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1_000));
    let mut ask = |method: &str, path: &str, body: &str| ours.ask(method, path, &[], body.as_bytes()).status;
    for _ in 0..24 {
        assert_eq!(ask("POST", "/v1/tables/t/rows", &row.repeat(1_000)), 200);
    }
    assert!(running.engine.status().log.rotations > 2);
    assert_eq!(ask("GET", "/v1/tables/t/rows?limit=1", ""), 200);
    assert_eq!(ask("POST", "/v1/sql", r#"{"sql":"SELECT count(*) FROM t"}"#), 200);
}
