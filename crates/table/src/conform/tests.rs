use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int32Array,
    Int64Array, LargeStringArray, ListArray, StringArray, StringViewArray, StructArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{Field as ArrowField, Float64Type, Int32Type};
use types::{ColumnId, TableId};

use super::*;

fn def(columns: &[(&str, &str, bool)]) -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, text, nullable) in columns {
        let data_type = DataType::parse(text, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, *nullable, None).unwrap();
    }
    def
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

fn one(data_type: &str, array: impl Array + 'static) -> Result<Vec<Value>> {
    let def = def(&[("x", data_type, true)]);
    let out = conform(&batch(vec![("x", Arc::new(array))]), &def)?;
    assert_eq!(out.schema(), def.schema.to_arrow_user());
    let column = &def.schema.columns[0];
    Ok((0..out.num_rows()).map(|row| Value::from_array(out.column(0), &column.data_type, row)).collect())
}

#[test]
fn columns_are_ordered_completed_and_cast() {
    let mut def = def(&[("id", "int64", false), ("name", "string", true), ("note", "json", true)]);
    def.add_column("kind", &DataType::String, false, Some("new".into())).unwrap();
    let names: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
    let out =
        conform(&batch(vec![("NAME", names), ("id", Arc::new(Int32Array::from(vec![1, 2])))]), &def).unwrap();
    assert_eq!(out.schema(), def.schema.to_arrow_user());
    let row = |row| -> Vec<Value> {
        def.schema
            .columns
            .iter()
            .zip(out.columns())
            .map(|(c, a)| Value::from_array(a, &c.data_type, row))
            .collect()
    };
    assert_eq!(row(0), [Value::Int64(1), "a".into(), Value::Null, "new".into()]);
    assert_eq!(row(1), [Value::Int64(2), Value::Null, Value::Null, "new".into()]);
}

#[test]
fn values_that_fit_are_cast() {
    assert_eq!(one("int64", UInt64Array::from(vec![7])).unwrap(), [Value::Int64(7)]);
    assert_eq!(one("int32", Int64Array::from(vec![Some(7), None])).unwrap(), [Value::Int32(7), Value::Null]);
    assert_eq!(
        one("float64", Int64Array::from(vec![1 << 53])).unwrap(),
        [Value::Float64((1i64 << 53) as f64)]
    );
    assert_eq!(one("string", LargeStringArray::from(vec!["x"])).unwrap(), ["x".into()]);
    let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
    assert_eq!(one("string", dictionary).unwrap(), ["a".into(), Value::Null, "a".into()]);
    assert_eq!(one("timestamp", TimestampNanosecondArray::from(vec![5_000])).unwrap(), [Value::Timestamp(5)]);
    assert_eq!(
        one("timestamp", StringArray::from(vec!["1970-01-01T00:00:01Z"])).unwrap(),
        [Value::Timestamp(1_000_000)]
    );
    let zoned = TimestampNanosecondArray::from(vec![5_000]).with_timezone("+02:00");
    assert_eq!(one("timestamp", zoned).unwrap(), [Value::Timestamp(5)]);
    let local = StringArray::from(vec!["1970-01-01T02:00:01+02:00"]);
    assert_eq!(one("timestamp", local).unwrap(), [Value::Timestamp(1_000_000)]);
    let uuid = "00000000-0000-0000-0000-0000000000ff";
    let mut bytes = [0; 16];
    bytes[15] = 255;
    assert_eq!(one("uuid", StringArray::from(vec![uuid])).unwrap(), [Value::Uuid(bytes)]);
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(1.0), Some(2.0)]), None]);
    assert_eq!(one("vector(2)", lists.clone()).unwrap(), [Value::Vector(vec![1.0, 2.0]), Value::Null]);
    let items = vec![Value::Float64(1.0), Value::Float64(2.0)];
    assert_eq!(one("list<float64>", lists).unwrap(), [Value::List(items), Value::Null]);
    let float = |v: f64| Arc::new(Float64Array::from(vec![v])) as ArrayRef;
    let field = |name: &str| Arc::new(ArrowField::new(name, Arrow::Float64, true));
    let point = StructArray::from(vec![(field("lat"), float(2.0)), (field("lon"), float(1.0))]);
    assert_eq!(one("point", point).unwrap(), [Value::Point([1.0, 2.0])]);
}

/// Arithmetic makes such times, and neither CSV nor JSON can read them back.
#[test]
fn times_beyond_the_years_that_every_format_can_say_are_refused() {
    let days = |days: Vec<Option<i32>>| one("date", Date32Array::from(days));
    assert_eq!(days(vec![Some(-719_162), None, Some(2_932_896)]).unwrap().len(), 3);
    for day in [-719_163, 2_932_897] {
        let error = days(vec![None, Some(day)]).unwrap_err().to_string();
        assert!(error.contains("row 2, column `x`: a date lies beyond the years 1 to 9999"), "{error}");
    }
    let (first, last) = (-62_135_596_800_000_000, 253_402_300_799_999_999);
    let micros = |value| one("timestamp", TimestampMicrosecondArray::from(vec![value]).with_timezone("UTC"));
    let seconds = |value| one("timestamp", TimestampSecondArray::from(vec![value]));
    assert!(micros(first).is_ok() && micros(last).is_ok() && seconds(last / 1_000_000).is_ok());
    for outside in [micros(first - 1), micros(last + 1), seconds(last / 1_000_000 + 1), seconds(i64::MAX)] {
        assert!(outside.is_err());
    }
    // Bytes behind a null are not a value.
    let nulls = arrow::buffer::NullBuffer::from(vec![false, true]);
    let below = Date32Array::new(vec![i32::MAX, 1].into(), Some(nulls));
    assert_eq!(one("date", below).unwrap(), [Value::Null, Value::Date(1)]);
    let items =
        |day| ListArray::from_iter_primitive::<Date32Type, _, _>([Some(vec![Some(1)]), Some(vec![day])]);
    assert!(one("list<date>", items(None)).is_ok());
    let error = one("list<date>", items(Some(2_932_897))).unwrap_err().to_string();
    assert!(error.contains("row 2, column `x[]`"), "{error}");
    let within = StructArray::from(vec![(
        Arc::new(ArrowField::new("d", Arrow::Date32, true)),
        Arc::new(Date32Array::from(vec![-719_163])) as ArrayRef,
    )]);
    assert!(one("struct<d: date>", within).is_err());
    // Items outside a slice, or behind a struct that is null, are not values either.
    let lists =
        ListArray::from_iter_primitive::<Date32Type, _, _>([Some(vec![Some(i32::MAX)]), Some(vec![Some(1)])]);
    assert_eq!(one("list<date>", lists.slice(1, 1)).unwrap().len(), 1);
    let texts = StringArray::from(vec!["10000-01-01x", "2026-11-23"]);
    let offsets = arrow::buffer::OffsetBuffer::new(vec![0, 1, 2].into());
    let field = Arc::new(ArrowField::new("item", Arrow::Utf8, true));
    let texts = ListArray::new(field, offsets, Arc::new(texts), None);
    assert_eq!(one("list<date>", texts.slice(1, 1)).unwrap().len(), 1);
    assert!(one("list<date>", texts).is_err());
    let below = |data_type: Arrow, days: ArrayRef| {
        let nulls = arrow::buffer::NullBuffer::from(vec![false, true]);
        let fields = vec![ArrowField::new("d", data_type, true)].into();
        StructArray::new(fields, vec![days], Some(nulls))
    };
    let days: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX, 1]));
    assert!(one("struct<d: date>", below(Arrow::Date32, days)).is_ok());
    let days: ArrayRef = Arc::new(StringArray::from(vec!["never", "2026-11-23"]));
    assert!(one("struct<d: date>", below(Arrow::Utf8, days)).is_ok());
    // A batch with the table's own schema may have values that were computed since.
    let def = def(&[("x", "date", true)]);
    let brought = |day| {
        RecordBatch::try_new(
            def.schema.to_arrow_user(),
            vec![Arc::new(Date32Array::from(vec![day])) as ArrayRef],
        )
    };
    assert!(conform(&brought(1).unwrap(), &def).is_ok());
    assert!(conform(&brought(i32::MAX).unwrap(), &def).is_err());
}

#[test]
fn messages_name_row_column_and_what_is_wrong() {
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([
        Some(vec![Some(1.0), Some(2.0)]),
        Some(vec![Some(1.0)]),
    ]);
    let cases: Vec<(Result<Vec<Value>>, &str)> = vec![
        (
            one("int32", Int64Array::from(vec![1, 1 << 40])),
            "row 2, column `x`: `1099511627776` does not fit Int32",
        ),
        (one("float64", Int64Array::from(vec![(1 << 53) + 2])), "`9007199254740994` does not fit float64"),
        (one("int64", Float64Array::from(vec![1.0])), "column `x`: int64 expected, Float64 found"),
        (one("float32", Float64Array::from(vec![1.0])), "float32 expected, Float64 found"),
        (one("bool", Float32Array::from(vec![1.0])), "bool expected, Float32 found"),
        (one("uuid", StringArray::from(vec!["00", "zz"])), "row 1, column `x`: `00` does not fit uuid"),
        (
            one("timestamp", StringArray::from(vec!["yesterday"])),
            "row 1, column `x`: `yesterday` does not fit",
        ),
        (one("vector(2)", lists.clone()), "row 2, column `x`: 1 numbers where vector(2) has 2"),
        (one("list<int64>", lists), "column `x[]`: int64 expected, Float64 found"),
    ];
    for (result, part) in cases {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Kind::Schema);
        assert!(error.to_string().contains(part), "{error}, expected {part}");
    }
    let digits = Decimal128Array::from(vec![99_999, 100_000]).with_precision_and_scale(5, 2).unwrap();
    let error = one("decimal(5,2)", digits).unwrap_err();
    assert!(error.to_string().contains("row 2, column `x`: a number has more than 5 digits"), "{error}");
    let nested = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), Some(vec![None])]);
    let error = one("list<int32 not null>", nested).unwrap_err();
    assert!(error.to_string().contains("row 2, column `x[]`: an item is null"), "{error}");
}

#[test]
fn null_missing_unknown_and_doubled_columns_are_refused_by_name() {
    let table = def(&[("id", "int64", false), ("name", "string", true)]);
    let ids = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let message = |columns| conform(&batch(columns), &table).unwrap_err().to_string();
    let null = message(vec![("id", ids(vec![Some(1), None]))]);
    assert!(null.contains("row 2, column `id`: it is NOT NULL"), "{null}");
    let names = Arc::new(StringArray::from(vec!["a"])) as ArrayRef;
    let missing = message(vec![("name", names)]);
    assert!(missing.contains("column `id` is NOT NULL, has no default and was not given"), "{missing}");
    let unknown = message(vec![("id", ids(vec![Some(1)])), ("colour", ids(vec![Some(1)]))]);
    assert!(unknown.contains("no column `colour`") && unknown.contains("it has id, name"), "{unknown}");
    let reserved = message(vec![("id", ids(vec![Some(1)])), ("_row_id", ids(vec![Some(1)]))]);
    assert!(reserved.contains("belong to Polynya"), "{reserved}");
    let doubled = message(vec![("id", ids(vec![Some(1)])), ("ID", ids(vec![Some(1)]))]);
    assert!(doubled.contains("`id` and `ID` both name column `id`"), "{doubled}");
}

/// Digits below a microsecond are cut downwards, like digits of a text, not towards 1970.
#[test]
fn what_is_finer_than_its_column_is_cut_downwards_before_1970_too() {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("at", &DataType::Timestamp, true, None).unwrap();
    def.add_column("day", &DataType::Date, true, None).unwrap();
    let nanos = TimestampNanosecondArray::from(vec![Some(-1), Some(-1_001), Some(1_999), None]);
    let millis = arrow::array::Date64Array::from(vec![Some(-1), Some(-86_400_001), Some(86_399_999), None]);
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("at", Arc::new(nanos) as ArrayRef, true),
        ("day", Arc::new(millis) as ArrayRef, true),
    ])
    .unwrap();
    let rows = conform(&batch, &def).unwrap();
    let at = rows.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(at.iter().collect::<Vec<_>>(), [Some(-1), Some(-2), Some(1), None]);
    let day = rows.column(1).as_primitive::<Date32Type>();
    assert_eq!(day.iter().collect::<Vec<_>>(), [Some(-1), Some(-2), Some(0), None]);
}
