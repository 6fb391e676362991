//! The values that a write claims under unique indexes, and the rows that have them already.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use table::unique::{EnteredRows, Key as Compared, Lookup, Owners};
use types::{Error, Kind, Result, RowId, TableDef, Value, name};

use super::{Key, KeyRule, Preparer, TargetTable, equals};

/// The values that the rows of an insert have in the columns of a unique index.
#[derive(Debug)]
pub(crate) struct UniqueClaims {
    pub unique: Compared,
    /// One key for each row; `None` for a row with a null, which conflicts with no other row.
    pub keys: Vec<Option<Key>>,
    /// True if the values were looked for among all rows of the caller's snapshot.
    pub complete: bool,
}

impl UniqueClaims {
    /// Approximate bytes of the claims in memory.
    pub fn bytes(&self) -> u64 {
        self.keys.iter().map(|key| 32 + key.as_ref().map_or(0, |key| key.bytes.len() as u64)).sum()
    }

    /// The error for a row whose values are taken.
    pub fn taken(&self, def: &TableDef, batch: &RecordBatch, row: usize) -> Error {
        let text = self.text(def, batch, row);
        refusal(def, &self.unique, format!("a row with {text} exists already"))
    }

    /// The values of a row, for an error.
    pub fn text(&self, def: &TableDef, batch: &RecordBatch, row: usize) -> String {
        let values = self.unique.values(batch, row).unwrap_or_default();
        text(def, &self.unique, values.into_iter())
    }
}

/// The error for a unique index over rows of which two are equal.
pub(crate) fn equal_rows(table: &table::Snapshot, unique: &Compared, rows: (RowId, RowId)) -> Error {
    let row = table.row(rows.0).ok().flatten();
    let value = |id| row.as_ref().and_then(|row| row.value(id).ok()).unwrap_or(Value::Null);
    let values = unique.columns.iter().map(|(id, _)| value(*id));
    let text = text(table.def(), unique, values);
    let what = format!("two rows have {text}, so the index cannot be unique");
    refusal(table.def(), unique, what).with("row ids", format!("{}, {}", rows.0, rows.1))
}

fn refusal(def: &TableDef, unique: &Compared, what: String) -> Error {
    Error::new(Kind::Exists, what)
        .with("table", name::short_table_name(&def.name))
        .with("index", &unique.name)
}

fn text(def: &TableDef, unique: &Compared, values: impl Iterator<Item = Value>) -> String {
    let part = |((id, _), value): (&(types::ColumnId, types::DataType), Value)| {
        Some(equals(def.schema.column(*id)?, value))
    };
    unique.columns.iter().zip(values).filter_map(part).collect::<Vec<_>>().join(", ")
}

/// Returns the claims of these rows, with the rows of the target's snapshot that have the same values.
pub(crate) fn claims(
    target: &TargetTable,
    lookup: Option<&Arc<dyn Lookup>>,
    def: &TableDef,
    batch: &RecordBatch,
    rule: &KeyRule,
) -> Result<Vec<UniqueClaims>> {
    let claim = |unique: Compared| {
        let bytes = unique.encode(batch)?;
        if *rule != KeyRule::Skip {
            let mut seen = HashSet::with_capacity(bytes.len());
            let repeated = bytes.iter().position(|bytes| bytes.as_ref().is_some_and(|b| !seen.insert(b)));
            if let Some(row) = repeated {
                let text = text(def, &unique, unique.values(batch, row)?.into_iter());
                return Err(refusal(def, &unique, format!("two rows of the request have {text}")));
            }
        }
        let owners = match &target.base {
            None => Owners { rows: vec![None; bytes.len()], complete: true, compared: 0 },
            Some(base) => {
                let owners = base.owners(&unique, lookup.map(|lookup| &**lookup), batch, &bytes)?;
                owners.ok_or_else(|| at_once(def, &unique))?
            }
        };
        let key = |(bytes, found): (Option<Box<[u8]>>, Option<RowId>)| Some(Key { bytes: bytes?, found });
        let keys = bytes.into_iter().zip(owners.rows).map(key).collect();
        Ok(UniqueClaims { unique, keys, complete: owners.complete })
    };
    Compared::checked(def).map(claim).collect()
}

fn at_once(def: &TableDef, unique: &Compared) -> Error {
    Error::invalid(
        "a unique index cannot be created or changed in the transaction that writes rows of its table",
    )
    .with("table", name::short_table_name(&def.name))
    .with("index", &unique.name)
    .hint("send them as two transactions")
}

impl Preparer<'_> {
    pub(super) fn claims(
        &mut self,
        target: &TargetTable,
        def: &TableDef,
        batch: &RecordBatch,
        rule: &KeyRule,
    ) -> Result<Vec<UniqueClaims>> {
        let lookup = target.id.and_then(|id| self.view.lookup(id));
        let claims = claims(target, lookup, def, batch, rule)?;
        self.bytes += claims.iter().map(UniqueClaims::bytes).sum::<u64>();
        Ok(claims)
    }

    /// Compares the existing rows of a small table for its new unique indexes.
    pub(super) fn entered(&mut self, full_name: &str, changed: &TableDef) -> Result<Vec<EnteredRows>> {
        let touched = self.touch(full_name)?;
        let known = touched.def.indexes.clone();
        let new = changed.indexes.iter().filter(|index| index.unique.is_some() && !known.contains(index));
        let (rows_changed, base) = (touched.rows_changed, touched.base.clone());
        let mut entered = Vec::new();
        for unique in new.filter_map(|index| Compared::of(changed, index)) {
            if rows_changed {
                return Err(at_once(changed, &unique));
            }
            let Some(base) = &base else { continue };
            if base.rows() == 0 && base.next_row() == RowId(1) || base.rows() > self.unique_at_once_rows {
                continue;
            }
            match base.enter(changed, unique.clone())? {
                Ok(map) => entered.push(map),
                Err(rows) => return Err(equal_rows(base, &unique, rows)),
            }
        }
        Ok(entered)
    }
}
