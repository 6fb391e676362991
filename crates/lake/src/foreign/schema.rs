//! Converts an Iceberg schema to columns that a table here may have.

use std::collections::HashMap;

use arrow::array::ArrayRef;
use serde_json::Value as Json;
use types::{ColumnId, DataType, Error, Field, Kind, Result};

use super::defaults;
use crate::live_rows::as_type;

/// A column of the table that is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The column's name in the Iceberg table.
    pub name: String,
    pub data_type: DataType,
    /// A description of the conversion, for values that no type here holds unchanged ("maps become JSON objects").
    pub conversion: Option<String>,
}

/// A field of the schema, or an element, key or value of a list or map, with its field id.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub id: i32,
    pub name: String,
    pub required: bool,
    pub kind: NodeKind,
    /// One row with the initial default, for files that lack the field; `None` if there is none.
    pub default: Option<ArrayRef>,
}

#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    Plain(DataType),
    /// A time of day. It becomes text.
    Time,
    Struct(Vec<Node>),
    List(Box<Node>),
    /// A map. It becomes a JSON object.
    Map(Box<Node>, Box<Node>),
}

/// Levels of nested types. No type of a table here has more.
const NESTING_MAX: usize = 16;

/// A type without values: such a field has only nulls and is left out.
const UNKNOWN: &str = "unknown";

/// Returns the columns of a schema. Leaves out columns without a type, and for a table of Polynya its internal ones (row id and
/// time).
pub(super) fn columns_of(schema: &Json, is_polynya: bool) -> Result<(Vec<Node>, Vec<Column>)> {
    let fields = schema["fields"].as_array().ok_or_else(|| Error::damaged("a schema without fields"))?;
    let own = [types::ROW_ID.0 as i32, types::TIME.0 as i32];
    let mut nodes = Vec::with_capacity(fields.len());
    for field in fields.iter().filter(|field| field["type"] != UNKNOWN) {
        let node = node(field, 0)?;
        if !(is_polynya && own.contains(&node.id)) {
            nodes.push(node);
        }
    }
    let column = |node: &Node| Column {
        name: node.name.clone(),
        data_type: node.data_type(),
        conversion: node.conversion(),
    };
    let columns = nodes.iter().map(column).collect();
    Ok((nodes, columns))
}

fn node(field: &Json, depth: usize) -> Result<Node> {
    let name = field["name"].as_str().ok_or_else(|| Error::damaged("a field without a name"))?;
    let kind = kind_of(&field["type"], depth, name)?;
    let default = default_of(field, &kind, name)?;
    Ok(Node {
        id: id(field, "id")?,
        name: name.to_owned(),
        required: field["required"] == true,
        kind,
        default,
    })
}

/// Returns the names of the columns of a type without values.
pub(super) fn left_out(schema: &Json) -> Vec<String> {
    let fields = schema["fields"].as_array().into_iter().flatten();
    let unknown = fields.filter(|field| field["type"] == UNKNOWN);
    unknown.filter_map(|field| field["name"].as_str().map(str::to_owned)).collect()
}

/// Returns the key column that contains the field `id`, from the first schema that has it, reduced to the path to this field.
/// The field counts as optional and has the widest type to which Iceberg can promote it.
pub(super) fn key(schemas: &[&Json], id: i32) -> Result<Node> {
    let found = schemas.iter().find_map(|schema| key_in(&schema["fields"], id, 0).transpose());
    found.unwrap_or_else(|| {
        Err(Error::new(
            Kind::Invalid,
            format!("equality deletes by the field {id}, which no schema of the table has outside of lists and maps"),
        ))
    })
}

fn key_in(fields: &Json, id: i32, depth: usize) -> Result<Option<Node>> {
    if depth > NESTING_MAX {
        return Ok(None);
    }
    for field in fields.as_array().into_iter().flatten() {
        if field["id"] == id {
            let mut leaf = Node { required: false, ..node(field, depth)? };
            leaf.widen()?;
            return Ok(Some(leaf));
        }
        if let Some(inner) = key_in(&field["type"]["fields"], id, depth + 1)? {
            let name = field["name"].as_str().unwrap_or_default();
            let kind = NodeKind::Struct(vec![inner]);
            let default = default_of(field, &kind, name)?;
            let id = self::id(field, "id")?;
            return Ok(Some(Node { id, name: name.to_owned(), required: false, kind, default }));
        }
    }
    Ok(None)
}

fn default_of(field: &Json, kind: &NodeKind, name: &str) -> Result<Option<ArrayRef>> {
    let default = Some(&field["initial-default"]).filter(|default| !default.is_null());
    default.map(|default| defaults::initial(default, kind, name)).transpose()
}

fn id(json: &Json, key: &str) -> Result<i32> {
    let id = json[key].as_i64().and_then(|id| i32::try_from(id).ok());
    id.ok_or_else(|| Error::damaged(format!("a field without `{key}`")))
}

fn inner(json: &Json, part: &str, depth: usize, column: &str) -> Result<Box<Node>> {
    Ok(Box::new(Node {
        id: id(json, &format!("{part}-id"))?,
        name: part.to_owned(),
        required: part == "key" || json[format!("{part}-required")] == true,
        kind: kind_of(&json[part], depth + 1, column)?,
        default: None,
    }))
}

fn kind_of(json: &Json, depth: usize, column: &str) -> Result<NodeKind> {
    if depth > NESTING_MAX {
        return Err(Error::new(Kind::Invalid, format!("column `{column}` is nested too deeply")));
    }
    let Some(name) = json.as_str() else {
        return Ok(match json["type"].as_str() {
            Some("list") => NodeKind::List(inner(json, "element", depth, column)?),
            Some("map") => {
                NodeKind::Map(inner(json, "key", depth, column)?, inner(json, "value", depth, column)?)
            }
            Some("struct") => {
                let fields = json["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
                let fields = fields.iter().filter(|field| field["type"] != UNKNOWN);
                NodeKind::Struct(fields.map(|field| node(field, depth + 1)).collect::<Result<_>>()?)
            }
            _ => return Err(unknown(column, &json.to_string())),
        });
    };
    Ok(NodeKind::Plain(match name {
        "boolean" => DataType::Bool,
        "int" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "string" => DataType::String,
        "binary" => DataType::Binary,
        "date" => DataType::Date,
        "timestamp" | "timestamptz" => DataType::Timestamp,
        "uuid" => DataType::Uuid,
        "time" => return Ok(NodeKind::Time),
        other if other.starts_with("fixed[") => DataType::Binary,
        other => {
            let digits = other.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
            let parsed = digits.and_then(|digits| {
                let (precision, scale) = digits.split_once(',')?;
                Some((precision.trim().parse::<u8>().ok()?, scale.trim().parse::<u8>().ok()?))
            });
            let (precision, scale) = parsed
                .filter(|(precision, scale)| (1..=38).contains(precision) && scale <= precision)
                .ok_or_else(|| unknown(column, other))?;
            DataType::Decimal { precision, scale }
        }
    }))
}

fn unknown(column: &str, what: &str) -> Error {
    Error::new(Kind::Invalid, format!("column `{column}` is of the Iceberg type {what}, which is not read"))
        .hint("leave the column out in a copy of the table")
}

impl NodeKind {
    pub fn data_type(&self) -> DataType {
        let field = |node: &Node, name: &str| Field {
            id: ColumnId(0),
            name: name.to_owned(),
            data_type: node.data_type(),
            nullable: true,
        };
        match self {
            NodeKind::Plain(plain) => plain.clone(),
            NodeKind::Time => DataType::String,
            NodeKind::Map(..) => DataType::Json,
            NodeKind::List(item) => DataType::List(Box::new(field(item, "element"))),
            NodeKind::Struct(fields) => {
                DataType::Struct(fields.iter().map(|node| field(node, &node.name)).collect())
            }
        }
    }
}

impl Node {
    pub fn data_type(&self) -> DataType {
        self.kind.data_type()
    }

    /// Changes a key field's type to the widest one to which Iceberg can promote it.
    fn widen(&mut self) -> Result<()> {
        self.kind = match &self.kind {
            NodeKind::Plain(DataType::Int32) => NodeKind::Plain(DataType::Int64),
            NodeKind::Plain(DataType::Float32) => NodeKind::Plain(DataType::Float64),
            NodeKind::Plain(DataType::Decimal { scale, .. }) => {
                NodeKind::Plain(DataType::Decimal { precision: 38, scale: *scale })
            }
            NodeKind::Plain(_) | NodeKind::Time => return Ok(()),
            NodeKind::Struct(_) | NodeKind::List(_) | NodeKind::Map(..) => {
                let name = &self.name;
                let what = format!("equality deletes by the column `{name}`, which is of a nested type");
                return Err(Error::new(Kind::Invalid, what));
            }
        };
        let wanted = self.data_type().to_arrow();
        self.default = self.default.as_ref().map(|default| as_type(default, &wanted)).transpose()?;
        Ok(())
    }

    fn conversion(&self) -> Option<String> {
        match &self.kind {
            NodeKind::Time => Some("times of day become text".to_owned()),
            NodeKind::Map(..) => Some("maps become JSON objects".to_owned()),
            NodeKind::Plain(_) => None,
            NodeKind::List(item) => item.conversion(),
            NodeKind::Struct(fields) => fields.iter().find_map(Node::conversion),
        }
    }
}

/// Parses a table's name mapping: for each field id, the names of the field in files without field ids.
pub(super) fn name_mapping(text: &str) -> Result<HashMap<i32, Vec<String>>> {
    fn add(json: &Json, depth: usize, all: &mut HashMap<i32, Vec<String>>) {
        for field in json.as_array().into_iter().flatten().filter(|_| depth <= 2 * NESTING_MAX) {
            let names = field["names"].as_array().into_iter().flatten();
            let names: Vec<String> = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
            if let Some(id) = field["field-id"].as_i64().and_then(|id| i32::try_from(id).ok()) {
                all.entry(id).or_default().extend(names);
            }
            add(&field["fields"], depth + 1, all);
        }
    }
    let json: Json = serde_json::from_str(text)
        .map_err(|e| Error::damaged(format!("the table's name mapping is not JSON: {e}")))?;
    let mut all = HashMap::new();
    add(&json, 0, &mut all);
    Ok(all)
}
