//! What an unquoted name means where it stands: a column of the tables in the same FROM, an alias of the same SELECT, or
//! a column further out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ExcludeSelectItem, Expr, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    VisitMut, VisitorMut,
};

use super::{Known, pick};

/// Names of columns; `None` where they are not known, as of a table function.
pub(super) type Columns = Option<BTreeSet<String>>;

/// What the FROM and the SELECT of one query introduce; of a UNION, all of its SELECTs.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Of this query's WITH.
    ctes: BTreeMap<String, Columns>,
    relations: BTreeMap<String, Columns>,
    /// Of all relations.
    columns: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

/// Where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Columns come before aliases.
    Inside,
    /// ORDER BY and GROUP BY: what is written exactly so, else an alias, else a column.
    Last,
}

impl Scope {
    fn add_from(&mut self, from: &[TableWithJoins], known: &Known, outer: &[Scope]) {
        for factor in from {
            self.add(&factor.relation, known, outer);
            for join in &factor.joins {
                self.add(&join.relation, known, outer);
            }
        }
    }

    fn add(&mut self, factor: &TableFactor, known: &Known, outer: &[Scope]) {
        let (called, columns) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let Some(ObjectNamePart::Identifier(last)) = name.0.last() else { return };
                (Some((last.value.clone(), alias.as_ref())), self.table(name, known, outer))
            }
            TableFactor::Derived { subquery, alias, .. } => (
                alias.as_ref().map(|a| (a.name.value.clone(), Some(a))),
                outputs(subquery, known, &self.seen(outer)),
            ),
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.add_from(std::slice::from_ref(table_with_joins), known, outer);
            }
            TableFactor::NestedJoin { alias, .. }
            | TableFactor::Table { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => {
                (alias.as_ref().map(|a| (a.name.value.clone(), Some(a))), None)
            }
            _ => (None, None),
        };
        let Some((name, alias)) = called else {
            self.columns.extend(columns.unwrap_or_default());
            return;
        };
        let columns = renamed(columns, alias);
        self.columns.extend(columns.iter().flatten().cloned());
        self.relations.insert(alias.map_or(name, |alias| alias.name.value.clone()), columns);
    }

    fn table(&self, name: &ObjectName, known: &Known, outer: &[Scope]) -> Columns {
        if let [ObjectNamePart::Identifier(ident)] = name.0.as_slice()
            && let Some(columns) =
                std::iter::once(self).chain(outer.iter().rev()).find_map(|scope| scope.ctes.get(&ident.value))
        {
            return columns.clone();
        }
        known.by_name.get(&name.to_string()).cloned()
    }

    /// The scopes that a query within this one sees.
    fn seen(&self, outer: &[Scope]) -> Vec<Scope> {
        let mut seen = outer.to_vec();
        seen.push(Scope { ctes: self.ctes.clone(), ..Scope::default() });
        seen
    }

    fn of_select(select: &Select, ctes: &BTreeMap<String, Columns>, known: &Known, outer: &[Scope]) -> Scope {
        let mut scope = Scope { ctes: ctes.clone(), ..Scope::default() };
        scope.add_from(&select.from, known, outer);
        let alias = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            _ => None,
        };
        scope.aliases.extend(select.projection.iter().filter_map(alias));
        scope
    }

    /// The columns of the answer, by which ORDER BY may call them.
    pub fn add_outputs(&mut self, body: &SetExpr, known: &Known, outer: &[Scope]) {
        let mut body = body;
        while let SetExpr::SetOperation { left, .. } = body {
            body = left.as_ref();
        }
        if let SetExpr::Select(select) = body {
            let names = select_outputs(select, &self.ctes, known, outer);
            self.aliases.extend(names.unwrap_or_default());
        }
    }

    fn column(&self, ident: &Ident, place: Place) -> Option<&String> {
        let exact = |names: &BTreeSet<String>| names.contains(&ident.value);
        match place {
            Place::Last if exact(&self.aliases) || exact(&self.columns) => None,
            Place::Last => pick(ident, &self.aliases).or_else(|| pick(ident, &self.columns)),
            Place::Inside => pick(ident, &self.columns).or_else(|| pick(ident, &self.aliases)),
        }
    }

    /// The columns that a wildcard stands for; none of those that are not known.
    pub fn wildcard(&self, item: &SelectItem) -> BTreeSet<String> {
        let (mut columns, options) = match item {
            SelectItem::Wildcard(options) => (self.columns.clone(), options),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), options) => {
                let Some(ObjectNamePart::Identifier(ident)) = object.0.last() else { return BTreeSet::new() };
                let relation = self.relation(ident).and_then(|(_, columns)| columns.clone());
                (relation.unwrap_or_default(), options)
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

    /// Whether a table, or what is called as one, has this name.
    pub fn has(&self, ident: &Ident) -> bool {
        self.relation(ident).is_some()
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

/// The columns under the names that the alias gives them.
fn renamed(columns: Columns, alias: Option<&TableAlias>) -> Columns {
    match alias {
        Some(alias) if !alias.columns.is_empty() => {
            Some(alias.columns.iter().map(|c| c.name.value.clone()).collect())
        }
        _ => columns,
    }
}

/// How the columns of a query's answer are called, as far as they can be called at all.
fn outputs(query: &Query, known: &Known, outer: &[Scope]) -> Columns {
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
    known: &Known,
    outer: &[Scope],
) -> Columns {
    let scope = Scope::of_select(select, ctes, known, outer);
    let mut names = BTreeSet::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                names.insert(alias.value.clone());
            }
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                names.insert(scope.column(ident, Place::Inside).unwrap_or(&ident.value).clone());
            }
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let last = parts.last()?;
                let relation = scope.relation(&parts[0]).and_then(|(_, columns)| columns.as_ref());
                let among = relation.unwrap_or(&scope.columns);
                names.insert(pick(last, among).unwrap_or(&last.value).clone());
            }
            SelectItem::UnnamedExpr(_) => {}
            SelectItem::Wildcard(_) => {
                if scope.relations.values().any(Option::is_none) {
                    return None;
                }
                names.extend(scope.columns.iter().cloned());
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), _) => {
                let Some(ObjectNamePart::Identifier(ident)) = object.0.last() else { return None };
                names.extend(scope.relation(ident)?.1.clone()?);
            }
            _ => return None,
        }
    }
    Some(names)
}

fn ctes(query: &Query, known: &Known, outer: &[Scope]) -> BTreeMap<String, Columns> {
    let mut seen = outer.to_vec();
    seen.push(Scope::default());
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        let columns = renamed(outputs(&cte.query, known, &seen), Some(&cte.alias));
        seen.last_mut().expect("it was pushed").ctes.insert(cte.alias.name.value.clone(), columns);
    }
    seen.pop().map(|scope| scope.ctes).unwrap_or_default()
}

/// The scope of a query as those within it see it.
pub(super) fn of_query(query: &Query, known: &Known, outer: &[Scope]) -> Scope {
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

/// The scope of one SELECT of the query whose scope is `whole`.
pub(super) fn of_select(select: &Select, whole: &Scope, known: &Known, outer: &[Scope]) -> Scope {
    Scope::of_select(select, &whole.ctes, known, outer)
}

/// Renames what stands in one part of a query, but not in the queries within it: they have their own scope.
pub(super) struct Rename<'a> {
    pub known: &'a Known,
    pub scope: &'a Scope,
    /// From the outermost query inwards.
    pub outer: &'a [Scope],
    pub place: Place,
    pub depth: usize,
}

impl Rename<'_> {
    pub fn ident(&self, ident: &mut Ident) {
        if self.place == Place::Last && self.scope.knows(ident) {
            return;
        }
        let inner = self.scope.column(ident, self.place);
        let found = inner.or_else(|| self.outer.iter().rev().find_map(|scope| pick(ident, &scope.columns)));
        match found {
            Some(name) => ident.value.clone_from(name),
            // A name that no scope explains may be one that DataFusion makes.
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
                    self.known.rename(&mut parts[1], columns.as_ref().unwrap_or(&self.known.columns));
                }
                parts[0].value.clone_from(relation);
                self.known.rename_fields(&mut parts[1..]);
            }
            // column.field
            None => {
                self.ident(&mut parts[0]);
                if self.known.columns.contains(&parts[0].value) {
                    self.known.rename_fields(parts);
                }
            }
        }
    }

    /// The fields in `list[1].field`, as DataFusion takes them: as texts.
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

/// Renames the names in one SELECT.
pub(super) fn rename_select(select: &mut Select, known: &Known, scope: &Scope, outer: &[Scope]) {
    let mut rename = Rename { known, scope, outer, place: Place::Inside, depth: 0 };
    let nothing = GroupByExpr::Expressions(Vec::new(), Vec::new());
    let mut group_by = std::mem::replace(&mut select.group_by, nothing);
    let _ = select.visit(&mut rename);
    rename.place = Place::Last;
    let _ = group_by.visit(&mut rename);
    select.group_by = group_by;
}
