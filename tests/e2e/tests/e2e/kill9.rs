//! The server is killed with -9 under load. `polynya bench kill9 --rounds 20` repeats this more often.

use bench::{child, kill9};
use polynya_e2e::program;
use testkit::temp_dir;

#[test]
fn every_acknowledged_row_is_there_once_after_each_of_three_kills() {
    let _limit = testkit::limit(240);
    let root = temp_dir("kill9");
    let mut server = child::Options::new(program::polynya());
    server.root = root.path().to_owned();
    let mut options = kill9::Options::new(server);
    options.rounds = 3;
    let report = kill9::run(&options, &mut |line| println!("{line}")).unwrap();
    if let Err(error) = report.verdict() {
        panic!("{error}\n{}", report.to_markdown());
    }
    assert!(report.runs[0].figures["acknowledged_rows"] > 0.0, "{}", report.to_markdown());
}
