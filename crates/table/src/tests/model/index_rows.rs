//! The stand-in for an index in the test of a keyed table.

use super::*;
use crate::unique::{Lookup, Verdict};

/// An index that has taken in the rows up to some row, dead ones included.
pub(super) struct IndexRows {
    reached: RowId,
    by_value: HashMap<i32, Vec<RowId>>,
}

impl IndexRows {
    pub fn up_to(last: u64, versions: &[Version], column: ColumnId) -> IndexRows {
        let mut by_value: HashMap<i32, Vec<RowId>> = HashMap::new();
        for (version, row) in versions.iter().zip(1..=last) {
            if let Value::Int32(value) = version.values[&column] {
                by_value.entry(value).or_default().push(RowId(row));
            }
        }
        IndexRows { reached: RowId(last), by_value }
    }
}

impl Lookup for IndexRows {
    fn reached(&self, _: &[(ColumnId, DataType)]) -> Option<RowId> {
        Some(self.reached)
    }

    fn candidates(&self, _: &[(ColumnId, DataType)], values: &[Value]) -> types::Result<Vec<RowId>> {
        let Value::Int32(value) = values[0] else { panic!("{values:?}") };
        Ok(self.by_value.get(&value).cloned().unwrap_or_default())
    }

    fn verdict(&self, _: &[(ColumnId, DataType)]) -> Verdict {
        Verdict::Unknown
    }
}
