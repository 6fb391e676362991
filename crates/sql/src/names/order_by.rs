//! ORDER BY over columns that an alias hides: `SELECT -id AS id FROM t ORDER BY id + 0`. As in PostgreSQL, a name that is the
//! whole item of ORDER BY means the output column first; within an expression it means the table's column. DataFusion takes the
//! output column for both.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, VisitMut, VisitorMut,
};

use super::output;
use super::scope::Scope;

/// Moves the SELECT into a subquery that also computes the items of ORDER BY, if one of their expressions reads a hidden column.
/// Call it after names are bound.
pub(super) fn read_columns(query: &mut Query, scope: &Scope) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &mut query.order_by else { return };
    if select.distinct.is_some() || !order.iter_mut().any(|by| reads_shadowed(by, select, scope)) {
        return;
    }
    let Some(outputs) = select.projection.iter().map(output_name).collect::<Option<Vec<Ident>>>() else {
        return;
    };
    for (number, by) in order.iter_mut().enumerate() {
        let is_output = matches!(&by.expr, Expr::Identifier(name) if outputs.iter().any(|output| output.value == name.value));
        if is_output || matches!(by.expr, Expr::Value(_)) {
            continue;
        }
        let alias = Ident::with_quote('"', format!("polynya order {number}"));
        let expr = std::mem::replace(&mut by.expr, Expr::Identifier(alias.clone()));
        select.projection.push(SelectItem::ExprWithAlias { expr, alias });
    }
    let inner = std::mem::replace(query.body.as_mut(), SetExpr::Values(output::NO_ROWS));
    let alias =
        TableAlias { explicit: true, name: Ident::with_quote('"', "polynya ordered"), columns: Vec::new() };
    let subquery = Box::new(output::bare(inner));
    let factor = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
    let mut whole = output::all_of(factor);
    if let SetExpr::Select(select) = &mut whole {
        select.projection =
            outputs.into_iter().map(|name| SelectItem::UnnamedExpr(Expr::Identifier(name))).collect();
    }
    *query.body = whole;
}

/// Returns the output name of an item of a SELECT, if it is known.
fn output_name(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().cloned(),
        _ => None,
    }
}

fn reads_shadowed(by: &mut OrderByExpr, select: &Select, scope: &Scope) -> bool {
    if matches!(by.expr, Expr::Identifier(_)) {
        return false;
    }
    let shadows = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            let is_itself = match expr {
                Expr::Identifier(column) => column.value == alias.value,
                Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|last| last.value == alias.value),
                _ => false,
            };
            (!is_itself && scope.has_column(&alias.value)).then(|| alias.value.clone())
        }
        _ => None,
    };
    let shadowed: BTreeSet<String> = select.projection.iter().filter_map(shadows).collect();
    !shadowed.is_empty() && by.expr.visit(&mut Reads { shadowed, depth: 0 }).is_break()
}

/// Stops at the first hidden name, except in nested queries.
struct Reads {
    shadowed: BTreeSet<String>,
    depth: usize,
}

impl VisitorMut for Reads {
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
        let name = match expr {
            Expr::Identifier(name) => Some(&*name),
            // DataFusion calls a qualified name of a hidden column ambiguous.
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        match name {
            Some(name) if self.depth == 0 && self.shadowed.contains(&name.value) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
