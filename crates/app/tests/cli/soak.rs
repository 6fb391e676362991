//! A short run of the soak: every part reads and writes, and all acknowledged rows are there after the kill. Growth of
//! memory and files is judged by longer runs, and by the tests of the soak's verdict.

use serde_json::Value;

use crate::polynya::{Workdir, text};

#[test]
fn a_short_soak_finds_every_answer_right_and_leaves_nothing_behind() {
    let _limit = testkit::limit(420);
    let workdir = Workdir::new();
    std::fs::create_dir(workdir.path("here")).unwrap();
    let output =
        workdir.run(&["bench", "soak", "--measure", "25s", "--rate", "2", "--root", "here", "--json"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let claim = &report["claims"][0];
    assert_eq!(claim["holds"], true, "{claim}");
    assert!(claim["found"].as_str().unwrap().contains(" 0 wrong"), "{claim}");
    let sheets = report["sheets"].as_array().unwrap();
    let names: Vec<&str> =
        sheets[0]["rows"].as_array().unwrap().iter().filter_map(|row| row[0].as_str()).collect();
    assert!(names.contains(&"memory of its own (RssAnon)") && names.contains(&"open files"), "{names:?}");
    // Standard error has a line for each second, and one for each phase.
    let lines = err.lines().filter(|line| line.contains("RssAnon") && line.contains("open files")).count();
    assert!(lines >= 15, "{err}");
    assert!(err.contains("kill -9 under load") && err.contains("everything is looked for"), "{err}");
    assert_eq!(std::fs::read_dir(workdir.path("here")).unwrap().count(), 0);
}
