//! A physical rule: a scan reads only the few rows that the nodes above need, if an index can find them.
//!
//! The rows that are read in the part of the table that the index covers:
//!
//! | node above the scan | rows |
//! |---|---|
//! | a sort with limit k | the first k that pass the filter, and those equal to the last in the order |
//! | only `min` and `max` | the first and the last |
//! | a grouping without aggregates, such as DISTINCT | one of each group |
//! | only `count(*)` | none: the index counts them |
//!
//! The rows of the index's tail are read in addition. The nodes above are unchanged and process these rows, including the filter,
//! so the answer is that of a full scan (M2).

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::Int64Type;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::expressions::{Column, Literal};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use dialect::rules::float_keys;
use types::{ColumnId, Error, Kind, ROW_ID, RowId};

use crate::index_lookup::{self, IndexedRows};
use crate::index_order::{self, SortColumn};
use crate::provider::Table;
use crate::prune::{self, ColumnTest};
use crate::scan::Scan;

/// Bytes of files that may be read for the first time to evaluate filters while planning: only a running plan has a deadline.
const UNTOUCHED_BYTES_MAX: u64 = 32 << 20;

/// The rule; see the module.
#[derive(Debug)]
pub(crate) struct IndexPushdown;

impl PhysicalOptimizerRule for IndexPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parts = config.execution.target_partitions;
        let _reading = vfs::read_path();
        let narrowed = plan.transform_down(|plan| {
            let any = plan.as_any();
            let input = if let Some(sort) = any.downcast_ref::<SortExec>() {
                plan_above_scan(sort.input(), parts).and_then(|below| below.for_sort(sort))
            } else if let Some(aggregate) = any.downcast_ref::<AggregateExec>() {
                plan_above_scan(aggregate.input(), parts).and_then(|below| below.for_aggregate(aggregate))
            } else {
                None
            };
            match input {
                Some(input) => Ok(Transformed::yes(plan.with_new_children(vec![input])?)),
                None => Ok(Transformed::no(plan)),
            }
        });
        narrowed.data()
    }

    fn name(&self) -> &str {
        "index_pushdown"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The nodes between a scan and a node that needs few of its rows: projections, and at most one filter.
struct PlanAboveScan<'a> {
    top: &'a Arc<dyn ExecutionPlan>,
    filter: Option<&'a FilterExec>,
    scan: &'a Scan,
    table: &'a Table,
    tests: &'a [ColumnTest],
    /// Number of parts of the new scan.
    parts: usize,
    /// Bytes of files that were read for the first time while looking for rows.
    untouched: Cell<u64>,
}

fn plan_above_scan(top: &Arc<dyn ExecutionPlan>, parts: usize) -> Option<PlanAboveScan<'_>> {
    let (mut plan, mut filter) = (top, None);
    loop {
        let any = plan.as_any();
        if plan.fetch().is_some() {
            return None;
        } else if let Some(projection) = any.downcast_ref::<ProjectionExec>().filter(|_| filter.is_none()) {
            plan = projection.input();
        } else if let Some(node) = any.downcast_ref::<FilterExec>().filter(|_| filter.is_none()) {
            filter = Some(node);
            plan = node.input();
        } else {
            let scan = any.downcast_ref::<Scan>()?;
            let (table, tests) = scan.coverage()?;
            // The filter is evaluated twice, and must give the same result.
            let is_steady = match filter {
                Some(filter) => !is_volatile(filter.predicate()),
                None => tests.is_empty(),
            };
            if !is_steady {
                return None;
            }
            return Some(PlanAboveScan { top, filter, scan, table, tests, parts, untouched: Cell::new(0) });
        }
    }
}

impl PlanAboveScan<'_> {
    fn for_sort(&self, sort: &SortExec) -> Option<Arc<dyn ExecutionPlan>> {
        let count = sort.fetch()?;
        let by = |by: &datafusion::physical_expr::PhysicalSortExpr| {
            let column = self.column(self.top, &by.expr)?;
            Some(SortColumn {
                column,
                descending: by.options.descending,
                nulls_first: by.options.nulls_first,
            })
        };
        let order: Vec<SortColumn> = sort.expr().iter().map(by).collect::<Option<_>>()?;
        let mut keep = |rows| self.passing_rows(rows);
        let found = index_order::first_rows(self.table, self.tests, &order, count, &mut keep)?;
        self.over_rows(found)
    }

    fn for_aggregate(&self, aggregate: &AggregateExec) -> Option<Arc<dyn ExecutionPlan>> {
        let groups = aggregate.group_expr();
        let is_first = matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single);
        if !is_first || groups.has_grouping_set() || aggregate.filter_expr().iter().any(Option::is_some) {
            return None;
        }
        let figures = aggregate.aggr_expr();
        if !groups.expr().is_empty() {
            let column = |(expr, _): &(Arc<dyn PhysicalExpr>, String)| self.column(self.top, expr);
            let columns: Vec<ColumnId> = groups.expr().iter().map(column).collect::<Option<_>>()?;
            return if figures.is_empty() { self.for_distinct(&columns) } else { None };
        }
        if figures.iter().all(|figure| self.counts_rows(figure)) {
            return self.for_count();
        }
        let mut keep = |rows| self.passing_rows(rows);
        let found = figures.iter().map(|figure| {
            let descending = match figure.fun().name() {
                "min" => false,
                "max" => true,
                _ => return None,
            };
            let [argument] = &figure.expressions()[..] else { return None };
            let column = self.column(self.top, argument)?;
            let tests: Vec<ColumnTest> =
                self.tests.iter().cloned().chain([ColumnTest::IsNotNull(column)]).collect();
            let by = SortColumn { column, descending, nulls_first: descending };
            index_order::first_rows(self.table, &tests, &[by], 1, &mut keep)
        });
        self.over_rows(IndexedRows::union(found.collect::<Option<_>>()?)?)
    }

    fn for_distinct(&self, columns: &[ColumnId]) -> Option<Arc<dyn ExecutionPlan>> {
        let columns_of = |filter: &FilterExec| {
            let all = collect_columns(filter.predicate());
            all.iter().map(|column| self.scan.column(column.index())).collect::<Option<Vec<_>>>()
        };
        let filtered = match self.filter {
            Some(filter) => columns_of(filter)?,
            None => Vec::new(),
        };
        let mut keep = |rows| self.passing_rows(rows);
        let found = index_order::distinct(self.table, self.tests, columns, &filtered, &mut keep)?;
        self.over_rows(found)
    }

    /// Returns true for `count(*)` in one of its forms.
    fn counts_rows(&self, figure: &datafusion::physical_expr::aggregate::AggregateFunctionExpr) -> bool {
        let plain = figure.fun().name() == "count" && !figure.is_distinct() && figure.order_bys().is_empty();
        let is_value = |expr: &Arc<dyn PhysicalExpr>| {
            let literal = expr.as_any().downcast_ref::<Literal>();
            literal.is_some_and(|literal| *literal.value() != ScalarValue::Null && !literal.value().is_null())
        };
        plain && figure.expressions().iter().all(is_value)
    }

    /// Returns as many rows without columns as the index counts, and the rows of its tail.
    fn for_count(&self) -> Option<Arc<dyn ExecutionPlan>> {
        let def = self.table.snapshot.def();
        let columns: Vec<ColumnId> = self.scan.columns().collect();
        let tests = prune::exact_tests(self.filter?.predicate(), &columns, def)?;
        let (rows, name, reached) =
            index_lookup::count_rows(&self.table.snapshot, self.table.indexes.as_ref()?, &tests)?;
        let counted = Scan::of_counted_rows(&self.table.snapshot, name.clone(), rows).ok()?;
        let tail = self.over_rows(IndexedRows { name, rows: Vec::new(), reached })?;
        let none: Vec<ProjectionExpr> = Vec::new();
        let tail = ProjectionExec::try_new(none, tail).ok()?;
        UnionExec::try_new(vec![Arc::new(counted), Arc::new(tail)]).ok()
    }

    /// Returns the table's column that a column of a node comes from.
    fn column(&self, plan: &Arc<dyn ExecutionPlan>, expr: &Arc<dyn PhysicalExpr>) -> Option<ColumnId> {
        // A lookup by the bits of floats distinguishes at least what their sort keys do.
        let expr = float_keys::without_keys(expr.clone()).ok()?;
        let at = expr.as_any().downcast_ref::<Column>()?.index();
        let any = plan.as_any();
        if any.is::<Scan>() {
            return self.scan.column(at);
        }
        if let Some(projection) = any.downcast_ref::<ProjectionExec>() {
            return self.column(projection.input(), &projection.expr().get(at)?.expr);
        }
        let filter = any.downcast_ref::<FilterExec>()?;
        let at = match filter.projection() {
            Some(columns) => *columns.get(at)?,
            None => at,
        };
        self.scan.column(at)
    }

    /// Returns those of the rows that are live and pass the filter.
    fn passing_rows(&self, rows: Vec<RowId>) -> types::Result<Vec<RowId>> {
        let snapshot = &self.table.snapshot;
        let Some(node) = self.filter else {
            let mut live = Vec::with_capacity(rows.len());
            for row in rows {
                if snapshot.is_live(row)? {
                    live.push(row);
                }
            }
            return Ok(live);
        };
        let mut ascending = rows.clone();
        ascending.sort_unstable();
        self.untouched.set(self.untouched.get() + snapshot.untouched_bytes(&ascending));
        if self.untouched.get() > UNTOUCHED_BYTES_MAX {
            let what = "looking for the first rows would read much while it is planned";
            return Err(Error::new(Kind::TooLarge, what));
        }
        let columns: Vec<ColumnId> = self.scan.columns().chain([ROW_ID]).collect();
        let batch = snapshot.fetch(&rows, &snapshot.projection(&columns)?)?;
        let failed = |e: datafusion::error::DataFusionError| {
            Error::internal(format!("evaluating a filter ahead of its plan failed: {e}"))
        };
        let met = node.predicate().evaluate(&batch).and_then(|met| met.into_array(batch.num_rows()));
        let met = met.map_err(failed)?;
        let none = || Error::internal("a filter gives no truth values");
        let met: &BooleanArray = met.as_boolean_opt().ok_or_else(none)?;
        let ids = batch.column(columns.len() - 1);
        let ids = filter(ids, met).map_err(|e| failed(e.into()))?;
        let ids = ids.as_primitive_opt::<Int64Type>().ok_or_else(none)?;
        Ok(ids.values().iter().map(|id| RowId(*id as u64)).collect())
    }

    /// Returns the nodes above the scan over a scan of the found rows and the tail.
    fn over_rows(&self, found: IndexedRows) -> Option<Arc<dyn ExecutionPlan>> {
        if self.scan.is_lookup() && self.scan.lookups() <= found.rows.len() {
            return None;
        }
        let scan: Arc<dyn ExecutionPlan> = Arc::new(self.scan.narrowed(found, self.parts)?);
        replace_scan(self.top, scan).ok()
    }
}

fn replace_scan(
    plan: &Arc<dyn ExecutionPlan>,
    scan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    match plan.children()[..] {
        [input] => plan.clone().with_new_children(vec![replace_scan(input, scan)?]),
        _ => Ok(scan),
    }
}
