use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow::ipc::reader::FileReader;
use sim::SimEnv;
use testkit::Rng;
use types::{ColumnId, DataType, Kind, Lsn, ROW_ID, RowId, SegmentId, TIME, TableDef, TableId, Value, key};

use super::{BlockCompression, NeededColumns, PackedBlocks, UNPACKED};
use crate::tests::{dir, open};
use crate::{Segment, SegmentMeta, Snapshot, Tip, compaction, seal};

/// A day in microseconds. The rows' own times are on seven days.
const DAY: i64 = 86_400_000_000;

fn def(ordered: bool) -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("id", &DataType::Int64, false, None).unwrap();
    def.add_column("kind", &DataType::String, true, None).unwrap();
    def.add_column("price", &DataType::Float64, true, None).unwrap();
    let at = def.add_column("at", &DataType::Timestamp, true, None).unwrap();
    let list = DataType::parse("list<string>", &mut ColumnId(100)).unwrap();
    def.add_column("tags", &list, true, None).unwrap();
    def.add_column("amount", &DataType::Decimal { precision: 20, scale: 2 }, true, None).unwrap();
    def.set_primary_key(&["id".into()]).unwrap();
    def.time = ordered.then_some(at);
    def
}

fn rows(def: &TableDef, ids: std::ops::Range<i64>, rng: &mut Rng) -> RecordBatch {
    let mut columns: Vec<Vec<Value>> = vec![Vec::new(); def.schema.columns.len()];
    for id in ids {
        let kind = ["bolt", "nut", "screw", "washer", "wrench"][rng.index(5)];
        let time = DAY * id.rem_euclid(7) + id * 1_000 + rng.below(1_000) as i64;
        let mut or_null = |value: Value| if rng.one_in(10) { Value::Null } else { value };
        let row = [
            Value::Int64(id * 3),
            or_null(kind.into()),
            or_null(Value::Float64((id % 100) as f64 / 4.0)),
            or_null(Value::Timestamp(time)),
            or_null(Value::List(vec![kind.into(), "x".into()])),
            or_null(Value::Decimal(i128::from(id) * 25)),
        ];
        row.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
    }
    let arrays =
        columns.iter().zip(&def.schema.columns).map(|(c, d)| Value::to_array(c, &d.data_type).unwrap());
    RecordBatch::try_new(def.schema.to_arrow_user(), arrays.collect()).unwrap()
}

struct TestTable {
    sim: SimEnv,
    tip: Tip,
    lsn: u64,
}

impl TestTable {
    /// Makes a table with one segment: `count` rows in commits of 1,000 each second, without every seventh row, which was deleted
    /// before the seal.
    fn new(seed: u64, ordered: bool, count: i64) -> TestTable {
        let (sim, def) = (SimEnv::new(seed), def(ordered));
        let (mut rng, mut tip) = (Rng::new(seed), Tip::new(def.clone()));
        let mut lsn = 0;
        for from in (0..count).step_by(1_000) {
            let (to, first) = ((from + 1_000).min(count), tip.next_row());
            lsn += 1;
            let batch = rows(&def, from..to, &mut rng);
            tip.append(first, lsn as i64 * 1_000_000, &[(Lsn(lsn), (to - from) as u64)], &batch).unwrap();
        }
        lsn += 1;
        tip.delete((1..=count as u64).step_by(7).map(RowId), Lsn(lsn));
        let base = tip.snapshot(Lsn(lsn));
        let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), tip.next_row(), &mut |_| Ok(())).unwrap();
        tip.apply_seal(open(&sim, &def, meta), None).unwrap();
        TestTable { sim, tip, lsn }
    }

    fn packed(seed: u64, count: i64) -> TestTable {
        let mut world = TestTable::new(seed, false, count);
        world.compress(2);
        world
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.tip.snapshot(Lsn(self.lsn))
    }

    fn segment(&self) -> Arc<Segment> {
        self.snapshot().segments().next().unwrap().clone()
    }

    fn merge(&self, id: u64, form: BlockCompression) -> SegmentMeta {
        let base = self.snapshot();
        let inputs: Vec<SegmentId> = base.segments().map(|s| s.id()).collect();
        let env = self.sim.env();
        compaction::merge(&base, &inputs, &env, &dir(), SegmentId(id), form, &mut |_| Ok(()))
            .unwrap()
            .unwrap()
    }

    fn compress(&mut self, id: u64) {
        let (meta, inputs) = (self.merge(id, BlockCompression::Zstd), self.snapshot());
        let inputs: Vec<SegmentId> = inputs.segments().map(|s| s.id()).collect();
        self.tip.apply_compact(&inputs, Some(open(&self.sim, self.tip.def(), meta)), None).unwrap();
    }
}

/// Reads the rows in every way that a snapshot offers. Returns all results.
fn answers(snapshot: &Snapshot, seed: u64) -> Vec<RecordBatch> {
    let mut rng = Rng::new(seed);
    let id = |name: &str| snapshot.def().schema.column_named(name).unwrap().id;
    let some = snapshot.projection(&[id("price"), ROW_ID, id("kind")]).unwrap();
    let mut found = Vec::new();
    for piece in snapshot.pieces() {
        found.push(piece.read(snapshot.all_columns()).unwrap());
        found.push(piece.read(&some).unwrap());
        found.push(piece.read(&snapshot.projection(&[]).unwrap()).unwrap());
    }
    // Reads stored pieces one after the other: the comparison must not depend on how rows are divided into pieces.
    for (projection, column, window) in [
        (&some, id("at"), DAY * 2..=DAY * 3),
        (snapshot.all_columns(), id("at"), DAY * 2..=DAY * 3),
        (&some, TIME, 3_000_000..=4_000_000),
    ] {
        for piece in snapshot.stored_pieces() {
            found.push(piece.read_within(projection, Some((column, window.clone()))).unwrap().batch);
        }
    }
    let last = snapshot.next_row().0;
    // Scattered rows, some of them twice, and some that are deleted.
    let picked: Vec<RowId> = (0..500).map(|_| RowId(1 + rng.below(last))).collect();
    found.push(snapshot.fetch(&picked, snapshot.all_columns()).unwrap());
    found.push(snapshot.fetch(&picked, &some).unwrap());
    found.push(snapshot.fetch(&picked[..1], &some).unwrap());
    for _ in 0..50 {
        let from = RowId(rng.below(last));
        found.push(snapshot.scan_from(from, 30, &some).unwrap());
        let key =
            key::encode_values(&[DataType::Int64], &[Value::Int64(rng.below(last * 3) as i64)]).unwrap();
        let row = snapshot.get_row(&key).unwrap();
        assert_eq!(row.as_ref().map(|row| row.row_id()), snapshot.find(&key).unwrap());
        found.extend(row.map(|row| row.to_batch(snapshot.all_columns()).unwrap()));
        if let Some(columns) = snapshot.columns_of(&key, &some).unwrap() {
            found.push(RecordBatch::try_new(some.schema().clone(), columns).unwrap());
        }
        let row = snapshot.row(from).unwrap();
        assert_eq!(row.is_some(), snapshot.is_live(from).unwrap());
        found.extend(row.map(|row| row.to_batch(&some).unwrap()));
        let at = snapshot.row_at_time(rng.below(last) as i64 * 1_000).unwrap();
        found.push(snapshot.scan_from(at, 1, &some).unwrap());
    }
    found
}

/// Joins all batches with the same columns, in their order.
fn joined(found: &[RecordBatch]) -> Vec<RecordBatch> {
    let mut schemas = Vec::new();
    for batch in found {
        if !schemas.contains(&batch.schema()) {
            schemas.push(batch.schema());
        }
    }
    let of = |schema| {
        let batches = found.iter().filter(|batch| batch.schema() == schema);
        arrow::compute::concat_batches(&schema, batches).unwrap()
    };
    schemas.into_iter().map(of).collect()
}

#[test]
fn a_compressed_segment_answers_as_it_did_before_and_is_smaller() {
    let _limit = testkit::limit(300);
    for (seed, ordered) in [(1, false), (2, true)] {
        let mut world = TestTable::new(seed, ordered, 30_000);
        let (before, plain) = (world.snapshot(), world.segment());
        let expected = answers(&before, seed);
        assert!(plain.is_worth_compressing().unwrap());
        world.compress(2);
        let (after, packed) = (world.snapshot(), world.segment());
        assert!(packed.is_compressed() && !plain.is_compressed());
        assert_eq!(packed.is_in_row_order(), !ordered);
        assert!(packed.verify().is_empty(), "{:?}", packed.verify());
        packed.verify_checksums(&mut |_| Ok(())).unwrap();
        assert!(answers(&after, seed) == expected, "ordered: {ordered}");
        assert!(answers(&before, seed) == expected, "S1");
        let (plain, packed) = (plain.meta().bytes, packed.meta().bytes);
        assert!(packed * 2 < plain, "{packed} of {plain} bytes");
        let raw = world.segment().raw_bytes();
        assert!(raw.abs_diff(plain) < plain / 20, "{raw} and {plain} bytes before compression");
        // The reported memory of rows follows from the bytes before compression, not from the files.
        assert_eq!((after.raw_bytes(), after.bytes()), (raw, packed));
        assert_eq!(after.row_bytes(), raw / world.segment().meta().rows);
        let bytes = |snapshot: &Snapshot| snapshot.pieces().iter().map(|piece| piece.bytes()).sum::<u64>();
        assert!(bytes(&after).abs_diff(bytes(&before)) < plain / 20);

        // Deletes rows, then merges the compressed segment with later rows, into either form.
        world.lsn += 1;
        world.tip.delete((2..=20_000).step_by(3).map(RowId), Lsn(world.lsn));
        let expected = answers(&world.snapshot(), seed + 9);
        for (id, form) in [(3, BlockCompression::Plain), (4, BlockCompression::Zstd)] {
            let meta = world.merge(id, form);
            let merged = open(&world.sim, world.tip.def(), meta);
            assert!(merged.verify().is_empty(), "{:?}", merged.verify());
            assert_eq!(merged.is_compressed(), form == BlockCompression::Zstd);
            let inputs: Vec<SegmentId> = world.snapshot().segments().map(|s| s.id()).collect();
            world.tip.apply_compact(&inputs, Some(merged), None).unwrap();
            let found = answers(&world.snapshot(), seed + 9);
            // The merged blocks are divided differently, so the results are joined before they are compared.
            assert!(joined(&found) == joined(&expected), "{form:?}");
        }
    }
}

#[test]
fn a_compressed_file_opens_with_any_arrow_reader() {
    let mut world = TestTable::new(3, false, 20_000);
    world.compress(2);
    let bytes = world.sim.disk.contents(&dir().join("2.arrow")).unwrap();
    let reader = FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    assert_eq!(reader.schema(), *world.snapshot().arrow_schema());
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let read = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    let found: Vec<i64> = batches.iter().flat_map(read).collect();
    let live = (1..=20_000).filter(|row| row % 7 != 1);
    assert_eq!(found, live.collect::<Vec<i64>>());
}

#[test]
fn a_reader_unpacks_the_columns_that_it_asks_for_and_no_others() {
    let mut world = TestTable::new(4, false, 10_000);
    let def = world.tip.def().clone();
    world.compress(2);
    let (snapshot, segment) = (world.snapshot(), world.segment());
    let ids = |need: NeededColumns<'_>| segment.block(0, need).unwrap().layout.ids.clone();
    let id = |name: &str| def.schema.column_named(name).unwrap().id;
    let some = snapshot.projection(&[id("price"), id("kind")]).unwrap();
    assert_eq!(ids(NeededColumns::Columns(&some)), [ROW_ID, id("kind"), id("price")]);
    assert_eq!(ids(NeededColumns::Key), [ROW_ID, id("id")]);
    assert_eq!(ids(NeededColumns::TIMES), [ROW_ID, TIME]);
    assert_eq!(ids(NeededColumns::Column(ColumnId(99))), [ROW_ID]);
    assert_eq!(ids(NeededColumns::All).len(), 2 + def.schema.columns.len());

    // Adding columns keeps those that are there: they are not unpacked again.
    let few = segment.block(0, NeededColumns::Key).unwrap();
    let keys = few.batch.column(1).clone();
    let more = few.with(NeededColumns::Columns(&some)).unwrap();
    assert_eq!(more.layout.ids, [ROW_ID, id("id"), id("kind"), id("price")]);
    assert!(more.batch.column(1).to_data().ptr_eq(&keys.to_data()));

    // A column that was not requested is an error, not a column of nulls.
    let batch = segment.block(0, NeededColumns::Key).unwrap();
    let error = some.apply(&batch.layout, &batch.batch).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(error.to_string().contains("not requested"), "{error}");
}

/// A regression: each lookup of many keys unpacked its block again. Updates took hundreds of times as long as those of
/// uncompressed rows.
#[test]
fn many_keys_unpack_each_block_once_however_they_come() {
    let mut world = TestTable::packed(6, 40_000);
    // The head has newer rows.
    let def = world.tip.def().clone();
    let mut rng = Rng::new(6);
    for from in [40_000, 41_000] {
        let first = world.tip.next_row();
        world.lsn += 1;
        let batch = rows(&def, from..from + 1_000, &mut rng);
        world.tip.append(first, world.lsn as i64 * 1_000_000, &[(Lsn(world.lsn), 1_000)], &batch).unwrap();
    }
    let snapshot = world.snapshot();
    let blocks = world.segment().block_count().unwrap();
    assert!(blocks >= 4);
    // Existing keys, deleted ones, and keys that never existed.
    let mut ids: Vec<i64> = (-10..42_010).map(|id| id * 3).chain((0..1_000).map(|id| id * 3 + 1)).collect();
    for at in (1..ids.len()).rev() {
        ids.swap(at, rng.index(at + 1));
    }
    let keys: Vec<Box<[u8]>> = ids
        .iter()
        .map(|id| key::encode_values([&DataType::Int64], &[Value::Int64(*id)]).unwrap().into())
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    let count = |work: &dyn Fn() -> Vec<Option<RowId>>| {
        let before = UNPACKED.get();
        (work(), UNPACKED.get() - before)
    };
    // The first touch checks the block, which unpacks it too.
    let few = keys.iter().step_by(100).copied().collect::<Vec<_>>();
    let one_by_one = || few.iter().map(|key| snapshot.find(key).unwrap()).collect::<Vec<_>>();
    let (expected, times) = count(&one_by_one);
    assert!(times > few.len() / 2, "{times}");
    let (found, times) = count(&|| snapshot.find_many(&few).unwrap());
    assert_eq!(found, expected);
    assert!(times <= blocks + 2, "{times} for {blocks} blocks");
    let (found, times) = count(&|| snapshot.find_many(&keys).unwrap());
    assert!(times <= blocks + 2, "{times} for {blocks} blocks");
    assert_eq!(found.iter().flatten().count() as u64, snapshot.rows());
    assert_eq!(snapshot.find_many(&[]).unwrap(), []);
}

#[test]
fn a_flipped_bit_in_a_compressed_segment_is_found_is_latched_and_names_the_file() {
    let _limit = testkit::limit(300);
    let mut world = TestTable::new(5, false, 2_000);
    world.compress(2);
    let (state, meta) = (world.snapshot().state(), world.segment().meta().clone());
    let mut rng = Rng::new(5);
    for name in ["2.arrow", "2.meta"] {
        let path = dir().join(name);
        let len = world.sim.disk.contents(&path).unwrap().len() as u64;
        for _ in 0..testkit::scaled(200).max(60) {
            let byte = rng.below(len);
            let copy = world.sim.kill();
            copy.disk.flip_bit(&path, byte);
            let damaged = open(&copy, &state.def, meta.clone());
            let tip = Tip::restore(state.clone(), vec![damaged.clone()], Vec::new()).unwrap();
            let snapshot = tip.snapshot(Lsn(world.lsn));
            let read = || -> types::Result<()> {
                snapshot.pieces().iter().try_for_each(|p| p.read(snapshot.all_columns()).map(drop))
            };
            if name == "2.arrow" {
                let error = read().unwrap_err();
                assert_eq!(error.kind(), Kind::Damaged, "{error}");
                assert!(error.to_string().contains(name), "{error}");
                assert!(damaged.is_damaged(), "byte {byte}");
                copy.disk.flip_bit(&path, byte);
                assert_eq!(read().unwrap_err().kind(), Kind::Damaged, "what was found stays found");
            } else if let Some(first) = damaged.verify().first() {
                assert_eq!(first.kind(), Kind::Damaged, "{first}");
                assert!(first.to_string().contains(name), "{first}");
            } else {
                // Gaps between the sidecar's sections hold no information, so damage there is harmless.
                read().unwrap();
            }
        }
    }
}

/// A faulty writer might leave such a block: its checksum is right, and its content does not unpack.
#[test]
fn a_block_that_does_not_unpack_under_a_checksum_that_holds_is_damage_too() {
    let lengths = PackedBlocks::encode(&[10, 20]);
    let packed = TestTable::packed(6, 10_000);
    let segment = packed.segment();
    let two: Vec<_> = (0..2).map(|block| segment.block_info(block).unwrap().clone()).collect();
    assert_eq!(PackedBlocks::decode(&lengths, &two).unwrap().raw(1), 20);
    assert_eq!(PackedBlocks::decode(&lengths, &two[..1]).unwrap_err().kind(), Kind::Damaged);
    assert_eq!(
        PackedBlocks::decode(&PackedBlocks::encode(&[1 << 40]), &two[..1]).unwrap_err().kind(),
        Kind::Damaged
    );
    let mut other = lengths;
    other[0] = 2;
    let error = PackedBlocks::decode(&other, &two).unwrap_err();
    assert_eq!(error.kind(), Kind::Newer, "a codec that this program does not have: {error}");

    // A buffer claims a wrong length: memory must not be reserved for it.
    let mut message = Vec::new();
    let world = TestTable::packed(6, 100);
    let file = world.sim.disk.contents(&dir().join("2.arrow")).unwrap();
    let segment = world.segment();
    let info = segment.block_info(0).unwrap();
    message.extend_from_slice(&file[info.offset as usize..(info.offset + info.len()) as usize]);
    let metadata = info.metadata_len as usize;
    let honest = super::raw_len(&message, metadata).unwrap();
    assert!(honest > 100 * 8);
    let row_ids = i64::from(info.rows) * 8;
    let first = message[metadata..].windows(8).position(|bytes| bytes == row_ids.to_le_bytes());
    let at = metadata + first.expect("the row ids' length");
    message[at..at + 8].copy_from_slice(&(1i64 << 39).to_le_bytes());
    assert!(super::raw_len(&message, metadata).unwrap() > 1 << 38);
    message[at..at + 8].copy_from_slice(&(-2i64).to_le_bytes());
    assert_eq!(super::raw_len(&message, metadata).unwrap_err().kind(), Kind::Damaged);
    assert_eq!(super::raw_len(&message[..40], metadata).unwrap_err().kind(), Kind::Damaged);
}

#[test]
fn what_does_not_become_smaller_is_not_worth_it() {
    let (sim, mut rng) = (SimEnv::new(7), Rng::new(7));
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("noise", &DataType::Binary, true, None).unwrap();
    let mut tip = Tip::new(def.clone());
    let noise: Vec<Value> =
        (0..2_000).map(|_| Value::Binary((0..400).map(|_| rng.below(256) as u8).collect())).collect();
    let noise = Value::to_array(&noise, &DataType::Binary).unwrap();
    let batch = RecordBatch::try_new(def.schema.to_arrow_user(), vec![noise]).unwrap();
    tip.append(RowId(1), 1, &[(Lsn(1), 2_000)], &batch).unwrap();
    let base = tip.snapshot(Lsn(1));
    let meta = seal(&base, &sim.env(), &dir(), SegmentId(1), tip.next_row(), &mut |_| Ok(())).unwrap();
    let segment = open(&sim, &def, meta);
    assert!(!segment.is_worth_compressing().unwrap());
    tip.apply_seal(segment, None).unwrap();

    // Compressed nevertheless, the segment has the same rows.
    let base = tip.snapshot(Lsn(1));
    let inputs = [SegmentId(1)];
    let env = sim.env();
    let packed = compaction::merge(
        &base,
        &inputs,
        &env,
        &dir(),
        SegmentId(2),
        BlockCompression::Zstd,
        &mut |_| Ok(()),
    )
    .unwrap();
    let packed = open(&sim, &def, packed.unwrap());
    assert!(packed.is_compressed() && packed.verify().is_empty(), "{:?}", packed.verify());
    tip.apply_compact(&inputs, Some(packed), None).unwrap();
    let read = |s: &Snapshot| s.pieces()[0].read(s.all_columns()).unwrap();
    assert!(read(&base) == read(&tip.snapshot(Lsn(1))));
}

/// An older program does not know section 8 and would take the blocks for damaged ones.
#[test]
fn a_compressed_segment_says_a_version_that_older_programs_refuse_as_newer() {
    let version = |world: &TestTable, name: &str| {
        let bytes = world.sim.disk.contents(&dir().join(name)).unwrap();
        u32::from_le_bytes(bytes[8..12].try_into().unwrap())
    };
    for (ordered, plain) in [(false, 1), (true, 2)] {
        let mut world = TestTable::new(8, ordered, 20_000);
        world.compress(2);
        assert_eq!((version(&world, "1.meta"), version(&world, "2.meta")), (plain, 3));
    }
}
