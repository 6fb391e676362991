//! What a statement that writes answers when its commit, its deadline and its memory meet.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use query::{Answer, Limits};
use types::Kind;
use vfs::{Access, Disk, Entry, Env, File, Lock};

use crate::database::{Database, open_engine, open_on, open_with};

/// A disk on which a sync can take its time.
#[derive(Debug)]
struct Slow {
    disk: Arc<dyn Disk>,
    slow: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    slow: Arc<AtomicBool>,
}

const SYNC_TAKES: Duration = Duration::from_millis(1_500);

impl Slow {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { file, slow: self.slow.clone() })
    }
}

impl Disk for Slow {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.create(path).map(|file| self.file(file))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, access).map(|file| self.file(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}

impl File for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_at(parts, offset)
    }
    fn sync(&self) -> io::Result<()> {
        if self.slow.load(Ordering::Relaxed) {
            std::thread::sleep(SYNC_TAKES);
        }
        self.file.sync()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn map(&self) -> io::Result<bytes::Bytes> {
        self.file.map()
    }
}

/// The deadline also ran while the commit was on its way: an answer `timeout` hid that the row was stored.
#[test]
fn a_statement_that_was_handed_over_answers_with_its_outcome_not_with_a_timeout() {
    let _limit = testkit::limit(120);
    let real = Env::real();
    let slow = Arc::new(AtomicBool::new(false));
    let env = Env { disk: Arc::new(Slow { disk: real.disk.clone(), slow: slow.clone() }), ..real };
    let database = open_on(env, engine::Options::default(), |_| ());
    database.execute("create table t (id bigint)");
    slow.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let limits = Limits { deadline: Some(Duration::from_millis(300)), ..Limits::default() };
    let answer = database.run("insert into t values (1)", vec![], limits);
    assert!(start.elapsed() > Duration::from_millis(300), "the disk was not slow");
    assert!(matches!(answer, Ok(Answer::Done(done)) if done.count == 1), "{answer:?}");
    slow.store(false, Ordering::Relaxed);
    assert_eq!(database.query("select count(*) from t"), [["1"]]);
}

fn copy(database: &Database) -> Result<Answer, types::Error> {
    database.run("insert into target select id, repeat(kind, 20), x from n", vec![], Limits::default())
}

/// What a statement collected before it wrote was counted nowhere: a few at once took more than SQL has.
#[test]
fn rows_to_be_written_count_towards_the_memory_of_all_statements() {
    let _limit = testkit::limit(120);
    let prepare = |database: &Database| {
        database.numbers("n", 100_000, false);
        database.execute("create table target (id bigint, kind text, x bigint)");
    };
    // About 14 MB of rows, and once more while they are put together.
    let small = open_with(|options| options.memory_bytes = 8 << 20);
    prepare(&small);
    let error = copy(&small).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    assert_eq!(small.sql.status().memory_bytes, 0);
    assert_eq!(small.query("select count(*) from target"), [["0"]]);

    let large = open_engine(engine::Options::default(), |options| options.memory_bytes = 128 << 20);
    prepare(&large);
    assert!(matches!(copy(&large).unwrap(), Answer::Done(done) if done.count == 100_000));
    assert_eq!(large.sql.status().memory_bytes, 0, "it is given back with the commit");
}
