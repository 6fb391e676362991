//! Abandoned lakes: local copies of tables that land elsewhere since the warehouse or the catalog moved away from this
//! machine.

use std::path::{Path, PathBuf};

use types::{Result, TableId};
use vfs::Env;

use crate::lake_files::{is_lake_of, remove_dir};
use crate::store::Store;

/// Returns the directories below `warehouse`, a local directory, that hold a lake of this table, under whatever name it had
/// when that lake was written. The directory `written`, where the table lands now, is left out: a catalog elsewhere may
/// have tables that lie here. Call this only if the warehouse or the catalog is elsewhere.
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
                // An unreadable lake of another table must not block this one.
                Err(error) => {
                    tracing::warn!("the owner of the lake in {} cannot be determined: {error}", dir.display())
                }
            }
        }
    }
    Ok(found)
}

/// Removes the lakes that [`find`] returns. Returns true if there were any.
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
