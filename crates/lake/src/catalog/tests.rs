//! Tests of the metadata of other engines' tables and views: the rules, and their files.

mod files;
mod rules;
mod views;
