//! A consumer's cursor on a server that is killed with -9 while the cursor moves. It must be at its last acknowledged position,
//! or at that of the move in progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench::{HttpClient, child};
use polynya_e2e::program;
use serde_json::json;
use testkit::temp_dir;

#[test]
fn a_cursor_stands_where_it_was_acknowledged_after_each_of_three_kills() {
    let _limit = testkit::limit(120);
    let root = temp_dir("cursors-kill9");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    let path = "/v1/tables/events/cursors/consumer";
    let mut at = 0;
    for round in 0..3 {
        let mut server = home.start().unwrap();
        let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
        if round == 0 {
            let rows: Vec<_> = (0..100_000).map(|n| json!({"n": n})).collect();
            client.json("POST", "/v1/tables/events/rows", Some(&json!(rows))).unwrap();
        } else {
            let found = client.json("GET", path, None).unwrap()["row"].as_u64().unwrap();
            assert!(found == at || found == at + 1, "round {round}: at {found}, acknowledged at {at}");
            at = found;
        }
        let target = server.target().clone();
        let acknowledged = AtomicU64::new(at);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = HttpClient::new(&target).timeout(Duration::from_secs(60));
                let mut next = at + 1;
                while client.json("PUT", path, Some(&json!({"row": next}))).is_ok() {
                    acknowledged.store(next, Ordering::SeqCst);
                    next += 1;
                }
            });
            // The kill must come between moves, at any speed.
            while acknowledged.load(Ordering::SeqCst) < at + 50 {
                std::thread::yield_now();
            }
            server.kill().unwrap();
        });
        at = acknowledged.load(Ordering::SeqCst);
    }
    let mut server = home.start().unwrap();
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    let found = client.json("GET", path, None).unwrap()["row"].as_u64().unwrap();
    assert!(found == at || found == at + 1, "at {found}, acknowledged at {at}");
    server.stop(Duration::from_secs(30)).unwrap();
}
