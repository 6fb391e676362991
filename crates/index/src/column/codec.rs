//! The byte encoding of index entries. An entry is the values of the index's columns, one after the other, each after a
//! byte that tells a value from a null. Entries sort as their values do: nulls last, floats in total order.
//!
//! An entry is cut at [`KEY_BYTES_MAX`]. A lookup with a cut entry may find too many rows, never too few. Readers
//! compare the values of the rows again anyway.

use std::ops::Bound;

use arrow::array::Array;
use types::codec::Encoder;
use types::{ColumnId, DataType, Error, IndexDef, Result, TableDef, Value, key, name};

/// The kind of an index definition that this module builds.
pub const KIND: &str = types::INDEX_COLUMN;
/// The largest number of columns of one index.
pub const COLUMNS_MAX: usize = 16;
/// The length in bytes at which entries are cut.
pub const KEY_BYTES_MAX: usize = 1_024;

pub(super) const VALUE: u8 = 1;
pub(super) const NULL: u8 = 2;

/// The columns of an index with their types, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexColumns {
    pub(super) list: Vec<(ColumnId, DataType)>,
}

/// A range of entries as byte strings: from `low` inclusive to `high` exclusive; without `high` to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRange {
    pub(super) low: Vec<u8>,
    pub(super) high: Option<Vec<u8>>,
}

/// The condition on the column that follows those with known values.
#[derive(Clone, Copy, Debug)]
pub enum ColumnCondition<'a> {
    /// Accepts any value, and nulls too.
    Any,
    /// A value between these bounds. Nulls do not match.
    Between(Bound<&'a Value>, Bound<&'a Value>),
    /// A string with this prefix.
    StartsWith(&'a str),
}

/// Checks the definition of a column index. Fails if it has an unknown option, too many columns, or a column whose type
/// has no order.
pub fn check(def: &TableDef, index: &IndexDef) -> Result<()> {
    let wrong = |what: String| Error::invalid(what).with("table", name::short_table_name(&def.name));
    if let Some((option, _)) = index.options.iter().find(|(option, _)| option != types::OPTION_REPEATS) {
        return Err(wrong(format!("an index of columns has no option `{}`", name::printable(option))));
    }
    if index.columns.len() > COLUMNS_MAX {
        return Err(wrong(format!("an index has at most {COLUMNS_MAX} columns")));
    }
    for id in &index.columns {
        let Some(column) = def.schema.column(*id) else { continue };
        if !is_ordered(&column.data_type) {
            return Err(wrong(format!(
                "column `{}` is {}, which cannot be indexed",
                name::printable(&column.name),
                column.data_type
            ))
            .hint("bool, numbers, strings, binary, dates, timestamps and uuids can be"));
        }
    }
    Ok(())
}

fn is_ordered(data_type: &DataType) -> bool {
    data_type.is_key() || matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Returns the size in bytes of the values of a type, or `None` if they vary in size.
fn width(data_type: &DataType) -> Option<usize> {
    Some(match data_type {
        DataType::Bool => 1,
        DataType::Int32 | DataType::Date | DataType::Float32 => 4,
        DataType::Int64 | DataType::Timestamp | DataType::Float64 => 8,
        DataType::Decimal { .. } | DataType::Uuid => 16,
        _ => return None,
    })
}

impl IndexColumns {
    /// Returns the columns of a definition, or `None` if a column was dropped or cannot be indexed.
    pub fn of(def: &TableDef, index: &IndexDef) -> Option<IndexColumns> {
        let column = |id: &ColumnId| {
            let column = def.schema.column(*id)?;
            is_ordered(&column.data_type).then(|| (*id, column.data_type.clone()))
        };
        Some(IndexColumns { list: index.columns.iter().map(column).collect::<Option<_>>()? })
    }

    pub fn ids(&self) -> impl ExactSizeIterator<Item = ColumnId> + '_ {
        self.list.iter().map(|(id, _)| *id)
    }

    pub fn data_type(&self, at: usize) -> &DataType {
        &self.list[at].1
    }

    /// Returns a hash that is equal for columns whose entries have the same encoding.
    pub fn fingerprint(&self) -> u64 {
        let mut e = Encoder::new();
        e.list(&self.list, |e, (id, data_type)| {
            e.varint(id.0.into());
            e.str(&data_type.to_string());
        });
        xxhash_rust::xxh3::xxh3_64(&e.bytes)
    }

    /// Returns the size in bytes of every entry, or `None` if entries vary in size.
    pub fn width(&self) -> Option<usize> {
        let all: Option<usize> = self.list.iter().map(|(_, data_type)| Some(1 + width(data_type)?)).sum();
        all.filter(|width| *width <= KEY_BYTES_MAX)
    }

    /// Returns the number of bytes that the first `columns` columns take in an entry, or `None` if the entry was cut
    /// before their end.
    pub fn prefix_len(&self, entry: &[u8], columns: usize) -> Option<usize> {
        let mut at = 0;
        for (_, data_type) in self.list.get(..columns)? {
            let is_value = *entry.get(at)? == VALUE;
            at += 1;
            at += match width(data_type) {
                Some(width) => width,
                None if is_value => text_len(entry.get(at..)?)?,
                None => 0,
            };
        }
        (at <= entry.len()).then_some(at)
    }

    /// Appends the entry of a row to `out`. `columns` holds the values in the order of the index.
    pub fn append(&self, columns: &[&dyn Array], row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for ((_, data_type), column) in self.list.iter().zip(columns) {
            if column.is_null(row) {
                self.append_null(data_type, out);
            } else {
                out.push(VALUE);
                key::append(data_type, *column, row, out);
            }
        }
        out.truncate(start + KEY_BYTES_MAX);
    }

    fn append_null(&self, data_type: &DataType, out: &mut Vec<u8>) {
        out.push(NULL);
        // A null is padded to the size of a value, so that all entries keep one length.
        out.resize(out.len() + width(data_type).unwrap_or(0), 0);
    }

    /// Returns the range of entries whose first columns have the values `equal` (null is a value here) and whose next
    /// column meets `next`. Fails if a value does not fit the type of its column, or if there are more values than
    /// columns.
    pub fn range(&self, equal: &[Value], next: ColumnCondition<'_>) -> Result<EntryRange> {
        let mut prefix = Vec::new();
        let mut types = self.list.iter().map(|(_, data_type)| data_type);
        let no_such = || Error::internal("more columns were requested than the index has");
        for value in equal {
            let data_type = types.next().ok_or_else(no_such)?;
            if *value == Value::Null {
                self.append_null(data_type, &mut prefix);
            } else {
                prefix.push(VALUE);
                key::append_value(data_type, value, &mut prefix)?;
            }
        }
        let with = |value: &Value| {
            let data_type = self.list.get(equal.len()).map(|(_, data_type)| data_type).ok_or_else(no_such)?;
            let mut bytes = prefix.clone();
            bytes.push(VALUE);
            key::append_value(data_type, value, &mut bytes)?;
            Ok::<_, Error>(bytes)
        };
        let tagged = |tag: u8| {
            let mut bytes = prefix.clone();
            bytes.push(tag);
            bytes
        };
        let (low, high) = match next {
            ColumnCondition::Any => (prefix.clone(), prefix_successor(&truncated(prefix))),
            ColumnCondition::StartsWith(text) => {
                let mut bytes = tagged(VALUE);
                key::append_prefix(text, &mut bytes);
                (bytes.clone(), prefix_successor(&truncated(bytes)))
            }
            ColumnCondition::Between(low, high) => {
                let low = match low {
                    Bound::Unbounded => tagged(VALUE),
                    Bound::Included(value) => with(value)?,
                    // A cut entry may be this value or a greater one, so it stays in the range.
                    Bound::Excluded(value) => match with(value)? {
                        long if long.len() > KEY_BYTES_MAX => long,
                        bytes => prefix_successor(&bytes).unwrap_or(bytes),
                    },
                };
                let high = match high {
                    Bound::Unbounded => Some(tagged(NULL)),
                    Bound::Included(value) => prefix_successor(&truncated(with(value)?)),
                    Bound::Excluded(value) => match with(value)? {
                        long if long.len() > KEY_BYTES_MAX => prefix_successor(&truncated(long)),
                        bytes => Some(bytes),
                    },
                };
                (low, high)
            }
        };
        Ok(EntryRange { low: truncated(low), high })
    }
}

/// Returns the length of an encoded string including its terminator, at the start of `bytes`. A zero byte within the
/// string is followed by 0xff, the terminator by another zero.
fn text_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 2;
        if *bytes.get(at - 1)? == 0 {
            return Some(at);
        }
    }
}

pub(super) fn truncated(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(KEY_BYTES_MAX);
    bytes
}

/// Returns the smallest byte string greater than all that begin with `prefix`, or `None` if there is none.
pub(super) fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bytes = prefix[..=at].to_vec();
    bytes[at] += 1;
    Some(bytes)
}

impl EntryRange {
    /// Returns the range of all entries.
    pub fn all() -> EntryRange {
        EntryRange { low: Vec::new(), high: None }
    }

    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Returns true if the range holds only entries that meet the condition. This is so if none of its bounds was cut.
    pub fn is_exact(&self) -> bool {
        self.low.len().max(self.high.as_ref().map_or(0, Vec::len)) < KEY_BYTES_MAX
    }

    /// Returns the intersection of two ranges.
    pub fn intersect(self, other: EntryRange) -> EntryRange {
        let high = match (self.high, other.high) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        EntryRange { low: self.low.max(other.low), high }
    }

    /// Returns the union of the ranges as ranges that ascend and do not overlap.
    pub fn union(mut ranges: Vec<EntryRange>) -> Vec<EntryRange> {
        ranges.sort_by(|a, b| a.low.cmp(&b.low));
        let mut joined: Vec<EntryRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.high.as_ref().is_none_or(|high| *high > range.low) => {
                    last.high = match (last.high.take(), range.high) {
                        (Some(a), Some(b)) => Some(a.max(b)),
                        _ => None,
                    };
                }
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Returns the intersection of two lists of ranges. The ranges of each list must ascend and not overlap, and so do
    /// those of the result.
    pub fn intersection(one: &[EntryRange], other: &[EntryRange]) -> Vec<EntryRange> {
        let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
        let mut common = Vec::new();
        while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
            common.push((*a).clone().intersect((*b).clone()));
            let ends_first = match (&a.high, &b.high) {
                (Some(a), Some(b)) => a <= b,
                (a, _) => a.is_some(),
            };
            if ends_first {
                one.next()
            } else {
                other.next()
            };
        }
        common.retain(|range| !range.is_empty());
        common
    }

    pub(super) fn ends_before(&self, entry: &[u8]) -> bool {
        self.high.as_ref().is_some_and(|high| entry >= high.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::ArrayRef;

    fn columns(types: &[DataType]) -> IndexColumns {
        IndexColumns { list: types.iter().zip(16..).map(|(t, id)| (ColumnId(id), t.clone())).collect() }
    }

    fn entry(columns: &IndexColumns, values: &[Value]) -> Vec<u8> {
        let arrays: Vec<ArrayRef> = values
            .iter()
            .zip(&columns.list)
            .map(|(value, (_, t))| Value::to_array(std::slice::from_ref(value), t).unwrap())
            .collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
        let mut out = Vec::new();
        columns.append(&arrays, 0, &mut out);
        out
    }

    fn holds(range: &EntryRange, entry: &[u8]) -> bool {
        entry >= range.low.as_slice() && !range.ends_before(entry)
    }

    #[test]
    fn what_ranges_have_in_common_lies_in_both() {
        let range =
            |low: u8, high: Option<u8>| EntryRange { low: vec![low], high: high.map(|high| vec![high]) };
        let one = [range(1, Some(4)), range(6, Some(8)), range(9, None)];
        let other = [range(0, Some(2)), range(3, Some(7)), range(8, Some(10)), range(11, None)];
        let common = EntryRange::intersection(&one, &other);
        assert_eq!(common, EntryRange::intersection(&other, &one));
        for byte in 0..=u8::MAX {
            let in_any = |ranges: &[EntryRange]| ranges.iter().any(|range| holds(range, &[byte]));
            assert_eq!(in_any(&common), in_any(&one) && in_any(&other), "{byte}");
        }
        assert!(EntryRange::intersection(&one, &[]).is_empty());
    }

    #[test]
    fn a_range_holds_what_lies_between_its_bounds_and_no_null() {
        let of = columns(&[DataType::Int32]);
        let values = [i32::MIN, -7, -1, 0, 1, 7, i32::MAX];
        let null = entry(&of, &[Value::Null]);
        for low in values {
            for high in values {
                let bounds =
                    |v: &Value| [Bound::Unbounded, Bound::Included(v.clone()), Bound::Excluded(v.clone())];
                for from in bounds(&Value::Int32(low)) {
                    for to in bounds(&Value::Int32(high)) {
                        let range =
                            of.range(&[], ColumnCondition::Between(from.as_ref(), to.as_ref())).unwrap();
                        for value in values {
                            use std::ops::RangeBounds;
                            let int = |bound: &Bound<Value>, int: i32| bound.as_ref().map(|_| int);
                            let wanted = (int(&from, low), int(&to, high)).contains(&value);
                            let found = holds(&range, &entry(&of, &[Value::Int32(value)]));
                            assert_eq!(found, wanted, "{value} in {from:?} {to:?}");
                        }
                        assert!(!holds(&range, &null));
                    }
                }
            }
        }
        assert!(holds(&of.range(&[Value::Null], ColumnCondition::Any).unwrap(), &null));
        assert!(holds(&of.range(&[], ColumnCondition::Any).unwrap(), &null));
        assert!(!holds(&of.range(&[Value::Int32(i32::MAX)], ColumnCondition::Any).unwrap(), &null));
    }

    #[test]
    fn several_columns_are_found_by_the_first_ones() {
        let of = columns(&[DataType::String, DataType::Int64]);
        assert_eq!(of.width(), None);
        let row = |text: Option<&str>, n: Option<i64>| {
            let text = text.map_or(Value::Null, |text| Value::String(text.into()));
            entry(&of, &[text, n.map_or(Value::Null, Value::Int64)])
        };
        let a = Value::String("a".into());
        let range = of.range(std::slice::from_ref(&a), ColumnCondition::Any).unwrap();
        assert!(holds(&range, &row(Some("a"), Some(-5))) && holds(&range, &row(Some("a"), None)));
        for other in [row(Some("a\0"), Some(1)), row(Some("aa"), None), row(Some(""), None), row(None, None)]
        {
            assert!(!holds(&range, &other));
        }
        let zero = Value::Int64(0);
        let range =
            of.range(&[a], ColumnCondition::Between(Bound::Unbounded, Bound::Excluded(&zero))).unwrap();
        assert!(holds(&range, &row(Some("a"), Some(-1))));
        assert!(!holds(&range, &row(Some("a"), Some(0))) && !holds(&range, &row(Some("a"), None)));
        let range = of.range(&[], ColumnCondition::StartsWith("a")).unwrap();
        assert!(holds(&range, &row(Some("a"), None)) && holds(&range, &row(Some("a\0b"), None)));
        assert!(!holds(&range, &row(Some("b"), None)) && !holds(&range, &row(None, None)));
    }

    #[test]
    fn of_long_texts_more_may_be_found_but_never_less() {
        let of = columns(&[DataType::String]);
        let text = |end: &str| Value::String("x".repeat(KEY_BYTES_MAX + 5) + end);
        let (a, b, c) = (text("a"), text("b"), text("c"));
        let found = |next: ColumnCondition<'_>, value: &Value| {
            holds(&of.range(&[], next).unwrap(), &entry(&of, std::slice::from_ref(value)))
        };
        assert!(found(ColumnCondition::Between(Bound::Included(&b), Bound::Included(&b)), &b));
        assert!(found(ColumnCondition::Between(Bound::Excluded(&b), Bound::Unbounded), &c));
        assert!(found(ColumnCondition::Between(Bound::Unbounded, Bound::Excluded(&b)), &a));
        assert!(holds(
            &of.range(std::slice::from_ref(&b), ColumnCondition::Any).unwrap(),
            &entry(&of, std::slice::from_ref(&b))
        ));
        let short = Value::String("x".into());
        assert!(!found(ColumnCondition::Between(Bound::Excluded(&a), Bound::Unbounded), &short));
        assert!(!found(ColumnCondition::Between(Bound::Unbounded, Bound::Included(&short)), &a));
    }

    #[test]
    fn entries_of_fixed_types_have_one_length() {
        let of = columns(&[DataType::Int32, DataType::Uuid, DataType::Float64]);
        let width = of.width().unwrap();
        assert_eq!(width, 5 + 17 + 9);
        assert_eq!(entry(&of, &[Value::Null, Value::Null, Value::Null]).len(), width);
        assert_eq!(entry(&of, &[Value::Int32(1), Value::Uuid([9; 16]), Value::Float64(0.5)]).len(), width);
    }

    #[test]
    fn ranges_are_cut_and_joined() {
        let range = |low: &[u8], high: Option<&[u8]>| EntryRange {
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
        };
        assert_eq!(range(b"a", None).intersect(range(b"b", Some(b"d"))), range(b"b", Some(b"d")));
        assert_eq!(range(b"c", Some(b"e")).intersect(range(b"b", Some(b"d"))), range(b"c", Some(b"d")));
        let apart = |ranges: &[EntryRange]| EntryRange::union(ranges.to_vec());
        let (ab, bc, bd) = (range(b"a", Some(b"b")), range(b"b", Some(b"c")), range(b"b", Some(b"d")));
        assert_eq!(apart(&[bc.clone(), ab.clone()]), [ab.clone(), bc.clone()]);
        assert_eq!(apart(&[bd.clone(), ab.clone(), bc.clone(), bc]), [ab.clone(), bd]);
        assert_eq!(apart(&[range(b"", None), ab]), [range(b"", None)]);
    }

    #[test]
    fn the_first_after_a_prefix_is_the_smallest_that_does_not_begin_so() {
        assert_eq!(prefix_successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_successor(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(prefix_successor(&[255]), None);
        assert_eq!(prefix_successor(&[]), None);
    }
}
