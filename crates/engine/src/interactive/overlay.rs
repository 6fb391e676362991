//! The contents of an open transaction, as an immutable value. A change makes the next value and leaves this one as it is.
//! So a savepoint is an older value, and undoing goes back to it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use table::Tip;
use table::unique::Lookup;
use types::{Error, Kind, Lsn, Micros, Principal, Result, RowId, Scope, TableId, name};

use super::TransactionLimits;
use crate::core::{PreparedRows, row_gone};
use crate::database_root::DatabaseRoot;
use crate::idempotency::{self, IdempotentRequest};
use crate::prepare::{
    self, DELETE_BYTES, Insert, InsertedFirstRows, Key, KeyRule, OP_BYTES, Prepared, PreparedOp,
    TRANSACTION_BYTES_MAX, TargetTable, UniqueClaims, claims, encode_keys, find_all,
};
use crate::transaction::{Op, Transaction};

/// Bytes of a row besides its values: its id, its time, its places in the head and in the map of keys.
const ROW_BYTES: u64 = 32;
/// Number of savepoints of a transaction at most.
const SAVEPOINTS_MAX: usize = 1_000;
/// Limit of the bytes that savepoints may hold, as a multiple of the bytes that a transaction may write: they may hold rows
/// that were folded or undone since.
const SAVEPOINTS_HOLD_TIMES: u64 = 4;

/// The contents of an open transaction; see the module. A clone shares everything.
#[derive(Clone)]
pub(super) struct Overlay {
    /// The root at the beginning.
    base: Arc<DatabaseRoot>,
    /// The base root with the transaction's writes.
    root: Arc<DatabaseRoot>,
    tables: BTreeMap<TableId, ChangedTable>,
    /// Bytes written, those of rows that were ended again included.
    written: u64,
    /// Oldest first.
    savepoints: Vec<Savepoint>,
    /// Upper bound of the bytes that the savepoints hold.
    kept: u64,
}

#[derive(Clone)]
struct Savepoint {
    name: Arc<str>,
    /// The value at the savepoint, without its own savepoints: the earlier ones are still in the list when the transaction
    /// goes back to it.
    overlay: Arc<Overlay>,
}

/// A table that was written to.
#[derive(Clone)]
struct ChangedTable {
    base: Arc<table::Snapshot>,
    /// The base table with the writes. Rows from the base's next row id on are the transaction's own.
    tip: Tip,
    /// Rows of the base that were ended.
    ended: imbl::OrdSet<RowId>,
}

/// Effect of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenRows {
    pub table: TableId,
    /// Rows inserted, new versions included.
    pub count: u64,
    /// Row versions ended.
    pub deleted: u64,
    /// Ids of the first and last inserted row within the transaction; all rows between them were inserted by the operation.
    pub first_row: Option<RowId>,
    pub last_row: Option<RowId>,
    /// Their `_time` within the transaction; 0 if there are none.
    pub time: Micros,
}

/// Row ids as ranges `(first, rows)`, ascending.
pub(crate) type RowIdRanges = Vec<(u64, u64)>;

/// The commit of a transaction, ready to be submitted.
pub(super) struct PreparedCommit {
    pub prepared: Prepared,
    /// Full names of the tables into which rows are inserted.
    pub tables: Vec<String>,
    /// Row ids within the transaction, in the order of the rows.
    pub own: Vec<(TableId, RowIdRanges)>,
    pub first_rows: InsertedFirstRows,
}

impl Overlay {
    pub fn new(base: Arc<DatabaseRoot>) -> Self {
        Overlay {
            root: base.clone(),
            base,
            tables: BTreeMap::new(),
            written: 0,
            savepoints: Vec::new(),
            kept: 0,
        }
    }

    pub fn root(&self) -> &Arc<DatabaseRoot> {
        &self.root
    }

    /// Upper bound of the bytes that it holds besides those that the database holds anyway.
    pub fn held_bytes(&self) -> u64 {
        self.written + self.kept
    }

    pub fn tables_written(&self) -> Vec<String> {
        self.tables.values().map(|changed| changed.base.def().name.clone()).collect()
    }

    /// The lsn of own rows and deletes: after all commits in the base, so that readers of changes find them.
    fn lsn(&self) -> Lsn {
        self.base.lsn().next()
    }

    // ---- writing ----

    /// Applies one operation. After an error this value must not be used any more.
    pub fn apply(
        &mut self,
        principal: &Principal,
        op: Op,
        time: Micros,
        limits: &TransactionLimits,
    ) -> Result<WrittenRows> {
        principal.require(Scope::Write)?;
        let what = match &op {
            Op::Insert { .. } | Op::Update { .. } | Op::Delete { .. } | Op::DeleteKeys { .. } => None,
            Op::CreateTable { .. } => Some("a table can be created"),
            Op::DropTable { .. } => Some("a table can be dropped"),
            _ => Some("a definition or an API key can be changed"),
        };
        if let Some(what) = what {
            return Err(Error::invalid(format!("{what} only outside of transactions"))
                .hint("do it before the transaction begins, or after it has ended"));
        }
        // Materializers only check definitions, and no definition changes here.
        let mut prepared = prepare::prepare(&self.root, principal, &[], 0, Transaction::new(vec![op]))?;
        let (rows, op) = match prepared.ops.pop() {
            Some(PreparedOp::Insert(insert)) => {
                (insert.batch.num_rows() + insert.replaces.len(), PreparedOp::Insert(insert))
            }
            Some(PreparedOp::Delete { target, rows, must_exist }) => {
                (rows.len(), PreparedOp::Delete { target, rows, must_exist })
            }
            Some(PreparedOp::DeleteKeys { target, keys }) => {
                (keys.len(), PreparedOp::DeleteKeys { target, keys })
            }
            _ => return Err(Error::internal("an operation on rows was prepared as something else")),
        };
        self.written += prepared.bytes + rows as u64 * ROW_BYTES;
        if self.written > limits.bytes_max {
            return Err(Error::new(
                Kind::TooLarge,
                format!(
                    "a transaction writes at most {} MiB, and with this it would be more",
                    limits.bytes_max >> 20
                ),
            )
            .hint("commit the writes so far and go on in another transaction, or roll back"));
        }
        match op {
            PreparedOp::Insert(insert) => self.insert(insert, time),
            PreparedOp::Delete { target, rows, must_exist } => {
                let (table, changed) = self.changed(&target)?;
                let ended = live(changed, &target, rows, must_exist)?;
                self.write(table, None, ended, time)
            }
            PreparedOp::DeleteKeys { target, keys } => {
                let (table, _) = self.changed(&target)?;
                let mut ended: Vec<RowId> = keys.iter().filter_map(|key| key.found).collect();
                ended.sort_unstable();
                self.write(table, None, ended, time)
            }
            _ => Err(Error::internal("an operation on rows was prepared as something else")),
        }
    }

    fn insert(&mut self, insert: Insert, time: Micros) -> Result<WrittenRows> {
        let Insert { target, version, batch, keys, claims, rule, replaces } = insert;
        let (table, changed) = self.changed(&target)?;
        debug_assert_eq!(changed.base.def().schema.version, version, "definitions do not change in here");
        let ended = live(changed, &target, replaces, true)?;
        let def = changed.base.def().clone();
        // The overlay has no other writer, so the prepared lookups are still right.
        let rows = PreparedRows { def: &def, keys: &keys, claims: &claims, rule: &rule };
        let owner =
            |claims: &UniqueClaims, row: usize| Ok(claims.keys[row].as_ref().and_then(|key| key.found));
        let (batch, deletes) = rows.resolve_conflicts(batch, ended, |key: &Key| Ok(key.found), owner)?;
        self.write(table, Some(batch), deletes, time)
    }

    /// Returns the table that an operation was prepared for.
    fn changed(&mut self, target: &TargetTable) -> Result<(TableId, &mut ChangedTable)> {
        let missing = || Error::internal("an operation of an open transaction has no table");
        let (Some(id), Some(base)) = (target.id, &target.base) else { return Err(missing()) };
        // A table without writes so far is as in the base.
        let fresh = || ChangedTable { base: base.clone(), tip: Tip::over(base), ended: imbl::OrdSet::new() };
        Ok((id, self.tables.entry(id).or_insert_with(fresh)))
    }

    /// Ends row versions, adds rows, and makes both visible to readers.
    fn write(
        &mut self,
        table: TableId,
        batch: Option<RecordBatch>,
        deletes: Vec<RowId>,
        time: Micros,
    ) -> Result<WrittenRows> {
        let lsn = self.lsn();
        let missing = || Error::internal("a table that is written to is not entered");
        let changed = self.tables.get_mut(&table).ok_or_else(missing)?;
        let own = changed.base.next_row();
        let mut written = WrittenRows { table, ..WrittenRows::default() };
        for row in deletes.iter().filter(|row| **row < own) {
            changed.ended.insert(*row);
        }
        written.deleted = changed.tip.delete(deletes, lsn);
        if let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) {
            let (first, rows) = (changed.tip.next_row(), batch.num_rows() as u64);
            changed.tip.append(first, time, &[(lsn, rows)], &batch)?;
            written.count = rows;
            written.time = time;
            written.first_row = Some(first);
            written.last_row = Some(RowId(first.0 + rows - 1));
        }
        let snapshot = changed.tip.snapshot(lsn);
        let root = Arc::make_mut(&mut self.root);
        root.tables.insert(Arc::from(snapshot.def().name.as_str()), snapshot);
        Ok(written)
    }

    // ---- savepoints ----

    pub fn savepoint(&self, name: &str, limits: &TransactionLimits) -> Result<Overlay> {
        let kept = self.kept + self.written;
        if self.savepoints.len() >= SAVEPOINTS_MAX || kept > SAVEPOINTS_HOLD_TIMES * limits.bytes_max {
            return Err(Error::new(
                Kind::TooLarge,
                format!(
                    "a transaction has at most {SAVEPOINTS_MAX} savepoints, which keep at most {} MiB",
                    (SAVEPOINTS_HOLD_TIMES * limits.bytes_max) >> 20
                ),
            )
            .hint("release those that are not needed any more"));
        }
        let mut next = self.clone();
        let overlay = Arc::new(Overlay { savepoints: Vec::new(), ..self.clone() });
        next.savepoints.push(Savepoint { name: name.into(), overlay });
        next.kept = kept;
        Ok(next)
    }

    pub fn rolled_back_to(&self, name: &str) -> Result<Overlay> {
        let at = self.position(name)?;
        let Savepoint { overlay, .. } = &self.savepoints[at];
        let mut next = (**overlay).clone();
        // The savepoint stays, so the transaction may go back to it again.
        next.savepoints = self.savepoints[..=at].to_vec();
        next.kept = overlay.kept + overlay.written;
        Ok(next)
    }

    pub fn released(&self, name: &str) -> Result<Overlay> {
        let at = self.position(name)?;
        let mut next = self.clone();
        next.savepoints.truncate(at);
        next.kept = self.savepoints[at].overlay.kept;
        Ok(next)
    }

    /// Returns the position of the newest savepoint of this name.
    fn position(&self, name: &str) -> Result<usize> {
        self.savepoints
            .iter()
            .rposition(|savepoint| *savepoint.name == *name)
            .ok_or_else(|| Error::not_found(format!("there is no savepoint `{}`", name::printable(name))))
    }

    // ---- committing ----

    /// Returns the difference to the base, ready for the commit thread, or `None` if there is none. The record of an
    /// idempotent request is part of it.
    pub fn commit(
        &self,
        principal: &Principal,
        remember: Option<IdempotentRequest>,
    ) -> Result<Option<PreparedCommit>> {
        principal
            .require(Scope::Write)
            .or_else(|error| if self.tables.is_empty() { Ok(()) } else { Err(error) })?;
        let first_rows: InsertedFirstRows = Arc::new(OnceLock::new());
        let prepared = Prepared {
            ops: Vec::new(),
            bytes: 0,
            frame_bytes: OP_BYTES,
            first_rows: Some(first_rows.clone()),
        };
        let mut commit = PreparedCommit { prepared, tables: Vec::new(), own: Vec::new(), first_rows };
        for (id, changed) in &self.tables {
            changed.commit(*id, self.base.lookup(*id), &mut commit)?;
        }
        if commit.prepared.ops.is_empty() {
            return Ok(None);
        }
        if let Some(remember) = remember {
            let target = |op: &PreparedOp| match op {
                PreparedOp::Insert(Insert { target, .. }) | PreparedOp::Delete { target, .. } => {
                    Some(target.table.clone())
                }
                _ => None,
            };
            let tables = commit.prepared.ops.iter().filter_map(target).collect();
            let remember = IdempotentRequest { tables, ..idempotency::with_own_rows(remember, &commit.own) };
            commit.prepared.frame_bytes += prepare::remember_bytes(&remember);
            commit.prepared.ops.extend(idempotency::prepare(&self.base, &remember)?);
        }
        if commit.prepared.frame_bytes > TRANSACTION_BYTES_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!("a transaction writes at most {} MiB", TRANSACTION_BYTES_MAX >> 20),
            )
            .hint("send it as several smaller ones"));
        }
        Ok(Some(commit))
    }
}

/// Returns those of `rows` that are live. With `must_exist`, fails if one is not.
fn live(
    changed: &ChangedTable,
    target: &TargetTable,
    rows: Vec<RowId>,
    must_exist: bool,
) -> Result<Vec<RowId>> {
    let mut live = Vec::with_capacity(rows.len());
    for row in rows {
        if changed.tip.is_live(row)? {
            live.push(row);
        } else if must_exist {
            return Err(row_gone(target, row));
        }
    }
    Ok(live)
}

impl ChangedTable {
    /// Adds the changes of this table to a commit.
    fn commit(
        &self,
        id: TableId,
        lookup: Option<&Arc<dyn Lookup>>,
        commit: &mut PreparedCommit,
    ) -> Result<()> {
        let def = self.base.def();
        let (batch, own) = self.own_rows()?;
        let replaces: Vec<RowId> = self.ended.iter().copied().collect();
        let target = TargetTable { table: def.name.clone(), id: Some(id), base: Some(self.base.clone()) };
        let prepared = &mut commit.prepared;
        prepared.bytes += replaces.len() as u64 * 8;
        prepared.frame_bytes += OP_BYTES + replaces.len() as u64 * DELETE_BYTES;
        let Some(batch) = batch else {
            if !replaces.is_empty() {
                prepared.ops.push(PreparedOp::Delete { target, rows: replaces, must_exist: true });
            }
            return Ok(());
        };
        prepared.bytes += prepare::batch_bytes(&batch);
        prepared.frame_bytes += commitlog::batch::bytes_max(&batch);
        let keys =
            if def.is_keyed() { find_all(Some(&*self.base), encode_keys(def, &batch))? } else { Vec::new() };
        let version = def.schema.version;
        let rule = KeyRule::Unchanged;
        let claims = claims(&target, lookup, def, &batch, &rule)?;
        prepared.bytes += claims.iter().map(UniqueClaims::bytes).sum::<u64>();
        let insert = Insert { target, version, batch, keys, claims, rule, replaces };
        prepared.ops.push(PreparedOp::Insert(insert));
        commit.tables.push(def.name.clone());
        commit.own.push((id, own));
        Ok(())
    }

    /// Returns the inserted rows that are still live, with their ids as ranges.
    fn own_rows(&self) -> Result<(Option<RecordBatch>, RowIdRanges)> {
        let snapshot = self.tip.snapshot(Lsn(0));
        let ids = snapshot.projection(&[types::ROW_ID])?;
        let columns = snapshot.user_columns();
        let (mut batches, mut own) = (Vec::new(), RowIdRanges::new());
        for piece in snapshot.pieces_after(RowId(self.base.next_row().0 - 1)) {
            for row in row_ids(&piece.read(&ids)?)? {
                match own.last_mut() {
                    Some((first, rows)) if *first + *rows == row => *rows += 1,
                    _ => own.push((row, 1)),
                }
            }
            batches.push(piece.read(columns)?);
        }
        if own.is_empty() {
            return Ok((None, own));
        }
        let batch = concat_batches(columns.schema(), &batches)
            .map_err(|e| Error::internal(format!("joining the rows of a transaction failed: {e}")))?;
        Ok((Some(batch), own))
    }
}

fn row_ids(batch: &RecordBatch) -> Result<impl Iterator<Item = u64> + '_> {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    let ids = batch.column(0).as_primitive_opt::<Int64Type>();
    let ids = ids.ok_or_else(|| Error::internal("row ids were asked for"))?;
    Ok(ids.values().iter().map(|id| *id as u64))
}
