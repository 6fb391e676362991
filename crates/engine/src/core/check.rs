//! Checking a transaction against the tips, as a whole and before any of it is applied.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use types::schema::TABLES_MAX;
use types::{Error, Kind, Result, RowId, SchemaVersion, TableDef, TableId, name};

use super::alter::{conform_to_grown, has_grown, still_fits};
use super::idempotency::RequestRecord;
use super::insert_conflicts::{PreparedRows, overtaken};
use super::{Action, Core, Group};
use crate::prepare::{
    Insert, Key, Prepared, PreparedOp, TargetTable, UniqueClaims, exists, row_key_text, with_columns,
    with_indexes,
};

impl Core {
    /// Checks a transaction against the tips without changing them.
    pub(super) fn check(&mut self, group: &mut Group, prepared: Prepared) -> Result<Vec<Action>> {
        // Definitions as this transaction leaves them, by full name.
        let mut defs: HashMap<String, TableDef> = HashMap::new();
        // Lower-case names that it gives to views.
        let mut views: Vec<String> = Vec::new();
        let mut actions = Vec::with_capacity(prepared.ops.len());
        // A repeated request gets its recorded answer, not the outcome of a second attempt.
        for op in &prepared.ops {
            if let PreparedOp::Remember(insert) = op {
                self.check_not_repeated(insert)?;
            }
        }
        for op in prepared.ops {
            match op {
                PreparedOp::CreateTable { mut def, if_absent } => {
                    match self.names.get(def.name.as_str()) {
                        Some(_) if if_absent && def.id != TableId(0) => continue,
                        // The table was created since the definition was made, maybe with other columns.
                        Some(_) if if_absent => return Err(changed_since(&def.name)),
                        Some(_) => return Err(exists(&def.name)),
                        None if def.id != TableId(0) => return Err(changed_since(&def.name)),
                        None => {}
                    }
                    self.check_table_name(&def.name, defs.len())?;
                    if views.contains(&def.name.to_lowercase()) {
                        return Err(exists(&def.name));
                    }
                    def.id = TableId(self.meta.next_table.0 + defs.len() as u32);
                    defs.insert(def.name.clone(), def.clone());
                    actions.push(Action::Create(def));
                }
                PreparedOp::DropTable { table, if_exists } => match self.names.get(table.as_str()) {
                    Some(id) => actions.push(Action::Drop(*id)),
                    None if if_exists => {}
                    None => return Err(Error::not_found(format!("there is no table `{table}`"))),
                },
                PreparedOp::AddColumns { table, base, columns } => {
                    let def = self.def_in(&defs, &table)?;
                    let is_same = def.schema.version == base.schema.version;
                    if !is_same && !has_grown(&base, def) {
                        return Err(changed_since(&table));
                    }
                    // The columns may clash with those of other writers. The caller then prepares again and gets the error.
                    let added = with_columns(def, &columns);
                    let added = added.map_err(|e| if is_same { e } else { changed_since(&table) })?;
                    if let Some(def) = added {
                        defs.insert(table, def.clone());
                        actions.push(Action::Alter(def, Vec::new()));
                    }
                }
                PreparedOp::AlterTable(alter) => {
                    if let Some(def) = self.check_alter(&defs, &alter)? {
                        defs.insert(def.name.clone(), def.clone());
                        actions.push(Action::Alter(def, Vec::new()));
                    }
                }
                PreparedOp::AlterIndexes { table, drop, add, entered } => {
                    if let Some(mut def) = with_indexes(self.def_in(&defs, &table)?, &drop, &add)? {
                        let entered = self.check_new_uniques(&mut def, entered)?;
                        defs.insert(table, def.clone());
                        actions.push(Action::Alter(def, entered));
                    }
                }
                PreparedOp::Remember(insert) => {
                    let table = self.check_target(&defs, &insert.target)?;
                    let Insert { target, version, batch, replaces, .. } = insert;
                    let replaces = self.check_live(table, &target, replaces, false)?;
                    actions.push(Action::Remember(RequestRecord { table, version, batch, replaces }));
                }
                PreparedOp::Insert(insert) => {
                    let table = self.check_target(&defs, &insert.target)?;
                    actions.push(self.check_insert(group, &defs, table, insert)?);
                }
                PreparedOp::Delete { target, rows, must_exist } => {
                    let table = self.check_target(&defs, &target)?;
                    let deletes = self.check_live(table, &target, rows, must_exist)?;
                    actions.push(self.deletes(table, deletes));
                }
                PreparedOp::Expire { target, rows } => {
                    // The rows expired under the definition of the base; another time to live or time column may count by
                    // now.
                    let table = self.check_target(&defs, &target)?;
                    let now = self.def_in(&defs, &target.table)?;
                    let then = target.base.as_ref().map(|base| (base.def().options.ttl, base.def().time));
                    if then == Some((now.options.ttl, now.time)) {
                        let deletes = self.check_live(table, &target, rows, false)?;
                        actions.push(self.deletes(table, deletes));
                    }
                }
                PreparedOp::DeleteKeys { target, keys } => {
                    let table = self.check_target(&defs, &target)?;
                    let mut deletes = Vec::with_capacity(keys.len());
                    let tip = self.tips.get(&table);
                    for key in &keys {
                        deletes.extend(find_again(tip, &target, key)?);
                    }
                    actions.push(self.deletes(table, deletes));
                }
                PreparedOp::PutView { view, replace } => {
                    let new = view.name.to_lowercase();
                    if views.contains(&new) {
                        return Err(Error::invalid(format!(
                            "a transaction makes view `{}` twice",
                            name::short_table_name(&view.name)
                        )));
                    }
                    let made: Vec<String> = defs.keys().cloned().collect();
                    actions.push(self.check_view(view, replace, &made)?);
                    views.push(new);
                }
                PreparedOp::DropView { name, if_exists } => {
                    if self.meta.views.contains_key(&name) {
                        actions.push(Action::DropView(name));
                    } else if !if_exists {
                        let short = name::short_table_name(&name);
                        return Err(Error::not_found(format!("there is no view `{short}`")));
                    }
                }
                PreparedOp::Nothing => {}
                PreparedOp::PutKey(api_key) => actions.push(Action::PutKey(api_key)),
                PreparedOp::RemoveKey { name } => {
                    if !self.meta.keys.iter().any(|key| key.name == name) {
                        return Err(Error::not_found(format!(
                            "there is no key `{}`",
                            name::printable(&name)
                        )));
                    }
                    actions.push(Action::RemoveKey(name));
                }
            }
        }
        Ok(actions)
    }

    fn check_table_name(&self, full_name: &str, more: usize) -> Result<()> {
        if self.names.len() + more >= TABLES_MAX {
            return Err(Error::new(Kind::TooLarge, format!("a database has at most {TABLES_MAX} tables"))
                .hint("keep rows of one shape in one table, told apart by a column"));
        }
        self.check_no_view(full_name)?;
        let folded = full_name.to_lowercase();
        match self.names.keys().find(|taken| taken.to_lowercase() == folded) {
            Some(taken) => Err(exists(taken)),
            None => Ok(()),
        }
    }

    pub(super) fn def_in<'a>(
        &'a self,
        defs: &'a HashMap<String, TableDef>,
        table: &str,
    ) -> Result<&'a TableDef> {
        if let Some(def) = defs.get(table) {
            return Ok(def);
        }
        match self.names.get(table).and_then(|id| self.tips.get(id)) {
            Some(tip) => Ok(tip.def()),
            None => Err(Error::not_found(format!("table `{}` is gone", name::short_table_name(table)))),
        }
    }

    /// Returns the id of the table that an operation was prepared for, if the name still means that table.
    fn check_target(&self, defs: &HashMap<String, TableDef>, target: &TargetTable) -> Result<TableId> {
        let id = self.def_in(defs, &target.table)?.id;
        if target.id.is_some_and(|expected| expected != id) {
            return Err(changed_since(&target.table));
        }
        Ok(id)
    }

    fn check_insert(
        &self,
        group: &Group,
        defs: &HashMap<String, TableDef>,
        table: TableId,
        insert: Insert,
    ) -> Result<Action> {
        let Insert { target, version, batch, keys, claims, rule, replaces } = insert;
        let def = self.def_in(defs, &target.table)?;
        debug_assert!(def.schema.version >= version, "definitions only go forward");
        let (version, batch) = if def.schema.version == version || still_fits(def, &batch) {
            (version, batch)
        } else {
            (def.schema.version, conform_to_grown(def, &target, &batch)?)
        };
        debug_assert!(
            keys.is_empty() && claims.is_empty() || group.staged.iter().all(|s| s.table != table),
            "rows that are checked are not staged"
        );
        let ended = self.check_live(table, &target, replaces, true)?;
        let tip = self.tips.get(&table);
        let find = |key: &Key| find_again(tip, &target, key);
        let (checks, claims) = self.check_claims(table, def, &target, claims)?;
        let owner = |claims: &UniqueClaims, row: usize| checks.owner(&target, claims, &batch, row);
        let rows = PreparedRows { def, keys: &keys, claims: &claims, rule: &rule };
        let (batch, deletes) = rows.resolve_conflicts(batch.clone(), ended, find, owner)?;
        Ok(Action::Rows { table, version, batch, deletes, unchecked: checks.has_uncompared_rows() })
    }

    /// Returns those of `rows` (ascending) that are live. If `must_exist`, fails if one is not.
    fn check_live(
        &self,
        table: TableId,
        target: &TargetTable,
        rows: Vec<RowId>,
        must_exist: bool,
    ) -> Result<Vec<RowId>> {
        let mut live = Vec::with_capacity(rows.len());
        for row in rows {
            let is_live = self.tips.get(&table).map_or(Ok(false), |tip| tip.is_live(row))?;
            if is_live {
                live.push(row);
            } else if must_exist {
                return Err(row_gone(target, row));
            }
        }
        Ok(live)
    }

    fn deletes(&self, table: TableId, mut deletes: Vec<RowId>) -> Action {
        deletes.sort_unstable();
        let schema = std::sync::Arc::new(arrow::datatypes::Schema::empty());
        let version = self.tips.get(&table).map_or(SchemaVersion(1), |tip| tip.def().schema.version);
        let batch = RecordBatch::new_empty(schema);
        Action::Rows { table, version, batch, deletes, unchecked: false }
    }
}

/// Returns the live row of a key that was looked up before.
pub(super) fn find_again(tip: Option<&table::Tip>, target: &TargetTable, key: &Key) -> Result<Option<RowId>> {
    match (tip, &target.base) {
        (None, _) => Ok(None),
        (Some(tip), Some(base)) => tip.find_again(base, &key.bytes, key.found),
        (Some(tip), None) => tip.find(&key.bytes),
    }
}

/// The error that makes a caller read the definition again and retry.
pub(super) fn changed_since(full_name: &str) -> Error {
    Error::conflict(format!(
        "table `{}` changed while the request was prepared",
        name::short_table_name(full_name)
    ))
    .with("schema", "changed")
    .hint("retry the request")
}

/// The error for a change to a row that another writer has changed or deleted. It shows the row's key, if it has one and it
/// can be read.
pub(crate) fn row_gone(target: &TargetTable, row: RowId) -> Error {
    let base = target.base.as_ref().filter(|base| base.def().is_keyed());
    let known = base.and_then(|base| base.row(row).ok().flatten().map(|found| (base.def(), found)));
    let error = match known {
        Some((def, found)) => overtaken(def, row_key_text(def, &found)),
        None => Error::conflict("a row that was to be changed has been changed or deleted meanwhile")
            .with("table", name::short_table_name(&target.table))
            .hint("read it again and retry"),
    };
    error.with("row id", row)
}
