//! Requests of writers: operations that happen together or not at all.

use arrow::array::RecordBatch;
use commitlog::edit::ApiKey;
use types::{AlterAction, DataType, Lsn, Micros, NewIndex, RowId, TableDef, Value, ViewDef};

use crate::idempotency::IdempotentRequest;

/// Operations that become one commit: all at one lsn, or none.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub ops: Vec<Op>,
    pub ack: Ack,
    /// Allows writes to tables of the namespace `polynya`. Only Polynya's own recorders set it.
    pub internal: bool,
    /// The idempotency key, if there is one: the transaction is committed once, however often it is sent.
    pub remember: Option<IdempotentRequest>,
}

/// The moment at which the writer is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Answers once the commit survives a crash (L1).
    #[default]
    Durable,
    /// Answers once the transaction is admitted. It becomes visible like any other, but a crash, or a conflict with another
    /// writer, may lose it unnoticed.
    Memory,
}

/// One operation. Tables are named as users name them: `[namespace.]table`.
#[derive(Clone, Debug)]
pub enum Op {
    /// Creates a table. The engine assigns the id in the definition.
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
    /// Changes the definition (columns, defaults, the name), all of it or nothing. Rows stay as they were written and are
    /// read under the new definition.
    AlterTable {
        table: String,
        changes: Vec<AlterAction>,
    },
    /// Drops indexes, then adds some. An index that already exists as requested stays. Derived data follows in the
    /// background.
    AlterIndexes {
        table: String,
        drop: Vec<String>,
        add: Vec<NewIndex>,
    },
    /// Inserts rows by column name. Columns that are not named get their default, or else null.
    Insert {
        table: String,
        batch: RecordBatch,
        mode: Mode,
    },
    /// Ends row versions. With `must_exist`, a version that is no longer live is a conflict; otherwise it is skipped.
    Delete {
        table: String,
        rows: Vec<RowId>,
        must_exist: bool,
    },
    /// Ends the rows of these keys, whose values are in the order of the key columns. Keys that do not exist are skipped.
    DeleteKeys {
        table: String,
        keys: Vec<Vec<Value>>,
    },
    /// Ends the versions `old`, each of which must be live, and inserts the rows that replace them.
    Update {
        table: String,
        old: Vec<RowId>,
        batch: RecordBatch,
    },
    /// Creates a view, or with `replace` puts it in place of the one of the same name. Its creator has checked the query.
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
    /// The table that it writes or changes, by the name in the operation.
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

/// Behaviour of an insert if a row with the same key exists. A table without a key takes `Append` and `Upsert` alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuses the transaction with [`types::Kind::Exists`].
    Append,
    /// Replaces the row. Of several rows with one key in the batch the last counts.
    Upsert,
    /// Leaves the old row. Of several rows with one key in the batch the first counts.
    InsertIfAbsent,
    /// Requires, for each row, the row id that must be the key's live version, or `None` if the key must not exist. Any
    /// difference is a [`types::Kind::Conflict`].
    CompareAndSet(Vec<Option<RowId>>),
}

impl Mode {
    /// Returns the default mode for rows of a table: upsert if it has a key, insert-if-absent if it skips repeated rows, and
    /// otherwise append.
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

/// Outcome of a committed transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Its lsn; 0 if it was acknowledged from memory.
    pub lsn: Lsn,
    /// The `_time` of the inserted rows.
    pub time: Micros,
    /// Ids of the first and last inserted row, if there is one. All rows between them are of the same transaction. With
    /// several tables they are those of the last table written.
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

    /// A transaction of one insert.
    pub fn insert(table: impl Into<String>, batch: RecordBatch, mode: Mode) -> Self {
        Transaction::new(vec![Op::Insert { table: table.into(), batch, mode }])
    }

    #[must_use]
    pub fn ack(mut self, ack: Ack) -> Self {
        self.ack = ack;
        self
    }

    /// Gives the transaction an idempotency key. It is refused with [`types::Kind::Conflict`] (in its context
    /// [`REPEATED`](crate::idempotency::REPEATED)) if one of this key was committed already. Only for [`Ack::Durable`]:
    /// otherwise nobody would learn its outcome.
    #[must_use]
    pub fn remember(mut self, remember: IdempotentRequest) -> Self {
        self.remember = Some(remember);
        self
    }

    /// Allows writes to Polynya's own tables.
    #[must_use]
    pub fn internal(mut self) -> Self {
        self.internal = true;
        self
    }
}
