//! A snapshot that somebody forgot.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Engine, Step};
use types::Principal;

use super::stock;
use crate::lease::Leases;
use crate::{Kind, Mode, Op, Snapshot, Transaction};

/// While it is held its age is shown, and the bytes of the files that stay for it alone; at its bound these go.
#[test]
fn a_forgotten_snapshot_shows_its_age_and_bytes_and_gives_them_back_at_its_bound() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(1);
    let options = engine::Options { seal_rows: 40, history: Duration::ZERO, ..Default::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let settle =
        || while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {};
    let write = |transaction| {
        engine.submit(&Principal::local(), transaction, |result| assert!(result.is_ok(), "{result:?}"));
        settle();
    };
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "arrow");
    let segments = || machine.disk.files().iter().filter(|path| is_segment(path)).count();

    let (def, if_absent) = stock().into_def().unwrap();
    write(Transaction::new(vec![Op::CreateTable { def, if_absent }]));
    let items: Vec<String> = (0..50).map(|i| format!("item {i}")).collect();
    let columns: [(&str, ArrayRef); 2] = [
        ("item", Arc::new(StringArray::from_iter_values(&items))),
        ("count", Arc::new(Int64Array::from_iter_values(0..50))),
    ];
    write(Transaction::insert("stock", RecordBatch::try_from_iter(columns).unwrap(), Mode::Append));
    assert_eq!((engine.status().seals, segments(), engine.status().held_bytes), (1, 1, 0));

    let (started, max) = (Instant::now(), Duration::from_secs(5));
    let leases = Leases::new(Some(max));
    let forgotten = Snapshot::new(leases.of(engine.root()));
    let kept: u64 = forgotten.table("stock").unwrap().segments().map(|segment| segment.meta().bytes).sum();
    let rest = items[..45].iter().map(|item| vec![item.as_str().into()]).collect();
    write(Transaction::new(vec![Op::DeleteKeys { table: "stock".into(), keys: rest }]));
    // Long enough for a manifest that would let go of the segment that was replaced.
    machine.clock.advance(Duration::from_secs(60));
    settle();
    let status = engine.status();
    assert_eq!((status.compactions, status.removed_segments, segments()), (1, 0, 2), "{status:?}");
    assert_eq!(status.held_bytes, kept);
    // Who drops replaced snapshots is looking at them now and then, and for that moment they are not told.
    while engine.status().oldest_root_age < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(forgotten.get("stock", &["item 0".into()]).unwrap().is_some(), "it never changes (S1)");
    assert!(started.elapsed() < max, "this machine took {:?} for some steps", started.elapsed());

    // Its end, and what was kept goes with the next look.
    while engine.status().held_bytes > 0 {
        std::thread::sleep(Duration::from_millis(5));
        machine.clock.advance(Duration::from_secs(1));
        settle();
    }
    assert!(started.elapsed() >= max, "not before its time: {:?}", started.elapsed());
    assert_eq!((engine.status().removed_segments, segments()), (1, 1));
    let ended = forgotten.get("stock", &["item 0".into()]).unwrap_err();
    assert_eq!(ended.kind(), Kind::Timeout);
    assert!(ended.to_string().contains("held for 5 s"), "{ended}");
}
