//! Commits to tables: one commit, or several that succeed or fail together.

use std::collections::BTreeSet;

use lake::catalog::{DELETE_AFTER_COMMIT, TableChange, TableMetadata, requirement};
use serde_json::Value as Json;
use types::{Kind, Principal};

use super::names::Ident;
use super::problem::{Problem, Result};
use super::service::{Catalog, Plan};
use super::state::{EntryKind, State, StoredEntry, Swap};
use super::tables::{FoundTable, LoadedMetadata, entry_of};

/// A client's commit to a table: the updates, and the requirements that must hold for them.
#[derive(Debug)]
pub struct Commit {
    pub ident: Ident,
    pub requirements: Vec<Json>,
    pub updates: Vec<Json>,
    pub creates: bool,
}

/// Maximum number of tables in one transaction.
const TABLES_MAX: usize = 1_000;

impl Commit {
    pub fn parse(ident: Ident, body: &Json) -> Result<Commit> {
        let list = |key: &str| match &body[key] {
            Json::Null => Ok(Vec::new()),
            Json::Array(list) => Ok(list.clone()),
            _ => Err(Problem::bad(format!("`{key}` is a list"))),
        };
        let (requirements, updates) = (list("requirements")?, list("updates")?);
        let creates = requirement::is_create(&requirements)?;
        Ok(Commit { ident, requirements, updates, creates })
    }

    /// Parses the body of a transaction. Fails if it names a table twice.
    pub fn parse_all(body: &Json) -> Result<Vec<Commit>> {
        let changes = body["table-changes"].as_array();
        let changes = changes.ok_or_else(|| Problem::bad("`table-changes` is a list of commits"))?;
        if changes.len() > TABLES_MAX {
            return Err(Problem::bad(format!("a transaction changes at most {TABLES_MAX} tables")));
        }
        let mut commits = Vec::with_capacity(changes.len());
        for change in changes {
            let ident: Ident = serde_json::from_value(change["identifier"].clone())
                .map_err(|_| Problem::bad("each commit of a transaction has an `identifier`"))?;
            commits.push(Commit::parse(ident, change)?);
        }
        let names: BTreeSet<&Ident> = commits.iter().map(|commit| &commit.ident).collect();
        if names.len() == commits.len() {
            Ok(commits)
        } else {
            Err(Problem::bad("a transaction changes each table once"))
        }
    }

    /// Returns true if the commit may take a name or a location that another commit could take at the same time.
    fn is_structural(&self) -> bool {
        self.creates || self.updates.iter().any(|update| update["action"] == "set-location")
    }
}

/// The plan for one table of a commit.
struct Step {
    swap: Swap,
    written_files: Option<String>,
    result: LoadedMetadata,
    /// The location of the table, and the metadata files to remove after the commit.
    forgotten: (String, Vec<String>),
}

impl Catalog {
    /// Carries out all commits or none. Returns the resulting state of each table.
    pub fn commit(&self, principal: &Principal, commits: &[Commit]) -> Result<Vec<LoadedMetadata>> {
        for commit in commits.iter().filter(|commit| commit.creates) {
            commit.ident.check_new(principal)?;
        }
        let run = || self.change(|state| self.plan_commit(state, principal, commits));
        let named = || commits.iter().filter(|commit| commit.creates).map(|commit| &commit.ident);
        let (loaded, forgotten) = if commits.iter().any(Commit::is_structural) {
            self.exclusively(|| {
                let names: Vec<&Ident> = named().collect();
                self.with_reserved_names(&names, run)
            })?
        } else {
            run()?
        };
        for (location, files) in forgotten {
            files.iter().for_each(|file| self.store.remove_old(&location, file));
        }
        Ok(loaded)
    }

    fn with_reserved_names<T>(&self, names: &[&Ident], job: impl FnOnce() -> Result<T>) -> Result<T> {
        match names.split_first() {
            None => job(),
            Some((first, rest)) => self.with_reserved_name(first, || self.with_reserved_names(rest, job)),
        }
    }

    #[allow(clippy::type_complexity, reason = "tables, and files by the location of their table")]
    fn plan_commit(
        &self,
        state: &State,
        principal: &Principal,
        commits: &[Commit],
    ) -> Result<Plan<(Vec<LoadedMetadata>, Vec<(String, Vec<String>)>)>> {
        let mut plan = Plan::new(Swap::default(), (Vec::new(), Vec::new()));
        for commit in commits {
            let step = match self.plan_step(state, principal, commit) {
                Ok(step) => step,
                Err(problem) => {
                    plan.written_files.iter().for_each(|file| self.store.remove(file));
                    return Err(problem);
                }
            };
            // Several tables of a transaction may be the first ones of the same namespace, which is added once.
            for put in step.swap.puts {
                if !plan
                    .swap
                    .puts
                    .iter()
                    .any(|(_, other)| other.kind == EntryKind::Namespace && *other == put.1)
                {
                    plan.swap.puts.push(put);
                }
            }
            plan.written_files.extend(step.written_files);
            plan.result.0.push(step.result);
            plan.result.1.push(step.forgotten);
        }
        Ok(plan)
    }

    fn plan_step(&self, state: &State, principal: &Principal, commit: &Commit) -> Result<Step> {
        let ident = &commit.ident;
        if commit.creates {
            return self.plan_create(state, principal, commit);
        }
        let known = match self.find(state, principal, ident)? {
            FoundTable::Foreign(known) => known,
            FoundTable::Own(table) => return self.plan_own_table(&table, commit),
        };
        let table = self.table_of(&known)?;
        if let Err(error) = requirement::check(&commit.requirements, &table) {
            // This commit was made before and its answer was lost, so the client sends it again.
            if error.kind() == Kind::Conflict && was_committed(&commit.updates, &table) {
                return self.plan_nothing(&table, &known.entry.metadata_location);
            }
            return Err(error.into());
        }
        let old_location = table.location.clone();
        let mut change = TableChange::of(table, self.store.now_ms());
        change.apply_all(&commit.updates)?;
        let Some(changed) = change.finish(Some(&known.entry.metadata_location))? else {
            return self.plan_nothing(&self.table_of(&known)?, &known.entry.metadata_location);
        };
        if changed.table.location != old_location {
            self.check_location(state, principal, ident, &changed.table.location)?;
        }
        let removes = changed.table.is_set(DELETE_AFTER_COMMIT);
        let forgotten = if removes { changed.forgotten } else { Vec::new() };
        self.plan_write(commit, changed.table, Some(&known), forgotten)
    }

    fn plan_create(&self, state: &State, principal: &Principal, commit: &Commit) -> Result<Step> {
        let ident = &commit.ident;
        let namespace = self.namespace_entry(state, principal, ident)?;
        if let Some(known) = state.find(ident)?.filter(|known| known.entry.kind == EntryKind::Table) {
            // This commit was made before and its answer was lost: no other client knows this UUID.
            if assigned_uuid(&commit.updates).is_some_and(|uuid| uuid.eq_ignore_ascii_case(&known.entry.uuid))
            {
                let table = self.table_of(&known)?;
                if added_snapshots(&commit.updates).all(|snapshot| has_snapshot(&table, snapshot)) {
                    return self.plan_nothing(&table, &known.entry.metadata_location);
                }
            }
            return Err(Problem::exists("Requirement failed: table already exists"));
        }
        self.refuse_taken(state, principal, ident, EntryKind::Table)?;
        let mut change = TableChange::new(self.store.new_uuid(), &commit.updates, self.store.now_ms());
        change.apply_all(&commit.updates)?;
        let changed = change.finish(None)?.ok_or_else(|| Problem::bad("a new table has a schema"))?;
        self.check_location(state, principal, ident, &changed.table.location)?;
        let mut step = self.plan_write(commit, changed.table, None, Vec::new())?;
        step.swap.puts.extend(namespace.map(|namespace| (None, namespace)));
        Ok(step)
    }

    /// Writes the metadata file of the table's new state, and plans the change of its entry.
    fn plan_write(
        &self,
        commit: &Commit,
        table: TableMetadata,
        known: Option<&StoredEntry>,
        forgotten: Vec<String>,
    ) -> Result<Step> {
        let previous = known.map(|known| known.entry.metadata_location.as_str());
        let metadata_location = self.store.next_metadata(&table.location, &table.properties, previous)?;
        let result = LoadedMetadata::of(&table, &metadata_location)?;
        self.store.write(&metadata_location, result.metadata.as_bytes(), previous)?;
        let entry = entry_of(&commit.ident, &table, metadata_location.clone());
        let swap = match known {
            Some(known) => Swap::replace(known, entry),
            None => Swap::add(entry),
        };
        Ok(Step {
            swap,
            written_files: Some(metadata_location),
            result,
            forgotten: (table.location, forgotten),
        })
    }

    fn plan_nothing(&self, table: &TableMetadata, metadata_location: &str) -> Result<Step> {
        Ok(Step {
            swap: Swap::default(),
            written_files: None,
            result: LoadedMetadata::of(table, metadata_location)?,
            forgotten: Default::default(),
        })
    }

    /// Plans a commit to a table that Polynya writes. Its rows come only from Polynya, and the lake's statements about them must
    /// stay true. So only a commit without effect succeeds here. A commit that replaces files by others with the same rows takes
    /// another way ([`super::offer`]).
    fn plan_own_table(&self, own: &table::Snapshot, commit: &Commit) -> Result<Step> {
        let refused = |why| own_commit_refused(&commit.ident, why);
        // This is checked before the requirements: a client that is told of a conflict would try again.
        if operation(&commit.updates).is_some_and(|operation| operation != "replace") {
            return Err(refused("only files of the same rows can be committed to it here"));
        }
        let (table, metadata_location) = self.own_metadata(own)?;
        requirement::check(&commit.requirements, &table)?;
        let mut change = TableChange::of(table.clone(), self.store.now_ms());
        change.apply_all(&commit.updates)?;
        if change.finish(Some(&metadata_location))?.is_none() {
            return self.plan_nothing(&table, &metadata_location);
        }
        Err(refused(match operation(&commit.updates) {
            Some(_) => "a replacement of its files is committed by itself, not with other tables",
            None => "its definition is changed there, not here",
        }))
    }
}

/// Makes the refusal of a commit to a table that Polynya writes. It is not a conflict, because clients would refresh and try
/// again.
pub fn own_commit_refused(ident: &Ident, why: &str) -> Problem {
    Problem::forbidden(format!(
        "{ident} is a table that Polynya writes: {why}. Rows go in through POST /v1/tables/…/rows or SQL"
    ))
}

/// Returns the snapshots that a commit adds.
fn added_snapshots(updates: &[Json]) -> impl DoubleEndedIterator<Item = &Json> {
    updates.iter().filter(|update| update["action"] == "add-snapshot").map(|update| &update["snapshot"])
}

/// Returns the operation in the summary of the last snapshot that a commit adds.
fn operation(updates: &[Json]) -> Option<&str> {
    let last = added_snapshots(updates).next_back()?;
    Some(last["summary"]["operation"].as_str().unwrap_or("snapshot"))
}

/// Returns the UUID that a commit assigns to its new table.
fn assigned_uuid(updates: &[Json]) -> Option<&str> {
    updates.iter().rev().find(|update| update["action"] == "assign-uuid")?["uuid"].as_str()
}

/// Returns true if the table already has a snapshot. Snapshot ids are random, so no other commit can have made it.
fn has_snapshot(table: &TableMetadata, snapshot: &Json) -> bool {
    let known = snapshot["snapshot-id"].as_i64().and_then(|id| table.snapshot(id));
    known.is_some_and(|known| known["manifest-list"] == snapshot["manifest-list"])
}

/// Returns true if a commit adds snapshots and the table already has all of them.
fn was_committed(updates: &[Json], table: &TableMetadata) -> bool {
    added_snapshots(updates).next().is_some()
        && added_snapshots(updates).all(|snapshot| has_snapshot(table, snapshot))
}
