//! Tests of M1 and M2: the answers are those of a fresh index, however the rows are divided into pieces and tail.

use std::sync::Arc;

use engine::contract::ContractTest;
use table::materializer::Materializer;

use super::support::{Machine, batch, built, carry_on, keyed, notes, observe, random_rows};
use crate::text::{Index, Query, TextMaterializer};

#[test]
fn an_index_killed_at_any_step_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(600);
    for table in [keyed(), notes()] {
        let make = || -> Arc<dyn Materializer> { TextMaterializer::new() };
        ContractTest {
            make: &make,
            table,
            rows: &|rng, count| random_rows(rng, count, 60),
            observe: &|table, position| observe(&TextMaterializer::new(), table, Some(position)),
            keeps_old_positions: true,
        }
        .run(testkit::seeds(25));
    }
}

/// Compares scores bit by bit, although only 1e-5 is promised.
#[test]
fn index_and_tail_answer_as_a_fresh_index_on_random_rows_deletes_and_positions() {
    let _limit = testkit::limit(600);
    testkit::for_each_seed(12, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let machine = Machine::new(seed, if seed % 2 == 0 { keyed() } else { notes() });
        let shared = &machine.text;
        let mut carried: Option<(table::materializer::MaterializerDir, _)> = None;
        let mut held = Vec::new();
        for round in 0..25 {
            let most = if rng.below(4) == 0 { 400 } else { 12 };
            let count = 1 + rng.below(most);
            machine.insert(random_rows(&mut rng, count as usize, 500));
            let last = machine.table().next_row().0;
            let rows = (0..rng.below(1 + count / 2)).map(|_| types::RowId(1 + rng.below(last))).collect();
            machine.delete(rows);
            let table = machine.table();
            let (rows, steps) = (1 + rng.below(300) as usize, rng.below(4) as usize);
            carried = Some(match carried {
                None => built(shared, &table, rows, steps),
                Some((place, from)) => {
                    let position = carry_on(shared, &place, &table, from, rows, steps);
                    (place, position)
                }
            });
            let position = carried.as_ref().and_then(|(_, position)| position.clone());
            let expected = observe(&TextMaterializer::new(), &table, None).unwrap();
            let found = observe(shared, &table, position.as_deref()).unwrap();
            assert_eq!(found, expected, "round {round} at {position:?}");
            held.push((table, position, expected));
            // A reader of an older root still gets the same answers, whatever came since.
            let (table, position, expected) = &held[rng.below(held.len() as u64) as usize];
            assert_eq!(&observe(shared, table, position.as_deref()).unwrap(), expected);
        }
    });
}

#[test]
fn scores_do_not_depend_on_how_many_rows_are_answered_or_counted() {
    let _limit = testkit::limit(120);
    let machine = Machine::new(3, notes());
    let mut rng = testkit::Rng::new(9);
    (0..12).for_each(|_| machine.insert(random_rows(&mut rng, 300, u64::MAX >> 1)));
    let (_, position) = built(&machine.text, &machine.table(), 700, 4);
    let searcher = machine.text.searcher(&machine.table(), position.as_deref()).unwrap();
    for text in ["the river of stones", "a brücke", "river river* bank \"the river\" running"] {
        let all = searcher.search(&Query { limit: 10_000, ..Query::new(text) }).unwrap();
        assert!(all.exact && all.total == all.hits.len() as u64);
        for (limit, offset, count_max) in [(5, 0, 0), (10, 3, 100), (1, 0, 1), (50, 20, 0), (0, 0, 50)] {
            let some = searcher.search(&Query { limit, offset, count_max, ..Query::new(text) }).unwrap();
            assert_eq!(some.hits, all.hits[offset..offset + limit], "{text}");
            assert!(some.total <= all.total && (!some.exact || some.total == all.total), "{some:?}");
        }
    }
    let rows = searcher.search(&Query { limit: 500, ..Query::new("the") }).unwrap().hits;
    assert!(rows.is_sorted_by(|a, b| (b.score, a.row) <= (a.score, b.row)), "equal scores come by row id");
}

#[test]
fn rows_are_found_as_soon_as_they_are_committed_and_no_longer_once_deleted() {
    let machine = Machine::new(1, notes());
    assert_eq!(machine.rows("heron"), [0u64; 0]);
    machine.insert_bodies(&["a heron", "two herons", "no bird"]);
    assert_eq!(machine.rows("heron"), [1, 2]);
    machine.catch_up();
    assert_eq!(machine.rows("heron"), [1, 2]);
    machine.insert_bodies(&["heron heron heron"]);
    assert_eq!(machine.rows("heron"), [4, 1, 2]);
    machine.delete(vec![types::RowId(1), types::RowId(4)]);
    assert_eq!(machine.rows("heron"), [2]);
    machine.catch_up();
    assert_eq!(machine.rows("heron"), [2]);
}

#[test]
fn dead_rows_leave_the_index_when_there_are_many() {
    let _limit = testkit::limit(60);
    let machine = Machine::new(1, keyed());
    let rows =
        |text: &str| -> Vec<_> { (0..200).map(|id| (id, None, Some(format!("{text} {id}")))).collect() };
    for round in 0..20 {
        machine.insert(batch(&rows(&format!("round {round}"))));
        machine.catch_up();
    }
    let position = machine.position().unwrap();
    let pieces = position.published::<Index>().unwrap().pieces();
    let dead: u64 = pieces.iter().map(|piece| piece.dead).sum();
    assert!(dead <= 200, "{pieces:?}");
    assert_eq!(machine.search(&Query::new("round")).total, 200);
}

#[test]
fn readers_share_what_they_index_and_take_in_only_what_is_new() {
    let machine = Machine::new(1, notes());
    for round in 0..50 {
        machine.insert_bodies(&["one", "two", "three"]);
        let table = machine.table();
        let searcher = machine.text.searcher(&table, None).unwrap();
        assert_eq!(searcher.tail_rows(), 3 * (round + 1));
        assert!(searcher.pieces() <= 8, "{} pieces in round {round}", searcher.pieces());
        let start = machine.text.searcher(&table, None).unwrap();
        assert_eq!(start.pieces(), searcher.pieces());
    }
}

/// Parts of the tail are joined without being rebuilt. A reader at an lsn in between must neither lose a row nor see a
/// dead one.
#[test]
fn joined_parts_serve_readers_of_every_lsn_after_the_last_of_them() {
    let _limit = testkit::limit(120);
    testkit::for_each_seed(6, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let machine = Machine::new(seed, keyed());
        let mut seen = Vec::new();
        for round in 0..60 {
            // Some inserts replace rows of earlier parts. Some commits only delete, so that two roots differ in nothing
            // but the lsn.
            let last = machine.table().next_row().0;
            if last > 1 && rng.below(3) == 0 {
                machine.delete(vec![types::RowId(1 + rng.below(last - 1))]);
            } else {
                let count = 1 + rng.below(6) as usize;
                machine.insert(random_rows(&mut rng, count, 120));
            }
            let table = machine.table();
            // Some lsns have no reader.
            if rng.below(3) > 0 {
                observe(&machine.text, &table, None).unwrap();
            }
            seen.push(table);
            let old = &seen[seen.len() - 1 - rng.below(8.min(round + 1)) as usize];
            let expected = observe(&TextMaterializer::new(), old, None).unwrap();
            assert_eq!(observe(&machine.text, old, None).unwrap(), expected, "round {round}, seed {seed}");
        }
    });
}

/// Dead rows stay in the tail's memory, but must not make a small table unsearchable.
#[test]
fn rows_that_are_replaced_again_and_again_do_not_fill_the_tail() {
    let _limit = testkit::limit(240);
    let machine = Machine::new(1, keyed());
    let text = "word ".repeat(40 << 10);
    for round in 0..200 {
        machine.insert(batch(&[(1, None, Some(format!("round{round} {text}")))]));
        let searcher = machine.text.searcher(&machine.table(), None).unwrap();
        assert_eq!(searcher.rows(), 1);
        assert_eq!(searcher.search(&Query::new(&format!("round{round}"))).unwrap().total, 1);
    }
}

/// Compares, term by term, the piece that a reader builds in memory with the segment that tantivy builds of the same
/// rows.
#[test]
fn a_piece_in_memory_is_a_segment_of_the_same_rows() {
    use crate::text::postings::{ColumnPostings, PostingsDetail};
    use crate::text::{build, in_memory, piece::TextPiece};
    let _limit = testkit::limit(240);
    testkit::for_each_seed(4, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let machine = Machine::new(seed, notes());
        let odd = ["\u{345}", "", "日本語", "naïve Brücke c++ don't", "   ", "…"];
        let mut rows = Vec::new();
        for id in 0..60 {
            let long = [3, 40, 300, 5_000][rng.below(4) as usize];
            let mut body = super::support::words(&mut rng, long);
            body.push(' ');
            body.push_str(odd[rng.below(odd.len() as u64) as usize]);
            if rng.below(8) == 0 {
                body.push_str(&"x".repeat(300));
            }
            rows.push((
                id,
                (rng.below(3) > 0).then(|| "a title".to_owned()),
                (rng.below(9) > 0).then_some(body),
            ));
        }
        machine.insert(batch(&rows));
        let table = machine.table();
        let fields = crate::text::fields(table.def()).unwrap();
        let read =
            table.scan_from(types::RowId(1), 1_000, &table.projection(&fields.columns()).unwrap()).unwrap();
        let (first, last) = (types::RowId(1), types::RowId(60));
        let mut stored = build::Builder::new(&fields, 60).unwrap();
        stored.add(&read).unwrap();
        let stored = TextPiece::open(stored.finish(1, first, last).unwrap(), &fields).unwrap();
        let mut made = in_memory::Builder::new(&fields);
        assert!(made.add(&read, usize::MAX).unwrap());
        let made = TextPiece::in_memory(first, last, made);
        assert_eq!(stored.docs(), made.docs());
        for (at, (stored, made)) in stored.columns.iter().zip(&made.columns).enumerate() {
            assert_eq!(stored.tokens, made.tokens);
            (0..60).for_each(|doc| {
                assert_eq!(stored.column.length_id(doc), made.column.length_id(doc), "document {doc}");
            });
            let ColumnPostings::Stored { terms, .. } = &stored.column else { panic!("stored") };
            let mut all = terms.terms().stream().unwrap();
            let mut count = 0;
            while all.advance() {
                count += 1;
                let text = std::str::from_utf8(all.key()).unwrap();
                let field = tantivy::schema::Field::from_field_id(at as u32 + 1);
                let term = tantivy::schema::Term::from_field_text(field, text);
                assert_eq!(stored.column.df(&term).unwrap(), made.column.df(&term).unwrap(), "{text}");
                let open = |column: &ColumnPostings, of: &mut Vec<(u32, u32, Vec<u32>)>| {
                    let mut postings =
                        column.postings(&term, PostingsDetail::Positions).unwrap().expect(text);
                    while postings.doc() != tantivy::TERMINATED {
                        let mut positions = Vec::new();
                        postings.positions(&mut positions);
                        of.push((postings.doc(), postings.frequency(), positions));
                        postings.advance();
                    }
                };
                let (mut one, mut other) = (Vec::new(), Vec::new());
                open(&stored.column, &mut one);
                open(&made.column, &mut other);
                assert_eq!(one, other, "{text}");
            }
            let mut found = 0;
            made.column
                .beginning_with("", |_| {
                    found += 1;
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, count);
        }
    });
}

#[test]
fn a_tail_that_readers_do_not_take_in_is_an_error_with_its_progress() {
    let _limit = testkit::limit(120);
    let machine = Machine::new(1, notes());
    let bodies = vec!["word"; 50_500];
    machine.insert_bodies(&bodies);
    machine.insert_bodies(&bodies);
    let error = machine.text.searcher(&machine.table(), None).err().unwrap();
    assert_eq!(error.kind(), types::Kind::IndexBuilding);
    assert!(error.hint_text().unwrap().contains("0 of 101000 rows"), "{error}");
    machine.background();
    machine.catch_up();
    assert_eq!(machine.search(&Query { limit: 0, count_max: u64::MAX, ..Query::new("word") }).total, 101_000);
}

#[test]
fn a_column_added_to_the_index_later_is_found_in_old_rows_too() {
    let machine = Machine::new(1, notes());
    machine.insert(batch(&[(1, Some("heron".into()), Some("a bird".into()))]));
    machine.catch_up();
    let table = machine.table();
    // This table has the same rows, but its definition indexes only the body until `set_def` below.
    let mut narrow = (**table.def()).clone();
    narrow.indexes = vec![super::support::declared(&[super::support::BODY], &[])];
    let text = TextMaterializer::new();
    let mut tip = table::Tip::new(narrow);
    let rows = table.conform(&batch(&[(1, Some("heron".into()), Some("a bird".into()))])).unwrap();
    super::support::append(&mut tip, rows, 1);
    let before = tip.snapshot(types::Lsn(1));
    let (place, position) = built(&text, &before, 10, 5);
    let count = |table: &Arc<table::Snapshot>, position: &table::materializer::Position| {
        text.searcher(table, Some(position)).unwrap().search(&Query::new("heron")).unwrap().total
    };
    assert_eq!(count(&before, position.as_ref().unwrap()), 0);
    tip.set_def((**table.def()).clone()).unwrap();
    let after = tip.snapshot(types::Lsn(2));
    assert_eq!(count(&after, position.as_ref().unwrap()), 1, "a position of another definition is none");
    assert!(text.open(&place, &after, &position.as_ref().unwrap().checkpoint).is_err());
    let position = carry_on(&text, &place, &after, position, 10, 5).unwrap();
    assert_eq!(position.published::<Index>().unwrap().rows(), 1);
    assert_eq!(text.searcher(&after, Some(&position)).unwrap().tail_rows(), 0);
    assert_eq!(count(&after, &position), 1);
}
