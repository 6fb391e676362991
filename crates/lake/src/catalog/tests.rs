//! Metadata of others: the rules, and files.

mod files;
mod rules;
mod views;
