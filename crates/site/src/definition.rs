//! The table of a vault: one row for each file.
//!
//! | column | content |
//! |---|---|
//! | `path` | primary key; path within the vault, with `/` between folders |
//! | `title` | title of a note |
//! | `text` | text of a note for search, without Markdown, comments, front matter and the text of links to other notes |
//! | `source` | file of a note, unchanged |
//! | `bytes` | content of any other file, and of a note that is not UTF-8 |
//! | `published` | true if everybody may read the note |
//! | `modified`, `size` | time and size of the file |
//!
//! `text` leaves out the text of links to other notes, since it may name a private note.
//!
//! A note without `source` and `bytes` is *withheld*: the feed did not read it. Links to it are hidden, and nothing
//! else is known of it.
//!
//! The index of kind [`types::INDEX_SITE`] makes the table a vault, and names the columns that readers may see of
//! published rows. The text index covers title and text.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use bytes::Bytes;
use types::{ColumnId, DataType, Error, INDEX_SITE, IndexDef, Micros, Result, TableDef, TableId};

/// The name of a server's own vault.
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

/// The columns that a reader may see of a published row.
const OPEN: [&str; 5] = ["path", "title", "text", "modified", "size"];

/// Returns the definition of a vault's table. It stays out of the lake unless its owner changes the option later,
/// because published content could not be withdrawn from there.
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

/// Tells whether a table has the key, index and columns of a vault, with the right types.
pub fn has_vault_columns(def: &TableDef) -> bool {
    let key: Vec<&str> = def.key_columns().map(|column| column.name.as_str()).collect();
    let has = |(name, data_type, _): &(&str, DataType, bool)| {
        def.schema.columns.iter().any(|column| column.name == *name && column.data_type == *data_type)
    };
    def.is_vault() && key == ["path"] && COLUMNS.iter().all(has)
}

/// One row of a vault's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub path: String,
    /// Title and text of a note, as everybody may see them. A note without them is withheld.
    pub words: Option<(String, String)>,
    pub content: Bytes,
    pub published: bool,
    pub modified: Option<Micros>,
}

/// Returns the row of a withheld note: one that was not read, and whose name no page may show.
pub fn withheld_row(path: &str) -> Row {
    Row { path: path.to_owned(), words: None, content: Bytes::new(), published: false, modified: None }
}

/// Builds a record batch of rows, with columns by name.
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
