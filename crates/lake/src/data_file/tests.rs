use std::path::Path;

use sim::SimEnv;
use types::{ColumnId, TableDef, TableId, Value};

use super::*;

/// Writes values of one column, and tells its bounds and nulls.
fn bounds_of(data_type: &str, values: &[Value]) -> (Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>) {
    let mut def = TableDef::new(TableId(1), "main.t");
    let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
    def.add_column("c", &data_type, true, None).unwrap();
    let columns = Columns::of(&Arc::new(def)).unwrap();
    let ids: Vec<Value> = (1..=values.len() as i64).map(Value::Int64).collect();
    let times: Vec<Value> = ids.iter().map(|_| Value::Timestamp(0)).collect();
    let arrays = vec![
        Value::to_array(&ids, &DataType::Int64).unwrap(),
        Value::to_array(&times, &DataType::Timestamp).unwrap(),
        Value::to_array(values, &data_type).unwrap(),
    ];
    let batch = RecordBatch::try_new(columns.arrow.clone(), arrays).unwrap();
    let machine = SimEnv::new(1);
    let mut writer = Writer::create(&machine.env(), Path::new("f").into(), &columns).unwrap();
    writer.push(&batch).unwrap();
    let written = writer.finish("f".into()).unwrap();
    assert_eq!(written.file.rows, values.len() as u64);
    assert_eq!(written.row_ids.rows(), values.len() as u64);
    let found = crate::files::read(&machine.env(), Path::new("f")).unwrap();
    assert_eq!(found.len() as u64, written.file.bytes);
    assert_eq!(RowIds::of_file(found).unwrap(), *written.row_ids);
    let metrics = &written.file.metrics;
    let of =
        |bounds: &[(i32, Vec<u8>)]| bounds.iter().find(|(id, _)| *id == 16).map(|(_, bytes)| bytes.clone());
    let nulls = metrics.nulls.iter().find(|(id, _)| *id == 16).map(|(_, nulls)| *nulls);
    (of(&metrics.lower), of(&metrics.upper), nulls)
}

#[test]
fn bounds_are_written_as_iceberg_writes_single_values() {
    let (lower, upper, nulls) = bounds_of("int64", &[Value::Int64(-5), Value::Null, Value::Int64(300)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap(), nulls),
        ((-5i64).to_le_bytes().into(), 300i64.to_le_bytes().into(), Some(1))
    );
    let (lower, upper, _) = bounds_of("int32", &[Value::Int32(-5), Value::Int32(7)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap()),
        ((-5i32).to_le_bytes().to_vec(), 7i32.to_le_bytes().to_vec())
    );
    let (lower, upper, _) = bounds_of("bool", &[Value::Bool(true), Value::Bool(false)]);
    assert_eq!((lower.unwrap(), upper.unwrap()), (vec![0], vec![1]));
    let (lower, upper, _) = bounds_of("float64", &[Value::Float64(1.5), Value::Float64(-2.0)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap()),
        ((-2.0f64).to_le_bytes().to_vec(), 1.5f64.to_le_bytes().to_vec())
    );
    // Decimals: most significant byte first, as few as hold them, whatever Parquet stores them in.
    for digits in [9, 18, 38] {
        let decimals = [Value::Decimal(-129), Value::Decimal(200), Value::Decimal(0)];
        let (lower, upper, _) = bounds_of(&format!("decimal({digits},2)"), &decimals);
        assert_eq!((lower.unwrap(), upper.unwrap()), (vec![0xff, 0x7f], vec![0x00, 0xc8]), "{digits}");
    }
    let (lower, upper, _) = bounds_of("uuid", &[Value::Uuid([9; 16]), Value::Uuid([0x80; 16])]);
    assert_eq!((lower.unwrap(), upper.unwrap()), (vec![9; 16], vec![0x80; 16]));
    let (lower, upper, _) = bounds_of("date", &[Value::Date(-1), Value::Date(20_000)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap()),
        ((-1i32).to_le_bytes().to_vec(), 20_000i32.to_le_bytes().to_vec())
    );
}

#[test]
fn long_texts_have_short_bounds_that_still_bound() {
    let text = |text: &str| Value::String(text.into());
    let (least, most) = ("Bär, der sehr lange schläft", "z, und noch viel mehr davon");
    let (lower, upper, _) = bounds_of("string", &[text(most), text(least), text("m")]);
    let (lower, upper) = (lower.unwrap(), upper.unwrap());
    assert!(lower.len() <= BOUND_BYTES && upper.len() <= BOUND_BYTES);
    assert!(lower.as_slice() <= least.as_bytes() && upper.as_slice() >= most.as_bytes());
    assert!(std::str::from_utf8(&lower).is_ok() && std::str::from_utf8(&upper).is_ok());
}

#[test]
fn nothing_but_nulls_or_nans_has_no_bounds() {
    let (lower, upper, nulls) = bounds_of("int64", &[Value::Null, Value::Null]);
    assert_eq!((lower, upper, nulls), (None, None, Some(2)));
    let (lower, upper, _) = bounds_of("float64", &[Value::Float64(f64::NAN)]);
    assert_eq!((lower, upper), (None, None));
}

#[test]
fn numbers_take_as_few_bytes_as_hold_them() {
    for (value, bytes) in [
        (0, vec![0]),
        (127, vec![127]),
        (128, vec![0, 128]),
        (-1, vec![255]),
        (-128, vec![128]),
        (-129, vec![255, 127]),
    ] {
        assert_eq!(shortest(value), bytes, "{value}");
    }
    assert_eq!(shortest(i128::MIN).len(), 16);
    assert_eq!(shortest(i128::MAX).len(), 16);
}
