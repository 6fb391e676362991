//! Binds the names in a statement. A quoted name must match exactly; an unquoted one exactly, or else it must be the only match
//! that differs by case.
//!
//! DataFusion either folds unquoted names to lower case or takes them exactly; Polynya promises neither. So DataFusion is
//! configured to take names exactly, and [`bind`] rewrites the statement first: an unquoted name that matches nothing exactly,
//! but exactly one name apart from case, becomes that name. The candidates are, query by query, the columns of the tables in
//! FROM, then the aliases of the SELECT, then the columns of the queries around it (`scope`). A qualified name is looked up
//! only among the columns of its qualifier. Names of WITH are visible query by query (`ctes`), fields of structs by the column
//! that they are in.
//!
//! `_row_id` and `_time` are columns of every table, and `*` leaves them out. A table shows them to DataFusion only in statements
//! that name one of them; there, `*` over tables becomes `* EXCLUDE (_row_id, _time)` (`wildcard`).
//!
//! Columns that USING and NATURAL JOIN merge are written out as expressions (`using`).

mod asof_join;
mod ctes;
mod order_by;
mod output;
mod scope;
mod statement_names;
mod using;
mod wildcard;

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor, Value, Visit, VisitMut,
    VisitorMut, visit_expressions,
};
use types::{Error, Lsn, ROW_ID_NAME, Result, TIME_NAME, name};

pub use ctes::Ctes;
use scope::{NamePrecedence, Rename, Scope};
use statement_names::{StatementNames, pick};
use using::VisibleColumns;

/// The name of a table in a statement: `table` or `namespace.table`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParsedTableName {
    pub namespace: Option<(String, bool)>,
    /// The name, and true if it was quoted.
    pub table: (String, bool),
}

/// The catalog that [`bind`] looks tables up in.
pub trait TableCatalog {
    /// Returns the full name and the columns of a table. With `at`, it is the table as of that lsn, and the full name contains
    /// the lsn (`namespace.table@lsn`).
    fn table(&mut self, written: &ParsedTableName, at: Option<Lsn>) -> Result<(String, Vec<FieldNames>)>;
}

/// The name of a column or of a struct's field, with the fields nested in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames {
    pub name: String,
    pub fields: Vec<FieldNames>,
}

impl ParsedTableName {
    pub fn of(object: &ObjectName) -> Result<Self> {
        let part = |part: &ObjectNamePart| match part {
            ObjectNamePart::Identifier(ident) => Ok((ident.value.clone(), ident.quote_style.is_some())),
            ObjectNamePart::Function(_) => {
                Err(Error::invalid(format!("`{object}` is not a valid table name")))
            }
        };
        match object.0.as_slice() {
            [table] => Ok(ParsedTableName { namespace: None, table: part(table)? }),
            [namespace, table] => {
                Ok(ParsedTableName { namespace: Some(part(namespace)?), table: part(table)? })
            }
            _ => Err(Error::invalid(format!("`{object}` is not a valid table name"))
                .hint("names are `table` or `namespace.table`")),
        }
    }

    /// Returns `[namespace.]table` as it was written.
    pub fn text(&self) -> String {
        match &self.namespace {
            Some((namespace, _)) => format!("{namespace}.{}", self.table.0),
            None => self.table.0.clone(),
        }
    }

    /// Returns true if a table of this full name matches: quoted parts must agree exactly.
    pub fn admits(&self, full_name: &str) -> bool {
        let (namespace, table) = full_name.split_once('.').unwrap_or((name::DEFAULT_NAMESPACE, full_name));
        let namespace_fits =
            self.namespace.as_ref().is_none_or(|(text, quoted)| !quoted || text == namespace);
        namespace_fits && (!self.table.1 || self.table.0 == table)
    }
}

/// Rewrites the names of a statement. Returns true if it mentions a system column, so that tables must show theirs.
pub fn bind(statement: &mut Statement, tables: &mut dyn TableCatalog) -> Result<bool> {
    // ASOF JOIN reads `_row_id`: of several rows of one time it takes the last one written.
    let system = mentions_system_column(statement) || asof_join::has_asof_join(statement);
    let mut known = StatementNames { system, ..StatementNames::default() };
    known.collect_ctes(statement);
    let mut relations = BindRelations { known: &mut known, tables, ctes: Ctes::default() };
    if let ControlFlow::Break(error) = statement.visit(&mut relations) {
        return Err(error);
    }
    let mut collect = CollectAliases { known: &mut known };
    let _ = statement.visit(&mut collect);
    let mut rewrite = Rewrite { known: &known, scopes: Vec::new() };
    match statement.visit(&mut rewrite) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(system),
    }
}

/// Returns up to three names similar to `wanted`, for the hint of an error: those that differ by few letters, or contain it.
pub fn similar_names<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut ranked: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|candidate| {
            let folded = candidate.to_lowercase();
            let distance = distance(&wanted, &folded);
            let close = distance <= wanted.chars().count().max(3) / 3;
            let inside = wanted.len() >= 3 && (folded.contains(&wanted) || wanted.contains(&folded));
            (close || inside).then_some((distance, candidate))
        })
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.truncate(3);
    ranked.into_iter().map(|(_, candidate)| name::printable(candidate)).collect()
}

/// Counts the letters that are added, left out, replaced, or swapped with their neighbour. Compares the first 64 letters.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let replaced = row[j] + usize::from(a[i] != b[j]);
            let least = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            let is_swapped = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
            next.push(if is_swapped { least.min(before[j - 1] + 1) } else { least });
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

pub fn is_system_column(text: &str) -> bool {
    text.eq_ignore_ascii_case(ROW_ID_NAME) || text.eq_ignore_ascii_case(TIME_NAME)
}

/// Returns true if `_row_id` or `_time` is named.
pub fn mentions_system_column(part: &impl Visit) -> bool {
    visit_expressions(part, |expr| {
        let found = match expr {
            Expr::Identifier(ident) => is_system_column(&ident.value),
            Expr::CompoundIdentifier(parts) => parts.iter().any(|ident| is_system_column(&ident.value)),
            _ => false,
        };
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .is_break()
}

/// Returns the highest `$n` of a statement; 0 if it has no parameters.
pub fn parameters(statement: &Statement) -> Result<usize> {
    let mut highest = 0;
    let broken = visit_expressions(statement, |expr| {
        let Expr::Value(value) = expr else { return ControlFlow::Continue(()) };
        let Value::Placeholder(text) = &value.value else { return ControlFlow::Continue(()) };
        match text.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) {
            Some(n @ 1..=1000) => {
                highest = highest.max(n);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(text.clone()),
        }
    });
    match broken {
        ControlFlow::Break(text) => Err(Error::invalid(format!("`{text}` is not a parameter"))
            .hint("parameters are $1, $2, … up to $1000")),
        ControlFlow::Continue(()) => Ok(highest),
    }
}

/// Pass 1: looks tables up and replaces their names by the full ones.
struct BindRelations<'a> {
    known: &'a mut StatementNames,
    tables: &'a mut dyn TableCatalog,
    ctes: Ctes,
}

impl BindRelations<'_> {
    fn bind(
        &mut self,
        object: &mut ObjectName,
        alias: &mut Option<TableAlias>,
        at: Option<Lsn>,
    ) -> Result<()> {
        if let [ObjectNamePart::Identifier(ident)] = object.0.as_mut_slice()
            && let Some(cte) = self.ctes.find(ident)
        {
            if at.is_some() {
                return Err(Error::invalid(format!("`{ident}` is a name of WITH, and AS OF is for tables"))
                    .hint("say AS OF inside the WITH"));
            }
            if cte.called == cte.written {
                ident.value.clone_from(&cte.called);
                return Ok(());
            }
            *ident = Ident::with_quote('"', &cte.called);
            alias.get_or_insert_with(|| {
                let name = Ident::with_quote('"', &cte.written);
                TableAlias { explicit: true, name, columns: Vec::new() }
            });
            return Ok(());
        }
        let written = ParsedTableName::of(object)?;
        let (full_name, named) = self.tables.table(&written, at)?;
        if at.is_some() {
            // The table keeps the name that it would have without AS OF.
            alias.get_or_insert_with(|| {
                let full_name = full_name.split_once('@').map_or(full_name.as_str(), |(name, _)| name);
                let called = full_name.rsplit('.').next().unwrap_or(full_name);
                let name = Ident::with_quote('"', called);
                TableAlias { explicit: true, name, columns: Vec::new() }
            });
        }
        for column in &named {
            self.known.add_fields(&mut Vec::new(), column);
        }
        let mut columns: Vec<String> = named.into_iter().map(|column| column.name).collect();
        if self.known.system {
            columns.extend([ROW_ID_NAME.to_owned(), TIME_NAME.to_owned()]);
        }
        let (namespace, table) = full_name.split_once('.').expect("a full name has two parts");
        // A table of the default namespace is called by its last name, unless a CTE somewhere in the statement has that name.
        let bare = namespace == name::DEFAULT_NAMESPACE && !self.known.ctes.contains(table);
        let parts = if bare { vec![table] } else { vec![namespace, table] };
        *object = ObjectName(
            parts.into_iter().map(|p| ObjectNamePart::Identifier(Ident::with_quote('"', p))).collect(),
        );
        self.known.namespaces.insert(namespace.to_owned());
        self.known.by_name.insert(object.to_string(), columns.iter().cloned().collect());
        self.known.columns.extend(columns.iter().cloned());
        self.known.relations.entry(table.to_owned()).or_default().extend(columns);
        Ok(())
    }
}

impl VisitorMut for BindRelations<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        let called = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| &cte.alias.name.value);
        self.known.ctes.extend(called.cloned());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let TableFactor::Table { name: object, alias, args, version, .. } = factor else {
            return ControlFlow::Continue(());
        };
        if args.is_some() {
            return ControlFlow::Continue(());
        }
        match crate::as_of::take_lsn(version).and_then(|at| self.bind(object, alias, at)) {
            Ok(()) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        let Some(ObjectNamePart::Identifier(last)) = object.0.last() else {
            return ControlFlow::Continue(());
        };
        let is_cte = object.0.len() == 1 && self.known.ctes.contains(&last.value);
        if let Some(alias) = alias {
            self.known.add_alias(alias);
            if !is_cte {
                let columns = self.known.relations.get(&last.value).cloned().unwrap_or_default();
                self.known.relations.entry(alias.name.value.clone()).or_default().extend(columns);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Pass 2: collects the names that the statement itself introduces.
struct CollectAliases<'a> {
    known: &'a mut StatementNames,
}

impl VisitorMut for CollectAliases<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                self.known.add_alias(&cte.alias);
            }
        }
        each_select(&mut query.body, &mut |select| {
            for item in &select.projection {
                if let SelectItem::ExprWithAlias { alias, .. } = item {
                    self.known.columns.insert(alias.value.clone());
                }
            }
        });
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        output::name_column(factor);
        match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::TableFunction { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => self.known.add_alias(alias),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Pass 3: replaces the names of columns by their exact ones, and leaves the system columns out of `*`.
struct Rewrite<'a> {
    known: &'a StatementNames,
    /// The scopes of the enclosing queries, the outermost first.
    scopes: Vec<Scope>,
}

impl Rewrite<'_> {
    fn select(&self, select: &mut Select, whole: &Scope) -> Result<(Scope, VisibleColumns)> {
        using::name_relations(select);
        let scope = scope::of_select(select, whole, self.known, &self.scopes);
        let rename = Rename {
            known: self.known,
            scope: &scope,
            outer: &self.scopes,
            precedence: NamePrecedence::ColumnsFirst,
            depth: 0,
        };
        let shown = using::spell_out(select, &scope, self.known, &self.scopes)?;
        if self.known.system {
            self.hide_system(select);
        }
        output::name(&mut select.projection);
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), _) =
                item
                && let Some(ObjectNamePart::Identifier(ident)) = object.0.last_mut()
            {
                rename.relation(ident);
            }
        }
        scope::rename_select(select, self.known, &scope, &self.scopes);
        using::merge(select, &shown, self.known, &self.scopes);
        output::make_unique(&mut select.projection, &scope);
        Ok((scope, shown))
    }

    /// Binds the names in ORDER BY, which sees the columns of the first SELECT of the body.
    fn order(&self, query: &mut Query, first: Option<(Scope, VisibleColumns)>) {
        let (Some((mut scope, shown)), Some(order_by)) = (first, &mut query.order_by) else { return };
        scope.add_outputs(&query.body, self.known, &self.scopes);
        let mut rename = Rename {
            known: self.known,
            scope: &scope,
            outer: &self.scopes,
            precedence: NamePrecedence::AliasesFirst,
            depth: 0,
        };
        let _ = order_by.visit(&mut rename);
        using::merge_order(query, &shown, &scope, self.known, &self.scopes);
        order_by::read_columns(query, &scope);
    }

    fn hide_system(&self, select: &mut Select) {
        wildcard::hide_system(select, |relation| self.has_system(relation));
    }

    /// Returns true if a relation is a table that has system columns.
    fn has_system(&self, relation: &TableFactor) -> bool {
        let TableFactor::Table { name: object, args: None, .. } = relation else { return false };
        match object.0.as_slice() {
            [ObjectNamePart::Identifier(table)] => !self.known.ctes.contains(&table.value),
            [ObjectNamePart::Identifier(namespace), _] => namespace.value != "information_schema",
            _ => false,
        }
    }
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator as Op;
    match operator {
        Op::Join(c) | Op::Inner(c) | Op::Left(c) | Op::LeftOuter(c) | Op::Right(c) | Op::RightOuter(c) => {
            Some(c)
        }
        Op::FullOuter(c) | Op::Semi(c) | Op::LeftSemi(c) | Op::RightSemi(c) => Some(c),
        Op::Anti(c) | Op::LeftAnti(c) | Op::RightAnti(c) => Some(c),
        _ => None,
    }
}

fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator as Op;
    match operator {
        Op::Join(c) | Op::Inner(c) | Op::Left(c) | Op::LeftOuter(c) | Op::Right(c) | Op::RightOuter(c) => {
            Some(c)
        }
        Op::FullOuter(c) | Op::Semi(c) | Op::LeftSemi(c) | Op::RightSemi(c) => Some(c),
        Op::Anti(c) | Op::LeftAnti(c) | Op::RightAnti(c) => Some(c),
        _ => None,
    }
}

impl VisitorMut for Rewrite<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        output::name_recursive(query);
        let whole = scope::of_query(query, self.known, &self.scopes);
        let (mut first, mut refused) = (None, None);
        each_select(&mut query.body, &mut |select| match self.select(select, &whole) {
            Ok(names) => {
                first.get_or_insert(names);
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        });
        if let Some(error) = refused {
            return ControlFlow::Break(error);
        }
        self.order(query, first);
        self.scopes.push(whole);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }
}

/// Visits the SELECTs of one query's body; queries nested in it are visited on their own.
pub fn each_select(body: &mut SetExpr, visit: &mut dyn FnMut(&mut Select)) {
    match body {
        SetExpr::Select(select) => visit(select),
        SetExpr::SetOperation { left, right, .. } => {
            each_select(left, visit);
            each_select(right, visit);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
