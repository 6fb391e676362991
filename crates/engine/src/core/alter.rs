//! ALTER TABLE on the commit thread: repeats the checks whose result other writers may have changed meanwhile.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use types::{Error, Lsn, Result, TableDef, name};

use super::Core;
use super::check::changed_since;
use crate::prepare::{Alter, Prepared, PreparedOp, TargetTable, exists, refuse_nulls};

/// Number of rows added since the caller looked for nulls that the commit thread checks itself. With more, the caller looks
/// again.
pub(super) const ROWS_AGAIN_MAX: u64 = 65_536;

impl Prepared {
    /// Returns true if the rows of earlier transactions of the group must be in the tips before this one is checked.
    pub fn needs_row_check(&self) -> bool {
        let asks = |op: &PreparedOp| match op {
            PreparedOp::AlterTable(Alter { seen, .. }) => seen.is_some(),
            PreparedOp::AlterIndexes { add, .. } => add.iter().any(|index| index.unique),
            _ => false,
        };
        self.ops.iter().any(asks)
    }
}

impl Core {
    /// Returns the changed definition, or `None` if nothing is left to change.
    pub(super) fn check_alter(
        &self,
        defs: &HashMap<String, TableDef>,
        alter: &Alter,
    ) -> Result<Option<TableDef>> {
        let def = self.def_in(defs, &alter.table)?;
        if def.schema.version != alter.base {
            return Err(changed_since(&alter.table));
        }
        let Some(changed) = def.altered(&alter.changes)? else { return Ok(None) };
        if changed.name != def.name {
            self.check_no_view(&changed.name)?;
            let folded = changed.name.to_lowercase();
            let is_taken = |taken: &&str| {
                taken.to_lowercase() == folded && self.names.get(*taken).is_none_or(|id| *id != def.id)
            };
            let known = self.names.keys().map(AsRef::as_ref).chain(defs.keys().map(String::as_str));
            if let Some(taken) = known.into_iter().find(is_taken) {
                return Err(exists(taken));
            }
        }
        if let Some(seen) = &alter.seen {
            let Some(tip) = self.tips.get(&def.id).filter(|_| seen.def().id == def.id) else {
                return Err(changed_since(&alter.table));
            };
            if tip.next_row().0 - seen.next_row().0 > ROWS_AGAIN_MAX {
                return Err(Error::conflict(format!(
                    "more rows come to `{}` than can be looked at meanwhile",
                    name::short_table_name(&alter.table)
                ))
                .hint("retry the request when fewer rows come"));
            }
            let last_seen = types::RowId(seen.next_row().0 - 1);
            refuse_nulls(&tip.snapshot(Lsn(0)), last_seen, &changed)?;
        }
        Ok(Some(changed))
    }
}

/// Returns true if rows that conform to an older definition are valid under this one too. Their columns must be unchanged,
/// and every column added since must have a value for rows that lack it.
pub(super) fn still_fits(def: &TableDef, batch: &RecordBatch) -> bool {
    let given = batch.num_columns();
    if given > def.schema.columns.len() {
        return false;
    }
    let (same, new) = def.schema.columns.split_at(given);
    let fields = def.schema.to_arrow_user();
    // Nullability is not compared: it only ever changes from NOT NULL to nullable. `refuses_null` is checked below.
    let is_same = batch.schema_ref().fields().iter().zip(fields.fields()).all(|(then, now)| {
        then.name() == now.name() && then.data_type() == now.data_type() && then.metadata() == now.metadata()
    });
    let has_nulls = || {
        let columns = same.iter().zip(batch.columns());
        columns.into_iter().any(|(column, array)| column.refuses_null && array.null_count() > 0)
    };
    // A row that lacks the column shows `initial` but should get the default, so the two must agree.
    let has_value = |column: &types::Column| {
        column.default == column.initial && (column.default.is_some() || column.takes_null())
    };
    is_same && !has_nulls() && new.iter().all(has_value)
}

/// Returns true if `now` is `then` with more columns after its own and no other change: a column name that was used then
/// means the same column now.
pub(super) fn has_grown(then: &TableDef, now: &TableDef) -> bool {
    let known = then.schema.columns.len();
    then.id == now.id
        && then.primary_key == now.primary_key
        && now.schema.columns.get(..known).is_some_and(|columns| columns == then.schema.columns)
}

/// Brings rows to a definition to which other writers added columns since the rows were prepared. So many clients can add
/// columns to one table at once without waiting for each other. Fails with [`Kind::Conflict`](types::Kind::Conflict) if more
/// than that has changed.
pub(super) fn conform_to_grown(
    def: &TableDef,
    target: &TargetTable,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let base = target.base.as_ref().filter(|base| has_grown(base.def(), def));
    let laid = base.and_then(|_| table::conform(batch, def).ok());
    laid.ok_or_else(|| changed_since(&target.table))
}

/// Returns true if the columns that both definitions have are of the same types.
pub(super) fn same_types(before: &TableDef, after: &TableDef) -> bool {
    let same = |c: &types::Column| before.schema.column(c.id).is_none_or(|b| b.data_type == c.data_type);
    after.schema.columns.iter().all(same)
}
