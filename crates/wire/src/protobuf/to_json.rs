//! Writes Protobuf values as JSON, for json columns and for the text of a row that was left out.

use std::collections::HashSet;

use types::name;

use super::wire::{Value, members, values};
use crate::column::ValueFault;
use crate::parser::{DEPTH_MAX, Parser};
use crate::{out, text};

/// Appends a value as JSON. A value that JSON cannot represent is a misfit.
pub(crate) fn write_json(value: Value<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), ValueFault> {
    let misfit = |what: String| Err(ValueFault::Misfit(what));
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        Value::Int64(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Double(number) if !number.is_finite() => return misfit(format!("JSON has no {number}")),
        Value::Double(number) => {
            serde_json::to_writer(out, &number).map_err(|e| ValueFault::Misfit(e.to_string()))?;
        }
        Value::String(text) => out::json::string(text, out),
        Value::Bytes(bytes) => {
            out.push(b'"');
            text::write_base64(bytes, out);
            out.push(b'"');
        }
        Value::Timestamp(micros) => {
            out.push(b'"');
            text::write_timestamp(micros, out);
            out.extend_from_slice(b"Z\"");
        }
        Value::Json(text) => {
            let mut parser = Parser::new(text);
            match (parser.skip(), parser.peek()) {
                (Ok(json), None) => out.extend_from_slice(json.as_bytes()),
                _ => return misfit(format!("JSON expected, `{}` found", name::printable(text))),
            }
        }
        Value::List(_) | Value::Struct(_) if depth == DEPTH_MAX => {
            return misfit(format!("at most {DEPTH_MAX} levels of nesting expected, more found"));
        }
        Value::List(message) => {
            out.push(b'[');
            for (at, value) in values(message).enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json(value?, depth + 1, out)?;
            }
            out.push(b']');
        }
        Value::Struct(message) => {
            let mut names = HashSet::new();
            out.push(b'{');
            for member in members(message) {
                let (name, value) = member?;
                if !names.insert(name) {
                    return misfit(format!("the field `{}` is given twice", name::printable(name)));
                }
                if names.len() > 1 {
                    out.push(b',');
                }
                out::json::string(name, out);
                out.push(b':');
                write_json(value, depth + 1, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// Formats a row as a JSON object by column, or as base64 if it is not a valid message.
pub(super) fn row(message: &[u8], columns: &[&str]) -> String {
    let mut out = vec![b'{'];
    for (at, value) in values(message).enumerate() {
        let Ok(value) = value else { return broken(message) };
        if at > 0 {
            out.push(b',');
        }
        match columns.get(at) {
            Some(name) => out::json::string(name, &mut out),
            // The row has more values than there are columns.
            None => out::json::string(&(at + 1).to_string(), &mut out),
        }
        out.push(b':');
        let before = out.len();
        match (value, write_json(value, 0, &mut out)) {
            (_, Ok(())) => {}
            (Value::Double(number), Err(_)) => {
                out.truncate(before);
                out::json::string(&number.to_string(), &mut out);
            }
            (Value::Json(text), Err(_)) => {
                out.truncate(before);
                out::json::string(text, &mut out);
            }
            _ => return broken(message),
        }
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_else(|_| broken(message))
}

fn broken(message: &[u8]) -> String {
    let mut out = Vec::new();
    text::write_base64(message, &mut out);
    String::from_utf8(out).unwrap_or_default()
}
