//! Which names of WITH a place in a statement sees: those of its own query, then those of the queries around it.
//!
//! A definition sees the names before its own and, under RECURSIVE, its own; what follows the definitions sees them all.
//! So in `WITH t AS (SELECT * FROM t) SELECT * FROM t` the inner `t` is the table.
//!
//! DataFusion takes a name only once along the queries around a place. A name that hides another is therefore called
//! something else, and mentioned under an alias.

use std::collections::BTreeSet;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query};

use super::pick;

/// The names that are seen while a visitor goes over a statement, which tells of every query that it enters and leaves.
#[derive(Default)]
pub struct Ctes {
    /// WITH of the queries around, from the outermost inwards.
    around: Vec<With>,
}

#[derive(Default)]
struct With {
    recursive: bool,
    names: Vec<Name>,
    /// Definitions that were entered and left. A visitor meets them before every other query that stands directly in this
    /// one, in the order of `names`.
    entered: usize,
    left: usize,
    /// As they are written.
    seen: BTreeSet<String>,
}

#[derive(Clone)]
pub struct Name {
    pub written: String,
    /// What DataFusion is told.
    pub called: String,
}

impl Ctes {
    /// Whether this is one of them.
    pub fn names(&self, object: &ObjectName) -> bool {
        matches!(object.0.as_slice(), [ObjectNamePart::Identifier(ident)] if self.find(ident).is_some())
    }

    pub fn enter(&mut self, query: &mut Query) {
        if let Some(around) = self.around.last_mut() {
            around.enter();
        }
        let mut within = With::default();
        if let Some(with) = &mut query.with {
            within.recursive = with.recursive;
            for cte in &mut with.cte_tables {
                let name = &mut cte.alias.name;
                let written = name.value.clone();
                if self.is_taken(&written) {
                    *name = Ident::with_quote('"', format!("polynya {} {written}", self.around.len()));
                }
                within.names.push(Name { written, called: name.value.clone() });
            }
        }
        self.around.push(within);
    }

    pub fn leave(&mut self) {
        self.around.pop();
        if let Some(around) = self.around.last_mut() {
            around.leave();
        }
    }

    /// What is meant by the name of a table, if that is a query in WITH.
    pub fn find(&self, ident: &Ident) -> Option<&Name> {
        self.around.iter().rev().find_map(|with| {
            let written = pick(ident, &with.seen)?;
            with.names.iter().find(|name| name.written == *written)
        })
    }

    fn is_taken(&self, called: &str) -> bool {
        self.around.iter().any(|with| {
            with.names.iter().any(|name| name.called == called && with.seen.contains(&name.written))
        })
    }
}

impl With {
    fn enter(&mut self) {
        if let Some(name) = self.names.get(self.entered) {
            self.entered += 1;
            if self.recursive {
                self.seen.insert(name.written.clone());
            }
        }
    }

    fn leave(&mut self) {
        if self.left < self.entered {
            self.seen.insert(self.names[self.left].written.clone());
            self.left += 1;
        }
    }
}
