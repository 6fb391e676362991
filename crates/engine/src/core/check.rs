//! Checking a transaction against the tips, as a whole and before any of it is applied.

use std::collections::HashMap;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use types::schema::TABLES_MAX;
use types::{Error, Kind, Result, RowId, SchemaVersion, TableDef, TableId, name};

use super::alter::still_fits;
use super::{Action, Core, Group};
use crate::prepare::{
    Insert, Key, Prepared, PreparedOp, Rule, Target, exists, key_taken, key_text, row_key_text, with_columns,
    with_indexes,
};

impl Core {
    /// Checks a transaction against the tips without changing them.
    pub(super) fn check(&mut self, group: &mut Group, prepared: Prepared) -> Result<Vec<Action>> {
        // Definitions as this transaction leaves them, by full name.
        let mut defs: HashMap<String, TableDef> = HashMap::new();
        // Names that it gives to views, without their case.
        let mut views: Vec<String> = Vec::new();
        let mut actions = Vec::with_capacity(prepared.ops.len());
        for op in prepared.ops {
            match op {
                PreparedOp::CreateTable { mut def, if_absent } => {
                    match self.names.get(def.name.as_str()) {
                        Some(_) if if_absent && def.id != TableId(0) => continue,
                        // It came into being since the definition was made, maybe with other columns.
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
                    if def.schema.version != base {
                        return Err(changed_since(&table));
                    }
                    if let Some(def) = with_columns(def, &columns)? {
                        defs.insert(table, def.clone());
                        actions.push(Action::Alter(def));
                    }
                }
                PreparedOp::AlterTable(alter) => {
                    if let Some(def) = self.check_alter(&defs, &alter)? {
                        defs.insert(def.name.clone(), def.clone());
                        actions.push(Action::Alter(def));
                    }
                }
                PreparedOp::AlterIndexes { table, drop, add } => {
                    if let Some(def) = with_indexes(self.def_in(&defs, &table)?, &drop, &add)? {
                        defs.insert(table, def.clone());
                        actions.push(Action::Alter(def));
                    }
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
                PreparedOp::DeleteKeys { target, keys } => {
                    let table = self.check_target(&defs, &target)?;
                    let mut deletes = Vec::with_capacity(keys.len());
                    for key in &keys {
                        deletes.extend(self.find_again(table, &target, key)?);
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
                PreparedOp::DropView { name, if_exists } => match self.meta.views.contains_key(&name) {
                    true => actions.push(Action::DropView(name)),
                    false if if_exists => {}
                    false => {
                        let short = name::short_table_name(&name);
                        return Err(Error::not_found(format!("there is no view `{short}`")));
                    }
                },
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

    /// The id of the table that an operation was prepared for, if it is still that table.
    fn check_target(&self, defs: &HashMap<String, TableDef>, target: &Target) -> Result<TableId> {
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
        let Insert { target, version, batch, keys, rule, replaces } = insert;
        let def = self.def_in(defs, &target.table)?;
        debug_assert!(def.schema.version >= version, "definitions only go forward");
        if def.schema.version != version && !still_fits(def, &batch) {
            return Err(changed_since(&target.table));
        }
        debug_assert!(
            keys.is_empty() || group.staged.iter().all(|s| s.table != table),
            "keyed rows are not staged"
        );
        let ended = self.check_live(table, &target, replaces, true)?;
        let find = |key: &Key| self.find_again(table, &target, key);
        let (batch, deletes) = Self::settle(def, batch, &keys, &rule, ended, find)?;
        Ok(Action::Rows { table, version, batch, deletes })
    }

    /// The rows of an insert that are written, and the versions that end: `deletes` (ascending), and what `rule` says of
    /// the rows that have the keys now, which `find` tells.
    pub(crate) fn settle(
        def: &TableDef,
        batch: RecordBatch,
        keys: &[Key],
        rule: &Rule,
        mut deletes: Vec<RowId>,
        find: impl Fn(&Key) -> Result<Option<RowId>>,
    ) -> Result<(RecordBatch, Vec<RowId>)> {
        let ended = deletes.len();
        let mut skip = Vec::new();
        for (row, key) in keys.iter().enumerate() {
            let current = find(key)?;
            match (rule, current) {
                (Rule::Unchanged, current) => {
                    if current != key.found {
                        return Err(overtaken(def, key_text(def, &batch, row)));
                    }
                    if current.is_some_and(|current| deletes[..ended].binary_search(&current).is_err()) {
                        return Err(key_taken(def, &batch, row));
                    }
                }
                (Rule::Expect(expected), current) => {
                    if current != expected[row] {
                        return Err(unexpected(def, &batch, row, expected[row], current));
                    }
                    deletes.extend(current);
                }
                (_, None) => {}
                (Rule::Refuse, Some(current)) => {
                    // A row that this very operation ends does not stand in the way of its successor.
                    if deletes[..ended].binary_search(&current).is_err() {
                        return Err(key_taken(def, &batch, row));
                    }
                }
                (Rule::Replace, Some(current)) => deletes.push(current),
                (Rule::Skip, Some(_)) => skip.push(row),
            }
        }
        // All at one lsn, so their order says nothing, and in this one they take least room in the log.
        deletes.sort_unstable();
        let batch = if skip.is_empty() { batch } else { without(&batch, &skip)? };
        Ok((batch, deletes))
    }

    fn find_again(&self, table: TableId, target: &Target, key: &Key) -> Result<Option<RowId>> {
        match (self.tips.get(&table), &target.base) {
            (None, _) => Ok(None),
            (Some(tip), Some(base)) => tip.find_again(base, &key.bytes, key.found),
            (Some(tip), None) => tip.find(&key.bytes),
        }
    }

    /// Those of `rows` (ascending) that are live.
    fn check_live(
        &self,
        table: TableId,
        target: &Target,
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
        Action::Rows { table, version, batch: RecordBatch::new_empty(schema), deletes }
    }
}

/// The refusal that makes a caller read the definition again and retry.
pub(super) fn changed_since(full_name: &str) -> Error {
    Error::conflict(format!(
        "table `{}` changed while the request was prepared",
        name::short_table_name(full_name)
    ))
    .with("schema", "changed")
    .hint("retry the request")
}

/// The refusal of a change to a row that somebody else has changed or deleted; shows the row's key, if it has one and it
/// can be read.
pub(crate) fn row_gone(target: &Target, row: RowId) -> Error {
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

fn overtaken(def: &TableDef, key: String) -> Error {
    Error::conflict(format!("the row with {key} has been changed by another writer meanwhile"))
        .with("table", name::short_table_name(&def.name))
        .hint("read it again and retry")
}

fn unexpected(
    def: &TableDef,
    batch: &RecordBatch,
    row: usize,
    expected: Option<RowId>,
    current: Option<RowId>,
) -> Error {
    let show = |row: Option<RowId>| row.map_or("no row".to_owned(), |row| format!("row id {row}"));
    Error::conflict(format!(
        "the row with {} is not what the request expects: {} expected, {} found",
        key_text(def, batch, row),
        show(expected),
        show(current)
    ))
    .with("table", name::short_table_name(&def.name))
    .hint("read the row again and retry")
}

/// The batch without these rows (ascending).
fn without(batch: &RecordBatch, skip: &[usize]) -> Result<RecordBatch> {
    let keep: BooleanArray =
        (0..batch.num_rows()).map(|row| Some(skip.binary_search(&row).is_err())).collect();
    filter_record_batch(batch, &keep).map_err(|e| Error::internal(format!("selecting rows failed: {e}")))
}
