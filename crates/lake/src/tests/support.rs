//! Helpers that the tests share: a table with its lake on a simulated machine, and readers that compare the two.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use iceberg::metadata::Metadata;
use sim::SimEnv;
use table::materializer::{Budget, MaterializerDir, Position, Progress};
use table::{Snapshot, Tip};
use types::{DataType, Lsn, Result, RowId, TableDef, TableId, Value};

use crate::digest::Digest;
use crate::reader::Reader;
use crate::{ErasureReport, Lake, Materializer, Options, Store};

/// A hash of each row, by row id.
pub type RowHashes = BTreeMap<u64, u64>;

/// Returns options with limits so low that small tests merge files and expire snapshots.
pub fn small() -> Options {
    Options {
        commit_bytes: 2 << 10,
        commit_bytes_max: 8 << 10,
        file_bytes: 16 << 10,
        snapshots_min: 3,
        snapshots_max: 6,
        snapshot_age_min: std::time::Duration::from_secs(20),
        metadata_files_max: 3,
        ..Options::new("lake", "lake")
    }
}

pub fn materializer(options: Options) -> Arc<Materializer> {
    Arc::new(Materializer::new(options))
}

/// Returns the rows that a reader finds which knows only the table's directory.
pub fn read(store: &Store, dir: &Path) -> Result<RowHashes> {
    let mut rows = RowHashes::new();
    Reader::open(store, dir)?.read(&mut |batch| Digest::by_row(&batch, &mut rows))?;
    Ok(rows)
}

/// Returns the rows of the lake's newest state, as a reader finds them. In a catalog, the metadata are given to the reader.
pub fn read_newest(lake: &Lake) -> Result<RowHashes> {
    if lake.is_in_catalog() {
        read_with_metadata(&lake.store, &lake.dir, lake.metadata.clone())
    } else {
        read(&lake.store, &lake.dir)
    }
}

pub fn read_with_metadata(store: &Store, dir: &Path, metadata: Metadata) -> Result<RowHashes> {
    let mut rows = RowHashes::new();
    Reader::of(store, dir, metadata)?.read(&mut |batch| Digest::by_row(&batch, &mut rows))?;
    Ok(rows)
}

/// Returns the rows of a table.
pub fn rows_of(table: &Snapshot) -> Result<RowHashes> {
    let mut rows = RowHashes::new();
    let batch = table.scan_from(RowId(1), usize::MAX, table.all_columns())?;
    Digest::by_row(&batch, &mut rows)?;
    Ok(rows)
}

/// Returns the table's rows, composed of those in the lake and the later changes. Checks K1.
pub fn observe(table: &Arc<Snapshot>, position: &Position) -> Result<RowHashes> {
    let lake = position.published::<Lake>().expect("a lake is published");
    let mut rows = read_version(&lake)?;
    let last = position.checkpoint.row.0;
    assert!(rows.keys().all(|row| *row <= lake.row.0), "K1: no row beyond the recorded one");
    assert_eq!(rows.len() as u64, lake.rows(), "what the state counts is what a reader finds");
    for row in table.deleted_since(&position.checkpoint)? {
        assert!(rows.remove(&row.0).is_some(), "K1: row {row} was live at the checkpoint");
    }
    rows.extend(rows_of(table)?.into_iter().filter(|(row, _)| *row > last));
    Ok(rows)
}

/// Returns the rows of this state of the lake, read from its files.
pub fn read_version(lake: &Lake) -> Result<RowHashes> {
    let mut rows = RowHashes::new();
    let reader = Reader::open_version(&lake.store, &lake.dir, lake.version)?;
    assert_eq!((reader.row, reader.lsn), (lake.row, lake.lsn));
    reader.read(&mut |batch| Digest::by_row(&batch, &mut rows))?;
    Ok(rows)
}

/// A table and its lake on a simulated machine, without an engine.
pub struct Bench {
    pub sim: SimEnv,
    pub tip: Tip,
    pub lsn: u64,
    pub materializer: Arc<Materializer>,
    pub position: Option<Arc<Position>>,
    /// The time that the last rows got.
    time: i64,
}

/// Returns a definition with the columns `k int64` and `s string`.
pub fn def() -> TableDef {
    let mut def = TableDef::new(TableId(7), "main.t");
    def.add_column("k", &DataType::Int64, false, None).unwrap();
    def.add_column("s", &DataType::String, true, None).unwrap();
    def
}

/// Sets the layout of a definition.
pub fn lay_out(def: &mut TableDef, partition_by: &[&str], sort_by: &[&str]) {
    let texts = |by: &[&str]| by.iter().map(|by| (*by).to_owned()).collect::<Vec<_>>();
    def.set_partition_by(&texts(partition_by)).unwrap();
    def.set_sort_by(&texts(sort_by)).unwrap();
}

/// Layouts for [`def`]: none, partitions, a sort order, and both.
pub const LAYOUTS: [(&[&str], &[&str]); 8] = [
    (&[], &[]),
    (&["bucket(3, k)"], &[]),
    (&["truncate(10, k)", "truncate(6, s)"], &["s desc"]),
    (&[], &["k desc"]),
    (&["hours(_time)"], &["s nulls first", "k"]),
    (&["s"], &[]),
    (&["truncate(100, _row_id)"], &["_time desc"]),
    (&[], &["s desc nulls last"]),
];

impl Bench {
    pub fn new(options: Options) -> Bench {
        Bench::of(def(), options)
    }

    pub fn of(def: TableDef, options: Options) -> Bench {
        let sim = SimEnv::new(1);
        let bench = Bench {
            materializer: materializer(options),
            tip: Tip::new(def),
            sim,
            lsn: 1,
            position: None,
            time: 0,
        };
        bench.sim.env().disk.create_dir_all(&bench.place().dir).unwrap();
        bench
    }

    pub fn place(&self) -> MaterializerDir {
        MaterializerDir { env: self.sim.env(), dir: format!("derived/lake/{}", self.tip.def().id).into() }
    }

    /// Returns the store of the table's lake.
    pub fn store(&self) -> Store {
        Store::new(self.sim.env(), self.materializer.options().objects.clone())
    }

    pub fn dir(&self) -> std::path::PathBuf {
        self.materializer.dir_of(self.tip.def())
    }

    /// Sets time and lsn, as if the table had another past.
    pub fn begin_at(&mut self, time: i64, lsn: u64) -> &mut Self {
        (self.time, self.lsn) = (time, lsn);
        self
    }

    /// Adds rows, whose values are in the columns' order.
    pub fn insert(&mut self, rows: &[Vec<Value>]) -> &mut Self {
        let def = self.tip.def().clone();
        let column = |at: usize, column: &types::Column| {
            let values: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
            Value::to_array(&values, &column.data_type).unwrap()
        };
        let columns = def.schema.columns.iter().enumerate().map(|(at, c)| column(at, c)).collect();
        let batch = RecordBatch::try_new(def.schema.to_arrow_user(), columns).unwrap();
        self.lsn += 1;
        self.time += 1;
        let runs = [(Lsn(self.lsn), rows.len() as u64)];
        self.tip.append(self.tip.next_row(), self.time, &runs, &batch).unwrap();
        self
    }

    /// Adds rows of [`def`] with these keys.
    pub fn keys(&mut self, keys: impl IntoIterator<Item = i64>) -> &mut Self {
        let rows: Vec<Vec<Value>> =
            keys.into_iter().map(|k| vec![Value::Int64(k), Value::String(format!("text {k}"))]).collect();
        self.insert(&rows)
    }

    pub fn delete(&mut self, rows: impl IntoIterator<Item = u64>) -> &mut Self {
        self.lsn += 1;
        self.tip.delete(rows.into_iter().map(RowId), Lsn(self.lsn));
        self
    }

    pub fn alter(&mut self, change: impl FnOnce(&mut TableDef)) -> &mut Self {
        let mut def = (**self.tip.def()).clone();
        change(&mut def);
        def.schema.version = def.schema.version.next();
        self.lsn += 1;
        self.tip.set_def(def).unwrap();
        self
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.tip.snapshot(Lsn(self.lsn))
    }

    pub fn step(&mut self, urgent: bool) -> Result<Progress> {
        let tick: &mut dyn FnMut(u64) -> Result<()> = &mut |_| Ok(());
        let mut budget = Budget { rows: 100, urgent, tick };
        let (place, snapshot) = (self.place(), self.snapshot());
        let materializer: &dyn table::materializer::Materializer = &*self.materializer;
        let progress = materializer.step(&place, &snapshot, self.position.as_ref(), &mut budget)?;
        if let Progress::Advanced(position) = &progress {
            let position = Arc::new(position.clone());
            materializer.clean(&place, &position)?;
            self.position = Some(position);
        }
        Ok(progress)
    }

    /// Steps until nothing is missing in the lake.
    pub fn try_land(&mut self) -> Result<Arc<Lake>> {
        for _ in 0..1_000 {
            if matches!(self.step(true)?, Progress::UpToDate) {
                return Ok(self.lake());
            }
        }
        panic!("an urgent lake does not land in 1,000 steps");
    }

    /// Lands everything and compares the rows that readers find with the table.
    pub fn land(&mut self) -> Arc<Lake> {
        let lake = self.try_land().unwrap();
        assert_eq!(read_newest(&lake).unwrap(), rows_of(&self.snapshot()).unwrap());
        super::files::check(&lake, self.tip.def());
        lake
    }

    /// Changes the table's layout, as ALTER TABLE does.
    pub fn lay_out(&mut self, partition_by: &[&str], sort_by: &[&str]) -> &mut Self {
        self.alter(|def| lay_out(def, partition_by, sort_by))
    }

    /// Requests an erasure of everything that is deleted by now, and steps until its outcome is known.
    pub fn erase(&mut self) -> Result<ErasureReport> {
        let told = Arc::new(std::sync::Mutex::new(None));
        let tell = told.clone();
        let tell = Box::new(move |outcome| *tell.lock().unwrap() = Some(outcome));
        self.materializer.erase(self.tip.def().id, Lsn(self.lsn), tell);
        for _ in 0..200 {
            let stepped = self.step(true);
            if let Some(outcome) = told.lock().unwrap().take() {
                return outcome;
            }
            stepped?;
        }
        panic!("an erasure does not end in 200 steps");
    }

    pub fn lake(&self) -> Arc<Lake> {
        self.position.as_ref().and_then(|position| position.published()).expect("a lake is published")
    }

    /// Opens the lake as a starting process does; the checkpoint is the one in the log.
    pub fn restart(&mut self) {
        self.materializer = materializer(self.materializer.options().clone());
        let Some(position) = self.position.take() else { return };
        let materializer: &dyn table::materializer::Materializer = &*self.materializer;
        let opened = materializer.open(&self.place(), &self.snapshot(), &position.checkpoint);
        // After an error the engine starts from nothing.
        self.position =
            opened.ok().map(|published| Arc::new(Position::new(position.checkpoint.clone(), published)));
    }

    /// Returns the names of the files in the table's directory.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        for sub in ["data", "metadata"] {
            for entry in self.store().list(&self.dir().join(sub)).unwrap() {
                found.push(format!("{sub}/{}", entry.name));
            }
        }
        found
    }
}
