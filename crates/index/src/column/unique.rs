//! Support for unique indexes: finds candidate rows for given values, and checks whether any two live rows are equal.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use table::Snapshot;
use table::materializer::Budget;
use table::unique::{Key, Lookup, Verdict};
use types::{ColumnId, DataType, IndexDef, ROW_ID, Result, RowId, TableDef, UniqueState, Value, key, name};

use super::codec::{EntryRange, IndexColumns, KEY_BYTES_MAX};
use super::index::{Index, Indexes};

/// Number of entries between two checks for a closing database.
const CHECK_EVERY: usize = 16_384;
/// Number of rows read from the table at once, among rows with the same (cut) entry.
const READ_ROWS: usize = 8_192;
/// The longest excerpt of a value in an error message, in characters.
const SHOWN_CHARS: usize = 100;

impl Lookup for Indexes {
    fn reached(&self, columns: &[(ColumnId, DataType)]) -> Option<RowId> {
        Some(self.index_over(columns)?.reached())
    }

    fn candidates(&self, columns: &[(ColumnId, DataType)], values: &[Value]) -> Result<Vec<RowId>> {
        let Some(index) = self.index_over(columns) else { return Ok(Vec::new()) };
        index.rows(&index.columns().equal_to(values)?)
    }

    fn verdict(&self, columns: &[(ColumnId, DataType)]) -> Verdict {
        self.index_over(columns).map(|index| index.verdict.clone()).unwrap_or_default()
    }
}

impl Indexes {
    fn index_over(&self, columns: &[(ColumnId, DataType)]) -> Option<&Index> {
        self.list.iter().find(|index| index.columns().matches(columns))
    }

    /// Returns the position of the next index whose rows must be compared, with its unique key.
    pub(super) fn next_to_compare(&self, def: &TableDef) -> Option<(usize, Key)> {
        let checking = def.indexes.iter().filter(|index| index.unique == Some(UniqueState::Checking));
        checking.filter_map(|index| self.to_compare(def, index)).next()
    }

    fn to_compare(&self, def: &TableDef, index: &IndexDef) -> Option<(usize, Key)> {
        let key = Key::of(def, index)?;
        let at = self.list.iter().position(|index| index.columns().matches(&key.columns))?;
        let is_known = match self.list[at].verdict {
            Verdict::Unknown => false,
            Verdict::Distinct(row) => row >= self.list[at].row,
            Verdict::Equal(_) => true,
        };
        (!is_known).then_some((at, key))
    }
}

/// Compares the rows of an index with each other and returns the verdict: all distinct up to its last row, or two equal
/// rows.
pub(super) fn compare(
    index: &Index,
    key: &Key,
    table: &Snapshot,
    budget: &mut Budget<'_>,
) -> Result<Verdict> {
    let mut walk = index.walk(EntryRange::all(), false)?;
    let mut rows: Vec<RowId> = Vec::new();
    let mut current: Vec<u8> = Vec::new();
    let mut entries = 0;
    loop {
        let next = walk.next()?;
        let goes_on = next.as_ref().is_some_and(|(entry, _)| *entry == current.as_slice());
        if !goes_on {
            if let Some(equal) = equal_rows(index, key, table, &current, &rows)? {
                return Ok(Verdict::Equal(equal_rows_message(key, table, equal)?));
            }
            rows.clear();
        }
        let Some((entry, found)) = next else { return Ok(Verdict::Distinct(index.row)) };
        if !goes_on {
            current.clear();
            current.extend_from_slice(entry);
        }
        entries += 1;
        if entries % CHECK_EVERY == 0 {
            (budget.tick)(0)?;
        }
        // Nulls equal nothing, and there may be many.
        if !index.columns().has_null(entry) {
            rows.extend(found);
        }
    }
}

/// Returns two equal live rows, if there are any. `rows` are the rows with this entry. The second row may have another
/// entry, because floats that are equal (0 and -0, two NaNs) can differ in their bytes.
fn equal_rows(
    index: &Index,
    key: &Key,
    table: &Snapshot,
    entry: &[u8],
    rows: &[RowId],
) -> Result<Option<(RowId, RowId)>> {
    let is_ambiguous = index.columns().has_ambiguous_float(entry);
    if rows.len() < 2 && !is_ambiguous {
        return Ok(None);
    }
    let mut live = Vec::new();
    for row in rows {
        if table.is_live(*row)? {
            live.push(*row);
        }
    }
    let Some(first) = live.first() else { return Ok(None) };
    // The other zero or another NaN is equal but lies under another entry.
    if is_ambiguous {
        let values = key.values(&fetch(key, table, &[*first])?.slice(0, 1), 0)?;
        live = Vec::new();
        for row in index.rows(&index.columns().equal_to(&values)?)? {
            if table.is_live(row)? {
                live.push(row);
            }
        }
    }
    if live.len() < 2 {
        return Ok(None);
    }
    if entry.len() < KEY_BYTES_MAX && !is_ambiguous {
        return Ok(Some((live[0], live[1])));
    }
    let mut known: HashMap<u64, Vec<(RowId, Vec<u8>)>> = HashMap::new();
    for some in live.chunks(READ_ROWS) {
        let batch = fetch(key, table, some)?;
        let places: Vec<usize> = (1..batch.num_columns()).collect();
        let row_ids = batch.column(0).as_primitive::<Int64Type>().values();
        for (at, row) in row_ids.iter().enumerate() {
            let (mut bytes, row) = (Vec::new(), RowId(*row as u64));
            if !key.append(&batch, &places, at, &mut bytes) {
                continue;
            }
            match known.entry(key::hash(&bytes)) {
                Entry::Vacant(entry) => drop(entry.insert(vec![(row, bytes)])),
                Entry::Occupied(mut entry) => {
                    if let Some((other, _)) = entry.get().iter().find(|(_, known)| *known == bytes) {
                        return Ok(Some((*other, row)));
                    }
                    entry.get_mut().push((row, bytes));
                }
            }
        }
    }
    Ok(None)
}

/// Reads the row ids and the columns of the key.
fn fetch(key: &Key, table: &Snapshot, rows: &[RowId]) -> Result<RecordBatch> {
    let ids: Vec<ColumnId> = [ROW_ID].into_iter().chain(key.columns.iter().map(|(id, _)| *id)).collect();
    table.fetch(rows, &table.projection(&ids)?)
}

/// Formats the reason of a failed unique index: the values that two rows have in common.
fn equal_rows_message(key: &Key, table: &Snapshot, (first, second): (RowId, RowId)) -> Result<String> {
    let row = table.row(first)?;
    let part = |(id, _): &(ColumnId, DataType)| {
        let column = table.def().schema.column(*id)?;
        let value = row.as_ref()?.value(*id).ok()?;
        Some(format!("{} = {}", column.name, format_value(&value, &column.data_type)))
    };
    let parts: Vec<String> = key.columns.iter().filter_map(part).collect();
    Ok(format!("two rows have {} (row ids {first} and {second})", parts.join(", ")))
}

fn format_value(value: &Value, data_type: &DataType) -> String {
    let text = match value {
        Value::String(text) => format!("'{}'", name::printable(text)),
        other => Value::to_array(std::slice::from_ref(other), data_type)
            .ok()
            .and_then(|array| arrow::util::display::array_value_to_string(&array, 0).ok())
            .unwrap_or_else(|| format!("{other:?}")),
    };
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

impl IndexColumns {
    pub(super) fn matches(&self, columns: &[(ColumnId, DataType)]) -> bool {
        self.list == columns
    }

    /// Returns the ranges of entries with these values, none of which is null. If the values are longer than an entry
    /// can hold, the ranges also contain other values.
    fn equal_to(&self, values: &[Value]) -> Result<Vec<EntryRange>> {
        let mut prefixes = vec![Vec::new()];
        let mut ranges = Vec::new();
        for ((_, data_type), value) in self.list.iter().zip(values) {
            let encode = |value: &Value| {
                let mut bytes = vec![super::codec::VALUE];
                key::append_value(data_type, value, &mut bytes).map(|()| bytes)
            };
            let points: Vec<Vec<u8>> = match float(value) {
                Some(number) if number == 0.0 || number.is_nan() => {
                    let of = |number: f64| match value {
                        Value::Float32(_) => Value::Float32(number as f32),
                        _ => Value::Float64(number),
                    };
                    if number.is_nan() {
                        let [least, greatest] =
                            [f64::NEG_INFINITY, f64::INFINITY].map(|number| encode(&of(number)));
                        let nans = [encode(&of(-f64::NAN))?, encode(&of(f64::NAN))?];
                        for prefix in &prefixes {
                            ranges.extend(unusual_nans(prefix, &least.clone()?, &greatest.clone()?, &nans));
                        }
                        nans.to_vec()
                    } else {
                        vec![encode(&of(0.0))?, encode(&of(-0.0))?]
                    }
                }
                _ => vec![encode(value)?],
            };
            let with = |prefix: &Vec<u8>, point: &Vec<u8>| [prefix.as_slice(), point.as_slice()].concat();
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| points.iter().map(move |point| with(prefix, point)))
                .collect();
        }
        ranges.extend(prefixes.into_iter().map(|prefix| {
            let low = super::codec::truncated(prefix);
            let high = super::codec::prefix_successor(&low);
            EntryRange { low, high }
        }));
        Ok(EntryRange::union(ranges))
    }

    /// Returns true if an entry shows a null among the columns that it holds uncut.
    fn has_null(&self, entry: &[u8]) -> bool {
        self.parts(entry).any(|(_, is_null, _)| is_null)
    }

    /// Returns true if an entry holds a float that equals another float with different bytes: a zero or a NaN other
    /// than the usual two.
    fn has_ambiguous_float(&self, entry: &[u8]) -> bool {
        self.parts(entry).any(|(data_type, is_null, bytes)| {
            let encode = |number: f64| {
                let value = match data_type {
                    DataType::Float32 => Value::Float32(number as f32),
                    _ => Value::Float64(number),
                };
                let mut bytes = Vec::new();
                key::append_value(data_type, &value, &mut bytes).ok().map(|()| bytes)
            };
            let is = |number: f64| encode(number).is_some_and(|point| point == bytes);
            matches!(data_type, DataType::Float32 | DataType::Float64)
                && !is_null
                && (is(-0.0)
                    || encode(f64::INFINITY).is_none_or(|greatest| bytes > greatest.as_slice())
                    || encode(f64::NEG_INFINITY).is_none_or(|least| bytes < least.as_slice()))
        })
    }

    /// Splits an entry into its columns, as far as it was not cut: type, null flag, bytes of the value.
    fn parts<'a>(&'a self, entry: &'a [u8]) -> impl Iterator<Item = (&'a DataType, bool, &'a [u8])> {
        let mut start = 0;
        (1..=self.list.len()).map_while(move |columns| {
            let end = self.prefix_len(entry, columns)?;
            let part = entry.get(start..end)?;
            start = end;
            let (tag, bytes) = part.split_first()?;
            Some((&self.list[columns - 1].1, *tag != super::codec::VALUE, bytes))
        })
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float32(value) => Some((*value).into()),
        Value::Float64(value) => Some(*value),
        _ => None,
    }
}

/// Returns the ranges of NaNs other than the two usual ones. Arithmetic makes no such NaNs, but a file may hold some.
/// The ranges ignore the columns that follow.
fn unusual_nans(prefix: &[u8], least: &[u8], greatest: &[u8], usual: &[Vec<u8>; 2]) -> [EntryRange; 4] {
    let at = |bytes: &[u8]| [prefix, bytes].concat();
    let behind = |bytes: &[u8]| super::codec::prefix_successor(&at(bytes)).unwrap_or_default();
    let between = |low: Vec<u8>, high: Vec<u8>| EntryRange { low, high: Some(high) };
    let [negative, positive] = usual;
    [
        between(at(&[super::codec::VALUE]), at(negative)),
        between(behind(negative), at(least)),
        between(behind(greatest), at(positive)),
        between(behind(positive), at(&[super::codec::NULL])),
    ]
}
