use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType as Arrow, Field, Schema};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use testkit::Rng;

use super::*;

fn built(rows: &[i64]) -> Result<Option<RowIds>> {
    let mut builder = Builder::default();
    for part in rows.chunks(3) {
        builder.extend(&(Arc::new(Int64Array::from(part.to_vec())) as ArrayRef))?;
    }
    builder.finish()
}

fn ids(rows: &[i64]) -> RowIds {
    built(rows).unwrap().unwrap()
}

fn check(rows: &[i64], found: &RowIds) {
    let around = rows.iter().flat_map(|id| [id - 1, *id, id + 1]).filter(|id| *id >= 0);
    for id in around.chain(0..50) {
        let expected = rows.iter().position(|row| *row == id).map(|at| at as u64);
        assert_eq!(found.position(RowId(id as u64)), expected, "{id}");
    }
    assert_eq!(found.rows(), rows.len() as u64);
}

#[test]
fn a_position_is_the_rank_of_a_row() {
    for rows in
        [vec![3, 4, 5, 9, 12, 13, 40], vec![0], vec![7, (1 << 32) - 1, 1 << 32, (1 << 40) + 5], vec![]]
    {
        let ids = ids(&rows);
        assert!(ids.is_in_row_order());
        check(&rows, &ids);
    }
}

#[test]
fn rows_in_another_order_are_mapped() {
    for rows in [vec![9, 3, 4, 40, 12], vec![1, 2, 3, 1 << 33, 0], vec![2, 1]] {
        let ids = ids(&rows);
        assert!(!ids.is_in_row_order());
        check(&rows, &ids);
    }
    let mut rng = Rng::new(3);
    let mut rows: Vec<i64> = (0..500).map(|n| n * 7).collect();
    for at in (1..rows.len()).rev() {
        rows.swap(at, rng.below(at as u64 + 1) as usize);
    }
    check(&rows, &ids(&rows));
}

#[test]
fn a_row_id_that_is_negative_or_there_twice_is_damage() {
    for bad in [vec![5, 5], vec![9, 3, 9], vec![4, -1]] {
        assert_eq!(built(&bad).unwrap_err().kind(), types::Kind::Damaged, "{bad:?}");
    }
}

#[test]
fn scattered_rows_take_few_bytes_each_and_runs_next_to_none() {
    let scattered: Vec<i64> = (0..100_000).map(|n| n * 20).collect();
    assert!(ids(&scattered).memory() < 250_000, "{}", ids(&scattered).memory());
    let run: Vec<i64> = (1..=300_000).collect();
    assert!(ids(&run).memory() < 1_000, "{}", ids(&run).memory());
}

/// Writes a file with small pages and row groups.
fn file(rows: &[i64], page_rows: usize, group_rows: usize) -> Bytes {
    let id = [(PARQUET_FIELD_ID_META_KEY.to_owned(), "1".to_owned())];
    let fields = vec![
        Field::new("before", Arrow::Int64, false),
        Field::new("_row_id", Arrow::Int64, false).with_metadata(id.into()),
    ];
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .set_max_row_group_row_count(Some(group_rows))
        .set_dictionary_enabled(false)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties)).unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from(rows.to_vec()));
    writer.write(&RecordBatch::try_new(schema, vec![column.clone(), column]).unwrap()).unwrap();
    writer.close().unwrap();
    bytes.into()
}

#[test]
fn what_is_asked_for_is_found_wherever_it_is_and_little_else_is_read() {
    testkit::for_each_seed(100, |seed| {
        let mut rng = Rng::new(seed);
        let mut rows: Vec<i64> = (1..=200 + rng.below(300) as i64).map(|n| n * 3).collect();
        let is_sorted = rng.below(2) == 0;
        if !is_sorted {
            for at in (1..rows.len()).rev() {
                rows.swap(at, rng.below(at as u64 + 1) as usize);
            }
        }
        let bytes = file(&rows, 1 + rng.below(20) as usize, 30 + rng.below(100) as usize);
        let mut wanted: Vec<RowId> = (0..rng.below(5)).map(|_| RowId(rng.below(1_600))).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = Vec::new();
        let mut read = 0;
        scan(bytes.clone(), Some(&wanted), &mut |position, row| {
            read += 1;
            assert_eq!(rows[position as usize], row.0 as i64);
            found.extend(wanted.contains(&row).then_some(row));
            Ok(())
        })
        .unwrap();
        found.sort_unstable();
        let expected: Vec<RowId> =
            wanted.iter().filter(|row| rows.contains(&(row.0 as i64))).copied().collect();
        assert_eq!(found, expected);
        assert!(!is_sorted || read <= wanted.len() * 20, "{read} rows read for {wanted:?}");
        assert_eq!(RowIds::of_file(bytes).unwrap().unwrap(), ids(&rows));
    });
}

#[test]
fn neighbours_that_come_together_are_noted_as_those_that_come_alone() {
    testkit::for_each_seed(200, |seed| {
        let mut rng = Rng::new(seed);
        let (mut alone, mut together) = (Builder::default(), Builder::default());
        // The ids cross the border between two parts.
        let mut next = (1 << 32) - 40;
        for _ in 0..rng.below(8) {
            let rows = 1 + rng.below(30) as i64;
            let mut ids: Vec<i64> = (next..next + rows).collect();
            match rng.below(4) {
                0 => ids.retain(|id| id % 3 != 0),
                1 if rng.below(4) == 0 => next -= 60,
                _ => {}
            }
            next += rows + rng.below(3) as i64;
            ids.iter().for_each(|id| alone.push(*id as u64).unwrap());
            let column: ArrayRef = Arc::new(Int64Array::from(ids));
            together.extend(&column).unwrap();
        }
        match (alone.finish(), together.finish()) {
            (Ok(alone), Ok(together)) => assert_eq!(alone, together),
            (alone, together) => assert!(alone.is_err() && together.is_err(), "an id that is there twice"),
        }
    });
}

#[test]
fn the_ids_of_files_that_follow_one_another_are_those_of_one() {
    let of = |ids: &[u64]| {
        let mut builder = Builder::default();
        ids.iter().for_each(|id| builder.push(*id).unwrap());
        builder.finish().unwrap().unwrap()
    };
    let high = 1 << 32;
    let parts: [&[u64]; 4] = [&[3, 4, 9], &[10, high - 1, high], &[high + 1, high + 7], &[5 * high]];
    let mut all = RowIds::default();
    for part in parts {
        assert!(all.append(&of(part)));
    }
    assert!(all.append(&RowIds::default()));
    let together = of(&parts.concat());
    assert_eq!(all.rows(), together.rows());
    for id in parts.concat().into_iter().chain([0, 5, high + 2, 9 * high]) {
        assert_eq!(all.position(RowId(id)), together.position(RowId(id)), "{id}");
    }
    let (rows, before) = (all.rows(), of(&[5 * high]));
    assert!(!all.append(&before) && !all.append(&of(&[1])), "none of these follow");
    assert!(!all.append(&of(&[6 * high + 2, 6 * high])), "nor what is in another order");
    assert_eq!(all.rows(), rows);
}
