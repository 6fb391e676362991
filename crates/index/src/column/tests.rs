//! Tests of column indexes as a whole: the contract of all materializers, lookups against a scan, damaged files,
//! definitions.

mod expunged;
mod lookups;
mod support;
mod unique;
