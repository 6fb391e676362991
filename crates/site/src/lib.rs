//! Publishes a folder of Markdown notes as a website. Every page is rendered in advance, complete and compressed, so
//! that serving a page is a lookup.
//!
//! The crate is not a server: it has no thread, and it reads neither a clock nor a folder. A [`Vault`] is a value, and
//! [`Vault::apply`] is a function from a vault and changes to the next vault. `feeds` brings files into a table (its
//! columns are in [`definition`]), [`Materializer`] follows the table, and `server` sends the pages.
//!
//! ## From a file to a page
//! 1. A row of the table becomes a [`Change`] (`materializer.rs`).
//! 2. [`Note::parse`] reads a note: front matter, and Markdown into finished HTML with holes for everything that
//!    depends on other files of the vault (`body.rs`, `markdown.rs`, `sanitize.rs`). This happens once for each content.
//! 3. `linked.rs` resolves the links of published notes; `names.rs` knows the names by which a link can find a file.
//! 4. `render.rs` fills the holes, `theme.rs` puts the shell around the text, and `page.rs` compresses the page and
//!    computes its ETags.
//! 5. [`Vault::find`] returns the page for the path of a request.
//!
//! `vault/apply.rs` decides which of these steps a change needs.
//!
//! ## Invariants
//! - A1: a note is private unless its front matter says `publish: true`, or its path matches a pattern of
//!   [`Options::publish`] and its front matter does not object. A note that cannot be read is private. No page, list,
//!   feed or address contains any content of a private note. A link to a private note shows neither its name nor that
//!   of its folder, even if the note could not be read. A file other than a note is public if a published note links to
//!   it or shows it.
//! - S1: a vault never changes.
//! - O1: nothing is computed twice for one change, and a page depends only on files and options. A vault that is the
//!   result of changes equals, byte for byte, one built from nothing.
//! - R2: no input makes this crate panic, recurse without bound or grow without bound. Notes, front matter, embeds and
//!   paths have limits.
//! - No script runs on a page. Text is always escaped, addresses have one of a few schemes, and the
//!   [`Page::security_policy`] of a page allows no scripts.
//!
//! Start with [`Vault`].

#![deny(unsafe_code)]

mod backticks;
mod body;
mod definition;
mod linked;
mod markdown;
mod materializer;
mod names;
mod note;
mod options;
mod page;
mod parsed_notes;
mod path;
mod render;
mod sanitize;
mod text;
mod theme;
mod vault;

#[cfg(test)]
mod tests;

pub use definition::{Row, TABLE, batch, definition, has_vault_columns, withheld_row};
pub use linked::Card;
pub use materializer::{Materializer, NAME, Site};
pub use note::{NOTE_BYTES_MAX, Note};
pub use options::{Options, PublishRule, ThemeWords};
pub use page::{Encoded, Page};
pub use parsed_notes::ParsedNotes;
pub use path::{DEPTH_MAX, is_file, is_note, is_valid, is_withholdable};
pub use vault::{Change, File, Hit, KnownFile, PageLookup, Vault, Warning};
