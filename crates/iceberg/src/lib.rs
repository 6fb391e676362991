//! The format of Apache Iceberg: metadata, manifests and their Avro, schemas, partition specs, transforms and single values.
//!
//! | module | purpose |
//! |---|---|
//! | [`metadata`] | a table's metadata file: schemas, specs, snapshots; parsed, changed and written |
//! | [`manifest`], [`avro`] | manifests and manifest lists, and the container files of Avro that hold them |
//! | [`schema`], [`layout`] | Iceberg's schemas of Polynya's tables, and ids of fields |
//! | [`spec`], [`transform`] | partition specs and the transforms of their fields |
//! | [`single`] | single values, as bounds and partitions hold them |
//! | [`shown`] | partition values as text |
//! | [`checksums`] | checksums of files, in the files that name them |
//!
//! Not here: files and stores, tables of Polynya, commits: `lake`.

#![forbid(unsafe_code)]

pub mod avro;
pub mod checksums;
pub mod layout;
pub mod manifest;
pub mod metadata;
pub mod schema;
pub mod shown;
pub mod single;
pub mod spec;
pub mod transform;
