//! The lake as a materializer: decides when a commit is due, and recovers the state after a restart.

mod maintenance;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iceberg::schema::Columns;
use table::materializer::{Budget, Checkpoint, MaterializerDir, Position, Progress, Published};
use table::{LakeSnapshot, Snapshot};
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Lsn, Result, RowId, TableDef, TableId, name};
use vfs::{Env, Mutex, Rank};

use crate::abandoned_lakes;
use crate::commit::{self, Purpose};
use crate::create;
use crate::dir_leases::DirLeases;
use crate::erasure::{ErasureReport, ErasureRequests, ErasureStart};
use crate::evicted_rows;
use crate::expiry;
use crate::files;
use crate::lake_files;
use crate::lineage;
use crate::options::Options;
use crate::read_cache::{ReadCache, ReadCounts, ReadStatistics};
use crate::replacement::ReplacementOutcome;
use crate::rest;
use crate::state::{Lake, OVERDUE, Shared};
use crate::store::Store;
use crate::upkeep::{Depth, MaintenanceTasks, Orphans};

/// Lands tables in the warehouse; see the crate.
pub struct Materializer {
    options: Options,
    shared: Shared,
    leases: DirLeases,
    erasures: ErasureRequests,
    upkeep: MaintenanceTasks,
    orphans: Orphans,
    /// Cache for readers of evicted rows.
    read_cache: Arc<ReadCache>,
    /// Tables whose lake has another definition than this version of the program derives: they need a step though no rows
    /// changed.
    outdated: Mutex<BTreeSet<TableId>>,
    /// Versions created by [`Lake::tidy`] for tables without a commit since.
    tidied: Mutex<BTreeMap<TableId, u64>>,
}

impl fmt::Debug for Materializer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Materializer").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Name of its checkpoints.
pub const NAME: &str = "lake";

/// Time between looks at a waiting table, since more rows may have arrived than its wait was chosen for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// File in a materializer's directory of a table with the table's name, which leads to the lake when the table is gone.
const TABLE_NAME_FILE: &str = "where";

/// Number of attempts to load a lake while another commit keeps appearing.
const LOAD_TRIES: usize = 3;

impl Materializer {
    pub fn new(options: Options) -> Self {
        Materializer {
            read_cache: Arc::new(ReadCache::new(options.read_bytes_max)),
            options,
            shared: Shared::default(),
            leases: DirLeases::default(),
            erasures: ErasureRequests::default(),
            upkeep: MaintenanceTasks::default(),
            orphans: Orphans::default(),
            outdated: Mutex::new(Rank::new(62, "lake definitions"), BTreeSet::new()),
            tidied: Mutex::new(Rank::new(77, "lake tidied versions"), BTreeMap::new()),
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Statistics of reading evicted rows.
    pub fn read_counts(&self) -> ReadCounts {
        self.read_cache.counts()
    }

    /// Returns a handle to the statistics of reading evicted rows.
    pub fn reads(&self) -> ReadStatistics {
        ReadStatistics(self.read_cache.clone())
    }

    /// Returns the directory of a table's lake.
    pub fn dir_of(&self, def: &TableDef) -> PathBuf {
        table_dir(&self.options.warehouse, &def.name)
    }

    fn store(&self, place: &MaterializerDir) -> Store {
        Store::new(place.env.clone(), self.options.objects.clone())
    }

    /// Returns the table's location in Iceberg metadata.
    fn location_of(&self, def: &TableDef) -> String {
        format!("{}/{}", self.options.location, def.name.replacen('.', "/", 1))
    }

    /// Loads a table's lake. `expects` checks it before any of its files is changed.
    fn load(
        &self,
        place: &MaterializerDir,
        table: &Snapshot,
        expects: &dyn Fn(&Lake) -> Result<()>,
    ) -> Result<Option<Lake>> {
        let (def, store) = (table.def(), self.store(place));
        store.ensure_usable()?;
        let needed = table.has_evicted();
        let Some(catalog) = &self.options.catalog else {
            let mut tries = 0;
            loop {
                let (dir, location) = (self.dir_of(def), self.location_of(def));
                let lake = Lake::load(&store, &dir, def, &location, &self.shared, needed)?;
                // A lake of another database must stay untouched.
                lineage::check(&self.options, table, lake.as_ref())?;
                let Some(mut lake) = lake else { return Ok(None) };
                expects(&lake)?;
                tries += 1;
                let mut newest = self.tidied.lock().remove(&def.id);
                let tidied = lake.tidy(&self.options, &mut newest);
                self.tidied.lock().extend(newest.map(|version| (def.id, version)));
                match tidied {
                    Ok(()) => return Ok(Some(lake)),
                    Err(error) if error.kind() == Kind::Exists && tries < LOAD_TRIES => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let lake = rest::load(catalog, &self.options, &store, place, def, &self.shared)?;
        lineage::check(&self.options, table, lake.as_ref())?;
        lake.as_ref().map_or(Ok(()), expects)?;
        Ok(lake)
    }

    /// Returns the existing lake, or a new one without rows.
    fn begin(&self, place: &MaterializerDir, table: &Snapshot) -> Result<Lake> {
        self.erasures.restart(table.def().id);
        if let Some(catalog) = &self.options.catalog {
            let (store, def) = (self.store(place), table.def());
            if table.has_evicted() {
                // A new lake must not replace one that has evicted rows.
                let lake = self.load(place, table, &|_| Ok(()))?;
                return lake.ok_or_else(|| Error::internal("a lake that is needed was not found"));
            }
            store.ensure_usable()?;
            let lake =
                rest::load_or_create(catalog, &self.options, &store, place, def, table.lsn(), &self.shared)?;
            let lake = Some(lake);
            lineage::check(&self.options, table, lake.as_ref())?;
            return lake.ok_or_else(|| Error::internal("a lake was begun"));
        }
        if let Some(lake) = self.load(place, table, &|_| Ok(()))? {
            return Ok(lake);
        }
        let def = table.def();
        let dir = self.dir_of(def);
        // A kill may have left files of an earlier attempt.
        lake_files::remove_dir(&self.store(place), &dir)?;
        let name_file = place.dir.join(TABLE_NAME_FILE);
        files::replace(&place.env, &name_file, def.name.as_bytes())?;
        files::sync_dir(&place.env, &place.dir)?;
        let location = self.location_of(def);
        let columns = Arc::new(Columns::of(def)?);
        create::create(&self.store(place), &self.options, dir, location, &columns, table.lsn(), &self.shared)
    }

    /// Returns the time to wait for more rows; zero if a commit is due.
    fn time_to_wait(&self, env: &Env, lake: &Lake, table: &Snapshot, rows: u64) -> Duration {
        let now = (env.clock.monotonic().as_micros() as u64).max(1);
        let before = lake.missing_since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        let since = before.err().unwrap_or(now);
        if since == OVERDUE || rows.saturating_mul(table.row_bytes()) >= self.options.commit_bytes {
            return Duration::ZERO;
        }
        let trickle = rows < self.options.trickle_rows;
        let wait = if trickle { self.options.trickle_wait } else { self.options.commit_wait };
        (Duration::from_micros(since) + wait).saturating_sub(Duration::from_micros(now)).min(LOOK_INTERVAL)
    }

    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        let known = from.and_then(|from| Some((from, from.published::<Lake>()?)));
        let has_unknown_outcome = |lake: &Lake| lake.outcome_unknown.load(Ordering::Acquire);
        if let Some((_, lake)) = known.as_ref().filter(|(_, lake)| has_unknown_outcome(lake))
            && let Some(found) = rest::resolve_pending(lake)?
        {
            self.erasures.restart(table.def().id);
            return Ok(Progress::Advanced(position_of(found, None)));
        }
        let Some((from, base)) = known.filter(|(_, lake)| !has_unknown_outcome(lake)) else {
            return Ok(Progress::Advanced(position_of(self.begin(place, table)?, None)));
        };
        let columns = base.columns_of(table.def())?;
        let missing = missing_changes(&base, &columns, &from.checkpoint, table);
        let id = table.def().id;
        self.tidied.lock().remove(&id);
        // The published commit contains nothing that is to be erased. Its leftover files are removed now, unless readers
        // hold some of them, for ten minutes at most. Rows land meanwhile.
        let mut is_held = false;
        if let Some(lsn) = self.erasures.cleared_to(id) {
            is_held = !self.end_erasure(id, &base, table, lsn)?;
        }
        let erases = !is_held && self.erasures.is_due(id, table.lsn());
        let mut upkeep = self.upkeep.depth(id).filter(|_| !erases);
        if upkeep.is_some() && self.upkeep.is_tidy(id) {
            self.end_upkeep(&place.env, id, &base)?;
            upkeep = None;
        }
        self.outdated.lock().remove(&id);
        if !missing.schema
            && let Some(adopted) = self.adopt(table, from, &base, &columns, missing, budget)?
        {
            return Ok(Progress::Advanced(adopted));
        }
        if !missing.any() && !erases && upkeep.is_none() {
            return Ok(idle(is_held));
        }
        if !budget.urgent && !missing.schema && !erases && upkeep.is_none() {
            let wait = self.time_to_wait(&place.env, &base, table, missing.rows.max(missing.deletes));
            if !wait.is_zero() {
                return Ok(Progress::Later(wait));
            }
        }
        // Another program removed the lake. It cannot be added to, and the table can land again without it.
        if !base.is_there()? {
            return Ok(Progress::Advanced(position_of(self.begin(place, table)?, None)));
        }
        // Changes by other programs are looked for before a retry, and before snapshots are dropped, since a branch may
        // point to them now.
        if let Some(catalog_entry) = &base.catalog_entry
            && (catalog_entry.needs_check()
                || erases
                || expiry::drops_with_next_commit(&base, &self.options, place.env.clock.now() / 1000))
            && !rest::is_unchanged(&base)?
        {
            return Ok(Progress::Advanced(position_of(self.begin(place, table)?, None)));
        }
        let begun = self.erasures.start(id, from.checkpoint.lsn);
        let erased_to = begun.as_ref().map_or(table.lsn(), |begun| begun.lsn);
        let purpose = match upkeep {
            _ if erases => Purpose::Erase(begun.as_deref()),
            None => Purpose::Land,
            Some(Depth::Full) => Purpose::Merge,
            Some(Depth::Expire) => Purpose::Expire,
        };
        if upkeep.is_some() {
            self.upkeep.begin(id, base.extent());
        }
        let made =
            commit::commit(&base, table, &from.checkpoint, &columns, &self.options, purpose, budget.tick);
        let made = made.map_err(|error| {
            if files::is_missing(&error) {
                let dir = base.dir.display();
                error.hint(format!(
                    "some of its files were removed: put them back, or move `{dir}` away and the table lands anew"
                ))
            } else {
                error
            }
        })?;
        let Some(made) = made else {
            if erases {
                if !self.end_erasure(id, &base, table, erased_to)? {
                    self.erasures.set_cleared(id, erased_to);
                    return Ok(Progress::Later(LOOK_INTERVAL));
                }
                if !missing.any() {
                    return Ok(Progress::UpToDate);
                }
            }
            if upkeep.is_some() {
                self.end_upkeep(&place.env, id, &base)?;
                if !missing.any() {
                    return Ok(idle(is_held));
                }
            }
            // All new rows are already deleted. Nothing lands, and these lsns need not be looked at again.
            let checkpoint = Checkpoint {
                row: RowId(table.next_row().0 - 1),
                lsn: table.lsn(),
                state: from.checkpoint.state.clone(),
            };
            base.missing_since.store(0, Ordering::Release);
            return Ok(Progress::Advanced(Position::new(checkpoint, base)));
        };
        if erases {
            let done = ErasureReport {
                rows: made.rows_erased,
                files_rewritten: made.rewritten,
                snapshots_dropped: made.snapshots_dropped,
                ..ErasureReport::default()
            };
            self.erasures.add_result(id, done);
            if made.is_cleared {
                self.erasures.set_cleared(id, erased_to);
            } else if begun.is_none() {
                self.erasures.begin(id, ErasureStart { lsn: table.lsn(), files: made.touched });
            }
        }
        if upkeep.is_some() {
            self.upkeep.add_result(id, |sum| {
                sum.commits += 1;
                sum.files_rewritten += made.rewritten;
                sum.snapshots_expired += made.snapshots_dropped;
            });
            self.upkeep.committed(id, made.is_complete);
        }
        if made.row.next() < table.next_row() {
            made.lake.missing_since.store(OVERDUE, Ordering::Release);
        }
        Ok(Progress::Advanced(position_of(made.lake, Some((made.row, table.lsn())))))
    }

    /// Commits a replacement of files that another program offered, if it has the same rows, and answers the refused ones.
    /// A step commits one, because the next one builds on its result.
    fn adopt(
        &self,
        table: &Snapshot,
        from: &Position,
        base: &Arc<Lake>,
        columns: &Arc<Columns>,
        missing: MissingChanges,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Position>> {
        let (id, replacements) = (table.def().id, &self.shared.replacements);
        if base.is_in_catalog() {
            while let Some((number, _)) = replacements.begin(id) {
                let why = "the table is in another catalog, and only Polynya commits to it there";
                replacements.end(id, number, ReplacementOutcome::Refused(Error::conflict(why)));
            }
            return Ok(None);
        }
        // Continuous offers must not keep rows from landing.
        let taken_last = base.snapshot_id().is_some_and(|id| base.has_adopted(id));
        let waits = taken_last && missing.any();
        while let Some((number, replacement)) = replacements.begin(id) {
            // The outcome was unknown until the files were read again, or its answer was lost and the program sent it
            // again.
            if base.has_adopted(replacement.snapshot_id) {
                replacements.end(id, number, ReplacementOutcome::Committed(base.version));
                continue;
            }
            if waits || !base.is_there()? {
                let why = "the table has changed since; look at it again";
                replacements.end(id, number, ReplacementOutcome::Refused(Error::conflict(why)));
                continue;
            }
            let adopt =
                || commit::adopt(base, table, columns, &self.options, &replacement, &mut *budget.tick);
            // The decoders of the libraries may panic on files of other programs.
            let made = catch_unwind(AssertUnwindSafe(adopt)).unwrap_or_else(|_| {
                Err(Error::conflict("the replacement is not taken: reading its files failed"))
            });
            match made {
                Ok(lake) => {
                    replacements.end(id, number, ReplacementOutcome::Committed(lake.version));
                    let stands = (from.checkpoint.row, from.checkpoint.lsn);
                    return Ok(Some(position_of(lake, Some(stands))));
                }
                // The next step loads the lake and then knows the outcome.
                Err(error) if base.outcome_unknown.load(Ordering::Acquire) => return Err(error),
                Err(error) => {
                    let closes = error.kind() == Kind::Closed;
                    replacements.end(id, number, ReplacementOutcome::Refused(error.clone()));
                    if closes {
                        return Err(error);
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Returns the progress of a step without work. While readers hold garbage, another look follows.
fn idle(is_held: bool) -> Progress {
    if is_held { Progress::Later(LOOK_INTERVAL) } else { Progress::UpToDate }
}

/// Returns `warehouse/namespace/table`.
pub fn table_dir(warehouse: &Path, full_name: &str) -> PathBuf {
    let (namespace, table) = full_name.split_once('.').unwrap_or((name::DEFAULT_NAMESPACE, full_name));
    warehouse.join(namespace).join(table)
}

/// Returns the table of a materializer's directory, which is named after the table's id.
pub(crate) fn table_of(place: &MaterializerDir) -> Option<TableId> {
    place.dir.file_name()?.to_str()?.parse().ok().map(TableId)
}

fn warn_of_partitions(def: &TableDef) {
    for warning in def.partition_warnings() {
        tracing::warn!(table = %def.name, "{warning}; see \"Reading it\" in the documentation of the lake");
    }
}

fn was_dropped(def: &TableDef) -> Error {
    Error::not_found(format!(
        "table `{}` was dropped, and another has its name",
        name::short_table_name(&def.name)
    ))
}

/// Builds the position of a lake. `at` is given if it is further than the recorded one, with the same rows.
fn position_of(lake: Lake, at: Option<(RowId, types::Lsn)>) -> Position {
    let (row, lsn) = at.unwrap_or((lake.row, lake.lsn));
    let checkpoint = Checkpoint { row, lsn, state: encode(&lake) };
    Position::new(checkpoint, Arc::new(lake))
}

/// Encodes the version and snapshot of a lake as the state of its checkpoint.
fn encode(lake: &Lake) -> Vec<u8> {
    let mut e = Encoder::new();
    e.varint(lake.version);
    e.i64(lake.snapshot_id().unwrap_or(0));
    e.bytes
}

fn matches_checkpoint(lake: &Lake, state: &[u8]) -> Result<bool> {
    let mut d = Decoder::new(state);
    let (version, snapshot) = (d.varint()?, d.i64()?);
    d.finish()?;
    Ok(version == lake.version && snapshot == lake.snapshot_id().unwrap_or(0))
}

/// The changes of a table that its lake lacks.
#[derive(Clone, Copy, Debug)]
pub struct MissingChanges {
    /// Number of row ids, not all of which need be live.
    pub rows: u64,
    pub deletes: u64,
    /// True if the table's columns or layout changed.
    pub schema: bool,
}

impl MissingChanges {
    pub fn any(&self) -> bool {
        self.rows > 0 || self.deletes > 0 || self.schema
    }
}

impl MissingChanges {
    /// Computes the missing changes of a table, in its present or an earlier state, at a position of this materializer.
    pub fn at(position: &Position, table: &Snapshot) -> Result<MissingChanges> {
        let lake = position
            .published::<Lake>()
            .ok_or_else(|| Error::internal("the position is of another materializer"))?;
        let columns = lake.columns_of(table.def())?;
        let mut missing = missing_changes(&lake, &columns, &position.checkpoint, table);
        // A later lake already includes this definition, and perhaps newer ones.
        missing.schema &= position.checkpoint.lsn < table.lsn();
        Ok(missing)
    }
}

fn missing_changes(lake: &Lake, columns: &Columns, from: &Checkpoint, table: &Snapshot) -> MissingChanges {
    let deletes = if from.lsn < table.lsn() {
        // The deletes themselves may be forgotten; then the step looks for them.
        table.deleted_since(from).map_or(1, |rows| rows.len() as u64)
    } else {
        0
    };
    MissingChanges { rows: from.missing(table), deletes, schema: !lake.matches_definition(columns) }
}

impl table::materializer::Materializer for Materializer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn follows(&self, def: &TableDef) -> bool {
        let reserved = name::is_reserved(&def.name);
        def.options.lake.unwrap_or(self.options.by_default && !reserved && !def.is_vault())
    }

    fn check(&self, def: &TableDef) -> Result<()> {
        // An existing table was warned about at its creation, and is again only if its partitioning changes.
        if def.id == TableId(0) && self.follows(def) {
            warn_of_partitions(def);
        }
        Columns::of(&Arc::new(def.clone())).map(drop)
    }

    /// Refuses a rename: a table's place in the lake follows from its name, by which other programs know it.
    fn check_change(&self, before: &TableDef, after: &TableDef) -> Result<()> {
        if before.name != after.name && self.follows(before) {
            let table = name::short_table_name(&before.name);
            return Err(Error::new(Kind::Schema, format!("table `{table}` has a lake and keeps its name"))
                .hint("make a table of the new name, copy the rows, drop this one"));
        }
        if before.options.partition_by != after.options.partition_by && self.follows(after) {
            warn_of_partitions(after);
        }
        Ok(())
    }

    /// Returns the lag of the lake. Readers miss nothing while it is behind, but missing rows occupy local space. A lake
    /// that fails to land does not slow writers down.
    fn lag(&self, table: &Snapshot, position: &Position) -> f64 {
        match position.published::<Lake>() {
            Some(lake) if !lake.failing.load(Ordering::Acquire) => {
                let rows = position.checkpoint.missing(table);
                rows.saturating_mul(table.row_bytes()) as f64 / self.options.lag_bytes_max as f64
            }
            _ => 0.0,
        }
    }

    fn is_remote(&self) -> bool {
        self.options.objects.is_some() || self.options.catalog.is_some()
    }

    fn is_step_requested(&self, def: &TableDef) -> bool {
        let id = def.id;
        self.erasures.is_requested(id)
            || self.upkeep.depth(id).is_some()
            || self.shared.replacements.is_requested(id)
            || self.outdated.lock().contains(&id)
    }

    fn open(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        checkpoint: &Checkpoint,
    ) -> Result<Published> {
        let def = table.def();
        let lease = self.leases.take(&self.dir_of(def), def.id);
        let Some(_lease) = lease else { return Err(was_dropped(def)) };
        let lake = self.load(place, table, &|lake| {
            if matches_checkpoint(lake, &checkpoint.state)? {
                return Ok(());
            }
            // The log does not know the last commit. The next step takes the position from the lake itself.
            Err(Error::damaged("the lake has moved on since the checkpoint"))
        })?;
        let lake = lake.ok_or_else(|| Error::damaged("the lake's files are gone"))?;
        if lake.columns_of(def).is_ok_and(|columns| !lake.matches_definition(&columns)) {
            self.outdated.lock().insert(def.id);
        }
        Ok(Arc::new(lake))
    }

    /// Makes one undivided commit with everything that is due, whatever row budget is given. The work is interrupted only
    /// when the database closes. A `from` of `None` does not mean that existing files are ignored: the position that the
    /// lake records counts.
    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        let def = table.def();
        // The table was dropped. The failure of its step must not be reported for the table that has its name now.
        let lease = self.leases.take(&self.dir_of(def), def.id);
        let Some(_lease) = lease else { return Ok(Progress::UpToDate) };
        // Waiters learn of a panic too, with the name of the table.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.step(place, table, from, budget)));
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Error::internal("landing the table met a bug of Polynya and stopped")
                .with("table", &def.name))
        });
        if let Err(error) = &outcome {
            self.erasures.end(def.id, table.lsn(), Err(error.clone()));
            self.upkeep.end(def.id, Err(error.clone()));
            self.shared.replacements.fail(def.id, error);
        }
        if let Some(lake) = from.and_then(|from| from.published::<Lake>()) {
            let failing = outcome.as_ref().is_err_and(|error| error.kind() != Kind::Closed);
            lake.failing.store(failing, Ordering::Release);
        }
        outcome
    }

    /// Evicted rows are not stored in a lake whose catalog is elsewhere: it may be unreachable, or drop the table.
    fn stores_evicted_rows(&self) -> bool {
        self.options.catalog.is_none()
    }

    fn landed(&self, published: &Published, table: &Snapshot) -> Option<Arc<dyn LakeSnapshot>> {
        let lake: Arc<Lake> = published.clone().downcast().ok()?;
        if table.def().is_keyed() {
            return None;
        }
        let position = evicted_rows::PinnedSnapshot::of(lake, self.read_cache.clone()).ok()?;
        Some(Arc::new(position))
    }

    fn is_held(&self, table: TableId) -> bool {
        self.shared.cache.pins.is_held(table)
    }

    fn clean(&self, _: &MaterializerDir, newest: &Arc<Position>) -> Result<()> {
        let Some(lake) = newest.published::<Lake>() else { return Ok(()) };
        let table = lake.metadata.table_id().unwrap_or_default();
        // The lease is refused if another table owns the directory; files of these names then belong to that table.
        let dir = match &lake.catalog_entry {
            None => lake.dir.clone(),
            Some(catalog_entry) => table_dir(&self.options.warehouse, &catalog_entry.name),
        };
        let Some(_lease) = self.leases.take(&dir, table) else { return Ok(()) };
        let erases = self.erasures.is_requested(table);
        let counts = erases || self.upkeep.depth(table).is_some();
        let held = self.shared.cache.pins.pinned_files();
        let (files_removed, bytes_removed) = lake.remove_garbage(&held, counts)?;
        self.upkeep.add_result(table, |sum| {
            sum.files_removed += files_removed;
            sum.bytes_removed += bytes_removed;
        });
        if erases {
            self.erasures.add_result(
                table,
                ErasureReport { files_removed, bytes_removed, ..ErasureReport::default() },
            );
        }
        Ok(())
    }

    /// A lake that was turned off stays: others may read it, and turned on again it continues from there.
    fn unfollowed(&self, place: &MaterializerDir) -> Result<()> {
        if let Some(id) = table_of(place) {
            let why = Error::invalid("the table's lake was turned off");
            self.shared.replacements.end_all(id, &why);
            self.erasures.end(id, Lsn(u64::MAX), Err(why.clone()));
            self.upkeep.end(id, Err(why));
        }
        Ok(())
    }

    fn dropped(&self, place: &MaterializerDir) -> Result<()> {
        if let Some(catalog) = &self.options.catalog {
            let store = self.store(place);
            store.ensure_usable()?;
            rest::drop_table(catalog, &self.options, &store, place)?;
        }
        // With only the catalog elsewhere, the local files may be registered again, so they stay.
        let former = self.options.former.as_ref().filter(|_| self.options.objects.is_some());
        if let Some((former, id)) = former.zip(table_of(place)) {
            abandoned_lakes::remove(&place.env, former, id, None)?;
        }
        let name_file = place.dir.join(TABLE_NAME_FILE);
        // The writer may have died before the rename.
        files::remove(&place.env, &place.dir.join(format!("{TABLE_NAME_FILE}{}", files::TEMPORARY)))?;
        if !files::exists(&place.env, &name_file)? {
            return Ok(());
        }
        let full_name = String::from_utf8(files::read(&place.env, &name_file)?.to_vec())
            .ok()
            .and_then(|text| name::full_table_name(&text).ok());
        let id = table_of(place);
        if let Some((full_name, id)) = full_name.zip(id) {
            self.erasures.fail_all(id);
            let gone = "the table was dropped, and its lake with it";
            self.upkeep.end(id, Err(Error::not_found(gone)));
            self.shared.replacements.end_all(id, &Error::not_found("the table was dropped"));
            let dir = table_dir(&self.options.warehouse, &full_name);
            self.orphans.forget_table(id, &dir);
            // A table of the same name may have been created since.
            if let Some(mut lease) = self.leases.take(&dir, id) {
                lease.releases_dir = true;
                let store = self.store(place);
                store.ensure_usable()?;
                if store.lacks_key() {
                    tracing::warn!(
                        "{full_name} had a lake before it was in the catalog, and there is no key for its files: {}/{} stays",
                        self.options.location,
                        dir.display()
                    );
                } else if lake_files::is_lake_of(&store, &dir, id)? {
                    lake_files::remove_dir(&store, &dir)?;
                }
            }
        }
        files::remove(&place.env, &name_file)
    }
}
