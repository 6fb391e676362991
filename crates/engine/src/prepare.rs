//! The part of a write that runs in the caller's thread: it brings rows to the schema and looks their keys up, all against
//! one root. The commit thread re-checks only tables that changed since.

mod alter;
mod keys;
mod names;
mod unique;
mod views;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use commitlog::edit::{ApiKey, Edit};
use commitlog::frame::FRAME_BYTES_MAX;
use table::materializer::Materializer;
use table::unique::EnteredRows;
use types::codec::Encoder;
use types::{
    DataType, Error, IndexDef, Kind, NewIndex, Principal, Result, RowId, SchemaVersion, Scope, TableDef,
    TableId, UniqueState, Value, ViewDef, key, memory, name,
};

use crate::database_root::DatabaseRoot;
use crate::idempotency::{self, IdempotentRequest};
use crate::transaction::{Mode, NewColumn, Op, Transaction};
use crate::view::View;

pub(crate) use alter::{Alter, refuse_nulls};
use keys::distinct;
pub(crate) use keys::{encode_keys, find_all};
pub(crate) use unique::{UniqueClaims, claims, equal_rows};

/// A transaction ready for the commit thread.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub ops: Vec<PreparedOp>,
    /// Approximate bytes of the rows that it brings; they count against the inbox and the debt.
    pub bytes: u64,
    /// Upper bound of the bytes that it adds to a frame; at most [`TRANSACTION_BYTES_MAX`].
    pub frame_bytes: u64,
    /// Receives the row ids of the inserted rows, if a caller asks for them.
    pub first_rows: Option<InsertedFirstRows>,
}

impl Prepared {
    /// Returns true if each of its operations ends something: rows, a table, an index, a view or a key.
    pub fn makes_room(&self) -> bool {
        self.ops.iter().all(|op| match op {
            PreparedOp::AlterIndexes { add, .. } => add.is_empty(),
            PreparedOp::DropTable { .. }
            | PreparedOp::Delete { .. }
            | PreparedOp::Expire { .. }
            | PreparedOp::DeleteKeys { .. }
            | PreparedOp::DropView { .. }
            | PreparedOp::RemoveKey { .. }
            | PreparedOp::Nothing => true,
            PreparedOp::CreateTable { .. }
            | PreparedOp::AddColumns { .. }
            | PreparedOp::AlterTable(_)
            | PreparedOp::Insert(_)
            | PreparedOp::PutView { .. }
            | PreparedOp::PutKey(_) => false,
            // A transaction that makes room may have an idempotency key.
            PreparedOp::Remember(_) => true,
        })
    }
}

/// The first row id that a commit wrote in each table, set before the commit is answered.
pub(crate) type InsertedFirstRows = Arc<OnceLock<Vec<(TableId, RowId)>>>;

/// Bytes of a frame that one transaction may take. A larger one is refused before anything is applied: a change that was
/// applied but does not fit into a frame would end all writing.
pub(crate) const TRANSACTION_BYTES_MAX: u64 = FRAME_BYTES_MAX - (16 << 20);
/// Rows that one transaction may write: each costs a row id and a time in memory, even where its columns are narrow.
pub(crate) const TRANSACTION_ROWS_MAX: u64 = 16 << 20;
/// Bytes of an operation in a frame besides its rows: section headers, its run, padding.
pub(crate) const OP_BYTES: u64 = 512;
/// Bytes of a deleted row id in a frame, at most.
pub(crate) const DELETE_BYTES: u64 = 10;
const TABLE_ID_CHARS_MAX: usize = 10;

#[derive(Debug)]
pub(crate) enum PreparedOp {
    CreateTable {
        def: TableDef,
        if_absent: bool,
    },
    DropTable {
        table: String,
        if_exists: bool,
    },
    /// Adds columns; `base` is the definition that lacked them.
    AddColumns {
        table: String,
        base: Arc<TableDef>,
        columns: Vec<NewColumn>,
    },
    AlterTable(Alter),
    AlterIndexes {
        table: String,
        drop: Vec<String>,
        add: Vec<NewIndex>,
        entered: Vec<EnteredRows>,
    },
    Insert(Insert),
    Delete {
        target: TargetTable,
        rows: Vec<RowId>,
        must_exist: bool,
    },
    Expire {
        target: TargetTable,
        rows: Vec<RowId>,
    },
    DeleteKeys {
        target: TargetTable,
        keys: Vec<Key>,
    },
    PutView {
        view: ViewDef,
        replace: bool,
    },
    DropView {
        name: String,
        if_exists: bool,
    },
    PutKey(ApiKey),
    RemoveKey {
        name: String,
    },
    /// Writes the row of [`crate::idempotency`] that records the transaction; its last operation.
    Remember(Insert),
    Nothing,
}

/// The table an operation was prepared for.
#[derive(Clone, Debug)]
pub(crate) struct TargetTable {
    /// Full name.
    pub table: String,
    /// `None` if the same transaction creates it.
    pub id: Option<TableId>,
    /// The snapshot in which the keys were looked up; `None` if the same transaction creates the table.
    pub base: Option<Arc<table::Snapshot>>,
}

#[derive(Debug)]
pub(crate) struct Insert {
    pub target: TargetTable,
    /// Version of the schema that `batch` conforms to.
    pub version: SchemaVersion,
    /// User columns with their ids.
    pub batch: RecordBatch,
    /// One key for each row of a keyed table; empty for a keyless one.
    pub keys: Vec<Key>,
    /// The values claimed under each unique index.
    pub claims: Vec<UniqueClaims>,
    pub rule: KeyRule,
    /// Row versions that must be live and end: those that an update replaces.
    pub replaces: Vec<RowId>,
}

/// An encoded key, and the row that has it in the caller's snapshot.
#[derive(Debug)]
pub(crate) struct Key {
    pub bytes: Box<[u8]>,
    pub found: Option<RowId>,
}

/// The rule for a new row whose key a live row has already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyRule {
    Refuse,
    Replace,
    Skip,
    /// The row expected to have the key, for each new row.
    Expect(Vec<Option<RowId>>),
    /// Conflicts if another writer has written the key since [`Key::found`] was looked up. A row found then is among the
    /// replaced ones.
    Unchanged,
}

/// Checks a transaction and does the heavy part of it.
pub(crate) fn prepare(
    root: &Arc<DatabaseRoot>,
    principal: &Principal,
    materializers: &[Arc<dyn Materializer>],
    unique_at_once_rows: u64,
    transaction: Transaction,
) -> Result<Prepared> {
    principal.require(Scope::Write)?;
    let view = View::new(root.clone(), principal)?;
    let mut preparer = Preparer {
        view,
        principal,
        materializers,
        unique_at_once_rows,
        internal: transaction.internal,
        tables: HashMap::new(),
        bytes: 0,
        frame_bytes: OP_BYTES,
        rows: 0,
    };
    let mut ops = transaction.ops.into_iter().map(|op| preparer.op(op)).collect::<Result<Vec<_>>>()?;
    if let Some(remember) = &transaction.remember {
        preparer.take_room(remember_bytes(remember))?;
        ops.extend(idempotency::prepare(root, remember)?);
    }
    Ok(Prepared { ops, bytes: preparer.bytes, frame_bytes: preparer.frame_bytes, first_rows: None })
}

/// Upper bound of the bytes in a frame for the record of a request, its table's definition included.
pub(crate) fn remember_bytes(remember: &IdempotentRequest) -> u64 {
    let tables = remember.tables.iter().map(|name| name.len() + TABLE_ID_CHARS_MAX + 2).sum::<usize>();
    4 * OP_BYTES + (remember.note.as_ref().map_or(0, String::len) + tables) as u64
}

struct Preparer<'a> {
    view: View,
    principal: &'a Principal,
    /// The materializers that check new definitions.
    materializers: &'a [Arc<dyn Materializer>],
    /// [`crate::Options::unique_at_once_rows`].
    unique_at_once_rows: u64,
    internal: bool,
    /// The tables that earlier operations of the transaction touched, as they left them, by full name.
    tables: HashMap<String, TouchedTable>,
    bytes: u64,
    frame_bytes: u64,
    rows: u64,
}

/// A table as this transaction sees it.
struct TouchedTable {
    def: Arc<TableDef>,
    base: Option<Arc<table::Snapshot>>,
    /// True if an earlier operation changed its rows.
    rows_changed: bool,
    dropped: bool,
}

impl Preparer<'_> {
    /// Adds to the bytes of the frame, and refuses a transaction that would not fit.
    fn take_room(&mut self, bytes: u64) -> Result<()> {
        self.frame_bytes = self.frame_bytes.saturating_add(bytes);
        if self.frame_bytes > TRANSACTION_BYTES_MAX {
            return Err(too_large(format!(
                "a transaction writes at most {} MiB; this one would write {} MiB and more",
                TRANSACTION_BYTES_MAX >> 20,
                self.frame_bytes >> 20
            )));
        }
        Ok(())
    }

    fn op(&mut self, op: Op) -> Result<PreparedOp> {
        self.take_room(OP_BYTES)?;
        Ok(match op {
            Op::CreateTable { def, if_absent } => self.create(def, if_absent)?,
            Op::DropTable { table, if_exists } => {
                let full_name = self.droppable_name(&table)?;
                match self.touch(&full_name) {
                    Ok(touched) => {
                        touched.dropped = true;
                        PreparedOp::DropTable { table: touched.def.name.clone(), if_exists }
                    }
                    // An operation by name could hit a table that this principal does not see.
                    Err(e) if if_exists && e.kind() == Kind::NotFound => PreparedOp::Nothing,
                    Err(e) => return Err(e),
                }
            }
            Op::AddColumns { table, columns } => self.add_columns(&table, columns)?,
            Op::AlterTable { table, changes } => self.alter_table(&table, changes)?,
            Op::AlterIndexes { table, drop, add } => self.alter_indexes(&table, drop, add)?,
            Op::Insert { table, batch, mode } => {
                let (rule, mode_name) = match mode {
                    Mode::Append => (KeyRule::Refuse, "append"),
                    Mode::Upsert => (KeyRule::Replace, "upsert"),
                    Mode::InsertIfAbsent => (KeyRule::Skip, "insert_if_absent"),
                    Mode::CompareAndSet(expected) => (KeyRule::Expect(expected), "compare-and-set"),
                };
                PreparedOp::Insert(self.insert(&table, &batch, rule, mode_name, Vec::new())?)
            }
            Op::Update { table, mut old, batch } => {
                old.sort_unstable();
                old.dedup();
                PreparedOp::Insert(self.insert(&table, &batch, KeyRule::Refuse, "update", old)?)
            }
            Op::Delete { table, mut rows, must_exist } => {
                rows.sort_unstable();
                rows.dedup();
                self.bytes += rows.len() as u64 * 8;
                self.take_room(rows.len() as u64 * DELETE_BYTES)?;
                PreparedOp::Delete { target: self.rows_target(&table)?, rows, must_exist }
            }
            Op::DeleteKeys { table, keys } => self.delete_keys(&table, &keys)?,
            Op::PutView { view, replace } => self.put_view(view, replace)?,
            Op::DropView { name, if_exists } => self.drop_view(&name, if_exists)?,
            Op::PutKey(api_key) => {
                self.principal.require_unlimited()?;
                self.take_room(encoded_bytes(|e| Edit::PutKey(api_key.clone()).encode(e)))?;
                PreparedOp::PutKey(api_key)
            }
            Op::RemoveKey { name } => {
                self.principal.require_unlimited()?;
                self.take_room(name.len() as u64)?;
                PreparedOp::RemoveKey { name }
            }
        })
    }

    fn touch(&mut self, full_name: &str) -> Result<&mut TouchedTable> {
        // A name that differs by case only must meet the same entry.
        let snapshot =
            if self.tables.contains_key(full_name) { None } else { Some(self.view.table(full_name)?) };
        let actual = snapshot.as_ref().map_or_else(|| full_name.to_owned(), |s| s.def().name.clone());
        let touched = match self.tables.entry(actual) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let base = snapshot.expect("a table that was not touched yet was looked up");
                let def = base.def().clone();
                entry.insert(TouchedTable { def, base: Some(base), rows_changed: false, dropped: false })
            }
        };
        if touched.dropped {
            return Err(Error::not_found(format!(
                "table `{full_name}` was dropped or renamed earlier in the same transaction"
            )));
        }
        Ok(touched)
    }

    fn create(&mut self, mut def: TableDef, if_absent: bool) -> Result<PreparedOp> {
        let full_name = self.new_name(&def.name, "table")?;
        if def.is_vault() {
            // Notes written there may become public, and others would not even see the table.
            self.principal.require(Scope::Admin).map_err(|e| e.with("vault", &full_name))?;
        }
        def.name.clone_from(&full_name);
        // A table without rows has nothing to compare first.
        for index in def.indexes.iter_mut().filter(|index| index.unique.is_some()) {
            index.unique = Some(UniqueState::Enforced);
        }
        def.check_stored()?;
        def.check_layout()?;
        for (at, index) in def.indexes.iter().enumerate() {
            check_overlap(&def, &def.indexes[..at], index)?;
        }
        self.check_derived(&def)?;
        self.take_room(encoded_bytes(|e| def.encode(e)))?;
        self.bytes += def.schema.columns.iter().map(|c| 128 + c.name.len() as u64).sum::<u64>();
        match self.touch(&full_name).map(|touched| touched.def.clone()) {
            Ok(existing) if if_absent => Ok(PreparedOp::CreateTable { def: (*existing).clone(), if_absent }),
            Ok(_) => Err(exists(&full_name)),
            Err(e) if e.kind() == Kind::NotFound && !self.tables.contains_key(&full_name) => {
                name::check_new_table(&full_name)?;
                let new = Arc::new(def.clone());
                self.tables.insert(
                    full_name,
                    TouchedTable { def: new, base: None, rows_changed: false, dropped: false },
                );
                Ok(PreparedOp::CreateTable { def, if_absent })
            }
            Err(e) => Err(e),
        }
    }

    fn add_columns(&mut self, table: &str, columns: Vec<NewColumn>) -> Result<PreparedOp> {
        let full_name = self.writable_name(table)?;
        let touched = self.touch(&full_name)?;
        let base = touched.def.clone();
        if let Some(changed) = with_columns(&touched.def, &columns)? {
            touched.def = Arc::new(changed);
        }
        let def = touched.def.clone();
        self.take_room(encoded_bytes(|e| def.encode(e)))?;
        self.bytes += def.schema.columns.iter().map(|c| 128 + c.name.len() as u64).sum::<u64>();
        Ok(PreparedOp::AddColumns { table: def.name.clone(), base, columns })
    }

    fn alter_indexes(&mut self, table: &str, drop: Vec<String>, add: Vec<NewIndex>) -> Result<PreparedOp> {
        let full_name = self.writable_name(table)?;
        let def = self.touch(&full_name)?.def.clone();
        let mut entered = Vec::new();
        if let Some(changed) = with_indexes(&def, &drop, &add)? {
            entered = self.entered(&full_name, &changed)?;
            if changed.is_vault() || def.is_vault() {
                self.principal.require(Scope::Admin).map_err(|e| e.with("vault", &full_name))?;
            }
            self.check_derived(&changed)?;
            self.touch(&full_name)?.def = Arc::new(changed);
        }
        let def = self.touch(&full_name)?.def.clone();
        self.take_room(encoded_bytes(|e| def.encode(e)))?;
        self.bytes += 1024;
        Ok(PreparedOp::AlterIndexes { table: def.name.clone(), drop, add, entered })
    }

    /// Fails if a materializer could not derive its output from such a table.
    fn check_derived(&self, def: &TableDef) -> Result<()> {
        self.materializers.iter().try_for_each(|materializer| materializer.check(def))
    }

    /// Notes that the transaction changes rows of a table, and returns that table.
    fn rows_target(&mut self, table: &str) -> Result<TargetTable> {
        let full_name = self.writable_name(table)?;
        let touched = self.touch(&full_name)?;
        if touched.rows_changed && touched.def.is_checked() {
            return Err(Error::invalid(format!(
                "a transaction may change the rows of a table with a primary key or a unique index only once; `{}` is changed a second time",
                name::short_table_name(&touched.def.name)
            ))
            .hint("send the changes as one operation, or as several transactions"));
        }
        touched.rows_changed = true;
        let id = touched.base.as_ref().map(|base| base.def().id);
        Ok(TargetTable { table: touched.def.name.clone(), id, base: touched.base.clone() })
    }

    fn insert(
        &mut self,
        table: &str,
        batch: &RecordBatch,
        rule: KeyRule,
        mode: &str,
        replaces: Vec<RowId>,
    ) -> Result<Insert> {
        let target = self.rows_target(table)?;
        let def = self.tables[&target.table].def.clone();
        if let KeyRule::Expect(expected) = &rule {
            if !def.is_keyed() {
                return Err(Error::invalid(format!("{mode} needs a table with a primary key"))
                    .with("table", &target.table));
            }
            if expected.len() != batch.num_rows() {
                return Err(Error::invalid(format!(
                    "compare-and-set needs one expectation a row: {} rows, {} expectations",
                    batch.num_rows(),
                    expected.len()
                )));
            }
        }
        self.rows += batch.num_rows() as u64;
        if self.rows > TRANSACTION_ROWS_MAX {
            return Err(too_large(format!("a transaction writes at most {TRANSACTION_ROWS_MAX} rows")));
        }
        // Checked before defaults are filled in: a small request can become a large one.
        let added = if batch.schema_ref().fields().len() < def.schema.columns.len() {
            table::added_bytes(batch, &def)?
        } else {
            0
        };
        if self.frame_bytes.saturating_add(added) > TRANSACTION_BYTES_MAX {
            return Err(too_large(format!(
                "a transaction writes at most {} MiB; the columns that these {} rows lack would take {} MiB alone",
                TRANSACTION_BYTES_MAX >> 20,
                batch.num_rows(),
                added >> 20
            ))
            .with("table", name::short_table_name(&target.table)));
        }
        // The snapshot keeps the data that conforming needs, unless this transaction changed the definition.
        let batch = match &target.base {
            Some(base) if base.def().schema.version == def.schema.version => base.conform(batch),
            _ => table::conform(batch, &def),
        }
        .map_err(|e| e.with("table", name::short_table_name(&target.table)))?;
        self.bytes += batch_bytes(&batch);
        self.take_room(commitlog::batch::bytes_max(&batch) + replaces.len() as u64 * DELETE_BYTES)?;
        if matches!(rule, KeyRule::Replace | KeyRule::Expect(_)) && def.is_keyed() {
            self.take_room(batch.num_rows() as u64 * DELETE_BYTES)?;
        }
        if !def.is_keyed() {
            if rule == KeyRule::Skip && !def.is_checked() {
                return Err(Error::invalid(format!(
                    "{mode} needs a table with a primary key or a unique index"
                ))
                .with("table", &target.table));
            }
            let claims = self.claims(&target, &def, &batch, &rule)?;
            let (version, keys) = (def.schema.version, Vec::new());
            return Ok(Insert { version, target, batch, keys, claims, rule, replaces });
        }
        let keys = encode_keys(&def, &batch);
        // All rows stay if unique indexes are checked: among several rows with one key, other values help decide which of
        // them is written.
        let (batch, keys) = if rule == KeyRule::Skip && def.indexes.iter().any(IndexDef::checks_writes) {
            (batch, keys)
        } else {
            distinct(&def, batch, keys, &rule)?
        };
        let claims = self.claims(&target, &def, &batch, &rule)?;
        let keys = find_all(target.base.as_deref(), keys)?;
        Ok(Insert { version: def.schema.version, target, batch, keys, claims, rule, replaces })
    }

    fn delete_keys(&mut self, table: &str, keys: &[Vec<Value>]) -> Result<PreparedOp> {
        let target = self.rows_target(table)?;
        let def = &self.tables[&target.table].def;
        if !def.is_keyed() {
            return Err(Error::invalid(format!(
                "table `{}` has no primary key to delete by",
                name::short_table_name(&target.table)
            ))
            .hint("use SQL: DELETE FROM … WHERE …"));
        }
        let types: Vec<DataType> = def.key_columns().map(|c| c.data_type.clone()).collect();
        let mut encoded = keys
            .iter()
            .map(|k| key::encode_values(&types, k).map(Vec::into_boxed_slice))
            .collect::<Result<Vec<_>>>()?;
        encoded.sort_unstable();
        encoded.dedup();
        self.bytes += encoded.iter().map(|k| k.len() as u64).sum::<u64>();
        let deletes = encoded.len() as u64 * DELETE_BYTES;
        let keys = find_all(target.base.as_deref(), encoded)?;
        self.take_room(deletes)?;
        Ok(PreparedOp::DeleteKeys { target, keys })
    }
}

fn too_large(what: String) -> Error {
    Error::new(Kind::TooLarge, what).hint("send it as several smaller ones")
}

fn encoded_bytes(encode: impl FnOnce(&mut Encoder)) -> u64 {
    let mut e = Encoder::new();
    encode(&mut e);
    e.bytes.len() as u64
}

/// Returns the definition with these columns added and its version one higher, or `None` if all of them exist already.
pub(crate) fn with_columns(def: &TableDef, columns: &[NewColumn]) -> Result<Option<TableDef>> {
    let mut changed = def.clone();
    for column in columns {
        let existing = changed.schema.column_named(&column.name).filter(|c| c.name == column.name);
        if let Some(existing) = existing {
            if existing.data_type.to_string() == column.data_type.to_string() {
                continue;
            }
            return Err(Error::new(
                Kind::Exists,
                format!(
                    "column `{}` exists as {}, not as {}",
                    existing.name, existing.data_type, column.data_type
                ),
            )
            .with("table", &def.name));
        }
        if !column.nullable && column.default.is_none() {
            return Err(Error::invalid(format!(
                "column `{}` is NOT NULL and has no default, so existing rows would have no value",
                name::printable(&column.name)
            ))
            .hint("give it a default or let it be null"));
        }
        changed.add_column(&column.name, &column.data_type, column.nullable, column.default.clone())?;
    }
    if changed.schema.columns.len() == def.schema.columns.len() {
        return Ok(None);
    }
    changed.schema.version = def.schema.version.next();
    changed.check_stored()?;
    Ok(Some(changed))
}

/// Returns the definition with these indexes dropped and added, or `None` if that changes nothing. The version stays: rows
/// are stored as before.
pub(crate) fn with_indexes(def: &TableDef, drop: &[String], add: &[NewIndex]) -> Result<Option<TableDef>> {
    let mut changed = def.clone();
    drop.iter().try_for_each(|name| changed.drop_index(name))?;
    for index in add {
        if changed.add_index(index)?
            && let Some((new, before)) = changed.indexes.split_last()
        {
            check_overlap(&changed, before, new)?;
        }
    }
    if changed.indexes == def.indexes {
        return Ok(None);
    }
    changed.check_stored()?;
    Ok(Some(changed))
}

/// Refuses a new text index over a column that another one has: only the other one would be searched.
fn check_overlap(def: &TableDef, before: &[IndexDef], new: &IndexDef) -> Result<()> {
    let texts = || before.iter().filter(|other| other.kind == "text" && new.kind == "text");
    for id in &new.columns {
        if let Some(other) = texts().find(|other| other.columns.contains(id)) {
            let column = def.schema.column(*id).map_or("", |column| column.name.as_str());
            let column = name::printable(column);
            return Err(Error::new(Kind::Schema, format!("`{column}` is indexed by `{}`", other.name))
                .with("table", name::short_table_name(&def.name))
                .hint("drop it first, or leave this column out"));
        }
    }
    Ok(())
}

pub(crate) fn exists(full_name: &str) -> Error {
    Error::new(Kind::Exists, format!("there is a table `{}` already", name::short_table_name(full_name)))
}

/// The error for a row whose key is taken; it shows the values of the key.
pub(crate) fn key_taken(def: &TableDef, batch: &RecordBatch, row: usize) -> Error {
    Error::new(Kind::Exists, format!("a row with {} exists already", key_text(def, batch, row)))
        .with("table", name::short_table_name(&def.name))
}

pub(crate) fn key_text(def: &TableDef, batch: &RecordBatch, row: usize) -> String {
    let part = |column: &types::Column| {
        let array = batch.column_by_name(&column.name)?;
        Some(equals(column, Value::from_array(array, &column.data_type, row)))
    };
    def.key_columns().filter_map(part).collect::<Vec<_>>().join(", ")
}

/// Formats the key of a row that is in the table, like [`key_text`].
pub(crate) fn row_key_text(def: &TableDef, row: &table::RowRef) -> String {
    let part = |column: &types::Column| Some(equals(column, row.value(column.id).ok()?));
    def.key_columns().filter_map(part).collect::<Vec<_>>().join(", ")
}

pub(crate) fn equals(column: &types::Column, value: Value) -> String {
    let text = match value {
        Value::String(text) => format!("'{}'", name::printable(&text)),
        other => Value::to_array(std::slice::from_ref(&other), &column.data_type)
            .ok()
            .and_then(|array| array_value_to_string(&array, 0).ok())
            .unwrap_or_else(|| format!("{other:?}")),
    };
    format!("{} = {text}", column.name)
}

/// Bytes that the rows take in the log: their values, without buffers that they share with other rows, and an overhead for
/// each column.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns();
    (columns.iter().map(|column| memory::slice_bytes(column)).sum::<usize>() + columns.len() * 128) as u64
}
