//! Ids, data types, schemas, values, principals and errors. No I/O, no threads, no clock.
//!
//! All stored values go through [`codec`], so a stored byte has exactly one writer and one reader; the layouts are
//! drawn in `docs/format.md`. All names chosen by users go through [`name`].
//!
//! Start at [`TableDef`], the definition of a table. [`DataType`] lists the column types and their Arrow types,
//! [`key`] encodes primary keys as bytes that sort like the values, and [`Error`] lists the kinds of failure.

#![forbid(unsafe_code)]

mod alter;
pub mod codec;
mod column_check;
mod data_type;
mod epoch;
mod error;
mod id;
pub mod indexes;
pub mod key;
pub mod layout;
pub mod memory;
pub mod name;
pub mod parquet_footer;
mod path;
mod principal;
pub mod schema;
mod value;
pub mod view_def;

pub use alter::AlterAction;
pub use column_check::check_new_column;
pub use data_type::{DataType, Field, NESTING_MAX};
pub use epoch::EpochUnit;
pub use error::{Error, Kind, RejectedRow, Result};
pub use id::{ColumnId, Lsn, Micros, RowId, SchemaVersion, SegmentId, TableId};
pub use indexes::NewIndex;
pub use layout::{PartitionBy, SortBy, Transform};
pub use path::Path;
pub use principal::{Principal, Scope, TableSet};
pub use schema::{
    Column, FIRST_USER_COLUMN, HotLimit, INDEX_COLUMN, INDEX_SITE, IndexDef, OPTION_REPEATS, ROW_ID,
    ROW_ID_NAME, Schema, TIME, TIME_NAME, TableDef, TableOptions, UniqueState,
};
pub use value::{DATES, TIMES, Value};
pub use view_def::{ViewColumn, ViewDef, ViewRead};
