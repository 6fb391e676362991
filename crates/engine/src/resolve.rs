//! What a name stands for, as one principal sees it. Whoever has to know what a name is asks here, so that every spelling of
//! it gets the same answer.

use std::sync::Arc;

use types::{TableDef, ViewDef, name};

use crate::view::View;

/// What has a name, as far as one principal is told.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// A table that it reads; for admins vaults are among them.
    Table(Arc<table::Snapshot>),
    /// A vault of which it may only search what is published.
    Vault(Arc<table::Snapshot>),
    /// A view.
    View(Arc<ViewDef>),
    /// A name of Polynya's own namespace, and the table that has it, if there is one that it reads. Polynya alone makes,
    /// changes and removes what is there.
    Reserved(Option<Arc<table::Snapshot>>),
    /// Nothing has this name, and this principal may give it to something.
    Missing,
    /// A name that is none of its own: whether something has it is not told.
    Hidden,
}

impl View {
    /// What this full name stands for: exactly, or as the only one that differs by case.
    pub fn resolve(&self, full_name: &str) -> Resolved {
        if name::is_reserved(full_name) {
            return Resolved::Reserved(self.find(full_name));
        }
        if let Some(table) = self.find(full_name) {
            return Resolved::Table(table);
        }
        if let Some(view) = self.view(full_name) {
            return Resolved::View(view);
        }
        if let Ok(vault) = self.searchable(full_name) {
            return Resolved::Vault(vault);
        }
        match self.may_name(full_name) && !self.is_taken(full_name) {
            true => Resolved::Missing,
            false => Resolved::Hidden,
        }
    }

    /// Whether something that this principal does not see has the name in another spelling.
    fn is_taken(&self, full_name: &str) -> bool {
        let folded = full_name.to_lowercase();
        let is_it = |known: &str| known.to_lowercase() == folded;
        self.root().tables().any(|table| is_it(&table.def().name))
            || self.root().views().any(|view| is_it(&view.name))
    }
}

/// Whether a table stands in Polynya's own namespace by the case of its name alone. Earlier versions let such tables be made, and
/// what is kept in the table that has the name in its right case could then not be kept.
pub(crate) fn is_stray(def: &TableDef) -> bool {
    let is_own = |namespace: &str| namespace == name::RESERVED_NAMESPACE;
    name::is_reserved(&def.name) && !def.name.split_once('.').is_some_and(|(namespace, _)| is_own(namespace))
}
