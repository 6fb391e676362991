//! Directories of released formats: every value that an earlier version wrote must be readable.

use engine::{Engine, Options};
use polynya_e2e::dump::dump;
use polynya_e2e::golden::{self, DATA, EXPECTED};
use polynya_e2e::program;
use testkit::temp_dir;
use vfs::Env;

fn assert_same(found: &str, expected: &str, what: &str) {
    if found != expected {
        let differing = found.lines().zip(expected.lines()).enumerate().find(|(_, (a, b))| a != b);
        let (found, expected) = (found.lines().count(), expected.lines().count());
        panic!("{what}: {found} lines found, {expected} expected; first difference: {differing:#?}");
    }
}

#[test]
fn a_directory_of_format_1_opens_with_every_value_it_had() {
    let _limit = testkit::limit(120);
    let golden = golden::home().join("v1");
    let expected = std::fs::read_to_string(golden.join(EXPECTED)).unwrap();
    let place = temp_dir("golden");
    let data = place.join("data");
    golden::copy(&golden.join(DATA), &data).unwrap();

    let engine = Engine::open(Env::real(), &data, Options::default()).unwrap();
    assert!(engine.status().write_error.is_none(), "{:?}", engine.status().write_error);
    assert_same(&dump(&engine).unwrap(), &expected, "opened");
    let sealed = engine.root().tables().filter(|table| table.segments().len() > 0).count();
    let unsealed = engine.root().tables().filter(|table| table.head_rows() > 0).count();
    assert!(
        sealed >= 2 && unsealed >= 2,
        "it shows segments ({sealed} tables) and a log tail ({unsealed} tables)"
    );
    engine.close().unwrap();
    drop(engine);

    // After the current version has opened and closed the directory, the contents are the same.
    let engine = Engine::open(Env::real(), &data, Options::default()).unwrap();
    assert_same(&dump(&engine).unwrap(), &expected, "closed and opened again");
    engine.close().unwrap();
}

#[test]
fn the_binary_finds_a_directory_of_format_1_sound_and_answers_from_it() {
    let _limit = testkit::limit(120);
    let place = temp_dir("golden-binary");
    golden::copy(&golden::home().join("v1").join(DATA), &place.join("polynya-data")).unwrap();
    let report = program::succeed(&place, &["doctor", "polynya-data", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["sound"], true, "{report}");
    // The database has API keys, so a query needs one, too.
    let key = program::succeed(&place, &["key", "create", "tester", "--scope", "read"]);
    let key = key.lines().next().unwrap();
    let question = "SELECT count(*) AS n, min(size) AS least FROM lab.events";
    let answer = program::succeed(&place, &["sql", "--key", key, "--json", question]);
    let expected = std::fs::read_to_string(golden::home().join("v1").join(EXPECTED)).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    let events =
        expected["tables"].as_array().unwrap().iter().find(|t| t["table"]["name"] == "lab.events").unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer.lines().next().unwrap()).unwrap();
    assert_eq!(answer["n"], events["table"]["rows"], "{answer}");
    // An integer beyond 2^53 is text in JSON.
    assert_eq!(answer["least"], i64::MIN.to_string(), "{answer}");
}

#[test]
fn the_present_version_writes_what_the_golden_directory_holds() {
    let _limit = testkit::limit(120);
    let place = temp_dir("golden-anew");
    let expected = std::fs::read_to_string(golden::home().join("v1").join(EXPECTED)).unwrap();
    let data = place.join("data");
    assert_same(&golden::make(&data).unwrap(), &expected, "made anew");
    let engine = Engine::open(Env::real(), &data, Options::default()).unwrap();
    assert_same(&dump(&engine).unwrap(), &expected, "made anew and recovered");
    engine.close().unwrap();
}
