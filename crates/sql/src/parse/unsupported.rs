//! Refuses clauses that the parser knows but neither Polynya nor DataFusion reads, instead of answering as if they were absent.
//!
//! Each syntax node is destructured by all its fields, so that a new field of a later parser version fails to compile here.

use std::ops::ControlFlow;

use sqlparser::ast::{
    ForClause, GroupByExpr, LockType, ObjectName, ObjectNamePart, Query, Select, SetExpr, SetOperator,
    Statement, TableAlias, TableFactor, Visit, Visitor, With, visit_relations,
};
use types::{Error, Result};

use crate::not_yet;

/// Returns an error for the first such clause in the statement, at any depth.
pub(super) fn refuse(statement: &Statement) -> Result<()> {
    match statement.visit(&mut RefuseUnsupported) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct RefuseUnsupported;

impl Visitor for RefuseUnsupported {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        to_control_flow(self::query(query))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        to_control_flow(table(factor))
    }
}

fn to_control_flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn query(query: &Query) -> Result<()> {
    // DataFusion reads ORDER BY and LIMIT.
    let Query {
        with,
        body,
        order_by: _,
        limit_clause: _,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    if let Some(with) = with {
        definitions(with)?;
    }
    if let Some(lock) = locks.first() {
        let what = match lock.lock_type {
            LockType::Share => "FOR SHARE",
            LockType::Update => "FOR UPDATE",
        };
        return Err(not_yet(what).hint(
            "no row is locked; in a transaction UPDATE t SET n = n WHERE … of the rows that a decision depends on, and of two that do so one fails with `conflict`",
        ));
    }
    match for_clause {
        None => {}
        Some(ForClause::Json { .. }) => {
            return Err(not_yet("FOR JSON").hint("leave it out: rows are objects in JSON and NDJSON"));
        }
        Some(ForClause::Xml { .. }) => return Err(not_yet("FOR XML")),
        Some(ForClause::Browse) => return Err(not_yet("FOR BROWSE")),
    }
    if fetch.is_some() {
        return Err(not_yet("FETCH").hint("write LIMIT"));
    }
    first_of(&[
        (settings.is_some(), "SETTINGS"),
        (format_clause.is_some(), "FORMAT"),
        (!pipe_operators.is_empty(), "|>"),
    ])?;
    selects(body)
}

fn definitions(with: &With) -> Result<()> {
    for cte in &with.cte_tables {
        if cte.from.is_some() {
            return Err(not_yet("FROM after a query in WITH"));
        }
        // Only the UNION's two parts are read of a recursive query.
        let is_union =
            matches!(cte.query.body.as_ref(), SetExpr::SetOperation { op: SetOperator::Union, .. });
        if !with.recursive || !is_union || !names(&cte.query, &cte.alias.name.value) {
            continue;
        }
        let query = &cte.query;
        let what = [
            (query.order_by.is_some(), "ORDER BY in a recursive query"),
            (query.limit_clause.is_some() || query.fetch.is_some(), "LIMIT in a recursive query"),
        ];
        if let Some((_, what)) = what.into_iter().find(|(is, _)| *is) {
            return Err(not_yet(what).hint(
                "bound it by a condition, as in `WHERE n < 100`, and put ORDER BY and LIMIT into the query that reads it",
            ));
        }
        if query.with.is_some() {
            return Err(not_yet("WITH in a recursive query").hint("define it before, in the same WITH"));
        }
    }
    Ok(())
}

/// Returns true if a query reads a relation of this name.
fn names(query: &Query, name: &str) -> bool {
    let is_it = |object: &ObjectName| matches!(object.0.as_slice(), [ObjectNamePart::Identifier(ident)] if ident.value.eq_ignore_ascii_case(name));
    visit_relations(
        query,
        |object| if is_it(object) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) },
    )
    .is_break()
}

fn selects(body: &SetExpr) -> Result<()> {
    match body {
        SetExpr::Select(select) => self::select(select),
        SetExpr::SetOperation { left, right, .. } => {
            selects(left)?;
            selects(right)
        }
        _ => Ok(()),
    }
}

fn select(select: &Select) -> Result<()> {
    let Select {
        select_token: _,
        // A comment, which may be ignored.
        optimizer_hint: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into: _,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    if !connect_by.is_empty() {
        return Err(not_yet("CONNECT BY").hint("WITH RECURSIVE follows a tree"));
    }
    if top.is_some() {
        return Err(not_yet("TOP").hint("write LIMIT at the end"));
    }
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
    if let Some(modifier) = modifiers.first() {
        return Err(not_yet(&modifier.to_string()).hint("write GROUP BY ROLLUP (…) or GROUPING SETS (…)"));
    }
    first_of(&[
        (select_modifiers.is_some(), "a modifier of MySQL after SELECT"),
        (exclude.is_some(), "EXCLUDE after the columns"),
        (!lateral_views.is_empty(), "LATERAL VIEW"),
        (prewhere.is_some(), "PREWHERE"),
        (!cluster_by.is_empty(), "CLUSTER BY"),
        (!distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!sort_by.is_empty(), "SORT BY"),
        (value_table_mode.is_some(), "SELECT AS VALUE"),
    ])
}

fn table(factor: &TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table {
            name: _,
            alias,
            args,
            with_hints,
            version: _,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            columns(alias)?;
            sampled(sample.is_some())?;
            if !with_hints.is_empty() {
                return Err(not_yet("WITH after a table").hint("leave it out: reads take no locks"));
            }
            if *with_ordinality {
                return Err(not_yet("WITH ORDINALITY").hint("row_number() OVER (ORDER BY …) numbers rows"));
            }
            if !index_hints.is_empty() {
                return Err(not_yet("an index after a table").hint("EXPLAIN shows which one is read"));
            }
            first_of(&[
                (args.as_ref().is_some_and(|args| args.settings.is_some()), "SETTINGS"),
                (!partitions.is_empty(), "PARTITION"),
                (json_path.is_some(), "a path after a table"),
            ])
        }
        TableFactor::Derived { lateral: _, subquery: _, alias, sample } => {
            columns(alias)?;
            sampled(sample.is_some())
        }
        TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => columns(alias),
        // DataFusion does not plan the other kinds.
        _ => Ok(()),
    }
}

fn sampled(is_sampled: bool) -> Result<()> {
    if is_sampled {
        Err(not_yet("TABLESAMPLE").hint("`WHERE random() < 0.01` keeps about every hundredth row"))
    } else {
        Ok(())
    }
}

/// Refuses `FROM f() AS t(a int)`: the type would be ignored.
fn columns(alias: &Option<TableAlias>) -> Result<()> {
    let typed = alias.iter().flat_map(|alias| &alias.columns).find(|column| column.data_type.is_some());
    match typed {
        Some(column) => Err(not_yet("a type after the name of a column in FROM")
            .hint(format!("name it only, and CAST it in the SELECT: `{}`", column.name))),
        None => Ok(()),
    }
}

fn first_of(clauses: &[(bool, &str)]) -> Result<()> {
    match clauses.iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(not_yet(what)),
        None => Ok(()),
    }
}
