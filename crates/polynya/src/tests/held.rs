//! A snapshot that somebody forgot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Engine, Status};
use types::Principal;

use crate::lease::Leases;
use crate::{DataType, Kind, Mode, NewTable, Op, Snapshot, Transaction};

/// While it is held its age is shown, and the bytes of the files that stay for it alone; at its bound these go.
#[test]
fn a_forgotten_snapshot_shows_its_age_and_bytes_and_gives_them_back_at_its_bound() {
    let _limit = testkit::limit(150);
    // A machine that is busy with other work needs longer for the steps that come before the bound.
    let seen = [5, 15, 45].into_iter().any(|bound| is_seen_and_goes(Duration::from_secs(bound)));
    assert!(seen, "this machine took more than 45 s for some steps");
}

/// False where this machine took longer than `max` for the steps that come before it.
fn is_seen_and_goes(max: Duration) -> bool {
    let dir = testkit::temp_dir("held");
    let options = engine::Options { seal_rows: 40, history: Duration::ZERO, ..Default::default() };
    let engine = Engine::open(vfs::Env::real(), dir.path(), options).unwrap();
    let write = |transaction| engine.commit(&Principal::local(), transaction).unwrap();
    let until = |what: &str, holds: &dyn Fn(&Status) -> bool| {
        let began = Instant::now();
        while !holds(&engine.status()) {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}: {:?}", engine.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let segments = || {
        let snapshot = engine.root().table("main.stock").unwrap().clone();
        let table = table::segment::table_dir(dir.path(), snapshot.def().id);
        let names = std::fs::read_dir(table).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|end| end == "arrow")).count()
    };
    let rows = |items: &[String], count: i64| {
        let columns: [(&str, ArrayRef); 2] = [
            ("item", Arc::new(StringArray::from_iter_values(items))),
            ("count", Arc::new(Int64Array::from(vec![count; items.len()]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };

    for table in ["stock", "long"] {
        let columns = NewTable::new(table).column("item", DataType::String).column("count", DataType::Int64);
        let (def, if_absent) = columns.primary_key(["item"]).into_def().unwrap();
        write(Transaction::new(vec![Op::CreateTable { def, if_absent }]));
    }
    let items: Vec<String> = (0..50).map(|i| format!("item {i}")).collect();
    write(Transaction::insert("stock", rows(&items, 1), Mode::Append));
    // Its file is there before a root shows it.
    let is_shown = || engine.root().table("main.stock").unwrap().segments().count() == 1;
    until("a segment", &|_| is_shown() && segments() == 1);
    assert_eq!(engine.status().held_bytes, 0);

    let started = Instant::now();
    let leases = Leases::new(Some(max));
    let forgotten = Snapshot::new(leases.of(engine.root()));
    let kept: u64 = forgotten.table("stock").unwrap().segments().map(|segment| segment.meta().bytes).sum();
    let rest = items[..45].iter().map(|item| vec![item.as_str().into()]).collect();
    write(Transaction::new(vec![Op::DeleteKeys { table: "stock".into(), keys: rest }]));
    until("its segment is replaced", &|status| status.compactions == 1);
    // So much of the log has a manifest written, which lets go of what was replaced.
    let manifests = engine.status().manifests;
    write(Transaction::insert("long", rows(&["x".repeat(2 << 20)], 1), Mode::Append));
    until("a manifest", &|status| status.manifests > manifests);
    let age = Duration::from_secs(1);
    until("its age", &|status| status.oldest_root_age >= age && started.elapsed() >= age);
    let (status, files, unchanged) =
        (engine.status(), segments(), forgotten.get("stock", &["item 0".into()]));
    if started.elapsed() >= max {
        return false;
    }
    assert_eq!((status.removed_segments, files, status.held_bytes), (0, 2, kept), "{status:?}");
    assert!(unchanged.unwrap().is_some(), "it never changes (S1)");

    // Its end, and what was kept goes with the next look.
    until("what it kept goes", &|status| status.removed_segments == 1);
    assert_eq!((engine.status().held_bytes, segments()), (0, 1));
    assert!(started.elapsed() >= max, "not before its time: {:?}", started.elapsed());
    let ended = forgotten.get("stock", &["item 0".into()]).unwrap_err();
    assert_eq!(ended.kind(), Kind::Timeout);
    assert!(ended.to_string().contains(&format!("held for {} s", max.as_secs())), "{ended}");
    true
}
