//! Tables of this database in an Iceberg REST catalog elsewhere, which keeps their metadata and makes the commits.
//!
//! Data files, files of positions and manifests are written as ever, to the warehouse. What then makes a commit is a request
//! to the catalog instead of a metadata file of ours that gets its name: the metadata to come are told as changes of those
//! before, on the condition that nobody else changed the table (`changes`).
//!
//! ## Outcomes that are unknown
//! A request whose answer was lost may have been carried out, or may be yet: it can lie in a queue while its sender has given
//! up. So a commit without an answer is neither taken for done nor for undone (K1). It stays *pending*, with its files and the
//! very request, and the next step begins by asking the catalog (`table`): if its snapshot is the table's, it is done; if the
//! table still is as it was, the same request is sent again, so that of the two one happens and the other one fails; nothing
//! else is committed before that.
//!
//! A process that was killed knows of no pending commit. Files that no snapshot names may then be those of a request that is
//! still under way, so they are not removed when the table is loaded, but after the first commit that moves the table on: from
//! then on no earlier request can be carried out any more, since each is made for the snapshot that was current (G1).
//!
//! ## What others do there
//! A commit that certainly did not happen may have been refused for what another program did: one to a branch moves nothing that
//! a commit requires, and takes its sequence number. So the table is looked at before the next try, and before an
//! erasure, which lets go of all snapshots. Which snapshots are whose: [`Lake::kept`](crate::state::Lake),
//! [`Lake::beside`](crate::state::Lake).
//!
//! ## Whose table
//! A table there is ours if it says the id of our table and of our database. Its directory has a part in its name that was
//! drawn at random, so that no other table, not even one of the same name, ever had it.
//!
//! ## Whose key
//! Where the warehouse is in an object store without a key of ours, the catalog hands out credentials with each table
//! (`vended`), and the table has a store of its own for them. They are to be had as long as the table is in the catalog: so a
//! dropped one loses its files first there, and its name last.
//!
//! Start at `table.rs`; `client.rs` has the requests, `http.rs` the network.

mod canonical;
mod changes;
mod client;
pub(crate) mod http;
mod record;
mod table;
mod token;
mod vended;

use types::Result;
use vfs::Env;

use crate::objects::Objects;
use crate::reader::Reader;
use crate::store::Store;

pub use client::{Catalog, Options};
pub(crate) use table::{Listed, begin, commit, dropped, is_as_known, load, settle};

impl Catalog {
    /// Opens a table as it is there now, in a warehouse that is `objects`.
    pub fn open(&self, objects: Objects, full_name: &str) -> Result<Reader> {
        let store = Store::new(Env::real(), Some(objects.clone()));
        table::read(self, &crate::Options::remote(objects), &store, full_name)
    }
}
