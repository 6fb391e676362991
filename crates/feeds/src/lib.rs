//! What brings data in from outside, on its own threads: [`folder`], which keeps a vault table equal to folders of notes,
//! and [`syslog`], which listens for messages.
//!
//! A feed reads something that it does not own and writes rows through [`engine::Engine::commit`], like any other
//! writer. It is not: a parser of notes (`site`), a server, a place where anything is kept: where it stands follows from
//! the table, so that it can be stopped anywhere.
//!
//! ## Invariants
//! - O1: nothing is written for no change, neither at a look nor after a restart.
//! - What is away is not gone: a folder that cannot be listed, or a mount that left an empty directory, deletes nothing.
//! - A1: whether a note is published is written with the note, in the same row; where a rule came to publish less, the
//!   rows say so before [`folder::Feed::start`] returns. A private note is in the table before anything public that
//!   links to it, so that no page takes it for one that does not exist and shows its name.
//! - R2: files, their sizes, what waits to be written and what is reported have bounds.
//!
//! Start at [`folder::Feed`] and [`syslog::Listener`].

#![deny(unsafe_code)]

pub mod folder;
pub mod syslog;
