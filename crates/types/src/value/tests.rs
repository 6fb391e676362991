use super::*;
use crate::ColumnId;

/// One value of every type, with the type.
fn samples() -> Vec<(&'static str, Value)> {
    vec![
        ("bool", Value::Bool(true)),
        ("int32", Value::Int32(-1)),
        ("int64", Value::Int64(i64::MIN)),
        ("float32", Value::Float32(1.5)),
        ("float64", Value::Float64(-0.25)),
        ("decimal(38,10)", Value::Decimal(-12_345_678_901_234_567_890)),
        ("string", Value::String("größe\0".into())),
        ("binary", Value::Binary(vec![0, 255])),
        ("date", Value::Date(-1)),
        ("timestamp", Value::Timestamp(1_700_000_000_000_001)),
        ("uuid", Value::Uuid([9; 16])),
        ("json", Value::Json("{\"a\":1}".into())),
        ("list<int32>", Value::List(vec![Value::Int32(1), Value::Null])),
        (
            "struct<a: int64 not null, b: list<struct<c: uuid not null>>>",
            Value::Struct(vec![
                Value::Int64(1),
                Value::List(vec![Value::Null, Value::Struct(vec![Value::Uuid([1; 16])])]),
            ]),
        ),
        ("vector(3)", Value::Vector(vec![1.0, -2.0, 3.5])),
        ("point", Value::Point([13.4, 52.5])),
        ("point3d", Value::Point3d([1.0, 2.0, 3.0])),
    ]
}

#[test]
fn every_type_survives_an_array_and_storage() {
    for (text, value) in samples() {
        let data_type = DataType::parse(text, &mut ColumnId(1)).unwrap();
        let column = [Value::Null, value.clone(), Value::Null, value.clone()];
        let array = Value::to_array(&column, &data_type).unwrap();
        assert_eq!(array.data_type(), &data_type.to_arrow(), "{text}");
        let back: Vec<Value> = (0..4).map(|i| Value::from_array(&array, &data_type, i)).collect();
        assert_eq!(back, column, "{text}");

        let mut e = Encoder::new();
        value.encode(&mut e);
        let mut d = Decoder::new(&e.bytes);
        assert_eq!(Value::decode(&mut d).unwrap(), value);
        d.finish().unwrap();
        for cut in 0..e.bytes.len() {
            assert!(Value::decode(&mut Decoder::new(&e.bytes[..cut])).is_err(), "{text} cut at {cut}");
        }
    }
}

#[test]
fn a_value_becomes_another_type_only_without_loss() {
    assert_eq!(Value::Int32(7).cast(&DataType::Int64).unwrap(), Value::Int64(7));
    assert_eq!(Value::Int64(7).cast(&DataType::Int32).unwrap(), Value::Int32(7));
    assert_eq!(Value::Int64(7).cast(&DataType::Float64).unwrap(), Value::Float64(7.0));
    for (value, data_type) in [
        (Value::Int64(1 << 40), DataType::Int32),
        (Value::Int64((1 << 53) + 1), DataType::Float64),
        (Value::Float64(1.0), DataType::Int64),
        (Value::String("1".into()), DataType::Int64),
        (Value::Vector(vec![1.0]), DataType::Vector(2)),
        (Value::Decimal(100), DataType::Decimal { precision: 2, scale: 0 }),
    ] {
        let error = value.clone().cast(&data_type).unwrap_err();
        assert_eq!(error.kind(), Kind::Schema, "{value:?} as {data_type}");
    }
}

#[test]
fn null_in_a_not_null_field_is_refused() {
    let data_type = DataType::parse("struct<a: int64 not null>", &mut ColumnId(1)).unwrap();
    assert!(Value::Struct(vec![Value::Null]).check(&data_type).is_err());
    assert!(Value::Null.check(&data_type).is_ok());
}
