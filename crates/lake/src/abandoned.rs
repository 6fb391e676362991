//! A table's lake on this machine that is not written any more, since the warehouse or the catalog is elsewhere by now.

use std::path::{Path, PathBuf};

use types::{Result, TableDef};
use vfs::Env;

use crate::load::{is_lake_of, remove_dir};
use crate::materializer::table_dir;
use crate::store::Store;

/// Where below `warehouse`, a directory of this machine, there is a lake of this very table; whatever else has its name there is
/// none of its business. Only to be asked where no lakes are written there.
pub fn find(env: &Env, warehouse: &Path, def: &TableDef) -> Result<Option<PathBuf>> {
    let dir = table_dir(warehouse, &def.name);
    Ok(is_lake_of(&Store::local(env), &dir, def.id)?.then_some(dir))
}

/// Removes it, and tells whether there was one.
pub fn remove(env: &Env, warehouse: &Path, def: &TableDef) -> Result<bool> {
    let Some(dir) = find(env, warehouse, def)? else { return Ok(false) };
    remove_dir(&Store::local(env), &dir)?;
    Ok(true)
}
