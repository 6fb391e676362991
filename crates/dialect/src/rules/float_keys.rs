//! Floats are equal as in PostgreSQL: `-0` equals `0`, and all NaN are one value, above all others.
//!
//! Arrow compares, hashes and sorts floats by their bits, which differ for those values. Wherever values are compared, grouped,
//! joined, sorted or deduplicated, `float_key(x)` replaces `x`: it returns the same value, but with a single zero and a single
//! NaN. Results show the values as they are stored, with their sign. The replacement is done in the optimized plan, because the
//! optimizer's rules rely on `=` and on plain columns; only constants are replaced before, since the optimizer evaluates them.
//!
//! A stored column that is compared with a number other than zero and NaN keeps its plain form: its bits compare the same,
//! because tables store only one bit pattern for NaN.

mod array;
mod function;

use std::sync::Arc;

use arrow::datatypes::DataType as Arrow;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue};
use datafusion::datasource::DefaultTableSource;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, Case, Cast, InList, ScalarFunction, Sort, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, RecursiveQuery,
};

use crate::functions::arrays;
use crate::rewrites::coercion::compares;

pub use array::keys;
pub use function::{NAME, is_function, without_keys};

/// Functions that compare their arguments, or items of them.
const COMPARING: [&str; 10] = [
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_position",
    "array_positions",
    arrays::REMOVE,
    arrays::EQUALS_ANY,
    arrays::LESS,
    "greatest",
    "least",
];
/// Aggregates that compare their values.
const ORDERING: [&str; 4] = ["max", "median", "min", "percentile_cont"];

pub fn has_float(data_type: &Arrow) -> bool {
    match data_type {
        Arrow::Float16 | Arrow::Float32 | Arrow::Float64 => true,
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => {
            has_float(item.data_type())
        }
        Arrow::Struct(fields) => fields.iter().any(|field| has_float(field.data_type())),
        _ => false,
    }
}

/// Returns the key of a literal.
fn key_of(scalar: ScalarValue) -> ScalarValue {
    match scalar {
        ScalarValue::Float64(Some(v)) => ScalarValue::Float64(Some(array::key(v))),
        ScalarValue::Float32(Some(v)) => ScalarValue::Float32(Some(array::key_of_32(v))),
        other => other,
    }
}

/// Replaces float constants in a comparison by their keys, because the optimizer may compare them with one another. Called for
/// each node of an expression, from the inside outwards.
pub fn key_constants(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut compared: Vec<&mut Expr> = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => vec![left, right],
        Expr::Between(Between { expr, low, high, .. }) => vec![expr, low, high],
        Expr::InList(InList { expr, list, .. }) => std::iter::once(&mut **expr).chain(list).collect(),
        Expr::Case(Case { expr: Some(operand), when_then_expr, .. }) => {
            let whens = when_then_expr.iter_mut().map(|(when, _)| &mut **when);
            std::iter::once(&mut **operand).chain(whens).collect()
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if COMPARING.contains(&func.name()) => {
            args.iter_mut().collect()
        }
        _ => return Ok(Transformed::no(expr)),
    };
    let mut changed = false;
    for part in &mut compared {
        if is_constant_float(part, schema)? {
            changed = true;
            **part = match std::mem::take(*part) {
                Expr::Literal(scalar, metadata) => Expr::Literal(key_of(scalar), metadata),
                other => function::key(other),
            };
        }
    }
    Ok(Transformed::new_transformed(expr, changed))
}

fn is_constant_float(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::Literal(scalar, _) => Ok(has_float(&scalar.data_type())),
        // The value of a parameter is replaced once it is known.
        Expr::Column(_) | Expr::Placeholder(_) => Ok(false),
        other => {
            let varies = other.exists(|part| {
                Ok(match part {
                    Expr::Literal(..) | Expr::Placeholder(_) | Expr::Cast(_) | Expr::TryCast(_) => false,
                    Expr::Negative(_) | Expr::BinaryExpr(_) => false,
                    Expr::ScalarFunction(_) => part.is_volatile_node(),
                    _ => true,
                })
            })?;
            Ok(!varies && other.get_type(schema).is_ok_and(|data_type| has_float(&data_type)))
        }
    }
}

/// Tells whether a table stores one bit pattern for all NaN, so that its stored values need no keys.
pub type HasOneNan = fn(&dyn TableProvider) -> bool;

/// Inserts keys into an optimized plan wherever floats are compared.
pub fn insert_keys(plan: LogicalPlan, has_one_nan: HasOneNan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| node(plan, has_one_nan)).map(|exact| exact.data)
}

fn node(plan: LogicalPlan, has_one_nan: HasOneNan) -> Result<Transformed<LogicalPlan>> {
    // Filters in a scan only select the blocks to skip, by the columns as they are stored. But parts without any column are
    // evaluated to true or false, so these get keys.
    if let LogicalPlan::TableScan(scan) = &plan {
        if scan.filters.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let keys = KeyInserter { schema: DFSchema::empty(), inputs: Vec::new(), has_one_nan };
        return plan.map_expressions(|filter| {
            filter.transform_up(|part| {
                if part.any_column_refs() { Ok(Transformed::no(part)) } else { keys.compared(part) }
            })
        });
    }
    if let LogicalPlan::RecursiveQuery(query) = plan {
        return recursive(query);
    }
    let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let keys = KeyInserter { schema: merge_schema(&inputs.iter().collect::<Vec<_>>()), inputs, has_one_nan };
    let names = NamePreserver::new(&plan);
    let exact = match plan {
        LogicalPlan::Aggregate(mut aggregate) => {
            let mut changed = false;
            for expr in aggregate.group_expr.iter_mut() {
                let grouped = std::mem::take(expr);
                let key = |part: Expr| {
                    let name = names.save(&part);
                    let part = keys.inside(part)?;
                    let key = keys.key(part.data);
                    let is_other = part.transformed || key.transformed;
                    Ok(Transformed::new_transformed(name.restore(key.data), is_other))
                };
                let grouped = match &grouped {
                    Expr::GroupingSet(_) => grouped.map_children(key)?,
                    _ => key(grouped)?,
                };
                changed |= grouped.transformed;
                *expr = grouped.data;
            }
            for expr in aggregate.aggr_expr.iter_mut() {
                let figure = std::mem::take(expr);
                let name = names.save(&figure);
                let figure = keys.inside(figure)?;
                changed |= figure.transformed;
                *expr = name.restore(figure.data);
            }
            Transformed::new_transformed(LogicalPlan::Aggregate(aggregate), changed)
        }
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for side in join.on.iter_mut().flat_map(|(left, right)| [left, right]) {
                let key = keys.inside(std::mem::take(side))?.transform_data(|side| Ok(keys.key(side)))?;
                changed |= key.transformed;
                *side = key.data;
            }
            if let Some(filter) = join.filter.take() {
                let filter = keys.inside(filter)?;
                changed |= filter.transformed;
                join.filter = Some(filter.data);
            }
            Transformed::new_transformed(LogicalPlan::Join(join), changed)
        }
        LogicalPlan::Sort(mut sort) => {
            let changed = keys.sort(&mut sort.expr, false)?;
            Transformed::new_transformed(LogicalPlan::Sort(sort), changed)
        }
        plan => plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let exact = keys.inside(expr)?;
            Ok(if exact.transformed { exact.update_data(|expr| name.restore(expr)) } else { exact })
        })?,
    };
    if exact.transformed { exact.map_data(|plan| plan.recompute_schema()) } else { Ok(exact) }
}

/// A recursive UNION compares whole rows, so all of its float columns become keys.
fn recursive(query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
    let floats = query.static_term.schema().fields().iter().any(|field| has_float(field.data_type()));
    if !query.is_distinct || !floats {
        return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
    }
    let part = |plan: Arc<LogicalPlan>| -> Result<Arc<LogicalPlan>> {
        let columns = plan.schema().iter().map(|(qualifier, field)| {
            let column = Expr::from((qualifier, field));
            if has_float(field.data_type()) {
                function::key(column).alias_qualified(qualifier.cloned(), field.name())
            } else {
                column
            }
        });
        let columns: Vec<Expr> = columns.collect();
        Ok(Arc::new(LogicalPlanBuilder::new_from_arc(plan).project(columns)?.build()?))
    };
    Ok(Transformed::yes(LogicalPlan::RecursiveQuery(RecursiveQuery {
        static_term: part(query.static_term)?,
        recursive_term: part(query.recursive_term)?,
        ..query
    })))
}

/// Inserts keys into the expressions of one node.
struct KeyInserter {
    inputs: Vec<LogicalPlan>,
    /// The columns that the expressions can read.
    schema: DFSchema,
    has_one_nan: HasOneNan,
}

impl KeyInserter {
    /// Inserts keys into all comparisons within an expression.
    fn inside(&self, expr: Expr) -> Result<Transformed<Expr>> {
        expr.transform_up(|expr| self.compared(expr))
    }

    fn compared(&self, expr: Expr) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                self.comparison(*left, op, *right)
            }
            Expr::Between(Between { expr, negated, low, high }) if self.is_float(&expr) => {
                let above = self.comparison(expr.as_ref().clone(), Operator::GtEq, *low).data;
                let below = self.comparison(*expr, Operator::LtEq, *high).data;
                let both = above.and(below);
                Transformed::yes(if negated { Expr::Not(Box::new(both)) } else { both })
            }
            Expr::InList(InList { expr, list, negated }) if self.is_float(&expr) => {
                let (expr, list) = (Box::new(self.key(*expr).data), self.each(list).data);
                Transformed::yes(Expr::InList(InList { expr, list, negated }))
            }
            Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr })
                if self.is_float(&operand) =>
            {
                let operand = Box::new(self.key(*operand).data);
                let when_then_expr = when_then_expr
                    .into_iter()
                    .map(|(when, then)| (Box::new(self.key(*when).data), then))
                    .collect();
                Transformed::yes(Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr }))
            }
            Expr::ScalarFunction(ScalarFunction { func, args }) if COMPARING.contains(&func.name()) => {
                self.each(args).update_data(|args| Expr::ScalarFunction(ScalarFunction { func, args }))
            }
            Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
                let mut changed = self.sort(&mut params.order_by, params.distinct)?;
                if params.distinct || ORDERING.contains(&func.name()) {
                    changed |= self.arguments(&mut params.args, params.distinct);
                }
                let figure = Expr::AggregateFunction(AggregateFunction { func, params });
                Transformed::new_transformed(figure, changed)
            }
            Expr::WindowFunction(mut window) => {
                let changed = self.window(&mut window)?;
                Transformed::new_transformed(Expr::WindowFunction(window), changed)
            }
            other => Transformed::no(other),
        })
    }

    fn window(&self, window: &mut WindowFunction) -> Result<bool> {
        let compares = window.params.distinct || ORDERING.contains(&window.fun.name());
        let params = &mut window.params;
        let mut changed = self.sort(&mut params.order_by, true)?;
        let parts = self.each(std::mem::take(&mut params.partition_by));
        changed |= parts.transformed;
        params.partition_by = parts.data;
        if compares {
            changed |= self.arguments(&mut params.args, params.distinct);
        }
        Ok(changed)
    }

    /// Inserts keys into the arguments that an aggregate compares. A stored column has one NaN, and either of two zeros may be
    /// the least, so it needs a key only for DISTINCT.
    fn arguments(&self, args: &mut [Expr], distinct: bool) -> bool {
        let mut changed = false;
        for arg in args.iter_mut().filter(|arg| distinct || !self.is_stored(arg)) {
            let key = self.key(std::mem::take(arg));
            changed |= key.transformed;
            *arg = key.data;
        }
        changed
    }

    fn each(&self, exprs: Vec<Expr>) -> Transformed<Vec<Expr>> {
        let mut changed = false;
        let keys = exprs.into_iter().map(|expr| {
            let key = self.key(expr);
            changed |= key.transformed;
            key.data
        });
        let keys = keys.collect();
        Transformed::new_transformed(keys, changed)
    }

    /// Inserts keys into an order. The last column of an order needs a key for its zeros only if the order also decides which
    /// rows are ties.
    fn sort(&self, order: &mut [Sort], asks_for_ties: bool) -> Result<bool> {
        let last = order.len().saturating_sub(1);
        let mut changed = false;
        for (at, by) in order.iter_mut().enumerate() {
            let expr = self.inside(std::mem::take(&mut by.expr))?;
            changed |= expr.transformed;
            by.expr = expr.data;
            if asks_for_ties || at < last || !self.is_stored(&by.expr) {
                let key = self.key(std::mem::take(&mut by.expr));
                changed |= key.transformed;
                by.expr = key.data;
            }
        }
        Ok(changed)
    }

    fn comparison(&self, left: Expr, op: Operator, right: Expr) -> Transformed<Expr> {
        let compared = |left: Expr, op, right: Expr| {
            Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
        };
        if !self.is_float(&left) && !self.is_float(&right) {
            return Transformed::no(compared(left, op, right));
        }
        let (left, right) = (with_key(left), with_key(right));
        let side = match (&left, &right, op.swap()) {
            (column, Expr::Literal(scalar, _), _) if self.is_stored(column) => bits(op, scalar),
            (Expr::Literal(scalar, _), column, Some(op)) if self.is_stored(column) => bits(op, scalar),
            _ => None,
        };
        match (side, left, right) {
            (Some(scalar), Expr::Literal(_, metadata), right) => {
                Transformed::yes(compared(Expr::Literal(scalar, metadata), op, right))
            }
            (Some(scalar), left, _) => Transformed::yes(compared(left, op, Expr::Literal(scalar, None))),
            (None, left, right) => Transformed::yes(compared(self.key(left).data, op, self.key(right).data)),
        }
    }

    fn key(&self, expr: Expr) -> Transformed<Expr> {
        match expr {
            Expr::Literal(scalar, metadata) => Transformed::yes(Expr::Literal(key_of(scalar), metadata)),
            expr if self.is_key(&expr) || !self.is_float(&expr) => Transformed::no(expr),
            Expr::Alias(mut alias) => {
                let key = self.key(*alias.expr);
                *alias.expr = key.data;
                Transformed::new_transformed(Expr::Alias(alias), key.transformed)
            }
            expr => Transformed::yes(function::key(expr)),
        }
    }

    /// Returns true if an expression is its own key for any value.
    fn is_key(&self, expr: &Expr) -> bool {
        match expr {
            Expr::ScalarFunction(function) => function::is_function(&function.func),
            Expr::Cast(Cast { expr, .. }) => expr.get_type(&self.schema).is_ok_and(|from| from.is_integer()),
            _ => false,
        }
    }

    fn is_float(&self, expr: &Expr) -> bool {
        expr.get_type(&self.schema).is_ok_and(|data_type| has_float(&data_type))
    }

    /// Returns true for a column of a table in its stored form.
    fn is_stored(&self, expr: &Expr) -> bool {
        expr.try_as_col()
            .is_some_and(|column| self.inputs.iter().any(|input| stored(input, column, self.has_one_nan)))
    }
}

fn with_key(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(scalar, metadata) => Expr::Literal(key_of(scalar), metadata),
        other => other,
    }
}

/// Returns a literal that compares with the bits of a stored float as `literal` compares with its value; `None` if there is none.
fn bits(op: Operator, literal: &ScalarValue) -> Option<ScalarValue> {
    let zero = match literal {
        ScalarValue::Float64(Some(v)) => *v == 0.0,
        ScalarValue::Float32(Some(v)) => *v == 0.0,
        _ => return None,
    };
    match (zero, op) {
        (false, _) | (true, Operator::Gt | Operator::LtEq) => Some(literal.clone()),
        (true, Operator::Lt | Operator::GtEq) => literal.arithmetic_negate().ok(),
        _ => None,
    }
}

fn stored(plan: &LogicalPlan, column: &Column, has_one_nan: HasOneNan) -> bool {
    plan.schema().maybe_index_of_column(column).is_some_and(|at| is_stored(plan, at, has_one_nan))
}

fn is_stored(plan: &LogicalPlan, at: usize, has_one_nan: HasOneNan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let source = scan.source.as_any().downcast_ref::<DefaultTableSource>();
            source.is_some_and(|source| has_one_nan(&*source.table_provider))
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().first().is_some_and(|input| is_stored(input, at, has_one_nan))
        }
        LogicalPlan::Projection(projection) => {
            let mut expr = projection.expr.get(at);
            while let Some(Expr::Alias(alias)) = expr {
                expr = Some(&alias.expr);
            }
            expr.and_then(Expr::try_as_col)
                .is_some_and(|column| stored(&projection.input, column, has_one_nan))
        }
        LogicalPlan::Join(join) => {
            let width = join.left.schema().fields().len();
            match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti => is_stored(&join.right, at, has_one_nan),
                JoinType::RightMark => false,
                _ if at < width => is_stored(&join.left, at, has_one_nan),
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                    is_stored(&join.right, at - width, has_one_nan)
                }
                _ => false,
            }
        }
        _ => false,
    }
}
