//! Tables of this database in an external Iceberg REST catalog, which keeps their metadata and carries out the commits.
//!
//! Data files, position delete files and manifests are written to the warehouse as usual. Without a catalog, a commit is a new
//! metadata file. With one, a commit is a request to the catalog: it describes the new metadata as changes of the previous
//! ones, and requires that nobody else changed the table (`changes`).
//!
//! ## Unknown outcomes
//! A request whose response was lost may have been carried out, or may still be: it can lie in a queue after its sender has
//! given up. A commit without a response therefore counts neither as done nor as undone (K1). It stays *pending*, with its
//! files and the exact request. The next step begins with a question to the catalog (`table`): if the commit's snapshot is the
//! table's current one, the commit is done. If the table is unchanged, the same request is sent again; of the two, one succeeds
//! and the other one fails. Nothing else is committed before that.
//!
//! A process that was killed does not know its pending commit. Files that no snapshot names may then belong to a request that
//! is still under way. They are therefore not removed when the table is loaded, but after the first commit that moves the table
//! on: from then on no earlier request can succeed, since each requires the snapshot that was current (G1).
//!
//! ## Commits of other programs
//! A commit that certainly did not happen may have been refused because of another program's change. A commit to a branch
//! changes nothing that our commits require, but it takes the next sequence number. The table is therefore compared before the
//! next try, and before an erasure, which removes all snapshots. [`Lake::retained`](crate::state::Lake) and
//! [`Lake::side_snapshots`](crate::state::Lake) tell our snapshots from those of other programs.
//!
//! ## Ownership of a table
//! A table in the catalog is ours if its properties contain the ids of our table and our database. Its directory's name has a
//! random part, so that no other table, not even an earlier one of the same name, ever used that directory.
//!
//! ## Credentials
//! If the warehouse is in an object store and no key is configured, the catalog hands out credentials with each table
//! (`vended`), and the table gets a store of its own with them. Credentials are available only while the table is in the
//! catalog. A dropped table therefore loses its files first and its name last.
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
pub(crate) use table::{
    CatalogEntry, commit, drop_table, is_unchanged, load, load_or_create, resolve_pending,
};

impl Catalog {
    /// Opens a table in its current state in the catalog. Its warehouse is `objects`.
    pub fn open(&self, objects: Objects, full_name: &str) -> Result<Reader> {
        let store = Store::new(Env::real(), Some(objects.clone()));
        table::read(self, &crate::Options::remote(objects), &store, full_name)
    }
}
