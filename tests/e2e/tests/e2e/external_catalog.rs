//! The lake in an external catalog, that of a second server. Both servers are killed with -9 while rows are committed to the
//! lake. Afterwards the catalog's table must equal Polynya's, value by value.

use std::time::{Duration, Instant};

use bench::{HttpClient, child};
use polynya_e2e::program;
use serde_json::{Value, json};
use testkit::temp_dir;

const ROUNDS: u64 = 4;
const BATCH: u64 = 200;

fn request(client: &mut HttpClient, method: &str, path: &str, body: &Value) -> Value {
    client.json(method, path, Some(body)).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn home(root: &std::path::Path, env: &[(&str, String)]) -> child::Home {
    let mut options = child::Options::new(program::polynya());
    options.root = root.to_owned();
    options.env = env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    child::Home::new(options).unwrap()
}

#[test]
fn tables_land_in_another_servers_catalog_while_both_are_killed() {
    let _limit = testkit::limit(280);
    let root = temp_dir("lake-elsewhere");
    let mut ours = home(root.path(), &[]);
    let data = ours.data();
    let locations = data.join("lake").to_str().unwrap().to_owned();
    let mut theirs = home(root.path(), &[("POLYNYA_LAKE_LOCATIONS", locations)]);
    let mut catalog = theirs.start().unwrap();
    let uri = format!("http://{}/iceberg", catalog.target().address());
    let environment = [("POLYNYA_LAKE_CATALOG", uri.as_str()), ("POLYNYA_LAKE_COMMIT_WAIT", "100ms")];
    environment.iter().for_each(|(name, value)| ours.env(name, value));
    let data = data.to_str().unwrap();
    let lake = |args: &[&str]| {
        let mut command = program::command(root.path(), args);
        let output = command.args(["--data", data]).envs(environment).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {}{said}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    };
    let mut sent = 0;
    for round in 0..ROUNDS {
        let mut server = ours.start().unwrap();
        let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
        if round == 0 {
            let columns = json!([{"name": "id", "type": "int64"}, {"name": "text", "type": "string"},
                {"name": "at", "type": "point"}]);
            request(
                &mut client,
                "PUT",
                "/v1/tables/events",
                &json!({"columns": columns, "primary_key": ["id"]}),
            );
        }
        let end = Instant::now() + Duration::from_millis(1_200 + 211 * round);
        let mut is_killed = round % 2 == 0;
        while Instant::now() < end {
            let id = |n: u64| if n % 10 == 3 { n / 2 } else { n };
            let row = |n: u64| json!({ "id": id(n), "text": format!("row {n}"), "at": [n, 1] });
            let rows: Vec<Value> = (sent..sent + BATCH).map(row).collect();
            request(&mut client, "POST", "/v1/tables/events/rows", &json!(rows));
            sent += BATCH;
            if !is_killed && end - Instant::now() < Duration::from_millis(600) {
                is_killed = true;
                catalog.kill().unwrap();
                // Neither writers nor readers wait for the catalog.
                request(&mut client, "POST", "/v1/sql", &json!({"sql": "SELECT count(*) FROM events"}));
                catalog = theirs.start().unwrap();
            }
        }
        if round == 1 {
            let wider = json!({"columns": [{"name": "level", "type": "int32", "default": 7}]});
            request(&mut client, "PUT", "/v1/tables/events", &wider);
        }
        drop(client);
        server.kill().unwrap();
        let mut server = ours.start().unwrap();
        let verified: Value = serde_json::from_str(&lake(&["lake", "verify", "events", "--json"])).unwrap();
        assert_eq!(verified["equal"], json!(true), "round {round}: {verified}");
        // The verified metadata are those that the catalog gives to every client.
        let mut there = HttpClient::new(catalog.target()).timeout(Duration::from_secs(60));
        let told = there.json("GET", "/iceberg/v1/namespaces/main/tables/events", None).unwrap();
        assert_eq!(told["metadata-location"], verified["metadata"]);
        assert_eq!(told["metadata"]["properties"]["polynya.row"], json!(verified["row"].to_string()));
        server.stop(Duration::from_secs(30)).unwrap();
    }
    let mut server = ours.start().unwrap();
    let status = lake(&["lake", "status"]);
    assert!(status.contains("/lake/main/events-") && status.contains(".metadata.json"), "{status}");
    let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(60));
    client.json("DELETE", "/v1/tables/events", None).unwrap();
    let mut there = HttpClient::new(catalog.target()).timeout(Duration::from_secs(60));
    let until = Instant::now() + Duration::from_secs(60);
    while there.json("GET", "/iceberg/v1/namespaces/main/tables/events", None).is_ok() {
        assert!(Instant::now() < until, "a dropped table stays in the catalog");
        std::thread::yield_now();
    }
    server.stop(Duration::from_secs(30)).unwrap();
    // A URL that is not a catalog is reported before anything is served.
    let wrong = format!("lake.catalog=http://{}", catalog.target().address());
    let said = program::complaint(
        root.path(),
        &["serve", "--data", data, "--listen", "127.0.0.1:0", "--set", &wrong],
    );
    assert!(said.contains("no Iceberg REST catalog") && said.contains("before /v1"), "{said}");
    catalog.stop(Duration::from_secs(30)).unwrap();
}
