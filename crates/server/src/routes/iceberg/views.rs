//! Views of other engines: queries in one or more dialects, which this server stores and does not run.

use lake::catalog::{self, ViewChange, ViewMetadata, requirement};
use serde_json::{Value as Json, json};
use types::{Error, Principal, Result as CoreResult};

use super::names::Ident;
use super::problem::{Problem, Result};
use super::service::{Catalog, Plan};
use super::state::{Entry, EntryKind, State, StoredEntry, Swap};
use super::tables::LoadedMetadata;

impl Catalog {
    pub fn find_view(&self, state: &State, principal: &Principal, ident: &Ident) -> Result<StoredEntry> {
        let known = if ident.is_visible(principal) { state.find(ident)? } else { None };
        known.filter(|known| known.entry.kind == EntryKind::View).ok_or_else(|| Problem::no_view(ident))
    }

    pub fn load_view(&self, principal: &Principal, ident: &Ident) -> Result<LoadedMetadata> {
        let known = self.find_view(&self.state(), principal, ident)?;
        Ok(LoadedMetadata { metadata: self.read(&known)?, metadata_location: known.entry.metadata_location })
    }

    pub fn create_view(&self, principal: &Principal, ident: &Ident, body: &Json) -> Result<LoadedMetadata> {
        ident.check_new(principal)?;
        let mut version = body["view-version"].clone();
        if !version.is_object() {
            return Err(Problem::bad("`view-version` is missing"));
        }
        // -1 refers to the schema that this request adds, which is the only one.
        version["schema-id"] = json!(-1);
        let updates = [
            json!({ "action": "add-schema", "schema": body["schema"] }),
            json!({ "action": "add-view-version", "view-version": version }),
            json!({ "action": "set-current-view-version", "view-version-id": -1 }),
            json!({ "action": "set-properties", "updates": catalog::string_map(&body["properties"], "a property")? }),
        ];
        self.exclusively(|| {
            self.with_reserved_name(ident, || {
                self.change(|state| {
                    self.namespace(state, principal, &ident.namespace)?;
                    self.refuse_taken(state, principal, ident, EntryKind::View)?;
                    let location = match body["location"].as_str() {
                        Some(location) => location.trim_end_matches('/').to_owned(),
                        None => self.store.new_location(&ident.namespace, &ident.name),
                    };
                    self.check_location(state, principal, ident, &location)?;
                    let mut change = ViewChange::new(self.store.new_uuid(), location, self.store.now_ms());
                    change.apply_all(&updates)?;
                    let view = change.finish()?.ok_or_else(|| Error::internal("a new view is no change"))?;
                    let (entry, loaded) = self.write_view(ident, &view, None)?;
                    self.plan_new(state, principal, entry, loaded)
                })
            })
        })
    }

    /// Changes a view: its query, its properties or its location.
    pub fn commit_view(&self, principal: &Principal, ident: &Ident, body: &Json) -> Result<LoadedMetadata> {
        let list = |key: &str| match &body[key] {
            Json::Null => Ok(Vec::new()),
            Json::Array(list) => Ok(list.clone()),
            _ => Err(Problem::bad(format!("`{key}` is a list"))),
        };
        let (requirements, updates) = (list("requirements")?, list("updates")?);
        let run = || {
            self.change(|state| {
                let known = self.find_view(state, principal, ident)?;
                let metadata_location = known.entry.metadata_location.clone();
                let view = ViewMetadata::parse(&self.store.read(&metadata_location)?)
                    .map_err(|e| Error::damaged(format!("the metadata of {ident} are not readable: {e}")))?;
                requirement::check_view(&requirements, &view.view_uuid)?;
                let mut change = ViewChange::of(view.clone(), self.store.now_ms());
                change.apply_all(&updates)?;
                let Some(changed) = change.finish()? else {
                    return Ok(Plan::new(Swap::default(), (loaded(&view, &metadata_location)?, None)));
                };
                if changed.location != view.location {
                    self.check_location(state, principal, ident, &changed.location)?;
                }
                let (entry, result) = self.write_view(ident, &changed, Some(&known))?;
                let written_files = vec![entry.metadata_location.clone()];
                // The new metadata does not refer to the previous file, which is removed after the commit.
                let old = (view.location, metadata_location);
                Ok(Plan { swap: Swap::replace(&known, entry), written_files, result: (result, Some(old)) })
            })
        };
        let moves = updates.iter().any(|update| update["action"] == "set-location");
        let (loaded, old) = if moves { self.exclusively(run)? } else { run()? };
        if let Some((location, file)) = old {
            self.store.remove_old(&location, &file);
        }
        Ok(loaded)
    }

    fn write_view(
        &self,
        ident: &Ident,
        view: &ViewMetadata,
        known: Option<&StoredEntry>,
    ) -> Result<(Entry, LoadedMetadata)> {
        let previous = known.map(|known| known.entry.metadata_location.as_str());
        let metadata_location = self.store.next_metadata(&view.location, &view.properties, previous)?;
        let result = loaded(view, &metadata_location)?;
        self.store.write(&metadata_location, result.metadata.as_bytes(), previous)?;
        let entry = Entry {
            kind: EntryKind::View,
            namespace: ident.namespace.clone(),
            name: ident.name.clone(),
            uuid: view.view_uuid.clone(),
            location: view.location.clone(),
            metadata_location,
            properties: Default::default(),
        };
        Ok((entry, result))
    }

    pub fn drop_view(&self, principal: &Principal, ident: &Ident) -> Result<()> {
        let entry = self.exclusively(|| {
            self.change(|state| {
                let known = self.find_view(state, principal, ident)?;
                Ok(Plan::new(Swap::remove(&known), known.entry))
            })
        })?;
        self.release_name(ident);
        self.store.remove_old(&entry.location, &entry.metadata_location);
        Ok(())
    }
}

fn loaded(view: &ViewMetadata, metadata_location: &str) -> CoreResult<LoadedMetadata> {
    Ok(LoadedMetadata {
        metadata_location: metadata_location.to_owned(),
        metadata: view.to_json()?.to_string(),
    })
}
