//! Tests of rows that are deleted by their values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int32Array, ListArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Fields, Int32Type};
use serde_json::{Value as Json, json};
use types::{Kind, Result};

use super::table_builder::{BY_P, BY_P_AGAIN, TableBuilder, VOID, column, field, longs, n, rows_from, texts};

fn p(values: &[Option<&str>]) -> (arrow::datatypes::Field, ArrayRef) {
    column(2, "p", texts(values))
}

#[test]
fn equality_deletes_apply_to_older_data_files_only() {
    let _limit = testkit::limit(60);
    let mut builder = TableBuilder::new(json!([]));
    for sequence in 1..=4 {
        builder.data(sequence, vec![n(&[10 * sequence, 10 * sequence + 1, 5])]);
    }
    builder.equality(3, &[1], vec![n(&[10, 21, 30, 5])]);
    assert_eq!(builder.rows().unwrap(), [11, 20, 30, 31, 5, 40, 41, 5]);
    // The same key is deleted again later, and once before all data.
    builder.equality(4, &[1], vec![n(&[5])]);
    builder.equality(1, &[1], vec![n(&[40, 20])]);
    assert_eq!(builder.rows().unwrap(), [11, 20, 30, 31, 40, 41, 5]);
    // An inherited sequence number counts too; an entry that lacks one without inheriting it is damaged.
    builder.files[5].is_inherited = true;
    assert_eq!(builder.rows().unwrap(), [11, 20, 30, 31, 40, 41, 5]);
    builder.files[5].status = 0;
    let error = builder.rows().unwrap_err();
    assert!(error.kind() == Kind::Damaged && error.to_string().contains("sequence number"), "{error}");
    // A delete file that a commit removed deletes nothing.
    builder.files[5].status = 2;
    assert_eq!(builder.rows().unwrap(), [11, 20, 30, 31, 5, 40, 41, 5]);
}

#[test]
fn deletes_apply_to_their_partition_and_unpartitioned_ones_to_all() {
    let _limit = testkit::limit(60);
    let of = |spec: i32, value: Option<&str>| {
        let mut builder = TableBuilder::new(json!([]));
        for (nth, (spec, p)) in
            [(0, None), (BY_P, Some("a")), (BY_P, Some("b")), (BY_P, None), (BY_P_AGAIN, Some("a"))]
                .into_iter()
                .enumerate()
        {
            let file = builder.data(1, vec![n(&[nth as i64, 9])]);
            (file.spec, file.p) = (spec, p.map(str::to_owned));
        }
        let deletes = builder.equality(2, &[1], vec![n(&[9])]);
        (deletes.spec, deletes.p) = (spec, value.map(str::to_owned));
        builder.rows().unwrap()
    };
    assert_eq!(of(BY_P, Some("a")), [0, 9, 1, 2, 9, 3, 9, 4, 9]);
    assert_eq!(of(BY_P, Some("b")), [0, 9, 1, 9, 2, 3, 9, 4, 9]);
    assert_eq!(of(BY_P, Some("c")), [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]);
    assert_eq!(of(BY_P, None), [0, 9, 1, 9, 2, 9, 3, 4, 9]);
    assert_eq!(of(BY_P_AGAIN, Some("a")), [0, 9, 1, 9, 2, 9, 3, 9, 4]);
    assert_eq!(of(0, None), [0, 1, 2, 3, 4]);
    assert_eq!(of(VOID, None), [0, 1, 2, 3, 4]);
}

#[test]
fn null_equals_null_and_all_key_columns_are_compared() {
    let _limit = testkit::limit(60);
    let mut builder = TableBuilder::new(json!([{ "id": 3, "name": "q", "type": "string" }]));
    let q = |values: &[Option<&str>]| column(3, "q", texts(values));
    let (a, b) = (Some("a"), Some("b"));
    builder
        .data(1, vec![n(&[0, 1, 2, 3, 4, 5]), p(&[a, a, None, None, b, None]), q(&[a, None, None, b, a, a])]);
    // The delete file has further columns; the order of the field ids does not matter.
    builder.equality(2, &[3, 2], vec![q(&[None, b, a]), n(&[7, 7, 7]), p(&[a, None, b])]);
    assert_eq!(builder.rows().unwrap(), [0, 2, 5]);
    builder.equality(2, &[2], vec![p(&[None])]);
    assert_eq!(builder.rows().unwrap(), [0]);
}

/// Returns the rows that remain of a table with the column `x` of values `stored`, after deletes of the values `deleted`.
fn of_types(iceberg: Json, stored: ArrayRef, deleted: ArrayRef) -> Result<Vec<i64>> {
    let mut builder = TableBuilder::new(json!([{ "id": 3, "name": "x", "type": iceberg }]));
    let rows: Vec<i64> = (0..stored.len() as i64).collect();
    builder.data(1, vec![n(&rows), column(3, "x", stored)]);
    builder.equality(2, &[3], vec![column(3, "x", deleted)]);
    builder.rows()
}

#[test]
fn keys_may_be_narrower_or_wider_than_the_columns() {
    let _limit = testkit::limit(60);
    let ints = || Arc::new(Int32Array::from(vec![Some(-1), Some(2), None])) as ArrayRef;
    assert_eq!(of_types(json!("long"), ints(), longs(&[-1, 1 << 40])).unwrap(), [1, 2]);
    assert_eq!(of_types(json!("long"), longs(&[2, 1 << 40, (1 << 32) - 1]), ints()).unwrap(), [1, 2]);
    // The table is read at an older schema, and the keys were written later with a wider type.
    assert_eq!(of_types(json!("int"), ints(), longs(&[2, 1 << 40])).unwrap(), [0, 2]);
    let single = Arc::new(Float32Array::from(vec![0.1, 0.5])) as ArrayRef;
    let double = Arc::new(Float64Array::from(vec![0.1, 0.5])) as ArrayRef;
    assert_eq!(of_types(json!("double"), single.clone(), double.clone()).unwrap(), [0]);
    assert_eq!(of_types(json!("double"), double, single).unwrap(), [0]);
    let decimals = |values: Vec<i128>, precision| {
        let array = Decimal128Array::from(values).with_precision_and_scale(precision, 2).unwrap();
        Arc::new(array) as ArrayRef
    };
    let (narrow, wide) = (decimals(vec![125, 7], 9), decimals(vec![125, i128::pow(10, 20)], 30));
    assert_eq!(of_types(json!("decimal(30,2)"), narrow.clone(), wide.clone()).unwrap(), [1]);
    assert_eq!(of_types(json!("decimal(30,2)"), wide, narrow).unwrap(), [1]);
    // Format 3 allows the promotion of a date to a timestamp.
    let days = Arc::new(Date32Array::from(vec![1, 2])) as ArrayRef;
    let times = TimestampMicrosecondArray::from(vec![2 * 86_400_000_000, 86_400_000_001]);
    assert_eq!(of_types(json!("timestamp"), days, Arc::new(times)).unwrap(), [0]);
    // A key that cannot be converted to the column's type is an error.
    let error = of_types(json!("long"), ints(), texts(&[Some("x")])).unwrap_err();
    assert!(error.kind() == Kind::Damaged && error.to_string().contains("001.parquet"), "{error}");
}

/// Iceberg's own implementation compares floats with Java's `Float.compare`.
#[test]
fn floats_are_equal_as_java_has_it() {
    let _limit = testkit::limit(60);
    let other = f64::from_bits(f64::NAN.to_bits() | 1);
    let stored = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, other, 1.5])) as ArrayRef;
    for (deleted, left) in [
        (0.0, vec![1, 2, 3, 4]),
        (-0.0, vec![0, 2, 3, 4]),
        (-f64::NAN, vec![0, 1, 4]),
        (1.5, vec![0, 1, 2, 3]),
    ] {
        let keys = Arc::new(Float64Array::from(vec![deleted]));
        assert_eq!(of_types(json!("double"), stored.clone(), keys).unwrap(), left, "{deleted}");
    }
    let singles = Arc::new(Float32Array::from(vec![0.0, -0.0, f32::NAN])) as ArrayRef;
    for (deleted, left) in [(0.0, [1, 2]), (-0.0, [0, 2]), (-f32::NAN, [0, 1])] {
        let keys = Arc::new(Float32Array::from(vec![deleted]));
        assert_eq!(of_types(json!("float"), singles.clone(), keys).unwrap(), left, "{deleted}");
    }
}

#[test]
fn keys_are_of_each_plain_type() {
    let _limit = testkit::limit(60);
    let fixed = |values: [[u8; 16]; 3]| {
        Arc::new(FixedSizeBinaryArray::try_from_iter(values.into_iter()).unwrap()) as ArrayRef
    };
    let columns: [(&str, ArrayRef); 8] = [
        ("boolean", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
        ("date", Arc::new(Date32Array::from(vec![-1, 0, 1]))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![1_000, 1_001, 86_399_999_999]))),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![-1, 0, 1]))),
        ("timestamptz", Arc::new(TimestampMicrosecondArray::from(vec![-1, 0, 1]).with_timezone("UTC"))),
        ("binary", Arc::new(BinaryArray::from(vec![&b""[..], b"\0", b"\0\0"]))),
        ("fixed[16]", fixed([[1; 16], [2; 16], [3; 16]])),
        ("uuid", fixed([[1; 16], [2; 16], [3; 16]])),
    ];
    for (iceberg, values) in columns {
        for gone in 0..3 {
            let left: Vec<i64> = (0..3).filter(|row| *row != gone).collect();
            let found = of_types(json!(iceberg), values.clone(), values.slice(gone as usize, 1));
            assert_eq!(found.unwrap(), left, "{iceberg}");
        }
    }
}

#[test]
fn a_column_that_was_dropped_deletes_still() {
    let _limit = testkit::limit(60);
    let mut builder = TableBuilder::new(json!([{ "id": 3, "name": "x", "type": "int" }]));
    builder.data(1, vec![n(&[0, 1]), column(3, "x", Arc::new(Int32Array::from(vec![7, 8])))]);
    builder.equality(2, &[3], vec![column(3, "x", longs(&[8]))]);
    // A column of the same name and type was added after it was dropped. Before that it had been widened.
    builder
        .schema(json!([{ "id": 1, "name": "n", "type": "long" }, { "id": 3, "name": "x", "type": "long" }]));
    builder
        .schema(json!([{ "id": 1, "name": "n", "type": "long" }, { "id": 4, "name": "x", "type": "int" }]));
    assert_eq!(builder.rows().unwrap(), [0]);
}

#[test]
fn a_column_that_a_data_file_lacks_has_its_default_or_partition_value_or_null() {
    let _limit = testkit::limit(60);
    let of = |default: Json, deleted: Option<&str>| {
        let mut builder = TableBuilder::new(
            json!([{ "id": 3, "name": "x", "type": "string", "initial-default": default }]),
        );
        builder.data(1, vec![n(&[0, 1])]);
        builder.data(1, vec![n(&[2, 3]), column(3, "x", texts(&[Some("a"), None]))]);
        builder.equality(2, &[3], vec![column(3, "x", texts(&[deleted]))]);
        builder.rows().unwrap()
    };
    assert_eq!(of(json!(null), None), [2]);
    assert_eq!(of(json!(null), Some("a")), [0, 1, 3]);
    assert_eq!(of(json!("a"), Some("a")), [3]);
    assert_eq!(of(json!("a"), None), [0, 1, 2]);
    // A value that is only in the partition.
    let mut builder = TableBuilder::new(json!([]));
    for value in ["a", "b"] {
        let file = builder.data(1, vec![n(&[0, 1])]);
        (file.spec, file.p) = (BY_P, Some(value.to_owned()));
    }
    builder.equality(2, &[2, 1], vec![n(&[1]), p(&[Some("b")])]);
    assert_eq!(builder.rows().unwrap(), [0, 1, 0]);
}

#[test]
fn a_field_of_a_struct_is_a_key() {
    let _limit = testkit::limit(60);
    // The struct `a` contains `b`, which contains `x` with the field id 5. `b` is null in the second row, `a` in the third.
    let nested = |values: &[Option<i32>], b: &[bool], a: &[bool], with_x: bool| {
        let mut fields =
            vec![(Arc::new(field(8, "y", arrow::datatypes::DataType::Int64)), longs(&vec![0; values.len()]))];
        if with_x {
            let x: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
            fields.push((Arc::new(field(5, "x", x.data_type().clone())), x));
        }
        let (names, columns): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        let inner = StructArray::new(Fields::from(names), columns, Some(NullBuffer::from(b.to_vec())));
        let outer = Fields::from(vec![field(4, "b", inner.data_type().clone())]);
        let outer = StructArray::new(outer, vec![Arc::new(inner)], Some(NullBuffer::from(a.to_vec())));
        column(3, "a", Arc::new(outer))
    };
    let columns = |default: Json| {
        json!([{ "id": 3, "name": "a", "type": { "type": "struct", "fields": [
            { "id": 4, "name": "b", "type": { "type": "struct", "fields": [
                { "id": 8, "name": "y", "type": "long" },
                { "id": 5, "name": "x", "type": "long", "initial-default": default } ] } } ] } }])
    };
    let of = |key: Option<i32>, with_x: bool, default: Json| {
        let mut builder = TableBuilder::new(columns(default));
        let values = [Some(7), Some(7), Some(7), None, Some(8)];
        let (b, a) = ([true, false, true, true, true], [true, true, false, true, true]);
        builder.data(1, vec![n(&[0, 1, 2, 3, 4]), nested(&values, &b, &a, with_x)]);
        builder.data(1, vec![n(&[5])]);
        builder.equality(2, &[5], vec![nested(&[key], &[true], &[true], true)]);
        builder.rows().unwrap()
    };
    assert_eq!(of(Some(7), true, json!(null)), [1, 2, 3, 4, 5]);
    assert_eq!(of(None, true, json!(null)), [0, 4]);
    assert_eq!(of(None, false, json!(null)), [] as [i64; 0]);
    // A default applies only in structs that are present.
    assert_eq!(of(Some(7), false, json!(7)), [1, 2, 5]);
    assert_eq!(of(None, false, json!(7)), [0, 3, 4]);
}

#[test]
fn keys_beyond_the_memory_limit_are_refused_and_unneeded_ones_evicted() {
    let _limit = testkit::limit(60);
    let mut builder = TableBuilder::new(json!([]));
    let many: Vec<i64> = (0..3_000).collect();
    for value in ["a", "b", "c", "a", "b"] {
        for sequence in [1, 3] {
            let rows: Vec<i64> = (2_990..3_010).collect();
            let file = builder.data(sequence, vec![n(&rows)]);
            (file.spec, file.p) = (BY_P, Some(value.to_owned()));
        }
        let deletes = builder.equality(2, &[1], vec![n(&many)]);
        (deletes.spec, deletes.p) = (BY_P, Some(value.to_owned()));
    }
    let read = |bytes_max: u64| {
        let mut table = builder.open().unwrap();
        Arc::get_mut(&mut table).unwrap().equality.bytes_max = bytes_max;
        table.check()?;
        rows_from(&table, 0).map(|rows| rows.len())
    };
    let one = 3_000 * (9 + 16) + 4_096 * 4;
    let wanted = 5 * 10 + 5 * 20;
    assert_eq!(read(1 << 30).unwrap(), wanted);
    assert_eq!(read(2 * one).unwrap(), wanted);
    let error = read(one / 2).unwrap_err();
    assert!(error.kind() == Kind::TooLarge && error.to_string().contains(".parquet"), "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("rewrite")), "{error}");
}

#[test]
fn equality_deletes_that_cannot_be_read_are_an_error_that_names_their_file() {
    let _limit = testkit::limit(60);
    let refused = |change: &dyn Fn(&mut TableBuilder), why: &str| {
        let mut builder = TableBuilder::new(json!([
            { "id": 3, "name": "l", "type": { "type": "list", "element-id": 4, "element": "int" } },
            { "id": 5, "name": "s", "type": { "type": "struct", "fields": [{ "id": 6, "name": "x", "type": "int" }] } },
        ]));
        builder.data(1, vec![n(&[0, 1])]);
        builder.equality(2, &[1], vec![n(&[1])]);
        assert_eq!(builder.rows().unwrap(), [0]);
        change(&mut builder);
        let error = builder.open().and_then(|table| table.check()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(error.context().iter().any(|(key, _)| *key == "file"), "{error:?}");
    };
    refused(&|builder| builder.files[1].ids = None, "do not name their columns");
    refused(&|builder| builder.files[1].ids = Some(Vec::new()), "do not name their columns");
    refused(&|builder| builder.files[1].ids = Some(vec![1, 99]), "the field 99");
    refused(&|builder| builder.files[1].ids = Some(vec![4]), "the field 4");
    refused(&|builder| builder.files[1].ids = Some(vec![3]), "nested type");
    refused(&|builder| builder.files[1].ids = Some(vec![5]), "nested type");
    refused(&|builder| builder.files[1].ids = Some(vec![2]), "without its key field 2");
    refused(&|builder| builder.files[1].ids = Some(vec![6]), "without its key field 5");
    refused(&|builder| builder.files[1].rows = 2, "number of rows");
    refused(&|builder| builder.files[1].bytes -= 1, "not as long");
    refused(&|builder| builder.files[1].spec = 17, "partition spec 17");
    refused(&|builder| builder.files[1].format = "AVRO", "format `avro`");
    refused(&|builder| builder.files[1].key = Some(vec![1]), "encrypted");
    refused(&|builder| builder.files[1].content = 3, "not a kind of content");
    refused(
        &|builder| {
            let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
            builder.equality(2, &[1], vec![column(1, "n", Arc::new(list))]);
        },
        "is stored as",
    );
    for at in (0..).step_by(7) {
        let mut builder = TableBuilder::new(json!([]));
        builder.data(1, vec![n(&[0, 1])]);
        builder.equality(2, &[1], vec![n(&[1])]);
        let mut bytes = builder.bytes(&builder.last());
        let Some(byte) = bytes.get_mut(at) else { break };
        *byte ^= 0x55;
        builder.put("data/001.parquet", &bytes);
        // This Parquet file has no checksums, so that another key may be read. There is never a panic, even where the Parquet
        // reader panics.
        let _ = builder.rows();
    }
}

/// Tables with random mixtures of deletes, compared with the specification's rules for each row.
#[test]
fn any_mixture_of_deletes_follows_the_rules_of_the_specification() {
    let _limit = testkit::limit(120);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..25 {
        let mut builder = TableBuilder::new(json!([]));
        // Each file of rows: its sequence number, path, values, and marks of the rows that a position deletes.
        let mut rows: Vec<(i64, String, Vec<i64>, Vec<bool>)> = Vec::new();
        let partitions = |random: &mut dyn FnMut(u64) -> u64| match random(4) {
            0 => (0, None),
            1 => (BY_P, None),
            2 => (BY_P, Some("a".to_owned())),
            _ => (BY_P_AGAIN, Some("a".to_owned())),
        };
        for _ in 0..1 + random(5) {
            let values: Vec<i64> = (0..random(12)).map(|_| random(8) as i64).collect();
            let sequence = 1 + random(4) as i64;
            let (spec, p) = partitions(&mut random);
            let file = builder.data(sequence, vec![n(&values)]);
            (file.spec, file.p) = (spec, p);
            rows.push((sequence, builder.last(), values.clone(), vec![false; values.len()]));
        }
        let files = builder.files.clone();
        for (file, (_, path, values, gone)) in files.iter().zip(&mut rows) {
            let mut some: Vec<usize> = (0..values.len()).filter(|_| random(4) == 0).collect();
            let vector = random(2) == 0;
            if !some.is_empty() {
                let positions: Vec<(&str, i64)> = some.iter().map(|at| (path.as_str(), *at as i64)).collect();
                let deletes = builder.positions(4, &positions);
                (deletes.spec, deletes.p) = (file.spec, file.p.clone());
            }
            if vector {
                some = (0..values.len()).filter(|_| random(3) == 0).collect();
                builder.vectors(4, &[(path, some.iter().map(|at| *at as u64).collect())]);
                let deletes = builder.files.last_mut().unwrap();
                (deletes.spec, deletes.p) = (file.spec, file.p.clone());
            }
            some.iter().for_each(|at| gone[*at] = true);
        }
        let mut deletes = Vec::new();
        for _ in 0..random(4) {
            let keys: Vec<i64> = (0..random(4)).map(|_| random(8) as i64).collect();
            let sequence = 1 + random(5) as i64;
            let (spec, p) = partitions(&mut random);
            let file = builder.equality(sequence, &[1], vec![n(&keys)]);
            (file.spec, file.p) = (spec, p.clone());
            deletes.push((sequence, spec, p, keys));
        }
        let mut wanted: Vec<(i64, &String, Vec<i64>)> = Vec::new();
        for (file, (sequence, path, values, gone)) in files.iter().zip(&rows) {
            let is_live = |(value, gone): &(&i64, &bool)| {
                let deleted = deletes.iter().any(|(newer, spec, p, keys)| {
                    newer > sequence
                        && (*spec == 0 || (*spec, p) == (file.spec, &file.p))
                        && keys.contains(value)
                });
                !**gone && !deleted
            };
            let live = values.iter().zip(gone).filter(is_live).map(|(value, _)| *value);
            wanted.push((*sequence, path, live.collect()));
        }
        wanted.sort();
        let wanted: Vec<i64> = wanted.into_iter().flat_map(|(_, _, rows)| rows).collect();
        assert_eq!(builder.rows().unwrap(), wanted, "{files:#?}");
    }
}
