//! Tests of files that another program rewrote: accepted if the rows are the same, refused if not, and the lake's own from then
//! on.

mod refused;
mod statistics;
pub mod writer;

use std::path::Path;
use std::time::Duration;

use iceberg::metadata::{LSN, ROW};
use sim::Rng;
use types::{DataType, Kind, Value};

use super::support::{Bench, LAYOUTS, materializer, read, rows_of, small};
use crate::data_file::FilePartition;
use crate::reader::Reader;
use crate::{Lake, Options};
use writer::Writer;

fn plain() -> Options {
    Options::new("lake", "lake")
}

/// Returns a lake of several files with deleted rows.
fn begin(options: Options, layout: usize) -> Bench {
    let mut bench = Bench::new(options);
    let (partition_by, sort_by) = LAYOUTS[layout];
    bench.lay_out(partition_by, sort_by);
    bench.keys(0..40).delete([3, 4]);
    bench.land();
    bench.keys(40..60).delete([5, 45]);
    bench.land();
    bench
}

/// Checks K1 for a snapshot that another program made.
fn check_taken(bench: &Bench, before: &Lake, id: i64) {
    let lake = bench.lake();
    assert_eq!((lake.row, lake.lsn), (before.row, before.lsn), "the position is carried on");
    assert_eq!(lake.rows(), before.rows());
    let snapshot = lake.metadata.current().unwrap();
    assert_eq!((snapshot.snapshot_id, snapshot.parent_snapshot_id), (id, before.snapshot_id()));
    let summary = &snapshot.summary;
    assert_eq!((&*summary["operation"], &*summary["engine-name"]), ("replace", "spark"));
    assert_eq!(summary[ROW], lake.metadata.properties[ROW]);
    assert_eq!(summary[LSN], lake.metadata.properties[LSN]);
    assert_eq!(
        summary["total-records"],
        lake.data.iter().map(|l| l.entry.file.rows).sum::<u64>().to_string()
    );
    let reader = Reader::open(&bench.store(), &bench.dir()).unwrap();
    assert_eq!((reader.row, reader.lsn), (before.row, before.lsn));
    super::files::check(&lake, bench.tip.def());
    // The program's data files belong to the table now; none of its other files is left.
    let files = bench.all_files();
    let theirs =
        |ending: &str| files.iter().filter(|f| f.contains(&id.to_string()) && f.ends_with(ending)).count();
    assert_eq!(theirs(".avro"), 0, "{files:?}");
    assert!(!files.iter().any(|name| name.contains("deletes=") || name.ends_with(".tmp")), "{files:?}");
}

#[test]
fn the_same_rows_in_other_files_are_taken_and_the_lake_goes_on_from_them() {
    let _limit = testkit::limit(300);
    for layout in 0..LAYOUTS.len() {
        let mut bench = begin(plain(), layout);
        // The table has later changes that have not landed. They do not concern the snapshot.
        bench.keys(60..70).delete([7]);
        let before = bench.lake();
        let replace = Writer::new(&bench, 77).rewrite_all().finish();
        let version = bench.offer(&replace).unwrap();
        assert_eq!(version, before.version + 1);
        check_taken(&bench, &before, 77);
        assert_eq!(bench.lake().deletes.len(), 0, "deleted rows are gone from the files");
        let foreign = |bench: &Bench| bench.lake().data.iter().filter(|l| l.path.contains("part=")).count();
        assert_eq!(foreign(&bench), bench.lake().data.len());
        // Rows in files that are not in row-id order are found, deleted and rewritten; after a restart everything is read
        // again.
        bench.delete([1, 20, 50]).keys(70..75);
        bench.land();
        bench.restart();
        assert!(bench.position.is_some());
        bench.delete([2, 21, 60]);
        bench.land();
        assert!(foreign(&bench) > 0);
        // An erasure also rewrites files with foreign names.
        bench.erase().unwrap();
        let lake = bench.land();
        assert_eq!((lake.metadata.snapshots.len(), lake.deletes.len()), (1, 0));
        let data = bench.all_files().iter().filter(|name| name.ends_with(".parquet")).count();
        assert_eq!(data, lake.data.len(), "{:?}", bench.all_files());
        // A commit that was accepted once counts as accepted, although its snapshot is gone.
        let version = bench.lake().version;
        assert_eq!(bench.offer(&replace).unwrap(), version);
        assert_eq!(bench.lake().version, version);
    }
}

#[test]
fn files_of_expired_snapshots_are_removed_whoever_wrote_them() {
    let mut bench = begin(small(), 1);
    let replace = Writer::new(&bench, 77).rewrite_all().finish();
    bench.offer(&replace).unwrap();
    let theirs = |bench: &Bench| bench.all_files().iter().filter(|name| name.contains("part=")).count();
    assert!(theirs(&bench) > 0);
    bench.delete(1..=60).keys(0..3);
    bench.land();
    assert!(theirs(&bench) > 0, "the snapshot before has them");
    for n in 0..12 {
        bench.sim.clock.advance(Duration::from_secs(30));
        bench.keys([n]);
        bench.land();
    }
    assert_eq!(theirs(&bench), 0, "{:?}", bench.all_files());
}

#[test]
fn a_commit_over_an_older_snapshot_is_a_conflict() {
    let mut bench = begin(plain(), 0);
    let replace = Writer::new(&bench, 77).rewrite_all().finish();
    bench.keys(60..61);
    let before = bench.land();
    let error = bench.offer(&replace).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert_eq!(bench.lake().version, before.version);
    // Clients try again in this way, on top of the present state.
    let again = Writer::new(&bench, 78).rewrite_all().finish();
    bench.offer(&again).unwrap();
    bench.land();
}

#[test]
fn another_program_may_merge_position_delete_files_and_manifests() {
    for layout in [0, 1] {
        let mut bench = begin(plain(), layout);
        bench.delete([8, 9]);
        bench.land();
        bench.delete([10, 52]);
        let before = bench.land();
        assert!(before.deletes.len() > 2);
        let places: Vec<FilePartition> = (before.deletes.iter())
            .map(|d| FilePartition { spec: d.entry.file.spec, partition: d.entry.file.partition.clone() })
            .collect();
        let mut writer = Writer::new(&bench, 77);
        writer.deletes.clear();
        for (deletes, place) in before.deletes.iter().zip(places) {
            let positions = before.positions(deletes).unwrap();
            writer.delete(place, positions);
        }
        let replace = writer.finish();
        bench.offer(&replace).unwrap();
        check_taken(&bench, &before, 77);
        let lake = bench.lake();
        let partitions: std::collections::HashSet<_> =
            lake.deletes.iter().map(|d| (d.entry.file.spec, d.entry.file.partition.clone())).collect();
        assert_eq!(lake.deletes.len(), partitions.len(), "one for each partition");
        // Manifests alone can be merged too: no data file changes.
        let replace = Writer::new(&bench, 78).finish();
        bench.offer(&replace).unwrap();
        check_taken(&bench, &lake, 78);
        let merged = bench.lake();
        let of_data = |lake: &Lake| {
            lake.manifests.iter().filter(|m| m.file.content == iceberg::manifest::Content::Data).count()
        };
        assert!(of_data(&lake) > 1 && of_data(&merged) == 1, "{} {}", of_data(&lake), of_data(&merged));
        bench.delete([12, 13]).keys(80..90);
        bench.land();
    }
}

/// The rows contain 0.0 and -0.0, nulls and NaNs, and a column that was added later.
#[test]
fn values_are_compared_exactly() {
    let mut def = super::support::def();
    def.add_column("f", &DataType::Float64, true, None).unwrap();
    let mut bench = Bench::of(def, plain());
    let row = |k: i64, f: Value| vec![Value::Int64(k), Value::Null, f];
    let floats = [0.0, -0.0, f64::NAN, f64::MIN].map(Value::Float64);
    let rows: Vec<_> =
        floats.into_iter().chain([Value::Null]).enumerate().map(|(k, f)| row(k as i64, f)).collect();
    bench.insert(&rows);
    bench.land();
    bench.alter(|def| {
        def.add_column("later", &DataType::Int32, true, None).unwrap();
    });
    bench.land();
    let before = bench.lake();
    let replace = Writer::new(&bench, 77).rewrite_all().finish();
    bench.offer(&replace).unwrap();
    check_taken(&bench, &before, 77);
    bench.delete([2]);
    bench.land();
}

/// Replacements follow one another, and rows that come meanwhile land nevertheless.
#[test]
fn repeated_replacements_do_not_keep_rows_from_landing() {
    let mut bench = begin(plain(), 0);
    bench.offer(&Writer::new(&bench, 77).rewrite_all().finish()).unwrap();
    let before = bench.lake();
    // No row waits to land, so that another replacement may come.
    bench.offer(&Writer::new(&bench, 78).rewrite_all().finish()).unwrap();
    assert_eq!(bench.lake().version, before.version + 1);
    bench.keys(100..101);
    let replace = Writer::new(&bench, 79).rewrite_all().finish();
    assert_eq!(bench.offer(&replace).unwrap_err().kind(), Kind::Conflict);
    bench.land();
    bench.offer(&Writer::new(&bench, 80).rewrite_all().finish()).unwrap();
}

#[test]
fn waiting_offers_are_bounded_can_be_withdrawn_and_end_with_the_table() {
    use table::materializer::Materializer as _;
    let bench = begin(plain(), 0);
    let replace = Writer::new(&bench, 77).rewrite_all().finish();
    let lake = bench.lake();
    let offers: Vec<_> = (0..8).map(|_| lake.offer(replace.clone(), Box::new(|_| ())).unwrap()).collect();
    assert_eq!(lake.offer(replace.clone(), Box::new(|_| ())).unwrap_err().kind(), Kind::Busy);
    assert!(bench.materializer.is_step_requested(bench.tip.def()));
    assert!(offers[0].withdraw() && !offers[0].withdraw());
    let told = bench.offered(&replace);
    bench.materializer.dropped(&bench.place()).unwrap();
    let outcome = told.lock().unwrap().take();
    assert!(
        matches!(&outcome, Some(crate::ReplacementOutcome::Refused(e)) if e.kind() == Kind::NotFound),
        "{outcome:?}"
    );
    assert!(!bench.materializer.is_step_requested(bench.tip.def()));
    assert_eq!(bench.all_files(), [""; 0], "files of others go with the table");
}

/// A lake written by an older version has another name for the row-id column.
#[test]
fn a_lake_whose_row_id_has_its_old_name_is_read_and_gets_the_new_one_with_its_next_step() {
    use table::materializer::{Materializer as _, Progress};
    for layout in [0, 6] {
        let mut bench = begin(plain(), layout);
        let lake = bench.lake();
        let text = String::from_utf8(lake.metadata.to_bytes().unwrap()).unwrap();
        assert!(text.contains(r#""name":"_polynya_row_id""#));
        let old = text.replace("_polynya_row_id", "_row_id");
        let env = bench.sim.env();
        crate::files::replace(&env, &lake.metadata_path(), old.as_bytes()).unwrap();
        // Readers use field ids.
        let rows = rows_of(&bench.snapshot()).unwrap();
        assert_eq!(read(&bench.store(), &bench.dir()).unwrap(), rows);
        bench.restart();
        let old = bench.lake();
        assert!(old.metadata.schema().unwrap().to_string().contains(r#""_row_id""#));
        // The new name is a reason for a step, although there is nothing else to do.
        assert!(bench.materializer.is_step_requested(bench.tip.def()));
        assert!(matches!(bench.step(false).unwrap(), Progress::Advanced(_)));
        let new = bench.lake();
        assert_eq!((new.version, new.snapshot_id()), (old.version + 1, old.snapshot_id()));
        let field = &new.metadata.schema().unwrap()["fields"][0];
        assert_eq!((&field["id"], &field["name"]), (&1.into(), &"_polynya_row_id".into()));
        assert_ne!(new.metadata.current_schema_id, old.metadata.current_schema_id);
        assert_eq!(
            new.metadata.partition_specs, old.metadata.partition_specs,
            "specs of files stay as they are"
        );
        let paths = |lake: &Lake| lake.data.iter().map(|live| live.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&new), paths(&old), "no file is written anew");
        assert!(!bench.materializer.is_step_requested(bench.tip.def()));
        assert!(matches!(bench.step(true).unwrap(), Progress::UpToDate));
        bench.delete([10, 30]).keys(90..95);
        bench.land();
    }
}

/// Checks that files beside the lake's after an erasure belong to a program that may still commit them: all their rows are in
/// the table.
fn check_left(bench: &Bench, lake: &Lake) {
    let is_live = |name: &str| lake.data.iter().any(|live| live.path.ends_with(name));
    let files = bench.all_files();
    for name in files.iter().filter(|name| name.ends_with(".parquet") && !is_live(name)) {
        assert!(name.starts_with("data/part="), "{files:?}");
        let bytes = bench.store().read(&bench.dir().join(name)).unwrap();
        crate::row_ids::scan(bytes, None, &mut |_, row| {
            assert!(bench.snapshot().is_live(row).unwrap(), "{row} is erased, and in {name}");
            Ok(())
        })
        .unwrap();
    }
}

/// After a crash nobody can tell whether a file was in the table once or is about to be committed by another program.
#[test]
fn a_start_leaves_files_of_others_and_an_erasure_those_without_a_row_that_is_gone() {
    let mut bench = begin(plain(), 0);
    let replace = Writer::new(&bench, 77).rewrite_all().finish();
    let theirs = |bench: &Bench, ending: &str| {
        bench.all_files().iter().filter(|f| f.contains("part=") && f.ends_with(ending)).count()
    };
    let written = theirs(&bench, ".parquet");
    assert!(written > 0);
    bench.restart();
    assert_eq!(theirs(&bench, ".parquet"), written, "they may be committed yet");
    bench.offer(&replace).unwrap();
    // A second program writes the same rows and never commits them.
    drop(Writer::new(&bench, 78).rewrite_all().finish());
    let lies_about = |bench: &Bench| {
        let lake = bench.lake();
        let files = bench.all_files();
        let is_live = |name: &str| lake.data.iter().any(|live| live.path.ends_with(name));
        files.iter().filter(|name| name.contains("part=") && !is_live(name)).count()
    };
    let beside = lies_about(&bench);
    assert!(beside > 0);
    let erased = bench.erase().unwrap();
    assert_eq!((erased.foreign_files, lies_about(&bench)), (beside as u64, beside));
    bench.delete([1]);
    bench.erase().unwrap();
    check_left(&bench, &bench.lake());
    assert!(lies_about(&bench) < beside, "{:?}", bench.all_files());
}

enum End {
    PowerFailure,
    Kill,
    Failure,
}

/// Another program's files are written; from then on the machine ends at every call, until the commit is answered.
fn ends_at_every_call(layout: usize, end: &End) {
    let ready = |bench: &mut Bench| {
        bench.keys(60..64).delete([7]);
        Writer::new(bench, 77).rewrite_all().finish()
    };
    let mut whole = begin(small(), layout);
    let replace = ready(&mut whole);
    let first = whole.sim.disk.calls();
    whole.offer(&replace).unwrap();
    let calls = whole.sim.disk.calls();
    assert!(calls > first + 20, "{}", calls - first);
    let mut outcomes = [0, 0];
    for call in first + 1..=calls {
        let mut bench = begin(small(), layout);
        let replace = ready(&mut bench);
        match end {
            End::Failure => {
                let nth = call - first;
                let disk = &bench.sim.disk;
                if call % 2 == 0 { disk.fail_write(nth / 2 + 1) } else { disk.fail_sync(nth / 2 + 1) }
            }
            _ => bench.sim.disk.crash_at(call),
        }
        let taken = bench.offer(&replace);
        if matches!(end, End::Failure) {
            // A fault that did not occur yet must not occur later.
            bench.sim.disk.fail_write(u64::MAX);
            bench.sim.disk.fail_sync(u64::MAX);
            bench.land();
            assert_eq!(taken.is_ok(), bench.lake().has_adopted(77), "call {call}: {taken:?}");
        } else {
            bench.sim = match end {
                End::Kill => bench.sim.kill(),
                _ => bench.sim.crash(&mut Rng::new(call)),
            };
            bench.sim.env().disk.create_dir_all(Path::new(&bench.place().dir)).unwrap();
            bench.restart();
        }
        // K1: readers find the same rows, whoever wrote the files.
        bench.land();
        outcomes[usize::from(bench.lake().has_adopted(77))] += 1;
        bench.delete([11, 50]).keys(70..75);
        bench.land();
        bench.erase().unwrap();
        if matches!(end, End::Failure) {
            // Files of a refused commit stay for their client until the next start.
            bench.restart();
        }
        let lake = bench.land();
        check_left(&bench, &lake);
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn a_kill_or_power_failure_at_every_call_leaves_the_rows_that_were_there() {
    let _limit = testkit::limit(900);
    for layout in [0, 2] {
        ends_at_every_call(layout, &End::PowerFailure);
        ends_at_every_call(layout, &End::Kill);
    }
}

#[test]
fn the_reported_outcome_of_a_failed_commit_is_true() {
    let _limit = testkit::limit(600);
    ends_at_every_call(0, &End::Failure);
}

/// Canaries: another program may not have synced its files, so that the lake has to.
#[test]
fn a_lake_that_does_not_sync_the_files_of_others_is_caught() {
    let _limit = testkit::limit(600);
    for kind in ["/data/part=", ".parquet"] {
        let caught = std::panic::catch_unwind(|| {
            for seed in 0..200 {
                let mut bench = begin(small(), 1);
                let replace = Writer::new(&bench, 77).rewrite_all().finish();
                bench.sim.disk.lose_syncs(move |path| {
                    let path = path.to_string_lossy();
                    match kind {
                        ".parquet" => path.contains("/data/part=") && path.ends_with(kind),
                        _ => path.contains(kind) && !path.ends_with(".parquet"),
                    }
                });
                bench.offer(&replace).unwrap();
                bench.sim = bench.sim.crash(&mut Rng::new(seed));
                bench.sim.env().disk.create_dir_all(Path::new(&bench.place().dir)).unwrap();
                bench.materializer = materializer(small());
                bench.restart();
                bench.land();
            }
        });
        assert!(caught.is_err(), "a lake that never syncs {kind} passes");
    }
}
