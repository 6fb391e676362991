//! Views on the commit thread: a view and a table never share a name.

use std::sync::Arc;

use types::view_def::VIEWS_MAX;
use types::{Error, Kind, Result, ViewDef, name};

use super::{Action, Core};

impl Core {
    /// Returns the view of this name, ignoring case.
    pub(super) fn view_named(&self, full_name: &str) -> Option<&Arc<ViewDef>> {
        let folded = full_name.to_lowercase();
        self.meta.views.values().find(|view| view.name.to_lowercase() == folded)
    }

    /// Checks that a view may take its name. `more` names the tables that the same transaction creates.
    pub(super) fn check_view(&self, view: ViewDef, replace: bool, more: &[String]) -> Result<Action> {
        let folded = view.name.to_lowercase();
        let known = self.names.keys().map(AsRef::as_ref).chain(more.iter().map(String::as_str));
        if let Some(table) = known.into_iter().find(|known: &&str| known.to_lowercase() == folded) {
            return Err(Error::new(
                Kind::Exists,
                format!("there is a table `{}` already", name::short_table_name(table)),
            ));
        }
        match self.view_named(&view.name) {
            Some(known) if !replace || known.name != view.name => return Err(view_exists(&known.name)),
            None if self.meta.views.len() >= VIEWS_MAX => {
                return Err(Error::new(Kind::TooLarge, format!("a database has at most {VIEWS_MAX} views")));
            }
            _ => {}
        }
        Ok(Action::PutView(view))
    }

    pub(super) fn check_no_view(&self, full_name: &str) -> Result<()> {
        self.view_named(full_name).map_or(Ok(()), |view| Err(view_exists(&view.name)))
    }
}

fn view_exists(full_name: &str) -> Error {
    Error::new(Kind::Exists, format!("there is a view `{}` already", name::short_table_name(full_name)))
}
