//! Expands views: replaces each in a statement by its query, before names are bound.
//!
//! The text of a view names its tables in full, so that no name of WITH around it can hide them. Views over views are expanded
//! recursively, at most [`DEPTH_MAX`] deep.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Statement, TableAlias, TableFactor, TableVersion, VisitMut,
    VisitorMut,
};
use engine::View;
use sql::as_of;
use sql::names::{Ctes, ParsedTableName};
use sql::parse;
use types::{Error, Kind, Result, TableDef, ViewDef, name};

use super::{reads, unreadable};
use crate::index_advice::IndexAdvice;

/// Levels of views over views.
const DEPTH_MAX: usize = 8;
/// Number of expansions in one statement, including those inside views.
const EXPANSIONS_MAX: usize = 64;

/// An expanded view, and its name as the statement wrote it.
pub(crate) type ExpandedView = (ParsedTableName, Arc<ViewDef>);

/// Expands the views that a statement names, and returns them, outer ones before inner ones. `within` is the view that is being
/// created from the statement.
pub(crate) fn expand(
    statement: &mut Statement,
    view: &View,
    bytes_max: usize,
    within: Option<&ViewDef>,
) -> Result<Vec<ExpandedView>> {
    if view.views().is_empty() {
        return Ok(Vec::new());
    }
    let around = within.map(|def| Some(Arc::new(def.clone()))).into_iter().collect();
    let mut expand = Expand { view, bytes_max, ctes: Ctes::default(), around, expanded: 0, used: Vec::new() };
    match statement.visit(&mut expand) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(expand.used),
    }
}

/// Returns the query of a view. It has the columns that the view had when it was created, even if its tables have more now.
pub(crate) fn query_of(def: &ViewDef, bytes_max: usize) -> Result<Query> {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let columns: Vec<String> =
        def.columns.iter().map(|c| format!("{} AS {}", quoted(&c.from), quoted(&c.name))).collect();
    let short = name::short_table_name(&def.name);
    let text = format!("SELECT {} FROM ({}) AS {}", columns.join(", "), def.query, quoted(short));
    match parse::statement(&text, bytes_max) {
        Ok(Statement::Query(query)) => Ok(*query),
        Ok(_) => Err(Error::internal(format!("view `{short}` is not a query"))),
        Err(error) => Err(error.with("view", short)),
    }
}

/// Replaces the names of tables and views in a query by their full names, and refuses unknown ones. `view` is the snapshot of the
/// view's creator. Returns the tables, each once.
pub(crate) fn qualify(query: &mut Query, view: &View) -> Result<Vec<Arc<TableDef>>> {
    let mut qualify = Qualify { view, ctes: Ctes::default(), tables: Vec::new() };
    match query.visit(&mut qualify) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(qualify.tables),
    }
}

struct Expand<'a> {
    view: &'a View,
    bytes_max: usize,
    ctes: Ctes,
    /// The table factors that the visitor is in; for each the view that it was, if it was one.
    around: Vec<Option<Arc<ViewDef>>>,
    expanded: usize,
    used: Vec<ExpandedView>,
}

impl Expand<'_> {
    fn expand_factor(&mut self, factor: &mut TableFactor) -> Result<Option<Arc<ViewDef>>> {
        let TableFactor::Table { name: object, alias, args: None, version, .. } = factor else {
            return Ok(None);
        };
        if let [ObjectNamePart::Identifier(ident)] = object.0.as_slice()
            && self.ctes.find(ident).is_some()
        {
            return Ok(None);
        }
        let written = ParsedTableName::of(object)?;
        let Some(def) = self.view.view(&written.text()).filter(|def| written.admits(&def.name)) else {
            return Ok(None);
        };
        let short = name::printable(name::short_table_name(&def.name));
        if self.around.iter().flatten().any(|around| around.name == def.name) {
            return Err(Error::new(Kind::Schema, format!("view `{short}` reads itself"))
                .hint("CREATE OR REPLACE VIEW one of those that read each other"));
        }
        self.expanded += 1;
        if self.around.iter().flatten().count() >= DEPTH_MAX || self.expanded > EXPANSIONS_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!(
                    "views may be nested {DEPTH_MAX} deep and expanded {EXPANSIONS_MAX} times in a statement; `{short}` is one more"
                ),
            ));
        }
        self.check(&def, version).map_err(|error| unreadable(&def, self.view, error))?;
        let called = def.name.rsplit('.').next().unwrap_or_default();
        let alias = alias.take().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', called),
            columns: Vec::new(),
        });
        let mut subquery = Box::new(query_of(&def, self.bytes_max)?);
        if let Some(version) = version {
            as_of::apply_to_query(&mut subquery, version);
        }
        *factor = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
        if self.used.iter().all(|(_, known)| known.name != def.name) {
            self.used.push((written, def.clone()));
        }
        Ok(Some(def))
    }

    /// Checks that the view's names have the same meaning as when it was created, at the point in time of the read.
    fn check(&self, def: &ViewDef, version: &Option<TableVersion>) -> Result<()> {
        match as_of::take_lsn(&mut version.clone())? {
            Some(lsn) => reads::check(def, &self.view.at(lsn)?),
            None => reads::check(def, self.view),
        }
    }
}

impl VisitorMut for Expand<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        // The names of WITH are assigned later, when names are bound.
        self.ctes.enter(&mut query.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.expand_factor(factor) {
            Ok(expanded) => {
                self.around.push(expanded);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<Error> {
        self.around.pop();
        ControlFlow::Continue(())
    }
}

struct Qualify<'a> {
    view: &'a View,
    ctes: Ctes,
    tables: Vec<Arc<TableDef>>,
}

impl Qualify<'_> {
    fn qualify(&mut self, object: &mut ObjectName) -> Result<()> {
        if let [ObjectNamePart::Identifier(ident)] = object.0.as_slice()
            && self.ctes.find(ident).is_some()
        {
            return Ok(());
        }
        let written = ParsedTableName::of(object)?;
        let full_name = match self.view.view(&written.text()).filter(|def| written.admits(&def.name)) {
            Some(def) => def.name.clone(),
            None if crate::catalog::information_table(
                self.view,
                None,
                &IndexAdvice::default(),
                &written,
            )?
            .is_some() =>
            {
                return Ok(());
            }
            None => {
                let snapshot = crate::planner::resolve_table(self.view, &written)?;
                let def = snapshot.def();
                if self.tables.iter().all(|known| known.id != def.id) {
                    self.tables.push(def.clone());
                }
                def.name.clone()
            }
        };
        let parts = full_name.split('.').map(|part| ObjectNamePart::Identifier(Ident::with_quote('"', part)));
        *object = ObjectName(parts.collect());
        Ok(())
    }
}

impl VisitorMut for Qualify<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(&mut query.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::Table { name: object, args: None, .. } => match self.qualify(object) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}
