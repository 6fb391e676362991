use types::{ColumnId, DataType, Value};

use super::*;

fn array(data_type: &str, values: &[Value]) -> ArrayRef {
    Value::to_array(values, &DataType::parse(data_type, &mut ColumnId(0)).unwrap()).unwrap()
}

/// Transforms a column of one value and a null; returns the result for the value.
fn of(transform: Transform, data_type: &str, value: Value) -> SingleValue {
    let column = array(data_type, &[value, Value::Null]);
    let out = apply(transform, &column).unwrap();
    assert_eq!(value_at(&out, 1).unwrap(), None, "nulls stay null");
    value_at(&out, 0).unwrap().unwrap()
}

/// The values are from appendix B of the specification.
#[test]
fn hashes_are_those_of_the_specification() {
    for (hash, bytes) in [
        (2_017_239_379, 34i64.to_le_bytes().to_vec()),
        (-500_754_589, shortest_bytes(1420)),
        (-653_330_422, 17_486i64.to_le_bytes().to_vec()),
        (-2_047_944_441, 1_510_871_468_000_000i64.to_le_bytes().to_vec()),
        (-1_207_196_810, 1_510_871_468_000_001i64.to_le_bytes().to_vec()),
        (1_210_000_089, b"iceberg".to_vec()),
        (1_488_055_340, 0xf79c_3e09_677c_4bbd_a479_3f34_9cb7_85e7u128.to_be_bytes().to_vec()),
        (-188_683_207, vec![0, 1, 2, 3]),
        (0, Vec::new()),
    ] {
        assert_eq!(murmur3(&bytes) as i32, hash, "{bytes:?}");
    }
}

#[test]
fn buckets_are_the_same_for_the_same_value_of_each_width() {
    let bucket = Transform::Bucket(100);
    let expected = SingleValue::Int(i64::from(2_017_239_379 % 100));
    assert_eq!(of(bucket, "int32", Value::Int32(34)), expected);
    assert_eq!(of(bucket, "int64", Value::Int64(34)), expected);
    // A negative hash loses its sign bit first.
    let decimal = SingleValue::Int(i64::from((-500_754_589i32 & i32::MAX) % 100));
    for data_type in ["decimal(9,2)", "decimal(18,2)", "decimal(38,2)"] {
        assert_eq!(of(bucket, data_type, Value::Decimal(1420)), decimal);
    }
    let date = SingleValue::Int(i64::from((-653_330_422i32 & i32::MAX) % 100));
    assert_eq!(of(bucket, "date", Value::Date(17_486)), date);
    let time = SingleValue::Int(i64::from((-2_047_944_441i32 & i32::MAX) % 100));
    assert_eq!(of(bucket, "timestamp", Value::Timestamp(1_510_871_468_000_000)), time);
    let text = SingleValue::Int(1_210_000_089 % 100);
    assert_eq!(of(bucket, "string", Value::String("iceberg".into())), text);
    let uuid = 0xf79c_3e09_677c_4bbd_a479_3f34_9cb7_85e7u128.to_be_bytes();
    assert_eq!(of(bucket, "uuid", Value::Uuid(uuid)), SingleValue::Int(1_488_055_340 % 100));
    let binary = SingleValue::Int(i64::from((-188_683_207i32 & i32::MAX) % 100));
    assert_eq!(of(bucket, "binary", Value::Binary(vec![0, 1, 2, 3])), binary);
}

#[test]
fn widths_round_towards_less() {
    let ten = Transform::Truncate(10);
    for (value, expected) in
        [(1, 0), (0, 0), (-1, -10), (-10, -10), (19, 10), (i64::from(i32::MIN), -2_147_483_648)]
    {
        assert_eq!(of(ten, "int32", Value::Int32(value as i32)), SingleValue::Int(expected), "{value}");
    }
    assert_eq!(of(ten, "int64", Value::Int64(-11)), SingleValue::Int(-20));
    assert_eq!(of(ten, "int64", Value::Int64(i64::MIN)), SingleValue::Int(i64::MIN));
    let fifty = Transform::Truncate(50);
    for (value, expected) in
        [(1065, 1050), (-5, -50), (999_999_999, 999_999_950), (-999_999_999, -999_999_999)]
    {
        assert_eq!(
            of(fifty, "decimal(9,2)", Value::Decimal(value)),
            SingleValue::Decimal(expected),
            "{value}"
        );
    }
    let three = Transform::Truncate(3);
    for (text, expected) in [("iceberg", "ice"), ("ab", "ab"), ("", ""), ("❄äßz", "❄äß")] {
        let expected = SingleValue::Bytes(expected.as_bytes().to_vec());
        assert_eq!(of(three, "string", Value::String(text.into())), expected, "{text}");
    }
    assert_eq!(of(three, "binary", Value::Binary(vec![1, 2, 3, 4])), SingleValue::Bytes(vec![1, 2, 3]));
}

#[test]
fn times_round_towards_the_past() {
    let hour = HOUR_US;
    for (us, year, month, day, hours) in [
        (0, 0, 0, 0, 0),
        (-1, -1, -1, -1, -1),
        (-hour - 1, -1, -1, -1, -2),
        (DAY_US * 31, 0, 1, 31, 31 * 24),
        // The last microsecond of February 2000, a moment of 2017, and the limits of the range.
        (951_868_800_000_000 - 1, 30, 361, 11_016, 264_407),
        (1_510_871_468_000_000, 47, 574, 17_486, 419_686),
        (-62_135_596_800_000_000, -1969, -23_628, -719_162, -17_259_888),
        (253_402_300_799_999_999, 8029, 96_359, 2_932_896, 70_389_527),
    ] {
        for (transform, expected) in [
            (Transform::Year, year),
            (Transform::Month, month),
            (Transform::Day, day),
            (Transform::Hour, hours),
        ] {
            let found = of(transform, "timestamp", Value::Timestamp(us));
            assert_eq!(found, SingleValue::Int(expected), "{transform} of {us}");
            if transform != Transform::Hour {
                let date = Value::Date(us.div_euclid(DAY_US) as i32);
                assert_eq!(of(transform, "date", date), SingleValue::Int(expected), "{transform} of {us}");
            }
        }
    }
}

/// Compares with days counted one by one.
#[test]
fn years_and_months_are_those_of_the_calendar() {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (mut year, mut month, mut day_of_month) = (1, 1, 1);
    for days in -719_162..=2_932_896i64 {
        assert_eq!(year_and_month(days), (year, month), "day {days}");
        let length = match month {
            2 => 28 + i64::from(is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        day_of_month += 1;
        if day_of_month > length {
            (month, day_of_month) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
    assert_eq!((year, month), (10_000, 1));
}

#[test]
fn floats_partition_by_themselves_and_all_nans_are_one() {
    let identity = Transform::Identity;
    let quiet = f64::from_bits(0xfff8_0000_0000_0001);
    assert_eq!(
        of(identity, "float64", Value::Float64(quiet)),
        of(identity, "float64", Value::Float64(f64::NAN))
    );
    assert_ne!(of(identity, "float32", Value::Float32(-0.0)), of(identity, "float32", Value::Float32(0.0)));
    assert_eq!(of(identity, "bool", Value::Bool(true)), SingleValue::Bool(true));
}
