//! What is kept of the past, and what goes.

use std::collections::HashSet;

use serde_json::json;
use types::Result;

use crate::options::Options;
use crate::state::Lake;

/// Lets go of old snapshots, metadata files and schemas in a lake that is about to be committed; what only they needed
/// becomes its garbage, to be removed once the commit is durable and published.
pub(crate) fn expire(lake: &mut Lake, options: &Options, now_ms: i64) -> Result<()> {
    let snapshots = &lake.metadata.snapshots;
    let count = snapshots.len();
    let oldest_ms = now_ms - i64::try_from(options.snapshot_age_min.as_millis()).unwrap_or(i64::MAX);
    let mut expired = 0;
    while expired + options.snapshots_min.max(1) < count
        && (snapshots[expired].timestamp_ms < oldest_ms || count - expired > options.snapshots_max.max(1))
    {
        expired += 1;
    }
    if expired > 0 {
        let ids: HashSet<i64> = snapshots[..expired].iter().map(|s| s.snapshot_id).collect();
        forget(lake, &ids)?;
    }
    let metadata = &mut lake.metadata;
    let log = &mut metadata.metadata_log;
    if log.len() > options.metadata_files_max {
        let gone: Vec<_> = log.drain(..log.len() - options.metadata_files_max).collect();
        for old in gone {
            let path = lake.local(&old.metadata_file)?;
            lake.garbage.push(path);
        }
    }
    let metadata = &mut lake.metadata;
    let current = metadata.current_schema_id;
    let used: HashSet<i32> = metadata.snapshots.iter().filter_map(|s| s.schema_id).chain([current]).collect();
    metadata.schemas.retain(|schema| used.iter().any(|id| schema["schema-id"] == json!(id)));
    Ok(())
}

fn forget(lake: &mut Lake, ids: &HashSet<i64>) -> Result<()> {
    lake.metadata.snapshots.retain(|s| !ids.contains(&s.snapshot_id));
    lake.metadata.snapshot_log.retain(|s| !ids.contains(&s.snapshot_id));
    let (gone, mut kept): (Vec<_>, Vec<_>) = lake.kept.drain(..).partition(|kept| ids.contains(&kept.id));
    let still: HashSet<&String> = kept.iter().flat_map(|kept| &kept.manifests).collect();
    let mut garbage: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    for old in &gone {
        garbage.push(old.list.clone());
        garbage.extend(old.manifests.iter().filter(|m| !still.contains(m) && seen.insert(*m)).cloned());
        garbage.extend(old.removed.iter().cloned());
    }
    // What the oldest of the kept ones no longer had, only the forgotten ones did.
    if let Some(oldest) = kept.first_mut() {
        garbage.append(&mut oldest.removed);
    }
    lake.kept = kept;
    for path in garbage {
        let path = lake.local(&path)?;
        lake.garbage.push(path);
    }
    Ok(())
}
