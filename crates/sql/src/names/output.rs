//! Names the output columns of a query: an unnamed expression is called by its text, and later columns of the same name get a
//! number. (DataFusion would call `1` `Int64(1)`, and accepts a name only once.)

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Expr, GroupByExpr, Ident, Query, Select, SelectFlavor, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Values, WildcardAdditionalOptions,
};

use super::scope::Scope;

const NAME_CHARS_MAX: usize = 100;

/// Gives every unnamed expression of a SELECT an alias.
pub(super) fn name(projection: &mut [SelectItem]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for item in projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        // DataFusion names a field of a struct.
        if matches!(expr, Expr::CompoundIdentifier(_) | Expr::Identifier(_)) {
            continue;
        }
        let text = output_name(expr);
        let count = seen.entry(text.clone()).or_default();
        *count += 1;
        let alias = if *count == 1 { text } else { format!("{text}_{count}") };
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
    }
}

/// Returns the output name of an expression that has no alias: its text, cut to [`NAME_CHARS_MAX`].
pub(super) fn output_name(expr: &Expr) -> String {
    match expr {
        Expr::Subquery(_) => "subquery".to_owned(),
        other => other.to_string().chars().take(NAME_CHARS_MAX).collect(),
    }
}

/// Numbers output columns whose name is taken already: `id AS x, n AS x`, `a.id, b.id`, `*, id`. The known columns of a wildcard
/// keep their names. Call it after names are bound.
pub(super) fn make_unique(projection: &mut [SelectItem], scope: &Scope) {
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
    // The next number to try for each name that occurs more than once.
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for item in projection {
        let Some(name) = called(item).filter(|name| !seen.insert(name.clone())) else { continue };
        let number = numbers.entry(name.clone()).or_insert(2);
        let alias = loop {
            let alias = format!("{name}_{number}");
            *number += 1;
            if !taken.contains(&alias) && !seen.contains(&alias) {
                break alias;
            }
        };
        seen.insert(alias.clone());
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
        }
    }
}

/// Gives the column of a function that returns one column the name of its alias: `FROM generate_series(1, 3) AS i`.
pub(super) fn name_column(factor: &mut TableFactor) {
    let alias = match factor {
        TableFactor::Table { name, args: Some(_), alias: Some(alias), .. }
            if matches!(name.to_string().to_lowercase().as_str(), "generate_series" | "range") =>
        {
            alias
        }
        TableFactor::UNNEST { array_exprs, alias: Some(alias), .. } if array_exprs.len() == 1 => alias,
        _ => return,
    };
    if alias.columns.is_empty() {
        alias.columns = vec![TableAliasColumnDef { name: alias.name.clone(), data_type: None }];
    }
}

/// Names the columns of recursive queries in their first SELECT. In `WITH RECURSIVE n(i) AS (SELECT 1 UNION …)` the second part
/// reads `i`, which DataFusion finds only if the first part calls its column so. A first part that cannot name its columns itself
/// becomes a subquery of a SELECT that does.
pub(super) fn name_recursive(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return };
    for cte in &mut with.cte_tables {
        let query = cte.query.as_mut();
        if !matches!(query.body.as_ref(), SetExpr::SetOperation { .. }) {
            continue;
        }
        // DataFusion reads only the two parts of a UNION. A query with further clauses that reads itself was refused by the
        // parser.
        if query.with.is_some() || query.order_by.is_some() || query.limit_clause.is_some() {
            let whole = std::mem::replace(query, bare(SetExpr::Values(NO_ROWS)));
            *query.body = SetExpr::Query(Box::new(whole));
            continue;
        }
        let names: Vec<Ident> = cte.alias.columns.iter().map(|column| column.name.clone()).collect();
        if names.is_empty() {
            continue;
        }
        let mut body = query.body.as_mut();
        while let SetExpr::SetOperation { left, .. } = body {
            body = left.as_mut();
        }
        match body {
            SetExpr::Select(select) if is_listed(&select.projection, names.len()) => {
                for (item, alias) in select.projection.iter_mut().zip(names) {
                    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    }
                }
            }
            other => {
                let first = std::mem::replace(other, SetExpr::Values(NO_ROWS));
                let name = Ident::with_quote('"', "polynya first");
                let columns = cte.alias.columns.clone();
                let alias = Some(TableAlias { explicit: true, name, columns });
                let subquery = Box::new(bare(first));
                *other = all_of(TableFactor::Derived { lateral: false, subquery, alias, sample: None });
            }
        }
    }
}

pub(super) const NO_ROWS: Values = Values { explicit_row: false, value_keyword: false, rows: Vec::new() };

/// Returns true if a SELECT lists exactly `count` expressions, none of them a wildcard.
fn is_listed(projection: &[SelectItem], count: usize) -> bool {
    let is_one =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    projection.len() == count && projection.iter().all(is_one)
}

/// A query that consists of `body` and has no further clauses.
pub(super) fn bare(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Builds `SELECT * FROM relation`.
pub(super) fn all_of(relation: TableFactor) -> SetExpr {
    SetExpr::Select(Box::new(Select {
        select_token: AttachedToken::empty(),
        optimizer_hint: None,
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from: vec![TableWithJoins { relation, joins: Vec::new() }],
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    }))
}
