//! Tests of indexes that are added to and dropped from a table, and of writers that are faster than an index.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Engine, MaterializerPhase, Mode as Write, Op, Transaction};
use types::{Error, Kind, NewIndex, Principal};

use super::support::{Machine, batch, notes};
use crate::text::{self, Query, Scanner};

fn unindexed() -> types::TableDef {
    let mut def = notes();
    def.indexes.clear();
    def
}

fn over(columns: &[&str], language: &str) -> NewIndex {
    NewIndex {
        name: "words".into(),
        kind: "text".into(),
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        options: vec![("language".into(), language.into())],
        unique: false,
    }
}

fn alter(drop: &[&str], add: &[NewIndex]) -> Op {
    let drop = drop.iter().map(|name| (*name).to_owned()).collect();
    Op::AlterIndexes { table: "notes".into(), drop, add: add.to_vec() }
}

/// Submits an operation and returns its result.
fn outcome(engine: &Engine, op: Op) -> Result<(), Error> {
    let seen = Arc::new(Mutex::new(None));
    let noted = seen.clone();
    engine.submit(&Principal::local(), Transaction::new(vec![op]), move |done| {
        *noted.lock().unwrap() = Some(done.map(drop));
    });
    while engine.step(engine::Step::Commit) || engine.step(engine::Step::Sync) {}
    let outcome = seen.lock().unwrap().take();
    outcome.expect("it was answered")
}

#[test]
fn an_index_is_added_to_a_table_with_rows_changed_and_dropped() {
    let machine = Machine::new(1, unindexed());
    machine.insert_bodies(&["rivers run", "a stone", "the river bank"]);
    assert_eq!(machine.text.searcher(&machine.table(), None).err().unwrap().kind(), Kind::NotFound);

    machine.write(alter(&[], &[over(&["body"], "english")]));
    assert_eq!(machine.rows("river"), [1, 3], "before anything was built");
    machine.catch_up();
    assert_eq!(machine.rows("river"), [1, 3]);
    let files = machine.files();
    assert!(!files.is_empty());

    // Another language makes other terms. The old index is not used even for a moment.
    machine.write(alter(&["words"], &[over(&["body"], "none")]));
    assert_eq!(machine.rows("river"), [3]);
    machine.catch_up();
    assert_eq!(machine.rows("river"), [3]);
    machine.insert_bodies(&["river"]);
    assert_eq!(machine.rows("river"), [4, 3]);

    machine.write(alter(&["words"], &[]));
    assert!(machine.position().is_none(), "nothing is derived any more");
    assert!(machine.engine.materializer_progress(&machine.table()).is_empty());
    while machine.background() {}
    let place = machine.files_of(text::NAME);
    assert!(place.is_empty(), "its files are gone: {place:?}");

    machine.write(alter(&[], &[over(&["title", "body"], "english")]));
    machine.catch_up();
    assert_eq!(machine.rows("river"), [4, 1, 3]);
}

#[test]
fn an_index_that_is_dropped_and_added_again_at_once_keeps_its_new_files() {
    let machine = Machine::new(2, notes());
    machine.insert_bodies(&["one river", "two rivers"]);
    machine.catch_up();
    let held = machine.position();
    machine.write(alter(&["words"], &[]));
    machine.write(alter(&[], &[over(&["body"], "english")]));
    machine.catch_up();
    drop(held);
    while machine.background() {}
    machine.clean();
    assert_eq!(machine.rows("river").len(), 2);
    let named = machine.position().unwrap().published::<text::Index>().unwrap().pieces().len();
    assert_eq!(machine.files().len(), named, "no more files than the index names");
}

#[test]
fn a_definition_that_no_index_can_follow_is_refused_with_a_reason() {
    let machine = Machine::new(3, unindexed());
    for (index, part) in [
        (over(&["id"], "english"), "column `id` is not a string, but int64"),
        (over(&["body"], "klingon"), "no such language"),
        (over(&["bodi"], "english"), "not a column of the table"),
        (NewIndex { options: vec![("stem".into(), "1".into())], ..over(&["body"], "") }, "no option `stem`"),
        (
            NewIndex { options: vec![("weights".into(), "1,2".into())], ..over(&["body"], "") },
            "one weight for each",
        ),
        (NewIndex { kind: "vector".into(), ..over(&["body"], "") }, "no index of kind `vector`"),
    ] {
        let error = outcome(&machine.engine, alter(&[], &[index])).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = outcome(&machine.engine, alter(&["words"], &[])).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(machine.table().def().indexes.is_empty());
    let mut wrong = unindexed();
    wrong.name = "main.other".into();
    wrong.indexes = notes().indexes;
    wrong.indexes[0].columns = vec![types::ColumnId(16)];
    let error = outcome(&machine.engine, Op::CreateTable { def: wrong, if_absent: false }).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "a table is not made with it either");
}

#[test]
fn writers_wait_for_an_index_that_falls_behind_and_not_for_one_that_is_first_built() {
    let _limit = testkit::limit(300);
    let machine = Machine::new(4, unindexed());
    let rows: Vec<_> = (0..10_000).map(|i| (i, None, Some("river".to_owned()))).collect();
    let rows = batch(&rows);
    let insert = || Op::Insert { table: "notes".into(), batch: rows.clone(), mode: Write::Append };
    (0..7).for_each(|_| machine.write(insert()));
    machine.write(alter(&[], &[over(&["body"], "english")]));
    let pace = || machine.engine.pace_of("notes");
    let state = || machine.engine.materializer_progress(&machine.table())[0].state;
    assert_eq!((state(), pace()), (MaterializerPhase::Building, Duration::ZERO));
    machine.write(insert());

    machine.catch_up();
    assert_eq!((state(), pace()), (MaterializerPhase::Following, Duration::ZERO));
    (0..2).for_each(|_| machine.write(insert()));
    assert_eq!(pace(), Duration::ZERO, "a reader takes that in");
    (0..2).for_each(|_| machine.write(insert()));
    assert!(pace() > Duration::from_millis(100), "{:?}", pace());
    assert_eq!(machine.engine.pace_of("other"), Duration::ZERO, "only this table's writers wait");
    machine.write(insert());
    let error = outcome(&machine.engine, insert()).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert_eq!(machine.search(&Query::new("river")).total, 130_000, "readers see everything meanwhile");
    machine.catch_up();
    assert_eq!(pace(), Duration::ZERO);
    machine.write(insert());
}

#[test]
fn a_scan_finds_what_an_index_with_default_options_finds() {
    let _limit = testkit::limit(120);
    use super::support::{QUERIES, random_rows};
    testkit::for_each_seed(20, |seed| {
        let mut rng = sim::Rng::new(seed);
        let machine = Machine::new(seed, notes());
        machine.insert(random_rows(&mut rng, 60, 1_000));
        let last = machine.table().next_row().0;
        machine.delete((1..last).filter(|row| row % 7 == 0).map(types::RowId).collect());
        let table = machine.table();
        let scanner = Scanner::new(table.def(), &[]).unwrap();
        let searcher = machine.text.searcher(&table, None).unwrap();
        for text in QUERIES {
            for mode in [text::Mode::Any, text::Mode::All] {
                let query = Query { mode, limit: 1_000, ..Query::new(text) };
                let rows = |hits: text::Hits| {
                    let mut rows: Vec<_> = hits.hits.iter().map(|hit| hit.row).collect();
                    rows.sort();
                    (rows, hits.total)
                };
                let expected = rows(searcher.search(&query).unwrap());
                assert_eq!(rows(scanner.search(&table, &query).unwrap()), expected, "{text}");
            }
        }
    });
}

#[test]
fn a_reader_who_may_see_some_rows_gets_the_answer_of_a_table_with_these_alone() {
    let _limit = testkit::limit(120);
    use super::support::{QUERIES, random_rows};
    testkit::for_each_seed(20, |seed| {
        let mut rng = sim::Rng::new(seed);
        let machine = Machine::new(seed, notes());
        machine.insert(random_rows(&mut rng, 60, 1_000));
        machine.catch_up();
        machine.insert(random_rows(&mut rng, 10, 1_000));
        let table = machine.table();
        let some = machine.text.searcher(&table, machine.position().as_deref()).unwrap();
        let some = some.restricted_to(&|row| row.0 % 3 != 0);
        machine.delete((1..table.next_row().0).filter(|row| row % 3 == 0).map(types::RowId).collect());
        let alone = machine.text.searcher(&machine.table(), None).unwrap();
        for text in QUERIES {
            let query = Query { limit: 1_000, ..Query::new(text) };
            assert_eq!(some.search(&query).unwrap(), alone.search(&query).unwrap(), "{text}");
        }
    });
}
