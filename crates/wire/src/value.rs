//! Single values from JSON and from the text of a URL: SQL parameters, defaults and keys.

use serde_json::Value as Json;
use types::{DataType, Error, Kind, Result, Value, name};

use super::column::ValueFault;
use super::parser::Parser;
use super::{Budget, column};

/// Converts a JSON value to a parameter of a statement. The parameter gets the type of the JSON value, since SQL
/// determines the target type by its position. Objects and arrays become JSON text.
pub fn parameter(json: &Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Bool(*v),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(v), _) => Value::Int64(v),
            (None, Some(v)) if !n.is_u64() => Value::Float64(v),
            _ => {
                return Err(Error::invalid(format!("the parameter {n} does not fit int64"))
                    .hint("send it as a string"));
            }
        },
        Json::String(v) => Value::String(v.clone()),
        other => Value::Json(other.to_string()),
    })
}

/// Parses a value of a known type, by the rules for rows. The whole text must be that value.
pub fn of_type(json: &str, data_type: &DataType) -> Result<Value> {
    let mut column = column::ColumnBuffer::new(data_type);
    let mut parser = Parser::new(json);
    let read = column.push_json(&mut parser, &mut Budget::new(1 << 20));
    match read {
        Ok(()) => {}
        Err(ValueFault::Misfit(message)) => return Err(Error::new(Kind::Schema, message)),
        Err(ValueFault::Limit(error)) => return Err(error),
        Err(ValueFault::Malformed(m)) => {
            return Err(Error::invalid(format!("not JSON: {} expected at byte {}", m.expected, m.at)));
        }
    }
    // Trailing text is refused: `2-oops` must not be read as 2.
    if parser.peek().is_some() {
        return Err(Error::new(
            Kind::Schema,
            format!("{data_type} expected, `{}` found", name::printable(json)),
        ));
    }
    let array = column.finish()?.expect("a declared type makes an array");
    Ok(Value::from_array(&array, data_type, 0))
}

/// Parses a key value from a URL path: bools and integers exactly as JSON writes them, all other types without quotes.
pub fn of_text(text: &str, data_type: &DataType) -> Result<Value> {
    if !matches!(data_type, DataType::Bool | DataType::Int32 | DataType::Int64) {
        return of_key(&Json::from(text).to_string(), data_type);
    }
    // JSON allows white space around a value, but a path must name exactly one row or none.
    let found = of_type(text, data_type).ok().filter(|value| *value != Value::Null);
    found.filter(|_| !text.contains(|c: char| c.is_ascii_whitespace())).ok_or_else(|| {
        let found = name::printable(text);
        Error::invalid(format!("the key does not fit: {data_type} expected, `{found}` found"))
    })
}

/// Parses a key value from JSON. A null is refused, since no row has a null key.
pub fn of_key(json: &str, data_type: &DataType) -> Result<Value> {
    let misfit = |why: &str| Error::invalid(format!("the key does not fit: {why}"));
    match of_type(json, data_type) {
        Ok(Value::Null) => Err(misfit(&format!("{data_type} expected, `null` found"))),
        Ok(value) => Ok(value),
        Err(e) => Err(misfit(e.message())),
    }
}

/// Parses the key in a URL path, already percent-decoded: one value, or for a composite key values separated by commas
/// or a JSON array.
pub fn key(text: &str, types: &[DataType]) -> Result<Vec<Value>> {
    if let [one] = types {
        return Ok(vec![of_text(text, one)?]);
    }
    let parts: Vec<Json> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|e| Error::invalid(format!("the key is not a JSON array: {e}")))?
    } else {
        text.split(',').map(Json::from).collect()
    };
    if parts.len() != types.len() {
        return Err(Error::invalid(format!(
            "the key has {} columns, {} values were given",
            types.len(),
            parts.len()
        ))
        .hint("write them with commas between, or as a JSON array if one contains a comma"));
    }
    let value = |(part, data_type): (&Json, &DataType)| match part {
        Json::String(text) => of_text(text, data_type),
        other => of_key(&other.to_string(), data_type),
    };
    parts.iter().zip(types).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_the_float_that_its_digits_mean() {
        for text in
            ["100.00000000000001", "-0.30000000000000004", "9007199254740993.0", "1.7976931348623157e308"]
        {
            let json: Json = serde_json::from_str(text).unwrap();
            assert_eq!(parameter(&json).unwrap(), Value::Float64(text.parse().unwrap()), "{text}");
        }
        let json: Json = serde_json::from_str(r#"{"a":100.00000000000001}"#).unwrap();
        assert_eq!(parameter(&json).unwrap(), Value::Json(r#"{"a":100.00000000000001}"#.into()));
    }

    #[test]
    fn keys_are_read_from_a_path() {
        let types = [DataType::String, DataType::Int64];
        let expected = vec![Value::String("a".into()), Value::Int64(7)];
        assert_eq!(key("a,7", &types).unwrap(), expected);
        assert_eq!(key(r#"["a",7]"#, &types).unwrap(), expected);
        assert_eq!(key("a,b", &types[..1]).unwrap(), [Value::String("a,b".into())]);
        assert_eq!(key("2026-11-21", &[DataType::Date]).unwrap(), [Value::Date(20_778)]);
        for bad in ["a", "a,b", "a,7,8", "[1", "a,7x", r#"["a",7]x"#, r#"["a","7x"]"#, r#"["a",null]"#] {
            assert_eq!(key(bad, &types).unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
    }

    #[test]
    fn a_key_of_any_type_is_the_whole_text_or_none() {
        let uuid = "018f3b2a-7c4d-7e8f-9a0b-1c2d3e4f5a6b";
        for (name, good) in [
            ("bool", "true"),
            ("int32", "-7"),
            ("int64", "1"),
            ("decimal(10,2)", "1.50"),
            ("date", "2026-11-21"),
            ("timestamp", "2026-11-21T08:06:51Z"),
            ("uuid", uuid),
            ("binary", "aGk="),
        ] {
            let data_type = DataType::parse(name, &mut types::ColumnId(0)).unwrap();
            assert!(data_type.is_key(), "{name}");
            let value = of_text(good, &data_type).unwrap();
            let array = serde_json::to_string(&[good]).unwrap();
            assert_eq!(
                key(&array.replace(']', ",1]"), &[data_type.clone(), DataType::Int64]).unwrap()[0],
                value
            );
            for behind in ["-oops", "abc", ",", ",2", " 2", " ", "\n", "]", "\"", "\0", "%"] {
                let bad = format!("{good}{behind}");
                let refused = key(&bad, std::slice::from_ref(&data_type)).unwrap_err();
                assert_eq!(refused.kind(), Kind::Invalid, "{name} {bad:?}");
                let before = format!("{}{good}", behind.replace('-', "x"));
                assert!(of_text(&before, &data_type).is_err(), "{name} {before:?}");
                assert!(of_type(&format!("{bad} 1"), &data_type).is_err(), "{name} {bad:?}");
            }
            // In base64, `null` encodes three bytes.
            for bad in ["", "null", " "] {
                assert!(of_text(bad, &data_type).is_err() || name == "binary", "{name} {bad:?}");
            }
        }
        let refused = of_text("1abc", &DataType::Int64).unwrap_err();
        assert_eq!(refused.message(), "the key does not fit: int64 expected, `1abc` found");
        // Any text is a string, including these.
        assert_eq!(of_text("1,2 null", &DataType::String).unwrap(), Value::String("1,2 null".into()));
    }
}
