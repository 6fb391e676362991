//! What the catalog's routes share: its truth, where its files are, its threads.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use engine::Engine;
use lake::catalog::Store;
use table::Snapshot;
use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress, Published};
use types::{Error, Kind, Principal, Result, TableDef, TableSet, name};
use vfs::{Mutex, Rank};

use super::names::Ident;
use super::problem::{self, Problem};
use super::state::{self, State, Swap, What};
use crate::work::Pool;

/// Threads that wait for files and for commits of the catalog, and the jobs that may wait for one of them.
const THREADS: usize = 4;
const JOBS_MAX: usize = 256;
/// A commit that always finds another one before it gives up after so many tries.
const TRIES: usize = 16;
/// How long a table that was just made may take to have a lake.
const LAKE_WAIT: Duration = Duration::from_secs(10);
const LAKE_EVERY: Duration = Duration::from_millis(20);

/// The catalog of one server.
pub struct Catalog {
    pub engine: Engine,
    pub store: Store,
    names: Arc<Names>,
    /// Held while tables, views and namespaces are made, moved and dropped: what must not overlap is compared with what
    /// there is. Commits to a table hold nothing.
    structure: Mutex<()>,
    /// Started by the first request: a server whose catalog nobody asks has none of its threads.
    pool: OnceLock<Pool>,
}

impl Catalog {
    /// Over a database that is open. Tables of others keep their names from here on.
    pub fn start(engine: Engine, store: Store) -> Result<Arc<Catalog>> {
        let names = Arc::new(Names { taken: Mutex::new(Rank::new(24, "catalog names"), BTreeSet::new()) });
        engine.register(names.clone())?;
        let structure = Mutex::new(Rank::new(22, "catalog structure"), ());
        let catalog = Catalog { engine, store, names, structure, pool: OnceLock::new() };
        let all = catalog.state().all()?;
        let named = all.iter().map(|known| &known.entry).filter(|entry| entry.what != What::Namespace);
        catalog.names.taken.lock().extend(named.map(|entry| entry.ident().full_name()));
        Ok(Arc::new(catalog))
    }

    /// Runs what waits for the disk on a thread of the catalog's own.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Catalog) -> problem::Result<T> + Send + 'static,
    ) -> problem::Result<T> {
        if self.pool.get().is_none() {
            // Whoever is second throws its own away.
            let _ = self.pool.set(Pool::named("pn-catalog", THREADS, JOBS_MAX)?);
        }
        let pool = self.pool.get().ok_or_else(|| Error::internal("the catalog has no threads"))?;
        let catalog = self.clone();
        pool.run(move || job(&catalog)).await?
    }

    pub fn state(&self) -> State {
        State::now(&self.engine)
    }

    /// Makes changes to what there is, one at a time.
    pub fn in_order<T>(&self, job: impl FnOnce() -> problem::Result<T>) -> problem::Result<T> {
        let guard = self.structure.lock();
        let done = job();
        drop(guard);
        done
    }

    /// Carries out what `job` plans on the newest state, and plans anew where another was faster. Files of a plan that comes
    /// to nothing are removed; where nobody knows whether it did, they stay.
    pub fn change<T>(&self, mut job: impl FnMut(&State) -> problem::Result<Plan<T>>) -> problem::Result<T> {
        // A log that takes nothing more would leave a file of each try.
        if let Some(error) = self.engine.status().write_error {
            return Err(error.into());
        }
        for _ in 0..TRIES {
            let plan = job(&self.state())?;
            if plan.swap.is_empty() {
                return Ok(plan.told);
            }
            let Err(error) = state::swap(&self.engine, plan.swap) else { return Ok(plan.told) };
            if !is_certain(error.kind()) {
                return Err(Problem::unknown(&error));
            }
            plan.wrote.iter().for_each(|file| self.store.remove(file));
            if error.kind() != Kind::Conflict {
                return Err(error.into());
            }
        }
        Err(Problem::conflict("others changed the catalog again and again at the same moment"))
    }

    /// Refuses a location where no table or view of this name may be, and one that is, holds or lies in that of another. Of those
    /// that the principal may not see nothing is told.
    pub fn check_location(
        &self,
        state: &State,
        principal: &Principal,
        ident: &Ident,
        location: &str,
    ) -> problem::Result<()> {
        self.store.place_of(&ident.namespace, location, sees_all(principal))?;
        for known in state.all()? {
            let entry = &known.entry;
            let is_other = entry.what != What::Namespace && entry.ident() != *ident;
            if is_other && lake::catalog::overlaps(&entry.location, location) {
                return Err(match entry.ident().is_visible(principal) {
                    true => Problem::bad(format!(
                        "the location `{}` is, holds or lies in that of another table",
                        name::printable(location)
                    )),
                    false => self.store.no_place(&ident.namespace, location).into(),
                });
            }
        }
        Ok(())
    }

    /// Keeps a name for others while `job` gives it to a table or view of theirs, and from then on.
    pub fn with_name<T>(
        &self,
        ident: &Ident,
        job: impl FnOnce() -> problem::Result<T>,
    ) -> problem::Result<T> {
        self.names.taken.lock().insert(ident.full_name());
        let done = job();
        if done.is_err() {
            self.forget(ident);
        }
        done
    }

    /// Lets Polynya have a name again, unless others have it after all.
    pub fn forget(&self, ident: &Ident) {
        if self.state().find(ident).is_ok_and(|known| known.is_none()) {
            self.names.taken.lock().remove(&ident.full_name());
        }
    }

    /// Polynya's own table of exactly this name, as far as a principal may see it, and whether it has a lake.
    pub fn own(&self, principal: &Principal, ident: &Ident) -> Result<Option<(Arc<Snapshot>, bool)>> {
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
        self.engine.standing(table).iter().any(|standing| standing.materializer == lake::NAME)
    }

    /// Where the lake of one of Polynya's own tables stands. One that was just made gets a moment.
    pub fn lake_of(&self, table: &Snapshot) -> problem::Result<Arc<lake::Lake>> {
        let id = table.def().id;
        let begun = Instant::now();
        loop {
            if let Some(position) = self.engine.root().derived(lake::NAME, id) {
                let lake = position.published::<lake::Lake>();
                return Ok(lake.ok_or_else(|| Error::internal("what the lake has published is no lake"))?);
            }
            if begun.elapsed() > LAKE_WAIT {
                return Err(Error::new(Kind::Busy, "the table has not landed in the lake yet").into());
            }
            self.engine.hurry(lake::NAME, id);
            // What is published may come without a commit.
            self.engine.wait_for_commit(self.engine.root().lsn(), LAKE_EVERY)?;
        }
    }

    /// Whether some table of Polynya, whoever may see it, has this name.
    pub fn is_own_name(&self, ident: &Ident) -> bool {
        ident.is_flat() && self.engine.root().table(&ident.full_name()).is_some()
    }
}

/// Whether nothing is hidden from a principal, who then may put tables of one namespace below the directory of another.
pub fn sees_all(principal: &Principal) -> bool {
    matches!(principal.tables, TableSet::All)
}

/// What a change does to the catalog, and what it wrote before.
pub struct Plan<T> {
    pub swap: Swap,
    /// Metadata files that nothing names if the swap does not happen.
    pub wrote: Vec<String>,
    pub told: T,
}

impl<T> Plan<T> {
    pub fn new(swap: Swap, told: T) -> Plan<T> {
        Plan { swap, wrote: Vec::new(), told }
    }
}

/// Whether an error says that nothing was committed.
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

/// The names of others' tables and views, which no table of Polynya may get. Asked as those that derive something from
/// tables are, before one is made; it derives nothing itself.
struct Names {
    taken: Mutex<BTreeSet<String>>,
}

impl Materializer for Names {
    fn name(&self) -> &'static str {
        "catalog"
    }

    fn follows(&self, _: &TableDef) -> bool {
        false
    }

    fn check(&self, def: &TableDef) -> Result<()> {
        // One that is there already may change.
        if def.id.0 != 0 || !self.taken.lock().contains(&def.name) {
            return Ok(());
        }
        let table = name::short_table_name(&def.name);
        // Not "exists": whoever makes a table where none is would look for it again.
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
