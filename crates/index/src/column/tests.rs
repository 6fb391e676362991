//! Column indexes as a whole: the contract of all materializers, lookups against a scan, damage, definitions.

mod expunged;
mod lookups;
mod support;
mod unique;
