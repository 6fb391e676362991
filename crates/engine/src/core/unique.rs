//! Unique indexes on the commit thread: finds the row that has a value now, and decides from when on an index is enforced.
//!
//! A write whose rows were compared with all rows of the table is *complete*. While an index is being checked, some writes
//! are not complete: their writers could not see all rows by value. Once the index has compared all rows below the last
//! incomplete write with each other, no two rows are equal and none can become equal: the index is enforced from then on.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use commitlog::edit::Edit;
use table::Tip;
use table::materializer::Position;
use table::unique::{EnteredRows, Key as Compared, Lookup, Verdict};
use types::{Error, IndexDef, Lsn, Result, RowId, TableDef, TableId, UniqueState};

use super::alter::ROWS_AGAIN_MAX;
use super::check::changed_since;
use super::{Core, Group};
use crate::prepare::{TargetTable, UniqueClaims, equal_rows};

/// Number of values of one insert that the commit thread looks for among all rows because the writer could not. With more,
/// the writer tries again.
const VALUES_AGAIN_MAX: usize = 4_096;

/// Unique indexes that are being checked, by table and name.
#[derive(Default)]
pub(super) struct UncheckedIndexes(HashMap<(TableId, String), CheckState>);

struct CheckState {
    /// Row id below which some rows were compared with only some of the others.
    below: RowId,
    /// The commit that made the index. A verdict from before it is about another index.
    made: Lsn,
}

impl UncheckedIndexes {
    /// The state after opening. It is not known which rows were compared before, so none count as compared.
    pub fn of(tips: &HashMap<TableId, Tip>) -> UncheckedIndexes {
        let mut unchecked = UncheckedIndexes::default();
        tips.values().for_each(|tip| unchecked.note(tip, None, |_| true));
        unchecked
    }

    /// Marks all present rows as not fully compared. `made` is the commit that made these indexes, if it did so just now.
    fn note(&mut self, tip: &Tip, made: Option<Lsn>, is_meant: impl Fn(&IndexDef) -> bool) {
        let def = tip.def();
        let checking = def.indexes.iter().filter(|index| index.unique == Some(UniqueState::Checking));
        for index in checking.filter(|index| is_meant(index)) {
            let known = (def.id, index.name.clone());
            let since = self.0.entry(known).or_insert(CheckState { below: tip.next_row(), made: Lsn(0) });
            since.below = tip.next_row();
            since.made = made.unwrap_or(since.made);
        }
    }
}

/// Looks up the values of one insert.
pub(super) struct ClaimChecks<'a> {
    tip: Option<&'a Tip>,
    lookup: Option<Arc<dyn Lookup>>,
    has_uncompared_rows: Cell<bool>,
}

impl ClaimChecks<'_> {
    /// Returns true if some rows were not compared.
    pub fn has_uncompared_rows(&self) -> bool {
        self.has_uncompared_rows.get()
    }

    /// Returns the live row that has the values of a row now.
    pub fn owner(
        &self,
        target: &TargetTable,
        claims: &UniqueClaims,
        batch: &RecordBatch,
        row: usize,
    ) -> Result<Option<RowId>> {
        let (Some(tip), Some(key)) = (self.tip, &claims.keys[row]) else { return Ok(None) };
        let (unique, lookup) = (&claims.unique, self.lookup.as_deref());
        let values = || unique.values(batch, row);
        let is_enforced = is_enforced(tip.def(), unique);
        let found = match &target.base {
            Some(base) if claims.complete || !is_enforced => {
                tip.owner_again(base, unique, lookup, &values, &key.bytes, key.found)?
            }
            _ => tip.owner_from(unique, lookup, &values, &key.bytes, RowId(0))?,
        };
        match found {
            Some(_) if !claims.complete && !is_enforced => self.has_uncompared_rows.set(true),
            Some(_) => {}
            None if is_enforced => return Err(changed_since(&target.table)),
            None => self.has_uncompared_rows.set(true),
        }
        Ok(found.flatten())
    }
}

fn is_enforced(def: &TableDef, unique: &Compared) -> bool {
    def.indexes.iter().any(|index| index.name == unique.name && index.unique == Some(UniqueState::Enforced))
}

impl Core {
    /// Returns the lookup for the values of an insert, and the claims that still count: an index that failed meanwhile makes
    /// no claim. Fails with [`Kind::Conflict`](types::Kind::Conflict) if the insert was prepared for other indexes than its
    /// table has now.
    pub(super) fn check_claims(
        &self,
        table: TableId,
        def: &TableDef,
        target: &TargetTable,
        mut claims: Vec<UniqueClaims>,
    ) -> Result<(ClaimChecks<'_>, Vec<UniqueClaims>)> {
        let tip = self.tips.get(&table);
        let wanted: Vec<Compared> = Compared::checked(def).collect();
        claims.retain(|claims| wanted.contains(&claims.unique));
        if claims.len() < wanted.len() {
            return Err(changed_since(&target.table));
        }
        let is_late = |claims: &UniqueClaims| {
            !claims.complete && claims.keys.len() > VALUES_AGAIN_MAX && is_enforced(def, &claims.unique)
        };
        if claims.iter().any(is_late) {
            return Err(changed_since(&target.table));
        }
        let lookup = if claims.is_empty() { None } else { self.lookup(table) };
        Ok((ClaimChecks { tip, lookup, has_uncompared_rows: Cell::new(false) }, claims))
    }

    /// Returns the newest lookup of a table's values that was made.
    fn lookup(&self, table: TableId) -> Option<Arc<dyn Lookup>> {
        // One materializer makes lookups; results of the others have no lookup.
        for (_, _, made) in self.derived.iter().rev().filter(|(of, ..)| *of == table) {
            match made {
                Some(position) if position.lookup.is_some() => return position.lookup.clone(),
                _ => {}
            }
        }
        self.newest.lookup(table).cloned()
    }

    /// Decides which new unique indexes are enforced at once: those of a table without rows, and those whose creator has
    /// already compared the rows.
    pub(super) fn check_new_uniques(
        &self,
        def: &mut TableDef,
        entered: Vec<EnteredRows>,
    ) -> Result<Vec<EnteredRows>> {
        let Some(tip) = self.tips.get(&def.id) else { return Ok(Vec::new()) };
        let known = tip.def().clone();
        let is_new =
            |index: &IndexDef| index.unique.is_some() && !known.indexes.iter().any(|k| k.name == index.name);
        let mut adopted = Vec::new();
        for at in 0..def.indexes.len() {
            if !is_new(&def.indexes[at]) {
                continue;
            }
            if tip.next_row() == RowId(1) {
                def.indexes[at].unique = Some(UniqueState::Enforced);
                continue;
            }
            let Some(unique) = Compared::of(def, &def.indexes[at]) else { continue };
            let is_of_index = |e: &&EnteredRows| e.table() == def.id && *e.key() == unique;
            let of_index = entered.iter().find(is_of_index);
            let is_near = |entered: &&EnteredRows| tip.next_row().0 - entered.next_row.0 <= ROWS_AGAIN_MAX;
            let Some(entered) = of_index.filter(is_near) else { continue };
            let mut trial = tip.clone();
            trial.set_def(def.clone())?;
            if let Some(rows) = trial.adopt(entered.clone())? {
                return Err(equal_rows(&trial.snapshot(types::Lsn(0)), &unique, rows));
            }
            def.indexes[at].unique = Some(UniqueState::Enforced);
            adopted.push(entered.clone());
        }
        Ok(adopted)
    }

    pub(super) fn adopt(&mut self, table: TableId, entered: Vec<EnteredRows>) -> Result<()> {
        let Some(tip) = self.tips.get_mut(&table) else { return Ok(()) };
        for entered in entered {
            if let Some((first, second)) = tip.adopt(entered)? {
                return Err(Error::internal(format!("rows {first} and {second} were checked and are equal")));
            }
        }
        Ok(())
    }

    /// Notes the new unique indexes of a changed definition: all rows of the table are older than they are.
    pub(super) fn note_new_uniques(&mut self, before: &TableDef, table: TableId, lsn: Lsn) {
        let Some(tip) = self.tips.get(&table).filter(|tip| tip.def().has_unique()) else { return };
        let def = tip.def().clone();
        let was = |index: &IndexDef| {
            before.indexes.iter().any(|known| {
                known.name == index.name
                    && known.unique == index.unique
                    && Compared::of(before, known) == Compared::of(&def, index)
            })
        };
        self.unchecked.note(tip, Some(lsn), |index| !was(index));
    }

    pub(super) fn note_unchecked(&mut self, table: TableId) {
        if let Some(tip) = self.tips.get(&table) {
            self.unchecked.note(tip, None, |_| true);
        }
    }

    /// Applies a new position to the unique indexes of its table: drops values that need no longer be kept in memory, and
    /// enforces or fails the indexes that were being checked.
    pub(super) fn update_unique_indexes(
        &mut self,
        group: &mut Group,
        offset: u32,
        table: TableId,
        position: &Position,
    ) -> Result<()> {
        let (Some(tip), Some(lookup)) = (self.tips.get_mut(&table), &position.lookup) else { return Ok(()) };
        if !tip.def().has_unique() {
            return Ok(());
        }
        if tip.forget_uniques(&**lookup) {
            self.dirty.insert(table);
        }
        let mut def = TableDef::clone(tip.def());
        let keys: Vec<Option<Compared>> = def.indexes.iter().map(|index| Compared::of(&def, index)).collect();
        for (index, key) in def.indexes.iter_mut().zip(keys) {
            let (Some(UniqueState::Checking), Some(key)) = (&index.unique, key) else { continue };
            let unchecked = (table, index.name.clone());
            let unknown = || CheckState { below: tip.next_row(), made: Lsn(0) };
            let since = self.unchecked.0.entry(unchecked.clone()).or_insert_with(unknown);
            index.unique = match lookup.verdict(&key.columns) {
                Verdict::Distinct(row) if row.next() >= since.below => Some(UniqueState::Enforced),
                Verdict::Equal(what) if position.checkpoint.lsn >= since.made => {
                    Some(UniqueState::Failed(what))
                }
                Verdict::Distinct(_) | Verdict::Equal(_) | Verdict::Unknown => continue,
            };
            self.unchecked.0.remove(&unchecked);
        }
        if def.indexes == tip.def().indexes {
            return Ok(());
        }
        group.frame.edit(offset, Edit::AlterTable(def.clone()));
        tip.set_def(def)?;
        self.dirty.insert(table);
        Ok(())
    }
}
