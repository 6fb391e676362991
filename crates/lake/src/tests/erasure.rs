//! Tests of erasures: deleted rows are in no file afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sim::Rng;
use types::{Kind, Lsn, Value};

use super::replacement::writer::Writer;
use super::support::{Bench, LAYOUTS, small};
use crate::row_ids;
use crate::{ErasureReport, Lake, Options};

fn plain() -> Options {
    Options::new("lake", "lake")
}

/// Returns the row ids in all data files below the table's directory, named or not.
pub fn rows_in_files(bench: &Bench) -> BTreeSet<u64> {
    let mut rows = BTreeSet::new();
    // Other programs put their files into subdirectories.
    let names: BTreeSet<String> = bench.files().into_iter().chain(bench.all_files()).collect();
    let has_rows = |name: &&String| name.ends_with(".parquet") && !name.contains("deletes");
    for name in names.iter().filter(has_rows) {
        let bytes = bench.store().read(&bench.dir().join(name)).unwrap();
        row_ids::scan(bytes, None, &mut |_, row| {
            rows.insert(row.0);
            Ok(())
        })
        .unwrap();
    }
    rows
}

/// Returns true if any file of the lake contains these bytes unencoded.
fn is_somewhere(bench: &Bench, text: &str) -> bool {
    let names = bench.files();
    names.iter().any(|name| {
        let bytes = crate::files::read(&bench.sim.env(), &bench.dir().join(name)).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

fn check(bench: &Bench, lake: &Lake, erased: impl IntoIterator<Item = u64>) {
    let left = rows_in_files(bench);
    let erased: Vec<u64> = erased.into_iter().filter(|row| left.contains(row)).collect();
    assert!(erased.is_empty(), "rows {erased:?} are still in files");
    assert_eq!((lake.metadata.snapshots.len(), lake.deletes.len()), (1, 0));
    assert_eq!(left.len() as u64, lake.rows(), "nothing else lies about");
    if !lake.is_in_catalog() {
        let told = bench.files().into_iter().filter(|name| name.ends_with(".metadata.json"));
        assert_eq!(told.count(), 1, "older metadata files are gone");
    }
}

#[test]
fn an_erasure_leaves_neither_rows_nor_snapshots_nor_bounds() {
    for (partition_by, sort_by) in LAYOUTS {
        let mut bench = Bench::new(plain());
        bench.lay_out(partition_by, sort_by);
        bench.keys(0..100).keys(100..200);
        bench.land();
        bench.insert(&[vec![Value::Int64(7), Value::String("zz secret of somebody".into())]]);
        bench.keys(300..310);
        bench.land();
        // A part of the rows is deleted by a rewrite of their file: old snapshots still have the former file.
        bench.delete((1..=100).filter(|row| row % 2 == 0));
        bench.land();
        assert!(is_somewhere(&bench, "zz sec"), "{partition_by:?} {sort_by:?}");
        bench.delete([201, 5]);
        bench.land();
        assert!(is_somewhere(&bench, "zz sec"), "a delete alone leaves what was there");
        bench.delete([7]);
        let erased = bench.erase().unwrap();
        let lake = bench.lake();
        check(&bench, &lake, (2..=100).step_by(2).chain([5, 7, 201]));
        assert!(!is_somewhere(&bench, "zz sec"), "{partition_by:?} {sort_by:?}");
        assert!(
            erased.rows >= 1 && erased.files_rewritten >= 1 && erased.snapshots_dropped >= 3,
            "{erased:?}"
        );
        assert!(erased.files_removed > 5 && erased.bytes_removed > 1_000, "{erased:?}");
        let files = bench.files();
        bench.land();
        bench.restart();
        assert_eq!(bench.files(), files, "a restart finds nothing to remove");
        // A second request has nothing to do, and makes no commit.
        let version = bench.lake().version;
        assert_eq!(bench.erase().unwrap(), crate::ErasureReport::default());
        assert_eq!(bench.lake().version, version);
        bench.keys(0..5).delete([11]);
        bench.land();
    }
}

/// Files partitioned by a dropped column are rewritten first. The rows to erase in other files come after them, and do not
/// count as done before.
#[test]
fn an_erasure_beside_a_dropped_partition_column_is_complete_when_reported() {
    let mut bench = Bench::new(plain());
    bench.lay_out(&["s"], &[]).keys(0..5);
    bench.land();
    bench.lay_out(&[], &[]).keys(10..60).delete([8]);
    bench.land();
    bench.delete([2, 9]).alter(|def| drop(def.schema.columns.remove(1)));
    bench.erase().unwrap();
    check(&bench, &bench.lake(), [2, 8, 9]);
    bench.land();
}

#[test]
fn an_erasure_removes_old_snapshots_alone() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100);
    bench.land();
    // This commit drops the whole file; the snapshot before still has it.
    bench.delete(1..=100).keys(100..110);
    assert_eq!(bench.land().data.len(), 1);
    assert!(rows_in_files(&bench).contains(&50));
    let erased = bench.erase().unwrap();
    assert_eq!((erased.rows, erased.files_rewritten, erased.snapshots_dropped), (0, 0, 2));
    check(&bench, &bench.lake(), 1..=100);
    bench.land();
}

/// With only one snapshot left nothing was done, and older metadata files, which tell about the deleted rows, stayed.
#[test]
fn an_erasure_removes_older_metadata_files_alone() {
    let mut bench = Bench::new(plain());
    bench.keys(0..10);
    bench.land();
    let lake = bench.lake();
    assert_eq!((lake.metadata.snapshots.len(), lake.metadata.metadata_log.len()), (1, 1));
    let erased = bench.erase().unwrap();
    assert_eq!((erased.rows, erased.files_rewritten, erased.snapshots_dropped), (0, 0, 0));
    assert_eq!(erased.files_removed, 2, "{erased:?}");
    check(&bench, &bench.lake(), []);
    let version = bench.lake().version;
    assert_eq!(bench.erase().unwrap(), crate::ErasureReport::default());
    assert_eq!(bench.lake().version, version);
}

#[test]
fn a_large_erasure_takes_several_commits_and_is_reported_once() {
    let mut bench = Bench::new(Options { rewrite_bytes_max: 4 << 10, ..plain() });
    bench.lay_out(&["bucket(8, k)"], &[]);
    bench.keys(0..3_000);
    let before = bench.land().version;
    bench.delete((1..3_000).step_by(50));
    let erased = bench.erase().unwrap();
    assert!(bench.lake().version > before + 2, "{} commits", bench.lake().version - before);
    assert_eq!(erased.rows, 60);
    check(&bench, &bench.lake(), (1..3_000).step_by(50));
    bench.land();
}

/// Requests an erasure of the rows deleted up to an lsn, and returns its outcome once it is known.
fn request_erasure(bench: &Bench, lsn: u64) -> Arc<OnceLock<ErasureReport>> {
    let told = Arc::new(OnceLock::new());
    let tell = told.clone();
    let tell = Box::new(move |outcome: types::Result<ErasureReport>| tell.set(outcome.unwrap()).unwrap());
    bench.materializer.erase(bench.tip.def().id, Lsn(lsn), tell);
    told
}

/// Returns a table of six files, with a deleted row in each, of which a step rewrites one; and the deleted rows.
fn written_all_the_time() -> (Bench, Vec<u64>) {
    let mut bench = Bench::new(Options { rewrite_bytes_max: 1, ..plain() });
    bench.lay_out(&["truncate(500, k)"], &[]).keys(0..3_000);
    assert_eq!(bench.land().data.len(), 6);
    let deleted: Vec<u64> = (0..6).map(|file| file * 500 + 400).collect();
    bench.delete(deleted.iter().copied());
    (bench, deleted)
}

/// Deletes a row of each file, and adds one to all but the last.
fn keep_writing(bench: &mut Bench, nth: u64) {
    bench.delete(written_over(nth)).keys((0..5).map(|file| file * 500 + nth as i64));
}

fn written_over(nth: u64) -> impl Iterator<Item = u64> {
    (0..6).map(move |file| file * 500 + 1 + nth)
}

fn check_gone(bench: &Bench, rows: impl IntoIterator<Item = u64>) {
    let left = rows_in_files(bench);
    let still: Vec<u64> = rows.into_iter().filter(|row| left.contains(row)).collect();
    assert!(still.is_empty(), "rows {still:?} are still in files");
}

/// The files that were just rewritten came first again, because of new deletes, and the later ones were never reached.
#[test]
fn an_erasure_of_a_table_that_is_written_between_any_two_steps_ends() {
    let _limit = testkit::limit(120);
    let (mut bench, deleted) = written_all_the_time();
    let lsn = bench.lsn;
    let told = request_erasure(&bench, lsn);
    let (mut again, mut later) = (None, None);
    for nth in 0..30 {
        bench.step(true).unwrap();
        if nth == 2 {
            again = Some(request_erasure(&bench, lsn));
            later = Some(request_erasure(&bench, bench.lsn));
        }
        if nth == 9 {
            let erased = told.get().expect("six files, one in a step");
            assert!(erased.files_rewritten == 6 && erased.rows >= 6, "{erased:?}");
            assert_eq!(again.as_ref().unwrap().get(), Some(erased), "it is the same erasure");
            check_gone(&bench, deleted.iter().copied());
            assert!(later.as_ref().unwrap().get().is_none(), "more was deleted when that was asked");
        }
        keep_writing(&mut bench, nth);
    }
    assert!(later.unwrap().get().is_some());
    check_gone(&bench, deleted.into_iter().chain((0..2).flat_map(written_over)));
    bench.land();
    bench.restart();
    bench.land();
}

/// Each restart begins the erasure again, with the files that were written longest ago.
#[test]
fn an_erasure_restarted_after_each_step_ends_although_rows_come() {
    let _limit = testkit::limit(120);
    let (mut bench, deleted) = written_all_the_time();
    for nth in 0..6 {
        request_erasure(&bench, bench.lsn);
        bench.step(true).unwrap();
        keep_writing(&mut bench, nth);
        bench.restart();
    }
    let lake = bench.lake();
    for live in &lake.data {
        row_ids::scan(lake.data_file(live).unwrap(), None, &mut |_, row| {
            assert!(!deleted.contains(&row.0), "{row}: its file had no turn in six steps");
            Ok(())
        })
        .unwrap();
    }
    let told = request_erasure(&bench, bench.lsn);
    for nth in 6..16 {
        bench.step(true).unwrap();
        keep_writing(&mut bench, nth);
    }
    assert!(told.get().is_some());
    check_gone(&bench, deleted.into_iter().chain((0..6).flat_map(written_over)));
}

/// The other program built its files from the lake, which did not contain the deletes yet.
#[test]
fn an_erasure_reaches_files_that_another_program_added_after_the_request() {
    let _limit = testkit::limit(120);
    let mut bench = Bench::new(Options { rewrite_bytes_max: 1, ..plain() });
    bench.lay_out(&["bucket(3, k)"], &[]).keys(0..100);
    bench.land();
    let replace = Writer::new(&bench, 77).rewrite_all().finish();
    bench.delete(5..15);
    let told = request_erasure(&bench, bench.lsn);
    bench.offered(&replace);
    for _ in 0..10 {
        bench.step(true).unwrap();
        bench.keys([7]);
        let newest = bench.tip.next_row().0 - 1;
        bench.delete([newest - 1, newest - 40]);
    }
    assert!(bench.lake().has_adopted(77));
    assert!(told.get().is_some());
    check_gone(&bench, 5..15);
}

#[test]
fn an_erasure_waits_for_deletes_that_the_table_does_not_show_yet() {
    let mut bench = Bench::new(plain());
    bench.keys(0..100);
    bench.land();
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    let tell = Box::new(move |outcome: types::Result<_>| {
        outcome.unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    });
    bench.materializer.erase(bench.tip.def().id, Lsn(bench.lsn + 1), tell);
    for _ in 0..3 {
        bench.step(true).unwrap();
    }
    assert_eq!(told.load(Ordering::Relaxed), 0, "the table does not show that delete yet");
    bench.delete([5]);
    for _ in 0..5 {
        bench.step(true).unwrap();
    }
    assert_eq!(told.load(Ordering::Relaxed), 1);
    check(&bench, &bench.lake(), [5]);
}

#[test]
fn failures_and_dropped_tables_are_reported_to_the_client() {
    use table::materializer::Materializer as _;
    let mut bench = Bench::new(plain());
    bench.keys(0..100);
    bench.land();
    bench.delete([5]);
    bench.sim.disk.fail_write(1);
    assert_eq!(bench.erase().unwrap_err().kind(), Kind::Io);
    bench.erase().unwrap();
    check(&bench, &bench.lake(), [5]);
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    let tell = Box::new(move |outcome: types::Result<crate::ErasureReport>| {
        assert_eq!(outcome.unwrap_err().kind(), Kind::NotFound);
        count.fetch_add(1, Ordering::Relaxed);
    });
    bench.materializer.erase(bench.tip.def().id, Lsn(bench.lsn), tell);
    bench.materializer.dropped(&bench.place()).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

/// After a kill or a power failure at any call, a repetition completes the erasure.
#[test]
fn an_interrupted_erasure_is_completed_by_a_repetition() {
    let _limit = testkit::limit(600);
    let begin = || {
        let mut bench = Bench::new(small());
        bench.lay_out(&["bucket(2, k)"], &["s"]);
        bench.keys(0..30).delete([3, 4]);
        bench.try_land().unwrap();
        bench.sim.clock.advance(Duration::from_secs(3));
        bench.keys(30..40).delete([5, 35]);
        bench.try_land().unwrap();
        bench.delete([6, 7, 8]);
        bench
    };
    let mut whole = begin();
    let first = whole.sim.disk.calls();
    whole.erase().unwrap();
    let calls = whole.sim.disk.calls();
    assert!(calls > first + 40, "{}", calls - first);
    for call in first + 1..=calls {
        for is_kill in [true, false] {
            let mut bench = begin();
            bench.sim.disk.crash_at(call);
            if bench.erase().is_ok() {
                continue;
            }
            bench.sim = if is_kill { bench.sim.kill() } else { bench.sim.crash(&mut Rng::new(call)) };
            bench.sim.env().disk.create_dir_all(Path::new(&bench.place().dir)).unwrap();
            bench.restart();
            bench.land();
            bench.erase().unwrap();
            check(&bench, &bench.lake(), [3, 4, 5, 6, 7, 8, 35]);
            bench.land();
        }
    }
}
