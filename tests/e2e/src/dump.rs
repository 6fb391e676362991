//! Dumps the logical contents of a database as text, regardless of how they are stored.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::Array;
use engine::Engine;
use serde_json::{Value as Json, json};
use types::{DataType, Result, TableSet, Value};

/// Returns the contents as JSON with one row per line, so that differences are readable. Names are sorted, regardless of the
/// features of the JSON library. Two databases have the same contents if their texts are equal.
pub fn dump(engine: &Engine) -> Result<String> {
    let root = engine.root();
    let mut out = format!("{{\n\"lsn\": {},\n\"keys\": [\n", root.lsn());
    let keys = root.keys().iter().map(|key| {
        let tables = match &key.tables {
            TableSet::All => json!("all"),
            TableSet::Only(names) => json!(names),
        };
        let name = &key.name;
        json!({"created": key.created, "hash": hex(&key.hash), "name": name, "scope": key.scope.name(), "tables": tables})
    });
    lines(&mut out, keys);
    out.push_str("],\n\"tables\": [\n");
    for (i, table) in root.tables().enumerate() {
        if i > 0 {
            out.push_str(",\n");
        }
        let def = table.def();
        let id_of = |name: &str| def.schema.columns.iter().find(|c| c.name == name).map(|c| c.id.0);
        let key: Vec<_> = def.key_columns().map(|column| id_of(&column.name)).collect();
        let head = json!({"id": def.id.0, "lake": def.options.lake, "name": def.name,
            "next_row": table.next_row().0, "primary_key": key, "retention": def.options.retention,
            "rows": table.rows(), "schema_version": def.schema.version.0});
        let _ = write!(out, "{{\"table\": {head},\n\"columns\": [\n");
        let columns = def.schema.columns.iter().map(|c| {
            let value = |v: &Option<Value>| v.as_ref().map(of_value);
            json!({"default": value(&c.default), "id": c.id.0, "initial": value(&c.initial), "name": c.name,
                "nullable": c.nullable, "type": c.data_type.to_string()})
        });
        lines(&mut out, columns);
        out.push_str("],\n\"data\": [\n");
        let mut types = vec![DataType::Int64, DataType::Timestamp];
        types.extend(def.schema.columns.iter().map(|c| c.data_type.clone()));
        let mut rows = Vec::new();
        for piece in table.pieces() {
            let batch = piece.read(table.all_columns())?;
            let columns: Vec<(&Arc<dyn Array>, &DataType)> = batch.columns().iter().zip(&types).collect();
            assert_eq!(columns.len(), types.len(), "a stored batch has the system columns and all others");
            for row in 0..batch.num_rows() {
                rows.push(Json::Array(
                    columns.iter().map(|(a, t)| of_value(&Value::from_array(a, t, row))).collect(),
                ));
            }
        }
        lines(&mut out, rows.into_iter());
        out.push_str("]}");
    }
    out.push_str("\n]}\n");
    Ok(out)
}

fn lines(out: &mut String, items: impl Iterator<Item = Json>) {
    for (i, item) in items.enumerate() {
        let _ = write!(out, "{}{item}", if i == 0 { "" } else { ",\n" });
    }
    out.push('\n');
}

/// Converts a value without loss: floats become their shortest text that reads back the same, and values that JSON lacks become
/// text.
fn of_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(v) => json!(v),
        Value::Int32(v) | Value::Date(v) => json!(v),
        Value::Int64(v) | Value::Timestamp(v) => json!(v),
        Value::Float32(v) => json!(format!("{v:?}")),
        Value::Float64(v) => json!(format!("{v:?}")),
        Value::Decimal(v) => json!(v.to_string()),
        Value::String(v) => json!(v),
        Value::Json(v) => json!({ "json": v }),
        Value::Binary(v) => json!({ "hex": hex(v) }),
        Value::Uuid(v) => json!({ "uuid": hex(v) }),
        Value::List(items) | Value::Struct(items) => Json::Array(items.iter().map(of_value).collect()),
        Value::Vector(v) => v.iter().map(|v| format!("{v:?}")).collect(),
        Value::Point(v) => v.iter().map(|v| format!("{v:?}")).collect(),
        Value::Point3d(v) => v.iter().map(|v| format!("{v:?}")).collect(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
