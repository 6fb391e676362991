//! The names of WITH that are visible at a position in a statement: those of its own query, then those of the enclosing queries.
//!
//! A definition sees the names before its own and, under RECURSIVE, its own; the query after the definitions sees them all. So in
//! `WITH t AS (SELECT * FROM t) SELECT * FROM t` the inner `t` is the table.
//!
//! DataFusion accepts a name only once along the chain of enclosing queries. A name that hides another is therefore renamed, and
//! read under an alias with its written name.

use std::collections::BTreeSet;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query};

use super::pick;

/// Tracks the visible names of WITH while a visitor walks a statement. The visitor reports each query that it enters and leaves.
#[derive(Default)]
pub struct Ctes {
    /// The WITH clauses of the enclosing queries, the outermost first.
    around: Vec<WithScope>,
}

#[derive(Default)]
struct WithScope {
    recursive: bool,
    names: Vec<CteName>,
    /// Number of definitions that the visitor has entered, and has left. It visits them before any other query that stands
    /// directly in this one, in the order of `names`.
    entered: usize,
    left: usize,
    /// The written names that are visible at the visitor's position.
    seen: BTreeSet<String>,
}

#[derive(Clone)]
pub struct CteName {
    pub written: String,
    /// The unique name that DataFusion gets.
    pub called: String,
}

impl Ctes {
    /// Returns true if `object` is the name of a visible query in WITH.
    pub fn names(&self, object: &ObjectName) -> bool {
        matches!(object.0.as_slice(), [ObjectNamePart::Identifier(ident)] if self.find(ident).is_some())
    }

    pub fn enter(&mut self, query: &mut Query) {
        if let Some(around) = self.around.last_mut() {
            around.enter();
        }
        let mut within = WithScope::default();
        if let Some(with) = &mut query.with {
            within.recursive = with.recursive;
            for cte in &mut with.cte_tables {
                let name = &mut cte.alias.name;
                let written = name.value.clone();
                if self.is_taken(&written) {
                    *name = Ident::with_quote('"', format!("polynya {} {written}", self.around.len()));
                }
                within.names.push(CteName { written, called: name.value.clone() });
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

    /// Resolves a table name to a visible query in WITH, the innermost first.
    pub fn find(&self, ident: &Ident) -> Option<&CteName> {
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

impl WithScope {
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
