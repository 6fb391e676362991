//! Unique indexes: which live row has a value.
//!
//! What a table has in memory of a unique index is a map from the hashes of values to rows, for the rows from some id on
//! (`Recent`). Rows before it are found by what was published of the index ([`Lookup`]); the map forgets what the index
//! has taken in. Rows that neither knows are the *gap*: there is one until an index has been built over the rows that were
//! there before it, and while a damaged one is built anew.
//!
//! As for primary keys, a writer looks values up in its own thread against a snapshot, and the commit thread looks only at
//! the rows that came since.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use types::schema::column_ids;
use types::{
    ColumnId, DataType, Error, IndexDef, ROW_ID, Result, RowId, TableDef, TableId, Unique, Value, key,
};

use crate::key_map::KeyMap;
use crate::layout::Projection;
use crate::parts::Parts;
use crate::segment::{Need, is_damage};
use crate::{Snapshot, Tip};

/// Rows of a table that are entered in a map by whoever makes an index; of larger tables the index is built first.
pub const ENTERED_AT_ONCE_MAX: u64 = 1 << 18;

/// What a unique index compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Of the index.
    pub name: String,
    pub columns: Vec<(ColumnId, DataType)>,
}

/// Finds rows by values: what is published of indexes over columns.
pub trait Lookup: Send + Sync {
    /// The last row that the index over these columns has taken in; `None` if there is no such index.
    fn reached(&self, columns: &[(ColumnId, DataType)]) -> Option<RowId>;

    /// Rows up to there, among which are all that have these values, none of which is null. Some may be dead, some may have
    /// other values.
    fn candidates(&self, columns: &[(ColumnId, DataType)], values: &[Value]) -> Result<Vec<RowId>>;

    /// What comparing the rows of a unique index that is [`Unique::Checking`] has shown.
    fn verdict(&self, columns: &[(ColumnId, DataType)]) -> Verdict;
}

/// See [`Lookup::verdict`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Unknown,
    /// At some lsn no two live rows up to this one were equal.
    Distinct(RowId),
    /// Two live rows were equal; says which.
    Equal(String),
}

/// The rows of a table that have some values.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// One for each of the values that were asked for.
    pub rows: Vec<Option<RowId>>,
    /// No row was left out.
    pub complete: bool,
    /// Rows whose values were read.
    pub compared: u64,
}

/// The newest rows by the values of a unique index.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    key: Arc<Key>,
    unique: Unique,
    columns: Projection,
    /// All live rows from this one on that have no null are in the map.
    first: u64,
    map: KeyMap,
}

/// Rows entered by the maker of an index, in its own thread.
#[derive(Clone, Debug)]
pub struct Entered {
    table: TableId,
    key: Arc<Key>,
    map: KeyMap,
    /// The row after the last one.
    pub next_row: RowId,
}

impl Recent {
    /// From now on its map goes its own way.
    pub fn keep_apart(&mut self) {
        self.map.keep_apart();
    }
}

impl Entered {
    /// Whose rows these are. Another table may have its name by now.
    pub fn table(&self) -> TableId {
        self.table
    }

    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl Key {
    /// `None` of an index that is not unique, or of columns that are not there.
    pub fn of(def: &TableDef, index: &IndexDef) -> Option<Key> {
        index.unique.as_ref()?;
        let column = |id: &ColumnId| Some((*id, def.schema.column(*id)?.data_type.clone()));
        let columns = index.columns.iter().map(column).collect::<Option<_>>()?;
        Some(Key { name: index.name.clone(), columns })
    }

    /// Of the indexes of a table that writes are checked against.
    pub fn checked(def: &TableDef) -> impl Iterator<Item = Key> + '_ {
        def.indexes.iter().filter(|index| index.checks_writes()).filter_map(|index| Key::of(def, index))
    }

    /// Where its columns are in a batch whose fields carry column ids.
    pub fn places(&self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let ids = column_ids(batch.schema_ref());
        let place = |(id, _): &(ColumnId, DataType)| ids.iter().position(|known| *known == Some(*id));
        let missing = || Error::internal("rows without a column of a unique index");
        self.columns.iter().map(place).collect::<Option<_>>().ok_or_else(missing)
    }

    /// Bytes that are equal for equal values. False, and nothing appended, if one is null. `places` as of [`Key::places`].
    pub fn append(&self, batch: &RecordBatch, places: &[usize], row: usize, out: &mut Vec<u8>) -> bool {
        if places.iter().any(|at| batch.column(*at).is_null(row)) {
            return false;
        }
        for ((_, data_type), at) in self.columns.iter().zip(places) {
            key::append_equal(data_type, batch.column(*at).as_ref(), row, out);
        }
        true
    }

    /// The bytes of each row of a batch; `None` for those with a null.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Vec<Option<Box<[u8]>>>> {
        let places = self.places(batch)?;
        let mut buffer = Vec::new();
        let encode = |row| {
            buffer.clear();
            self.append(batch, &places, row, &mut buffer).then(|| buffer.as_slice().into())
        };
        Ok((0..batch.num_rows()).map(encode).collect())
    }

    /// The values of a row.
    pub fn values(&self, batch: &RecordBatch, row: usize) -> Result<Vec<Value>> {
        let value = |((_, data_type), at): (&(ColumnId, DataType), usize)| {
            Value::from_array(batch.column(at).as_ref(), data_type, row)
        };
        Ok(self.columns.iter().zip(self.places(batch)?).map(value).collect())
    }
}

/// What is to be in memory of the unique indexes of a definition. Of those that are known the maps stay; the rows of a new
/// one are in its map from `next_row` on.
pub(crate) fn declared(def: &TableDef, known: &[Recent], next_row: u64) -> Arc<[Recent]> {
    let recent = |index: &IndexDef| {
        let key = Key::of(def, index)?;
        let unique = index.unique.clone()?;
        let ids: Vec<ColumnId> = key.columns.iter().map(|(id, _)| *id).collect();
        let columns = Projection::new(def, &ids).ok()?;
        let (key, first, map) = match known.iter().find(|recent| *recent.key == key) {
            Some(known) => (known.key.clone(), known.first, known.map.clone()),
            None => (Arc::new(key), next_row, KeyMap::default()),
        };
        Some(Recent { key, unique, columns, first, map })
    };
    def.indexes.iter().filter(|index| index.checks_writes()).filter_map(recent).collect()
}

impl Parts {
    fn recent(&self, key: &Key) -> Option<&Recent> {
        self.uniques.iter().find(|recent| *recent.key == *key)
    }

    /// Enters new rows of the head, from `first` on.
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
                    let Recent { key, columns, map, .. } = recent;
                    // An older live row with this hash is about to end, or has other values. While an index is being
                    // checked it may be equal too, and then it does not matter which of the two is found.
                    let has = |older| self.has(key, columns, older, &bytes);
                    let keeps = |older| !matches!(has(older), Ok(None | Some(true)));
                    map.insert(key::hash(&bytes), first + at as u64, keeps);
                }
            }
        }
        self.uniques = uniques.into();
        Ok(())
    }

    /// Whether a row has these values; `None` if it does not live.
    fn has(&self, key: &Key, columns: &Projection, row: u64, bytes: &[u8]) -> Result<Option<bool>> {
        let Some(place) = self.row(row, Need::Columns(columns))? else { return Ok(None) };
        let batch = columns.apply(&place.stored.layout, &place.stored.batch.slice(place.index, 1))?;
        let places: Vec<usize> = (0..key.columns.len()).collect();
        let mut known = Vec::with_capacity(bytes.len());
        Ok(Some(key.append(&batch, &places, 0, &mut known) && known == bytes))
    }

    /// The live row among those in memory. Counts the rows that it reads.
    fn recent_owner(
        &self,
        recent: &Recent,
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

    /// The live row among those in the index. Counts as well. `None` if the index cannot be read.
    fn indexed_owner(
        &self,
        recent: &Recent,
        lookup: &dyn Lookup,
        values: &[Value],
        bytes: &[u8],
        from: u64,
        compared: &mut u64,
    ) -> Result<Option<Option<RowId>>> {
        let rows = match lookup.candidates(&recent.key.columns, values) {
            Ok(rows) => rows,
            // It is built anew; until then it counts for nothing.
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

    /// The rows that neither the map nor the index has: from here, and up to there.
    fn gap(&self, recent: &Recent, lookup: Option<&dyn Lookup>) -> std::ops::Range<u64> {
        let reached = lookup.and_then(|lookup| lookup.reached(&recent.key.columns)).unwrap_or_default();
        let end = recent.first.min(self.next_row);
        reached.next().0.min(end)..end
    }

    /// Forgets rows that the index has. Returns whether it knew some.
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
    /// The live rows that have these values, one for each row of `batch`, which holds the key's columns. `keys` are its
    /// [`Key::encode`].
    ///
    /// Of an index that is [`Unique::Checking`] rows in the gap are left out; of one that is enforced they are read, once
    /// for all. `None` if its definition has no such index.
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
        if recent.unique == Unique::Checking {
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
        // Of equal values asked for more than once one is found; what holds for it holds for all.
        for (at, row) in found {
            let same = keys.iter().enumerate().filter(|(_, bytes)| **bytes == keys[at]).map(|(same, _)| same);
            same.for_each(|same| rows[same] = Some(row));
        }
        Ok(Some(Owners { rows, complete: true, compared }))
    }

    /// Tells of each live row in a range that has no null, as long as it is to go on.
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

    /// Enters all rows of a table in the map of a new index, which `def` has: what this table's definition is to become. The
    /// first two rows that are equal otherwise.
    pub fn enter(&self, def: &TableDef, key: Key) -> Result<std::result::Result<Entered, (RowId, RowId)>> {
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
            // Whatever was found under this hash is of another value.
            map.insert(hash, row.0, |_| true);
            equal.is_none() && failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(match equal {
            Some(equal) => Err(equal),
            None => Ok(Entered { table: self.def().id, key: Arc::new(key), map, next_row: self.next_row() }),
        })
    }
}

impl Tip {
    /// The live row that has these values, for a caller that has looked them up in `base` and found `found` there: looks
    /// only at what changed since. `lookup` is the newest. `None` if that cannot be told.
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

    /// The live row from `from` on that has these values. `None` if that cannot be told.
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

    /// Goes on from rows that the maker of an index entered, if its definition is in place: the rows since come after
    /// them. The two that are equal, if there are such.
    pub fn adopt(&mut self, entered: Entered) -> Result<Option<(RowId, RowId)>> {
        let Entered { key, mut map, next_row, .. } = entered;
        // Others may adopt the same: what is entered here is not theirs.
        map.keep_apart();
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

    /// Forgets the rows of unique indexes that were published of them. Returns whether it knew some.
    pub fn forget_uniques(&mut self, lookup: &dyn Lookup) -> bool {
        self.parts.forget_uniques(lookup)
    }
}
