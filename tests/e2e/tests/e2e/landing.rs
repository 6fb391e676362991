//! A small run of `polynya bench lake`: every acknowledged row must be in the lake, read from its own files.

use std::time::Duration;

use bench::{child, lake_ingest};
use polynya_e2e::program;
use testkit::temp_dir;

#[test]
fn a_steady_stream_lands_whole_while_it_is_measured() {
    let _limit = testkit::limit(240);
    let root = temp_dir("landing");
    let mut server = child::Options::new(program::polynya());
    server.root = root.path().to_owned();
    server.env.push(("POLYNYA_LAKE_COMMIT_WAIT".into(), "500 ms".into()));
    let options = lake_ingest::Options {
        rate: 10_000.0,
        measure: Duration::from_secs(4),
        warm: Duration::from_secs(1),
        quiet: Duration::from_secs(1),
        connections: 10,
        pool_events: 2_000,
        ..lake_ingest::Options::new(server)
    };
    let report = lake_ingest::run(&options, &mut |line| println!("{line}")).unwrap();
    if let Err(error) = report.verdict() {
        panic!("{error}\n{}", report.to_markdown());
    }
    let run = &report.runs[0];
    assert_eq!(run.figures["events"], 50_000.0, "{}", report.to_markdown());
    assert!(run.figures["lake_commits"] >= 2.0, "{}", report.to_markdown());
    assert_eq!(report.config["rows"], "50000");
    let right = report.claims.last().expect("claims");
    assert!(right.holds && right.found.contains("files 50000 rows"), "{right:?}");
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "nothing is left behind");
}
