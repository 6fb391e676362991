//! Test of R1: a disk whose syncs hang blocks the writer and the materializer, but no search.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use engine::{Engine, Mode, Op, Options, Transaction};
use types::Principal;
use vfs::{Access, Disk, Entry, Env, File, Lock};

use super::support::{batch, notes};
use crate::text::{self, Query, TextMaterializer};

#[derive(Debug, Default)]
struct State {
    /// Substrings of paths: syncs of files with such a path hang.
    parts: Vec<&'static str>,
    /// Number of threads that hang in such syncs.
    stuck: usize,
}

/// Blocks syncs of chosen files until it is opened.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap()
    }

    /// Makes syncs of files whose path contains `part` hang until [`Gate::open`].
    fn close(&self, part: &'static str) {
        self.state().parts.push(part);
    }

    fn open(&self) {
        self.state().parts.clear();
        self.changed.notify_all();
    }

    fn wait_until_stuck(&self, count: usize) {
        let mut state = self.state();
        while state.stuck < count {
            state = self.wait(state);
        }
    }

    fn pass(&self, path: &Path) {
        let mut state = self.state();
        let path = path.to_string_lossy();
        let is_shut = |state: &State| state.parts.iter().any(|part| path.contains(part));
        if is_shut(&state) {
            state.stuck += 1;
            self.changed.notify_all();
            while is_shut(&state) {
                state = self.wait(state);
            }
            state.stuck -= 1;
        }
    }
}

#[derive(Debug)]
struct Gated(Arc<dyn Disk>, Arc<Gate>);

#[derive(Debug)]
struct GatedFile(Arc<dyn File>, Arc<Gate>, std::path::PathBuf);

impl Gated {
    fn file(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile(file, self.1.clone(), path.to_owned()))
    }
}

impl Disk for Gated {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.0.create(path).map(|file| self.file(path, file))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.0.open(path, access).map(|file| self.file(path, file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.0.lock(path)
    }
}

impl File for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_at(parts, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.pass(&self.2);
        self.0.sync()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn map(&self) -> io::Result<bytes::Bytes> {
        self.0.map()
    }
}

#[test]
fn searches_answer_while_the_log_and_a_step_of_the_index_are_stuck_in_the_disk() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("text-stuck");
    let gate = Arc::<Gate>::default();
    let real = Env::real();
    let env = Env { disk: Arc::new(Gated(real.disk.clone(), gate.clone())), ..real };
    let engine = Engine::open(env, dir.path(), Options::default()).unwrap();
    let index = TextMaterializer::new();
    engine.register(index.clone()).unwrap();
    let me = Principal::local();
    engine.commit(&me, Transaction::new(vec![Op::CreateTable { def: notes(), if_absent: false }])).unwrap();
    let rows = || batch(&(0..2_500).map(|id| (id, None, Some(format!("heron {id}")))).collect::<Vec<_>>());
    let insert = || Transaction::insert("notes", rows(), Mode::Append);
    let searcher = || {
        let _reading = vfs::read_path();
        let root = engine.root();
        let table = root.table("main.notes").unwrap();
        let position = root.derived(text::NAME, table.def().id);
        index.searcher(table, position.map(|position| &**position)).unwrap()
    };
    engine.commit(&me, insert()).unwrap();
    while searcher().tail_rows() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }

    gate.close("/derived/");
    engine.commit(&me, insert()).unwrap();
    gate.wait_until_stuck(1);
    gate.close("/log/");
    engine.submit(&me, insert(), |_| ());
    gate.wait_until_stuck(2);
    for n in 0..300 {
        let searcher = searcher();
        let total = |text: &str| {
            let query = Query { limit: 3, count_max: u64::MAX, ..Query::new(text) };
            searcher.search(&query).unwrap().total
        };
        assert_eq!(total("herons"), 5_000, "what was acknowledged, and no more");
        assert_eq!(total(&format!("+heron +{n}")), 2);
    }
    gate.open();
    while searcher().rows() < 7_500 || searcher().tail_rows() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    engine.close().unwrap();
}
