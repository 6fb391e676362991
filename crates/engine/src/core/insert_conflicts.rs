//! Decides about the rows of an insert: the rows to write, the row versions that end, and the conflicts that refuse it.

use std::collections::HashSet;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use types::{Error, Result, RowId, TableDef, name};

use crate::prepare::{Key, KeyRule, UniqueClaims, key_taken, key_text};

/// The rows of one insert as they were prepared.
pub(crate) struct PreparedRows<'a> {
    pub def: &'a TableDef,
    /// One key for each row, if the table is keyed.
    pub keys: &'a [Key],
    pub claims: &'a [UniqueClaims],
    pub rule: &'a KeyRule,
}

impl PreparedRows<'_> {
    /// Returns the rows to write and the row versions that end: `deletes` (ascending), and those that the rule replaces.
    /// `find` returns the row that has a key now; `owner` returns the row that has the values of a unique index now.
    pub fn resolve_conflicts(
        &self,
        batch: RecordBatch,
        mut deletes: Vec<RowId>,
        find: impl Fn(&Key) -> Result<Option<RowId>>,
        owner: impl Fn(&UniqueClaims, usize) -> Result<Option<RowId>>,
    ) -> Result<(RecordBatch, Vec<RowId>)> {
        let PreparedRows { def, keys, claims, rule } = *self;
        if *rule == KeyRule::Skip {
            let skip = self.conflicting_rows(batch.num_rows(), find, owner)?;
            let batch = if skip.is_empty() { batch } else { without(&batch, &skip)? };
            return Ok((batch, deletes));
        }
        let ended = deletes.len();
        for (row, key) in keys.iter().enumerate() {
            let current = find(key)?;
            match (rule, current) {
                (KeyRule::Unchanged, current) => {
                    if current != key.found {
                        return Err(overtaken(def, key_text(def, &batch, row)));
                    }
                    if current.is_some_and(|current| deletes[..ended].binary_search(&current).is_err()) {
                        return Err(key_taken(def, &batch, row));
                    }
                }
                (KeyRule::Expect(expected), current) => {
                    if current != expected[row] {
                        return Err(unexpected(def, &batch, row, expected[row], current));
                    }
                    deletes.extend(current);
                }
                (_, None) => {}
                (KeyRule::Refuse | KeyRule::Skip, Some(current)) => {
                    // A row that this same operation ends does not stand in the way of its successor.
                    if deletes[..ended].binary_search(&current).is_err() {
                        return Err(key_taken(def, &batch, row));
                    }
                }
                (KeyRule::Replace, Some(current)) => deletes.push(current),
            }
        }
        // They all end at one lsn, so their order has no meaning. Sorted, they take least room in the log.
        deletes.sort_unstable();
        for claims in claims {
            for (row, key) in claims.keys.iter().enumerate() {
                let Some(key) = key else { continue };
                let Some(current) = owner(claims, row)? else { continue };
                if deletes.binary_search(&current).is_ok() {
                    continue;
                }
                let is_new = *rule == KeyRule::Unchanged && key.found != Some(current);
                return Err(if is_new {
                    overtaken(def, claims.text(def, &batch, row)).with("index", &claims.unique.name)
                } else {
                    claims.taken(def, &batch, row)
                });
            }
        }
        Ok((batch, deletes))
    }

    /// Returns the rows that conflict with another row, of the table or earlier in the batch.
    fn conflicting_rows(
        &self,
        rows: usize,
        find: impl Fn(&Key) -> Result<Option<RowId>>,
        owner: impl Fn(&UniqueClaims, usize) -> Result<Option<RowId>>,
    ) -> Result<Vec<usize>> {
        let mut skip = Vec::new();
        let mut seen: HashSet<(usize, &[u8])> = HashSet::new();
        for row in 0..rows {
            let claimed = self.claims.iter().map(|claims| claims.keys[row].as_ref());
            let of_row = || [self.keys.get(row)].into_iter().chain(claimed.clone()).enumerate();
            let mut is_taken =
                of_row().any(|(at, key)| key.is_some_and(|key| seen.contains(&(at, &*key.bytes))));
            if let Some(key) = self.keys.get(row).filter(|_| !is_taken) {
                is_taken = find(key)?.is_some();
            }
            for claims in self.claims {
                is_taken = is_taken || claims.keys[row].is_some() && owner(claims, row)?.is_some();
            }
            if is_taken {
                skip.push(row);
            } else {
                seen.extend(of_row().filter_map(|(at, key)| Some((at, &*key?.bytes))));
            }
        }
        Ok(skip)
    }
}

pub(super) fn overtaken(def: &TableDef, key: String) -> Error {
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

/// Returns the batch without these rows (ascending).
fn without(batch: &RecordBatch, skip: &[usize]) -> Result<RecordBatch> {
    let keep: BooleanArray =
        (0..batch.num_rows()).map(|row| Some(skip.binary_search(&row).is_err())).collect();
    filter_record_batch(batch, &keep).map_err(|e| Error::internal(format!("selecting rows failed: {e}")))
}
