//! Changing definitions: names, views, and their manifest.

use std::path::Path;

use types::{AlterAction, Kind, Principal, Scope, TableSet, ViewColumn, ViewDef, ViewRead};

use super::support::{batch, by_id, keyed, plain};
use crate::{Engine, Mode, Op, Options, Transaction};

fn open(dir: &Path) -> Engine {
    Engine::open(vfs::Env::real(), dir, Options::default()).unwrap()
}

fn commit(engine: &Engine, ops: Vec<Op>) {
    engine.commit(&Principal::local(), Transaction::new(ops)).unwrap();
}

fn refused(engine: &Engine, ops: Vec<Op>) -> Kind {
    engine.commit(&Principal::local(), Transaction::new(ops)).unwrap_err().kind()
}

fn create(def: types::TableDef) -> Op {
    Op::CreateTable { def, if_absent: false }
}

fn rename(table: &str, to: &str) -> Op {
    Op::AlterTable { table: table.into(), changes: vec![AlterAction::RenameTable { to: to.into() }] }
}

fn view(name: &str, query: &str) -> Op {
    let columns = vec![ViewColumn { from: "id".into(), name: "id".into() }];
    let view = ViewDef { name: format!("main.{name}"), query: query.into(), columns, reads: vec![] };
    Op::PutView { view, replace: true }
}

fn insert(table: &str, id: i64) -> Op {
    Op::Insert { table: table.into(), batch: batch(&[(id, id)]), mode: Mode::Append }
}

/// The format of the newest manifest.
fn manifest_version(dir: &Path) -> u32 {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_manifest = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("manifest-"))
    };
    let newest = names.filter(is_manifest).max().unwrap();
    let bytes = std::fs::read(newest).unwrap();
    u32::from_le_bytes(bytes[8..12].try_into().unwrap())
}

#[test]
fn a_table_is_known_by_its_newest_name_and_the_old_one_is_free() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(keyed("a")), create(plain("b"))]);
    commit(&engine, vec![insert("a", 1)]);
    let held = engine.root();
    assert_eq!(refused(&engine, vec![rename("a", "B")]), Kind::Exists);
    assert_eq!(refused(&engine, vec![rename("a", "polynya.a")]), Kind::Forbidden);
    assert_eq!(refused(&engine, vec![rename("a", "c"), rename("b", "C")]), Kind::Exists);
    assert_eq!(refused(&engine, vec![rename("a", "c"), insert("a", 2)]), Kind::NotFound);
    commit(&engine, vec![insert("a", 2), rename("a", "c")]);
    commit(&engine, vec![create(plain("a")), insert("a", 7)]);
    commit(&engine, vec![rename("c", "C"), insert("b", 9)]);
    for engine in [&engine, &{
        engine.close().unwrap();
        open(dir.path())
    }] {
        let root = engine.root();
        assert_eq!(by_id(root.table("main.C").unwrap()), [(1, 1), (2, 2)].into());
        assert_eq!(by_id(root.table("main.a").unwrap()), [(7, 7)].into());
        assert_eq!(root.table_count(), 3);
    }
    assert_eq!(by_id(held.table("main.a").unwrap()), [(1, 1)].into(), "S1");
}

/// Rows were written by the names of their columns, to whatever table and columns had those names by then. Values changed
/// places, or came back from a column or a table that had been dropped.
#[test]
fn what_was_read_is_not_written_to_what_has_taken_its_name() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    let local = Principal::local();
    let alter =
        |changes: Vec<AlterAction>| commit(&engine, vec![Op::AlterTable { table: "t".into(), changes }]);
    let renamed = |from: &str, to: &str| AlterAction::RenameColumn { from: from.into(), to: to.into() };
    let dropped = |name: &str| AlterAction::DropColumn { name: name.into(), if_exists: false };
    let added = |name: &str| AlterAction::AddColumn {
        name: name.into(),
        data_type: types::DataType::Int64,
        nullable: true,
        default: Some(types::Value::Int64(9)),
        if_absent: false,
    };
    let make_again = || {
        commit(&engine, vec![Op::DropTable { table: "t".into(), if_exists: true }]);
        commit(&engine, vec![create(plain("t")), insert("t", 1), insert("t", 2)]);
    };
    let update =
        |to: i64| Op::Update { table: "t".into(), old: vec![types::RowId(1)], batch: batch(&[(1, to)]) };
    let delete = || Op::Delete { table: "t".into(), rows: vec![types::RowId(1)], must_exist: false };
    let send = |view: &crate::View, op: Op| {
        let (sender, receiver) = std::sync::mpsc::channel();
        engine.submit_read(view, &local, Transaction::new(vec![op]), move |result| {
            sender.send(result.map(drop).map_err(|e| e.kind())).unwrap();
        });
        receiver.recv().unwrap()
    };
    let changes: [(&str, &dyn Fn()); 4] = [
        ("exchanged", &|| alter(vec![renamed("id", "x"), renamed("v", "id"), renamed("x", "v")])),
        ("dropped and added", &|| alter(vec![dropped("v"), added("v")])),
        ("dropped", &|| alter(vec![dropped("v")])),
        ("made again", &make_again),
    ];
    for (what, change) in changes {
        for op in [update(5), insert("t", 5), delete()] {
            make_again();
            let view = engine.view(&local).unwrap();
            change();
            let columns = |view: &crate::View| view.table("t").unwrap().def().schema.columns.len();
            let now = engine.view(&local).unwrap();
            let is_row_alone = matches!(op, Op::Delete { .. }) && what != "made again";
            let expected = if is_row_alone { Ok(()) } else { Err(Kind::Conflict) };
            let is_narrower = columns(&now) < columns(&view);
            assert_eq!(send(&view, op), expected, "{what}");
            let rows = engine.root().table("main.t").unwrap().rows();
            assert_eq!(rows, if is_row_alone { 1 } else { 2 }, "{what}");
            assert_eq!(is_narrower, what == "dropped");
        }
    }
    // A change that leaves the columns of the statement as they are does not disturb it.
    make_again();
    let view = engine.view(&local).unwrap();
    alter(vec![added("w")]);
    commit(&engine, vec![insert("t", 3)]);
    assert_eq!(send(&view, update(5)), Ok(()));
    assert_eq!(by_id(engine.root().table("main.t").unwrap()), [(1, 5), (2, 2), (3, 3)].into());
    // New rows have values for some columns; changes of the other columns do not matter to them.
    make_again();
    let view = engine.view(&local).unwrap();
    let ids = batch(&[(4, 4)]).project(&[0]).unwrap();
    let some = |mode: Mode| Op::Insert { table: "t".into(), batch: ids.clone(), mode };
    alter(vec![renamed("v", "w")]);
    assert_eq!(send(&view, some(Mode::Append)), Ok(()));
    alter(vec![dropped("w")]);
    assert_eq!(send(&view, some(Mode::Append)), Ok(()));
    assert_eq!(engine.root().table("main.t").unwrap().rows(), 4);
    alter(vec![renamed("id", "x")]);
    assert_eq!(send(&view, some(Mode::Append)), Err(Kind::Conflict));
    let past = engine.view(&local).unwrap().at(view.lsn()).unwrap();
    assert_eq!(send(&past, insert("t", 4)), Err(Kind::Invalid));
}

#[test]
fn views_are_kept_and_go() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("engine");
    let engine = open(dir.path());
    commit(&engine, vec![create(plain("t"))]);
    engine.close().unwrap();
    drop(engine);
    let engine = open(dir.path());
    commit(&engine, vec![view("v", "SELECT 1 AS id"), view("w", "SELECT 2 AS id")]);
    commit(&engine, vec![view("v", "SELECT 3 AS id")]);
    assert_eq!(refused(&engine, vec![view("T", "SELECT 1 AS id")]), Kind::Exists);
    assert_eq!(refused(&engine, vec![create(plain("W"))]), Kind::Exists);
    assert_eq!(refused(&engine, vec![rename("t", "V")]), Kind::Exists);
    assert_eq!(refused(&engine, vec![create(plain("x")), view("X", "SELECT 1 AS id")]), Kind::Exists);
    assert_eq!(refused(&engine, vec![view("x", "SELECT 1 AS id"), create(plain("X"))]), Kind::Exists);
    let names = TableSet::Only(vec!["main.w".into()]);
    let web = Principal { name: "web".into(), scope: Scope::Write, tables: names };
    let seen: Vec<String> = engine.view(&web).unwrap().views().iter().map(|v| v.name.clone()).collect();
    assert_eq!(seen, ["main.w"]);
    let hidden = Transaction::new(vec![Op::DropView { name: "v".into(), if_exists: false }]);
    assert_eq!(engine.commit(&web, hidden).unwrap_err().kind(), Kind::NotFound);
    let shown = |engine: &Engine| -> Vec<(String, String)> {
        engine.root().views().map(|v| (v.name.clone(), v.query.clone())).collect()
    };
    let expected = [("main.v", "SELECT 3 AS id"), ("main.w", "SELECT 2 AS id")];
    let expected = expected.map(|(name, query)| (name.to_owned(), query.to_owned()));
    assert_eq!(shown(&engine), expected);
    engine.close().unwrap();
    drop(engine);
    assert_eq!(manifest_version(dir.path()), 3);
    let mut engine = open(dir.path());
    assert_eq!(shown(&engine), expected);
    // A view that names the tables it reads makes a manifest that older programs refuse; views beside it may lack that.
    let id = engine.root().table("main.t").unwrap().def().id;
    let mut reading = view("r", "SELECT id FROM main.t");
    let columns = vec![(types::ColumnId(16), "id".to_owned())];
    let reads = vec![ViewRead { table: id, name: "main.t".into(), columns }];
    let Op::PutView { view: def, .. } = &mut reading else { unreachable!() };
    def.reads.clone_from(&reads);
    commit(&engine, vec![reading]);
    let all_reads = |engine: &Engine| -> Vec<Vec<ViewRead>> {
        engine.root().views().map(|view| view.reads.clone()).collect()
    };
    // Read from memory, from the manifest, and from the manifest written after that.
    for _ in 0..3 {
        assert_eq!(all_reads(&engine), [reads.clone(), vec![], vec![]]);
        engine.close().unwrap();
        drop(engine);
        assert_eq!(manifest_version(dir.path()), 5);
        engine = open(dir.path());
    }
    commit(&engine, vec![Op::DropView { name: "r".into(), if_exists: false }]);
    let drop_view = |name: &str| Op::DropView { name: name.into(), if_exists: false };
    commit(&engine, vec![drop_view("V"), drop_view("w")]);
    engine.close().unwrap();
    drop(engine);
    assert!(shown(&open(dir.path())).is_empty());
}
