//! Loads, creates, commits and drops one table's lake in a catalog.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iceberg::metadata::{self, Metadata};
use iceberg::schema::Columns;
use iceberg::spec::specs_of;
use serde_json::json;
use table::materializer::MaterializerDir;
use types::{Error, Kind, Lsn, Result, TableDef};
use vfs::{Mutex, Rank};

use super::canonical;
use super::changes::{self, Changes};
use super::client::{Catalog, Delegation, LoadedTable, one_line};
use super::record::CatalogRecord;
use super::vended::TableVendor;
use crate::catalog::{TableMetadata, requirement};
use crate::create;
use crate::lake_files;
use crate::options::Options;
use crate::reader::Reader;
use crate::state::{Lake, Shared, local};
use crate::store::Store;

/// A table's entry in a catalog, as of one state of its lake.
pub(crate) struct CatalogEntry {
    catalog: Catalog,
    /// The table's full name.
    pub name: String,
    /// The location of the metadata file, according to the catalog.
    pub metadata_location: String,
    /// Files of ours that no snapshot names and that a request of an earlier process may still commit. They are not removed
    /// before the table has moved on.
    pub unconfirmed: Vec<PathBuf>,
    /// A commit after this state whose outcome is unknown.
    pending: Mutex<Option<PendingCommit>>,
    /// True if the catalog says that the table no longer exists.
    is_gone: AtomicBool,
    /// True if a commit after this state was refused, perhaps because another program changed the table.
    needs_check: AtomicBool,
}

struct PendingCommit {
    lake: Box<Lake>,
    changes: Changes,
}

impl fmt::Debug for CatalogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.metadata_location, self.catalog)
    }
}

impl CatalogEntry {
    fn new(
        catalog: &Catalog,
        name: &str,
        metadata_location: String,
        unconfirmed: Vec<PathBuf>,
    ) -> CatalogEntry {
        CatalogEntry {
            catalog: catalog.clone(),
            name: name.to_owned(),
            metadata_location,
            unconfirmed,
            pending: Mutex::new(Rank::new(63, "lake pending commit"), None),
            is_gone: AtomicBool::new(false),
            needs_check: AtomicBool::new(false),
        }
    }

    /// Returns the entry for the state after a commit.
    pub fn next(&self) -> CatalogEntry {
        CatalogEntry::new(&self.catalog, &self.name, self.metadata_location.clone(), self.unconfirmed.clone())
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub fn needs_check(&self) -> bool {
        self.needs_check.load(Ordering::Acquire)
    }
}

/// Loads a table's lake from the catalog; `None` if the catalog has none. A table of the same name that was dropped here is
/// dropped there first.
pub(crate) fn load(
    catalog: &Catalog,
    options: &Options,
    store: &Store,
    place: &MaterializerDir,
    def: &TableDef,
    shared: &Shared,
) -> Result<Option<Lake>> {
    let Some(loaded) = catalog.table(&def.name, delegation_of(store))? else { return Ok(None) };
    let in_catalog = |e: Error| e.with("catalog", catalog.uri()).with("table", &def.name);
    let metadata = canonical::metadata(&loaded).map_err(in_catalog)?;
    let is_own = metadata.database() == Some(catalog.owner());
    match metadata.table_id().filter(|_| is_own) {
        Some(id) if id == def.id => {}
        // Ids are never reused, so that this table was dropped here before the present one was created.
        Some(id) if id < def.id => {
            let dir = dir_of(options, &metadata.location)?;
            let store = store_of(catalog, store, &def.name, &dir, &metadata, &loaded)?;
            remove(catalog, &def.name, &store, &dir)?;
            return Ok(None);
        }
        other => {
            let found = match (other, metadata.table_id()) {
                (Some(id), _) => format!("table {id} of this database, which it has not made yet"),
                (None, Some(_)) => "a table of another Polynya database".to_owned(),
                (None, None) => "a table of another program".to_owned(),
            };
            return Err(Error::new(
                Kind::Exists,
                format!("{} in the catalog at {} is {found}", def.name, catalog.uri()),
            )
            .hint("drop or rename it there, and the table lands; or give this table another name"));
        }
    }
    let lake = lake_of(catalog, options, store, def, shared, loaded, metadata).map_err(in_catalog)?;
    let record = CatalogRecord::new(&def.name, &lake.metadata.location, Some(&lake.metadata.table_uuid));
    if CatalogRecord::read(place)?.as_ref() != Some(&record) {
        record.write(place)?;
    }
    Ok(Some(lake))
}

fn lake_of(
    catalog: &Catalog,
    options: &Options,
    store: &Store,
    def: &TableDef,
    shared: &Shared,
    loaded: LoadedTable,
    metadata: Metadata,
) -> Result<Lake> {
    refuse_foreign(catalog, def, &metadata)?;
    let position = metadata.position().map_err(|error| {
        error.hint("another program changed the table in the catalog; drop it there and it lands anew")
    })?;
    let dir = dir_of(options, &metadata.location)?;
    let store = &store_of(catalog, store, &def.name, &dir, &metadata, &loaded)?;
    store.ensure_usable()?;
    let catalog_entry = CatalogEntry::new(catalog, &def.name, loaded.metadata_location, Vec::new());
    let mut lake = Lake::assemble(store, &dir, 0, metadata, position, shared, Some(catalog_entry))?;
    let unnamed = lake.unnamed_files()?;
    if let Some(catalog_entry) = &mut lake.catalog_entry {
        catalog_entry.unconfirmed =
            unnamed.into_iter().filter(|file| file.is_ours).map(|file| file.path).collect();
    }
    Ok(lake)
}

/// Refuses a table to which another program committed: only Polynya may write it, and its rows may not be those of our table
/// any more.
fn refuse_foreign(catalog: &Catalog, def: &TableDef, metadata: &Metadata) -> Result<()> {
    let Some(current) = metadata.current() else { return Ok(()) };
    if current.summary.contains_key(metadata::ROW) {
        return Ok(());
    }
    let said = |key: &str| current.summary.get(key).map(|value| one_line(value));
    let operation = said("operation").unwrap_or_else(|| "change".into());
    let who = ["engine-name", "spark.app.id", "trino_query_id"].iter().find_map(|key| said(key));
    let version = said("engine-version").map(|version| format!(" {version}")).unwrap_or_default();
    let who = who.map_or("a program that does not say its name".to_owned(), |who| format!("{who}{version}"));
    let mut line = metadata.ancestors(current.snapshot_id);
    let ours = line.find(|snapshot| snapshot.summary.contains_key(metadata::ROW));
    let cure = match ours {
        Some(ours) => {
            format!("roll it back there to snapshot {}, or drop it and it lands anew", ours.snapshot_id)
        }
        None => "drop it there and it lands anew".to_owned(),
    };
    Err(Error::conflict(format!(
        "{} in the catalog at {} was changed by another program: its snapshot {} is a `{operation}` by {who}, and only Polynya \
         writes this table",
        def.name,
        catalog.uri(),
        current.snapshot_id
    ))
    .hint(cure))
}

/// Loads a table's lake from the catalog, or creates it there without rows.
pub(crate) fn load_or_create(
    catalog: &Catalog,
    options: &Options,
    store: &Store,
    place: &MaterializerDir,
    def: &Arc<TableDef>,
    lsn: Lsn,
    shared: &Shared,
) -> Result<Lake> {
    let columns = Arc::new(Columns::of(def)?);
    let found = load(catalog, options, store, place, def, shared)?;
    let lake = match found {
        Some(lake) => lake,
        None => {
            create(catalog, options, store, place, &columns, lsn)?;
            load(catalog, options, store, place, def, shared)?.ok_or_else(|| {
                Error::conflict(format!("{} was dropped in the catalog as soon as it was made", def.name))
            })?
        }
    };
    match lake.snapshot_id() {
        None => with_our_definition(catalog, lake, &columns),
        Some(_) => Ok(lake),
    }
}

fn create(
    catalog: &Catalog,
    options: &Options,
    store: &Store,
    place: &MaterializerDir,
    columns: &Arc<Columns>,
    lsn: Lsn,
) -> Result<()> {
    let def = &columns.def;
    let (namespace, name) = def.name.split_once('.').unwrap_or((types::name::DEFAULT_NAMESPACE, &def.name));
    // A recorded location at which no table was created yet is used again.
    let unused = CatalogRecord::read(place)?
        .filter(|record| record.uuid.is_none() && record.table == def.name)
        .filter(|record| dir_of(options, &record.location).is_ok());
    let location = unused.map(|record| record.location).unwrap_or_else(|| {
        format!("{}/{namespace}/{name}-{:016x}", options.location, store.env.random.next_u64())
    });
    CatalogRecord::new(&def.name, &location, None).write(place)?;
    let dir = dir_of(options, &location)?;
    let base = options.warehouse.parent().unwrap_or(Path::new(""));
    for sub in ["data", "metadata"] {
        store.make_dir(base, &dir.join(sub))?;
    }
    let mut wanted = create::first_metadata(store, options, location, columns, lsn)?;
    wanted.set_database(catalog.owner());
    let keep = options.metadata_files_max.max(1).to_string();
    wanted.properties.insert("write.metadata.previous-versions-max".into(), keep);
    catalog.make_namespace(namespace)?;
    // Partitions and sort order follow in a commit: at creation a catalog may assign other field ids.
    let body = json!({
        "location": wanted.location,
        "schema": wanted.schema(),
        "stage-create": false,
        "properties": wanted.properties,
    });
    let made = match catalog.create(&def.name, delegation_of(store), body) {
        Ok(loaded) => canonical::metadata(&loaded)?,
        // Another client created the table first; the caller loads it next.
        Err(failed) if failed.status == 409 => return Ok(()),
        Err(failed) => return Err(failed.into()),
    };
    // These checks come while the table is empty and can simply be dropped.
    let fits = dir_of(options, &made.location).and_then(|_| {
        let lost = wanted
            .properties
            .iter()
            .find(|(key, value)| key.starts_with("polynya.") && made.properties.get(*key) != Some(value));
        match lost {
            None => Ok(()),
            Some((key, _)) => Err(Error::invalid(format!(
                "the catalog at {} does not keep the property `{key}` of {}, which a lake needs",
                catalog.uri(),
                def.name
            ))),
        }
    });
    if let Err(error) = fits {
        catalog.drop_table(&def.name)?;
        return Err(error);
    }
    Ok(())
}

/// Ensures that a table without rows has exactly our fields with our ids, before the first row. When a table is created,
/// catalogs assign field ids of their own; they keep those of a later schema, since data would be lost otherwise.
fn with_our_definition(catalog: &Catalog, mut lake: Lake, columns: &Columns) -> Result<Lake> {
    if lake.matches_definition(columns) {
        return Ok(lake);
    }
    let mut next = lake.metadata.clone();
    next.set_schema(&columns.iceberg, columns.last_id);
    next.set_layout(&columns.layout);
    let loaded = catalog.commit(&columns.def.name, &changes::between(&lake.metadata, &next)?)?;
    let metadata = canonical::metadata(&loaded)?;
    check_definition(catalog, &columns.def.name, &metadata, &next)?;
    lake.specs = Arc::new(specs_of(&metadata)?);
    lake.metadata = metadata;
    if let Some(catalog_entry) = &mut lake.catalog_entry {
        catalog_entry.metadata_location = loaded.metadata_location;
    }
    Ok(lake)
}

/// Checks that a catalog kept a definition unchanged.
fn check_definition(catalog: &Catalog, name: &str, found: &Metadata, wanted: &Metadata) -> Result<()> {
    let by_id =
        |all: &[serde_json::Value], key: &str, id: i32| all.iter().find(|one| one[key] == json!(id)).cloned();
    let spec = |of: &Metadata| by_id(&of.partition_specs, "spec-id", of.default_spec_id);
    let order = |of: &Metadata| by_id(&of.sort_orders, "order-id", of.default_sort_order_id);
    let schema = wanted.schema().is_some_and(|schema| found.has_schema(schema));
    let what = match () {
        () if !schema || found.current_schema_id != wanted.current_schema_id => "schema",
        () if spec(found) != spec(wanted) => "partition spec",
        () if order(found) != order(wanted) => "sort order",
        () => return Ok(()),
    };
    Err(Error::invalid(format!(
        "the catalog at {} changes the {what} of {name}: it assigns other ids",
        catalog.uri()
    ))
    .hint("data files name fields by these ids, so no table can be in such a catalog"))
}

/// Commits: asks the catalog to change the table from `base` to `lake`, whose files are all written. Calls `at_risk`
/// immediately before the request.
pub(crate) fn commit(base: &Lake, lake: Lake, at_risk: impl FnOnce() -> Result<()>) -> Result<Lake> {
    let changes = changes::between(&base.metadata, &lake.metadata)?;
    at_risk()?;
    base.outcome_unknown.store(true, Ordering::Release);
    send(base, PendingCommit { lake: Box::new(lake), changes }, false)
}

fn entry_of(lake: &Lake) -> Result<&CatalogEntry> {
    lake.catalog_entry.as_ref().ok_or_else(|| Error::internal("a lake without a catalog is committed to one"))
}

fn send(base: &Lake, pending: PendingCommit, is_again: bool) -> Result<Lake> {
    let catalog_entry = entry_of(base)?;
    let failed = match catalog_entry.catalog.commit(&catalog_entry.name, &pending.changes) {
        Ok(loaded) => return complete(base, *pending.lake, loaded),
        Err(failed) => failed,
    };
    let is_new = pending.lake.snapshot_id() != base.snapshot_id();
    if failed.is_missing {
        // The table will be created again, and no snapshot will name the files written for this one.
        catalog_entry.is_gone.store(true, Ordering::Release);
    }
    if failed.may_concern_table() {
        catalog_entry.needs_check.store(true, Ordering::Release);
    }
    if !failed.is_certain {
        // The next step first finds out whether this commit happened. A commit without a new snapshot has no files to lose, and
        // is forgotten.
        *catalog_entry.pending.lock() = Some(pending).filter(|_| is_new);
    } else if !is_again {
        base.outcome_unknown.store(false, Ordering::Release);
    }
    Err(failed.into())
}

/// Finds out the outcome of the pending commit after `base`, and completes it. Returns `None` if no commit is pending or it can
/// no longer happen; the caller then loads the table again.
pub(crate) fn resolve_pending(base: &Lake) -> Result<Option<Lake>> {
    let Some(catalog_entry) = &base.catalog_entry else { return Ok(None) };
    let Some(pending) = catalog_entry.pending.lock().take() else { return Ok(None) };
    let loaded = match catalog_entry.catalog.table(&catalog_entry.name, Delegation::None) {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return Ok(None),
        Err(failed) => {
            *catalog_entry.pending.lock() = Some(pending);
            return Err(failed.into());
        }
    };
    let found = canonical::metadata(&loaded)?;
    if found.table_uuid != base.metadata.table_uuid {
        return Ok(None);
    }
    if found.current_snapshot_id == pending.lake.snapshot_id() {
        return complete(base, *pending.lake, loaded).map(Some);
    }
    // A commit to a branch took the sequence number of the pending snapshot. The pending commit would always be refused, so it
    // is made again.
    if found.last_sequence_number >= pending.lake.metadata.last_sequence_number {
        return Ok(None);
    }
    // The commit has not happened, but still may. If it is sent again, one of the two requests succeeds and the other one finds
    // the table changed.
    match requirement::check(&pending.changes.requirements, &TableMetadata::parse(&loaded.metadata)?) {
        Ok(()) => send(base, pending, true).map(Some),
        Err(_) => Ok(None),
    }
}

/// Returns true if the catalog has the table in its last known state. To be called if there is a reason for doubt, because
/// changes of branches and tags by other programs do not violate the requirements of our commits.
pub(crate) fn is_unchanged(lake: &Lake) -> Result<bool> {
    let Some(catalog_entry) = &lake.catalog_entry else { return Ok(true) };
    let Some(found) = catalog_entry.catalog.table(&catalog_entry.name, Delegation::None)? else {
        return Ok(false);
    };
    let is_same = found.metadata_location == catalog_entry.metadata_location
        || canonical::metadata(&found)?.to_bytes()? == lake.metadata.to_bytes()?;
    if is_same {
        catalog_entry.needs_check.store(false, Ordering::Release);
    }
    Ok(is_same)
}

/// Completes a commit that the catalog carried out: checks the response and returns the lake in its new state.
fn complete(base: &Lake, mut lake: Lake, loaded: LoadedTable) -> Result<Lake> {
    let catalog_entry = entry_of(base)?;
    let found = canonical::metadata(&loaded)?;
    let wanted = &lake.metadata;
    check_definition(&catalog_entry.catalog, &catalog_entry.name, &found, wanted)?;
    let ids = |of: &Metadata| of.snapshots.iter().map(|s| s.snapshot_id).collect::<Vec<_>>();
    let is_same = found.table_uuid == wanted.table_uuid
        && found.location == wanted.location
        && found.current_snapshot_id == wanted.current_snapshot_id
        && ids(&found) == ids(wanted)
        && found.branches() == wanted.branches()
        && found.position().ok() == Some((lake.row, lake.lsn));
    if !is_same {
        // The caller loads the table again, which checks it thoroughly.
        return Err(Error::conflict(format!(
            "{} in the catalog at {} is not what was just committed; it is looked at anew",
            catalog_entry.name,
            catalog_entry.catalog.uri()
        )));
    }
    let has_moved = lake.snapshot_id() != base.snapshot_id();
    lake.metadata = found;
    let Some(next) = &mut lake.catalog_entry else {
        return Err(Error::internal("the lake lost its catalog"));
    };
    next.metadata_location = loaded.metadata_location;
    if has_moved {
        // Requests made for the previous snapshot can no longer succeed.
        for path in std::mem::take(&mut next.unconfirmed) {
            lake.garbage.push(path);
        }
    }
    Ok(lake)
}

/// Returns the kind of response to ask for: with credentials if this server has no key for the store.
fn delegation_of(store: &Store) -> Delegation {
    if store.lacks_key() { Delegation::Credentials } else { Delegation::None }
}

/// Returns the store of a table's files, with the credentials that came with the table if this server has no key.
fn store_of(
    catalog: &Catalog,
    store: &Store,
    table: &str,
    dir: &Path,
    metadata: &Metadata,
    loaded: &LoadedTable,
) -> Result<Store> {
    if !store.lacks_key() {
        return Ok(store.clone());
    }
    let location = metadata.location.trim_end_matches('/').to_owned();
    let of_catalog = catalog.properties()?;
    let access = loaded.access.for_location(&of_catalog, &location);
    let credential = access.credential(catalog.uri(), &location)?;
    let vendor = TableVendor { catalog: catalog.clone(), table: table.to_owned(), location };
    store.for_table(dir, &access.endpoint(), credential, Box::new(vendor))
}

/// Drops a table in the catalog and removes its files. With vended credentials the files go first: once the table is dropped no
/// credentials are available, and nobody could complete an interrupted removal.
fn remove(catalog: &Catalog, table: &str, store: &Store, dir: &Path) -> Result<()> {
    if store.is_for_table() {
        lake_files::remove_all(store, dir)?;
        return catalog.drop_table(table).map_err(Error::from);
    }
    catalog.drop_table(table)?;
    lake_files::remove_all(store, dir)
}

/// Drops a table in the catalog, with its files, after it was dropped here.
pub(crate) fn drop_table(
    catalog: &Catalog,
    options: &Options,
    store: &Store,
    place: &MaterializerDir,
) -> Result<()> {
    let Some(mut record) = CatalogRecord::read(place)? else { return CatalogRecord::remove(place) };
    let id = crate::materializer::table_of(place);
    let mut is_removed = false;
    if let Some(loaded) = catalog.table(&record.table, delegation_of(store))? {
        let metadata = canonical::metadata(&loaded)?;
        let is_own = metadata.database() == Some(catalog.owner());
        if is_own && metadata.table_id() == id && id.is_some() {
            is_removed = store.lacks_key();
            if is_removed {
                let dir = dir_of(options, &metadata.location)?;
                let store = store_of(catalog, store, &record.table, &dir, &metadata, &loaded)?;
                remove(catalog, &record.table, &store, &dir)?;
            } else {
                record.is_dropping = true;
                record.write(place)?;
                if let Err(failed) = catalog.drop_table(&record.table) {
                    if failed.is_certain {
                        // The drop did not happen. If the table disappears later, another client dropped it.
                        record.is_dropping = false;
                        record.write(place)?;
                    }
                    return Err(failed.into());
                }
            }
        }
    }
    if !store.lacks_key() && (record.is_dropping || record.uuid.is_none()) {
        lake_files::remove_all(store, &dir_of(options, &record.location)?)?;
    } else if record.uuid.is_some() && !is_removed {
        tracing::warn!(
            "{} is not in the catalog at {} any more, where it may have another name: what is left at {} stays",
            record.table,
            catalog.uri(),
            record.location
        );
    }
    CatalogRecord::remove(place)
}

/// Opens a table with the metadata that the catalog has now; only the catalog knows which ones are current.
pub(super) fn read(catalog: &Catalog, options: &Options, store: &Store, table: &str) -> Result<Reader> {
    let loaded = catalog.table(table, delegation_of(store))?;
    let loaded = loaded.ok_or_else(|| {
        Error::not_found(format!("there is no {table} in the catalog at {}", catalog.uri()))
    })?;
    let metadata = canonical::metadata(&loaded)?;
    let dir = dir_of(options, &metadata.location)?;
    Reader::of(&store_of(catalog, store, table, &dir, &metadata, &loaded)?, &dir, metadata)
}

/// Returns the directory of a location. It must be in the warehouse, since this process writes nowhere else.
fn dir_of(options: &Options, location: &str) -> Result<PathBuf> {
    let (place, warehouse) = (without_scheme(location), without_scheme(&options.location));
    local(&options.warehouse, warehouse, place).map_err(|_| {
        Error::invalid(format!(
            "the catalog puts the table at {}, which is not below {}, where this server writes",
            types::name::printable(location),
            options.location
        ))
        .hint("have the catalog take locations there, or set lake.warehouse to the place that it gives")
    })
}

/// Removes `file:` or `file://` and a slash at the end from a location.
fn without_scheme(location: &str) -> &str {
    let rest = location.strip_prefix("file:");
    let rest = rest.map(|rest| rest.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(rest));
    rest.unwrap_or(location).trim_end_matches('/')
}
