//! Namespaces: those that other engines made, and those of Polynya's own tables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};
use types::{Principal, name};

use super::names::{self, display_namespace, may_see_namespace};
use super::problem::{Problem, Result};
use super::service::{Catalog, Plan};
use super::state::{Entry, EntryKind, State, StoredEntry, Swap};

/// The result of an update of a namespace's properties: the keys by outcome.
#[derive(Debug, Default)]
pub struct Updated {
    pub updated: BTreeSet<String>,
    pub removed: BTreeSet<String>,
    pub missing: BTreeSet<String>,
}

impl Catalog {
    /// Returns the namespaces directly below `parent` (the top level if it is empty) that a principal may see.
    pub fn namespaces(&self, principal: &Principal, parent: &[String]) -> Result<BTreeSet<Vec<String>>> {
        let state = self.state();
        if !parent.is_empty() {
            self.namespace(&state, principal, parent)?;
        }
        let mut all: BTreeSet<Vec<String>> = BTreeSet::from([vec![name::DEFAULT_NAMESPACE.to_owned()]]);
        for known in state.all()? {
            all.insert(known.entry.namespace);
        }
        for table in self.engine.view(principal)?.tables() {
            if let Some((namespace, _)) = table.def().name.split_once('.')
                && self.has_lake(&table)
            {
                all.insert(vec![namespace.to_owned()]);
            }
        }
        let below = |found: &Vec<String>| found.len() > parent.len() && found.starts_with(parent);
        let children = all.into_iter().filter(below).map(|mut found| {
            found.truncate(parent.len() + 1);
            found
        });
        Ok(children.filter(|found| may_see_namespace(principal, found)).collect())
    }

    /// Returns the entry of an existing namespace; `None` if the namespace exists without an entry. Fails if it does not exist
    /// for the principal.
    pub fn namespace(
        &self,
        state: &State,
        principal: &Principal,
        namespace: &[String],
    ) -> Result<Option<StoredEntry>> {
        let missing = || Err(Problem::no_namespace(namespace));
        if !may_see_namespace(principal, namespace) {
            return missing();
        }
        if let Some(known) = state.namespace(namespace)? {
            return Ok(Some(known));
        }
        if is_default(namespace) || self.has_own_tables(principal, namespace)? { Ok(None) } else { missing() }
    }

    fn has_own_tables(&self, principal: &Principal, namespace: &[String]) -> Result<bool> {
        let [namespace] = namespace else { return Ok(false) };
        let tables = self.engine.view(principal)?.tables();
        let mut own = tables
            .iter()
            .filter(|table| table.def().name.split_once('.').is_some_and(|(of, _)| of == namespace));
        Ok(own.any(|table| self.has_lake(table)))
    }

    pub fn create_namespace(
        &self,
        principal: &Principal,
        namespace: &[String],
        properties: &BTreeMap<String, String>,
    ) -> Result<()> {
        names::check_new_namespace(namespace)?;
        if !may_see_namespace(principal, namespace) {
            return Err(Problem::forbidden(format!(
                "the key `{}` may not make the namespace {}",
                principal.name,
                display_namespace(namespace)
            )));
        }
        self.exclusively(|| {
            self.change(|state| {
                if self.namespace(state, principal, namespace).is_ok() {
                    return Err(Problem::exists(format!(
                        "Namespace already exists: {}",
                        display_namespace(namespace)
                    )));
                }
                let parent = &namespace[..namespace.len() - 1];
                if !parent.is_empty() {
                    self.namespace(state, principal, parent)?;
                }
                let entry = Entry::of_namespace(namespace.to_vec(), object(properties));
                Ok(Plan::new(Swap::add(entry), ()))
            })
        })
    }

    pub fn drop_namespace(&self, principal: &Principal, namespace: &[String]) -> Result<()> {
        self.exclusively(|| {
            self.change(|state| {
                let known = self.namespace(state, principal, namespace)?;
                let inside = |entry: &Entry| match entry.kind {
                    EntryKind::Namespace => {
                        entry.namespace.len() > namespace.len() && entry.namespace.starts_with(namespace)
                    }
                    _ => entry.namespace == namespace,
                };
                let others = state.all()?.iter().any(|known| inside(&known.entry));
                // Tables that the principal may not see count too: they would be left without a namespace.
                let prefix = format!("{}.", namespace.join("."));
                let own = namespace.len() == 1
                    && self.engine.root().tables().any(|table| table.def().name.starts_with(&prefix));
                if others || own {
                    return Err(Problem::not_empty(namespace));
                }
                if is_default(namespace) {
                    return Err(Problem::bad(format!(
                        "the namespace {} cannot be dropped",
                        display_namespace(namespace)
                    )));
                }
                let known = known.ok_or_else(|| Problem::no_namespace(namespace))?;
                Ok(Plan::new(Swap::remove(&known), ()))
            })
        })
    }

    pub fn update_namespace(
        &self,
        principal: &Principal,
        namespace: &[String],
        removals: &BTreeSet<String>,
        updates: &BTreeMap<String, String>,
    ) -> Result<Updated> {
        if let Some(both) = removals.iter().find(|key| updates.contains_key(*key)) {
            let both = name::printable(both);
            return Err(Problem::unprocessable(format!(
                "`{both}` cannot be set and removed at the same time"
            )));
        }
        self.change(|state| {
            let known = self.namespace(state, principal, namespace)?;
            let mut properties =
                known.as_ref().map(|known| known.entry.properties.clone()).unwrap_or_default();
            let mut result = Updated::default();
            for key in removals {
                let was = properties.remove(key).is_some();
                if was { &mut result.removed } else { &mut result.missing }.insert(key.clone());
            }
            result.updated = updates.keys().cloned().collect();
            properties.extend(object(updates));
            let entry = Entry::of_namespace(namespace.to_vec(), properties);
            let swap = match &known {
                Some(known) => Swap::replace(known, entry),
                None => Swap::add(entry),
            };
            Ok(Plan::new(swap, result))
        })
    }
}

fn is_default(namespace: &[String]) -> bool {
    namespace.len() == 1 && namespace[0] == name::DEFAULT_NAMESPACE
}

fn object(texts: &BTreeMap<String, String>) -> Map<String, Json> {
    texts.iter().map(|(key, value)| (key.clone(), Json::from(value.as_str()))).collect()
}
