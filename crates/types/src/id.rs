//! Newtypes for the numbers that must not be mixed up.

use std::fmt;

/// Microseconds since 1970-01-01T00:00:00Z.
pub type Micros = i64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            /// The number after this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// Log sequence number of a commit: dense, from 1. 0 stands before the first commit.
    Lsn(u64)
}
id! {
    /// Names a row version within its table: ascending in commit order, never reused, from 1.
    /// Fits an Iceberg `long`: at most `i64::MAX`.
    RowId(u64)
}
id! {
    /// Names a table for ever; a dropped table's id is not used again.
    TableId(u32)
}
id! {
    /// Names a column (or a field nested in one) within its table for ever. Equal to the Iceberg field id.
    ColumnId(u32)
}
id! {
    /// Counts the schemas that a table has had, from 1.
    SchemaVersion(u32)
}
id! {
    /// Names a segment within its table; never reused.
    SegmentId(u64)
}
