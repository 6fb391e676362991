//! What a writer asks for: operations that happen together or not at all.

use arrow::array::RecordBatch;
use commitlog::edit::ApiKey;
use types::{AlterAction, DataType, Lsn, Micros, NewIndex, RowId, TableDef, Value, ViewDef};

use crate::remember::Remember;

/// Operations that become one commit: all at one lsn, or none.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub ops: Vec<Op>,
    pub ack: Ack,
    /// May write tables of the namespace `polynya`. Set by Polynya's own recorders only.
    pub internal: bool,
    /// Committed once, however often it comes: [`Remember`].
    pub remember: Option<Remember>,
}

/// When the writer is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Once the commit survives a crash (L1).
    #[default]
    Durable,
    /// Once it is admitted. It becomes visible like any other, yet a crash, or a conflict with another writer,
    /// may lose it unnoticed.
    Memory,
}

/// One operation. Tables are named as users name them: `[namespace.]table`.
#[derive(Clone, Debug)]
pub enum Op {
    /// The definition's id is given by the engine.
    CreateTable {
        def: TableDef,
        if_absent: bool,
    },
    DropTable {
        table: String,
        if_exists: bool,
    },
    /// Adds columns at the end; those that exist with the same type are skipped.
    AddColumns {
        table: String,
        columns: Vec<NewColumn>,
    },
    /// Changes the definition, all of it or nothing: columns, defaults, the name. Rows stay as they were written and are
    /// read under the new definition.
    AlterTable {
        table: String,
        changes: Vec<AlterAction>,
    },
    /// Drops indexes, then adds some; those that exist as they are asked for stay. What derives from the table follows in
    /// the background.
    AlterIndexes {
        table: String,
        drop: Vec<String>,
        add: Vec<NewIndex>,
    },
    /// Rows by column name. Columns that are not named get their default, else null.
    Insert {
        table: String,
        batch: RecordBatch,
        mode: Mode,
    },
    /// Ends row versions. With `must_exist`, one that is not live any more is a conflict; else it is skipped.
    Delete {
        table: String,
        rows: Vec<RowId>,
        must_exist: bool,
    },
    /// Ends the rows of these keys, given in key order; those that do not exist are skipped.
    DeleteKeys {
        table: String,
        keys: Vec<Vec<Value>>,
    },
    /// Ends the versions `old`, each of which must be live, and inserts the rows that take their place.
    Update {
        table: String,
        old: Vec<RowId>,
        batch: RecordBatch,
    },
    /// Makes a view, or with `replace` puts it in place of the one of its name. Its query was checked by who made it.
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
}

impl Op {
    /// The table that it writes or changes, as it is named.
    pub fn table(&self) -> Option<&str> {
        match self {
            Op::CreateTable { def, .. } => Some(&def.name),
            Op::DropTable { table, .. }
            | Op::AddColumns { table, .. }
            | Op::AlterTable { table, .. }
            | Op::AlterIndexes { table, .. }
            | Op::Insert { table, .. }
            | Op::Delete { table, .. }
            | Op::DeleteKeys { table, .. }
            | Op::Update { table, .. } => Some(table),
            Op::PutView { .. } | Op::DropView { .. } | Op::PutKey(_) | Op::RemoveKey { .. } => None,
        }
    }
}

/// What an insert does when a row of the same key exists. A table without a key takes `Append` and `Upsert` alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuses the transaction with [`types::Kind::Exists`].
    Append,
    /// Replaces the row. Of several rows with one key in the batch the last counts.
    Upsert,
    /// Leaves the old row. Of several rows with one key in the batch the first counts.
    InsertIfAbsent,
    /// One entry a row: the row id that must be the key's live version, or `None` if the key must not exist. Anything
    /// else is a [`types::Kind::Conflict`].
    CompareAndSet(Vec<Option<RowId>>),
}

impl Mode {
    /// How rows go into a table if nobody says how: by its key, or without those that it has, where it says so.
    pub fn of_rows(def: Option<&TableDef>) -> Mode {
        match def {
            Some(def) if def.is_keyed() => Mode::Upsert,
            Some(def) if def.skips_repeats() => Mode::InsertIfAbsent,
            _ => Mode::Append,
        }
    }
}

/// A column to add.
#[derive(Clone, Debug, PartialEq)]
pub struct NewColumn {
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub default: Option<Value>,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Where it stands in the log; 0 if it was acknowledged from memory.
    pub lsn: Lsn,
    /// The `_time` of the inserted rows.
    pub time: Micros,
    /// The ids of the first and last inserted row, if there was one. In between there may be rows of the same
    /// transaction only; with several tables they speak of the last one written.
    pub first_row: Option<RowId>,
    pub last_row: Option<RowId>,
    /// Rows inserted (new versions included).
    pub count: u64,
    /// Row versions that ended.
    pub deleted: u64,
}

impl Transaction {
    pub fn new(ops: Vec<Op>) -> Self {
        Transaction { ops, ack: Ack::Durable, internal: false, remember: None }
    }

    /// One insert.
    pub fn insert(table: impl Into<String>, batch: RecordBatch, mode: Mode) -> Self {
        Transaction::new(vec![Op::Insert { table: table.into(), batch, mode }])
    }

    #[must_use]
    pub fn ack(mut self, ack: Ack) -> Self {
        self.ack = ack;
        self
    }

    /// Refused with [`types::Kind::Conflict`] (in its context [`REPEATED`](crate::remember::REPEATED)) if one of this key was
    /// committed already. With [`Ack::Durable`] only: nobody would learn what became of it.
    #[must_use]
    pub fn remember(mut self, remember: Remember) -> Self {
        self.remember = Some(remember);
        self
    }

    /// For Polynya's own tables.
    #[must_use]
    pub fn internal(mut self) -> Self {
        self.internal = true;
        self
    }
}
