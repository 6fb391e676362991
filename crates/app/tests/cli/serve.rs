//! Tests of servers that start, stop, are killed, or find their directory open.

use std::process::Stdio;

use crate::polynya::{Workdir, is_sound, text};

#[test]
fn a_server_stops_in_order_and_starts_again_with_its_data() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    let (status, body) =
        server.ask("POST", "/v1/tables/events/rows", &["Content-Type: application/json"], "{\"kind\":\"a\"}");
    assert_eq!(status, 200, "{body}");
    assert_eq!(workdir.number("SELECT count(*) FROM events"), 1);
    let said = workdir.fails(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("already") && said.contains(&server.url), "{said}");
    let status = server.stop();
    assert_eq!(status.code(), Some(0));
    assert!(
        !workdir.path("polynya-data/server.json").exists()
            && !workdir.path("polynya-data/control.sock").exists()
    );
    assert_eq!(workdir.number("SELECT count(*) FROM events"), 1, "without a server");
    assert!(is_sound(&workdir, &workdir.path("polynya-data")));
}

#[test]
fn a_killed_server_is_not_looked_for() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    server.ask("POST", "/v1/tables/events/rows", &["Content-Type: application/json"], "{\"kind\":\"a\"}");
    server.kill();
    assert!(workdir.path("polynya-data/server.json").exists(), "left behind");
    assert!(is_sound(&workdir, &workdir.path("polynya-data")));
    assert_eq!(workdir.number("SELECT count(*) FROM events"), 1);
    let server = workdir.serve(&["serve"]);
    assert_eq!(workdir.number("SELECT count(*) FROM events"), 1);
    assert!(server.stop().success());
}

/// A server on a mistyped directory looked like one that had lost its rows.
#[test]
fn a_server_says_that_it_made_a_new_database_and_only_then() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let log = || {
        let mut server = workdir.serve_in("new/data", &["serve", "--data", "new/data"]);
        let mut stderr = server.child.stderr.take().unwrap();
        assert!(server.stop().success());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
        said
    };
    let first = log();
    assert!(first.contains("no database in new/data: made a new one"), "{first}");
    let second = log();
    assert!(second.contains("stopped") && !second.contains("made a new one"), "{second}");
}

/// A command that found no server, and then a locked directory, failed although the server had just started.
#[test]
fn a_command_finds_a_server_that_starts_at_the_same_time() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    let (written, hidden) = (workdir.path("polynya-data/server.json"), workdir.path("hidden"));
    std::fs::rename(&written, &hidden).unwrap();
    let mut command = workdir.command(&["tables"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The main thread, two of its runtime, and the one that tries to open the directory.
    let tasks = format!("/proc/{}/task", child.id());
    while child.try_wait().unwrap().is_none()
        && std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() < 4)
    {
        std::thread::yield_now();
    }
    std::fs::rename(&hidden, &written).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(server.stop().success());
}

#[test]
fn a_log_of_json_lines_is_json() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let mut server = workdir.serve(&["serve", "--log-json"]);
    let stderr = server.child.stderr.take().unwrap();
    assert!(server.stop().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut { stderr }, &mut said).unwrap();
    assert!(said.lines().count() >= 2);
    assert!(said.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{said}");
}
