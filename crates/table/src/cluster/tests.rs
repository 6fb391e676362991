use sim::SimEnv;
use testkit::Rng;
use types::{ColumnId, DataType, Lsn, RowId, SegmentId, TableDef, TableId, Value};

use crate::segment::BlockCompression;
use crate::tests::{dir, open};
use crate::{ScanPiece, Tip, compaction, seal};

const SECOND: i64 = 1_000_000;

/// A table with the time column `at timestamp`, and `n int64`.
fn timed() -> (TableDef, ColumnId) {
    let mut def = TableDef::new(TableId(1), "main.t");
    let at = def.add_column("at", &DataType::Timestamp, true, None).unwrap();
    def.add_column("n", &DataType::Int64, true, None).unwrap();
    def.time = Some(at);
    (def, at)
}

/// Appends rows with these times and seals them.
fn append(sim: &SimEnv, tip: &mut Tip, lsn: u64, times: &[Option<i64>]) {
    let values: Vec<Value> = times.iter().map(|time| time.map_or(Value::Null, Value::Timestamp)).collect();
    let numbers: Vec<Value> = (0..times.len() as i64).map(Value::Int64).collect();
    let columns = vec![
        Value::to_array(&values, &DataType::Timestamp).unwrap(),
        Value::to_array(&numbers, &DataType::Int64).unwrap(),
    ];
    let schema = tip.def().schema.to_arrow_user();
    let batch = arrow::array::RecordBatch::try_new(schema, columns).unwrap();
    let first = tip.next_row();
    tip.append(first, lsn as i64, &[(Lsn(lsn), times.len() as u64)], &batch).unwrap();
    let (snapshot, id) = (tip.snapshot(Lsn(lsn)), SegmentId(lsn));
    let meta = seal(&snapshot, &sim.env(), &dir(), id, tip.next_row(), &mut |_| Ok(())).unwrap();
    tip.apply_seal(open(sim, tip.def(), meta), None).unwrap();
}

fn may_hold(piece: &ScanPiece, column: ColumnId, from: i64, to: i64) -> bool {
    match piece.zone(column).map(|zone| (zone.min, zone.max)) {
        Some((Some(Value::Timestamp(min)), Some(Value::Timestamp(max)))) => min <= to && max >= from,
        // Rows without a time come last, in blocks of their own.
        Some((None, None)) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_range_of_time_lies_in_few_blocks_however_the_rows_arrived() {
    let _limit = testkit::limit(120);
    let sim = SimEnv::new(1);
    let (def, at) = timed();
    let mut tip = Tip::new(def);
    let mut rng = Rng::new(7);
    for lsn in 1..=3 {
        let times: Vec<Option<i64>> =
            (0..40_000).map(|_| (!rng.one_in(50)).then(|| rng.below(100_000) as i64 * SECOND)).collect();
        append(&sim, &mut tip, lsn, &times);
    }
    let touched = |tip: &Tip| {
        let pieces = tip.snapshot(Lsn(9)).stored_pieces();
        let hit = pieces.iter().filter(|piece| may_hold(piece, at, 50_000 * SECOND, 51_000 * SECOND)).count();
        (hit, pieces.len())
    };
    let (hit, all) = touched(&tip);
    assert!(hit <= 6 && all == 15, "{hit} of {all} blocks of three segments");

    // Rows are deleted by row id, before the merge and while it runs.
    let gone: Vec<RowId> = (1..=120_000).filter(|_| rng.one_in(20)).map(RowId).collect();
    tip.delete(gone.iter().copied().take(3_000), Lsn(4));
    let inputs = [1, 2, 3].map(SegmentId);
    let base = tip.snapshot(Lsn(4));
    let merged = compaction::merge(
        &base,
        &inputs,
        &sim.env(),
        &dir(),
        SegmentId(9),
        BlockCompression::Plain,
        &mut |_| Ok(()),
    );
    tip.delete(gone.iter().copied().skip(3_000), Lsn(5));
    let merged = open(&sim, tip.def(), merged.unwrap().unwrap());
    assert!(merged.verify().is_empty(), "{:?}", merged.verify());
    assert!(!merged.is_in_row_order());
    tip.apply_compact(&inputs, Some(merged), None).unwrap();
    let (hit, all) = touched(&tip);
    assert!(hit <= 2 && all >= 14, "{hit} of {all} blocks of one segment");

    let snapshot = tip.snapshot(Lsn(5));
    let live: Vec<RowId> = (1..=120_000).map(RowId).filter(|row| gone.binary_search(row).is_err()).collect();
    let counted: usize = snapshot.pieces().iter().map(ScanPiece::rows).sum();
    assert_eq!((counted, snapshot.rows()), (live.len(), live.len() as u64));
    // Reads the rows in the order of their ids, from several starts.
    for from in [1, 40_001, 77_777] {
        let batch = snapshot.scan_from(RowId(from), usize::MAX, snapshot.all_columns()).unwrap();
        let wanted: Vec<i64> =
            live.iter().map(|row| row.0 as i64).filter(|row| *row >= from as i64).collect();
        let ids = Value::to_array(
            &wanted.iter().map(|row| Value::Int64(*row)).collect::<Vec<_>>(),
            &DataType::Int64,
        );
        assert_eq!(batch.column(0), &ids.unwrap());
    }
    // The change feed lists each commit's rows in the order in which they were written.
    let page = snapshot.changes(Lsn(1), 1, snapshot.all_columns()).unwrap();
    assert_eq!(page.next, Lsn(2));
    let rows: usize = page.inserted.iter().map(|inserted| inserted.batch.num_rows()).sum();
    assert_eq!(rows, live.iter().filter(|row| (40_001..=80_000).contains(&row.0)).count());
    let first = live.iter().find(|row| row.0 > 40_000).unwrap();
    assert_eq!(
        Value::from_array(page.inserted[0].batch.column(0), &DataType::Int64, 0),
        Value::Int64(first.0 as i64)
    );
}

/// The usual case must cost nothing: rows that arrive nearly in the order of their times stay in row-id order.
#[test]
fn rows_that_arrive_nearly_in_the_order_of_their_times_stay_as_they_came() {
    let sim = SimEnv::new(1);
    let (def, _) = timed();
    let mut rng = Rng::new(7);
    let mut shapes: Vec<(bool, Vec<Option<i64>>)> = vec![
        (true, (0..5_000).map(|i| Some(i * SECOND)).collect()),
        (true, vec![Some(SECOND); 5_000]),
        (true, vec![None; 5_000]),
        (true, Vec::from([Some(i64::MIN), Some(i64::MAX), None])),
        // Descending times are an order too: their blocks are as narrow as possible.
        (true, (0..5_000).rev().map(|i| Some(i * SECOND)).collect()),
    ];
    // Rows that are seconds late in an hour and a half; then rows that are hours late.
    shapes.push((true, (0..5_000).map(|i| Some((i - rng.below(5) as i64) * SECOND)).collect()));
    shapes.push((false, (0..5_000).map(|i| Some((i - rng.below(20_000) as i64) * SECOND)).collect()));
    for (at, (stays, times)) in shapes.iter().enumerate() {
        let mut tip = Tip::new(def.clone());
        append(&sim, &mut tip, at as u64 + 1, times);
        let segment = tip.snapshot(Lsn(1)).segments().next().unwrap().clone();
        assert_eq!(segment.is_in_row_order(), *stays, "shape {at}");
        assert!(segment.verify().is_empty());
    }
}

#[test]
fn damage_to_the_order_of_rows_is_found_and_never_read_past() {
    let _limit = testkit::limit(120);
    let sim = SimEnv::new(1);
    let (def, _) = timed();
    let mut rng = Rng::new(7);
    let mut tip = Tip::new(def.clone());
    let times: Vec<Option<i64>> = (0..400).map(|_| Some(rng.below(1_000) as i64)).collect();
    append(&sim, &mut tip, 1, &times);
    let whole = tip.snapshot(Lsn(1));
    let (state, meta) = (whole.state(), whole.segments().next().unwrap().meta().clone());
    let path = dir().join("1.meta");
    let len = sim.disk.contents(&path).unwrap().len() as u64;
    // The order is the last section of the sidecar.
    for byte in len - 1_600..len {
        let copy = sim.kill();
        copy.disk.flip_bit(&path, byte);
        let damaged = open(&copy, &def, meta.clone());
        assert!(damaged.verify_checksums(&mut |_| Ok(())).is_err(), "byte {byte}");
        assert!(!damaged.verify().is_empty());
        let snapshot =
            Tip::restore(state.clone(), vec![damaged.clone()], Vec::new()).unwrap().snapshot(Lsn(1));
        // The order is rebuilt from the rows.
        for row in (1..=400).step_by(7).map(RowId) {
            let [found, whole] =
                [&snapshot, &whole].map(|of| of.row(row).unwrap().unwrap().values().unwrap());
            assert_eq!(found, whole, "row {row}, byte {byte}");
        }
        // The rows are damaged as well.
        copy.disk.flip_bit(&dir().join("1.arrow"), 1_000);
        let damaged = open(&copy, &def, meta.clone());
        let snapshot =
            Tip::restore(state.clone(), vec![damaged.clone()], Vec::new()).unwrap().snapshot(Lsn(1));
        let error = snapshot.row(RowId(3)).unwrap_err();
        assert!(error.to_string().contains("1.meta") && damaged.is_damaged(), "{error}");
    }
}
