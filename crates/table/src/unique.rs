//! Unique indexes: find the live row that has given values.
//!
//! In memory, a table has for each unique index a map from the hashes of values to rows, for the rows from some id on (`RecentRows`).
//! Older rows are found through the published index ([`Lookup`]); the map forgets the rows that the index has taken in. Rows that
//! are in neither form the *gap*. There is a gap until the first index has been built over the rows that existed before it, and
//! while a damaged index is rebuilt.
//!
//! As with primary keys, a writer looks values up in its own thread against a snapshot, and the commit thread checks only the
//! rows that came since.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use types::schema::column_ids;
use types::{
    ColumnId, DataType, Error, IndexDef, ROW_ID, Result, RowId, TableDef, TableId, UniqueState, Value, key,
};

use crate::key_map::KeyMap;
use crate::layout::Projection;
use crate::parts::Parts;
use crate::segment::{NeededColumns, is_damage};
use crate::{Snapshot, Tip};

/// Number of rows up to which the creator of an index enters a table's rows in a map at once; for larger tables the index is
/// built in the background first.
pub const ENTERED_AT_ONCE_MAX: u64 = 1 << 18;

/// The columns that a unique index compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The name of the index.
    pub name: String,
    pub columns: Vec<(ColumnId, DataType)>,
}

/// Finds rows by values in the published indexes over columns.
pub trait Lookup: Send + Sync {
    /// The last row that the index over these columns has taken in; `None` if there is no such index.
    fn reached(&self, columns: &[(ColumnId, DataType)]) -> Option<RowId>;

    /// Returns candidate rows up to [`Lookup::reached`]: all rows with these values are among them. No value is null. Some
    /// candidates may be dead or have other values.
    fn candidates(&self, columns: &[(ColumnId, DataType)], values: &[Value]) -> Result<Vec<RowId>>;

    /// Returns the result so far of comparing the rows of a unique index that is [`UniqueState::Checking`].
    fn verdict(&self, columns: &[(ColumnId, DataType)]) -> Verdict;
}

/// The result of checking existing rows for equal values: see [`Lookup::verdict`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Unknown,
    /// At some lsn, no two live rows up to this one were equal.
    Distinct(RowId),
    /// Two live rows were equal; the text names them.
    Equal(String),
}

/// The rows of a table that have given values.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// One row for each of the given values, or `None`.
    pub rows: Vec<Option<RowId>>,
    /// True if all rows of the table were searched.
    pub complete: bool,
    /// Number of rows whose values were read.
    pub compared: u64,
}

/// The newest rows of a table by their values in a unique index.
#[derive(Clone, Debug)]
pub(crate) struct RecentRows {
    key: Arc<Key>,
    unique: UniqueState,
    columns: Projection,
    /// The row id from which on all live rows without a null are in the map.
    first: u64,
    map: KeyMap,
}

/// Rows that the creator of an index entered in a map, in its own thread.
#[derive(Clone, Debug)]
pub struct EnteredRows {
    table: TableId,
    key: Arc<Key>,
    map: KeyMap,
    /// The row id after the last entered one.
    pub next_row: RowId,
}

impl RecentRows {
    /// Separates its map from those that other tips share.
    pub fn fork(&mut self) {
        self.map.fork();
    }
}

impl EnteredRows {
    /// The table of these rows. Another table may have its name by now.
    pub fn table(&self) -> TableId {
        self.table
    }

    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl Key {
    /// The key of an index; `None` if the index is not unique, or if one of its columns does not exist.
    pub fn of(def: &TableDef, index: &IndexDef) -> Option<Key> {
        index.unique.as_ref()?;
        let column = |id: &ColumnId| Some((*id, def.schema.column(*id)?.data_type.clone()));
        let columns = index.columns.iter().map(column).collect::<Option<_>>()?;
        Some(Key { name: index.name.clone(), columns })
    }

    /// The keys of the table's indexes that writes are checked against.
    pub fn checked(def: &TableDef) -> impl Iterator<Item = Key> + '_ {
        def.indexes.iter().filter(|index| index.checks_writes()).filter_map(|index| Key::of(def, index))
    }

    /// Returns the positions of the key's columns in a batch whose fields carry column ids.
    pub fn places(&self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let ids = column_ids(batch.schema_ref());
        let place = |(id, _): &(ColumnId, DataType)| ids.iter().position(|known| *known == Some(*id));
        let missing = || Error::internal("rows without a column of a unique index");
        self.columns.iter().map(place).collect::<Option<_>>().ok_or_else(missing)
    }

    /// Appends bytes that are equal for equal values. Returns false, and appends nothing, if a value is null. `places` come from
    /// [`Key::places`].
    pub fn append(&self, batch: &RecordBatch, places: &[usize], row: usize, out: &mut Vec<u8>) -> bool {
        if places.iter().any(|at| batch.column(*at).is_null(row)) {
            return false;
        }
        for ((_, data_type), at) in self.columns.iter().zip(places) {
            key::append_equal(data_type, batch.column(*at).as_ref(), row, out);
        }
        true
    }

    /// Encodes the values of each row of a batch; `None` for rows with a null.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Vec<Option<Box<[u8]>>>> {
        let places = self.places(batch)?;
        let mut buffer = Vec::new();
        let encode = |row| {
            buffer.clear();
            self.append(batch, &places, row, &mut buffer).then(|| buffer.as_slice().into())
        };
        Ok((0..batch.num_rows()).map(encode).collect())
    }

    /// Returns the key's values of a row.
    pub fn values(&self, batch: &RecordBatch, row: usize) -> Result<Vec<Value>> {
        let value = |((_, data_type), at): (&(ColumnId, DataType), usize)| {
            Value::from_array(batch.column(at).as_ref(), data_type, row)
        };
        Ok(self.columns.iter().zip(self.places(batch)?).map(value).collect())
    }
}

/// Returns the in-memory part of the unique indexes of a definition. Indexes in `known` keep their maps; a new index has the rows
/// from `next_row` on in its map.
pub(crate) fn declared(def: &TableDef, known: &[RecentRows], next_row: u64) -> Arc<[RecentRows]> {
    let recent = |index: &IndexDef| {
        let key = Key::of(def, index)?;
        let unique = index.unique.clone()?;
        let ids: Vec<ColumnId> = key.columns.iter().map(|(id, _)| *id).collect();
        let columns = Projection::new(def, &ids).ok()?;
        let (key, first, map) = match known.iter().find(|recent| *recent.key == key) {
            Some(known) => (known.key.clone(), known.first, known.map.clone()),
            None => (Arc::new(key), next_row, KeyMap::default()),
        };
        Some(RecentRows { key, unique, columns, first, map })
    };
    def.indexes.iter().filter(|index| index.checks_writes()).filter_map(recent).collect()
}

impl Parts {
    fn recent(&self, key: &Key) -> Option<&RecentRows> {
        self.uniques.iter().find(|recent| *recent.key == *key)
    }

    /// Enters new rows of the head, whose ids begin at `first`.
    pub fn enter_uniques(&mut self, first: u64, user: &RecordBatch) -> Result<()> {
        if self.uniques.is_empty() {
            return Ok(());
        }
        let mut uniques = self.uniques.to_vec();
        for recent in &mut uniques {
            let places = recent.key.places(user)?;
            let mut bytes = Vec::new();
            for at in 0..user.num_rows() {
                bytes.clear();
                if recent.key.append(user, &places, at, &mut bytes) {
                    let RecentRows { key, columns, map, .. } = recent;
                    // An older live row with this hash either is about to end or has other values. While an index is being
                    // checked it may also be equal, and then either of the two may be found.
                    let has = |older| self.has(key, columns, older, &bytes);
                    let keeps = |older| !matches!(has(older), Ok(None | Some(true)));
                    map.insert(key::hash(&bytes), first + at as u64, keeps);
                }
            }
        }
        self.uniques = uniques.into();
        Ok(())
    }

    /// Returns true if a live row has these values; `None` if the row is not live.
    fn has(&self, key: &Key, columns: &Projection, row: u64, bytes: &[u8]) -> Result<Option<bool>> {
        let Some(place) = self.row(row, NeededColumns::Columns(columns))? else { return Ok(None) };
        let batch = columns.apply(&place.stored.layout, &place.stored.batch.slice(place.index, 1))?;
        let places: Vec<usize> = (0..key.columns.len()).collect();
        let mut known = Vec::with_capacity(bytes.len());
        Ok(Some(key.append(&batch, &places, 0, &mut known) && known == bytes))
    }

    /// Returns the live row with these values among those in the map. Adds to `compared` the number of rows that it reads.
    fn recent_owner(
        &self,
        recent: &RecentRows,
        bytes: &[u8],
        from: u64,
        compared: &mut u64,
    ) -> Result<Option<RowId>> {
        let is_it = |row| {
            if row < from {
                return None;
            }
            *compared += 1;
            match self.has(&recent.key, &recent.columns, row, bytes) {
                Ok(Some(true)) => Some(Ok(RowId(row))),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            }
        };
        recent.map.find_map(key::hash(bytes), from, is_it).transpose()
    }

    /// Returns the live row with these values among those in the published index. Adds to `compared` the number of rows that it
    /// reads. `None` if the index is damaged.
    fn indexed_owner(
        &self,
        recent: &RecentRows,
        lookup: &dyn Lookup,
        values: &[Value],
        bytes: &[u8],
        from: u64,
        compared: &mut u64,
    ) -> Result<Option<Option<RowId>>> {
        let rows = match lookup.candidates(&recent.key.columns, values) {
            Ok(rows) => rows,
            // A damaged index is rebuilt; until then its rows belong to the gap.
            Err(error) if is_damage(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        for row in rows.into_iter().filter(|row| row.0 >= from && row.0 < self.next_row) {
            *compared += 1;
            if self.has(&recent.key, &recent.columns, row.0, bytes)? == Some(true) {
                return Ok(Some(Some(row)));
            }
        }
        Ok(Some(None))
    }

    /// Returns the range of rows that neither the map nor the index has.
    fn gap(&self, recent: &RecentRows, lookup: Option<&dyn Lookup>) -> std::ops::Range<u64> {
        let reached = lookup.and_then(|lookup| lookup.reached(&recent.key.columns)).unwrap_or_default();
        let end = recent.first.min(self.next_row);
        reached.next().0.min(end)..end
    }

    /// Removes the rows from the maps that the published index has. Returns true if there were any.
    pub fn forget_uniques(&mut self, lookup: &dyn Lookup) -> bool {
        let mut uniques = self.uniques.to_vec();
        let mut forgot = false;
        for recent in &mut uniques {
            let reached = lookup.reached(&recent.key.columns).unwrap_or_default();
            if let Some(first) = recent.map.forget_below(reached.next().0) {
                recent.first = recent.first.max(first);
                forgot = true;
            }
        }
        if forgot {
            self.uniques = uniques.into();
        }
        forgot
    }
}

impl Snapshot {
    /// Returns the live rows that have these values, one for each row of `batch`, which holds the key's columns. `keys` is the
    /// result of [`Key::encode`] for `batch`.
    ///
    /// If the index is [`UniqueState::Checking`], rows in the gap are left out; if it is enforced, they are read, once for all values.
    /// Returns `None` if the table's definition has no such index.
    pub fn owners(
        &self,
        key: &Key,
        mut lookup: Option<&dyn Lookup>,
        batch: &RecordBatch,
        keys: &[Option<Box<[u8]>>],
    ) -> Result<Option<Owners>> {
        let parts = &self.parts;
        let Some(recent) = parts.recent(key) else { return Ok(None) };
        let (mut rows, mut compared) = (Vec::with_capacity(keys.len()), 0);
        for (row, bytes) in keys.iter().enumerate() {
            let Some(bytes) = bytes else {
                rows.push(None);
                continue;
            };
            let mut owner = parts.recent_owner(recent, bytes, 0, &mut compared)?;
            if let Some(known) = lookup.filter(|_| owner.is_none()) {
                let values = key.values(batch, row)?;
                match parts.indexed_owner(recent, known, &values, bytes, 0, &mut compared)? {
                    Some(found) => owner = found,
                    None => lookup = None,
                }
            }
            rows.push(owner);
        }
        let gap = parts.gap(recent, lookup);
        if gap.is_empty() {
            return Ok(Some(Owners { rows, complete: true, compared }));
        }
        if recent.unique == UniqueState::Checking {
            return Ok(Some(Owners { rows, complete: false, compared }));
        }
        let open = |row: &usize| rows[*row].is_none();
        let wanted = keys.iter().enumerate().filter_map(|(row, bytes)| Some((bytes.as_deref()?, row)));
        let wanted: std::collections::HashMap<&[u8], usize> = wanted.filter(|(_, row)| open(row)).collect();
        let mut found = Vec::new();
        if !wanted.is_empty() {
            self.each_key(self.def(), key, gap, &mut |row, bytes| {
                compared += 1;
                found.extend(wanted.get(bytes).map(|at| (*at, row)));
                true
            })?;
        }
        // A value may occur more than once in `keys`: the search found it for one of them, and the row holds for all.
        for (at, row) in found {
            let same = keys.iter().enumerate().filter(|(_, bytes)| **bytes == keys[at]).map(|(same, _)| same);
            same.for_each(|same| rows[same] = Some(row));
        }
        Ok(Some(Owners { rows, complete: true, compared }))
    }

    /// Calls `tell` for each live row of a range that has no null, until it returns false.
    fn each_key(
        &self,
        def: &TableDef,
        key: &Key,
        rows: std::ops::Range<u64>,
        tell: &mut dyn FnMut(RowId, &[u8]) -> bool,
    ) -> Result<()> {
        let ids: Vec<ColumnId> = [ROW_ID].into_iter().chain(key.columns.iter().map(|(id, _)| *id)).collect();
        let projection = Projection::new(def, &ids)?;
        let places: Vec<usize> = (1..ids.len()).collect();
        let mut bytes = Vec::new();
        for piece in self.pieces_from(rows.start) {
            if piece.row_range().0.0 >= rows.end {
                break;
            }
            let batch = piece.read_rows(rows.start, rows.end, usize::MAX, &projection)?;
            let row_ids = batch.column(0).as_primitive::<Int64Type>().values();
            for (at, row) in row_ids.iter().enumerate() {
                bytes.clear();
                if key.append(&batch, &places, at, &mut bytes) && !tell(RowId(*row as u64), &bytes) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Enters all rows of a table in the map of a new index. `def` is the table's future definition, with the index. Returns the
    /// first two equal rows as the inner error, if there are any.
    pub fn enter(
        &self,
        def: &TableDef,
        key: Key,
    ) -> Result<std::result::Result<EnteredRows, (RowId, RowId)>> {
        let ids: Vec<ColumnId> = key.columns.iter().map(|(id, _)| *id).collect();
        let columns = Projection::new(def, &ids)?;
        let mut map = KeyMap::default();
        let mut equal = None;
        let mut failed = None;
        self.each_key(def, &key, 0..self.next_row().0, &mut |row, bytes| {
            let hash = key::hash(bytes);
            let other = map.find_map(hash, 0, |other| match self.parts.has(&key, &columns, other, bytes) {
                Ok(has) => (has == Some(true)).then_some(other),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            });
            equal = other.map(|other| (RowId(other), row));
            // Any row found under this hash has another value.
            map.insert(hash, row.0, |_| true);
            equal.is_none() && failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(match equal {
            Some(equal) => Err(equal),
            None => {
                Ok(EnteredRows { table: self.def().id, key: Arc::new(key), map, next_row: self.next_row() })
            }
        })
    }
}

impl Tip {
    /// Returns the live row that has these values, for a caller that found `found` in the snapshot `base`: looks only at changes
    /// since then. `lookup` is the newest. `None` if the answer is unknown, because rows in the gap would have to be read.
    pub fn owner_again(
        &self,
        base: &Snapshot,
        key: &Key,
        lookup: Option<&dyn Lookup>,
        values: &dyn Fn() -> Result<Vec<Value>>,
        bytes: &[u8],
        found: Option<RowId>,
    ) -> Result<Option<Option<RowId>>> {
        if let Some(row) = found
            && self.parts.is_live(row.0)?
        {
            return Ok(Some(found));
        }
        self.owner_from(key, lookup, values, bytes, base.next_row())
    }

    /// Returns the live row from `from` on that has these values. `None` if the answer is unknown, because rows in the gap would
    /// have to be read.
    pub fn owner_from(
        &self,
        key: &Key,
        lookup: Option<&dyn Lookup>,
        values: &dyn Fn() -> Result<Vec<Value>>,
        bytes: &[u8],
        from: RowId,
    ) -> Result<Option<Option<RowId>>> {
        let parts = &self.parts;
        let Some(recent) = parts.recent(key) else { return Ok(None) };
        if let Some(owner) = parts.recent_owner(recent, bytes, from.0, &mut 0)? {
            return Ok(Some(Some(owner)));
        }
        if from.0 >= recent.first {
            return Ok(Some(None));
        }
        let gap = parts.gap(recent, lookup);
        if gap.start.max(from.0) < gap.end {
            return Ok(None);
        }
        match lookup {
            Some(lookup) => parts.indexed_owner(recent, lookup, &values()?, bytes, from.0, &mut 0),
            None => Ok(Some(None)),
        }
    }

    /// Takes over the map that the creator of an index built, if the table has the index, and enters the rows that came since.
    /// Returns the first two equal rows, if there are any.
    pub fn adopt(&mut self, entered: EnteredRows) -> Result<Option<(RowId, RowId)>> {
        let EnteredRows { key, mut map, next_row, .. } = entered;
        // Other tips may adopt the same map: the rows entered here are not theirs.
        map.fork();
        let mut uniques = self.parts.uniques.to_vec();
        let Some(at) = uniques.iter().position(|recent| recent.key == key) else { return Ok(None) };
        (uniques[at].first, uniques[at].map) = (0, map);
        self.parts.uniques = uniques.into();
        let since = self.snapshot(types::Lsn(0));
        let (mut equal, mut failed) = (None, None);
        let parts = &mut self.parts;
        let mut uniques = parts.uniques.to_vec();
        since.each_key(since.def(), &key, next_row.0..since.next_row().0, &mut |row, bytes| {
            let recent = &mut uniques[at];
            match since.parts.recent_owner(recent, bytes, 0, &mut 0) {
                Ok(Some(owner)) => equal = Some((owner, row)),
                Ok(None) => recent.map.insert(key::hash(bytes), row.0, |_| true),
                Err(error) => failed = Some(error),
            }
            equal.is_none() && failed.is_none()
        })?;
        parts.uniques = uniques.into();
        match failed {
            Some(error) => Err(error),
            None => Ok(equal),
        }
    }

    /// Removes the rows from the maps of unique indexes that the published indexes have. Returns true if there were any.
    pub fn forget_uniques(&mut self, lookup: &dyn Lookup) -> bool {
        self.parts.forget_uniques(lookup)
    }
}
