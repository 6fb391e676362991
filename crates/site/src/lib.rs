//! A folder of Markdown notes as a website: every page rendered ahead, complete and compressed, so that serving one is a
//! lookup.
//!
//! It is not a server, holds no thread, reads no clock and no folder: a [`Vault`] is a value, and [`Vault::apply`] a function
//! from a vault and changes to the next vault. `feeds` brings files into a table ([`definition`] says of what form),
//! [`Materializer`] follows the table, `server` sends the pages.
//!
//! ## From a file to a page
//! 1. A row of the table becomes a [`Change`] (`materializer.rs`).
//! 2. [`Note::parse`] reads a note: front matter, and Markdown into finished HTML with holes where the vault has a say
//!    (`body.rs`, `markdown.rs`, `raw.rs`). This happens once for each content.
//! 3. `linked.rs` follows the links of published notes (`names.rs`: what a target may be called).
//! 4. `render.rs` fills the holes, `theme.rs` puts the shell around it, `page.rs` compresses it and makes the ETags.
//! 5. [`Vault::find`] gives the page for the path of a request.
//!
//! `vault/apply.rs` decides which of these a change needs.
//!
//! ## Invariants
//! - A1: a note is private unless its front matter says `publish: true`, or a pattern of [`Options::publish`] fits and
//!   it does not say otherwise; a note that cannot be read is private. No page, list, feed or address contains anything
//!   of a private note; a link to one shows neither its name nor that of its folder, also where it could not be read. A file that is not a note is
//!   public if a published note links to it or shows it.
//! - S1: a vault never changes.
//! - O1: nothing is computed twice for one change, and a page depends on files and options alone: a vault that came
//!   about by changes equals, byte for byte, one built from nothing.
//! - No input makes this crate panic, recurse without bound or grow without bound (R2): notes, front matter, embeds and
//!   paths have limits.
//! - No script runs on a page: text is escaped everywhere, addresses have one of a few schemes, and a page's
//!   [`Page::security_policy`] allows none.
//!
//! Start with [`Vault`].

#![deny(unsafe_code)]

mod body;
mod definition;
mod linked;
mod markdown;
mod materializer;
mod names;
mod note;
mod options;
mod page;
mod parsed;
mod path;
mod raw;
mod render;
mod text;
mod theme;
mod ticks;
mod vault;

#[cfg(test)]
mod tests;

pub use definition::{Row, TABLE, batch, definition, is_as_defined, withheld};
pub use linked::Card;
pub use materializer::{Materializer, NAME, Site};
pub use note::{NOTE_BYTES_MAX, Note};
pub use options::{Options, Rule, Words};
pub use page::{Encoded, Page};
pub use parsed::Parsed;
pub use path::{DEPTH_MAX, is_file, is_note, is_valid, is_withholdable};
pub use vault::{Change, File, Found, Hit, Known, Vault, Warning};
