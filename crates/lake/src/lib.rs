//! Lands tables in Apache Iceberg: Parquet files and commits in a local warehouse, kept tidy from the start.
//!
//! [`Materializer`] is what the engine registers; it writes `lake/<namespace>/<table>/{metadata,data}` below the data
//! directory. Any program that reads Iceberg v2 opens a table there by its newest metadata file (`version-hint.text` names
//! it): DuckDB's `iceberg_scan`, PyIceberg's `StaticTable`, Spark's Hadoop tables. [`reader`] does so without knowing
//! anything else of Polynya, which is how a lake is verified.
//!
//! Everything here is synchronous and goes through [`vfs::Env`], or to an object store ([`Store`]): simulators crash it at
//! every call of either. Avro, manifests
//! and metadata are written by this crate itself; `docs/decisions` says why and what was measured.
//!
//! ## Invariants
//! - K1: an Iceberg snapshot holds exactly the rows with ids up to its `polynya.row` that were live at its `polynya.lsn`.
//!   Both stand in the snapshot's summary and in the table's properties; if those disagree the table is not touched any
//!   more. What was committed and not logged is found again from there, never from the log's checkpoint alone. A lake that
//!   is ahead of its table, or has other rows under the same ids, is another history's and is refused.
//! - A row's position in a data file is its rank among the ids there, or what a map of them says ([`RowIds`]): files may be
//!   sorted otherwise, or written by another program, whose files are taken if they hold the same rows ([`Replace`]).
//! - G1: a file is removed when no kept snapshot names it: after the commit that forgot it, or when the lake is opened.
//! - What was written is read: manifests hold checksums of the files that they name, lists those of manifests, and snapshots those
//!   of lists (`iceberg::checksums`). A file that has other bytes is an error for whoever reads them first.
//! - O1: schemas of Avro are constants, those of a table are made once per definition.
//! - R2: snapshots, metadata files, manifests, data files and files of positions are merged or dropped so that their
//!   number grows with the logarithm of the rows at most.
//!
//! ## Not here
//! Which name has which metadata file in a catalog (`server`); partitions; when to call (`engine`); SQL over the lake (`query` reads the table's own
//! segments).
//!
//! [`catalog`] is apart from all that: rules and files of tables that other engines write.
//!
//! Start at `materializer.rs`, then `commit.rs`, whose head says what makes a commit atomic, and `state.rs`.

#![forbid(unsafe_code)]

pub mod abandoned;
mod arrange;
mod cache;
pub mod catalog;
mod commit;
mod create;
mod data_file;
mod delete_file;
pub mod digest;
mod erase;
mod expiry;
mod files;
pub mod foreign;
mod kept;
mod landed;
mod lineage;
mod load;
mod locate;
mod materializer;
mod merge;
pub mod objects;
mod options;
mod order;
mod outside;
mod owners;
mod page_checksums;
mod parquet_writer;
mod pins;
mod ranges;
pub mod reader;
pub mod rest;
mod row_ids;
mod source;
mod splice;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod tiers;
mod upkeep;

pub use erase::{Erased, Told};
pub use kept::{Counts, Reads};
pub use lineage::{Lineage, check_file as check_runs};
pub use materializer::{Lacks, Materializer, NAME, table_dir};
pub use options::Options;
pub use outside::{Heard, Offered, Outcome, Replace};
pub use row_ids::RowIds;
pub use iceberg::schema::ROW_ID_NAME;
pub use state::{Lake, Live, newest_version};
pub use store::{Store, database_id};
pub use upkeep::{Extent, Maintained};
