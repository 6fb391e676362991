//! Partition values as human-readable text.

use crate::single::{Single, SingleType};
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

fn text(field: &SpecField, value: &Single) -> String {
    match (field.transform.as_str(), value) {
        ("year", Single::Int(n)) => format!("{:04}", n + 1970),
        ("month", Single::Int(n)) => format!("{:04}-{:02}", 1970 + n.div_euclid(12), n.rem_euclid(12) + 1),
        ("day", Single::Int(n)) => day(*n),
        ("hour", Single::Int(n)) => format!("{}-{:02}", day(n.div_euclid(24)), n.rem_euclid(24)),
        (_, value) => plain(field.result, value),
    }
}

fn day(days: i64) -> String {
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}")
}

fn plain(result: Option<SingleType>, value: &Single) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match (value, result) {
        (Single::Bool(value), _) => value.to_string(),
        (Single::Int(value), Some(SingleType::Date)) => day(*value),
        (Single::Int(value), Some(SingleType::Timestamptz)) => {
            let (days, rest) = (value.div_euclid(86_400_000_000), value.rem_euclid(86_400_000_000));
            let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
            let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            format!("{}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", day(days))
        }
        (Single::Int(value), _) => value.to_string(),
        (Single::Float(value), _) => value.to_string(),
        (Single::Bytes(bytes), Some(SingleType::Uuid)) if bytes.len() == 16 => {
            let hex = hex(bytes);
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        }
        (Single::Bytes(bytes), Some(SingleType::Binary)) => hex(bytes),
        (Single::Bytes(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
        (Single::Decimal(value), Some(SingleType::Decimal { scale, .. })) if scale > 0 => {
            let digits = format!("{:0width$}", value.unsigned_abs(), width = usize::from(scale) + 1);
            let (whole, part) = digits.split_at(digits.len() - usize::from(scale));
            format!("{}{whole}.{part}", if *value < 0 { "-" } else { "" })
        }
        (Single::Decimal(value), _) => value.to_string(),
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
        let decimal = Some(SingleType::Decimal { precision: 9, scale: 2 });
        for (transform, result, value, wanted) in [
            ("year", Some(SingleType::Int), Single::Int(54), "2024"),
            ("month", Some(SingleType::Int), Single::Int(-1), "1969-12"),
            ("day", Some(SingleType::Date), Single::Int(19_876), "2024-06-02"),
            ("hour", Some(SingleType::Int), Single::Int(-1), "1969-12-31-23"),
            ("bucket[16]", Some(SingleType::Int), Single::Int(7), "7"),
            ("identity", Some(SingleType::Date), Single::Int(0), "1970-01-01"),
            ("identity", Some(SingleType::Timestamptz), Single::Int(-1), "1969-12-31T23:59:59.999999Z"),
            ("identity", Some(SingleType::String), Single::Bytes(b"de".to_vec()), "de"),
            ("truncate[2]", Some(SingleType::Binary), Single::Bytes(vec![1, 255]), "01ff"),
            ("identity", decimal, Single::Decimal(-5), "-0.05"),
            ("identity", decimal, Single::Decimal(12_345), "123.45"),
        ] {
            assert_eq!(shown(transform, result, value), wanted, "{transform} {result:?}");
        }
    }
}
