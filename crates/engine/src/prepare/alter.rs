//! ALTER TABLE: checks the changes against the caller's root, and looks at rows if a change requires it.

use std::sync::Arc;

use table::Snapshot;
use types::{AlterAction, Column, Error, Kind, Result, RowId, SchemaVersion, Scope, TableDef, name};

use super::{PreparedOp, Preparer, encoded_bytes};

/// Changes of one table's definition.
#[derive(Debug)]
pub(crate) struct Alter {
    /// Full name.
    pub table: String,
    /// Version of the definition against which the changes were checked.
    pub base: SchemaVersion,
    /// The snapshot whose rows were checked; `None` if no change requires it, or if the same transaction creates the table.
    pub seen: Option<Arc<Snapshot>>,
    pub changes: Vec<AlterAction>,
}

impl Preparer<'_> {
    pub(super) fn alter_table(&mut self, table: &str, changes: Vec<AlterAction>) -> Result<PreparedOp> {
        let full_name = self.writable_name(table)?;
        let touched = self.touch(&full_name)?;
        let (def, base, rows_changed) = (touched.def.clone(), touched.base.clone(), touched.rows_changed);
        let Some(changed) = def.altered(&changes)? else { return Ok(PreparedOp::Nothing) };
        if changed.is_vault() {
            self.principal.require(Scope::Admin).map_err(|e| e.with("vault", &full_name))?;
        }
        let renamed = changed.name != def.name;
        if renamed {
            self.check_renamed(&def, &changed)?;
        }
        for materializer in self.materializers {
            materializer.check(&changed)?;
            materializer.check_change(&def, &changed)?;
        }
        let needs_row_check = changes.iter().any(AlterAction::needs_row_check);
        if needs_row_check && rows_changed {
            return Err(Error::invalid("SET NOT NULL comes before the rows that a transaction writes")
                .with("table", name::short_table_name(&def.name)));
        }
        let seen = base.filter(|_| needs_row_check);
        if let Some(seen) = &seen {
            refuse_nulls(seen, RowId(0), &changed)?;
        }
        self.take_room(encoded_bytes(|e| changed.encode(e)))?;
        self.bytes += changed.schema.columns.iter().map(|c| 128 + c.name.len() as u64).sum::<u64>();
        let touched = self.touch(&full_name)?;
        touched.def = Arc::new(changed);
        // The rest of this transaction does not know the table by its new name.
        touched.dropped |= renamed;
        let (table, base) = (def.name.clone(), def.schema.version);
        Ok(PreparedOp::AlterTable(Alter { table, base, seen, changes }))
    }

    fn check_renamed(&mut self, def: &TableDef, changed: &TableDef) -> Result<()> {
        let to = self.new_name(&changed.name, "table")?;
        // A name in another case could be outside the set of tables of the principal that renames it.
        if !self.view.may_name(&to) {
            return Err(self.may_not_create("table", &to));
        }
        let is_touched = self.tables.contains_key(&to);
        match self.touch(&to) {
            // It is this table: the new name differs by case only.
            Ok(touched) if touched.def.id == def.id => Ok(()),
            Ok(touched) => Err(super::exists(&touched.def.name)),
            Err(e) if e.kind() == Kind::NotFound && !is_touched => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Fails if a live row after `after` holds a null where `changed` refuses one. A column that the table does not have yet has
/// the same value in all rows.
pub(crate) fn refuse_nulls(table: &Snapshot, after: RowId, changed: &TableDef) -> Result<()> {
    let def = table.def();
    let is_new = |column: &&Column| {
        column.refuses_null && def.schema.column(column.id).is_none_or(|before| !before.refuses_null)
    };
    let holds = |column: &Column, row: RowId| {
        let what = format!("column `{}` cannot be NOT NULL: row {row} has no value in it", column.name);
        Err(Error::new(Kind::Schema, what)
            .with("table", name::short_table_name(&def.name))
            .with("column", &column.name)
            .hint("give such rows a value first: UPDATE … SET … WHERE … IS NULL"))
    };
    for column in changed.schema.columns.iter().filter(is_new) {
        let known = def.schema.column(column.id).is_some();
        if !known && column.initial.is_some() {
            continue;
        }
        for piece in table.pieces_after(after) {
            if !known {
                return holds(column, piece.row_range().0);
            }
            // Zone maps count deleted rows too, so a zone can only prove that there is no null.
            if piece.zone(column.id).is_some_and(|zone| zone.nulls == 0) {
                continue;
            }
            let batch = piece.read(&table.projection(&[types::ROW_ID, column.id])?)?;
            if let Some(at) = (0..batch.num_rows()).find(|at| batch.column(1).is_null(*at)) {
                let id = types::Value::from_array(batch.column(0), &types::DataType::Int64, at);
                let types::Value::Int64(id) = id else { return Err(Error::internal("a row without its id")) };
                return holds(column, RowId(id as u64));
            }
        }
    }
    Ok(())
}
