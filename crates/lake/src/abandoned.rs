//! Lakes of tables on this machine that are not written any more, since the warehouse or the catalog is elsewhere by now.

use std::path::{Path, PathBuf};

use types::{Result, TableId};
use vfs::Env;

use crate::load::{is_lake_of, remove_dir};
use crate::store::Store;

/// The directories below `warehouse`, a directory of this machine, that hold a lake of this very table, whatever it was
/// called when that was written; but for the one that is `written` now, as where a catalog elsewhere has tables that lie here.
/// Only to be asked where the warehouse or the catalog is elsewhere.
pub fn find(env: &Env, warehouse: &Path, table: TableId, written: Option<&Path>) -> Result<Vec<PathBuf>> {
    let store = Store::local(env);
    let mut found = Vec::new();
    for namespace in dirs(&store, warehouse)? {
        for dir in dirs(&store, &namespace)? {
            if written == Some(&*dir) {
                continue;
            }
            match is_lake_of(&store, &dir, table) {
                Ok(true) => found.push(dir),
                Ok(false) => {}
                // What another table left must not be in this one's way.
                Err(error) => tracing::warn!("whose {} is cannot be read: {error}", dir.display()),
            }
        }
    }
    Ok(found)
}

/// Removes them, and tells whether there were any.
pub fn remove(env: &Env, warehouse: &Path, table: TableId, written: Option<&Path>) -> Result<bool> {
    let found = find(env, warehouse, table, written)?;
    for dir in &found {
        remove_dir(&Store::local(env), dir)?;
    }
    Ok(!found.is_empty())
}

fn dirs(store: &Store, dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = store.list(dir)?.into_iter();
    Ok(entries.filter(|entry| entry.is_dir).map(|entry| dir.join(entry.name)).collect())
}
