//! Creates the lake of a table that has none yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use iceberg::metadata::{self, Metadata};
use iceberg::schema::Columns;
use iceberg::spec::specs_of;
use types::{Lsn, Result, RowId};
use vfs::Env;

use crate::options::Options;
use crate::state::{Garbage, Lake, Shared};
use crate::store::Store;

/// Creates the lake of a table: metadata without a snapshot, positioned before the first row.
pub(crate) fn create(
    store: &Store,
    options: &Options,
    dir: PathBuf,
    location: String,
    columns: &Arc<Columns>,
    lsn: Lsn,
    shared: &Shared,
) -> Result<Lake> {
    let base = options.warehouse.parent().unwrap_or(Path::new(""));
    for sub in ["data", "metadata"] {
        store.make_dir(base, &dir.join(sub))?;
    }
    let mut metadata = first_metadata(store, options, location, columns, lsn)?;
    if let Some(owner) = store.owner() {
        metadata.set_database(owner);
    }
    let specs = Arc::new(specs_of(&metadata)?);
    let lake = Lake {
        store: store.clone(),
        dir,
        version: 1,
        metadata,
        row: RowId(0),
        lsn,
        data: Vec::new(),
        deletes: Vec::new(),
        manifests: Vec::new(),
        emptied_manifests: Vec::new(),
        retained: Vec::new(),
        side_snapshots: Vec::new(),
        specs,
        columns: Some(columns.clone()),
        garbage: Garbage::default(),
        missing_since: AtomicU64::new(0),
        outcome_unknown: AtomicBool::new(false),
        failing: AtomicBool::new(false),
        cache: shared.cache.clone(),
        replacements: shared.replacements.clone(),
        catalog_entry: None,
    };
    store.publish(&lake.metadata_path(), lake.metadata.to_file()?, || Ok(()))?;
    lake.write_hint()?;
    Ok(lake)
}

/// Builds the metadata of a table without a snapshot, positioned before the first row.
pub(crate) fn first_metadata(
    store: &Store,
    options: &Options,
    location: String,
    columns: &Columns,
    lsn: Lsn,
) -> Result<Metadata> {
    let now_ms = store.env.clock.now() / 1000;
    let mut metadata =
        Metadata::new(uuid(&store.env), location, &columns.iceberg, columns.last_id, &columns.layout, now_ms);
    metadata.properties.insert(metadata::TABLE_ID.into(), columns.def.id.to_string());
    // Deletes are position delete files, and files that other programs rewrite must keep supporting them.
    for (key, value) in [
        ("write.format.default", "parquet"),
        ("write.delete.mode", "merge-on-read"),
        ("write.update.mode", "merge-on-read"),
        ("write.metadata.delete-after-commit.enabled", "true"),
    ] {
        metadata.properties.insert(key.into(), value.into());
    }
    let file_bytes = options.file_bytes.to_string();
    metadata.properties.insert("write.target-file-size-bytes".into(), file_bytes);
    metadata.set_position(RowId(0), lsn);
    metadata.set_run(options.run_id()?);
    Ok(metadata)
}

/// Returns a random UUID (version 4).
pub(crate) fn uuid(env: &Env) -> String {
    let mut bytes = [0; 16];
    env.random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
