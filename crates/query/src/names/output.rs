//! What the columns of an answer are called: an expression as it was written, a second one of the same name numbered.
//! (DataFusion would call `1` `Int64(1)`, and wants a name once.)

use std::collections::{BTreeMap, BTreeSet};

use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr};

use super::scope::Scope;

const NAME_CHARS_MAX: usize = 100;

/// Names what has no name.
pub(super) fn name(projection: &mut [SelectItem]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for item in projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let text = match &expr {
            // A field of a struct is named by DataFusion.
            Expr::CompoundIdentifier(_) | Expr::Identifier(_) => continue,
            Expr::Subquery(_) => "subquery".to_owned(),
            other => other.to_string().chars().take(NAME_CHARS_MAX).collect(),
        };
        let count = seen.entry(text.clone()).or_default();
        *count += 1;
        let alias = if *count == 1 { text } else { format!("{text}_{count}") };
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
    }
}

/// Numbers what is called as something else: `id AS x, n AS x`, `a.id, b.id`, `*, id`. What a wildcard stands for keeps its
/// name, as far as it is known. After names are bound.
pub(super) fn apart(projection: &mut [SelectItem], scope: &Scope) {
    if projection.len() < 2 {
        return;
    }
    let called = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(ident.value.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => match parts.as_slice() {
            [relation, column] if scope.has(relation) => Some(column.value.clone()),
            _ => None,
        },
        _ => None,
    };
    let taken: BTreeSet<String> = projection.iter().filter_map(called).collect();
    let mut seen: BTreeSet<String> = projection.iter().flat_map(|item| scope.wildcard(item)).collect();
    for item in projection {
        let Some(name) = called(item).filter(|name| !seen.insert(name.clone())) else { continue };
        let numbered = (2..).map(|count: usize| format!("{name}_{count}"));
        let is_free = |name: &String| !taken.contains(name) && !seen.contains(name);
        let Some(alias) = numbered.into_iter().find(is_free) else { continue };
        seen.insert(alias.clone());
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
        }
    }
}

/// `WITH RECURSIVE n(i) AS (SELECT 1 UNION …)`: the second part reads `i`, which DataFusion knows only if the first
/// part calls it so.
pub(super) fn name_recursive(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return };
    for cte in &mut with.cte_tables {
        let names: Vec<Ident> = cte.alias.columns.iter().map(|column| column.name.clone()).collect();
        let mut body = cte.query.body.as_mut();
        while let SetExpr::SetOperation { left, .. } = body {
            body = left.as_mut();
        }
        let SetExpr::Select(select) = body else { continue };
        if names.len() != select.projection.len() {
            continue;
        }
        for (item, alias) in select.projection.iter_mut().zip(names) {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
    }
}
