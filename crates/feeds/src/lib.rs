//! Brings data in from outside, on threads of its own: [`folder`] keeps a vault table equal to folders of notes, and
//! [`syslog`] listens for messages.
//!
//! A feed reads from a source that it does not own and writes rows through [`engine::Engine::commit`], like any other
//! writer. It does not parse notes (`site` does), serve requests or store anything: its progress follows from the
//! table, so it can be stopped at any point.
//!
//! ## Invariants
//! - O1: without a change nothing is written, neither by a scan nor after a restart.
//! - Unavailable does not mean removed: a folder that cannot be listed, or an empty directory left by a mount, deletes nothing.
//! - A1: a note and its `published` flag are written in the same row. If a changed rule publishes fewer notes, the
//!   rows are corrected before [`folder::Feed::start`] returns. A private note is in the table before any public note that
//!   links to it, so that no page takes it for a missing one and shows its name.
//! - R2: files, their sizes, pending changes and reports are bounded.
//!
//! Start at [`folder::Feed`] and [`syslog::Listener`].

#![deny(unsafe_code)]

pub mod folder;
pub mod syslog;
