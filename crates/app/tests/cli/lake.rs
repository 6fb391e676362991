//! Reading the lake back: every table gets its line, whatever the others come to.

use crate::polynya::Place;

#[test]
fn a_table_that_cannot_be_compared_is_named_and_the_others_are() {
    let _limit = testkit::limit(120);
    let place = Place::new();
    let server = place.serve(&["serve"]);
    for table in ["a", "b", "c"] {
        place.ok(&["sql", &format!("create table {table} as select 7 as n")]);
    }
    assert_eq!(place.ok(&["lake", "verify"]).matches(": equal.").count(), 3);
    // Half a file, as a copy that was broken off leaves it.
    let data = place.path("polynya-data/lake/main/b/data");
    let file = std::fs::read_dir(data).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let output = place.run(&["lake", "verify"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said.matches(": equal.").count(), 2, "{said}");
    assert!(said.contains("b: NOT COMPARED\n"), "{said}");
    let json = String::from_utf8(place.run(&["lake", "verify", "b", "--json"]).stdout).unwrap();
    let report: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert!(report["equal"] == false && report["error"].is_string(), "{report}");
    assert!(server.stop().success());
}
