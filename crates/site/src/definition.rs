//! The table that a vault is: one row a file.
//!
//! | column | what |
//! |---|---|
//! | `path` | primary key; within the vault, `/` between folders |
//! | `title` | of a note |
//! | `text` | of a note: its words without Markdown, comments and front matter, for search; what a link to another note shows is left out, since it may name one that is private |
//! | `source` | of a note: the file as it is |
//! | `bytes` | of any other file, and of a note that is not UTF-8 |
//! | `published` | whether everybody may read the note |
//! | `modified`, `size` | of the file |
//!
//! A note without `source` and `bytes` was passed over: links to it are hidden, and there is nothing else of it.
//!
//! The index of kind [`types::INDEX_SITE`] makes it a vault, and names the columns that readers may see of published
//! rows. The text index is over title and text.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use bytes::Bytes;
use types::{ColumnId, DataType, Error, INDEX_SITE, IndexDef, Micros, Result, TableDef, TableId};

/// What a server's own vault is called.
pub const TABLE: &str = "main.vault";

const COLUMNS: [(&str, DataType, bool); 8] = [
    ("path", DataType::String, false),
    ("title", DataType::String, true),
    ("text", DataType::String, true),
    ("source", DataType::String, true),
    ("bytes", DataType::Binary, true),
    ("published", DataType::Bool, false),
    ("modified", DataType::Timestamp, true),
    ("size", DataType::Int64, false),
];

/// What a reader may see of a published row.
const OPEN: [&str; 5] = ["path", "title", "text", "modified", "size"];

/// The definition of a vault. Never in the lake unless its owner says so later: what was published once could not be taken
/// back from there.
pub fn definition(full_name: &str) -> Result<TableDef> {
    let mut def = TableDef::new(TableId(0), full_name);
    for (name, data_type, nullable) in &COLUMNS {
        def.add_column(name, data_type, *nullable, None)?;
    }
    def.set_primary_key(&["path".to_owned()])?;
    let ids = |names: &[&str]| -> Vec<ColumnId> {
        names.iter().filter_map(|name| def.schema.column_named(name)).map(|column| column.id).collect()
    };
    let open = ids(&OPEN);
    let searched = ids(&["title", "text"]);
    def.indexes = vec![
        IndexDef {
            name: "site".into(),
            kind: INDEX_SITE.into(),
            columns: open,
            options: Vec::new(),
            unique: None,
        },
        IndexDef {
            name: "text".into(),
            kind: "text".into(),
            columns: searched,
            options: vec![("weights".into(), "3,1".into())],
            unique: None,
        },
    ];
    def.options.lake = Some(false);
    Ok(def)
}

/// Whether a table has the columns of a vault, of their types.
pub fn is_as_defined(def: &TableDef) -> bool {
    let key: Vec<&str> = def.key_columns().map(|column| column.name.as_str()).collect();
    let has = |(name, data_type, _): &(&str, DataType, bool)| {
        def.schema.columns.iter().any(|column| column.name == *name && column.data_type == *data_type)
    };
    def.is_vault() && key == ["path"] && COLUMNS.iter().all(has)
}

/// A file as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub path: String,
    /// Of a note: title and text as everybody may see them. A note without them was passed over.
    pub words: Option<(String, String)>,
    pub content: Bytes,
    pub published: bool,
    pub modified: Option<Micros>,
}

/// The row of a note that was passed over, so that no page shows what it is called.
pub fn withheld(path: &str) -> Row {
    Row { path: path.to_owned(), words: None, content: Bytes::new(), published: false, modified: None }
}

/// Rows by column name.
pub fn batch(rows: &[Row]) -> Result<RecordBatch> {
    let source = |row: &Row| match &row.words {
        Some(_) => std::str::from_utf8(&row.content).ok().map(str::to_owned),
        None => None,
    };
    let sources: Vec<Option<String>> = rows.iter().map(source).collect();
    let contents = rows.iter().zip(&sources).map(|(row, source)| match source {
        Some(_) => None,
        None if row.words.is_none() && crate::is_note(&row.path) => None,
        None => Some(row.content.as_ref()),
    });
    let columns: [(&str, ArrayRef); 8] = [
        ("path", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.path)))),
        ("title", Arc::new(StringArray::from_iter(rows.iter().map(|r| r.words.as_ref().map(|w| &w.0))))),
        ("text", Arc::new(StringArray::from_iter(rows.iter().map(|r| r.words.as_ref().map(|w| &w.1))))),
        ("source", Arc::new(StringArray::from_iter(sources.iter().map(Option::as_deref)))),
        ("bytes", Arc::new(BinaryArray::from_iter(contents))),
        ("published", Arc::new(BooleanArray::from_iter(rows.iter().map(|r| Some(r.published))))),
        (
            "modified",
            Arc::new(
                TimestampMicrosecondArray::from_iter(rows.iter().map(|r| r.modified)).with_timezone("UTC"),
            ),
        ),
        ("size", Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.content.len() as i64)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .map_err(|error| Error::internal(format!("files do not become a batch: {error}")))
}
