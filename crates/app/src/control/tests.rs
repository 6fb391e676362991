use types::Principal;
use vfs::Env;

use super::*;

fn engine(dir: &Path) -> Engine {
    Engine::open(Env::real(), &dir.join("data"), engine::Options::default()).unwrap()
}

fn body(start: i64, end: i64, lines: &str, anew: Option<u64>) -> Bytes {
    let after = Position {
        file: "f".into(),
        table: "t".into(),
        head: "h".into(),
        position: end,
        ..Position::default()
    };
    let piece = PieceHeader { start, media: "application/x-ndjson".into(), after, anew };
    Bytes::from(format!("{}\n{lines}", serde_json::to_string(&piece).unwrap()))
}

fn rows(engine: &Engine) -> u64 {
    engine.root().table("main.t").map_or(0, |t| t.rows())
}

#[test]
fn a_piece_that_is_sent_again_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    assert_eq!(ingests::find(&engine, "x").unwrap(), json!({ "position": null, "version": 0 }));
    let first = body(0, 18, "{\"a\": 1}\n{\"a\": 2}\n", None);
    assert_eq!(ingests::store(&engine, "x", &first).unwrap()["count"], 2);
    assert_eq!(ingests::store(&engine, "x", &first).unwrap()["count"], 0, "stored before");
    assert_eq!(rows(&engine), 2);
    // A piece that skips bytes is refused and nothing of it is stored.
    let early = body(30, 40, "{\"a\": 9}\n", None);
    assert_eq!(ingests::store(&engine, "x", &early).unwrap_err().kind(), Kind::Conflict);
    // A bad row makes the server refuse its whole piece; the position stays.
    let bad = body(18, 30, "{\"a\": 3}\n{\"a\": \"x\"}\n", None);
    assert_eq!(ingests::store(&engine, "x", &bad).unwrap_err().kind(), Kind::Schema);
    let next = body(18, 27, "{\"a\": 3, \"b\": true}\n", None);
    assert_eq!(ingests::store(&engine, "x", &next).unwrap()["position"], 27);
    let found = ingests::find(&engine, "x").unwrap();
    assert_eq!((&found["position"]["position"], &found["position"]["rows"]), (&json!(27), &json!(3)));
    let version = found["version"].as_u64();
    // A restart stores everything once more, but only for a sender that knows the file's current version.
    let anew = |version| body(0, 18, "{\"a\": 1}\n{\"a\": 2}\n", version);
    assert_eq!(ingests::store(&engine, "x", &anew(Some(0))).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(ingests::store(&engine, "x", &anew(version)).unwrap()["count"], 2);
    assert_eq!(ingests::store(&engine, "x", &anew(version)).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(rows(&engine), 5);
    engine.close().unwrap();
}

#[test]
fn a_position_goes_with_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let first = body(0, 9, "{\"a\": 1}\n", None);
    ingests::store(&engine, "x", &first).unwrap();
    let drop = engine::Op::DropTable { table: "t".into(), if_exists: false };
    engine.commit(&Principal::local(), engine::Transaction::new(vec![drop])).unwrap();
    assert_eq!(ingests::find(&engine, "x").unwrap()["position"], Value::Null);
    assert_eq!(ingests::store(&engine, "x", &first).unwrap()["count"], 1, "the new table has none of it");
    assert_eq!(rows(&engine), 1);
    engine.close().unwrap();
}

#[test]
fn polynyas_own_tables_take_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let after = Position { table: "polynya.metrics".into(), position: 9, ..Position::default() };
    let piece = PieceHeader { start: 0, media: String::new(), after, anew: None };
    let body = Bytes::from(format!("{}\n{{}}\n", serde_json::to_string(&piece).unwrap()));
    assert_eq!(ingests::store(&engine, "x", &body).unwrap_err().kind(), Kind::Forbidden);
    engine.close().unwrap();
}

#[test]
fn a_key_is_made_once_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let wanted = json!({ "name": "me", "scope": "read", "tables": ["events", "lab.*"] });
    let made = keys::create(&engine, &wanted).unwrap();
    let secret = made["secret"].as_str().unwrap();
    let stored = engine.keys();
    assert_eq!(stored[0].hash, server::hash_of(secret), "only the hash is kept");
    assert_eq!(keys::create(&engine, &wanted).unwrap_err().kind(), Kind::Exists);
    let listed = keys::list(&engine);
    assert_eq!(listed["keys"][0]["tables"], json!(["main.events", "lab.*"]));
    assert!(listed["keys"][0]["created"].as_str().unwrap().ends_with('Z'));
    for bad in [
        json!({"name": "", "scope": "read"}),
        json!({"name": "a", "scope": "all"}),
        json!({"name": "a/b", "scope": "read"}),
    ] {
        assert!(keys::create(&engine, &bad).is_err(), "{bad}");
    }
    keys::remove(&engine, "me").unwrap();
    assert_eq!(keys::remove(&engine, "me").unwrap_err().kind(), Kind::NotFound);
    assert!(engine.keys().is_empty());
    engine.close().unwrap();
}

#[test]
fn escapes_are_undone() {
    assert_eq!(unescaped("a%20%C3%BC").unwrap(), "a ü");
    assert!(unescaped("%").is_err() && unescaped("%zz").is_err() && unescaped("%ff").is_err());
}

#[tokio::test]
async fn the_socket_is_for_the_directorys_owner_and_goes_with_the_server() {
    let _limit = testkit::limit(60);
    let dir = tempfile::tempdir().unwrap();
    // The path of the directory is longer than a socket's path may be.
    let deep = dir.path().join("d".repeat(120));
    let engine = Engine::open(Env::real(), &deep, engine::Options::default()).unwrap();
    let (starting, data) = (engine.clone(), deep.clone());
    let control =
        tokio::task::spawn_blocking(move || Control::start(starting, &data)).await.unwrap().unwrap();
    let mode = std::fs::metadata(deep.join(FILE_NAME)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = crate::client::HttpClient::socket(&deep);
    assert_eq!(client.json(Method::GET, "/keys", None).await.unwrap(), json!({ "keys": [] }));
    assert_eq!(client.json(Method::GET, "/nothing", None).await.unwrap_err().kind(), Kind::NotFound);
    tokio::task::spawn_blocking(move || drop(control)).await.unwrap();
    assert!(!deep.join(FILE_NAME).exists());
    engine.close().unwrap();
}
