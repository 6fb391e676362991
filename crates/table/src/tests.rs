//! Tests of the table against a model, and helpers that the crate's tests share.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use sim::SimEnv;
use testkit::Rng;
use types::codec::{Decoder, Encoder};
use types::{ColumnId, DataType, Lsn, RowId, SegmentId, TableDef, TableId, Value, key};

use crate::{RetainedRows, Segment, SegmentMeta, Snapshot, State, Tip, compaction, past, seal, segment};

mod model;

pub(crate) fn dir() -> PathBuf {
    segment::table_dir("data".as_ref(), TableId(1))
}

/// A table with the key `id int64`, and `text string`.
pub(crate) fn def() -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("id", &DataType::Int64, false, None).unwrap();
    def.add_column("text", &DataType::String, true, None).unwrap();
    def.set_primary_key(&["id".into()]).unwrap();
    def
}

pub(crate) fn rows(def: &TableDef, rows: &[(i64, &str)]) -> RecordBatch {
    let ids: Vec<Value> = rows.iter().map(|(id, _)| Value::Int64(*id)).collect();
    let texts: Vec<Value> = rows.iter().map(|(_, text)| (*text).into()).collect();
    let columns = vec![
        Value::to_array(&ids, &DataType::Int64).unwrap(),
        Value::to_array(&texts, &DataType::String).unwrap(),
    ];
    RecordBatch::try_new(def.schema.to_arrow_user(), columns).unwrap()
}

pub(crate) fn key_of(id: i64) -> Vec<u8> {
    key::encode_values(&[DataType::Int64], &[Value::Int64(id)]).unwrap()
}

pub(crate) fn open(sim: &SimEnv, def: &TableDef, meta: SegmentMeta) -> Arc<Segment> {
    Segment::open(&sim.env(), &dir(), def, meta)
}

fn append(tip: &mut Tip, lsn: u64, values: &[(i64, &str)]) {
    let (def, first) = (tip.def().clone(), tip.next_row());
    tip.append(first, lsn as i64, &[(Lsn(lsn), values.len() as u64)], &rows(&def, values)).unwrap();
}

#[test]
fn deletes_that_come_while_a_seal_runs_land_in_the_segment() {
    let sim = SimEnv::new(1);
    let mut tip = Tip::new(def());
    append(&mut tip, 1, &[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    tip.delete([RowId(1)], Lsn(2));
    let base = tip.snapshot(Lsn(2));
    let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), RowId(4), &mut |_| Ok(())).unwrap();
    // A group that deletes in the range being sealed and in the head after it, and moves a key from one to the other.
    append(&mut tip, 3, &[(2, "B")]);
    assert_eq!(tip.delete([RowId(2), RowId(4), RowId(1)], Lsn(3)), 2);
    tip.apply_seal(open(&sim, &def(), meta), None).unwrap();
    let snapshot = tip.snapshot(Lsn(4));
    assert_eq!((snapshot.rows(), tip.sealed_next(), tip.head_rows()), (2, RowId(4), 2));
    assert_eq!(snapshot.find(&key_of(2)).unwrap(), Some(RowId(5)));
    assert_eq!(snapshot.find(&key_of(3)).unwrap(), Some(RowId(3)));
    assert_eq!(snapshot.find(&key_of(4)).unwrap(), None);
    assert_eq!(base.rows(), 3, "S1");
    assert_eq!(tip.find_again(&base, &key_of(2), Some(RowId(2))).unwrap(), Some(RowId(5)));
    assert_eq!(tip.find_again(&base, &key_of(3), Some(RowId(3))).unwrap(), Some(RowId(3)));
    assert_eq!(tip.find_again(&base, &key_of(9), None).unwrap(), None);
}

/// The writes of an open transaction must not copy the rows of its snapshot.
#[test]
fn a_tip_over_a_snapshot_goes_its_own_way_and_copies_nothing_of_it() {
    let sim = SimEnv::new(1);
    let mut tip = Tip::new(def());
    append(&mut tip, 1, &[(1, "a"), (2, "b")]);
    let base = tip.snapshot(Lsn(1));
    let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), RowId(3), &mut |_| Ok(())).unwrap();
    tip.apply_seal(open(&sim, &def(), meta), None).unwrap();
    append(&mut tip, 2, &[(3, "c")]);
    let base = tip.snapshot(Lsn(2));
    let mut own = Tip::over(&base);
    assert_eq!(own.delete([RowId(1), RowId(3)], Lsn(3)), 2);
    for id in 10..40 {
        append(&mut own, 3, &[(id, "own")]);
    }
    append(&mut own, 3, &[(3, "C")]);
    // Another writer continues from the same snapshot, with the same row ids.
    append(&mut tip, 3, &[(10, "other")]);
    let (inside, outside) = (own.snapshot(Lsn(3)), tip.snapshot(Lsn(3)));
    assert_eq!((base.rows(), inside.rows(), outside.rows()), (3, 32, 4));
    assert_eq!(
        [1, 2, 3, 10].map(|id| base.find(&key_of(id)).unwrap().map(|row| row.0)),
        [Some(1), Some(2), Some(3), None]
    );
    assert_eq!(
        [1, 2, 3, 10].map(|id| inside.find(&key_of(id)).unwrap().map(|row| row.0)),
        [None, Some(2), Some(34), Some(4)]
    );
    assert_eq!([1, 11].map(|id| outside.find(&key_of(id)).unwrap().map(|row| row.0)), [Some(1), None]);
    assert_eq!(inside.pieces_after(RowId(3)).iter().map(|piece| piece.rows()).sum::<usize>(), 31);
    // Many small appends are folded, but the snapshot's batch, small as it is, is not copied into them.
    let batches = own.parts.head.batches();
    assert!(batches.len() <= 7, "{} batches", batches.len());
    assert!(Arc::ptr_eq(&batches[0], &base.parts.head.batches()[0]));
    // The change feed lists the deletes from the snapshot's lsn on, as a follower of an index needs it.
    let changes = inside.changes(Lsn(2), 100, inside.all_columns()).unwrap();
    assert_eq!(changes.deleted, [(RowId(1), Lsn(3)), (RowId(3), Lsn(3))]);
}

#[test]
fn a_segment_whose_rows_are_all_deleted_stands_until_compaction_drops_it() {
    let sim = SimEnv::new(1);
    let mut tip = Tip::new(def());
    append(&mut tip, 1, &[(1, "a"), (2, "b")]);
    tip.delete([RowId(1), RowId(2)], Lsn(2));
    let base = tip.snapshot(Lsn(2));
    let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), RowId(3), &mut |_| Ok(())).unwrap();
    assert_eq!(meta.rows, 0);
    tip.apply_seal(open(&sim, &def(), meta), None).unwrap();
    append(&mut tip, 3, &[(1, "c")]);
    let snapshot = tip.snapshot(Lsn(4));
    assert_eq!((snapshot.rows(), snapshot.pieces().len()), (1, 1));
    assert_eq!(snapshot.row_at_time(0).unwrap(), RowId(3));
    let inputs = compaction::plan(&snapshot, &compaction::Policy::default()).unwrap();
    let output = compaction::merge(
        &snapshot,
        &inputs,
        &sim.env(),
        &dir(),
        SegmentId(2),
        segment::BlockCompression::Plain,
        &mut |_| Ok(()),
    )
    .unwrap();
    assert_eq!(output, None);
    tip.apply_compact(&inputs, None, None).unwrap();
    let state = tip.snapshot(Lsn(5)).state();
    assert_eq!((state.segments.len(), state.sealed_next), (0, RowId(3)));
}

/// A writer holds the hashes of all keys of a segment in memory until the segment is finished.
#[test]
fn no_merge_of_a_keyed_table_makes_a_segment_of_more_rows_than_its_memory_allows() {
    for keyed in [true, false] {
        let sim = SimEnv::new(1);
        let mut def = def();
        if !keyed {
            def.primary_key.clear();
        }
        let mut tip = Tip::new(def.clone());
        for n in 0..6 {
            let values: Vec<(i64, &str)> = (0..10).map(|i| (n * 10 + i, "x")).collect();
            append(&mut tip, 1 + n as u64 * 2, &values);
            let (base, id) = (tip.snapshot(Lsn(2 + n as u64 * 2)), SegmentId(1 + n as u64));
            let meta = seal(&base, &sim.env(), &dir(), id, tip.next_row(), &mut |_| Ok(())).unwrap();
            tip.apply_seal(open(&sim, &def, meta), None).unwrap();
        }
        let snapshot = tip.snapshot(Lsn(20));
        let plan = |keyed_rows_max| {
            let policy = compaction::Policy { keyed_rows_max, ..Default::default() };
            compaction::plan(&snapshot, &policy).map(|inputs| inputs.len())
        };
        assert_eq!(plan(60), Some(6));
        assert_eq!(plan(45), if keyed { Some(4) } else { Some(6) });
        assert_eq!(plan(39), if keyed { None } else { Some(6) }, "too few for a merge");
    }
}

/// A regression: each row of a busy table was written twice more after its seal.
#[test]
fn large_segments_of_a_table_without_a_key_are_merged_many_at_a_time() {
    for keyed in [true, false] {
        let sim = SimEnv::new(1);
        let mut def = def();
        if !keyed {
            def.primary_key.clear();
        }
        let mut tip = Tip::new(def.clone());
        let text = "x".repeat(600_000);
        let mut merged = Vec::new();
        for n in 0..17 {
            append(&mut tip, 1 + n * 2, &[(n as i64 * 2, &text), (n as i64 * 2 + 1, &text)]);
            let (base, id) = (tip.snapshot(Lsn(2 + n * 2)), SegmentId(1 + n));
            let meta = seal(&base, &sim.env(), &dir(), id, tip.next_row(), &mut |_| Ok(())).unwrap();
            tip.apply_seal(open(&sim, &def, meta), None).unwrap();
            let snapshot = tip.snapshot(Lsn(3 + n * 2));
            merged.extend(
                compaction::plan(&snapshot, &compaction::Policy::default()).map(|p| (n + 1, p.len())),
            );
        }
        let expected =
            if keyed { (4..=17).map(|n| (n, n as usize)).collect() } else { vec![(16, 16), (17, 17)] };
        assert_eq!(merged, expected);
    }
}

/// A regression: rows were rewritten some seconds before they were evicted, and then merged into one segment of most of the data
/// that was to stay.
#[test]
fn what_leaves_for_the_lake_is_merged_to_a_part_of_what_stays() {
    let plan_of = |hot: Option<types::HotLimit>, is_keyed: bool, text_bytes: usize, segments: u64| {
        let sim = SimEnv::new(1);
        let mut def = def();
        def.options.hot = hot;
        if !is_keyed {
            def.primary_key.clear();
        }
        let mut tip = Tip::new(def.clone());
        let text = "x".repeat(text_bytes);
        for n in 0..segments {
            append(&mut tip, 1 + n * 2, &[(n as i64, &text)]);
            let (base, id) = (tip.snapshot(Lsn(2 + n * 2)), SegmentId(1 + n));
            let meta = seal(&base, &sim.env(), &dir(), id, tip.next_row(), &mut |_| Ok(())).unwrap();
            tip.apply_seal(open(&sim, &def, meta), None).unwrap();
        }
        compaction::plan(&tip.snapshot(Lsn(100)), &compaction::Policy::default()).map(|inputs| inputs.len())
    };
    let plan = |hot, is_keyed, text_bytes| plan_of(hot, is_keyed, text_bytes, 20);
    let large = 1_300_000;
    assert_eq!(plan(None, false, large), Some(20));
    assert_eq!(plan(Some(types::HotLimit::Bytes(16 << 20)), false, large), None);
    assert_eq!(plan(Some(types::HotLimit::Bytes(1 << 30)), false, large), Some(20));
    assert_eq!(plan(Some(types::HotLimit::Micros(1)), false, large), None, "all that is here is 26 MB");
    assert_eq!(plan(Some(types::HotLimit::Bytes(1)), true, large), Some(20), "rows with a key stay");
    assert_eq!(plan_of(Some(types::HotLimit::Bytes(16 << 20)), false, large, 29), None);
    assert_eq!(
        plan_of(Some(types::HotLimit::Bytes(16 << 20)), false, large, 30),
        Some(30),
        "there are too many"
    );
    // However little data stays, many small segments are merged.
    assert_eq!(plan(Some(types::HotLimit::Bytes(1)), false, 200_000), Some(5));
}

#[test]
fn a_cursor_behind_the_delete_history_has_expired() {
    let mut tip = Tip::new(def());
    tip.parts.history.set_max(10);
    let values: Vec<(i64, &str)> = (0..20).map(|i| (i, "x")).collect();
    append(&mut tip, 1, &values);
    for row in 1..=15 {
        tip.delete([RowId(row)], Lsn(1 + row));
    }
    let snapshot = tip.snapshot(Lsn(16));
    assert_eq!(snapshot.history_floor(), Lsn(6));
    let error = snapshot.changes(Lsn(5), 100, snapshot.all_columns()).unwrap_err();
    assert!(error.to_string().contains("cursor expired"), "{error}");
    let page = snapshot.changes(Lsn(6), 4, snapshot.all_columns()).unwrap();
    let expected: Vec<_> = (6..10).map(|row| (RowId(row), Lsn(row + 1))).collect();
    assert_eq!((page.deleted, page.next), (expected, Lsn(10)));
}

/// A regression: an altered table kept the map of its former definition in memory, and refused every write.
#[test]
fn a_unique_index_that_comes_by_altering_has_its_rows_in_memory_from_then_on() {
    let mut tip = Tip::new(def());
    append(&mut tip, 1, &[(1, "a")]);
    let mut changed = def();
    changed.indexes.push(types::IndexDef {
        name: "texts".into(),
        kind: types::INDEX_COLUMN.into(),
        columns: vec![changed.schema.columns[1].id],
        options: Vec::new(),
        unique: Some(types::UniqueState::Enforced),
    });
    let key = crate::unique::Key::of(&changed, &changed.indexes[0]).unwrap();
    let entered = tip.snapshot(Lsn(1)).enter(&changed, key.clone()).unwrap().unwrap();
    assert_eq!(entered.table(), TableId(1));
    tip.alter(changed.clone(), Lsn(2)).unwrap();
    assert!(tip.adopt(entered).unwrap().is_none());
    append(&mut tip, 3, &[(2, "b")]);
    // Another change of the definition keeps the map.
    changed.add_column("more", &DataType::Int64, true, None).unwrap();
    tip.alter(changed, Lsn(4)).unwrap();
    let asked = rows(&def(), &[(7, "a"), (8, "b"), (9, "c")]);
    let keys = key.encode(&asked).unwrap();
    let owners = tip.snapshot(Lsn(4)).owners(&key, None, &asked, &keys).unwrap().unwrap();
    assert_eq!(owners.rows, [Some(RowId(1)), Some(RowId(2)), None]);
    assert!(owners.complete);
}

/// A regression: a trial entered rows in the map that it shared with the table. The table then found each of these rows equal to
/// itself, and the database closed.
#[test]
fn rows_that_come_between_are_adopted_by_a_trial_and_then_by_the_table() {
    let mut tip = Tip::new(def());
    append(&mut tip, 1, &[(1, "a")]);
    let mut changed = def();
    changed.indexes.push(types::IndexDef {
        name: "texts".into(),
        kind: types::INDEX_COLUMN.into(),
        columns: vec![changed.schema.columns[1].id],
        options: Vec::new(),
        unique: Some(types::UniqueState::Enforced),
    });
    let key = crate::unique::Key::of(&changed, &changed.indexes[0]).unwrap();
    let entered = tip.snapshot(Lsn(1)).enter(&changed, key.clone()).unwrap().unwrap();
    append(&mut tip, 2, &[(2, "b")]);
    let mut trial = tip.clone();
    trial.alter(changed.clone(), Lsn(3)).unwrap();
    assert!(trial.adopt(entered.clone()).unwrap().is_none());
    tip.alter(changed, Lsn(3)).unwrap();
    assert!(tip.adopt(entered.clone()).unwrap().is_none());
    let asked = rows(&def(), &[(7, "a"), (8, "b"), (9, "c")]);
    let keys = key.encode(&asked).unwrap();
    let owners = tip.snapshot(Lsn(3)).owners(&key, None, &asked, &keys).unwrap().unwrap();
    assert_eq!(owners.rows, [Some(RowId(1)), Some(RowId(2)), None]);
    // Both report two rows that are equal.
    append(&mut trial, 4, &[(3, "a")]);
    let mut again = trial.clone();
    assert_eq!(trial.adopt(entered.clone()).unwrap(), Some((RowId(1), RowId(3))));
    assert_eq!(again.adopt(entered).unwrap(), Some((RowId(1), RowId(3))));
}

/// A regression: each index that was added or removed began a new batch of the head and took one of the few former definitions
/// that a table keeps. Reads grew slower and the past shorter each time.
#[test]
fn indexes_that_come_and_go_leave_the_head_folded_and_the_past_as_long() {
    let mut tip = Tip::new(def());
    for lsn in 1..=400u64 {
        append(&mut tip, 2 * lsn, &[(lsn as i64, "x")]);
        let mut changed = def();
        if lsn % 2 == 1 {
            changed.indexes.push(types::IndexDef {
                name: "texts".into(),
                kind: types::INDEX_COLUMN.into(),
                columns: vec![changed.schema.columns[1].id],
                options: Vec::new(),
                unique: None,
            });
        }
        tip.alter(changed, Lsn(2 * lsn + 1)).unwrap();
    }
    let snapshot = tip.snapshot(Lsn(801));
    assert!(snapshot.pieces().len() <= 10, "{} batches", snapshot.pieces().len());
    assert_eq!(snapshot.at(Lsn(2)).unwrap().rows(), 1);
}

/// A regression: the rows of a commit that exceeded the feed's limit counted against the limit for ever.
#[test]
fn after_a_commit_that_ended_too_many_rows_the_feed_goes_on() {
    let mut tip = Tip::new(def());
    tip.parts.history.set_max(10);
    let values: Vec<(i64, &str)> = (0..50).map(|i| (i, "x")).collect();
    append(&mut tip, 1, &values);
    tip.delete((1..=35).map(RowId), Lsn(2));
    assert_eq!(tip.snapshot(Lsn(2)).history_floor(), Lsn(2));
    for row in 40..=49 {
        tip.delete([RowId(row)], Lsn(row));
    }
    let snapshot = tip.snapshot(Lsn(49));
    assert_eq!(snapshot.history_floor(), Lsn(2));
    let page = snapshot.changes(Lsn(2), 100, snapshot.all_columns()).unwrap();
    assert_eq!(page.deleted, (40..=49).map(|row| (RowId(row), Lsn(row))).collect::<Vec<_>>());
}

#[test]
fn keys_cannot_change_and_types_only_widen() {
    let tip = Tip::new(def());
    let refused = |change: &dyn Fn(&mut TableDef)| {
        let mut changed = def();
        change(&mut changed);
        tip.check_def(&changed).unwrap_err().to_string()
    };
    assert!(refused(&|def| def.primary_key.clear()).contains("primary key"));
    assert!(refused(&|def| def.schema.columns[0].data_type = DataType::Int32).contains("key column `id`"));
    assert!(
        refused(&|def| def.schema.columns[1].data_type = DataType::Int64).contains("cannot become int64")
    );
}

#[test]
fn a_state_survives_storage_and_bad_bytes_are_damage() {
    let sim = SimEnv::new(1);
    let mut tip = Tip::new(def());
    append(&mut tip, 1, &[(1, "a"), (2, "b"), (3, "c")]);
    let base = tip.snapshot(Lsn(1));
    let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), RowId(4), &mut |_| Ok(())).unwrap();
    tip.apply_seal(open(&sim, &def(), meta), None).unwrap();
    tip.delete([RowId(2)], Lsn(3));
    let state = tip.snapshot(Lsn(3)).state();
    let mut e = Encoder::new();
    state.encode(&mut e);
    let mut d = Decoder::new(&e.bytes);
    assert_eq!(State::decode(&mut d).unwrap(), state);
    d.finish().unwrap();
    for cut in 0..e.bytes.len() {
        assert!(State::decode(&mut Decoder::new(&e.bytes[..cut])).is_err());
    }
    let mut rng = Rng::new(1);
    for _ in 0..3_000 {
        let mut bad = e.bytes.clone();
        let at = rng.index(bad.len());
        bad[at] ^= 1 << rng.below(8);
        let _ = State::decode(&mut Decoder::new(&bad));
    }
}

#[test]
fn a_keyless_table_counts_rows_without_reading_a_column() {
    let sim = SimEnv::new(1);
    let mut def = def();
    def.primary_key.clear();
    let mut tip = Tip::new(def.clone());
    let values: Vec<(i64, &str)> = (0..9_000).map(|i| (i % 7, "x")).collect();
    append(&mut tip, 1, &values);
    tip.delete((1..=10).map(RowId), Lsn(2));
    let base = tip.snapshot(Lsn(2));
    let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), RowId(5_000), &mut |_| Ok(())).unwrap();
    tip.apply_seal(open(&sim, &def, meta), None).unwrap();
    tip.delete((100..=110).map(RowId), Lsn(4));
    let snapshot = tip.snapshot(Lsn(4));
    let none = snapshot.projection(&[]).unwrap();
    let count: usize = snapshot.pieces().iter().map(|p| p.read(&none).unwrap().num_rows()).sum();
    assert_eq!((count as u64, snapshot.rows()), (9_000 - 21, 9_000 - 21));
}

#[test]
fn neighbouring_rows_that_one_commit_ended_are_remembered_however_many_they_are() {
    let _limit = testkit::limit(60);
    let sim = SimEnv::new(9);
    let mut tip = Tip::created(def(), Lsn(1));
    let keys: Vec<(i64, &str)> = (0..300_000).map(|key| (key, "x")).collect();
    append(&mut tip, 2, &keys);
    tip.delete((1..=300_000).map(RowId), Lsn(3));
    let snapshot = tip.snapshot(Lsn(3));
    assert_eq!(snapshot.history_floor(), Lsn(3), "followers of the change feed start over, as ever");
    assert_eq!(snapshot.past_floor(), Lsn(1));
    let (env, last) = (sim.env(), RowId(300_000));
    let away =
        past::write_past_segment(&snapshot, &env, &dir(), SegmentId(2), RowId(1), last, Lsn(1), &mut |_| {
            Ok(())
        });
    let away = open(&sim, &def(), away.unwrap().unwrap());
    let meta = seal(&snapshot, &env, &dir(), SegmentId(1), last.next(), &mut |_| Ok(())).unwrap();
    let kept = RetainedRows { after: Lsn(1), floor: None, last_end: Lsn(3), segment: Some(away) };
    tip.apply_seal(open(&sim, &def(), meta), Some(kept)).unwrap();
    let mut e = Encoder::new();
    let state = tip.snapshot(Lsn(4)).state();
    state.encode(&mut e);
    assert!(e.bytes.len() < 500, "{} bytes", e.bytes.len());
    assert_eq!(State::decode(&mut Decoder::new(&e.bytes)).unwrap(), state);
    let then = tip.snapshot(Lsn(4)).at(Lsn(2)).unwrap();
    assert_eq!(then.rows(), 300_000);
    assert_eq!(then.find(&key_of(299_999)).unwrap(), Some(RowId(300_000)));
    assert_eq!(tip.forget(&[SegmentId(2)], Lsn(3)).len(), 1);
    assert_eq!(tip.snapshot(Lsn(5)).at(Lsn(2)).unwrap_err().kind(), types::Kind::NotFound);
    assert_eq!(tip.snapshot(Lsn(5)).at(Lsn(3)).unwrap().rows(), 0);
}

/// A regression: a table forgot deletes because there were too many, and a seal dropped their rows. The log of that seal stated
/// only how long rows are kept; a replay that remembered more deletes would have read a past with missing rows.
#[test]
fn what_a_seal_says_of_the_past_holds_for_a_replay_that_remembers_more() {
    let _limit = testkit::limit(60);
    let sim = SimEnv::new(10);
    let mut tip = Tip::created(def(), Lsn(1));
    tip.parts.history.set_max(10);
    let keys: Vec<(i64, &str)> = (0..100).map(|key| (key, "x")).collect();
    append(&mut tip, 2, &keys);
    for at in 0..30 {
        tip.delete([RowId(1 + 3 * at)], Lsn(3 + at));
    }
    let snapshot = tip.snapshot(Lsn(32));
    let (floor, env, last) = (snapshot.past_floor(), sim.env(), RowId(100));
    assert_eq!(floor, Lsn(22));
    let away =
        past::write_past_segment(&snapshot, &env, &dir(), SegmentId(2), RowId(1), last, floor, &mut |_| {
            Ok(())
        });
    let away = open(&sim, &def(), away.unwrap().unwrap());
    assert_eq!(away.meta().rows, 10);
    let meta = seal(&snapshot, &env, &dir(), SegmentId(1), last.next(), &mut |_| Ok(())).unwrap();
    let kept = RetainedRows { after: floor, floor: None, last_end: Lsn(32), segment: Some(away) };
    tip.apply_seal(open(&sim, &def(), meta), Some(kept)).unwrap();
    assert_eq!(tip.kept_from(), floor, "whatever the history says by then");
    assert_eq!(tip.snapshot(Lsn(33)).at(floor).unwrap().rows(), 80);
}
