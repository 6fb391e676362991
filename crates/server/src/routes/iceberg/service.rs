//! The state that the catalog's routes share: its table of entries, its file store and its threads.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use engine::Engine;
use lake::catalog::TableStore;
use table::Snapshot;
use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress, Published};
use types::{Error, Kind, Principal, Result, TableDef, TableSet, name};
use vfs::{Mutex, Rank};

use super::names::Ident;
use super::problem::{self, Problem};
use super::state::{self, EntryKind, State, Swap};
use crate::work_pool::WorkPool;

/// Number of threads that wait for files and commits of the catalog.
const THREADS: usize = 4;
/// Maximum number of jobs that wait for one of the threads.
const JOBS_MAX: usize = 256;
/// Number of attempts after which a change that always conflicts with another one fails.
const TRIES: usize = 16;
/// Time that a newly made table may take to land in the lake.
const LAKE_WAIT: Duration = Duration::from_secs(10);
/// Time between two checks whether the table has landed.
const LAKE_EVERY: Duration = Duration::from_millis(20);

/// The catalog of one server.
pub struct Catalog {
    pub engine: Engine,
    pub store: TableStore,
    names: Arc<ReservedNames>,
    /// Held while tables, views and namespaces are made, moved or dropped, because names and locations are compared with the
    /// existing ones. Commits to a table do not take it.
    structure: Mutex<()>,
    /// Started by the first request, so that an unused catalog has no threads.
    pool: OnceLock<WorkPool>,
}

impl Catalog {
    /// Starts the catalog over an open database. From here on, Polynya's tables cannot take the names of other engines' tables.
    pub fn start(engine: Engine, store: TableStore) -> Result<Arc<Catalog>> {
        let names =
            Arc::new(ReservedNames { taken: Mutex::new(Rank::new(24, "catalog names"), BTreeSet::new()) });
        engine.register(names.clone())?;
        let structure = Mutex::new(Rank::new(22, "catalog structure"), ());
        let catalog = Catalog { engine, store, names, structure, pool: OnceLock::new() };
        let all = catalog.state().all()?;
        let named = all.iter().map(|known| &known.entry).filter(|entry| entry.kind != EntryKind::Namespace);
        catalog.names.taken.lock().extend(named.map(|entry| entry.ident().full_name()));
        Ok(Arc::new(catalog))
    }

    /// Runs a job that waits for the disk on a thread of the catalog's own.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Catalog) -> problem::Result<T> + Send + 'static,
    ) -> problem::Result<T> {
        if self.pool.get().is_none() {
            // If two requests start a pool at the same time, the second one is dropped.
            let _ = self.pool.set(WorkPool::with_name("pn-catalog", THREADS, JOBS_MAX)?);
        }
        let pool = self.pool.get().ok_or_else(|| Error::internal("the catalog has no threads"))?;
        let catalog = self.clone();
        pool.run(move || job(&catalog)).await?
    }

    pub fn state(&self) -> State {
        State::now(&self.engine)
    }

    /// Runs changes of names and locations one at a time.
    pub fn exclusively<T>(&self, job: impl FnOnce() -> problem::Result<T>) -> problem::Result<T> {
        let guard = self.structure.lock();
        let done = job();
        drop(guard);
        done
    }

    /// Carries out the plan that `job` makes for the newest state, and plans again after a conflict. Files of a failed plan are
    /// removed. If it is unknown whether the commit happened, they stay.
    pub fn change<T>(&self, mut job: impl FnMut(&State) -> problem::Result<Plan<T>>) -> problem::Result<T> {
        // A log that takes no more writes would leave a file behind for each attempt.
        if let Some(error) = self.engine.status().write_error {
            return Err(error.into());
        }
        for _ in 0..TRIES {
            let plan = job(&self.state())?;
            if plan.swap.is_empty() {
                return Ok(plan.result);
            }
            let Err(error) = state::swap(&self.engine, plan.swap) else { return Ok(plan.result) };
            if !is_certain(error.kind()) {
                return Err(Problem::unknown(&error));
            }
            plan.written_files.iter().for_each(|file| self.store.remove(file));
            if error.kind() != Kind::Conflict {
                return Err(error.into());
            }
        }
        Err(Problem::conflict("other requests kept changing the catalog"))
    }

    /// Refuses a location that is not allowed for this name, or that equals, contains or lies in the location of another table or
    /// view. The error does not mention tables that the principal may not see.
    pub fn check_location(
        &self,
        state: &State,
        principal: &Principal,
        ident: &Ident,
        location: &str,
    ) -> problem::Result<()> {
        self.store.path_for_new(&ident.namespace, location, sees_all(principal))?;
        for known in state.all()? {
            let entry = &known.entry;
            let is_other = entry.kind != EntryKind::Namespace && entry.ident() != *ident;
            if is_other && lake::catalog::overlaps(&entry.location, location) {
                return Err(if entry.ident().is_visible(principal) {
                    Problem::bad(format!(
                        "the location `{}` equals, contains or lies in that of another table",
                        name::printable(location)
                    ))
                } else {
                    self.store.misplaced(&ident.namespace, location).into()
                });
            }
        }
        Ok(())
    }

    /// Reserves a name while `job` gives it to a table or view of another engine. The name stays reserved if the job succeeds.
    pub fn with_reserved_name<T>(
        &self,
        ident: &Ident,
        job: impl FnOnce() -> problem::Result<T>,
    ) -> problem::Result<T> {
        self.names.taken.lock().insert(ident.full_name());
        let done = job();
        if done.is_err() {
            self.release_name(ident);
        }
        done
    }

    /// Releases a name, unless a table or view of another engine has it.
    pub fn release_name(&self, ident: &Ident) {
        if self.state().find(ident).is_ok_and(|known| known.is_none()) {
            self.names.taken.lock().remove(&ident.full_name());
        }
    }

    /// Returns Polynya's own table of exactly this name, if the principal may see it, and whether it has a lake.
    pub fn own_table(&self, principal: &Principal, ident: &Ident) -> Result<Option<(Arc<Snapshot>, bool)>> {
        if !ident.is_flat() {
            return Ok(None);
        }
        let full_name = ident.full_name();
        let table = self.engine.view(principal)?.find(&full_name);
        let table = table.filter(|table| table.def().name == full_name);
        Ok(table.map(|table| {
            let has_lake = self.has_lake(&table);
            (table, has_lake)
        }))
    }

    pub fn has_lake(&self, table: &Snapshot) -> bool {
        self.engine.materializer_progress(table).iter().any(|standing| standing.materializer == lake::NAME)
    }

    /// Returns the published lake of one of Polynya's own tables. Waits up to `LAKE_WAIT` if the table was just made.
    pub fn lake_of(&self, table: &Snapshot) -> problem::Result<Arc<lake::Lake>> {
        let id = table.def().id;
        let begun = Instant::now();
        loop {
            if let Some(position) = self.engine.root().derived(lake::NAME, id) {
                let lake = position.published::<lake::Lake>();
                return Ok(lake.ok_or_else(|| Error::internal("the lake published something else"))?);
            }
            if begun.elapsed() > LAKE_WAIT {
                return Err(Error::new(Kind::Busy, "the table has not landed in the lake yet").into());
            }
            self.engine.hurry(lake::NAME, id);
            // A lake may be published without a commit, so this also polls.
            self.engine.wait_for_commit(self.engine.root().lsn(), LAKE_EVERY)?;
        }
    }

    /// Returns true if a table of Polynya has this name, visible to the principal or not.
    pub fn is_own_name(&self, ident: &Ident) -> bool {
        ident.is_flat() && self.engine.root().table(&ident.full_name()).is_some()
    }
}

/// Returns true if nothing is hidden from a principal. It may then place tables of one namespace below the directory of another.
pub fn sees_all(principal: &Principal) -> bool {
    matches!(principal.tables, TableSet::All)
}

/// A change of the catalog, and the files that were written for it.
pub struct Plan<T> {
    pub swap: Swap,
    /// Metadata files that are unreferenced if the swap does not happen.
    pub written_files: Vec<String>,
    /// The result for the caller.
    pub result: T,
}

impl<T> Plan<T> {
    pub fn new(swap: Swap, result: T) -> Plan<T> {
        Plan { swap, written_files: Vec::new(), result }
    }
}

/// Returns true if an error of this kind means that nothing was committed.
fn is_certain(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Conflict
            | Kind::Exists
            | Kind::NotFound
            | Kind::Invalid
            | Kind::Schema
            | Kind::Forbidden
            | Kind::TooLarge
            | Kind::Busy
            | Kind::DiskFull
    )
}

/// The names of other engines' tables and views, which no table of Polynya may take. It is registered as a materializer only to
/// be asked before a table is made; it derives nothing.
struct ReservedNames {
    taken: Mutex<BTreeSet<String>>,
}

impl Materializer for ReservedNames {
    fn name(&self) -> &'static str {
        "catalog"
    }

    fn follows(&self, _: &TableDef) -> bool {
        false
    }

    fn check(&self, def: &TableDef) -> Result<()> {
        // A table that already exists may change.
        if def.id.0 != 0 || !self.taken.lock().contains(&def.name) {
            return Ok(());
        }
        let table = name::short_table_name(&def.name);
        // The kind is not `Exists`: a caller that makes missing tables would then look for a table here.
        Err(Error::invalid(format!("the Iceberg catalog has a table `{table}` of another program"))
            .hint("choose another name, or drop or rename that one there"))
    }

    fn check_change(&self, before: &TableDef, after: &TableDef) -> Result<()> {
        let renamed = TableDef { id: types::TableId(0), ..after.clone() };
        if before.name == after.name { Ok(()) } else { self.check(&renamed) }
    }

    fn open(&self, _: &MaterializerDir, _: &Arc<Snapshot>, _: &Checkpoint) -> Result<Published> {
        Err(Error::internal("the catalog derives nothing"))
    }

    fn step(
        &self,
        _: &MaterializerDir,
        _: &Arc<Snapshot>,
        _: Option<&Arc<Position>>,
        _: &mut Budget<'_>,
    ) -> Result<Progress> {
        Ok(Progress::UpToDate)
    }

    fn clean(&self, _: &MaterializerDir, _: &Arc<Position>) -> Result<()> {
        Ok(())
    }

    fn dropped(&self, _: &MaterializerDir) -> Result<()> {
        Ok(())
    }
}
