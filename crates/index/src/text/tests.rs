//! Tests of keyword search as a whole: the contract of all materializers, index and tail against a fresh index, the
//! query language.

mod damage;
mod definition;
mod equal;
mod expunged;
mod language;
mod oracle;
mod snippets;
mod stuck;
mod support;
