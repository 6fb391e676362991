//! Single values: SQL parameters, defaults and keys, from JSON and from the text of a URL.

use serde_json::Value as Json;
use types::{DataType, Error, Kind, Result, Value};

use super::column::Fault;
use super::parser::Parser;
use super::{Budget, column};

/// A parameter of a statement. SQL knows from the place it stands in what it should be; here it gets the type that
/// JSON gives it. Objects and arrays are JSON text.
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

/// A value of a known type, by the rules for rows.
pub fn of_type(json: &str, data_type: &DataType) -> Result<Value> {
    let mut column = column::Column::new(data_type);
    let mut parser = Parser::new(json);
    let read = column.read(&mut parser, &mut Budget::new(1 << 20));
    match read {
        Ok(()) => {}
        Err(Fault::Misfit(message)) => return Err(Error::new(Kind::Schema, message)),
        Err(Fault::Limit(error)) => return Err(error),
        Err(Fault::Malformed(m)) => {
            return Err(Error::invalid(format!("no JSON: {} expected at byte {}", m.expected, m.at)));
        }
    }
    let array = column.finish()?.expect("a declared type makes an array");
    Ok(Value::from_array(&array, data_type, 0))
}

/// A key value as it stands in a path: strings bare, everything else as JSON writes it.
pub fn of_text(text: &str, data_type: &DataType) -> Result<Value> {
    match data_type {
        DataType::Bool | DataType::Int32 | DataType::Int64 => of_type(text, data_type),
        _ => of_type(&Json::from(text).to_string(), data_type),
    }
    .map_err(|e| Error::invalid(format!("the key does not fit: {}", e.message())))
}

/// The key in a path, already percent-decoded: one value, or for a composite key values with commas between them or
/// a JSON array.
pub fn key(text: &str, types: &[DataType]) -> Result<Vec<Value>> {
    if let [one] = types {
        return Ok(vec![of_text(text, one)?]);
    }
    let parts: Vec<Json> = match text.starts_with('[') {
        true => serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("the key is no JSON array: {e}")))?,
        false => text.split(',').map(Json::from).collect(),
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
        other => of_type(&other.to_string(), data_type),
    };
    parts.iter().zip(types).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_a_path() {
        let types = [DataType::String, DataType::Int64];
        let expected = vec![Value::String("a".into()), Value::Int64(7)];
        assert_eq!(key("a,7", &types).unwrap(), expected);
        assert_eq!(key(r#"["a",7]"#, &types).unwrap(), expected);
        assert_eq!(key("a,b", &types[..1]).unwrap(), [Value::String("a,b".into())]);
        assert_eq!(key("2026-11-21", &[DataType::Date]).unwrap(), [Value::Date(20_778)]);
        for bad in ["a", "a,b", "a,7,8", "[1"] {
            assert_eq!(key(bad, &types).unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
    }
}
