//! Tests of backups in an object store: calls that fail, responses that are lost, a store that becomes unavailable for good.
//! The result is a complete backup or none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use engine::backup::{self, BackupSource, BackupStore, RestoreSources, SourceFile};
use engine::{Engine, Mode, Op, Step, Transaction};
use sim::{Rng, SimEnv};
use types::{DataType, Error, Kind, Principal, Result, TableDef, TableId};
use vfs::{Entry, Env};

use super::evicted::{compare, filled};
use super::remote::{CallFault, Flaky, options_in};
use super::support::materializer;
use crate::objects::{Objects, Purpose};

const ROWS: i64 = 600;

/// The program's own source and target of backups, without its retries.
#[derive(Debug)]
struct Remote(Objects);

impl BackupSource for Remote {
    fn display_name(&self, name: &str) -> String {
        self.0.uri_of(name)
    }

    fn open(&self, name: &str) -> Result<SourceFile<'_>> {
        let len = self.0.len(name)?.ok_or_else(|| Error::not_found("there is no such object"))?;
        let name = name.to_owned();
        let read_at = move |buffer: &mut [u8], offset: u64| self.0.read_at(&name, buffer, offset);
        Ok(SourceFile { len, block_bytes: 4_000, read_at: Box::new(read_at) })
    }

    fn is_begun(&self) -> Result<bool> {
        self.0.is_marked()
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>> {
        let found = self.0.list(dir)?;
        Ok(found.into_iter().map(|o| Entry { name: o.name, len: o.bytes, is_dir: o.is_dir }).collect())
    }
}

impl BackupStore for Remote {
    fn claim(&self, env: &Env) -> Result<()> {
        self.0.ensure_usable(env)
    }

    fn is_claim_file(&self, name: &str) -> bool {
        self.0.is_own(name)
    }

    fn put(&self, name: &str, next: &mut dyn FnMut() -> Result<Option<Vec<u8>>>) -> Result<()> {
        self.0.put_blocks(name, next)
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.0.put_if_absent(name, bytes.to_vec().into())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
}

fn remote(store: &Arc<Flaky>, owner: &str) -> Remote {
    let uri = "s3://bucket/monday".to_owned();
    let objects = Objects::new(store.clone(), "monday", uri, Duration::from_secs(10), owner).unwrap();
    Remote(objects.used_for(Purpose::Backup))
}

/// Returns a database with a segment and a head.
fn database(machine: &SimEnv) -> Engine {
    let options = engine::Options { seal_rows: 400, ..engine::Options::default() };
    let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("n", &DataType::Int64, false, None).unwrap();
    def.add_column("text", &DataType::String, true, None).unwrap();
    let commit = |op| {
        engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| assert!(result.is_ok()));
        while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
    };
    commit(Op::CreateTable { def, if_absent: false });
    for from in (0..ROWS).step_by(200) {
        let numbers = Int64Array::from_iter_values(from..from + 200);
        let texts = StringArray::from_iter_values((from..from + 200).map(|n| format!("row {n}")));
        let columns: [(&str, arrow::array::ArrayRef, bool); 2] =
            [("n", Arc::new(numbers), false), ("text", Arc::new(texts), true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        commit(Op::Insert { table: "main.t".into(), batch, mode: Mode::Append });
    }
    engine
}

fn send(engine: &Engine, remote: &Remote) -> Result<backup::SentBackup> {
    engine.send_backup(remote, &mut |_| Ok(()))
}

fn rows_restored(store: &Arc<Flaky>) -> Result<u64> {
    let machine = SimEnv::new(1);
    let (env, dest) = (machine.env(), Path::new("restored"));
    let from = RestoreSources { backup: &remote(store, ""), archive: None };
    backup::restore_from(&env, from, dest, None, &mut |_| Ok(()))?;
    let opened = Engine::open_stepped(env, dest, engine::Options::default())?;
    Ok(opened.root().table("main.t").map_or(0, |table| table.rows()))
}

#[test]
fn an_object_store_that_fails_at_any_call_holds_a_whole_backup_or_none() {
    let _limit = testkit::limit(600);
    let machine = SimEnv::new(1);
    let engine = database(&machine);
    let whole = Arc::new(Flaky::default());
    let sent = send(&engine, &remote(&whole, "ours")).unwrap();
    assert_eq!((sent.backup.rows, rows_restored(&whole).unwrap()), (600, 600));
    let counted = Arc::new(Flaky::default());
    send(&engine, &remote(&counted, "ours")).unwrap();
    let calls = counted.calls.load(Ordering::Relaxed);
    assert!(calls > 20, "{calls}");
    let mut found = 0;
    for call in 1..=calls {
        for (is_done, ends) in [(false, false), (true, false), (false, true), (true, true)] {
            let what = format!("call {call} of {calls}, done: {is_done}, ends: {ends}");
            let store = Arc::new(Flaky::default());
            store.fail(CallFault { call, is_done, ends });
            let outcome = send(&engine, &remote(&store, "ours"));
            store.works_again();
            assert!(ends || outcome.is_ok(), "{what}: {:?}", outcome.err());
            let is_whole = match rows_restored(&store) {
                Ok(rows) => {
                    assert_eq!(rows, 600, "{what}");
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::NotFound, "{what}: {error}");
                    false
                }
            };
            assert!(is_whole || outcome.is_err(), "{what}");
            match send(&engine, &remote(&store, "ours")) {
                Ok(sent) => {
                    assert!(!is_whole, "{what}");
                    found += sent.found_files;
                    assert_eq!(rows_restored(&store).unwrap(), 600, "{what}");
                }
                Err(error) => assert!(is_whole && error.kind() == Kind::Exists, "{what}: {error}"),
            }
        }
    }
    assert!(found > 0, "nothing was found again");
}

#[test]
fn a_prefix_belongs_to_one_backup_of_one_database() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(2);
    let engine = database(&machine);
    let store = Arc::new(Flaky::default());
    // The store fails before the backup is complete.
    store.fail(CallFault { call: 12, is_done: true, ends: true });
    send(&engine, &remote(&store, "ours")).unwrap_err();
    store.works_again();
    let error = send(&engine, &remote(&store, "theirs")).unwrap_err();
    assert_eq!(error.kind(), Kind::InUse, "{error}");
    assert!(error.message().contains("a backup of another database was begun"), "{error}");
    let error = rows_restored(&store).unwrap_err();
    assert!(error.to_string().contains("begun there and not finished"), "{error}");
    send(&engine, &remote(&store, "ours")).unwrap();
    let error = send(&engine, &remote(&store, "theirs")).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists, "{error}");
    // A warehouse cannot hold a backup, nor a backup's prefix the tables of a warehouse.
    let uri = "s3://bucket/lake".to_owned();
    let lake = Objects::new(store.clone(), "lake", uri.clone(), Duration::from_secs(10), "ours").unwrap();
    lake.ensure_usable(&Env::real()).unwrap();
    let error = send(&engine, &Remote(lake.used_for(Purpose::Backup))).unwrap_err();
    assert!(error.message().contains("s3://bucket/lake is not empty: `polynya-"), "{error}");
}

/// An evicted segment has only its sidecar here. A backup looked for its rows and failed.
#[test]
fn every_backup_lists_the_evicted_rows_that_it_lacks() {
    let _limit = testkit::limit(120);
    let (machine, warehouse) = (SimEnv::new(4), Arc::new(Flaky::default()));
    let life = filled(&machine, options_in(&warehouse), 0, 5);
    let [table, kept] = life.tables().unwrap();
    let (away, hot_from) = (table.evicted().0, table.hot_from());
    assert!(away > 100, "{away} of {}", table.rows());
    let place = table.lake_place().unwrap();
    let needs =
        vec![format!("table t: {away} rows up to row id {} are only in the lake: {place}", hot_from.0 - 1)];

    let store = Arc::new(Flaky::default());
    let sent = send(&life.engine, &remote(&store, "ours")).unwrap();
    let (env, folder) = (machine.env(), Path::new("folder"));
    life.engine.backup(folder, &mut |_| Ok(())).unwrap();
    let away_from_here = remote(&store, "");
    let here = backup::LocalFolder::new(&env, folder);
    for (from, format, dest) in [
        (&here as &dyn BackupSource, "polynya backup 2\n", "again"),
        (&away_from_here as &dyn BackupSource, "polynya backup 3\n", "far"),
    ] {
        let opened = from.open("BACKUP").unwrap();
        let mut head = vec![0; format.len()];
        (opened.read_at)(&mut head, 0).unwrap();
        assert_eq!(String::from_utf8(head).unwrap(), format);
        let dest = Path::new(dest);
        let from = RestoreSources { backup: from, archive: None };
        let restored = backup::restore_from(&env, from, dest, None, &mut |_| Ok(())).unwrap();
        assert_eq!((restored.rows, &restored.lacks), (sent.backup.rows, &needs));

        // The local rows are read without the lake, and all rows with the lake in its former state.
        let again = Engine::open_stepped(machine.env(), dest, engine::Options::default()).unwrap();
        let root = again.root();
        let [table, kept] = ["main.t", "main.kept"].map(|name| root.table(name).unwrap());
        assert_eq!((table.rows(), table.hot_from()), (kept.rows(), hot_from));
        let rows = table.scan_from(hot_from, usize::MAX, table.all_columns()).unwrap();
        assert_eq!(rows.num_rows() as u64, table.rows() - away);
        table.scan_from(types::RowId(1), 1, table.all_columns()).unwrap_err();
        again.register(materializer(options_in(&warehouse))).unwrap();
        while again.step(Step::Background) | again.step(Step::Commit) | again.step(Step::Sync) {}
        let root = again.root();
        let [table, kept] = ["main.t", "main.kept"].map(|name| root.table(name).unwrap());
        compare(table, kept, &mut Rng::new(5)).unwrap();
    }
    compare(&table, &kept, &mut Rng::new(5)).unwrap();
}

/// The list of rows in the lake is only for people: no row depends on it.
#[test]
fn a_backup_without_its_list_of_evicted_rows_is_restored_with_a_note() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(4);
    let life = filled(&machine, options_in(&Arc::new(Flaky::default())), 0, 3);
    assert!(life.tables().unwrap()[0].has_evicted());
    let store = Arc::new(Flaky::default());
    send(&life.engine, &remote(&store, "ours")).unwrap();
    let place = remote(&store, "ours");
    let name =
        place.list("").unwrap().into_iter().find(|entry| entry.name.starts_with("LAKE.")).unwrap().name;
    let change: [&dyn Fn(); 2] =
        [&|| place.put(&name, &mut parts(b"another")).unwrap(), &|| place.remove(&name).unwrap()];
    for (at, change) in change.into_iter().enumerate() {
        change();
        let dest = format!("restored-{at}");
        let from = RestoreSources { backup: &place, archive: None };
        let restored =
            backup::restore_from(&machine.env(), from, Path::new(&dest), None, &mut |_| Ok(())).unwrap();
        assert_eq!(restored.rows, life.tables().unwrap().iter().map(|table| table.rows()).sum::<u64>());
        let [lacks] = &restored.lacks[..] else { panic!("{:?}", restored.lacks) };
        assert!(lacks.contains("their list cannot be read"), "{lacks}");
    }
}

/// Returns the blocks of a file of one block.
fn parts(bytes: &[u8]) -> impl FnMut() -> Result<Option<Vec<u8>>> {
    let mut left = Some(bytes.to_vec());
    move || Ok(left.take())
}
