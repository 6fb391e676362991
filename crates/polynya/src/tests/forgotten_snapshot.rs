//! A forgotten snapshot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Engine, Status};
use types::Principal;

use crate::lease::Leases;
use crate::{DataType, Kind, Mode, NewTable, Op, Snapshot, Transaction};

/// A held snapshot shows its age and the bytes of files kept only for it. At its age limit these are released.
#[test]
fn a_forgotten_snapshot_shows_its_age_and_bytes_and_gives_them_back_at_its_bound() {
    let _limit = testkit::limit(150);
    // A busy machine may need longer for the steps before the limit.
    let seen = [5, 15, 45].into_iter().any(|bound| is_seen_and_goes(Duration::from_secs(bound)));
    assert!(seen, "this machine took more than 45 s for some steps");
}

/// Returns false if the steps before the limit took longer than `max`.
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
    // The segment's file exists before a root shows it.
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
    // This much log triggers a manifest, which releases the replaced segments.
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

    // The snapshot ends, and the next sweep releases its files.
    until("what it kept goes", &|status| status.removed_segments == 1);
    assert_eq!((engine.status().held_bytes, segments()), (0, 1));
    assert!(started.elapsed() >= max, "not before its time: {:?}", started.elapsed());
    let ended = forgotten.get("stock", &["item 0".into()]).unwrap_err();
    assert_eq!(ended.kind(), Kind::Timeout);
    assert!(ended.to_string().contains(&format!("held for {} s", max.as_secs())), "{ended}");
    true
}
