//! Tests of a lake that has other rows than the table.

use table::materializer::{Budget, Checkpoint, MaterializerDir, Position, Progress, Published};
use table::{LakeFileRange, LakeRows, Zone};

use super::*;

/// The table does not trust the lake: a segment stays if its rows cannot be read there, or differ.
#[test]
fn a_segment_stays_if_the_lake_has_other_rows() {
    let _limit = testkit::limit(120);
    for lie in [Lie::MissesARow, Lie::HasAnother, Lie::HasOneTwice, Lie::Fails] {
        let machine = SimEnv::new(1);
        let mut options = engine::Options { seal_rows: 60, log_files_max: 3, ..engine::Options::default() };
        options.log.file_bytes = 24 << 10;
        let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
        let lake = materializer(small());
        engine.register(Arc::new(LyingMaterializer { lake: lake.clone(), lie })).unwrap();
        let life = Life { machine: &machine, engine, lake, held: Vec::new() };
        let create = |def| Op::CreateTable { def, if_absent: true };
        life.submit(defs(HotLimit::Bytes(0), 0, false).map(create).to_vec());
        for _ in 0..4 {
            let rows = batch(&mut Rng::new(7), 61);
            life.both(|name| Op::Insert { table: name.into(), batch: rows.clone(), mode: Mode::Append });
            life.run_until_idle();
        }
        let [table, kept] = life.tables().unwrap();
        assert!(!table.has_evicted(), "{lie:?}: {:?}", table.evicted());
        assert!(life.engine.status().background_errors > 0, "{lie:?} was met");
        compare(&table, &kept, &mut Rng::new(1)).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
enum Lie {
    MissesARow,
    HasAnother,
    HasOneTwice,
    Fails,
}

/// A lake that returns wrong rows.
struct LyingMaterializer {
    lake: Arc<Materializer>,
    lie: Lie,
}

#[derive(Debug)]
struct LyingSnapshot(Arc<dyn LakeSnapshot>, Lie);

impl LakeSnapshot for LyingSnapshot {
    fn row(&self) -> RowId {
        self.0.row()
    }

    fn place(&self) -> String {
        self.0.place()
    }

    fn file_ranges(&self, last: RowId) -> Vec<LakeFileRange> {
        self.0.file_ranges(last)
    }

    fn zone(&self, stretch: &LakeFileRange, column: ColumnId, data_type: &DataType) -> Option<Zone> {
        self.0.zone(stretch, column, data_type)
    }

    fn lacks(&self, stretch: &LakeFileRange, column: ColumnId, value: &Value) -> bool {
        self.0.lacks(stretch, column, value)
    }

    fn read_bounds(&self, stretch: &LakeFileRange) -> Result<()> {
        self.0.read_bounds(stretch)
    }

    fn read(
        &self,
        stretch: &LakeFileRange,
        wanted: &[(ColumnId, arrow::datatypes::DataType)],
    ) -> Result<LakeRows> {
        self.0.read(stretch, wanted)
    }

    fn fetch(
        &self,
        rows: &[RowId],
        wanted: &[(ColumnId, arrow::datatypes::DataType)],
    ) -> Result<Vec<LakeRows>> {
        let mut found = self.0.fetch(rows, wanted)?;
        let Some(last) = found.last_mut() else { return Ok(found) };
        let one = |found: &LakeRows, from: usize, len: usize| LakeRows {
            row_ids: found.row_ids.slice(from, len),
            columns: found.columns.iter().map(|c| c.as_ref().map(|c| c.slice(from, len))).collect(),
        };
        let count = last.row_ids.len();
        match self.1 {
            Lie::MissesARow => *last = one(last, 0, count - 1),
            Lie::HasOneTwice => {
                let twice = one(last, 0, 1);
                found.push(twice);
            }
            Lie::HasAnother => {
                let at = wanted.iter().position(|(_, arrow)| *arrow == arrow::datatypes::DataType::Int64);
                last.columns[at.unwrap()] = Some(Arc::new(Int64Array::from(vec![99; count])));
            }
            Lie::Fails => return Err(types::Error::damaged("a data file cannot be read")),
        }
        Ok(found)
    }
}

impl Derives for LyingMaterializer {
    fn name(&self) -> &'static str {
        Derives::name(&*self.lake)
    }

    fn follows(&self, def: &TableDef) -> bool {
        self.lake.follows(def)
    }

    fn open(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        checkpoint: &Checkpoint,
    ) -> Result<Published> {
        self.lake.open(place, table, checkpoint)
    }

    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        Derives::step(&*self.lake, place, table, from, budget)
    }

    fn clean(&self, place: &MaterializerDir, newest: &Arc<Position>) -> Result<()> {
        self.lake.clean(place, newest)
    }

    fn dropped(&self, place: &MaterializerDir) -> Result<()> {
        self.lake.dropped(place)
    }

    fn stores_evicted_rows(&self) -> bool {
        true
    }

    fn landed(&self, published: &Published, table: &Snapshot) -> Option<Arc<dyn LakeSnapshot>> {
        Some(Arc::new(LyingSnapshot(self.lake.landed(published, table)?, self.lie)))
    }
}
