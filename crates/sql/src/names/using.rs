//! Rewrites JOIN … USING and NATURAL JOIN: the join gets an ON, and each merged column becomes an expression in every place that
//! names it.
//!
//! DataFusion takes a merged column from the left side, even for rows of a RIGHT or FULL JOIN that have no left side. In SQL it
//! is the left side's column for an inner or LEFT JOIN, the right side's for a RIGHT JOIN, and the first that is not null for a
//! FULL JOIN. `*` gives the merged columns first, then the other columns of both sides.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins,
    Value, VisitMut, VisitorMut,
};
use types::{Error, Result};

use super::scope::{self, Columns, Scope};
use super::statement_names::pick;
use super::wildcard::{has_no_exclusions, idents, relation_name, star_of};
use super::{StatementNames, constraint, constraint_mut, is_system_column, output};

/// Relations that one merged column may come from: its expression names them all, in every place that names the column.
const MERGED_MAX: usize = 16;

/// The columns that the FROM of a SELECT shows, in the order of `*`. Empty if no columns are merged.
#[derive(Default)]
pub(super) struct VisibleColumns(Vec<FromColumns>);

enum FromColumns {
    Merged(MergedColumn),
    /// The columns of a relation that are not merged.
    Rest(RelationColumns),
}

struct MergedColumn {
    name: String,
    /// The source columns; the merged value is the first that is not null.
    of: Vec<Expr>,
}

struct RelationColumns {
    relation: ObjectName,
    columns: Columns,
    merged: Vec<String>,
}

/// The side of a join whose value a merged column has.
enum Side {
    Left,
    Right,
    Either,
}

/// Gives every relation of a FROM that merges columns a name. A join in brackets with an alias becomes a subquery.
pub(super) fn name_relations(select: &mut Select) {
    fn name(from: &mut TableWithJoins, count: &mut usize) {
        let factors =
            std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|j| &mut j.relation));
        for factor in factors {
            let alias = match factor {
                TableFactor::NestedJoin { table_with_joins, alias: None } => {
                    name(table_with_joins, count);
                    continue;
                }
                TableFactor::NestedJoin { table_with_joins, alias } if merges(table_with_joins) => {
                    let alias = alias.take();
                    let relation =
                        TableFactor::NestedJoin { table_with_joins: table_with_joins.clone(), alias: None };
                    let subquery = Box::new(output::bare(output::all_of(relation)));
                    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
                    continue;
                }
                TableFactor::Table { args: Some(_), alias, .. }
                | TableFactor::Derived { alias, .. }
                | TableFactor::TableFunction { alias, .. }
                | TableFactor::Function { alias, .. }
                | TableFactor::UNNEST { alias, .. } => alias,
                _ => continue,
            };
            alias.get_or_insert_with(|| {
                *count += 1;
                let name = Ident::with_quote('"', format!("polynya side {count}"));
                TableAlias { explicit: true, name, columns: Vec::new() }
            });
        }
    }
    if select.from.iter().any(merges) {
        let mut count = 0;
        select.from.iter_mut().for_each(|from| name(from, &mut count));
    }
}

/// Gives the joins an ON, and replaces `*` by the columns that it shows.
pub(super) fn spell_out(
    select: &mut Select,
    scope: &Scope,
    known: &StatementNames,
    outer: &[Scope],
) -> Result<VisibleColumns> {
    let mut shown = VisibleColumns::default();
    if !select.from.iter().any(merges) {
        return Ok(shown);
    }
    let join = JoinRewriter { scope, known, outer };
    for from in &mut select.from {
        shown.0.extend(join.all(from)?.0);
    }
    let mut projection = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if has_no_exclusions(&options) => projection.extend(shown.star()),
            SelectItem::Wildcard(_) => {
                let error = Error::invalid("`*` leaves no columns out beside USING or NATURAL JOIN");
                return Err(error.hint("name the columns"));
            }
            other => projection.push(other),
        }
    }
    select.projection = projection;
    Ok(shown)
}

/// Replaces the names of merged columns by their expressions, after names are bound; in nested queries too, unless these have a
/// column of that name. The FROM needs no change: its names occur only in ON, which [`spell_out`] wrote.
pub(super) fn merge(select: &mut Select, shown: &VisibleColumns, known: &StatementNames, outer: &[Scope]) {
    if shown.0.is_empty() {
        return;
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(ident)) = item
            && let Some(merged) = shown.merged(ident, true)
        {
            *item = merged.item();
        }
    }
    let from = std::mem::take(&mut select.from);
    let _ = select.visit(&mut MergeNames::of(shown, known, outer, true));
    select.from = from;
}

/// Replaces the names of merged columns in the ORDER BY of a query that is one SELECT. An item that is only a name means an
/// output column first; it gets its qualifier, because DataFusion also looks into the FROM.
pub(super) fn merge_order(
    query: &mut Query,
    shown: &VisibleColumns,
    scope: &Scope,
    known: &StatementNames,
    outer: &[Scope],
) {
    let (false, SetExpr::Select(select)) = (shown.0.is_empty(), query.body.as_ref()) else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &mut query.order_by else { return };
    for item in order {
        let Expr::Identifier(ident) = &item.expr else {
            let _ = item.expr.visit(&mut MergeNames::of(shown, known, outer, true));
            continue;
        };
        let output = select.projection.iter().find_map(|output| match output {
            SelectItem::ExprWithAlias { alias, .. } => (alias.value == ident.value).then_some(None),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                (parts.last()?.value == ident.value).then(|| Some(parts.clone()))
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(relation), _) => {
                let has = scope.wildcard(output).contains(&ident.value);
                has.then(|| Some(idents(relation).into_iter().chain([ident.clone()]).collect()))
            }
            _ => None,
        });
        match output {
            Some(None) => {}
            Some(Some(column)) => item.expr = Expr::CompoundIdentifier(column),
            None => {
                let _ = item.expr.visit(&mut MergeNames::of(shown, known, outer, true));
            }
        }
    }
}

struct JoinRewriter<'a> {
    scope: &'a Scope,
    known: &'a StatementNames,
    outer: &'a [Scope],
}

impl JoinRewriter<'_> {
    fn all(&self, from: &mut TableWithJoins) -> Result<VisibleColumns> {
        let mut left = self.relation(&mut from.relation)?;
        for join in &mut from.joins {
            let right = self.relation(&mut join.relation)?;
            left = self.join(left, right, join)?;
        }
        Ok(left)
    }

    fn relation(&self, factor: &mut TableFactor) -> Result<VisibleColumns> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.all(table_with_joins);
        }
        let unnamed =
            || Error::invalid(format!("`{factor}` has no name beside USING")).hint("name it with AS");
        let relation = relation_name(factor).ok_or_else(unnamed)?;
        let (_, columns) = self.scope.relation_of(factor, self.known, self.outer);
        Ok(VisibleColumns(vec![FromColumns::Rest(RelationColumns { relation, columns, merged: Vec::new() })]))
    }

    fn join(
        &self,
        mut left: VisibleColumns,
        mut right: VisibleColumns,
        join: &mut Join,
    ) -> Result<VisibleColumns> {
        use JoinOperator as Op;
        let operator = &mut join.join_operator;
        let side = match operator {
            Op::Right(_) | Op::RightOuter(_) | Op::RightSemi(_) | Op::RightAnti(_) => Side::Right,
            Op::FullOuter(_) => Side::Either,
            _ => Side::Left,
        };
        let (shows_left, shows_right) = match operator {
            Op::Semi(_) | Op::LeftSemi(_) | Op::Anti(_) | Op::LeftAnti(_) => (true, false),
            Op::RightSemi(_) | Op::RightAnti(_) => (false, true),
            _ => (true, true),
        };
        let (what, names) = match constraint_mut(operator) {
            Some(JoinConstraint::Using(columns)) => {
                let names: Vec<Ident> = columns.iter().filter_map(|column| idents(column).pop()).collect();
                ("USING", names)
            }
            Some(JoinConstraint::Natural) => ("NATURAL JOIN", left.common(&right)?),
            other => {
                let lefts = left.0.len();
                left.0.extend(right.0);
                if let Some(JoinConstraint::On(condition)) = other {
                    let _ = condition.visit(&mut MergeNames::of(&left, self.known, self.outer, false));
                }
                if !shows_right {
                    left.0.truncate(lefts);
                }
                if !shows_left {
                    left.0.drain(..lefts);
                }
                return Ok(left);
            }
        };
        let (mut merged, mut equal) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
        for name in &names {
            let ((l, a), (r, b)) = (left.find(name, what)?, right.find(name, what)?);
            equal.push(binary(a.expr(), BinaryOperator::Eq, b.expr()));
            if !(shows_left && shows_right) {
                continue;
            }
            left.hide(l, &a.name);
            right.hide(r, &b.name);
            let of = match side {
                Side::Left => a.of,
                Side::Right => b.of,
                Side::Either => a.of.into_iter().chain(b.of).collect(),
            };
            if of.len() > MERGED_MAX {
                let what = format!("`{}` is merged of more than {MERGED_MAX} relations by FULL JOIN", a.name);
                return Err(Error::invalid(what).hint("join some of them in a query below, or with ON"));
            }
            merged.push(FromColumns::Merged(MergedColumn { name: a.name, of }));
        }
        if let Some(constraint) = constraint_mut(operator) {
            *constraint = JoinConstraint::On(all(&equal));
        }
        for (shows, side) in [(shows_left, left), (shows_right, right)] {
            if shows {
                merged.extend(side.0);
            }
        }
        Ok(VisibleColumns(merged))
    }
}

impl VisibleColumns {
    /// Returns the merged column of an unqualified name, unless another column has the same name.
    fn merged(&self, ident: &Ident, exact: bool) -> Option<&MergedColumn> {
        let mut found = None;
        for part in &self.0 {
            match part {
                FromColumns::Merged(merged) if merged.is(ident, exact) && found.replace(merged).is_some() => {
                    return None;
                }
                FromColumns::Rest(rest) if rest.column(ident).is_some() => return None,
                _ => {}
            }
        }
        found
    }

    /// Finds the column that USING or NATURAL JOIN names on one side. Returns its position in this list too.
    fn find(&self, ident: &Ident, what: &str) -> Result<(usize, MergedColumn)> {
        let of = |rest: &RelationColumns, name: String| MergedColumn { of: vec![rest.expr(&name)], name };
        let (mut found, mut possible, mut rests) = (Vec::new(), Vec::new(), Vec::new());
        for (at, part) in self.0.iter().enumerate() {
            match part {
                FromColumns::Merged(merged) if merged.is(ident, false) => {
                    found.push((at, MergedColumn { name: merged.name.clone(), of: merged.of.clone() }));
                }
                FromColumns::Merged(_) => {}
                FromColumns::Rest(rest) => {
                    rests.push((at, of(rest, ident.value.clone())));
                    match rest.column(ident) {
                        Some(name) => found.push((at, of(rest, name))),
                        None if rest.in_order().is_none() => {
                            possible.push((at, of(rest, ident.value.clone())))
                        }
                        None => {}
                    }
                }
            }
        }
        let found = [found, possible].into_iter().find(|found| !found.is_empty());
        // No relation has the column: the first relation stands for it, and DataFusion reports the error.
        let found = found.unwrap_or_else(|| rests.into_iter().take(1).collect());
        match <[_; 1]>::try_from(found) {
            Ok([only]) => Ok(only),
            Err(_) => Err(Error::invalid(format!(
                "`{}` of {what} is a column of several relations on one side",
                ident.value
            ))
            .hint("join with ON and qualified names")),
        }
    }

    /// Removes a column that the join has merged.
    fn hide(&mut self, at: usize, name: &str) {
        match &mut self.0[at] {
            FromColumns::Merged(_) => {
                self.0.remove(at);
            }
            FromColumns::Rest(rest) => rest.merged.push(name.to_owned()),
        }
    }

    /// Returns the names that both sides have, in the left side's order, without the system columns.
    fn common(&self, right: &VisibleColumns) -> Result<Vec<Ident>> {
        let right = right.names()?;
        let mut names = self.names()?;
        names.retain(|name| right.contains(name) && !is_system_column(name));
        Ok(names.into_iter().map(|name| Ident::with_quote('"', name)).collect())
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for part in &self.0 {
            match part {
                FromColumns::Merged(merged) => names.push(merged.name.clone()),
                FromColumns::Rest(rest) => {
                    let unknown = || {
                        let what = format!("the columns of {} are not known to NATURAL JOIN", rest.relation);
                        Error::invalid(what).hint("write USING (…), or name the columns: `… AS x(a, b)`")
                    };
                    let all = rest.in_order().ok_or_else(unknown)?;
                    names.extend(all.iter().filter(|name| !rest.merged.contains(name)).cloned());
                }
            }
        }
        Ok(names)
    }

    /// Returns the items that `*` stands for.
    fn star(&self) -> impl Iterator<Item = SelectItem> {
        self.0.iter().map(|part| match part {
            FromColumns::Merged(merged) => merged.item(),
            FromColumns::Rest(rest) => {
                let merged = rest.merged.iter().map(|name| Ident::with_quote('"', name)).collect();
                star_of(&rest.relation, merged)
            }
        })
    }
}

impl MergedColumn {
    fn is(&self, ident: &Ident, exact: bool) -> bool {
        let folds = !exact && ident.quote_style.is_none();
        self.name == ident.value || folds && self.name.eq_ignore_ascii_case(&ident.value)
    }

    fn expr(&self) -> Expr {
        match self.of.as_slice() {
            [only] => only.clone(),
            several => coalesce(several),
        }
    }

    /// Builds the column as an item of a SELECT. A column of a single relation stays a qualified name.
    fn item(&self) -> SelectItem {
        match self.expr() {
            Expr::CompoundIdentifier(parts) if parts.last().is_some_and(|last| last.value == self.name) => {
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))
            }
            expr => SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', &self.name) },
        }
    }
}

impl RelationColumns {
    /// Returns the column of this name, unless it was merged.
    fn column(&self, ident: &Ident) -> Option<String> {
        let name = pick(ident, self.columns.as_ref()?)?;
        (!self.merged.contains(name)).then(|| name.clone())
    }

    fn in_order(&self) -> Option<&[String]> {
        self.columns.as_ref()?.in_order()
    }

    fn expr(&self, name: &str) -> Expr {
        let mut parts = idents(&self.relation);
        parts.push(Ident::with_quote('"', name));
        Expr::CompoundIdentifier(parts)
    }
}

/// Replaces the names of merged columns by their expressions.
struct MergeNames<'a> {
    shown: &'a VisibleColumns,
    known: &'a StatementNames,
    /// The scopes of the enclosing queries (the first `outer`), then those of the nested queries that the visitor is in.
    scopes: Vec<Scope>,
    outer: usize,
    /// True if the names outside of nested queries are bound already.
    bound: bool,
}

impl<'a> MergeNames<'a> {
    fn of(shown: &'a VisibleColumns, known: &'a StatementNames, outer: &[Scope], bound: bool) -> Self {
        MergeNames { shown, known, scopes: outer.to_vec(), outer: outer.len(), bound }
    }
}

impl VisitorMut for MergeNames<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let within = scope::with_outputs(query, self.known, &self.scopes);
        self.scopes.push(within);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    // After the children, so that the inserted expression is not visited again.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(ident) = expr else { return ControlFlow::Continue(()) };
        let within = &self.scopes[self.outer..];
        if within.iter().all(|scope| !scope.binds(ident))
            && let Some(merged) = self.shown.merged(ident, self.bound && within.is_empty())
        {
            *expr = merged.expr();
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if a FROM merges columns.
fn merges(from: &TableWithJoins) -> bool {
    let within = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { table_with_joins, .. } if merges(table_with_joins));
    let is_merged = |join: &Join| {
        let constraint = constraint(&join.join_operator);
        matches!(constraint, Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
    };
    within(&from.relation) || from.joins.iter().any(|join| within(&join.relation) || is_merged(join))
}

/// Joins the conditions by AND into a balanced tree.
fn all(conditions: &[Expr]) -> Expr {
    match conditions {
        [] => Expr::Value(Value::Boolean(true).into()),
        [only] => only.clone(),
        several => {
            let (a, b) = several.split_at(several.len() / 2);
            binary(all(a), BinaryOperator::And, all(b))
        }
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn coalesce(args: &[Expr]) -> Expr {
    let args = args.iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg.clone()))).collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new("coalesce"))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
