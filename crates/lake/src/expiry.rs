//! What is kept of the past, and what goes.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;
use types::Result;

use crate::options::Options;
use crate::state::Lake;

/// Lets go of old snapshots, metadata files and schemas in a lake that is about to be committed; what only they needed
/// becomes its garbage, to be removed once the commit is durable and published.
pub(crate) fn expire(lake: &mut Lake, options: &Options, now_ms: i64) -> Result<()> {
    let expired = expired(lake, options, now_ms);
    if expired > 0 {
        let ids: HashSet<i64> = lake.metadata.snapshots[..expired].iter().map(|s| s.snapshot_id).collect();
        forget(lake, &ids)?;
    }
    let log = &mut lake.metadata.metadata_log;
    if log.len() > options.metadata_files_max {
        let gone: Vec<_> = log.drain(..log.len() - options.metadata_files_max).collect();
        for old in gone {
            lake.garbage.push(lake.local(&old.metadata_file)?);
        }
    }
    forget_schemas(lake);
    Ok(())
}

/// Whether a snapshot has grown old since the last commit.
pub(crate) fn is_due(lake: &Lake, options: &Options, now_ms: i64) -> bool {
    expired(lake, options, now_ms) > 0
}

/// How many of the oldest snapshots are not kept any more.
fn expired(lake: &Lake, options: &Options, now_ms: i64) -> usize {
    let snapshots = &lake.metadata.snapshots;
    let count = snapshots.len();
    let oldest_ms = now_ms - i64::try_from(options.snapshot_age_min.as_millis()).unwrap_or(i64::MAX);
    let mut expired = 0;
    while expired + options.snapshots_min.max(1) < count
        && (snapshots[expired].timestamp_ms < oldest_ms || count - expired > options.snapshots_max.max(1))
    {
        expired += 1;
    }
    expired
}

/// Lets go of all but the snapshot and the metadata file that are about to be committed.
pub(crate) fn expire_all_but_current(lake: &mut Lake) -> Result<()> {
    let current = lake.metadata.current_snapshot_id;
    let ids = lake.metadata.snapshots.iter().map(|s| s.snapshot_id).filter(|id| Some(*id) != current);
    let ids: HashSet<i64> = ids.collect();
    forget(lake, &ids)?;
    for old in std::mem::take(&mut lake.metadata.metadata_log) {
        lake.garbage.push(lake.local(&old.metadata_file)?);
    }
    forget_schemas(lake);
    Ok(())
}

fn forget_schemas(lake: &mut Lake) {
    // Catalogs differ in whether they can be told so, and one that is told needs as many as were ever defined.
    if lake.listed.is_some() {
        return;
    }
    let metadata = &mut lake.metadata;
    let current = metadata.current_schema_id;
    let used: HashSet<i32> = metadata.snapshots.iter().filter_map(|s| s.schema_id).chain([current]).collect();
    metadata.schemas.retain(|schema| used.iter().any(|id| schema["schema-id"] == json!(id)));
}

/// Forgets snapshots that come before all others.
fn forget(lake: &mut Lake, ids: &HashSet<i64>) -> Result<()> {
    lake.metadata.snapshots.retain(|s| !ids.contains(&s.snapshot_id));
    lake.metadata.snapshot_log.retain(|s| !ids.contains(&s.snapshot_id));
    let (gone, mut kept): (Vec<_>, Vec<_>) = lake.kept.drain(..).partition(|kept| ids.contains(&kept.id));
    let mut garbage: Vec<Arc<str>> = Vec::new();
    for old in &gone {
        garbage.push(old.list.clone());
        garbage.extend(old.last_of.iter().chain(&old.removed).cloned());
    }
    // What the oldest of the kept ones no longer had, only the forgotten ones did.
    if let Some(oldest) = kept.first_mut().filter(|oldest| !gone.is_empty() && !oldest.removed.is_empty()) {
        garbage.append(&mut Arc::make_mut(oldest).removed);
    }
    lake.kept = kept;
    for path in garbage {
        lake.garbage.push(lake.local(&path)?);
    }
    Ok(())
}
