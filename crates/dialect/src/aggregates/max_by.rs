//! `max_by(x, y)` and `min_by(x, y)` return the x of the row with the greatest or the least y, and ignore rows whose y is null.
//! They are also spelled `arg_max` and `arg_min`.
//!
//! DataFusion has no such functions. The statement is rewritten in standard SQL:
//! `last_value(x ORDER BY y) FILTER (WHERE y IS NOT NULL)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    Ident, ObjectName, ObjectNamePart, OrderByExpr, OrderByOptions, Statement, visit_expressions_mut,
};

/// Rewrites the calls in a statement. Runs after names are bound, so that a result column keeps the name of the original call.
pub fn rewrite(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        if let Expr::Function(function) = expr {
            rewrite_call(function);
        }
        ControlFlow::<()>::Continue(())
    });
}

fn rewrite_call(function: &mut Function) {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return };
    let standard = match name.value.to_ascii_lowercase().as_str() {
        "max_by" | "arg_max" => "last_value",
        "min_by" | "arg_min" => "first_value",
        _ => return,
    };
    let is_plain = function.over.is_none() && function.within_group.is_empty();
    let FunctionArguments::List(list) = &mut function.args else { return };
    let [value, FunctionArg::Unnamed(FunctionArgExpr::Expr(by))] = list.args.as_slice() else { return };
    if !is_plain || !list.clauses.is_empty() || list.duplicate_treatment.is_some() {
        return;
    }
    let (value, by) = (value.clone(), by.clone());
    let options = OrderByOptions { asc: None, nulls_first: None };
    let order = OrderByExpr { expr: by.clone(), options, with_fill: None };
    list.args = vec![value];
    list.clauses = vec![FunctionArgumentClause::OrderBy(vec![order])];
    let is_known = Expr::IsNotNull(Box::new(by));
    let filter = match function.filter.take() {
        None => is_known,
        Some(filter) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(filter)),
            op: BinaryOperator::And,
            right: Box::new(is_known),
        },
    };
    function.filter = Some(Box::new(filter));
    function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(standard))]);
}
