//! Resolves a name as one principal sees it. All code that needs the meaning of a name asks here, so that every spelling of
//! it gets the same answer.

use std::sync::Arc;

use types::{TableDef, ViewDef, name};

use crate::view::View;

/// The meaning of a name, as far as one principal may know it.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// A table that the principal reads; for admins this includes vaults.
    Table(Arc<table::Snapshot>),
    /// A vault in which the principal may only search the published notes.
    Vault(Arc<table::Snapshot>),
    /// A view.
    View(Arc<ViewDef>),
    /// A name of Polynya's own namespace, with the table that has it, if the principal reads it. Only Polynya creates,
    /// changes and removes tables there.
    Reserved(Option<Arc<table::Snapshot>>),
    /// An unused name, which this principal may give to something.
    Missing,
    /// A name that is not the principal's to use. The answer does not tell whether something has it.
    Hidden,
}

impl View {
    /// Resolves a full name: the exact name, or the only one that differs from it by case.
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
        if self.may_name(full_name) && !self.is_taken(full_name) {
            Resolved::Missing
        } else {
            Resolved::Hidden
        }
    }

    /// Returns true if something that this principal does not see has the name in another spelling.
    fn is_taken(&self, full_name: &str) -> bool {
        let folded = full_name.to_lowercase();
        let is_it = |known: &str| known.to_lowercase() == folded;
        self.root().tables().any(|table| is_it(&table.def().name))
            || self.root().views().any(|view| is_it(&view.name))
    }
}

/// Returns true if the namespace of a table is Polynya's own but for the case of its letters. Earlier versions let such
/// tables be created. Rows for the table that has the name in its right case could then not be stored.
pub(crate) fn is_stray(def: &TableDef) -> bool {
    let is_own = |namespace: &str| namespace == name::RESERVED_NAMESPACE;
    name::is_reserved(&def.name) && !def.name.split_once('.').is_some_and(|(namespace, _)| is_own(namespace))
}
