//! Lands tables in Apache Iceberg: writes Parquet files, commits snapshots, and keeps the warehouse tidy.
//!
//! [`Materializer`] is the part that the engine registers. It writes `lake/<namespace>/<table>/{metadata,data}` below the
//! data directory. Any program that reads Iceberg format 2 can open a table there by its newest metadata file, which
//! `version-hint.text` names: DuckDB's `iceberg_scan`, PyIceberg's `StaticTable`, Spark's Hadoop tables. [`reader`] does the
//! same without using anything else of Polynya, which is how a lake is verified.
//!
//! Everything here is synchronous and goes through [`vfs::Env`], or to an object store ([`Store`]), so that simulations can
//! crash it at every call of either. The formats of Iceberg are in the crate `iceberg`; `docs/decisions` says why they are
//! written by our own code, and what was measured.
//!
//! ## Invariants
//! - K1: an Iceberg snapshot contains exactly the rows with ids up to its `polynya.row` that were live at its `polynya.lsn`.
//!   Both numbers are in the snapshot's summary and in the table's properties; if those disagree, the table is not changed any
//!   more. A commit that the log does not know is found from there; the log's checkpoint alone never decides. A lake that is
//!   ahead of its table, or has other rows under the same ids, belongs to another history and is refused.
//! - A row's position in a data file is its rank among the ids there, unless a map of ids says otherwise ([`RowIds`]): files may
//!   be sorted by columns, or written by another program, whose files are adopted if they have the same rows ([`Replacement`]).
//! - G1: a file is removed only if no retained snapshot names it: after the commit that dropped it, or when the lake is opened.
//! - Files are read back as they were written: manifests contain checksums of the files that they name, manifest lists those of
//!   manifests, and snapshots those of manifest lists (`iceberg::checksums`). The first reader of a changed file gets an error.
//! - O1: Avro schemas are constants, and schemas of a table are made once per definition.
//! - R2: snapshots, metadata files, manifests, data files and position delete files are merged or dropped, so that their
//!   number grows at most with the logarithm of the rows.
//!
//! ## Not here
//! The names of tables and their metadata files in the catalog that the server offers (`server`); the schedule of steps
//! (`engine`); SQL over the lake (`query` reads the table's own segments).
//!
//! [`catalog`] is separate from all that: the rules and files of tables that other engines write.
//!
//! Start at `materializer.rs`, then `commit.rs`, whose module comment explains what makes a commit atomic, then `state.rs`.

#![forbid(unsafe_code)]

pub mod abandoned_lakes;
mod arranged_rows;
mod cache;
pub mod catalog;
mod commit;
mod create;
mod data_file;
mod delete_file;
pub mod digest;
mod dir_leases;
mod erasure;
mod evicted_rows;
mod expiry;
mod file_bytes;
mod file_pins;
mod files;
pub mod foreign;
mod lake_files;
mod lineage;
mod live_rows;
mod materializer;
mod merge;
pub mod objects;
mod options;
mod order;
mod page_checksums;
mod parquet_writer;
mod read_cache;
pub mod reader;
mod replacement;
pub mod rest;
mod row_ids;
mod row_positions;
mod size_tiers;
mod splice_writer;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod upkeep;

pub use erasure::{ErasureCallback, ErasureReport};
pub use iceberg::schema::ROW_ID_NAME;
pub use lineage::{Lineage, check_file as check_runs};
pub use materializer::{Materializer, MissingChanges, NAME, table_dir};
pub use options::Options;
pub use read_cache::{ReadCounts, ReadStatistics};
pub use replacement::{OutcomeCallback, PendingReplacement, Replacement, ReplacementOutcome};
pub use row_ids::RowIds;
pub use state::{Lake, LiveFile, newest_version};
pub use store::{Store, database_id};
pub use upkeep::{Extent, MaintenanceReport};
