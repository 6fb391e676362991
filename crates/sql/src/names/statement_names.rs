//! All names of tables, columns and fields that one statement knows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sqlparser::ast::{Ident, Query, Statement, TableAlias, VisitMut, VisitorMut};
use types::name;

use super::FieldNames;
use super::scope::ColumnNames;

/// The names of one statement, regardless of their position in it.
#[derive(Default)]
pub(super) struct StatementNames {
    /// True if the statement mentions a system column, so that tables show theirs.
    pub system: bool,
    /// Every name of WITH, as DataFusion gets it.
    pub ctes: BTreeSet<String>,
    /// Columns by the name or alias of their table.
    pub relations: BTreeMap<String, BTreeSet<String>>,
    /// Every column and alias.
    pub columns: BTreeSet<String>,
    pub namespaces: BTreeSet<String>,
    /// The columns of tables (not of subqueries or CTEs) by the name that `bind` gave them.
    pub by_name: BTreeMap<String, ColumnNames>,
    /// The names of fields by their path: a column, and the fields down to the one that contains them. Columns of one name share
    /// an entry.
    pub fields: BTreeMap<Vec<String>, BTreeSet<String>>,
    /// The fields of all structs: the candidates for a column that came through an alias.
    pub all_fields: BTreeSet<String>,
}

impl StatementNames {
    pub fn collect_ctes(&mut self, statement: &mut Statement) {
        struct Collect<'a>(&'a mut BTreeSet<String>);
        impl VisitorMut for Collect<'_> {
            type Break = ();
            fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
                if let Some(with) = &query.with {
                    self.0.extend(with.cte_tables.iter().map(|cte| cte.alias.name.value.clone()));
                }
                ControlFlow::Continue(())
            }
        }
        let _ = statement.visit(&mut Collect(&mut self.ctes));
    }

    pub fn add_alias(&mut self, alias: &TableAlias) {
        let columns = alias.columns.iter().map(|c| c.name.value.clone());
        let of_alias = self.relations.entry(alias.name.value.clone()).or_default();
        of_alias.extend(columns.clone());
        self.columns.extend(columns);
    }

    pub fn rename(&self, ident: &mut Ident, among: &BTreeSet<String>) -> bool {
        match pick(ident, among) {
            Some(name) => {
                ident.value.clone_from(name);
                true
            }
            None => false,
        }
    }

    pub fn add_fields(&mut self, path: &mut Vec<String>, named: &FieldNames) {
        path.push(named.name.clone());
        for field in &named.fields {
            self.fields.entry(path.clone()).or_default().insert(field.name.clone());
            self.all_fields.insert(field.name.clone());
            self.add_fields(path, field);
        }
        path.pop();
    }

    /// Replaces the fields in `column.field.field` by their exact names; the column has its exact name already.
    pub fn rename_fields(&self, path: &mut [Ident]) {
        for at in 1..path.len() {
            let within: Vec<String> = path[..at].iter().map(|ident| ident.value.clone()).collect();
            self.rename(&mut path[at], self.fields.get(&within).unwrap_or(&self.all_fields));
        }
    }

    /// Replaces the parts of `namespace.table.column` by their exact names. Returns false if `parts` is not such a name.
    pub fn full(&self, parts: &mut [Ident]) -> bool {
        let relations: BTreeSet<String> = self.relations.keys().cloned().collect();
        let [namespace, table, column, ..] = parts else { return false };
        if pick(namespace, &self.namespaces).is_none() {
            return false;
        }
        let Some(relation) = pick(table, &relations) else { return false };
        if !self.rename(column, &self.relations[relation]) {
            return false;
        }
        self.rename(namespace, &self.namespaces);
        table.value.clone_from(relation);
        self.rename_fields(&mut parts[2..]);
        true
    }
}

/// Returns the one of `names` that `ident` means: an exact match, else the only one that differs by case.
pub(super) fn pick<'a>(ident: &Ident, names: &'a BTreeSet<String>) -> Option<&'a String> {
    if let Some(exact) = names.get(&ident.value) {
        return Some(exact);
    }
    if ident.quote_style.is_some() {
        return None;
    }
    let all: Vec<&String> = names.iter().collect();
    name::resolve(&ident.value, all.iter().map(|n| n.as_str())).map(|i| all[i])
}
