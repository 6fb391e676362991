//! Expiry of snapshots, metadata files and schemas.
//!
//! The ancestors of the current snapshot form a line: a file goes with the last of them that names it
//! ([`RetainedSnapshot`](crate::state::RetainedSnapshot)). A catalog may have side snapshots besides: branches, and commits of another program that
//! somebody rolled back. All names in these are known ([`SideSnapshot`](crate::state::SideSnapshot)). A file stays while a side
//! snapshot names it, and expiring a side snapshot removes no file that the line names.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use types::{Error, Result, name};

use crate::options::Options;
use crate::state::Lake;

/// Drops expired snapshots, metadata files and schemas of a lake that is about to be committed. Files that only they needed
/// become its garbage, which is removed once the commit is durable and published.
pub(crate) fn expire(lake: &mut Lake, options: &Options, now_ms: i64) -> Result<()> {
    let expired = expired(lake, options, now_ms, 0);
    if !expired.is_empty() {
        forget(lake, expired)?;
    }
    for path in forget_metadata(lake, options)? {
        lake.garbage.push(path);
    }
    forget_schemas(lake);
    Ok(())
}

/// Drops the oldest metadata files beyond the limit from the log, and returns their paths.
pub(crate) fn forget_metadata(lake: &mut Lake, options: &Options) -> Result<Vec<PathBuf>> {
    let log = &mut lake.metadata.metadata_log;
    let gone: Vec<_> = log.drain(..log.len().saturating_sub(options.metadata_files_max)).collect();
    gone.iter().map(|old| lake.local(&old.metadata_file)).collect()
}

/// Returns true if a snapshot has expired since the last commit.
pub(crate) fn is_due(lake: &Lake, options: &Options, now_ms: i64) -> bool {
    !expired(lake, options, now_ms, 0).is_empty()
}

/// Returns true if the next commit will drop a snapshot.
pub(crate) fn drops_with_next_commit(lake: &Lake, options: &Options, now_ms: i64) -> bool {
    !expired(lake, options, now_ms, 1).is_empty()
}

/// Returns the oldest snapshots that exceed the limits once `coming` more are added. The current snapshot, which after a
/// rollback need not be the newest, and those of branches never expire.
fn expired(lake: &Lake, options: &Options, now_ms: i64, coming: usize) -> HashSet<i64> {
    let metadata = &lake.metadata;
    let held = metadata.branch_snapshots();
    let count = metadata.snapshots.len() + coming;
    let oldest_ms = now_ms - i64::try_from(options.snapshot_age_min.as_millis()).unwrap_or(i64::MAX);
    let mut expired = HashSet::new();
    for snapshot in metadata.snapshots.iter().take(count.saturating_sub(options.snapshots_min.max(1))) {
        let id = snapshot.snapshot_id;
        if Some(id) == metadata.current_snapshot_id || held.contains(&id) {
            continue;
        }
        let is_too_much = count - expired.len() > options.snapshots_max.max(1);
        if snapshot.timestamp_ms >= oldest_ms && !is_too_much {
            break;
        }
        expired.insert(id);
    }
    expired
}

/// Refuses an erasure while the catalog has branches: it drops all snapshots except the newest, and only their owner may
/// drop branches.
pub(crate) fn check_branches(lake: &Lake) -> Result<()> {
    let branches = lake.metadata.branches();
    let Some((name, snapshot)) = branches.first_key_value() else { return Ok(()) };
    let table =
        lake.catalog_entry.as_ref().map_or_else(|| lake.dir.display().to_string(), |l| l.name.clone());
    let more = match branches.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more,"),
    };
    Err(Error::conflict(format!(
        "{table} has a branch `{}`{more} in the catalog: what is to be erased may be in its snapshot {snapshot}",
        name::printable(name)
    ))
    .hint("drop the branch there, and retry: only its creator can tell whether it is needed"))
}

/// Drops all snapshots and metadata files except those that are about to be committed.
pub(crate) fn expire_all_but_current(lake: &mut Lake) -> Result<()> {
    check_branches(lake)?;
    let current = lake.metadata.current_snapshot_id;
    let ids = lake.metadata.snapshots.iter().map(|s| s.snapshot_id).filter(|id| Some(*id) != current);
    let ids: HashSet<i64> = ids.collect();
    forget(lake, ids)?;
    for old in std::mem::take(&mut lake.metadata.metadata_log) {
        lake.garbage.push(lake.local(&old.metadata_file)?);
    }
    forget_schemas(lake);
    Ok(())
}

fn forget_schemas(lake: &mut Lake) {
    // Catalogs differ in their support for removing schemas. A lake in a catalog keeps all, which are as many as were ever
    // defined.
    if lake.catalog_entry.is_some() {
        return;
    }
    let metadata = &mut lake.metadata;
    let current = metadata.current_schema_id;
    let used: HashSet<i32> = metadata.snapshots.iter().filter_map(|s| s.schema_id).chain([current]).collect();
    metadata.schemas.retain(|schema| used.iter().any(|id| schema["schema-id"] == json!(id)));
}

/// Drops snapshots. Of the ancestors only the oldest consecutive ones go. Files that a retained snapshot names do not
/// become garbage.
fn forget(lake: &mut Lake, mut ids: HashSet<i64>) -> Result<()> {
    // The order is that of ancestry; ids and sequence numbers do not matter.
    let oldest = lake.retained.iter().take_while(|retained| ids.contains(&retained.id)).count();
    let mut retained = lake.retained.split_off(oldest);
    let stay: HashSet<i64> = retained.iter().map(|retained| retained.id).collect();
    ids.retain(|id| !stay.contains(id));
    let gone = std::mem::take(&mut lake.retained);
    let mut garbage: BTreeSet<Arc<str>> = BTreeSet::new();
    for old in &gone {
        garbage.insert(old.list.clone());
        garbage.extend(old.expiring_manifests.iter().chain(&old.removed).cloned());
    }
    // The oldest retained snapshot already lacked these files, so only dropped ones named them.
    if let Some(oldest) = retained.first_mut().filter(|oldest| !gone.is_empty() && !oldest.removed.is_empty())
    {
        garbage.extend(std::mem::take(&mut Arc::make_mut(oldest).removed));
    }
    lake.retained = retained;
    let (gone, side_snapshots): (Vec<_>, Vec<_>) =
        lake.side_snapshots.drain(..).partition(|side| ids.contains(&side.id));
    lake.side_snapshots = side_snapshots;
    garbage.retain(|path| lake.side_snapshots.iter().all(|side| !side.names.contains(path)));
    if !gone.is_empty() {
        let (metadata_files, data_files) = lake.retained_names();
        let named: HashSet<&str> = metadata_files.chain(data_files).collect();
        let names = gone.iter().flat_map(|side| &side.names);
        garbage.extend(names.filter(|path| !named.contains(&***path)).cloned());
    }
    let metadata = &mut lake.metadata;
    metadata.snapshots.retain(|s| !ids.contains(&s.snapshot_id));
    metadata.snapshot_log.retain(|s| !ids.contains(&s.snapshot_id));
    // Tags go with their snapshots.
    metadata.refs.retain(|_, of| of["snapshot-id"].as_i64().is_none_or(|id| !ids.contains(&id)));
    for path in garbage {
        lake.garbage.push(lake.local(&path)?);
    }
    Ok(())
}
