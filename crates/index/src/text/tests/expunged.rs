//! Tests of erasure: on request, deleted rows leave the pieces even if no merge would be due.

use std::time::Duration;

use engine::ErasureProgress;
use types::{Lsn, RowId};

use super::support::{Machine, batch, notes};
use crate::text::postings::ColumnPostings;
use crate::text::{Index, Query};

const SECRET: &str = "zebediah";

/// Counts the pieces that contain a word, in live or dead rows.
fn pieces_with(machine: &Machine, word: &str) -> usize {
    let index = machine.position().unwrap().published::<Index>().unwrap();
    let has = |column: &ColumnPostings| {
        let ColumnPostings::Stored { terms, .. } = column else { panic!("in a file") };
        let mut all = terms.terms().stream().unwrap();
        std::iter::from_fn(|| all.next().map(|(term, _)| term == word.as_bytes())).any(|same| same)
    };
    index.pieces.iter().filter(|view| view.piece.columns.iter().any(|of| has(&of.column))).count()
}

/// Makes three pieces, two of which contain the name of a person in a row that is then deleted. Too few rows are dead
/// for an ordinary merge.
fn pieces(machine: &Machine) -> Lsn {
    for nth in 0..3 {
        let body = |row: i64| {
            if row == 5 && nth < 2 { format!("{SECRET} was here") } else { format!("person {row}") }
        };
        let rows: Vec<_> = (0..50).map(|row| (row, None, Some(body(row)))).collect();
        machine.insert(batch(&rows));
        machine.catch_up();
    }
    assert_eq!((machine.files().len(), pieces_with(machine, SECRET)), (3, 2));
    machine.delete(machine.rows(SECRET).into_iter().map(RowId).collect());
    machine.catch_up();
    assert_eq!((machine.rows(SECRET).len(), pieces_with(machine, SECRET)), (0, 2), "a delete writes nothing");
    machine.table().lsn()
}

fn erase(machine: &Machine, lsn: Lsn, looks: usize) -> ErasureProgress {
    let erasure = machine.engine.erase(machine.table().def().id, lsn).unwrap();
    for _ in 0..looks {
        while machine.background() {}
        machine.sim.clock.advance(Duration::from_millis(200));
    }
    erasure.state()
}

#[test]
fn no_piece_has_a_word_of_a_row_that_was_erased() {
    let _limit = testkit::limit(60);
    let machine = Machine::new(1, notes());
    let lsn = pieces(&machine);
    let untouched = machine.files().into_iter().max();
    let done = erase(&machine, lsn, 20);
    assert!(done.ended.clone().is_some_and(|ended| ended.is_ok()), "{done:?}");
    assert_eq!((pieces_with(&machine, SECRET), machine.files().len()), (0, 3));
    assert!(machine.files().contains(&untouched.unwrap()), "a piece without such rows stays as it is");
    assert_eq!(machine.search(&Query::new("person")).total, 148);
    // A second erasure has nothing to do.
    let files = machine.files();
    assert!(erase(&machine, lsn, 5).ended.unwrap().is_ok());
    assert_eq!(machine.files(), files);
}

#[test]
fn a_piece_that_a_reader_holds_is_waited_for() {
    let _limit = testkit::limit(60);
    let machine = Machine::new(2, notes());
    let lsn = pieces(&machine);
    let held = machine.position().unwrap();
    let state = erase(&machine, lsn, 20);
    assert_eq!((state.ended.is_none(), state.indexes_left), (true, vec![crate::text::NAME]));
    assert_eq!(pieces_with(&machine, SECRET), 0, "later readers have the new ones");
    assert_eq!(machine.files().len(), 5);
    // The index takes in new rows meanwhile.
    machine.insert_bodies(&["ufo"]);
    erase(&machine, lsn, 20);
    assert_eq!((pieces_with(&machine, "ufo"), machine.rows("ufo").len()), (1, 1));
    drop(held);
    let state = erase(&machine, lsn, 20);
    assert!(state.ended.clone().is_some_and(|ended| ended.is_ok()), "{state:?}");
    assert_eq!(machine.files().len(), 4);
}

/// An erasure ends even if rows keep being deleted: it rewrites only the pieces that existed when it began.
#[test]
fn deletes_that_go_on_do_not_keep_it_from_ending() {
    let _limit = testkit::limit(60);
    let machine = Machine::new(3, notes());
    let lsn = pieces(&machine);
    let erasure = machine.engine.erase(machine.table().def().id, lsn).unwrap();
    let mut rounds = 0;
    while erasure.state().ended.is_none() {
        rounds += 1;
        assert!(rounds < 40, "{:?}", erasure.state());
        let some = machine.rows("person").into_iter().next().map(RowId);
        machine.delete(some.into_iter().collect());
        machine.background();
        machine.sim.clock.advance(Duration::from_millis(200));
    }
    erasure.state().ended.unwrap().unwrap();
    assert_eq!(pieces_with(&machine, SECRET), 0);
}
