//! Checks the names that a transaction writes to, drops, or gives to new objects.

use types::{Error, Kind, Result, name};

use super::Preparer;
use crate::resolve::{Resolved, is_stray};

impl Preparer<'_> {
    /// Returns the full name of an object that this transaction may write to, whether or not it exists.
    pub(super) fn writable_name(&self, wanted: &str) -> Result<String> {
        let full_name = name::full_table_name(wanted)?;
        if self.internal || !name::is_reserved(&full_name) { Ok(full_name) } else { Err(reserved(full_name)) }
    }

    /// Returns the full name of an object that this transaction may drop. Besides the names that it may write to, a
    /// principal that sees everything may drop objects that are in Polynya's namespace by mistake: views, and tables whose
    /// namespace has another case.
    pub(super) fn droppable_name(&self, wanted: &str) -> Result<String> {
        let full_name = name::full_table_name(wanted)?;
        let is_mistake = match self.view.resolve(&full_name) {
            Resolved::Reserved(Some(table)) => is_stray(table.def()),
            Resolved::Reserved(None) => self.view.view(&full_name).is_some(),
            _ => false,
        };
        if is_mistake && self.view.sees_all() {
            return Ok(full_name);
        }
        self.writable_name(wanted)
    }

    /// Returns the full name that this transaction may give to a new `kind` of object: a table or a view. The caller checks
    /// whether a visible object has the name already.
    pub(super) fn new_name(&self, wanted: &str, kind: &str) -> Result<String> {
        let full_name = self.writable_name(wanted)?;
        match self.view.resolve(&full_name) {
            Resolved::Vault(_) | Resolved::Hidden => Err(self.may_not_create(kind, &full_name)),
            Resolved::Table(_) | Resolved::View(_) | Resolved::Reserved(_) | Resolved::Missing => {
                Ok(full_name)
            }
        }
    }

    pub(super) fn may_not_create(&self, kind: &str, full_name: &str) -> Error {
        let (key, shown) = (&self.principal.name, name::printable(full_name));
        Error::new(Kind::Forbidden, format!("key `{key}` may not create {kind} `{shown}`"))
    }
}

fn reserved(full_name: String) -> Error {
    Error::new(
        Kind::Forbidden,
        format!("only Polynya writes tables of the namespace `{}`", name::RESERVED_NAMESPACE),
    )
    .with("table", full_name)
    .hint("choose another namespace")
}
