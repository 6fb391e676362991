//! A closed database: its held roots and views, and closing in a place that must not wait.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use types::{Kind, Principal};
use vfs::Env;

use super::support::{batch, by_id, plain};
use crate::{Engine, Mode, Op, Options, Transaction};

fn create() -> Transaction {
    Transaction::new(vec![Op::CreateTable { def: plain("t"), if_absent: false }])
}

fn insert(rows: &[(i64, i64)]) -> Transaction {
    Transaction::insert("t", batch(rows), Mode::Append)
}

#[test]
fn a_closed_database_gives_no_new_view_and_held_roots_outlive_their_files() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let options = || Options { seal_rows: 20, ..Options::default() };
    let engine = Engine::open(Env::real(), dir.path(), options()).unwrap();
    let principal = Principal::local();
    engine.commit(&principal, create()).unwrap();
    let rows: Vec<(i64, i64)> = (0..100).map(|id| (id, id)).collect();
    engine.commit(&principal, insert(&rows)).unwrap();
    let started = Instant::now();
    while engine.root().table("main.t").unwrap().head_rows() > 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "it is sealed");
        std::thread::yield_now();
    }
    let (root, view) = (engine.root(), engine.view(&principal).unwrap());
    engine.close().unwrap();
    assert_eq!(engine.view(&principal).unwrap_err().kind(), Kind::Closed);

    // Another process drops the table, and its files are removed.
    let other = Engine::open(Env::real(), dir.path(), options()).unwrap();
    let drop_table = Op::DropTable { table: "t".into(), if_exists: false };
    other.commit(&principal, Transaction::new(vec![drop_table])).unwrap();
    other.close().unwrap();
    drop(other);
    drop(Engine::open(Env::real(), dir.path(), options()).unwrap());
    assert!(!dir.path().join("tables/1").exists());
    // The rows are read here for the first time.
    assert_eq!(by_id(root.table("main.t").unwrap()).len(), 100);
    assert_eq!(by_id(&view.table("t").unwrap()).len(), 100);
}

/// The commit thread waited for its own end.
#[test]
fn the_last_handle_may_go_inside_a_commits_callback() {
    let _limit = testkit::limit(60);
    for explicitly in [false, true] {
        let dir = testkit::temp_dir("engine");
        let engine = Engine::open(Env::real(), dir.path(), Options::default()).unwrap();
        engine.commit(&Principal::local(), create()).unwrap();
        let (gone, is_gone) = mpsc::channel::<()>();
        let (told, tell) = mpsc::channel();
        let inside = engine.clone();
        engine.submit(&Principal::local(), insert(&[(1, 1)]), move |result| {
            // Waits until the other handle is dropped.
            let _ = is_gone.recv();
            if explicitly {
                inside.close().unwrap();
            }
            drop(inside);
            told.send(result.map(|committed| committed.count)).unwrap();
        });
        drop(engine);
        drop(gone);
        assert_eq!(tell.recv().unwrap().unwrap(), 1);
        let started = Instant::now();
        let engine = loop {
            match Engine::open(Env::real(), dir.path(), Options::default()) {
                Ok(engine) => break engine,
                Err(error) => assert_eq!(error.kind(), Kind::InUse),
            }
            assert!(started.elapsed() < Duration::from_secs(30), "it closes");
            std::thread::yield_now();
        };
        assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, 1)].into());
    }
}
