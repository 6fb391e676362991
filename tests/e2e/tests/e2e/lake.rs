//! The lake of a server that is killed with -9 while it takes rows and commits them to the lake. Afterwards the lake, read from
//! its own files, must equal the table, value by value.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::{HttpClient, child};
use polynya_e2e::program;
use serde_json::{Value, json};
use testkit::temp_dir;

const ROUNDS: u64 = 4;
const BATCH: u64 = 500;

fn request(client: &mut HttpClient, method: &str, path: &str, body: &Value) -> Value {
    client.json(method, path, Some(body)).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// A tenth of every batch replaces older rows.
fn bodies(first: u64) -> Vec<Value> {
    let id = |n: u64| if n % 10 == 3 { n / 2 } else { n };
    let body = |n: u64| json!({ "id": id(n), "value": n as f64 / 4.0, "text": format!("row {n}"), "at": "2026-01-01T00:00:00Z" });
    (first..first + BATCH).map(body).collect()
}

#[test]
fn the_lake_is_the_table_after_each_of_four_kills() {
    let _limit = testkit::limit(280);
    let root = temp_dir("lake-kill9");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    let data = home.data();
    let data = data.to_str().unwrap();
    let definition = json!({
        "columns": [{"name": "id", "type": "int64"}, {"name": "value", "type": "float64"},
            {"name": "text", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "primary_key": ["id"],
    });
    let mut sent = 0;
    for round in 0..ROUNDS {
        let mut server = home.start().unwrap();
        let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
        if round == 0 {
            request(&mut client, "PUT", "/v1/tables/events", &definition);
        }
        // A second client requests lake commits all the time, so that the kill meets one.
        let target = server.target().clone();
        let lander = std::thread::spawn(move || {
            let mut client = HttpClient::new(&target).timeout(Duration::from_secs(60));
            let mut landed = 0;
            while client.json("POST", "/v1/tables/events/commit", None).is_ok() {
                landed += 1;
            }
            landed
        });
        let end = Instant::now() + Duration::from_millis(1_500 + 211 * round);
        while Instant::now() < end {
            let answer = request(&mut client, "POST", "/v1/tables/events/rows", &json!(bodies(sent)));
            // Of two rows with one key in a batch the last wins, so the count is lower than the batch.
            assert!(answer["count"].as_u64() > Some(BATCH / 2), "{answer}");
            sent += BATCH;
            if sent % 5_000 == 0 {
                let gone = json!({"sql": "DELETE FROM events WHERE id % 17 = 5 AND id >= $1", "params": [sent - 2_000]});
                request(&mut client, "POST", "/v1/sql", &gone);
            }
        }
        if round == 2 {
            let wider = json!({"columns": [{"name": "level", "type": "int32", "default": 7}]});
            request(&mut client, "PUT", "/v1/tables/events", &wider);
        }
        drop(client);
        server.kill().unwrap();
        let landed: u32 = lander.join().unwrap();
        assert!(landed > 0, "round {round}: nothing landed before the kill");

        // The check runs through a server in even rounds, and opens the directory itself in odd ones.
        let verified = if round % 2 == 0 {
            let mut server = home.start().unwrap();
            let verified =
                program::succeed(root.path(), &["lake", "verify", "events", "--json", "--data", data]);
            server.stop(Duration::from_secs(30)).unwrap();
            verified
        } else {
            program::succeed(root.path(), &["lake", "verify", "events", "--json", "--data", data])
        };
        let verified: Value = serde_json::from_str(&verified).unwrap();
        assert_eq!(verified["equal"], json!(true), "round {round}: {verified}");
        assert!(verified["rows"].as_u64().unwrap() > sent / 2, "round {round}: {verified}");
    }
    let status = program::succeed(root.path(), &["lake", "status", "--data", data]);
    assert!(status.contains("events") && status.contains(".metadata.json"), "{status}");
}

/// Verifying compares two reads at different times. Rows that were replaced in between were once reported as differences.
#[test]
fn a_table_that_changes_while_it_is_compared_is_never_called_different() {
    let _limit = testkit::limit(280);
    let root = temp_dir("lake-busy");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    let data = home.data();
    let data = data.to_str().unwrap();
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let columns = json!([{"name": "id", "type": "int64"}, {"name": "n", "type": "int64"}]);
    let definition = json!({"columns": columns, "primary_key": ["id"]});
    request(&mut client, "PUT", "/v1/tables/counters", &definition);
    let rows = |n: u64| json!((0..20).map(|id| json!({"id": (id * 7 + n) % 40, "n": n})).collect::<Vec<_>>());
    request(&mut client, "POST", "/v1/tables/counters/rows", &rows(0));
    let stop = AtomicBool::new(false);
    let outputs = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 1;
            while !stop.load(Ordering::Relaxed) {
                request(&mut client, "POST", "/v1/tables/counters/rows", &rows(n));
                n += 1;
            }
        });
        let verify =
            || program::command(root.path(), &["lake", "verify", "counters", "--data", data]).output();
        let outputs: Vec<_> = (0..3).map(|_| verify()).collect();
        stop.store(true, Ordering::Relaxed);
        outputs
    });
    for output in outputs {
        let output = output.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!out.contains("DIFFERENT"), "{out}{err}");
        let is_told =
            out.contains("NOT COMPARED") && out.contains("compare it while fewer of its rows change");
        assert!(output.status.success() || is_told, "{out}{err}");
    }
    // Once no rows change, the lake is equal.
    let verified = program::succeed(root.path(), &["lake", "verify", "counters", "--data", data]);
    assert!(verified.contains("counters: equal."), "{verified}");
    server.stop(Duration::from_secs(30)).unwrap();
}
