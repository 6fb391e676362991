//! Tests of tables in an object store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use sim::SimEnv;
use types::Kind;

use super::table_builder::{TableBuilder, column, n, texts};
use super::{bench, open, read};
use crate::foreign::{ForeignTable, newest_metadata};
use crate::objects::tests::{Faulty, recording_store};
use crate::store::Store;

/// Copies a table's directory to an object store.
fn in_objects(sim: &SimEnv, from: &Store, dir: &Path) -> (Store, Arc<Faulty>) {
    fn copy(from: &Store, dir: &Path, to: &Store, name: &Path) {
        for entry in from.list(dir).unwrap() {
            let (from_path, to_path) = (dir.join(&entry.name), name.join(&entry.name));
            if entry.is_dir {
                copy(from, &from_path, to, &to_path)
            } else {
                to.replace(&to_path, &from.read(&from_path).unwrap()).unwrap()
            }
        }
    }
    let (objects, recording) = recording_store();
    let store = Store::new(sim.env(), Some(objects));
    copy(from, dir, &store, Path::new(""));
    (store, recording)
}

/// All data files were fetched completely before the first row, and then again for the read.
#[test]
fn in_an_object_store_only_footers_are_read_before_the_first_row() {
    let bench = bench(1);
    let (store, _) = in_objects(&bench.sim, &bench.store(), &bench.dir());
    let newest = newest_metadata(&store, Path::new("")).unwrap();
    let table = Arc::new(ForeignTable::open(&store, &newest, None).unwrap());
    table.check().unwrap();
    assert_eq!(read(&table, 0).unwrap(), read(&open(&bench).unwrap(), 0).unwrap());

    let name = table.locator.find(&table.data[0].path).unwrap();
    let whole = store.read(&name).unwrap();
    for (bytes, is_found_out) in [
        (&whole[..whole.len() - 1], true),
        (&[&whole[..], b"x"].concat(), true),
        // The check fetches nothing before the footer, so that this damage remains unnoticed.
        (&[&b"PAR2"[..], &whole[4..]].concat(), false),
    ] {
        store.replace(&name, bytes).unwrap();
        let checked = table.check();
        assert_eq!(checked.is_err(), is_found_out, "{checked:?}");
        if let Err(error) = checked {
            assert!(error.kind() == Kind::Damaged && error.to_string().contains("not as long"), "{error}");
        }
    }
}

/// Returns the table in an object store that records the reads.
fn opened(builder: &TableBuilder) -> (Arc<ForeignTable>, Arc<Faulty>) {
    builder.open().unwrap();
    let (store, recording) = in_objects(&builder.sim, &builder.store(), Path::new("t"));
    (Arc::new(ForeignTable::open(&store, Path::new("metadata/v1.metadata.json"), None).unwrap()), recording)
}

const GROUP_ROWS: usize = 20_000;

/// Returns a table of one file with four row groups: numbers, a dropped column of 1.3 MB a row group, and words. Two full row
/// groups exceed the size up to which groups are fetched together.
fn of_row_groups() -> (TableBuilder, Vec<i64>) {
    let mut builder =
        TableBuilder::new(json!([{ "id": 4, "name": "word", "type": "string", "required": false }]));
    let mut state = 7_u64;
    // Incompressible values (Knuth's generator).
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    let numbers: Vec<i64> = (0..GROUP_ROWS * 3 + 5_000).map(|_| (random() >> 1) as i64).collect();
    let mut text = |parts: usize| Some((0..parts).map(|_| format!("{:016x}", random())).collect::<String>());
    let gone: Vec<Option<String>> = numbers.iter().map(|_| text(4)).collect();
    let words: Vec<Option<String>> = numbers.iter().map(|_| text(15)).collect();
    let column_of = |id, name, all: &[Option<String>]| {
        column(id, name, texts(&all.iter().map(Option::as_deref).collect::<Vec<_>>()))
    };
    let columns = vec![n(&numbers), column_of(50, "gone", &gone), column_of(4, "word", &words)];
    builder.data_in_groups(1, GROUP_ROWS, columns);
    (builder, numbers)
}

fn numbers_from(table: &Arc<ForeignTable>, from: u64) -> types::Result<Vec<i64>> {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    let (mut rows, mut all) = (table.read(from), Vec::new());
    while let Some(batch) = rows.next_batch()? {
        let numbers = batch.rows.column_by_name("n").unwrap().as_primitive::<Int64Type>();
        all.extend_from_slice(numbers.values());
    }
    Ok(all)
}

/// Files were fetched completely and kept in memory until their last row was read.
#[test]
fn the_read_columns_of_a_row_group_are_fetched_once_when_they_are_needed() {
    let _limit = testkit::limit(120);
    let (builder, numbers) = of_row_groups();
    let (table, recording) = opened(&builder);
    let of_file = builder.files[0].bytes as u64;
    let gone = 64 * numbers.len() as u64;
    let reads = || std::mem::take(&mut *recording.reads.lock().unwrap());

    reads();
    table.check().unwrap();
    let tail = reads();
    assert!(tail.len() == 1 && tail[0].end == of_file && tail[0].end - tail[0].start <= 64 << 10, "{tail:?}");

    let mut rows = table.read(0);
    rows.next_batch().unwrap().unwrap();
    let first = reads();
    let bytes = |of: &[std::ops::Range<u64>]| of.iter().map(|range| range.end - range.start).sum::<u64>();
    assert!(bytes(&first[1..]) < (of_file - gone) / 2, "one row group of four: {first:?} of {of_file}");
    drop(rows);

    assert!(numbers_from(&table, 0).unwrap() == numbers, "the rows are other ones");
    let mut all = reads();
    assert!(bytes(&all) < of_file - gone * 9 / 10, "the column that is gone: {all:?} of {of_file}");
    // The footer; then for each row group the ranges before and after the dropped column; the last two groups share one
    // request.
    assert_eq!(all.len(), 1 + 2 + 2 + 3, "{all:?}");
    all.remove(0);
    all.sort_by_key(|range| range.start);
    assert!(all.windows(2).all(|two| two[0].end <= two[1].start), "something was fetched twice: {all:?}");

    // A read from any row fetches nothing of the row groups before it.
    for from in [1, GROUP_ROWS - 1, GROUP_ROWS, 2 * GROUP_ROWS + 1, numbers.len() - 1, numbers.len()] {
        let rest = numbers_from(&table, from as u64).unwrap();
        assert!(rest == numbers[from..], "from {from}");
        let wanted = match from / GROUP_ROWS {
            _ if from == numbers.len() => 0,
            0 => 1 + 7,
            1 => 1 + 5,
            _ => 1 + 3,
        };
        assert_eq!(reads().len(), wanted, "from {from}");
    }
}

/// A batch that spans many row groups reads one column of all of them, then the next column; each time the groups were fetched
/// again.
#[test]
fn small_row_groups_are_fetched_together_and_once() {
    let _limit = testkit::limit(120);
    let mut builder =
        TableBuilder::new(json!([{ "id": 4, "name": "word", "type": "string", "required": false }]));
    let numbers: Vec<i64> = (0..60_000).map(|n| n * 7_919 % 60_013).collect();
    let words: Vec<Option<String>> = numbers
        .iter()
        .map(|n| Some(format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64)).repeat(20)))
        .collect();
    let of = words.iter().map(Option::as_deref).collect::<Vec<_>>();
    // The words, beside the numbers, make the file large.
    builder.data_in_groups(1, 500, vec![n(&numbers), column(4, "word", texts(&of))]);
    let (table, recording) = opened(&builder);
    recording.reads.lock().unwrap().clear();
    assert!(numbers_from(&table, 0).unwrap() == numbers, "the rows are other ones");
    let mut reads = std::mem::take(&mut *recording.reads.lock().unwrap());
    let footer = reads.remove(0);
    let bytes: u64 = reads.iter().map(|range| range.end - range.start).sum();
    assert!(bytes <= footer.end && bytes > 10 << 20, "{bytes} of {}: {reads:?}", footer.end);
    assert!((2..=6).contains(&reads.len()), "{reads:?}");
    for from in [1, 499, 500, 33_333] {
        assert!(numbers_from(&table, from as u64).unwrap() == numbers[from..], "from {from}");
    }
}

/// A read that fails because the store is unavailable is not reported as damage of the file.
#[test]
fn an_unavailable_store_is_not_reported_as_damage() {
    let _limit = testkit::limit(120);
    let (builder, numbers) = of_row_groups();
    let (table, recording) = opened(&builder);
    let mut rows = table.read(0);
    rows.next_batch().unwrap().unwrap();
    recording.is_away.store(true, Ordering::Relaxed);
    let error = std::iter::from_fn(|| rows.next_batch().transpose()).find_map(Result::err).unwrap();
    assert_eq!(error.kind(), Kind::Io, "{error}");
    assert!(error.to_string().contains("500 Internal"), "{error}");
    recording.is_away.store(false, Ordering::Relaxed);
    assert!(numbers_from(&table, 0).unwrap() == numbers, "the rows are other ones");
}
