use arrow::ipc::reader::FileReader;
use sim::SimEnv;
use types::{Kind, RowId, SegmentId, Value};

use crate::tests::{def, dir, key_of, open, rows};
use crate::{Segment, Snapshot, Tip, seal};

fn sealed(sim: &SimEnv, count: i64) -> (Tip, std::sync::Arc<Segment>) {
    let def = def();
    let mut tip = Tip::new(def.clone());
    let values: Vec<(i64, &str)> = (0..count).map(|i| (i, "some text")).collect();
    tip.append(RowId(1), 7, &[(types::Lsn(1), count as u64)], &rows(&def, &values)).unwrap();
    tip.delete([RowId(2)], types::Lsn(2));
    let snapshot = tip.snapshot(types::Lsn(2));
    let meta = seal(&snapshot, &sim.env(), &dir(), SegmentId(1), tip.next_row(), &mut |_| Ok(())).unwrap();
    let segment = open(sim, &def, meta);
    tip.apply_seal(segment.clone(), None).unwrap();
    (tip, segment)
}

fn read_all(snapshot: &Snapshot) -> types::Result<usize> {
    snapshot.pieces().iter().map(|p| p.read(snapshot.all_columns()).map(|b| b.num_rows())).sum()
}

#[test]
fn the_arrow_file_opens_with_any_arrow_reader() {
    let sim = SimEnv::new(1);
    let (tip, segment) = sealed(&sim, 20_000);
    let bytes = sim.disk.contents(&dir().join("1.arrow")).unwrap();
    let reader = FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    assert_eq!(reader.schema(), *tip.snapshot(types::Lsn(2)).arrow_schema());
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(|b| b.num_rows()).collect::<Vec<_>>(), [8192, 8192, 3615]);
    assert_eq!(segment.meta().rows, 19_999);
    assert!(segment.verify().is_empty(), "{:?}", segment.verify());
}

/// A regression: each array of a batch was charged for the whole file, so that three rows of a large table exceeded the memory
/// limit of SQL.
#[test]
fn a_batch_of_a_segment_is_charged_for_its_own_block() {
    let sim = SimEnv::new(1);
    let (tip, _) = sealed(&sim, 200_000);
    let file = sim.disk.contents(&dir().join("1.arrow")).unwrap().len();
    let snapshot = tip.snapshot(types::Lsn(2));
    for piece in snapshot.pieces() {
        let batch = piece.read(snapshot.all_columns()).unwrap();
        let block = file / snapshot.pieces().len();
        for column in batch.columns() {
            let charged = column.get_array_memory_size();
            assert!(charged <= 4 * block, "{charged} bytes for one of {} rows in {file}", batch.num_rows());
        }
    }
}

#[test]
fn a_flipped_bit_is_found_and_names_the_file() {
    let _limit = testkit::limit(120);
    let sim = SimEnv::new(1);
    let (tip, segment) = sealed(&sim, 300);
    let state = tip.snapshot(types::Lsn(2)).state();
    let mut rng = testkit::Rng::new(3);
    for name in ["1.arrow", "1.meta"] {
        let path = dir().join(name);
        let len = sim.disk.contents(&path).unwrap().len() as u64;
        for _ in 0..testkit::scaled(300).max(100) {
            let bit = rng.below(len * 8);
            let copy = sim.kill();
            copy.disk.flip_bit(&path, bit / 8);
            let damaged = open(&copy, &state.def, segment.meta().clone());
            let tip = Tip::restore(state.clone(), vec![damaged.clone()], Vec::new()).unwrap();
            // Gaps between the sidecar's sections hold no information, so damage there is harmless.
            let wrong = damaged.verify();
            let Some(first) = wrong.first() else {
                assert_eq!(read_all(&tip.snapshot(types::Lsn(2))).unwrap(), 299);
                assert!(name == "1.meta", "byte {} of {name} is checked by nothing", bit / 8);
                continue;
            };
            assert_eq!(first.kind(), Kind::Damaged, "{first}");
            assert!(first.to_string().contains(name), "{first}");
            if name == "1.arrow" {
                assert_eq!(read_all(&tip.snapshot(types::Lsn(2))).unwrap_err().kind(), Kind::Damaged);
            }
        }
    }
}

/// A damaged byte in the key run once refused every write to its table.
#[test]
fn where_rows_are_is_found_out_again_from_the_rows() {
    let _limit = testkit::limit(120);
    let sim = SimEnv::new(1);
    let (tip, segment) = sealed(&sim, 20_000);
    let whole = tip.snapshot(types::Lsn(2));
    let path = dir().join("1.meta");
    let len = sim.disk.contents(&path).unwrap().len() as u64;
    let mut met = 0;
    for byte in (0..len).step_by(len as usize / 60) {
        let copy = sim.kill();
        copy.disk.flip_bit(&path, byte);
        let damaged = open(&copy, &whole.def().clone(), segment.meta().clone());
        let wrong = damaged.verify();
        if !wrong.iter().any(|error| error.to_string().contains("key run")) {
            continue;
        }
        met += 1;
        let tip = Tip::restore(whole.state(), vec![damaged.clone()], Vec::new()).unwrap();
        let snapshot = tip.snapshot(types::Lsn(2));
        for key in (0..21_000).step_by(997).chain([1]) {
            assert_eq!(snapshot.find(&key_of(key)).unwrap(), whole.find(&key_of(key)).unwrap(), "{key}");
        }
        assert!(!damaged.is_damaged() && damaged.is_rebuilt());
        assert_eq!(
            crate::compaction::plan(&snapshot, &Default::default()),
            Some(vec![damaged.id()]),
            "written anew"
        );
        assert!(!damaged.verify().is_empty(), "and told as what it is");
        if met == 1 {
            copy.disk.flip_bit(&dir().join("1.arrow"), 100_000);
            let damaged = open(&copy, &whole.def().clone(), segment.meta().clone());
            let tip = Tip::restore(whole.state(), vec![damaged], Vec::new()).unwrap();
            let error = tip.snapshot(types::Lsn(2)).find(&key_of(5)).unwrap_err();
            assert!(error.to_string().contains("1.meta"), "{error}");
        }
    }
    assert!(met > 10, "{met}");
}

#[test]
fn a_damaged_segment_errs_and_the_rest_serves() {
    let sim = SimEnv::new(1);
    let (tip, segment) = sealed(&sim, 300);
    let state = tip.snapshot(types::Lsn(2)).state();
    sim.env().disk.remove(&dir().join("1.arrow")).unwrap();
    let damaged = open(&sim, &state.def, segment.meta().clone());
    let mut tip = Tip::restore(state, vec![damaged], Vec::new()).unwrap();
    let def = tip.def().clone();
    tip.append(RowId(301), 8, &[(types::Lsn(3), 1)], &rows(&def, &[(1_000, "new")])).unwrap();
    assert_eq!(
        tip.delete([RowId(9)], types::Lsn(3)),
        1,
        "a delete is not lost because its segment is damaged"
    );
    let snapshot = tip.snapshot(types::Lsn(3));
    assert_eq!(snapshot.rows(), 299);
    assert_eq!(snapshot.find(&key_of(1_000)).unwrap(), Some(RowId(301)));
    let error = snapshot.find(&key_of(5)).unwrap_err();
    assert_eq!(error.kind(), Kind::Damaged);
    assert!(error.to_string().contains("1.arrow"), "{error}");
    let pieces = snapshot.pieces();
    assert_eq!(pieces.len(), 2);
    assert!(pieces[0].read(snapshot.all_columns()).is_err());
    assert_eq!(pieces[1].read(snapshot.all_columns()).unwrap().num_rows(), 1);
}

#[test]
fn zone_maps_bound_what_is_stored() {
    let sim = SimEnv::new(1);
    let (tip, _) = sealed(&sim, 20_000);
    let snapshot = tip.snapshot(types::Lsn(2));
    let id = snapshot.def().schema.columns[0].id;
    let zones: Vec<_> = snapshot.pieces().iter().map(|p| p.zone(id).unwrap()).collect();
    let bounds = |i: usize| (zones[i].min.clone(), zones[i].max.clone());
    assert_eq!(bounds(0), (Some(Value::Int64(0)), Some(Value::Int64(8192))));
    assert_eq!(bounds(2), (Some(Value::Int64(16385)), Some(Value::Int64(19_999))));
}

#[test]
fn a_failed_write_leaves_no_segment_behind() {
    let sim = SimEnv::new(1);
    let def = def();
    let mut tip = Tip::new(def.clone());
    tip.append(RowId(1), 7, &[(types::Lsn(1), 1)], &rows(&def, &[(1, "x")])).unwrap();
    let snapshot = tip.snapshot(types::Lsn(1));
    let stop = || types::Error::new(Kind::Closed, "closing");
    let error =
        seal(&snapshot, &sim.env(), &dir(), SegmentId(1), RowId(2), &mut |_| Err(stop())).unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    assert!(sim.disk.files().is_empty(), "{:?}", sim.disk.files());
}
