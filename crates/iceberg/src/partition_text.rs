//! Partition values as human-readable text.

use crate::single_value::{PrimitiveType, SingleValue};
use crate::spec::{Partition, Spec, SpecField};
use crate::transform::date;

/// Returns the name of each field of a spec with a file's value as text; `None` stands for null.
pub fn values(spec: &Spec, partition: &Partition) -> Vec<(String, Option<String>)> {
    let value = |(at, field): (usize, &SpecField)| {
        let value = partition.values.get(at).and_then(Option::as_ref);
        (field.name.clone(), value.map(|value| text(field, value)))
    };
    spec.fields.iter().enumerate().map(value).collect()
}

fn text(field: &SpecField, value: &SingleValue) -> String {
    match (field.transform.as_str(), value) {
        ("year", SingleValue::Int(n)) => format!("{:04}", n + 1970),
        ("month", SingleValue::Int(n)) => {
            format!("{:04}-{:02}", 1970 + n.div_euclid(12), n.rem_euclid(12) + 1)
        }
        ("day", SingleValue::Int(n)) => day(*n),
        ("hour", SingleValue::Int(n)) => format!("{}-{:02}", day(n.div_euclid(24)), n.rem_euclid(24)),
        (_, value) => value_text(field.result, value),
    }
}

fn day(days: i64) -> String {
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}")
}

fn value_text(result: Option<PrimitiveType>, value: &SingleValue) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match (value, result) {
        (SingleValue::Bool(value), _) => value.to_string(),
        (SingleValue::Int(value), Some(PrimitiveType::Date)) => day(*value),
        (SingleValue::Int(value), Some(PrimitiveType::Timestamptz)) => {
            let (days, rest) = (value.div_euclid(86_400_000_000), value.rem_euclid(86_400_000_000));
            let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
            let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            format!("{}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", day(days))
        }
        (SingleValue::Int(value), _) => value.to_string(),
        (SingleValue::Float(value), _) => value.to_string(),
        (SingleValue::Bytes(bytes), Some(PrimitiveType::Uuid)) if bytes.len() == 16 => {
            let hex = hex(bytes);
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        }
        (SingleValue::Bytes(bytes), Some(PrimitiveType::Binary)) => hex(bytes),
        (SingleValue::Bytes(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
        (SingleValue::Decimal(value), Some(PrimitiveType::Decimal { scale, .. })) if scale > 0 => {
            let digits = format!("{:0width$}", value.unsigned_abs(), width = usize::from(scale) + 1);
            let (whole, part) = digits.split_at(digits.len() - usize::from(scale));
            format!("{}{whole}.{part}", if *value < 0 { "-" } else { "" })
        }
        (SingleValue::Decimal(value), _) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_partitions_are_told_as_people_write_them() {
        let shown = |transform: &str, result, value| {
            let (id, name) = (1000, "f".to_owned());
            text(&SpecField { id, name, source: 16, transform: transform.to_owned(), result }, &value)
        };
        let decimal = Some(PrimitiveType::Decimal { precision: 9, scale: 2 });
        for (transform, result, value, wanted) in [
            ("year", Some(PrimitiveType::Int), SingleValue::Int(54), "2024"),
            ("month", Some(PrimitiveType::Int), SingleValue::Int(-1), "1969-12"),
            ("day", Some(PrimitiveType::Date), SingleValue::Int(19_876), "2024-06-02"),
            ("hour", Some(PrimitiveType::Int), SingleValue::Int(-1), "1969-12-31-23"),
            ("bucket[16]", Some(PrimitiveType::Int), SingleValue::Int(7), "7"),
            ("identity", Some(PrimitiveType::Date), SingleValue::Int(0), "1970-01-01"),
            (
                "identity",
                Some(PrimitiveType::Timestamptz),
                SingleValue::Int(-1),
                "1969-12-31T23:59:59.999999Z",
            ),
            ("identity", Some(PrimitiveType::String), SingleValue::Bytes(b"de".to_vec()), "de"),
            ("truncate[2]", Some(PrimitiveType::Binary), SingleValue::Bytes(vec![1, 255]), "01ff"),
            ("identity", decimal, SingleValue::Decimal(-5), "-0.05"),
            ("identity", decimal, SingleValue::Decimal(12_345), "123.45"),
        ] {
            assert_eq!(shown(transform, result, value), wanted, "{transform} {result:?}");
        }
    }
}
