use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use site::{Options as SiteOptions, ParsedNotes, TABLE};
use vfs::{Mutex, Rank};

use super::super::tests::root;
use super::super::{Limits, Options, Shared, State, rows};
use super::*;

/// The kernel reports in one batch that a folder went and that its watch ended. The watch was forgotten first, so the
/// event could not be matched to its folder, and the folder was missed for up to a minute.
#[test]
fn a_folder_that_is_removed_together_with_its_watch_is_scanned() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("feeds");
    let vault = dir.path().join("vault");
    fs::create_dir_all(&vault).unwrap();
    let engine =
        Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
    rows::ensure(&engine, TABLE).unwrap();
    let options = Options {
        table: TABLE.to_owned(),
        roots: Vec::new(),
        rule: SiteOptions::default().rule().unwrap(),
        parsed: Arc::new(ParsedNotes::default()),
        limits: Limits::default(),
        watch: true,
    };
    let (watch, _waker) = FolderWatcher::new().unwrap();
    let shared = Arc::new(Shared {
        state: Mutex::new(Rank::new(72, "folder feed"), State::default()),
        stopping: false.into(),
    });
    let mut feed = FeedThread::new(engine, options, vec![root(&vault, "")], Vec::new(), watch, shared);
    feed.scan(0);
    let watch = *feed.trees[0].watches.get("").expect("a watch");
    for told in [true, false] {
        feed.watched.insert(watch, (0, String::new()));
        feed.trees[0].requested = None;
        let gone = BTreeSet::from([watch]);
        let folders = if told { gone.clone() } else { BTreeSet::new() };
        feed.schedule_scans(Events { folders, gone, ..Events::default() }, Instant::now());
        assert!(matches!(feed.trees[0].requested, Some((_, ScanExtent::Everything))), "told {told}");
        assert!(feed.watched.is_empty() && feed.trees[0].watches.is_empty());
    }
}
