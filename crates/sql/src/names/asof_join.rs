//! Finds ASOF JOINs in a statement.

use std::ops::ControlFlow;

use sqlparser::ast::{
    JoinOperator, Query, Select, SetExpr, Statement, TableFactor, TableWithJoins, Visit, Visitor,
};

/// Returns true if the statement contains an ASOF JOIN.
pub fn has_asof_join(statement: &Statement) -> bool {
    struct Find;
    impl Visitor for Find {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if selects(&query.body).iter().any(|select| select.from.iter().any(has)) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }
    fn has(from: &TableWithJoins) -> bool {
        let nested = |factor: &TableFactor| match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => has(table_with_joins),
            _ => false,
        };
        nested(&from.relation)
            || from
                .joins
                .iter()
                .any(|join| matches!(join.join_operator, JoinOperator::AsOf { .. }) || nested(&join.relation))
    }
    statement.visit(&mut Find).is_break()
}

fn selects(body: &SetExpr) -> Vec<&Select> {
    match body {
        SetExpr::Select(select) => vec![select],
        SetExpr::SetOperation { left, right, .. } => [selects(left), selects(right)].concat(),
        _ => Vec::new(),
    }
}
