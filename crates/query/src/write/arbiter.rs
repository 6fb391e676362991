//! Finds the existing rows that conflict with those of an INSERT … ON CONFLICT: rows with the same primary key, or with the same
//! values in the columns of a unique index.

use std::collections::{BTreeSet, HashSet};

use arrow::array::{Array, RecordBatch};
use datafusion::sql::sqlparser::ast::{ConflictTarget, ObjectName, ObjectNamePart};
use engine::View;
use table::Snapshot;
use types::{ColumnId, DataType, Error, IndexDef, Kind, Result, RowId, TableDef, UniqueState, key, name};

use super::column_position;

/// A uniqueness constraint: columns whose values no two rows may share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arbiter {
    PrimaryKey,
    Index(IndexDef),
}

/// The rows of a statement, as an arbiter compares them.
pub(super) struct ConflictingRows {
    /// The key of each row; `None` for a row that cannot conflict, because of a null.
    pub keys: Vec<Option<Box<[u8]>>>,
    /// The existing row that each row conflicts with.
    pub found: Vec<Option<RowId>>,
}

impl Arbiter {
    /// Returns all arbiters of a table, which ON CONFLICT without a target refers to.
    pub fn all(def: &TableDef) -> Vec<Arbiter> {
        let key = def.is_keyed().then_some(Arbiter::PrimaryKey);
        let indexes = def.indexes.iter().filter(|index| index.checks_writes()).cloned();
        key.into_iter().chain(indexes.map(Arbiter::Index)).collect()
    }

    /// Returns the arbiter that a conflict target names; `None` without a target.
    pub fn named(def: &TableDef, target: Option<&ConflictTarget>) -> Result<Option<Arbiter>> {
        let arbiter = match target {
            None => return Ok(None),
            Some(ConflictTarget::Columns(columns)) => {
                let named = columns
                    .iter()
                    .map(|column| Ok(def.schema.columns[column_position(def, column)?].id))
                    .collect::<Result<BTreeSet<_>>>()?;
                of_columns(def, &named)
            }
            Some(ConflictTarget::OnConstraint(object)) => of_name(def, object),
        };
        match arbiter {
            Some(arbiter) => arbiter.usable(def).map(Some),
            None => Err(no_arbiter(def)),
        }
    }

    fn usable(self, def: &TableDef) -> Result<Arbiter> {
        let Arbiter::Index(index) = &self else { return Ok(self) };
        let name = &index.name;
        let error = match &index.unique {
            Some(UniqueState::Checking) => Error::new(
                Kind::IndexBuilding,
                format!("whether any two rows are equal under `{name}` is still being checked"),
            )
            .hint("polynya.indexes says how far it is"),
            Some(UniqueState::Failed(why)) => Error::invalid(format!("index `{name}` is not unique: {why}"))
                .hint("drop it, change the rows, and make it again"),
            _ => return Ok(self),
        };
        Err(error.with("table", name::short_table_name(&def.name)))
    }

    pub(super) fn compare(
        &self,
        view: &View,
        snapshot: &Snapshot,
        stored: &RecordBatch,
    ) -> Result<ConflictingRows> {
        match self {
            Arbiter::PrimaryKey => {
                let keys = keys(snapshot.def(), stored);
                let found = keys.iter().map(|key| snapshot.find(key)).collect::<Result<_>>()?;
                Ok(ConflictingRows { keys: keys.into_iter().map(Some).collect(), found })
            }
            Arbiter::Index(index) => {
                let (keys, found) = view.owners(snapshot, index, stored)?;
                Ok(ConflictingRows { keys, found })
            }
        }
    }

    /// Returns true if an error reports a conflict under this arbiter.
    pub fn caused(&self, error: &Error) -> bool {
        let index = error.context().iter().find(|(key, _)| *key == "index").map(|(_, name)| name.as_str());
        match self {
            Arbiter::PrimaryKey => index.is_none(),
            Arbiter::Index(of) => index == Some(of.name.as_str()),
        }
    }
}

/// Returns the rows of a statement that conflict with no existing row and with none of the rows before them.
pub(super) fn rows_without_conflict(compared: &[ConflictingRows], rows: usize) -> Vec<usize> {
    let mut seen: HashSet<(usize, &[u8])> = HashSet::new();
    let mut free = Vec::with_capacity(rows);
    for row in 0..rows {
        let keys =
            || compared.iter().enumerate().filter_map(move |(at, c)| Some((at, c.keys[row].as_deref()?)));
        if compared.iter().all(|c| c.found[row].is_none()) && keys().all(|key| !seen.contains(&key)) {
            seen.extend(keys());
            free.push(row);
        }
    }
    free
}

fn of_columns(def: &TableDef, named: &BTreeSet<ColumnId>) -> Option<Arbiter> {
    let are = |columns: &[ColumnId]| columns.iter().copied().collect::<BTreeSet<_>>() == *named;
    if def.is_keyed() && are(&def.primary_key) {
        return Some(Arbiter::PrimaryKey);
    }
    let unique = def.indexes.iter().filter(|index| index.unique.is_some() && are(&index.columns));
    // An enforced index is preferred.
    unique.max_by_key(|index| index.unique == Some(UniqueState::Enforced)).cloned().map(Arbiter::Index)
}

fn of_name(def: &TableDef, object: &ObjectName) -> Option<Arbiter> {
    let [ObjectNamePart::Identifier(wanted)] = object.0.as_slice() else { return None };
    let (_, table) = def.name.split_once('.')?;
    if def.is_keyed() && wanted.value.eq_ignore_ascii_case(&format!("{table}_pkey")) {
        return Some(Arbiter::PrimaryKey);
    }
    let index = def.index_named(&wanted.value).filter(|index| index.unique.is_some())?;
    Some(Arbiter::Index(index.clone()))
}

fn no_arbiter(def: &TableDef) -> Error {
    let columns = |ids: &[ColumnId]| {
        let name = |id: &ColumnId| def.schema.column(*id).map(|column| name::printable(&column.name));
        format!("ON CONFLICT ({})", ids.iter().filter_map(name).collect::<Vec<_>>().join(", "))
    };
    let key = def.is_keyed().then(|| columns(&def.primary_key));
    let unique = def.indexes.iter().filter(|index| index.checks_writes());
    let known: Vec<String> = key.into_iter().chain(unique.map(|index| columns(&index.columns))).collect();
    if known.is_empty() {
        return no_key(def);
    }
    Error::invalid("ON CONFLICT names neither the primary key nor a unique index")
        .with("table", name::short_table_name(&def.name))
        .hint(format!("write {}", known.join(" or ")))
}

pub(super) fn no_key(def: &TableDef) -> Error {
    Error::invalid("the table has no primary key and no unique index, so no two of its rows can conflict")
        .with("table", name::short_table_name(&def.name))
        .hint("leave ON CONFLICT out, or make a key: CREATE UNIQUE INDEX ON …")
}

/// Returns the key of each row of a table with a primary key.
fn keys(def: &TableDef, stored: &RecordBatch) -> Vec<Box<[u8]>> {
    let place = |id: &ColumnId| def.schema.columns.iter().position(|column| column.id == *id);
    let places: Vec<usize> = def.primary_key.iter().filter_map(place).collect();
    let types: Vec<DataType> = places.iter().map(|at| def.schema.columns[*at].data_type.clone()).collect();
    let columns: Vec<&dyn Array> = places.iter().map(|at| stored.column(*at).as_ref()).collect();
    let mut buffer = Vec::new();
    (0..stored.num_rows())
        .map(|row| {
            buffer.clear();
            key::encode_row(&types, &columns, row, &mut buffer);
            buffer.as_slice().into()
        })
        .collect()
}
