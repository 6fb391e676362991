//! Point lookups without a plan: columns of a few rows of one table, found by key or by an index.
//!
//! `SELECT a, b FROM t WHERE key = $1 AND c > $2 LIMIT 10` is planned once like any other statement. If its plan has this form,
//! it is cached as a [`PointLookup`], and further values are looked up on the caller's thread, without planning or waking another
//! thread. Other statements, and lookups that would be much work, are planned and give the same answer: conditions are evaluated
//! by the same kernels over the same types.

mod key_lookup;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow::compute::kernels::cmp;
use arrow::compute::{FilterBuilder, and, concat_batches};
use arrow::datatypes::{DataType as Arrow, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, FetchType, LogicalPlan, Operator, SkipType};
use table::{Projection, ScanPiece, Snapshot};
use types::{ColumnId, Error, ROW_ID, ROW_ID_NAME, Result, RowId, TIME, TIME_NAME, TableDef, Value};

use crate::index_lookup;
use crate::provider::Table;
use crate::prune::{self, ColumnTest, RowLocation};

pub(crate) use key_lookup::{KeyLookup, has_type};

/// The kind of thread that performs a lookup: it decides how large the lookup may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A thread that others wait for too: a server's, or one of an async runtime.
    Shared,
    /// A thread that waits for this answer only. It may also scan small tables: planning, and waking another thread and being
    /// woken by it, take longer.
    Waiting,
}

impl Caller {
    /// Limits of rows: of those found by the index, and of those scanned.
    fn rows_max(self) -> (usize, usize) {
        match self {
            Caller::Shared => (1_024, 2 * table::BATCH_ROWS),
            Caller::Waiting => (4 * table::BATCH_ROWS, 8 * table::BATCH_ROWS),
        }
    }

    /// Limit of the rows' bytes, with all columns: the answer is made at once, without a reservation in the memory pool.
    fn bytes_max(self) -> u64 {
        match self {
            Caller::Shared => 16 << 20,
            Caller::Waiting => 64 << 20,
        }
    }

    /// Limit of the bytes read from files for the first time.
    fn untouched_bytes_max(self) -> u64 {
        match self {
            Caller::Shared => 1 << 20,
            Caller::Waiting => 8 << 20,
        }
    }
}

/// A compiled point lookup; see the module.
#[derive(Debug)]
pub(crate) struct PointLookup {
    /// The columns to read: those of the answer, then those of the conditions.
    projection: Projection,
    /// The schema of the answer.
    schema: SchemaRef,
    terms: Vec<LookupCondition>,
    limit: usize,
}

/// A condition; a row must meet all of them.
#[derive(Debug)]
struct LookupCondition {
    column: ColumnId,
    /// Position of the column in [`PointLookup::projection`].
    position: usize,
    op: Operator,
    operand: Operand,
}

#[derive(Debug)]
enum Operand {
    Value(ScalarValue),
    /// A parameter, by its index from 0.
    Param(usize),
}

impl PointLookup {
    /// Compiles a plan; `None` if it has another form. `params` are the types of the values that lookups will get.
    pub fn of(plan: &LogicalPlan, table: &Snapshot, params: &[Arrow]) -> Option<PointLookup> {
        let schema: SchemaRef = plan.schema().inner().clone();
        let (plan, limit) = match plan {
            LogicalPlan::Limit(limit) => {
                let (SkipType::Literal(0), FetchType::Literal(fetch)) =
                    (limit.get_skip_type().ok()?, limit.get_fetch_type().ok()?)
                else {
                    return None;
                };
                (&*limit.input, fetch.unwrap_or(usize::MAX))
            }
            plan => (plan, usize::MAX),
        };
        let (plan, output) = match plan {
            LogicalPlan::Projection(projection) => (&*projection.input, projection.expr.as_slice()),
            plan => (plan, [].as_slice()),
        };
        let LogicalPlan::Filter(filter) = plan else { return None };
        let mut below = &*filter.input;
        while let LogicalPlan::SubqueryAlias(alias) = below {
            below = &alias.input;
        }
        let LogicalPlan::TableScan(scan) = below else { return None };
        if scan.fetch.is_some() {
            return None;
        }
        let def = table.def();
        let column_of = |expr: &Expr| column(expr, def);
        let mut columns: Vec<ColumnId> = match output {
            [] => {
                filter.input.schema().fields().iter().map(|f| id_of(f.name(), def)).collect::<Option<_>>()?
            }
            output => output.iter().map(column_of).collect::<Option<_>>()?,
        };
        if columns.len() != schema.fields().len() {
            return None;
        }
        let mut terms = Vec::new();
        for condition in split_conjunction(&filter.predicate) {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
            let (id, op, operand) = match (column(left, def), column(right, def)) {
                (Some(id), None) => (id, *op, right),
                (None, Some(id)) => (id, op.swap()?, left),
                _ => return None,
            };
            if !matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
                return None;
            }
            let operand = match &**operand {
                Expr::Literal(value, _) => Operand::Value(value.clone()),
                Expr::Placeholder(placeholder) => {
                    Operand::Param(placeholder.id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)?)
                }
                _ => return None,
            };
            let wanted = data_type(id, def)?;
            let given = match &operand {
                Operand::Value(value) => value.data_type(),
                Operand::Param(at) => params.get(*at)?.clone(),
            };
            if given != wanted {
                return None;
            }
            let position = columns.len();
            columns.push(id);
            terms.push(LookupCondition { column: id, position, op, operand });
        }
        let projection = table.projection(&columns).ok()?;
        Some(PointLookup { projection, schema, terms, limit })
    }

    /// Looks rows up; `None` if no index finds them, or if that is too much work for this caller.
    pub fn run(&self, table: &Table, params: &[ScalarValue], caller: Caller) -> Result<Option<RecordBatch>> {
        let snapshot = &*table.snapshot;
        let mut tests = Vec::with_capacity(self.terms.len());
        let mut values = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let scalar = match &term.operand {
                Operand::Value(value) => value,
                Operand::Param(at) => match params.get(*at) {
                    Some(value) => value,
                    None => return Ok(None),
                },
            };
            let Some(value) = prune::value_of(scalar, term.column, snapshot.def()) else { return Ok(None) };
            if has_equal_values(&value) {
                return Ok(None);
            }
            values.push(scalar);
            tests.push(ColumnTest::Compare { column: term.column, op: term.op, value });
        }
        let _reading = vfs::read_path();
        let (rows, tail) = match prune::locate_rows(snapshot, &tests)? {
            RowLocation::Rows(rows) => (rows, Vec::new()),
            RowLocation::Range(first, end) if first >= end => (Vec::new(), Vec::new()),
            RowLocation::Range(..) => {
                let found = index_lookup::find(table, &tests);
                let (rows, mut tail) = match found {
                    Some(found) => (found.rows, snapshot.pieces_after(found.reached)),
                    None if caller == Caller::Waiting && snapshot.rows() <= caller.rows_max().1 as u64 => {
                        (Vec::new(), snapshot.pieces())
                    }
                    None => return Ok(None),
                };
                tail.retain(|piece| prune::may_match(piece, &tests));
                (rows, tail)
            }
        };
        if !is_small(snapshot, &rows, &tail, caller) {
            return Ok(None);
        }
        let values: Vec<ArrayRef> = values
            .into_iter()
            .map(|value| value.to_array().map_err(dialect::error::from_datafusion))
            .collect::<Result<_>>()?;
        let mut batches = Vec::with_capacity(1 + tail.len());
        if !rows.is_empty() {
            batches.push(self.matching_rows(snapshot.fetch(&rows, &self.projection)?, &values)?);
        }
        for piece in &tail {
            batches.push(self.matching_rows(piece.read(&self.projection)?, &values)?);
        }
        self.answer(batches).map(Some)
    }

    /// Returns the answer's columns for the rows that meet all conditions.
    fn matching_rows(&self, batch: RecordBatch, values: &[ArrayRef]) -> Result<RecordBatch> {
        let failed = |e| Error::internal(format!("comparing the rows of a lookup failed: {e}"));
        let mut mask: Option<BooleanArray> = None;
        for (term, value) in self.terms.iter().zip(values) {
            let (column, value) = (batch.column(term.position), Scalar::new(value.clone()));
            let met = match term.op {
                Operator::Eq => cmp::eq(column, &value),
                Operator::Lt => cmp::lt(column, &value),
                Operator::LtEq => cmp::lt_eq(column, &value),
                Operator::Gt => cmp::gt(column, &value),
                _ => cmp::gt_eq(column, &value),
            }
            .map_err(failed)?;
            mask = Some(match mask {
                None => met,
                Some(before) => and(&before, &met).map_err(failed)?,
            });
        }
        let columns = &batch.columns()[..self.schema.fields().len()];
        let columns = match mask {
            // The rows that an index found nearly always meet all conditions.
            Some(mask) if mask.true_count() < mask.len() => {
                let filter = FilterBuilder::new(&mask).optimize().build();
                columns.iter().map(|c| filter.filter(c).map_err(failed)).collect::<Result<_>>()?
            }
            _ => columns.to_vec(),
        };
        RecordBatch::try_new(self.schema.clone(), columns).map_err(failed)
    }

    fn answer(&self, batches: Vec<RecordBatch>) -> Result<RecordBatch> {
        let failed = |e| Error::internal(format!("the rows of a lookup make no batch: {e}"));
        let whole = match &batches[..] {
            [] => return Ok(RecordBatch::new_empty(self.schema.clone())),
            [only] => only.clone(),
            several => concat_batches(&self.schema, several).map_err(failed)?,
        };
        if whole.num_rows() <= self.limit { Ok(whole) } else { Ok(whole.slice(0, self.limit)) }
    }
}

fn is_small(table: &Snapshot, rows: &[RowId], tail: &[ScanPiece], caller: Caller) -> bool {
    let (rows_max, tail_rows_max) = caller.rows_max();
    let tail_rows: usize = tail.iter().map(ScanPiece::rows).sum();
    let bytes = || {
        let tail: u64 = tail.iter().map(ScanPiece::bytes).sum();
        tail + table.raw_bytes() / table.rows().max(1) * rows.len() as u64
    };
    let untouched = || {
        let tail: u64 = tail.iter().map(ScanPiece::untouched_bytes).sum();
        tail + table.untouched_bytes(rows)
    };
    let is_few = rows.len() <= rows_max && tail_rows <= tail_rows_max;
    is_few
        && (rows.len() + tail_rows < 2 || bytes() <= caller.bytes_max())
        && untouched() <= caller.untouched_bytes_max()
}

/// Returns true if floats with other bits are equal to this one: such comparisons are left to the planner.
fn has_equal_values(value: &Value) -> bool {
    match value {
        Value::Float64(v) => *v == 0.0 || v.is_nan(),
        Value::Float32(v) => *v == 0.0 || v.is_nan(),
        _ => false,
    }
}

fn column(expr: &Expr, def: &TableDef) -> Option<ColumnId> {
    match expr {
        Expr::Column(column) => id_of(&column.name, def),
        Expr::Alias(alias) => column(&alias.expr, def),
        _ => None,
    }
}

fn id_of(name: &str, def: &TableDef) -> Option<ColumnId> {
    match name {
        ROW_ID_NAME => Some(ROW_ID),
        TIME_NAME => Some(TIME),
        name => def.schema.columns.iter().find(|column| column.name == name).map(|column| column.id),
    }
}

fn data_type(id: ColumnId, def: &TableDef) -> Option<Arrow> {
    Some(match id {
        ROW_ID => Arrow::Int64,
        TIME => types::DataType::Timestamp.to_arrow(),
        id => def.schema.column(id)?.data_type.to_arrow(),
    })
}
