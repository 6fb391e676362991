//! Tests of a small storm: its result, and that it leaves nothing behind, whichever way it ends. Latencies are printed and
//! not judged, because other tests run at the same time.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::polynya::{Workdir, text};

const SMALL: [&str; 8] = ["storm", "--json", "--scale", "0.01", "--quiet-seconds", "1", "--root", "here"];

fn workdir() -> Workdir {
    let workdir = Workdir::new();
    std::fs::create_dir(workdir.path("here")).unwrap();
    // The settings of the working directory must not reach the storm's server.
    workdir.write("polynya.toml", "[lake]\nenabled = false\n[site]\nvault = \"nowhere\"\n");
    workdir
}

fn left_behind(workdir: &Workdir) -> Vec<PathBuf> {
    std::fs::read_dir(workdir.path("here")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_small_storm_loses_nothing_and_every_answer_is_right() {
    let _limit = testkit::limit(300);
    let workdir = workdir();
    let output = workdir.run(&[&SMALL[..], &["--seconds", "3"]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let told: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = told.last().unwrap_or(&Value::Null);
    assert!(output.status.success(), "{last}\n{err}");
    let mut phases: Vec<&str> = told
        .iter()
        .filter(|line| line["told"] == "phase")
        .filter_map(|line| line["phase"].as_str())
        .collect();
    phases.dedup();
    assert_eq!(phases, ["prepare", "quiet", "storm", "kill", "verify"]);
    assert!(told.iter().any(|line| line["told"] == "second" && line["phase"] == "storm"), "{out}");

    let outcome = &last["outcome"];
    assert_eq!(
        (&outcome["wrong_answers"], &outcome["failures"]),
        (&0.into(), &Value::Array(vec![])),
        "{outcome}"
    );
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    for kind in outcome["kinds"].as_array().unwrap() {
        assert!(number(&kind["quiet"]["count"]) > 0 && number(&kind["storm"]["count"]) > 0, "{kind}");
        eprintln!("{}: {} quiet, {} storm", kind["kind"], kind["quiet"]["p99_ms"], kind["storm"]["p99_ms"]);
    }
    let background = &outcome["background"];
    assert!(number(&outcome["events"]) > 0 && number(&background["pages_rewritten"]) > 0, "{outcome}");
    assert!(number(&background["rows_indexed"]) > 0, "a text index was built: {background}");
    let verified = &outcome["verified"];
    assert_eq!((&verified["complete"], &verified["events_lost"]), (&true.into(), &0.into()), "{verified}");
    assert!(verified["events_found"].as_u64() >= verified["events_acknowledged"].as_u64(), "{verified}");
    let lake = verified["lake"].as_array().unwrap();
    assert_eq!(lake.len(), 3);
    assert!(lake.iter().all(|table| table["equal"] == true && number(&table["rows"]) > 0), "{lake:?}");
    let line = last["last_line"].as_str().unwrap();
    for part in ["events in", "rows indexed", "reads answered", "longest read", "0 wrong answers"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(left_behind(&workdir), [] as [PathBuf; 0]);
}

/// Starts a long storm and waits until its server runs. Returns the storm's process, its output, and the server's pid.
fn start_long_storm(workdir: &Workdir, more: &[&str]) -> (Child, BufReader<ChildStdout>, u64) {
    let mut command = workdir.command(&[&SMALL[..], &["--seconds", "600", "--load", "1000"], more].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"quiet\"") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let directory = left_behind(workdir).pop().unwrap();
    let found = std::fs::read(directory.join("data/server.json")).unwrap();
    let found: Value = serde_json::from_slice(&found).unwrap();
    (child, told, found["pid"].as_u64().unwrap())
}

fn wait_until_gone(pid: u64) {
    let since = Instant::now();
    // The server may stay a zombie until its parent waits for it, so a zombie counts as gone.
    let is_there = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z ") && stat.contains("polynya"))
    };
    while is_there() {
        assert!(since.elapsed() < Duration::from_secs(60), "the storm's server {pid} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupted_storm_ends_its_server_and_removes_its_directory() {
    let _limit = testkit::limit(300);
    let workdir = workdir();
    let (mut child, told, server) = start_long_storm(&workdir, &[]);
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    let rest: Vec<String> = told.lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(rest.last().unwrap().contains("was stopped"), "{rest:?}");
    wait_until_gone(server);
    assert_eq!(left_behind(&workdir), [] as [PathBuf; 0]);
}

#[test]
fn a_storm_and_its_server_end_with_their_parent() {
    let _limit = testkit::limit(300);
    let workdir = workdir();
    let (mut child, told, server) = start_long_storm(&workdir, &["--attached"]);
    // The reader of its output is gone too.
    drop(told);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    wait_until_gone(server);
    assert_eq!(left_behind(&workdir), [] as [PathBuf; 0]);

    let (mut child, _told, server) = start_long_storm(&workdir, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(server);
}

#[test]
fn a_storm_without_room_is_refused_before_anything_is_written() {
    let _limit = testkit::limit(60);
    let workdir = workdir();
    let said = workdir.fails(&["storm", "--load", "1e12", "--root", "here"]);
    assert!(said.contains("GiB free") && said.contains("--seconds"), "{said}");
    assert!(workdir.fails(&["storm", "--root", "missing"]).contains("missing"));
    assert_eq!(left_behind(&workdir), [] as [PathBuf; 0]);
}

#[test]
fn the_page_starts_a_storm_beside_its_server_and_ends_it() {
    let _limit = testkit::limit(300);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    let ask = |method: &str, body: &str| -> (u16, Value) {
        let (status, body) = server.ask(method, "/v1/storm", &["Content-Type: application/json"], body);
        (status, serde_json::from_str(&body).unwrap())
    };
    assert_eq!(ask("DELETE", "").0, 404);
    let (status, said) = ask("POST", "{\"seconds\":600,\"quiet_seconds\":1,\"load\":1000,\"scale\":0.01}");
    assert_eq!((status, said["state"].as_str()), (202, Some("running")), "{said}");
    assert_eq!(ask("POST", "").0, 409);
    let until = |what: &str, is: &dyn Fn(&Value) -> bool| {
        let since = Instant::now();
        loop {
            let (_, storm) = ask("GET", "");
            if is(&storm) {
                return storm;
            }
            assert!(since.elapsed() < Duration::from_secs(120), "{what} does not come: {storm}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let storm = until("the storm", &|storm| {
        storm["seconds"].as_array().is_some_and(|all| all.iter().any(|second| second["phase"] == "storm"))
    });
    assert_eq!(storm["seconds"][0]["kinds"].as_array().unwrap().len(), 5, "{storm}");
    assert!(workdir.path("polynya-data/storm").exists());
    assert_eq!(ask("DELETE", "").0, 202);
    let storm = until("its end", &|storm| storm["state"] == "stopped");
    assert!(storm["error"].is_null() && storm["outcome"].is_null(), "{storm}");
    assert!(!workdir.path("polynya-data/storm").exists(), "nothing is left behind");
    // A storm that runs does not delay the stop of its server.
    assert_eq!(ask("POST", "{\"seconds\":600,\"load\":1000,\"scale\":0.01}").0, 202);
    assert!(server.stop().success());
    let since = Instant::now();
    while std::fs::read_dir(workdir.path("polynya-data/storm")).is_ok_and(|mut all| all.next().is_some()) {
        assert!(since.elapsed() < Duration::from_secs(60), "the storm outlives its server");
        std::thread::sleep(Duration::from_millis(20));
    }
}
