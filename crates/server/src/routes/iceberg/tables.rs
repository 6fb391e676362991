//! Tables of other engines, and those of Polynya's own tables that have a lake.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use lake::catalog::{self, NewTable, PurgeCounts, TableMetadata};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use types::{Error, Principal, Result as CoreResult, name};

use super::names::Ident;
use super::problem::{Problem, Result};
use super::service::{Catalog, Plan, sees_all};
use super::state::{Entry, EntryKind, State, StoredEntry, Swap};

/// The metadata of a table or view as a client gets it.
#[derive(Clone, Debug)]
pub struct LoadedMetadata {
    /// The metadata file; empty for a staged table, which does not exist yet.
    pub metadata_location: String,
    /// The metadata as JSON text.
    pub metadata: String,
}

/// The table that a request names.
pub enum FoundTable {
    Foreign(StoredEntry),
    Own(Arc<table::Snapshot>),
}

/// The snapshots that a client requests: all, or only those that branches and tags refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshots {
    All,
    Refs,
}

impl LoadedMetadata {
    pub fn of(table: &TableMetadata, metadata_location: impl Into<String>) -> CoreResult<LoadedMetadata> {
        Ok(LoadedMetadata {
            metadata_location: metadata_location.into(),
            metadata: table.to_json()?.to_string(),
        })
    }
}

impl Catalog {
    /// Finds a table that a principal may see. If another engine's table has the name, it is returned, even if Polynya has one
    /// too.
    pub fn find(&self, state: &State, principal: &Principal, ident: &Ident) -> Result<FoundTable> {
        let missing = || Err(Problem::no_table(ident));
        if !ident.is_visible(principal) {
            return missing();
        }
        match state.find(ident)? {
            Some(known) if known.entry.kind == EntryKind::Table => return Ok(FoundTable::Foreign(known)),
            Some(_) => return missing(),
            None => {}
        }
        match self.own_table(principal, ident)? {
            Some((table, true)) => Ok(FoundTable::Own(table)),
            _ => missing(),
        }
    }

    /// Returns the names of the tables or views of a namespace that a principal may see.
    pub fn list(
        &self,
        principal: &Principal,
        namespace: &[String],
        kind: EntryKind,
    ) -> Result<BTreeSet<String>> {
        let state = self.state();
        self.namespace(&state, principal, namespace)?;
        let (mut found, mut hidden) = (BTreeSet::new(), BTreeSet::new());
        for known in state.all()? {
            let entry = known.entry;
            if entry.namespace == namespace
                && entry.kind != EntryKind::Namespace
                && entry.ident().is_visible(principal)
            {
                if entry.kind == kind { &mut found } else { &mut hidden }.insert(entry.name);
            }
        }
        if let ([namespace], EntryKind::Table) = (namespace, kind) {
            for table in self.engine.view(principal)?.tables() {
                if let Some((of, name)) = table.def().name.split_once('.')
                    && of == namespace
                    && !hidden.contains(name)
                    && self.has_lake(&table)
                {
                    found.insert(name.to_owned());
                }
            }
        }
        Ok(found)
    }

    pub fn load(&self, principal: &Principal, ident: &Ident, snapshots: Snapshots) -> Result<LoadedMetadata> {
        match self.find(&self.state(), principal, ident)? {
            FoundTable::Foreign(known) => {
                let text = self.read(&known)?;
                let metadata = match snapshots {
                    Snapshots::All => text,
                    Snapshots::Refs => parsed(text.as_bytes(), &known)?.to_json_of_refs()?.to_string(),
                };
                Ok(LoadedMetadata { metadata_location: known.entry.metadata_location, metadata })
            }
            FoundTable::Own(table) => {
                let (table, metadata_location) = self.own_metadata(&table)?;
                let metadata = match snapshots {
                    Snapshots::All => table.to_json()?,
                    Snapshots::Refs => table.to_json_of_refs()?,
                };
                Ok(LoadedMetadata { metadata_location, metadata: metadata.to_string() })
            }
        }
    }

    /// Reads a metadata file, and checks that it is JSON.
    pub fn read(&self, known: &StoredEntry) -> Result<String> {
        let bytes = self.store.read(&known.entry.metadata_location)?;
        let raw: Box<RawValue> = serde_json::from_slice(&bytes).map_err(|e| damaged(known, &e))?;
        Ok(String::from(Box::<str>::from(raw)))
    }

    pub fn table_of(&self, known: &StoredEntry) -> Result<TableMetadata> {
        let bytes: Bytes = self.store.read(&known.entry.metadata_location)?;
        parsed(&bytes, known)
    }

    /// Returns the newest metadata of one of Polynya's tables, and the location of its metadata file.
    pub fn own_metadata(&self, table: &table::Snapshot) -> Result<(TableMetadata, String)> {
        let lake = self.lake_of(table)?;
        Ok((TableMetadata::parse(&lake.metadata.to_bytes()?)?, lake.metadata_location()))
    }

    /// Refuses a name that is taken, whether the principal may see its owner or not.
    pub fn refuse_taken(
        &self,
        state: &State,
        principal: &Principal,
        ident: &Ident,
        kind: EntryKind,
    ) -> Result<()> {
        if let Some(known) = state.find(ident)? {
            let taken = known.entry.kind;
            let same = if taken == kind { "" } else { " with same name" };
            return Err(Problem::exists(format!("{}{same} already exists: {ident}", taken.title())));
        }
        if !self.is_own_name(ident) {
            return Ok(());
        }
        Err(match self.own_table(principal, ident)? {
            Some(_) => Problem::exists(format!("Table already exists: {ident}; it is a table of Polynya")),
            None => Problem::forbidden(format!("the key `{}` may not make {ident}", principal.name)),
        })
    }

    /// Returns a new entry for the identifier's namespace if the namespace exists without one.
    pub fn namespace_entry(
        &self,
        state: &State,
        principal: &Principal,
        ident: &Ident,
    ) -> Result<Option<Entry>> {
        let known = self.namespace(state, principal, &ident.namespace)?;
        Ok(known.is_none().then(|| Entry::of_namespace(ident.namespace.clone(), Default::default())))
    }

    /// Plans the entry of a new table or view whose metadata file is written.
    pub fn plan_new<T>(
        &self,
        state: &State,
        principal: &Principal,
        entry: Entry,
        result: T,
    ) -> Result<Plan<T>> {
        let namespace = self.namespace_entry(state, principal, &entry.ident())?;
        let written_files = vec![entry.metadata_location.clone()];
        let mut swap = Swap::add(entry);
        swap.puts.extend(namespace.map(|namespace| (None, namespace)));
        Ok(Plan { swap, written_files, result })
    }

    /// Makes a table from the body of a request. A staged table is only returned; its first commit makes it.
    pub fn create(&self, principal: &Principal, ident: &Ident, body: &Json) -> Result<LoadedMetadata> {
        ident.check_new(principal)?;
        let is_staged = body["stage-create"].as_bool().unwrap_or(false);
        let made = |state: &State| -> Result<TableMetadata> {
            self.namespace(state, principal, &ident.namespace)?;
            self.refuse_taken(state, principal, ident, EntryKind::Table)?;
            let location = match body["location"].as_str() {
                Some(location) => location.trim_end_matches('/').to_owned(),
                None => self.store.new_location(&ident.namespace, &ident.name),
            };
            self.check_location(state, principal, ident, &location)?;
            let wanted = NewTable {
                schema: &body["schema"],
                partition_spec: &body["partition-spec"],
                write_order: &body["write-order"],
                properties: catalog::string_map(&body["properties"], "a property")?,
            };
            Ok(catalog::create(wanted, &self.store.new_uuid(), &location, self.store.now_ms())?)
        };
        if is_staged {
            let table = made(&self.state())?;
            // DuckDB writes files there before the commit, and makes no directories.
            self.store.make_location(&table.location)?;
            return Ok(LoadedMetadata::of(&table, "")?);
        }
        self.exclusively(|| {
            self.with_reserved_name(ident, || {
                self.change(|state| {
                    let table = made(state)?;
                    let metadata_location =
                        self.store.next_metadata(&table.location, &table.properties, None)?;
                    let loaded = LoadedMetadata::of(&table, &metadata_location)?;
                    self.store.write(&metadata_location, loaded.metadata.as_bytes(), None)?;
                    let entry = entry_of(ident, &table, metadata_location);
                    self.plan_new(state, principal, entry, loaded)
                })
            })
        })
    }

    /// Adds a table whose metadata file already exists.
    pub fn register(&self, principal: &Principal, ident: &Ident, body: &Json) -> Result<LoadedMetadata> {
        ident.check_new(principal)?;
        let metadata_location = body["metadata-location"].as_str();
        let metadata_location =
            metadata_location.ok_or_else(|| Problem::bad("`metadata-location` is missing"))?;
        let overwrites = body["overwrite"].as_bool().unwrap_or(false);
        let path = self.store.path_for_new(&ident.namespace, metadata_location, sees_all(principal))?;
        if !metadata_location.ends_with(".metadata.json") {
            return Err(Problem::bad(format!(
                "`{}` is not a metadata file",
                name::printable(metadata_location)
            )));
        }
        if !self.engine.env().disk.exists(&path).unwrap_or(false) {
            return Err(Problem::bad(format!("there is no file `{}`", name::printable(metadata_location))));
        }
        let table = TableMetadata::parse(&self.store.read(metadata_location)?)?;
        self.store.adopt(metadata_location)?;
        self.exclusively(|| {
            self.with_reserved_name(ident, || {
                self.change(|state| {
                    self.namespace(state, principal, &ident.namespace)?;
                    let old =
                        state.find(ident)?.filter(|old| overwrites && old.entry.kind == EntryKind::Table);
                    if old.is_none() {
                        self.refuse_taken(state, principal, ident, EntryKind::Table)?;
                    }
                    self.check_location(state, principal, ident, &table.location)?;
                    let loaded = LoadedMetadata::of(&table, metadata_location)?;
                    let entry = entry_of(ident, &table, metadata_location.to_owned());
                    let mut plan = match &old {
                        Some(old) => Plan::new(Swap::replace(old, entry), loaded),
                        None => self.plan_new(state, principal, entry, loaded)?,
                    };
                    // The metadata file existed before, so it is not removed if the swap fails.
                    plan.written_files.clear();
                    Ok(plan)
                })
            })
        })
    }

    /// Drops a table. With `purge` its files are removed too, before this returns.
    pub fn drop(&self, principal: &Principal, ident: &Ident, purge: bool) -> Result<Option<PurgeCounts>> {
        let dropped = self.exclusively(|| {
            self.change(|state| {
                let FoundTable::Foreign(known) = self.find(state, principal, ident)? else {
                    return Err(own_refused(ident, "dropped"));
                };
                let table = if purge { Some(self.table_of(&known)?) } else { None };
                if table.as_ref().is_some_and(|table| table.properties.get("gc.enabled").is_some_and(|gc| gc == "false")) {
                    return Err(Problem::bad(format!(
                        "{ident} says `gc.enabled = false`: its files may be others' too, so it is dropped without purge only"
                    )));
                }
                Ok(Plan::new(Swap::remove(&known), (known.entry, table)))
            })
        })?;
        self.release_name(ident);
        let (entry, Some(table)) = dropped else { return Ok(None) };
        let purged = self.store.purge(&table, &entry.metadata_location)?;
        if purged.failed > 0 {
            tracing::warn!(table = %ident, files = purged.failed, "files of a table that was purged are still there");
        }
        Ok(Some(purged))
    }

    /// Renames a table or view. Its files stay where they are.
    pub fn rename(&self, principal: &Principal, from: &Ident, to: &Ident, kind: EntryKind) -> Result<()> {
        let missing = || match kind {
            EntryKind::View => Problem::no_view(from),
            _ => Problem::no_table(from),
        };
        if !from.is_visible(principal) {
            return Err(missing());
        }
        to.check_new(principal)?;
        self.exclusively(|| {
            self.with_reserved_name(to, || {
                self.change(|state| {
                    let known = state.find(from)?.filter(|known| known.entry.kind == kind);
                    let Some(known) = known else {
                        return match (kind, self.own_table(principal, from)?) {
                            (EntryKind::Table, Some((_, true))) => Err(own_refused(from, "renamed")),
                            _ => Err(missing()),
                        };
                    };
                    let namespace = self.namespace_entry(state, principal, to)?;
                    if let Some(taken) = state.find(to)? {
                        let title = taken.entry.kind.title();
                        return Err(Problem::exists(format!(
                            "Cannot rename {from} to {to}. {title} already exists"
                        )));
                    }
                    self.refuse_taken(state, principal, to, kind)?;
                    let mut entry = known.entry.clone();
                    (entry.namespace, entry.name) = (to.namespace.clone(), to.name.clone());
                    let mut swap = Swap::replace(&known, entry);
                    swap.puts.extend(namespace.map(|namespace| (None, namespace)));
                    Ok(Plan::new(swap, ()))
                })
            })
        })?;
        self.release_name(from);
        Ok(())
    }
}

pub fn entry_of(ident: &Ident, table: &TableMetadata, metadata_location: String) -> Entry {
    Entry {
        kind: EntryKind::Table,
        namespace: ident.namespace.clone(),
        name: ident.name.clone(),
        uuid: table.table_uuid.clone(),
        location: table.location.clone(),
        metadata_location,
        properties: Default::default(),
    }
}

fn own_refused(ident: &Ident, what: &str) -> Problem {
    Problem::forbidden(format!("{ident} is a table of Polynya and is {what} there, not through this catalog"))
}

fn parsed(bytes: &[u8], known: &StoredEntry) -> Result<TableMetadata> {
    Ok(TableMetadata::parse(bytes).map_err(|e| damaged(known, &e))?)
}

/// Makes the error for a metadata file that was valid when it was written and has changed since.
fn damaged(known: &StoredEntry, error: &dyn std::fmt::Display) -> Error {
    Error::damaged(format!("the metadata of {} are not readable: {error}", known.entry.ident()))
        .with("file", &known.entry.metadata_location)
}
