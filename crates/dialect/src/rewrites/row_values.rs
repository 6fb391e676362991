//! Rows may be compared as values: `(a, b) = (1, 2)`, `<`, IN, BETWEEN, IS NULL, CASE.
//!
//! DataFusion makes a struct of each row and takes two nulls in it for equal; and no index, key or zone map helps with a struct.
//! Here a comparison of rows is written as comparisons of their values, as SQL defines it: rows are equal if all values are
//! equal, the result is null if a null decides, and `<` is decided by the first values that differ. `(a, b) IN (SELECT …)`, which
//! DataFusion does not support, becomes EXISTS over the query.

use std::ops::ControlFlow;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    Query, SelectItem, SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
    UnaryOperator, Value, VisitMut, VisitorMut, helpers::attached_token::AttachedToken,
};
use sql::ast::{binary, bool, bracketed, joined, not, select};
use types::{Error, Kind, Result};

/// Prefix of the names given to queries whose rows are compared, and to their columns.
const CALLED: &str = "row value";
/// Number of queries in a statement whose rows are compared with rows. Each may be written twice, and they may be nested.
const QUERIES_MAX: usize = 64;
/// Number of values of rows that are compared by order, because each comparison is nested in the one before.
const ORDERED_MAX: usize = 64;
/// Bytes of all copies of a row that is compared with many rows.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Rewrites a statement. Runs after names are bound, so that the moved expressions keep their meaning.
pub fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut RowValueRewriter { queries: 0 }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Refuses such a query if it is correlated: DataFusion loses outer columns below an alias.
pub fn refuse_correlated(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::SubqueryAlias(named) = plan
            && named.alias.table().starts_with(CALLED)
            && has_outer(&named.input)?
        {
            let error = Error::invalid("the query of `(a, b) IN (SELECT …)` is correlated")
                .hint("write EXISTS (SELECT … WHERE x = a AND y = b)");
            return Err(DataFusionError::External(Box::new(error)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(plan)
}

fn has_outer(plan: &LogicalPlan) -> DfResult<bool> {
    plan.exists(|plan| {
        let mut found = false;
        plan.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(matches!(part, DfExpr::OuterReferenceColumn(..))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    })
}

/// The values of a condition that matter where it stands.
#[derive(Clone, Copy)]
enum NullMeaning {
    /// Null counts as false, as in a WHERE condition.
    False,
    /// Null counts as true, as in a WHERE condition under NOT.
    True,
    All,
}

impl NullMeaning {
    fn not(self) -> NullMeaning {
        match self {
            NullMeaning::False => NullMeaning::True,
            NullMeaning::True => NullMeaning::False,
            NullMeaning::All => NullMeaning::All,
        }
    }
}

struct RowValueRewriter {
    /// The number of queries named so far.
    queries: usize,
}

impl VisitorMut for RowValueRewriter {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.body(&mut query.body).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.rewrite_expr(expr).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

impl RowValueRewriter {
    /// Rewrites IN in conditions, where the use of the result is known. All other expressions are rewritten by `rewrite_expr`
    /// afterwards.
    fn body(&mut self, body: &mut SetExpr) -> Result<()> {
        match body {
            SetExpr::Select(select) => {
                let conditions = [&mut select.selection, &mut select.having];
                conditions.into_iter().flatten().try_for_each(|one| self.condition(one, NullMeaning::False))
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left)?;
                self.body(right)
            }
            _ => Ok(()),
        }
    }

    fn condition(&mut self, expr: &mut Expr, null_is: NullMeaning) -> Result<()> {
        match expr {
            Expr::Nested(inner) => self.condition(inner, null_is),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => self.condition(expr, null_is.not()),
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                self.condition(left, null_is)?;
                self.condition(right, null_is)
            }
            Expr::InSubquery { .. } => self.in_query(expr, null_is),
            _ => Ok(()),
        }
    }

    fn rewrite_expr(&mut self, expr: &mut Expr) -> Result<()> {
        let spelled = match expr {
            Expr::InSubquery { .. } => return self.in_query(expr, NullMeaning::All),
            Expr::BinaryOp { left, op, right } => match (row(left), row(right)) {
                (Some(left), Some(right)) if compares(op) => Some(compare_rows(&left, op, &right)?),
                _ => None,
            },
            Expr::IsDistinctFrom(left, right) => distinct_rows(left, right)?,
            Expr::IsNotDistinctFrom(left, right) => distinct_rows(left, right)?.map(not),
            Expr::InList { expr, list, negated } => match (row(expr), rows(list)) {
                (Some(one), Some(rows)) => {
                    check_growth(&one, rows.len())?;
                    let each = rows.iter().map(|row| compare_rows(&one, &BinaryOperator::Eq, row));
                    let any = joined(each.collect::<Result<_>>()?, &BinaryOperator::Or);
                    Some(if *negated { not(any) } else { any })
                }
                _ => None,
            },
            Expr::Between { expr, negated, low, high } => match (row(expr), row(low), row(high)) {
                (Some(one), Some(low), Some(high)) => {
                    let above = compare_rows(&one, &BinaryOperator::GtEq, &low)?;
                    let below = compare_rows(&one, &BinaryOperator::LtEq, &high)?;
                    let both = binary(above, BinaryOperator::And, below);
                    Some(if *negated { not(both) } else { both })
                }
                _ => None,
            },
            Expr::IsNull(of) => row(of).map(|row| each_is(row, Expr::IsNull)),
            Expr::IsNotNull(of) => row(of).map(|row| each_is(row, Expr::IsNotNull)),
            Expr::Case { operand, conditions, .. } => {
                let Some(one) = operand.as_deref().and_then(row) else { return Ok(()) };
                let Some(rows) =
                    conditions.iter().map(|when| row(&when.condition)).collect::<Option<Vec<_>>>()
                else {
                    return Ok(());
                };
                check_growth(&one, rows.len())?;
                *operand = None;
                for (when, row) in conditions.iter_mut().zip(rows) {
                    when.condition = compare_rows(&one, &BinaryOperator::Eq, &row)?;
                }
                None
            }
            _ => None,
        };
        if let Some(spelled) = spelled {
            *expr = spelled;
        }
        Ok(())
    }

    /// Rewrites `(a, b) IN (SELECT …)`: it is true if a row of the query is equal, and null if only for some row the equality is
    /// null.
    fn in_query(&mut self, expr: &mut Expr, null_is: NullMeaning) -> Result<()> {
        let Expr::InSubquery { expr: one, subquery, negated } = expr else { return Ok(()) };
        let Some(one) = row(one) else { return Ok(()) };
        check_width(&one, subquery)?;
        self.queries += 1;
        if self.queries > QUERIES_MAX {
            let text = format!("more than {QUERIES_MAX} queries whose rows are compared with rows");
            return Err(Error::new(Kind::TooLarge, text).hint("join their tables, or write EXISTS"));
        }
        let called = format!("{CALLED} {}", self.queries);
        let values: Vec<Ident> =
            (1..=one.len()).map(|at| Ident::with_quote('"', format!("{called}.{at}"))).collect();
        let equal = {
            let values: Vec<Expr> = values.iter().cloned().map(Expr::Identifier).collect();
            compare_rows(&values, &BinaryOperator::Eq, &one)?
        };
        let has = |condition: Expr| exists(subquery, &called, &values, condition);
        let has_equal = has(equal.clone())?;
        let may_be = || has(Expr::IsNull(Box::new(bracketed(equal.clone()))));
        *expr = match (null_is, *negated) {
            (NullMeaning::False, false) => has_equal,
            (NullMeaning::True, true) => not(has_equal),
            (NullMeaning::True, false) => binary(has_equal, BinaryOperator::Or, may_be()?),
            (NullMeaning::False, true) => binary(not(has_equal), BinaryOperator::And, not(may_be()?)),
            (NullMeaning::All, negated) => Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![
                    CaseWhen { condition: has_equal, result: bool(!negated) },
                    CaseWhen { condition: may_be()?, result: Expr::Value(Value::Null.into()) },
                ],
                else_result: Some(Box::new(bool(negated))),
            },
        };
        Ok(())
    }
}

/// Returns the values of an expression that is written as a row.
fn row(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Nested(inner) => row(inner),
        Expr::Tuple(values) if !values.is_empty() => Some(values.clone()),
        Expr::Function(function) => {
            let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
            let FunctionArguments::List(list) = &function.args else { return None };
            let value = |arg: &FunctionArg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            };
            let is_row = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row");
            let values = list.args.iter().map(value).collect::<Option<Vec<_>>>()?;
            (is_row && !values.is_empty()).then_some(values)
        }
        _ => None,
    }
}

fn rows(list: &[Expr]) -> Option<Vec<Vec<Expr>>> {
    list.iter().map(row).collect()
}

fn compares(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Rewrites the comparison of two rows as comparisons of their values.
fn compare_rows(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, Or};
    check(left.len(), right.len())?;
    let one = |at: usize, op: &BinaryOperator| value(&left[at], op, &right[at]);
    let each = |op: &BinaryOperator| (0..left.len()).map(|at| one(at, op)).collect::<Result<Vec<_>>>();
    let strict = match op {
        Eq => return Ok(joined(each(op)?, &And)),
        Lt | LtEq => Lt,
        Gt | GtEq => Gt,
        _ => return Ok(joined(each(op)?, &Or)),
    };
    if left.len() > ORDERED_MAX {
        let text = format!("rows of more than {ORDERED_MAX} values are not compared by order");
        return Err(Error::new(Kind::TooLarge, text).hint("compare fewer values"));
    }
    // Built from the last value to the first: less by this value, or equal and less by the values after it.
    let last = left.len() - 1;
    let mut whole = one(last, op)?;
    for at in (0..last).rev() {
        whole = binary(one(at, &strict)?, Or, binary(one(at, &Eq)?, And, whole));
    }
    Ok(whole)
}

fn value(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Expr> {
    match (row(left), row(right)) {
        (Some(left), Some(right)) => compare_rows(&left, op, &right),
        _ => Ok(binary(left.clone(), op.clone(), right.clone())),
    }
}

fn distinct_rows(left: &Expr, right: &Expr) -> Result<Option<Expr>> {
    let (Some(left), Some(right)) = (row(left), row(right)) else { return Ok(None) };
    check(left.len(), right.len())?;
    let each = left.into_iter().zip(right).map(|(left, right)| match distinct_rows(&left, &right)? {
        Some(spelled) => Ok(spelled),
        None => Ok(Expr::IsDistinctFrom(Box::new(bracketed(left)), Box::new(bracketed(right)))),
    });
    Ok(Some(joined(each.collect::<Result<_>>()?, &BinaryOperator::Or)))
}

fn each_is(row: Vec<Expr>, is: fn(Box<Expr>) -> Expr) -> Expr {
    let each = row.into_iter().map(|value| is(Box::new(bracketed(value))));
    joined(each.collect(), &BinaryOperator::And)
}

fn check(left: usize, right: usize) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::invalid(format!("a row of {left} values is compared with one of {right}"))
        .hint("give both sides the same number of values"))
}

/// Refuses copies of a long row: each row that it is compared with needs one.
fn check_growth(row: &[Expr], times: usize) -> Result<()> {
    let bytes: usize = row.iter().map(|value| value.to_string().len()).sum();
    if bytes.saturating_mul(times) <= TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(Kind::TooLarge, format!("a row of long expressions is compared with {times} rows"))
        .hint("give the expressions names in a subquery"))
}

/// Compares the number of values with the number of columns, if the query lists its columns.
fn check_width(row: &[Expr], query: &Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
    let is_one =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if select.projection.iter().all(is_one) { check(row.len(), select.projection.len()) } else { Ok(()) }
}

/// Returns `EXISTS (SELECT 1 FROM (query) AS called (values) WHERE condition)`.
fn exists(query: &Query, called: &str, values: &[Ident], condition: Expr) -> Result<Expr> {
    let column = |name: &Ident| TableAliasColumnDef { name: name.clone(), data_type: None };
    let alias = TableAlias {
        explicit: true,
        name: Ident::with_quote('"', called),
        columns: values.iter().map(column).collect(),
    };
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query.clone()),
        alias: Some(alias),
        sample: None,
    };
    let one = SelectItem::UnnamedExpr(Expr::Value(Value::Number("1".into(), false).into()));
    let from = TableWithJoins { relation, joins: Vec::new() };
    match select(vec![one], vec![from], Some(condition))? {
        Statement::Query(subquery) => Ok(Expr::Exists { subquery, negated: false }),
        _ => Err(Error::internal("a SELECT is not a query")),
    }
}
