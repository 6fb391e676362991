//! Tests of the statistics and page indexes in other programs' data files: accepted if they are true, however little they say,
//! and refused if they would hide a row.

use std::io::Write as _;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use bytes::Bytes;
use iceberg::manifest::{Content, DataFile, Metrics};
use iceberg::schema::Columns;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Type;
use parquet::file::metadata::{
    ColumnIndexBuilder, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::statistics::Statistics;
use parquet::file::writer::TrackedWrite;
use types::{ColumnId, DataType, Value};

use super::refused::refuses;
use super::writer::{Writer, reversed};
use super::{begin, check_taken, plain};
use crate::Replacement;
use crate::data_file::FilePartition;
use crate::tests::support::{Bench, def};

/// A snapshot id that does not occur by chance in the name of one of the lake's own files.
const ID: i64 = 7_000_000_077;

/// Indexes of the leaf columns in the test table's files.
const ROW_ID: usize = 0;
const TIME: usize = 1;
const K: usize = 2;
const S: usize = 3;

/// Writer properties with eight rows in each page.
fn small_pages() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_data_page_row_count_limit(8).set_write_batch_size(8)
}

fn written(columns: &Columns, rows: &RecordBatch, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let options = ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true)
        .with_parquet_schema(columns.parquet.clone());
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, columns.arrow.clone(), options).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    bytes
}

fn footer(bytes: &[u8]) -> ParquetMetaData {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.parse_and_finish(&Bytes::copy_from_slice(bytes)).unwrap()
}

/// Appends another footer to the same pages, after the existing one.
fn with_footer(bytes: &[u8], footer: &ParquetMetaData) -> Vec<u8> {
    let mut all = Vec::new();
    let mut out = TrackedWrite::new(&mut all);
    out.write_all(bytes).unwrap();
    ParquetMetaDataWriter::new_with_tracked(out, footer).finish().unwrap();
    all
}

/// Writes all rows into one file, from the last to the first, with the footer that `change` returns.
fn in_one_file(
    bench: &Bench,
    id: i64,
    properties: WriterPropertiesBuilder,
    change: impl FnOnce(ParquetMetaData) -> ParquetMetaData,
) -> Replacement {
    let mut writer = Writer::new(bench, id);
    let batches: Vec<_> = writer.lake.data.iter().map(|live| writer.rows_of(live)).collect();
    let rows = reversed(&concat_batches(&writer.columns.arrow, &batches).unwrap());
    let bytes = written(&writer.columns, &rows, properties);
    let bytes = with_footer(&bytes, &change(footer(&bytes)));
    let (path, place) = (writer.next_name(), FilePartition::default());
    writer.put(&path, &bytes);
    (writer.data, writer.deletes) = (Vec::new(), Vec::new());
    writer.data.push(DataFile {
        content: Content::Data,
        path,
        spec: place.spec,
        partition: place.partition,
        rows: rows.num_rows() as u64,
        bytes: bytes.len() as u64,
        metrics: Metrics::default(),
        split_offsets: Vec::new(),
        sort_order: None,
        checksums: None,
    });
    writer.finish()
}

fn with_statistics(
    footer: ParquetMetaData,
    group: usize,
    column: usize,
    statistics: Statistics,
) -> ParquetMetaData {
    let mut groups = footer.row_groups().to_vec();
    let mut columns = groups[group].columns().to_vec();
    columns[column] = columns[column].clone().into_builder().set_statistics(statistics).build().unwrap();
    groups[group] = groups[group].clone().into_builder().set_column_metadata(columns).build().unwrap();
    footer.into_builder().set_row_groups(groups).build()
}

fn numbers(min: i64, max: i64) -> Statistics {
    Statistics::int64(Some(min), Some(max), None, Some(0), false)
}

fn texts(min: &str, max: &str, nulls: u64) -> Statistics {
    Statistics::byte_array(Some(min.into()), Some(max.into()), None, Some(nulls), false)
}

struct PageBounds {
    min: i64,
    max: i64,
    nulls: i64,
    is_null: bool,
}

/// Changes the page bounds of a column of numbers in the first row group.
fn with_bounds_of_pages(
    footer: ParquetMetaData,
    column: usize,
    change: impl FnOnce(&mut Vec<PageBounds>),
) -> ParquetMetaData {
    let mut index = footer.column_index().unwrap().clone();
    let ColumnIndexMetaData::INT64(of) = &index[0][column] else { panic!("no column of numbers") };
    let bounds = |page: usize| PageBounds {
        min: *of.min_value(page).unwrap(),
        max: *of.max_value(page).unwrap(),
        nulls: of.null_count(page).unwrap(),
        is_null: false,
    };
    let mut pages: Vec<PageBounds> = (0..of.num_pages() as usize).map(bounds).collect();
    change(&mut pages);
    let mut builder = ColumnIndexBuilder::new(Type::INT64);
    for page in pages {
        let (min, max) = (page.min.to_le_bytes().to_vec(), page.max.to_le_bytes().to_vec());
        builder.append(page.is_null, min, max, page.nulls);
    }
    index[0][column] = builder.build().unwrap();
    footer.into_builder().set_column_index(Some(index)).build()
}

/// Changes the locations of a column's pages in the first row group.
fn with_pages(
    footer: ParquetMetaData,
    column: usize,
    change: impl FnOnce(&mut Vec<PageLocation>),
) -> ParquetMetaData {
    let mut index = footer.offset_index().unwrap().clone();
    change(&mut index[0][column].page_locations);
    footer.into_builder().set_offset_index(Some(index)).build()
}

fn bound(bounds: &[(i32, Vec<u8>)], column: ColumnId) -> Option<Vec<u8>> {
    bounds.iter().find(|(id, _)| *id == column.0 as i32).map(|(_, bytes)| bytes.clone())
}

#[test]
fn row_groups_that_deny_a_value_are_refused() {
    for (why, change) in [
        (
            "row group 0 says of its column `k` that no value is below 5, and 0 is",
            (|footer| with_statistics(footer, 0, K, numbers(5, 59)))
                as fn(ParquetMetaData) -> ParquetMetaData,
        ),
        ("of its column `k` that no value is above 58, and 59 is", |footer| {
            with_statistics(footer, 0, K, numbers(0, 58))
        }),
        ("of its column `s` that no value is below `text 00`, and `text 0` is", |footer| {
            with_statistics(footer, 0, S, texts("text 00", "text 9", 0))
        }),
        // The upper bound is cut short without being increased.
        ("of its column `s` that no value is above `tex`, and `text 9` is", |footer| {
            with_statistics(footer, 0, S, texts("tex", "tex", 0))
        }),
        ("of its column `s` that 56 of its values are null, and 0 are", |footer| {
            with_statistics(footer, 0, S, texts("text 0", "text 9", 56))
        }),
        ("of its column `_time` that no value is below 2, and 1 is", |footer| {
            with_statistics(footer, 0, TIME, numbers(2, 2))
        }),
        // Lookups of row ids also use bounds in the deprecated format.
        ("of its column `_polynya_row_id` that no value is below 10, and 1 is", |footer| {
            let old = Statistics::int64(Some(10), Some(60), None, Some(0), true);
            with_statistics(footer, 0, ROW_ID, old)
        }),
    ] {
        refuses(0, why, |bench| in_one_file(bench, ID, small_pages(), change));
    }
    // The second of several row groups is wrong.
    refuses(0, "row group 1 says of its column `k` that no value is above 30, and", |bench| {
        let properties = small_pages().set_max_row_group_row_count(Some(16));
        in_one_file(bench, ID, properties, |footer| with_statistics(footer, 1, K, numbers(0, 30)))
    });
}

#[test]
fn pages_that_deny_a_value_or_are_elsewhere_are_refused() {
    for (why, change) in [
        (
            "page 1 of row group 0 says of its column `k` that no value is below 44, and 43 is",
            (|footer| with_bounds_of_pages(footer, K, |pages| pages[1].min += 1))
                as fn(ParquetMetaData) -> ParquetMetaData,
        ),
        ("page 0 of row group 0 says of its column `_polynya_row_id` that no value is above 59", |footer| {
            with_bounds_of_pages(footer, ROW_ID, |pages| pages[0].max -= 1)
        }),
        ("page 6 of row group 0 says of its column `k` that all of its values are null", |footer| {
            with_bounds_of_pages(footer, K, |pages| pages[6].is_null = true)
        }),
        ("page 2 of row group 0 says of its column `k` that 1 of its values are null, and 0 are", |footer| {
            with_bounds_of_pages(footer, K, |pages| pages[2].nulls = 1)
        }),
        ("`k`: there are bounds of 6 pages, and 7 pages", |footer| {
            with_bounds_of_pages(footer, K, |pages| pages.truncate(pages.len() - 1))
        }),
        ("`s`: page 1 has another place or other rows than the page index says", |footer| {
            with_pages(footer, S, |pages| pages[1].first_row_index += 1)
        }),
        ("`s`: page 3 has another place or other rows than the page index says", |footer| {
            with_pages(footer, S, |pages| pages[3].offset += 1)
        }),
        ("`s`: page 6 has another place or other rows than the page index says", |footer| {
            with_pages(footer, S, |pages| pages.truncate(pages.len() - 1))
        }),
    ] {
        refuses(0, why, |bench| in_one_file(bench, ID, small_pages(), change));
    }
}

#[test]
fn bounds_that_are_cut_short_and_true_are_taken() {
    let mut bench = begin(plain(), 0);
    let before = bench.lake();
    let properties =
        small_pages().set_statistics_truncate_length(Some(3)).set_column_index_truncate_length(Some(3));
    let replace = in_one_file(&bench, ID, properties, |footer| {
        let said = footer.row_group(0).column(S).statistics().unwrap();
        assert_eq!(said.min_bytes_opt(), Some(&b"tex"[..]));
        assert_eq!(said.max_bytes_opt(), Some(&b"tey"[..]));
        assert!(!said.min_is_exact() && !said.max_is_exact());
        footer
    });
    bench.offer(&replace).unwrap();
    check_taken(&bench, &before, ID);
    let (lake, s) = (bench.lake(), bench.tip.def().schema.columns[1].id);
    let metrics = &lake.data[0].entry.file.metrics;
    assert_eq!(bound(&metrics.lower, s), Some(b"tex".to_vec()));
    assert_eq!(bound(&metrics.upper, s), Some(b"tey".to_vec()));
    bench.delete([1, 50]).keys(70..75);
    bench.land();
}

/// A bound that is too wide lets readers skip less, and hides nothing.
#[test]
fn bounds_that_are_too_wide_are_taken() {
    let mut bench = begin(plain(), 0);
    let before = bench.lake();
    let replace = in_one_file(&bench, ID, small_pages(), |footer| {
        let footer = with_statistics(footer, 0, K, numbers(-100, 100));
        with_bounds_of_pages(footer, K, |pages| pages[2].min = -100)
    });
    bench.offer(&replace).unwrap();
    check_taken(&bench, &before, ID);
    bench.delete([1, 50]);
    bench.land();
}

/// Data pages of both versions, nulls in all columns that allow them, and lists that are null, empty and long.
#[test]
fn pages_of_lists_are_where_they_are() {
    let mut def = def();
    let list = DataType::parse("list<int64>", &mut ColumnId(0)).unwrap();
    def.add_column("l", &list, true, None).unwrap();
    let mut bench = Bench::of(def, plain());
    let row = |n: i64| {
        let text = if n % 7 == 0 { Value::Null } else { Value::String(format!("text {n}")) };
        let items = (0..n % 5).map(|item| if item == 2 { Value::Null } else { Value::Int64(n) });
        let list = if n % 11 == 0 { Value::Null } else { Value::List(items.collect()) };
        vec![Value::Int64(n), text, list]
    };
    bench.insert(&(0..50).map(row).collect::<Vec<_>>());
    bench.land();
    bench.delete([3, 4, 17]);
    bench.land();
    for (id, version) in [(ID, WriterVersion::PARQUET_1_0), (ID + 1, WriterVersion::PARQUET_2_0)] {
        let before = bench.lake();
        let replace = in_one_file(&bench, id, small_pages().set_writer_version(version), |footer| footer);
        bench.offer(&replace).unwrap();
        check_taken(&bench, &before, id);
    }
    bench.delete([20]);
    bench.land();
    let before = bench.lake();
    let properties = small_pages();
    let replace = in_one_file(&bench, ID + 2, properties, |footer| {
        // The leaf column of the list, whose pages have more values than rows.
        with_pages(footer, 4, |pages| pages[1].first_row_index += 1)
    });
    let error = bench.offer(&replace).unwrap_err();
    assert!(
        error.message().contains("page 1 has another place or other rows than the page index says"),
        "{error}"
    );
    assert_eq!(bench.lake().version, before.version);
}

/// Spark writes a row group that contains a NaN without bounds, and its other values may lie outside the bounds of the other
/// row groups.
#[test]
fn a_row_group_without_bounds_leaves_its_file_without_them() {
    let mut def = def();
    let f = def.add_column("f", &DataType::Float64, true, None).unwrap();
    let mut bench = Bench::of(def, plain());
    let rows: Vec<Vec<Value>> = [5.0, 6.0, 1.0, f64::NAN]
        .into_iter()
        .enumerate()
        .map(|(k, f)| vec![Value::Int64(k as i64), Value::Null, Value::Float64(f)])
        .collect();
    bench.insert(&rows);
    bench.land();
    let properties = || small_pages().set_max_row_group_row_count(Some(2));
    bench.offer(&in_one_file(&bench, ID, properties(), |footer| footer)).unwrap();
    let lake = bench.lake();
    let metrics = &lake.data[0].entry.file.metrics;
    let said = [bound(&metrics.lower, f), bound(&metrics.upper, f)];
    assert_eq!(said, [1.0f64, 6.0].map(|bound| Some(bound.to_le_bytes().to_vec())));

    let before = bench.lake();
    let replace = in_one_file(&bench, ID + 1, properties(), |footer| {
        let none = Statistics::double(None, None, None, Some(0), false);
        // The rows were reversed twice by now.
        assert_eq!(footer.num_row_groups(), 2);
        with_statistics(footer, 1, 4, none)
    });
    bench.offer(&replace).unwrap();
    check_taken(&bench, &before, ID + 1);
    let lake = bench.lake();
    let metrics = &lake.data[0].entry.file.metrics;
    assert_eq!([bound(&metrics.lower, f), bound(&metrics.upper, f)], [None, None]);
    assert!(metrics.nans.contains(&(f.0 as i32, 1)), "{:?}", metrics.nans);
    bench.delete([2]);
    bench.land();
}
