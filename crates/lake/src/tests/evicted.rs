//! Tests of rows that were evicted from their table's local segments: every read returns the same as for rows that stayed.

mod damaged;
mod erased;
mod lying;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::Int64Type;
use engine::{Engine, Mode, NewColumn, Op, Step, Transaction};
use sim::{Rng, SimEnv};
use table::materializer::Materializer as Derives;
use table::{LakeSnapshot, Snapshot};
use types::{
    AlterAction, ColumnId, DataType, HotLimit, Kind, Lsn, Principal, Result, RowId, TableDef, TableId, Value,
};

use super::remote::{Flaky, options_in};
use super::support::{LAYOUTS, lay_out, materializer, read, small};
use crate::{Materializer, Options, Store};

/// A table whose rows are evicted, and one with the same rows that keeps them. Every transaction applies to both.
const NAMES: [&str; 2] = ["main.t", "main.kept"];
const HELD_MAX: usize = 4;

fn defs(hot: HotLimit, layout: usize, by_time: bool) -> [TableDef; 2] {
    NAMES.map(|name| {
        let mut def = TableDef::new(TableId(0), name);
        def.add_column("k", &DataType::Int64, false, None).unwrap();
        def.add_column("s", &DataType::String, true, None).unwrap();
        def.add_column("n", &DataType::Int32, true, None).unwrap();
        let at = def.add_column("at", &DataType::Timestamp, true, None).unwrap();
        def.time = by_time.then_some(at);
        if name == NAMES[0] {
            lay_out(&mut def, LAYOUTS[layout].0, LAYOUTS[layout].1);
            def.set_hot(Some(hot));
        } else {
            def.options.lake = Some(false)
        }
        def
    })
}

fn batch(rng: &mut Rng, count: usize) -> RecordBatch {
    let keys = Int64Array::from_iter_values((0..count).map(|_| rng.below(40) as i64));
    let texts: StringArray = (0..count).map(|_| (rng.below(5) > 0).then(|| rng.word(12))).collect();
    let numbers: Int32Array = (0..count).map(|_| Some(rng.below(9) as i32)).collect();
    let times: TimestampMicrosecondArray =
        (0..count).map(|_| (rng.below(9) > 0).then(|| rng.below(1 << 40) as i64)).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("k", Arc::new(keys)),
        ("s", Arc::new(texts)),
        ("n", Arc::new(numbers)),
        ("at", Arc::new(times.with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Returns the rows sorted by row id.
fn sorted(batches: &[RecordBatch]) -> Option<RecordBatch> {
    let all = concat_batches(batches.first()?.schema_ref(), batches).unwrap();
    let ids = all.column(0).as_primitive::<Int64Type>().values().to_vec();
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_by_key(|at| ids[*at as usize]);
    Some(take_record_batch(&all, &UInt32Array::from(order)).unwrap())
}

/// Returns the rows as plain values, so that their storage does not matter.
fn plain(batch: &RecordBatch, def: &TableDef) -> Vec<Vec<Value>> {
    let system = [DataType::Int64, DataType::Timestamp];
    let types: Vec<DataType> =
        system.into_iter().chain(def.schema.columns.iter().map(|c| c.data_type.clone())).collect();
    let row = |at: usize| {
        let columns = batch.columns().iter().zip(&types);
        columns.map(|(column, data_type)| Value::from_array(column, data_type, at)).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Makes every kind of read on both tables and compares the results.
pub(super) fn compare(table: &Arc<Snapshot>, kept: &Arc<Snapshot>, rng: &mut Rng) -> Result<()> {
    assert_eq!((table.rows(), table.next_row()), (kept.rows(), kept.next_row()));
    let (def, all) = (kept.def(), table.all_columns());
    let rows = plain(&kept.scan_from(RowId(1), usize::MAX, kept.all_columns())?, def);
    assert_eq!(plain(&table.scan_from(RowId(1), usize::MAX, all)?, def), rows, "in row-id order");
    let read = |pieces: Vec<table::ScanPiece>| -> Result<_> {
        let batches = pieces.iter().map(|piece| piece.read(all)).collect::<Result<Vec<_>>>()?;
        Ok(sorted(&batches).map_or_else(Vec::new, |batch| plain(&batch, def)))
    };
    assert_eq!(read(table.stored_pieces())?, rows, "as they lie");
    let pieces = table.pieces();
    assert_eq!(pieces.iter().map(|piece| piece.rows() as u64).sum::<u64>(), table.rows(), "counted");
    assert_eq!(read(pieces)?, rows, "piece by piece");

    let last = kept.next_row().0;
    for _ in 0..4 {
        let from = RowId(1 + rng.below(last + 3));
        let limit = 1 + rng.below(40) as usize;
        let some = table.scan_from(from, limit, all)?;
        assert_eq!(plain(&some, def), plain(&kept.scan_from(from, limit, kept.all_columns())?, def));
        let wanted: Vec<RowId> = (0..1 + rng.below(20)).map(|_| RowId(1 + rng.below(last + 3))).collect();
        let found = table.fetch(&wanted, all)?;
        assert_eq!(plain(&found, def), plain(&kept.fetch(&wanted, kept.all_columns())?, def), "by id");
        let row = wanted[0];
        assert_eq!(table.is_live(row)?, kept.is_live(row)?);
        let values = |of: &Arc<Snapshot>| of.row(row)?.map(|row| row.values()).transpose();
        assert_eq!(values(table)?, values(kept)?);
        assert_eq!(table.lsn_of(row)?, kept.lsn_of(row)?, "who wrote it");
        if let Some(row) = rows.get(rng.below(rows.len().max(1) as u64) as usize)
            && let Value::Timestamp(time) = row[1]
        {
            let first = |of: &Arc<Snapshot>| -> Result<_> {
                let from = of.row_at_time(time)?;
                Ok(plain(&of.scan_from(from, 1, of.all_columns())?, def))
            };
            assert_eq!(first(table)?, first(kept)?, "by time");
        }
        // The same columns in another order, one of them twice.
        let columns = [types::TIME, def.schema.columns[0].id, types::ROW_ID, def.schema.columns[0].id];
        let part = |of: &Snapshot| of.fetch(&wanted, &of.projection(&columns)?);
        assert_eq!(part(table)?.columns(), part(kept)?.columns());
    }
    let floor = table.history_floor().max(kept.history_floor()).0;
    let after = Lsn(floor + rng.below(table.lsn().0.saturating_sub(floor) + 1));
    let inserted = |of: &Snapshot| -> Result<_> {
        let changes = of.changes(after, usize::MAX, of.all_columns())?;
        let rows: Vec<_> = changes.inserted.iter().flat_map(|i| plain(&i.batch, def)).collect();
        let lsns: Vec<Lsn> =
            changes.inserted.iter().flat_map(|i| &i.runs).flat_map(|(lsn, n)| vec![*lsn; *n]).collect();
        Ok((rows, lsns))
    };
    assert_eq!(inserted(table)?, inserted(kept)?, "the feed after {after}");
    Ok(())
}

/// Compares the past of both tables as far as the lake still has it; beyond that the read must fail.
fn compare_past(
    table: &Arc<Snapshot>,
    kept: &Arc<Snapshot>,
    rng: &mut Rng,
    coverage: &mut Coverage,
) -> Result<()> {
    let floor = table.past_floor().max(kept.past_floor()).0;
    let lsn = Lsn(floor + rng.below(table.lsn().0.saturating_sub(floor) + 1));
    let (then, kept_then) = (table.at(lsn)?, kept.at(lsn)?);
    let def = kept_then.def();
    let rows = plain(&kept_then.scan_from(RowId(1), usize::MAX, kept_then.all_columns())?, def);
    let pieces = then.stored_pieces();
    let lying = pieces.iter().map(|piece| piece.read(then.all_columns())).collect::<Result<Vec<_>>>();
    let lying = lying.map(|batches| sorted(&batches).map_or_else(Vec::new, |batch| plain(&batch, def)));
    let by_id = then.scan_from(RowId(1), usize::MAX, then.all_columns()).map(|batch| plain(&batch, def));
    for answer in [lying, by_id] {
        match answer {
            Ok(answer) => assert_eq!(answer, rows, "as of {lsn}"),
            // The machine died.
            Err(error) if error.kind() == Kind::Io => return Err(error),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Damaged, "{error}");
                coverage.past_lost += 1;
            }
        }
    }
    Ok(())
}

/// Counts of what the seeds exercised, so that the test cannot pass without effect.
#[derive(Debug, Default)]
struct Coverage {
    compared: u64,
    evicted: u64,
    held: u64,
    reopened: u64,
    parts: u64,
    past_lost: u64,
}

pub(super) struct Life<'a> {
    machine: &'a SimEnv,
    pub engine: Engine,
    lake: Arc<Materializer>,
    held: Vec<[Arc<Snapshot>; 2]>,
}

impl<'a> Life<'a> {
    fn begin(machine: &'a SimEnv, options: Options) -> Result<Life<'a>> {
        let mut engine_options =
            engine::Options { seal_rows: 60, log_files_max: 3, ..engine::Options::default() };
        (engine_options.log.file_bytes, engine_options.log.spare_files) = (24 << 10, 1);
        let engine = Engine::open_stepped(machine.env(), Path::new("db"), engine_options)?;
        let lake = materializer(options);
        engine.register(lake.clone())?;
        Ok(Life { machine, engine, lake, held: Vec::new() })
    }

    fn submit(&self, ops: Vec<Op>) {
        // A dying machine may refuse the transaction; its effect is then the same on both tables.
        self.engine.submit(&Principal::local(), Transaction::new(ops), |_| ());
    }

    fn both(&self, op: impl FnMut(&str) -> Op) {
        self.submit(NAMES.into_iter().map(op).collect());
    }

    pub fn tables(&self) -> Option<[Arc<Snapshot>; 2]> {
        let root = self.engine.root();
        let [table, kept] = NAMES.map(|name| root.table(name).cloned());
        Some([table?, kept?])
    }

    fn settle(&self) {
        while self.engine.step(Step::Commit) || self.engine.step(Step::Sync) {}
    }

    /// Steps until there is nothing to do for a while.
    fn run_until_idle(&self) {
        for _ in 0..300 {
            self.settle();
            if !self.engine.step(Step::Background) {
                self.machine.clock.advance(Duration::from_secs(31));
                if !self.engine.step(Step::Background) {
                    break;
                }
            }
        }
        self.settle();
    }

    fn random_step(&self, rng: &mut Rng) {
        match rng.below(100) {
            0..=29 => {
                let count = 1 + rng.below(30) as usize;
                let rows = batch(rng, count);
                self.both(|name| Op::Insert { table: name.into(), batch: rows.clone(), mode: Mode::Append });
            }
            30..=36 => {
                let last = self.tables().map_or(1, |[table, _]| table.next_row().0);
                // The range usually begins at old rows, as when rows expire.
                let first = 1 + rng.below(last);
                let many = if rng.one_in(3) { 200 } else { 6 };
                let rows: Vec<RowId> = (first..first + 1 + rng.below(many)).map(RowId).collect();
                self.both(|name| Op::Delete { table: name.into(), rows: rows.clone(), must_exist: false });
            }
            37 => {
                let name = format!("c{}", rng.below(3));
                let default = rng.one_in(2).then_some(Value::Int64(7));
                let nullable = default.is_none();
                let column = NewColumn { name, data_type: DataType::Int64, nullable, default };
                self.both(|name| Op::AddColumns { table: name.into(), columns: vec![column.clone()] });
            }
            38 => {
                let change = match rng.below(2) {
                    0 => AlterAction::Widen { name: "n".into(), to: DataType::Int64 },
                    _ => AlterAction::RenameColumn { from: "c0".into(), to: "c9".into() },
                };
                let changes = vec![change];
                self.both(|name| Op::AlterTable { table: name.into(), changes: changes.clone() });
            }
            39..=52 => drop(self.engine.step(Step::Commit)),
            53..=66 => drop(self.engine.step(Step::Sync)),
            67..=74 => self.machine.clock.advance(Duration::from_millis(rng.below(40_000))),
            _ => drop(self.engine.step(Step::Background)),
        }
    }

    fn compare_all(&mut self, rng: &mut Rng, coverage: &mut Coverage) -> Result<()> {
        let Some([table, kept]) = self.tables() else { return Ok(()) };
        if table.has_evicted() && table.lake_place().is_none() {
            // Just opened: a read fails, and returns neither no rows nor wrong ones.
            let first = table.scan_from(RowId(1), 1_000, table.all_columns());
            assert!(table.evicted().0 == 0 || first.is_err_and(|e| e.kind() == Kind::Busy));
            return Ok(());
        }
        compare(&table, &kept, rng)?;
        compare_past(&table, &kept, rng, coverage)?;
        coverage.compared += 1;
        coverage.evicted = coverage.evicted.max(table.evicted().0);
        for [table, kept] in &self.held {
            compare(table, kept, rng)?;
            coverage.held += u64::from(table.evicted().0 > 0);
        }
        if rng.one_in(3) {
            self.held.push([table.clone(), kept]);
            if self.held.len() > HELD_MAX {
                self.held.remove(0);
            }
        }
        self.check_durable(&table, rng)
    }

    /// K1: evicted rows are in the lake even if the power fails now.
    fn check_durable(&self, table: &Arc<Snapshot>, rng: &mut Rng) -> Result<()> {
        if !table.has_evicted() || rng.below(3) > 0 {
            return Ok(());
        }
        let after = self.machine.crash(&mut rng.fork());
        let rows = read(&Store::local(&after.env()), &self.lake.dir_of(table.def())).unwrap();
        let there: BTreeSet<u64> = rows.into_keys().collect();
        for row in 1..table.hot_from().0 {
            if table.is_live(RowId(row))? {
                assert!(there.contains(&row), "row {row} left the table before it was in the lake for good");
            }
        }
        Ok(())
    }
}

fn run(seed: u64, layout: usize, coverage: &mut Coverage) {
    let mut rng = Rng::new(seed);
    let mut machine = SimEnv::new(seed);
    let hot = if rng.one_in(2) { HotLimit::Bytes(rng.below(20_000)) } else { HotLimit::Micros(20_000_000) };
    let by_time = rng.one_in(3);
    let options = || Options { read_bytes_max: 64 << 10, ..small() };
    let lives = 2 + rng.below(3);
    for life in 0..lives {
        let is_last = life + 1 == lives;
        if !is_last {
            machine.disk.crash_at(machine.disk.calls() + 100 + rng.below(3_000));
        }
        let outcome = Life::begin(&machine, options()).and_then(|mut one| {
            let [a, b] = defs(hot, layout, by_time);
            let create = |def| Op::CreateTable { def, if_absent: true };
            one.submit(vec![create(a), create(b)]);
            for _ in 0..60 + rng.below(160) {
                one.random_step(&mut rng);
                if machine.disk.is_dead() {
                    return Err(types::Error::internal("the machine died"));
                }
                if rng.one_in(6) {
                    one.compare_all(&mut rng, coverage)?;
                }
                if rng.one_in(40) {
                    one.run_until_idle();
                }
            }
            one.run_until_idle();
            one.compare_all(&mut rng, coverage)?;
            coverage.parts += one.lake.read_counts().parts;
            Ok(())
        });
        if let Err(error) = outcome {
            assert!(machine.disk.is_dead(), "seed {seed}, life {life}: {error}");
        }
        coverage.reopened += 1;
        machine = if rng.one_in(4) { machine.kill() } else { machine.crash(&mut rng) };
    }
}

#[test]
fn reads_of_evicted_rows_return_the_same_as_reads_of_local_rows() {
    let _limit = testkit::limit(900);
    let mut coverage = Coverage::default();
    for seed in testkit::seeds(24) {
        let layout = seed as usize % LAYOUTS.len();
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, layout, &mut coverage)));
        if let Err(panic) = outcome {
            eprintln!("seed {seed}, layout {layout}");
            std::panic::resume_unwind(panic);
        }
    }
    eprintln!("{coverage:?}");
    assert!(
        coverage.compared > 50 && coverage.evicted > 50 && coverage.held > 5 && coverage.parts > 100,
        "{coverage:?}"
    );
}

/// Fills both tables with sealed and landed rows, of which the old ones are evicted.
pub(super) fn filled<'a>(machine: &'a SimEnv, options: Options, layout: usize, rounds: usize) -> Life<'a> {
    let life = Life::begin(machine, options).unwrap();
    let create = |def| Op::CreateTable { def, if_absent: true };
    life.submit(defs(HotLimit::Bytes(0), layout, false).map(create).to_vec());
    let mut rng = Rng::new(7);
    for _ in 0..rounds {
        let rows = batch(&mut rng, 61);
        life.both(|name| Op::Insert { table: name.into(), batch: rows.clone(), mode: Mode::Append });
        life.run_until_idle();
    }
    life
}

#[test]
fn an_unavailable_store_fails_reads_of_evicted_rows_only() {
    let _limit = testkit::limit(120);
    for layout in [0, 1, 3] {
        let (machine, store) = (SimEnv::new(1), Arc::new(Flaky::default()));
        // Nothing is cached, so that every read makes a request.
        let life = filled(&machine, Options { read_bytes_max: 1, ..options_in(&store) }, layout, 6);
        let [table, kept] = life.tables().unwrap();
        assert!(table.evicted().0 > 200, "{:?}", table.evicted());
        let mut rng = Rng::new(3);
        compare(&table, &kept, &mut rng).unwrap();
        assert!(life.lake.read_counts().requests > 0);

        store.goes_away();
        let all = table.all_columns();
        let is_told = |error: types::Error| assert_eq!(error.kind(), Kind::Io, "{error}");
        is_told(table.scan_from(RowId(1), 10, all).unwrap_err());
        is_told(table.fetch(&[RowId(3)], all).unwrap_err());
        is_told(table.row(RowId(3)).unwrap_err());
        let lying = table.stored_pieces();
        let (failed, read): (Vec<_>, Vec<_>) =
            lying.iter().map(|piece| piece.read(all)).partition(Result::is_err);
        assert!(!failed.is_empty());
        let hot: usize = read.into_iter().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(hot as u64, table.rows() - table.evicted().0, "what is here is read");
        let here = table.scan_from(table.hot_from(), usize::MAX, all).unwrap();
        assert_eq!(here.num_rows() as u64, table.rows() - table.evicted().0);
        // Reads that need only what the table itself knows work without the lake.
        assert_eq!(
            (table.rows(), table.is_live(RowId(3)).unwrap()),
            (kept.rows(), kept.is_live(RowId(3)).unwrap())
        );
        let ids =
            table.scan_from(RowId(1), usize::MAX, &table.projection(&[types::ROW_ID]).unwrap()).unwrap();
        assert_eq!(ids.num_rows() as u64, table.rows());

        // A delete works without the lake too, and nothing is lost by all this.
        life.both(|name| Op::Delete { table: name.into(), rows: vec![RowId(3)], must_exist: true });
        life.settle();
        store.works_again();
        let [table, kept] = life.tables().unwrap();
        assert!(!table.is_live(RowId(3)).unwrap());
        compare(&table, &kept, &mut rng).unwrap();
    }
}

/// A lake that had been removed was created again from a table that had only half of the rows.
#[test]
fn a_lake_with_evicted_rows_is_not_created_again() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(1);
    // Nothing is cached that could hide the missing files.
    let life = filled(&machine, Options { read_bytes_max: 1, ..small() }, 0, 6);
    let [table, kept] = life.tables().unwrap();
    let dir = life.lake.dir_of(table.def());
    let (evicted, disk) = (table.evicted().0, machine.env().disk);
    assert!(evicted > 200);
    let files: Vec<_> = machine
        .disk
        .files()
        .into_iter()
        .map(|file| file.strip_prefix("/").unwrap().to_owned())
        .filter(|file| file.starts_with(&dir))
        .collect();
    let contents: Vec<_> = files.iter().map(|file| machine.disk.contents(file).unwrap()).collect();
    for file in &files {
        disk.remove(file).unwrap();
    }
    for _ in 0..3 {
        let rows = batch(&mut Rng::new(9), 61);
        life.both(|name| Op::Insert { table: name.into(), batch: rows.clone(), mode: Mode::Append });
        life.run_until_idle();
    }
    let [after, _] = life.tables().unwrap();
    assert_eq!(after.evicted().0, evicted, "nothing more leaves");
    assert!(
        crate::newest_version(&Store::local(&machine.env()), &dir).unwrap().is_none(),
        "no lake is begun"
    );
    after.scan_from(RowId(1), 10, after.all_columns()).unwrap_err();
    drop((table, kept, after));

    // Once the files are put back, the lake continues.
    for (file, bytes) in files.iter().zip(contents) {
        let written = disk.create(file).unwrap();
        written.write_at(&[std::io::IoSlice::new(&bytes)], 0).unwrap();
        written.sync().unwrap();
        disk.sync_dir(file.parent().unwrap()).unwrap();
    }
    for _ in 0..8 {
        life.run_until_idle();
    }
    let [table, kept] = life.tables().unwrap();
    compare(&table, &kept, &mut Rng::new(1)).unwrap();
    assert!(table.evicted().0 > evicted, "and what came meanwhile leaves too");
}

#[test]
fn a_scan_decodes_each_part_once_and_a_fetch_by_id_one_part() {
    let _limit = testkit::limit(120);
    let machine = SimEnv::new(1);
    // Files are not merged.
    let options = || Options { file_bytes: 1, ..small() };
    let life = filled(&machine, options(), 0, 6);
    drop(life);
    // A new process, whose cache is empty.
    let machine = machine.kill();
    let life = Life::begin(&machine, options()).unwrap();
    life.run_until_idle();
    let [table, kept] = life.tables().unwrap();
    let parts = |work: &dyn Fn()| {
        let before = life.lake.read_counts().parts;
        work();
        life.lake.read_counts().parts - before
    };
    let all = table.all_columns();
    let pieces = || table.stored_pieces().into_iter().filter(table::ScanPiece::is_evicted);
    let count = pieces().count() as u64;
    assert!(count >= 8, "{count}");
    let row = RowId(70);
    let fetched = parts(&|| {
        assert_eq!(table.fetch(&[row], all).unwrap().num_rows(), usize::from(kept.is_live(row).unwrap()))
    });
    assert!((2..=3).contains(&fetched), "row ids of the parts of a page, then columns of one: {fetched}");
    let scan = || pieces().for_each(|piece| drop(piece.read(all).unwrap()));
    assert_eq!(parts(&scan), count - 1, "all but the one that is kept");
    assert_eq!(parts(&scan), 0, "they are kept");
    let whole = || table.scan_from(RowId(1), usize::MAX, all).unwrap().num_rows() as u64;
    assert_eq!(parts(&|| assert_eq!(whole(), table.rows())), 0);
}

/// An erasure began before the first rows were evicted, and the eviction ran beside it. Whichever of the two finished first,
/// the evicted rows were then read at the position before the erasure, and its files stayed until another row landed.
#[test]
fn an_erasure_beside_an_eviction_ends_without_another_row() {
    let _limit = testkit::limit(120);
    for erases_first in [false, true] {
        for layout in [0, 1] {
            let machine = SimEnv::new(1);
            let life = Life::begin(&machine, small()).unwrap();
            let [def, _] = defs(HotLimit::Bytes(0), layout, false);
            life.submit(vec![Op::CreateTable { def, if_absent: true }]);
            life.settle();
            let table = || life.engine.root().table(NAMES[0]).unwrap().clone();
            let (id, batch) = (table().def().id, batch(&mut Rng::new(7), 61));
            life.submit(vec![Op::Insert { table: NAMES[0].into(), batch, mode: Mode::Append }]);
            life.settle();
            let stands = || {
                let root = life.engine.root();
                root.derived(crate::NAME, id).map_or(0, |position| position.checkpoint.row.0)
            };
            // The step is not urgent; otherwise the delete would land at once as well.
            while stands() < 61 {
                if !life.engine.step(Step::Background) {
                    machine.clock.advance(Duration::from_secs(31));
                }
                life.settle();
            }
            let evictions = || life.engine.status().evictions;
            assert!(table().segments().len() == 1 && evictions() == 0);
            life.submit(vec![Op::Delete { table: NAMES[0].into(), rows: vec![RowId(5)], must_exist: true }]);
            life.settle();
            let told = Arc::new(std::sync::Mutex::new(None));
            let tell = told.clone();
            let lsn = table().lsn();
            let erase = || {
                let tell = Box::new(move |outcome| *tell.lock().unwrap() = Some(outcome));
                life.lake.erase(id, lsn, tell);
                life.engine.hurry(crate::NAME, id);
            };
            // Both begin with the state that neither has changed.
            if erases_first {
                erase();
                assert!(life.engine.step(Step::Background));
                assert_eq!(evictions(), 0);
                while evictions() == 0 {
                    assert!(life.engine.step(Step::Background), "nothing leaves");
                }
            } else {
                while evictions() == 0 {
                    assert!(life.engine.step(Step::Background), "nothing leaves");
                }
                erase();
                assert!(life.engine.step(Step::Background));
            }
            assert!(!table().has_evicted() && told.lock().unwrap().is_none());
            life.settle();
            assert!(table().has_evicted());
            for _ in 0..20 {
                life.run_until_idle();
            }
            let erased = told.lock().unwrap().take();
            let erased =
                erased.unwrap_or_else(|| panic!("it does not end: {erases_first}, {layout}")).unwrap();
            assert_eq!((erased.rows, erased.files_rewritten), (1, 1), "{erased:?}");
            let dir = life.lake.dir_of(table().def());
            let mut ids = BTreeSet::new();
            for file in machine.disk.files() {
                let file = file.strip_prefix("/").unwrap().to_owned();
                let name = file.to_string_lossy();
                if file.starts_with(&dir) && name.ends_with(".parquet") && !name.ends_with(".deletes.parquet")
                {
                    let bytes = machine.disk.contents(&file).unwrap();
                    crate::row_ids::scan(bytes.into(), None, &mut |_, row| {
                        ids.insert(row.0);
                        Ok(())
                    })
                    .unwrap();
                }
            }
            assert!(!ids.contains(&5) && ids.len() == 60, "{ids:?}");
            let all = table().all_columns().clone();
            assert_eq!(table().scan_from(RowId(1), 100, &all).unwrap().num_rows(), 60);
        }
    }
}

#[test]
fn evicted_rows_expire_in_the_lake() {
    let _limit = testkit::limit(120);
    for layout in [0, 1] {
        let machine = SimEnv::new(1);
        let life = Life::begin(&machine, small()).unwrap();
        let [mut def, _] = defs(HotLimit::Bytes(0), layout, false);
        def.options.ttl = Some(24 * 3_600_000_000);
        life.submit(vec![Op::CreateTable { def, if_absent: true }]);
        let table = || life.engine.root().table(NAMES[0]).unwrap().clone();
        for _ in 0..6 {
            let batch = batch(&mut Rng::new(7), 61);
            life.submit(vec![Op::Insert { table: NAMES[0].into(), batch, mode: Mode::Append }]);
            life.run_until_idle();
        }
        let (rows, dir) = (table().evicted().0, life.lake.dir_of(table().def()));
        assert!(rows > 200, "{rows}");
        let in_lake = || read(&Store::local(&machine.env()), &dir).unwrap().len();
        assert!(in_lake() > 200);
        machine.clock.advance(Duration::from_secs(25 * 3_600));
        for _ in 0..20 {
            life.run_until_idle();
        }
        assert_eq!((table().rows(), table().has_evicted(), in_lake()), (0, false, 0));
        let sidecars =
            machine.disk.files().into_iter().filter(|file| file.extension().is_some_and(|e| e == "meta"));
        assert_eq!(sidecars.count(), table().segments().len(), "what was left of them is gone");
    }
}
