//! Tests of `polynya key`, beside a running server and without one.

use crate::polynya::Workdir;

#[test]
fn from_the_first_key_on_every_request_needs_one() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    assert_eq!(server.ask("GET", "/v1/tables", &[], "").0, 200);
    let made: serde_json::Value = serde_json::from_str(
        &workdir.ok(&["key", "create", "reader", "--scope", "read", "--tables", "a,lab.*", "--json"]),
    )
    .unwrap();
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(server.ask("GET", "/v1/tables", &[], "").0, 401);
    let bearer = format!("Authorization: Bearer {secret}");
    assert_eq!(server.ask("GET", "/v1/tables", &[&bearer], "").0, 200);
    assert_eq!(server.ask("PUT", "/v1/tables/t", &[&bearer], "{\"columns\":[]}").0, 403);
    // A user who may read the directory needs no key, except for a server that is named by its URL.
    workdir.ok(&["tables"]);
    assert!(workdir.fails(&["tables", "--url", &server.url]).contains("key"));
    workdir.ok(&["tables", "--url", &server.url, "--key", secret]);
    assert!(workdir.fails(&["tables", "--key", "pk_wrong"]).contains("no such key"));
    let list = workdir.ok(&["key", "list"]);
    assert!(list.contains("reader") && list.contains("main.a, lab.*") && !list.contains(secret), "{list}");
    assert!(server.stop().success());

    // Without a server, the directory's owner can still manage keys and is never locked out.
    assert!(workdir.fails(&["key", "create", "reader", "--scope", "read"]).contains("already"));
    let shown = workdir.ok(&["key", "create", "me", "--scope", "admin"]);
    assert!(shown.starts_with("pk_") && shown.contains("not shown again"), "{shown}");
    let said = workdir.ok(&["key", "remove", "reader"]);
    assert!(!said.contains("last"), "{said}");
    let said = workdir.ok(&["key", "remove", "me"]);
    assert!(said.contains("the last one") && said.contains("every program of this machine"), "{said}");
    assert!(workdir.ok(&["key", "list"]).contains("There is no key"));
    assert!(workdir.fails(&["key", "remove", "me"]).contains("me"));
}
