//! The catalog's source of truth: the metadata file of each name. It is a keyed table of Polynya's own. Transactions end exactly
//! the row versions that were read, so a commit to one table is a compare-and-swap of one row, and a commit to several tables
//! swaps all their rows or none.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use engine::{Engine, Mode, Op, Transaction};
use serde_json::{Map, Value as Json};
use table::Snapshot;
use types::{
    ColumnId, DataType, Error, Kind, Principal, ROW_ID, Result, RowId, TableDef, TableId, Value, key,
};

use super::names::Ident;

/// The table of entries. Its columns are [`COLUMNS`]. A namespace is an entry with an empty name.
pub const TABLE: &str = "polynya.catalog";

const COLUMNS: [&str; 7] =
    ["namespace", "name", "kind", "uuid", "location", "metadata_location", "properties"];
/// Number of columns of the primary key.
const KEY: usize = 2;

/// Number of rows that are read at once.
const ROWS: usize = 8_192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Namespace,
    Table,
    View,
}

impl EntryKind {
    fn name(self) -> &'static str {
        match self {
            EntryKind::Namespace => "namespace",
            EntryKind::Table => "table",
            EntryKind::View => "view",
        }
    }

    /// Returns the word for the beginning of a message.
    pub fn title(self) -> &'static str {
        match self {
            EntryKind::Namespace => "Namespace",
            EntryKind::Table => "Table",
            EntryKind::View => "View",
        }
    }
}

/// A namespace, table or view.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub kind: EntryKind,
    pub namespace: Vec<String>,
    /// The name of a table or view; empty for a namespace.
    pub name: String,
    /// The UUID of a table or view; empty for a namespace, as are the next two fields.
    pub uuid: String,
    pub location: String,
    pub metadata_location: String,
    /// The properties of a namespace.
    pub properties: Map<String, Json>,
}

impl Entry {
    pub fn of_namespace(namespace: Vec<String>, properties: Map<String, Json>) -> Entry {
        Entry {
            kind: EntryKind::Namespace,
            namespace,
            name: String::new(),
            uuid: String::new(),
            location: String::new(),
            metadata_location: String::new(),
            properties,
        }
    }

    pub fn ident(&self) -> Ident {
        Ident::new(self.namespace.clone(), &self.name)
    }
}

/// An entry as it was read, and the row version that contains it.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    pub row: RowId,
    pub entry: Entry,
}

/// The changes of a transaction to the catalog.
#[derive(Debug, Default)]
/// New entries, each with the row version that it replaces, if there is one.
pub struct Swap {
    pub puts: Vec<(Option<RowId>, Entry)>,
    pub removals: Vec<RowId>,
}

impl Swap {
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.removals.is_empty()
    }

    /// Adds an entry under a new name.
    pub fn add(entry: Entry) -> Swap {
        Swap { puts: vec![(None, entry)], removals: Vec::new() }
    }

    /// Replaces an entry.
    pub fn replace(known: &StoredEntry, entry: Entry) -> Swap {
        Swap { puts: vec![(Some(known.row), entry)], removals: Vec::new() }
    }

    pub fn remove(known: &StoredEntry) -> Swap {
        Swap { puts: Vec::new(), removals: vec![known.row] }
    }
}

fn definition() -> Result<TableDef> {
    let mut def = TableDef::new(TableId(0), TABLE);
    for column in COLUMNS {
        def.add_column(column, &DataType::String, false, None)?;
    }
    def.set_primary_key(&COLUMNS[..KEY].iter().map(|column| (*column).to_owned()).collect::<Vec<_>>())?;
    def.options.lake = Some(false);
    Ok(def)
}

/// The catalog at one moment.
#[derive(Debug)]
pub struct State(Option<Arc<Snapshot>>);

impl State {
    pub fn now(engine: &Engine) -> State {
        State(engine.root().table(TABLE).cloned())
    }

    pub fn namespace(&self, namespace: &[String]) -> Result<Option<StoredEntry>> {
        self.get(namespace, "")
    }

    /// Returns the entry of a table or view.
    pub fn find(&self, ident: &Ident) -> Result<Option<StoredEntry>> {
        if ident.name.is_empty() {
            return Ok(None);
        }
        self.get(&ident.namespace, &ident.name)
    }

    fn get(&self, namespace: &[String], name: &str) -> Result<Option<StoredEntry>> {
        let Some(table) = &self.0 else { return Ok(None) };
        let values = [Value::String(namespace.join(".")), Value::String(name.to_owned())];
        let types: Vec<&DataType> = table.def().key_columns().map(|column| &column.data_type).collect();
        let key = key::encode_values(types, &values)?;
        let Some(row) = table.find(&key)? else { return Ok(None) };
        let batch = table.fetch(&[row], &table.projection(&columns(table)?)?)?;
        Ok(entries(&batch)?.pop())
    }

    /// Returns all entries in no particular order.
    pub fn all(&self) -> Result<Vec<StoredEntry>> {
        let Some(table) = &self.0 else { return Ok(Vec::new()) };
        let projection = table.projection(&columns(table)?)?;
        let mut all = Vec::new();
        let mut next = RowId(1);
        loop {
            let batch = table.scan_from(next, ROWS, &projection)?;
            let mut found = entries(&batch)?;
            let Some(last) = found.last() else { return Ok(all) };
            next = last.row.next();
            all.append(&mut found);
        }
    }
}

/// Returns the ids of the row id and [`COLUMNS`].
fn columns(table: &Snapshot) -> Result<Vec<ColumnId>> {
    let id = |name: &str| {
        let column = table.def().schema.columns.iter().find(|column| column.name == name);
        column
            .map(|column| column.id)
            .ok_or_else(|| Error::damaged(format!("`{TABLE}` has no column `{name}`")))
    };
    let mut ids = vec![ROW_ID];
    for column in COLUMNS {
        ids.push(id(column)?);
    }
    Ok(ids)
}

fn entries(batch: &RecordBatch) -> Result<Vec<StoredEntry>> {
    let unexpected = || Error::damaged(format!("`{TABLE}` has columns of other types"));
    let ids = batch.column(0).as_primitive_opt::<arrow::datatypes::Int64Type>().ok_or_else(unexpected)?;
    let mut texts = Vec::new();
    for at in 1..batch.num_columns() {
        texts.push(batch.column(at).as_string_opt::<i32>().ok_or_else(unexpected)?);
    }
    let entry = |at: usize| -> Result<StoredEntry> {
        let text = |column: usize| texts[column].value(at);
        let kind = match text(2) {
            "namespace" => EntryKind::Namespace,
            "table" => EntryKind::Table,
            "view" => EntryKind::View,
            other => return Err(Error::damaged(format!("`{TABLE}` has an entry of kind `{other}`"))),
        };
        let properties = serde_json::from_str(text(6))
            .map_err(|e| Error::damaged(format!("properties in `{TABLE}` are no JSON: {e}")))?;
        Ok(StoredEntry {
            row: RowId(ids.value(at) as u64),
            entry: Entry {
                kind,
                namespace: text(0).split('.').map(str::to_owned).collect(),
                name: text(1).to_owned(),
                uuid: text(3).to_owned(),
                location: text(4).to_owned(),
                metadata_location: text(5).to_owned(),
                properties,
            },
        })
    };
    (0..batch.num_rows()).map(entry).collect()
}

/// Commits a swap; it is durable on return. Fails with [`types::Kind::Conflict`] if an entry has changed since it was read, or if
/// a new name is taken.
pub fn swap(engine: &Engine, swap: Swap) -> Result<()> {
    let mut ops = Vec::new();
    if engine.root().table(TABLE).is_none() {
        ops.push(Op::CreateTable { def: definition()?, if_absent: true });
    }
    let (expected, entries): (Vec<_>, Vec<_>) = swap.puts.into_iter().unzip();
    let table = TABLE.to_owned();
    // One operation, because a transaction may change a keyed table only once. An update may move the successor of a row to
    // another name.
    let old: Vec<RowId> = expected.into_iter().flatten().chain(swap.removals).collect();
    ops.push(match (entries.is_empty(), old.is_empty()) {
        (true, _) => Op::Delete { table, rows: old, must_exist: true },
        (false, true) => Op::Insert { table, batch: batch(&entries)?, mode: Mode::Append },
        (false, false) => Op::Update { table, old, batch: batch(&entries)? },
    });
    let done = engine.commit(&Principal::local(), Transaction::new(ops).internal());
    done.map(drop).map_err(|error| match error.kind() {
        Kind::Exists => Error::conflict("another entry has the name already"),
        _ => error,
    })
}

fn batch(entries: &[Entry]) -> Result<RecordBatch> {
    let column = |get: &dyn Fn(&Entry) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(entries.iter().map(get)))
    };
    let values: [ArrayRef; COLUMNS.len()] = [
        column(&|entry| entry.namespace.join(".")),
        column(&|entry| entry.name.clone()),
        column(&|entry| entry.kind.name().to_owned()),
        column(&|entry| entry.uuid.clone()),
        column(&|entry| entry.location.clone()),
        column(&|entry| entry.metadata_location.clone()),
        column(&|entry| Json::Object(entry.properties.clone()).to_string()),
    ];
    RecordBatch::try_from_iter(COLUMNS.into_iter().zip(values))
        .map_err(|error| Error::internal("the catalog's entries do not make a batch").caused_by(error))
}
