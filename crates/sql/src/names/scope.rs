//! Resolves an unquoted name by its position: to a column of the tables in the same FROM, an alias of the same SELECT, or a
//! column of an enclosing query.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Deref};

use sqlparser::ast::{
    AccessExpr, ExcludeSelectItem, Expr, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    VisitMut, VisitorMut,
};

use super::{StatementNames, output, pick, wildcard};

/// Names of columns; `None` if they are not known, which is the case for a table function.
pub(super) type Columns = Option<ColumnNames>;

#[derive(Clone, Debug)]
pub(super) struct ColumnNames {
    all: BTreeSet<String>,
    in_order: Vec<String>,
    /// True if `in_order` lists all columns in their order.
    whole: bool,
}

impl ColumnNames {
    /// Returns all names in their order, if that is known.
    pub fn in_order(&self) -> Option<&[String]> {
        self.whole.then_some(self.in_order.as_slice())
    }

    fn insert(&mut self, name: String) {
        // DataFusion or [`output`] will call a second column of one name differently.
        self.whole &= self.all.insert(name.clone());
        self.in_order.push(name);
    }

    fn append(&mut self, others: &ColumnNames) {
        others.in_order.iter().cloned().for_each(|name| self.insert(name));
        self.whole &= others.whole;
    }
}

impl FromIterator<String> for ColumnNames {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        let mut all = ColumnNames { all: BTreeSet::new(), in_order: Vec::new(), whole: true };
        names.into_iter().for_each(|name| all.insert(name));
        all
    }
}

impl Deref for ColumnNames {
    type Target = BTreeSet<String>;

    fn deref(&self) -> &BTreeSet<String> {
        &self.all
    }
}

/// The names that the FROM and the SELECT of one query introduce; for a UNION, those of all its SELECTs.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Names that this query's WITH defines, with their columns.
    ctes: BTreeMap<String, Columns>,
    relations: BTreeMap<String, Columns>,
    /// The columns of all relations.
    columns: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

/// The order in which a name is looked up, which depends on the clause that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamePrecedence {
    /// Columns before aliases: in every clause but ORDER BY and GROUP BY.
    ColumnsFirst,
    /// In ORDER BY and GROUP BY: an exact match is left as it is; else an alias, else a column.
    AliasesFirst,
}

impl Scope {
    fn add_from(&mut self, from: &[TableWithJoins], known: &StatementNames, outer: &[Scope]) {
        for factor in from {
            self.add(&factor.relation, known, outer);
            for join in &factor.joins {
                self.add(&join.relation, known, outer);
            }
        }
    }

    fn add(&mut self, factor: &TableFactor, known: &StatementNames, outer: &[Scope]) {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.add_from(std::slice::from_ref(table_with_joins), known, outer);
        }
        let (called, columns) = self.relation_of(factor, known, outer);
        self.columns.extend(columns.iter().flat_map(|names| names.iter()).cloned());
        if let Some(called) = called {
            self.relations.insert(called, columns);
        }
    }

    /// Returns a relation's name, if it has one, and its columns.
    pub fn relation_of(
        &self,
        factor: &TableFactor,
        known: &StatementNames,
        outer: &[Scope],
    ) -> (Option<String>, Columns) {
        let (called, columns) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let Some(ObjectNamePart::Identifier(last)) = name.0.last() else { return (None, None) };
                (Some((last.value.clone(), alias.as_ref())), self.table(name, known, outer))
            }
            TableFactor::Derived { subquery, alias, .. } => (
                alias.as_ref().map(|a| (a.name.value.clone(), Some(a))),
                outputs(subquery, known, &self.seen(outer)),
            ),
            TableFactor::NestedJoin { alias, .. }
            | TableFactor::Table { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => {
                (alias.as_ref().map(|a| (a.name.value.clone(), Some(a))), None)
            }
            _ => (None, None),
        };
        match called {
            Some((name, alias)) => {
                (Some(alias.map_or(name, |alias| alias.name.value.clone())), renamed(columns, alias))
            }
            None => (None, columns),
        }
    }

    fn table(&self, name: &ObjectName, known: &StatementNames, outer: &[Scope]) -> Columns {
        if let [ObjectNamePart::Identifier(ident)] = name.0.as_slice()
            && let Some(columns) =
                std::iter::once(self).chain(outer.iter().rev()).find_map(|scope| scope.ctes.get(&ident.value))
        {
            return columns.clone();
        }
        known.by_name.get(&name.to_string()).cloned()
    }

    /// The scopes that a query nested in this one sees.
    fn seen(&self, outer: &[Scope]) -> Vec<Scope> {
        let mut seen = outer.to_vec();
        seen.push(Scope { ctes: self.ctes.clone(), ..Scope::default() });
        seen
    }

    fn of_select(
        select: &Select,
        ctes: &BTreeMap<String, Columns>,
        known: &StatementNames,
        outer: &[Scope],
    ) -> Scope {
        let mut scope = Scope { ctes: ctes.clone(), ..Scope::default() };
        scope.add_from(&select.from, known, outer);
        let alias = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            _ => None,
        };
        scope.aliases.extend(select.projection.iter().filter_map(alias));
        scope
    }

    /// Adds the output columns of the query, which ORDER BY may name.
    pub fn add_outputs(&mut self, body: &SetExpr, known: &StatementNames, outer: &[Scope]) {
        let mut body = body;
        while let SetExpr::SetOperation { left, .. } = body {
            body = left.as_ref();
        }
        if let SetExpr::Select(select) = body {
            let names = select_outputs(select, &self.ctes, known, outer);
            self.aliases.extend(names.iter().flat_map(|names| names.iter()).cloned());
        }
    }

    fn column(&self, ident: &Ident, precedence: NamePrecedence) -> Option<&String> {
        let exact = |names: &BTreeSet<String>| names.contains(&ident.value);
        match precedence {
            NamePrecedence::AliasesFirst if exact(&self.aliases) || exact(&self.columns) => None,
            NamePrecedence::AliasesFirst => pick(ident, &self.aliases).or_else(|| pick(ident, &self.columns)),
            NamePrecedence::ColumnsFirst => pick(ident, &self.columns).or_else(|| pick(ident, &self.aliases)),
        }
    }

    /// Returns the columns that a wildcard stands for, as far as they are known.
    pub fn wildcard(&self, item: &SelectItem) -> BTreeSet<String> {
        let (mut columns, options) = match item {
            SelectItem::Wildcard(options) => (self.columns.clone(), options),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), options) => {
                let Some(ObjectNamePart::Identifier(ident)) = object.0.last() else { return BTreeSet::new() };
                let relation = self.relation(ident).and_then(|(_, columns)| columns.clone());
                (relation.map(|names| names.all).unwrap_or_default(), options)
            }
            _ => return BTreeSet::new(),
        };
        match &options.opt_exclude {
            Some(ExcludeSelectItem::Single(column)) => columns.retain(|name| *name != column.value),
            Some(ExcludeSelectItem::Multiple(all)) => {
                columns.retain(|name| all.iter().all(|c| c.value != *name))
            }
            None => {}
        }
        if let Some(except) = &options.opt_except {
            columns.remove(&except.first_element.value);
            columns.retain(|name| except.additional_elements.iter().all(|column| column.value != *name));
        }
        columns
    }

    /// Returns true if a relation of this query has this name or alias.
    pub fn has(&self, ident: &Ident) -> bool {
        self.relation(ident).is_some()
    }

    /// Returns true if this query binds an unqualified name, so that no enclosing query does.
    pub fn binds(&self, ident: &Ident) -> bool {
        pick(ident, &self.columns).is_some() || pick(ident, &self.aliases).is_some() || self.has(ident)
    }

    /// Returns true if a relation is known to have a column of this name.
    pub fn has_column(&self, name: &str) -> bool {
        self.columns.contains(name)
    }

    fn knows(&self, ident: &Ident) -> bool {
        self.columns.contains(&ident.value) || self.aliases.contains(&ident.value)
    }

    fn relation(&self, ident: &Ident) -> Option<(&String, &Columns)> {
        let names: BTreeSet<String> = self.relations.keys().cloned().collect();
        let name = pick(ident, &names)?;
        self.relations.get_key_value(name)
    }
}

/// Applies the column names of an alias, if it has any.
fn renamed(columns: Columns, alias: Option<&TableAlias>) -> Columns {
    match alias {
        Some(alias) if !alias.columns.is_empty() => {
            Some(alias.columns.iter().map(|c| c.name.value.clone()).collect())
        }
        _ => columns,
    }
}

/// Returns the names of a query's output columns, as far as they are known.
fn outputs(query: &Query, known: &StatementNames, outer: &[Scope]) -> Columns {
    let ctes = ctes(query, known, outer);
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            SetExpr::Query(query) => {
                let mut seen = outer.to_vec();
                seen.push(Scope { ctes, ..Scope::default() });
                return outputs(query, known, &seen);
            }
            SetExpr::Select(select) => return select_outputs(select, &ctes, known, outer),
            _ => return None,
        }
    }
}

fn select_outputs(
    select: &Select,
    ctes: &BTreeMap<String, Columns>,
    known: &StatementNames,
    outer: &[Scope],
) -> Columns {
    let scope = Scope::of_select(select, ctes, known, outer);
    let mut names = ColumnNames::from_iter([]);
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                names.insert(alias.value.clone());
            }
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                names.insert(
                    scope.column(ident, NamePrecedence::ColumnsFirst).unwrap_or(&ident.value).clone(),
                );
            }
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let last = parts.last()?;
                let relation = scope.relation(&parts[0]).and_then(|(_, columns)| columns.as_ref());
                let among = relation.map_or(&scope.columns, |names| &names.all);
                names.insert(pick(last, among).unwrap_or(&last.value).clone());
            }
            SelectItem::UnnamedExpr(expr) => names.insert(output::output_name(expr)),
            SelectItem::Wildcard(options) => {
                if scope.relations.values().any(Option::is_none) {
                    return None;
                }
                match scope.relations.values().next() {
                    Some(Some(only)) if scope.relations.len() == 1 && only.len() == scope.columns.len() => {
                        names.append(only);
                    }
                    _ => {
                        scope.columns.iter().cloned().for_each(|name| names.insert(name));
                        names.whole = false;
                    }
                }
                names.whole &= wildcard::has_no_exclusions(options);
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), options) => {
                let Some(ObjectNamePart::Identifier(ident)) = object.0.last() else { return None };
                names.append(scope.relation(ident)?.1.as_ref()?);
                names.whole &= wildcard::has_no_exclusions(options);
            }
            _ => return None,
        }
    }
    Some(names)
}

fn ctes(query: &Query, known: &StatementNames, outer: &[Scope]) -> BTreeMap<String, Columns> {
    let mut seen = outer.to_vec();
    seen.push(Scope::default());
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        let columns = renamed(outputs(&cte.query, known, &seen), Some(&cte.alias));
        seen.last_mut().expect("it was pushed").ctes.insert(cte.alias.name.value.clone(), columns);
    }
    seen.pop().map(|scope| scope.ctes).unwrap_or_default()
}

/// Builds the scope of a query as its nested queries see it.
pub(super) fn of_query(query: &Query, known: &StatementNames, outer: &[Scope]) -> Scope {
    let mut scope = Scope { ctes: ctes(query, known, outer), ..Scope::default() };
    let mut bodies = vec![query.body.as_ref()];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::Select(select) => scope.add_from(&select.from, known, outer),
            SetExpr::SetOperation { left, right, .. } => bodies.extend([left.as_ref(), right.as_ref()]),
            _ => {}
        }
    }
    scope
}

/// Builds the scope of a query including its output columns, which the query itself may name.
pub(super) fn with_outputs(query: &Query, known: &StatementNames, outer: &[Scope]) -> Scope {
    let mut scope = of_query(query, known, outer);
    scope.add_outputs(&query.body, known, outer);
    scope
}

/// Builds the scope of one SELECT of the query whose scope is `whole`.
pub(super) fn of_select(select: &Select, whole: &Scope, known: &StatementNames, outer: &[Scope]) -> Scope {
    Scope::of_select(select, &whole.ctes, known, outer)
}

/// Replaces the names in one part of a query by the exact ones. Nested queries are skipped: they have a scope of their own.
pub(super) struct Rename<'a> {
    pub known: &'a StatementNames,
    pub scope: &'a Scope,
    /// The scopes of the enclosing queries, the outermost first.
    pub outer: &'a [Scope],
    pub precedence: NamePrecedence,
    pub depth: usize,
}

impl Rename<'_> {
    pub fn ident(&self, ident: &mut Ident) {
        if self.precedence == NamePrecedence::AliasesFirst && self.scope.knows(ident) {
            return;
        }
        let inner = self.scope.column(ident, self.precedence);
        let found = inner.or_else(|| self.outer.iter().rev().find_map(|scope| pick(ident, &scope.columns)));
        match found {
            Some(name) => ident.value.clone_from(name),
            // DataFusion may have made up a name that is in no scope.
            None => {
                self.known.rename(ident, &self.known.columns);
            }
        }
    }

    fn compound(&self, parts: &mut [Ident]) {
        if parts.len() >= 3 && self.known.full(parts) {
            return;
        }
        let scopes = std::iter::once(self.scope).chain(self.outer.iter().rev());
        let found = scopes.into_iter().find_map(|scope| scope.relation(&parts[0]));
        match found {
            Some((relation, columns)) => {
                if parts.len() > 1 {
                    let among = columns.as_ref().map_or(&self.known.columns, |names| &names.all);
                    self.known.rename(&mut parts[1], among);
                }
                parts[0].value.clone_from(relation);
                self.known.rename_fields(&mut parts[1..]);
            }
            // The first part is a column, and the others are fields: `column.field`.
            None => {
                self.ident(&mut parts[0]);
                if self.known.columns.contains(&parts[0].value) {
                    self.known.rename_fields(parts);
                }
            }
        }
    }

    /// Turns the fields in `list[1].field` into text literals, the form that DataFusion takes.
    fn access(&self, chain: &mut [AccessExpr]) {
        for access in chain {
            if let AccessExpr::Dot(Expr::Identifier(field)) = access {
                self.known.rename(field, &self.known.all_fields);
                let text = Value::SingleQuotedString(std::mem::take(&mut field.value));
                *access = AccessExpr::Dot(Expr::Value(text.into()));
            }
        }
    }

    pub fn relation(&self, ident: &mut Ident) {
        if let Some((relation, _)) = self.scope.relation(ident) {
            ident.value.clone_from(relation);
        }
    }
}

impl VisitorMut for Rename<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            _ if self.depth > 0 => {}
            Expr::Identifier(ident) => self.ident(ident),
            Expr::CompoundIdentifier(parts) => self.compound(parts),
            Expr::CompoundFieldAccess { access_chain, .. } => self.access(access_chain),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Replaces the names in one SELECT by the exact ones.
pub(super) fn rename_select(select: &mut Select, known: &StatementNames, scope: &Scope, outer: &[Scope]) {
    let mut rename = Rename { known, scope, outer, precedence: NamePrecedence::ColumnsFirst, depth: 0 };
    let nothing = GroupByExpr::Expressions(Vec::new(), Vec::new());
    let mut group_by = std::mem::replace(&mut select.group_by, nothing);
    let _ = select.visit(&mut rename);
    rename.precedence = NamePrecedence::AliasesFirst;
    let _ = group_by.visit(&mut rename);
    select.group_by = group_by;
}
