//! The contract of materializers, as one test that all of them run.
//!
//! It is a seeded run on a simulated machine. Rows come, change and go, and the table is sealed, compacted, dropped and
//! created again. The materializer takes steps of random size and cleans up after itself. The machine crashes at some call
//! of its disk, also inside steps and inside recovery. Between two runs of the process its files may be damaged or lost.
//! Whenever a position is published, readers must get the same through it as through one that was built from nothing over
//! the same snapshot (M1, M2). The same holds at the end, when everything was taken in; then no file of a dropped table may
//! be left (G1).

use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use sim::{Rng, SimEnv};
use table::Snapshot;
use table::materializer::{Budget, Materializer, MaterializerDir, Position, Progress};
use types::{Kind, Principal, Result, RowId, TableDef, TableId};

use crate::{DatabaseRoot, Engine, Mode, Op, Options, Step, Transaction};

/// A materializer under test.
pub struct ContractTest<'a, T> {
    /// Creates the materializer, as a starting process does.
    pub make: &'a dyn Fn() -> Arc<dyn Materializer>,
    /// The table it follows, keyed or not.
    pub table: TableDef,
    /// Makes some rows to write, with few different keys, so that rows are replaced.
    pub rows: &'a dyn Fn(&mut Rng, usize) -> RecordBatch,
    /// Returns a reader's result for the table through a position, the tail included.
    pub observe: &'a dyn Fn(&Arc<Snapshot>, &Position) -> Result<T>,
    /// True if a reader may go on with a position that is no longer the newest (S1, G1). False if the output is for other
    /// systems, which have their own rules of how long it stays.
    pub keeps_old_positions: bool,
}

const DIR: &str = "db";
/// Number of older positions that readers go on with.
const HELD_MAX: usize = 3;

/// One run of the process.
struct ProcessRun<'t, 'a, T> {
    trial: &'t ContractTest<'a, T>,
    machine: &'t SimEnv,
    engine: Engine,
    materializer: Arc<dyn Materializer>,
    newest: Option<Arc<Position>>,
    /// Results of readers of older roots.
    held: VecDeque<(Arc<Snapshot>, Arc<Position>, T)>,
    published: u64,
}

impl<T: PartialEq + Debug> ContractTest<'_, T> {
    /// Runs the test with these seeds. Panics at the first that fails, with its number.
    pub fn run(&self, seeds: std::ops::Range<u64>) {
        let mut published = 0;
        for seed in seeds.clone() {
            let run = || self.seed(seed);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                Ok(count) => published += count,
                Err(panic) => {
                    eprintln!("seed {seed}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        assert!(published > seeds.count() as u64, "almost nothing was ever published: {published}");
    }

    /// Runs one seed. Returns the number of published positions.
    fn seed(&self, seed: u64) -> u64 {
        let mut rng = Rng::new(seed);
        let mut machine = SimEnv::new(seed);
        let mut published = 0;
        let lives = 1 + rng.below(4);
        for life in 0..lives {
            let is_last = life + 1 == lives;
            if !is_last {
                let calls = machine.disk.calls();
                machine.disk.crash_at(calls + 1 + rng.below(400));
            }
            let ended = ProcessRun::begin(self, &machine, &mut rng).and_then(|mut life| {
                let ended = life.live(&mut rng, is_last);
                published += life.published;
                ended
            });
            if let Err(error) = ended {
                let calls = || machine.disk.last_calls().join("\n");
                assert!(machine.disk.is_dead(), "seed {seed}, life {life}: {error}, after\n{}", calls());
            }
            machine = if rng.below(4) == 0 { machine.kill() } else { machine.crash(&mut rng) };
            self.damage(&machine, &mut rng);
        }
        published
    }

    /// Damages or removes derived files, which can be rebuilt.
    fn damage(&self, machine: &SimEnv, rng: &mut Rng) {
        let files = derived_files(machine, (self.make)().name());
        let disk = machine.env().disk;
        match rng.below(6) {
            0 => {
                for file in &files {
                    disk.remove(file).unwrap();
                    disk.sync_dir(file.parent().unwrap()).unwrap();
                }
            }
            1 if !files.is_empty() => {
                let file = &files[rng.below(files.len() as u64) as usize];
                let len = machine.disk.contents(file).map_or(0, |bytes| bytes.len() as u64);
                if len > 0 {
                    machine.disk.flip_bit(file, rng.below(len));
                }
            }
            _ => {}
        }
    }

    /// Builds a position from nothing, on another machine.
    fn fresh(&self, table: &Arc<Snapshot>) -> Arc<Position> {
        let machine = SimEnv::new(0);
        let place = MaterializerDir { env: machine.env(), dir: "fresh".into() };
        place.env.disk.create_dir_all(&place.dir).unwrap();
        let materializer = (self.make)();
        let mut position: Option<Arc<Position>> = None;
        loop {
            let tick: &mut dyn FnMut(u64) -> Result<()> = &mut |_| Ok(());
            let mut budget = Budget { rows: 1 << 20, urgent: true, tick };
            match materializer.step(&place, table, position.as_ref(), &mut budget).unwrap() {
                Progress::Advanced(next) => position = Some(Arc::new(next)),
                Progress::UpToDate => return position.expect("something is published of an empty table too"),
                Progress::Later(_) => panic!("an urgent step does not wait for more rows"),
            }
        }
    }
}

impl<'t, 'a, T: PartialEq + Debug> ProcessRun<'t, 'a, T> {
    fn begin(trial: &'t ContractTest<'a, T>, machine: &'t SimEnv, rng: &mut Rng) -> Result<Self> {
        let options = Options {
            log: commitlog::Options { file_bytes: 24 << 10, spare_files: 1, ..Default::default() },
            seal_rows: 60,
            seal_bytes: 1 << 20,
            log_files_max: 3,
            // Most steps leave rows for the next.
            step_rows: 1 + rng.below(80) as usize,
            ..Options::default()
        };
        let engine = Engine::open_stepped(machine.env(), Path::new(DIR), options)?;
        let materializer = (trial.make)();
        engine.register(materializer.clone())?;
        Ok(ProcessRun {
            trial,
            machine,
            engine,
            materializer,
            newest: None,
            held: VecDeque::new(),
            published: 0,
        })
    }

    fn live(&mut self, rng: &mut Rng, is_last: bool) -> Result<()> {
        self.create();
        for _ in 0..60 + rng.below(200) {
            self.random_step(rng);
            if self.machine.disk.is_dead() {
                return Err(types::Error::internal("the machine died"));
            }
            self.check_position(rng)?;
        }
        if is_last {
            self.catch_up(rng)?;
            self.newest = None;
            self.check_position(rng)?;
            self.check_files()?;
        }
        Ok(())
    }

    fn random_step(&mut self, rng: &mut Rng) {
        let name = self.trial.table.name.clone();
        match rng.below(100) {
            0..=23 => {
                let count = 1 + rng.below(9) as usize;
                let mode = if self.trial.table.is_keyed() { Mode::Upsert } else { Mode::Append };
                let batch = (self.trial.rows)(rng, count);
                self.submit(Transaction::insert(&name, batch, mode));
            }
            24..=31 => {
                let last = self.engine.root().table(&name).map_or(1, |table| table.next_row().0);
                let rows = (0..1 + rng.below(4)).map(|_| RowId(1 + rng.below(last.max(1)))).collect();
                let delete = Op::Delete { table: name, rows, must_exist: false };
                self.submit(Transaction::new(vec![delete]));
            }
            32 => {
                self.submit(Transaction::new(vec![Op::DropTable { table: name, if_exists: true }]));
                if rng.below(2) == 0 {
                    self.create();
                }
            }
            33..=34 => self.create(),
            35..=50 => drop(self.engine.step(Step::Commit)),
            51..=66 => drop(self.engine.step(Step::Sync)),
            67..=75 => self.machine.clock.advance(Duration::from_millis(rng.below(20_000))),
            _ => drop(self.engine.step(Step::Background)),
        }
    }

    fn create(&self) {
        let create = Op::CreateTable { def: self.trial.table.clone(), if_absent: true };
        self.submit(Transaction::new(vec![create]));
    }

    fn submit(&self, transaction: Transaction) {
        // A dying machine refuses it; the outcome shows in the root.
        self.engine.submit(&Principal::local(), transaction, |_| ());
    }

    fn position<'r>(&self, root: &'r DatabaseRoot) -> Option<(&'r Arc<Snapshot>, &'r Arc<Position>)> {
        let table = root.table(&self.trial.table.name)?;
        Some((table, root.derived(self.materializer.name(), table.def().id)?))
    }

    /// Compares a new position with a build from nothing, then lets the materializer clean up as the pool does.
    fn check_position(&mut self, rng: &mut Rng) -> Result<()> {
        let root = self.engine.root();
        let Some((table, position)) = self.position(&root) else { return Ok(()) };
        if self.newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, position)) {
            return Ok(());
        }
        self.newest = Some(position.clone());
        self.published += 1;
        let observe = self.trial.observe;
        let found = observe(table, position)?;
        let expected = observe(table, &self.trial.fresh(table))?;
        assert_eq!(found, expected, "{position:?} of a table at lsn {}", table.lsn());
        if self.trial.keeps_old_positions && rng.below(2) == 0 {
            self.held.push_back((table.clone(), position.clone(), found));
        }
        if rng.below(2) == 0 {
            self.materializer.clean(&self.place(table.def().id), position)?;
        }
        for (table, position, expected) in &self.held {
            assert_eq!(&observe(table, position)?, expected, "S1: a reader of an older root, {position:?}");
        }
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
        }
        Ok(())
    }

    fn place(&self, table: TableId) -> MaterializerDir {
        let dir = Path::new(DIR).join("derived").join(self.materializer.name()).join(table.to_string());
        MaterializerDir { env: self.machine.env(), dir }
    }

    /// Steps until the materializer has taken in everything.
    fn catch_up(&mut self, rng: &mut Rng) -> Result<()> {
        for _ in 0..1_000 {
            while self.engine.step(Step::Commit) || self.engine.step(Step::Sync) {}
            self.check_position(rng)?;
            let root = self.engine.root();
            let Some(table) = root.table(&self.trial.table.name) else {
                self.create();
                continue;
            };
            self.engine.hurry(self.materializer.name(), table.def().id);
            if !self.engine.step(Step::Background) {
                let position = self.position(&root);
                if position.is_some_and(|(table, at)| at.checkpoint.row.next() >= table.next_row()) {
                    return Ok(());
                }
                self.machine.clock.advance(Duration::from_secs(60));
            }
        }
        Err(types::Error::new(Kind::Internal, "the materializer does not catch up"))
    }

    /// Checks that no file of a dropped table is left, since nobody reads it any more (G1).
    fn check_files(&mut self) -> Result<()> {
        self.held.clear();
        self.newest = None;
        let mut left = Vec::new();
        for _ in 0..1_000 {
            while self.engine.step(Step::Commit) || self.engine.step(Step::Sync) {}
            let root = self.engine.root();
            let id = self.position(&root).map(|(table, _)| table.def().id).expect("it was followed");
            let theirs = self.place(id).dir;
            drop(root);
            left = derived_files(self.machine, self.materializer.name())
                .into_iter()
                .filter(|file| !file.starts_with(&theirs))
                .collect();
            if left.is_empty() {
                return Ok(());
            }
            self.engine.step(Step::Background);
            self.machine.clock.advance(Duration::from_secs(1));
        }
        Err(types::Error::internal(format!("files of dropped tables are left: {left:?}")))
    }
}

fn derived_files(machine: &SimEnv, materializer: &str) -> Vec<PathBuf> {
    let dir = Path::new(DIR).join("derived").join(materializer);
    let files = machine.disk.files();
    let relative = files.iter().filter_map(|file| file.strip_prefix("/").ok());
    relative.filter(|file| file.starts_with(&dir)).map(Path::to_owned).collect()
}
