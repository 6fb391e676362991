//! The format of Apache Iceberg: metadata files, manifests and their Avro encoding, schemas, partition specs, transforms
//! and single values.
//!
//! | module | purpose |
//! |---|---|
//! | [`metadata`] | a table's metadata file (schemas, specs, snapshots): parsing, changing, writing |
//! | [`manifest`], [`avro`] | manifests and manifest lists, and the Avro container files that hold them |
//! | [`schema`], [`layout`] | Iceberg schemas and field ids of Polynya's tables; their partitions and sort order |
//! | [`spec`], [`transform`] | partition specs and the transforms of their fields |
//! | [`single_value`] | single values: the encoding of bounds and partition values |
//! | [`partition_text`] | partition values as text |
//! | [`checksums`] | checksums of files, stored in the files that name them |
//!
//! This crate does no I/O and knows no stores and no commits: they are in `lake`.

#![forbid(unsafe_code)]

pub mod avro;
pub mod checksums;
pub mod layout;
pub mod manifest;
pub mod metadata;
pub mod partition_text;
pub mod schema;
pub mod single_value;
pub mod spec;
pub mod transform;
