//! RETURNING: the rows after the statement; for DELETE, the rows before it.
//!
//! It is evaluated before the commit, as a SELECT over these rows, so an error in it changes nothing. Only `_row_id` and `_time`
//! of new rows are unknown until the commit. Plain columns of these are filled in afterwards; an expression over them is
//! evaluated a second time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, SelectItem, SetExpr, Statement, WildcardAdditionalOptions, visit_expressions,
};
use dialect::execution::cancellation::Cancellation;
use dialect::execution::interrupt;
use engine::Committed;
use sql::names;
use sql::not_yet;
use sql::parse;
use table::Snapshot;
use types::{Error, Micros, ROW_ID_NAME, Result, TIME_NAME};

use super::Writer;
use super::joined_tables::JoinedTable;
use crate::deadline::COMMIT_WAIT;
use crate::execute::reserve;
use crate::planner::{ExtraTable, extra_schema};

const CHANGED: &str = "changed rows";
const OTHER: &str = "joined rows ";

/// The rows that a statement changes.
pub(super) struct ChangedRows<'a> {
    pub snapshot: &'a Arc<Snapshot>,
    /// The qualifier of their columns.
    pub called: &'a Ident,
    /// The rows in stored form: one array per column of the table.
    pub rows: Vec<ArrayRef>,
    pub system: SystemColumns,
    /// The rows that they were joined with.
    pub others: Vec<JoinedTable>,
}

/// The source of `_row_id` and `_time`.
pub(super) enum SystemColumns {
    /// The commit, which numbers the rows in their order.
    New,
    Old {
        ids: ArrayRef,
        times: ArrayRef,
    },
}

/// The rows of RETURNING before the commit.
pub(crate) struct ReturnedRows {
    rows: RecordBatch,
    memory: MemoryReservation,
    after: AfterCommit,
}

/// The work that is left after the commit.
enum AfterCommit {
    Nothing,
    /// The positions of the columns to fill with row ids, and with times.
    Fill {
        ids: Vec<usize>,
        times: Vec<usize>,
    },
    Evaluate {
        statement: Box<Statement>,
        rows: Vec<ArrayRef>,
        others: Vec<JoinedTable>,
        snapshot: Arc<Snapshot>,
    },
}

impl ReturnedRows {
    pub fn count(&self) -> u64 {
        self.rows.num_rows() as u64
    }
}

impl Writer<'_> {
    pub(super) async fn returned(
        &self,
        items: &[SelectItem],
        changed: ChangedRows<'_>,
    ) -> Result<ReturnedRows> {
        let ChangedRows { snapshot, called, rows, system, others } = changed;
        let count = rows.first().map_or(0, |column| column.len());
        let is_new = matches!(system, SystemColumns::New);
        let (ids, times) = match system {
            SystemColumns::Old { ids, times } => (ids, times),
            // Approximations of the values that the commit will assign.
            SystemColumns::New => system_columns(snapshot.next_row().0, self.view.time(), count),
        };
        let mut columns = rows.clone();
        columns.extend([ids.clone(), times.clone()]);
        let schema = extra_schema(snapshot, &[]);
        if others.is_empty()
            && let Some(places) = plain(items, called, &schema)
        {
            let picked = places.iter().map(|at| columns[*at].clone()).collect();
            let fields: Vec<_> = places.iter().map(|at| schema.field(*at).clone()).collect();
            let rows = whole(Arc::new(Schema::new(fields)), picked, count)?;
            let memory = reserve(self.planner, rows.get_array_memory_size())?;
            let at = |wanted: usize| {
                (0..places.len()).filter(|at| places[*at] == schema.fields().len() - wanted).collect()
            };
            let after =
                if is_new { AfterCommit::Fill { ids: at(2), times: at(1) } } else { AfterCommit::Nothing };
            return Ok(ReturnedRows { rows, memory, after });
        }
        refuse_system_of(items, &others)?;
        let name = Ident::with_quote('"', &called.value);
        let joins: String = others
            .iter()
            .enumerate()
            .map(|(i, other)| {
                let other = Ident::with_quote('"', &other.called.value);
                format!(
                    r#" JOIN polynya."{OTHER}{i}" AS {other} ON {name}.{ROW_ID_NAME} = {other}.{ROW_ID_NAME}"#
                )
            })
            .collect();
        let mut statement = parse::statement(
            &format!(r#"SELECT 1 FROM polynya."{CHANGED}" AS {name}{joins} ORDER BY {name}.{ROW_ID_NAME}"#),
            64 << 10,
        )?;
        let mut again = false;
        if let Statement::Query(query) = &mut statement {
            let order = query.order_by.take();
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.projection = items.to_vec();
            }
            again = is_new && names::mentions_system_column(query.as_ref());
            query.order_by = order;
        }
        let mut extras = vec![ExtraTable::of(CHANGED, schema, columns)?];
        extras.extend(joined(&others, &ids, &times)?);
        let outcome = self.run_with_extras(statement.clone(), &extras).await;
        let (rows_given, memory) =
            outcome.map_err(|e| if e.message().contains("GROUP BY") { aggregated() } else { e })?;
        if rows_given.num_rows() != count {
            return Err(aggregated());
        }
        let after = if again {
            AfterCommit::Evaluate { statement: Box::new(statement), rows, others, snapshot: snapshot.clone() }
        } else {
            AfterCommit::Nothing
        };
        Ok(ReturnedRows { rows: rows_given, memory, after })
    }

    /// Completes the rows after the commit. Without a commit nothing was changed, and the rows are complete.
    pub async fn complete(
        &self,
        returned: ReturnedRows,
        committed: Option<&Committed>,
    ) -> Result<(RecordBatch, MemoryReservation)> {
        let ReturnedRows { rows, memory, after } = returned;
        let (Some(committed), count) = (committed, rows.num_rows()) else { return Ok((rows, memory)) };
        let Some(first) = committed.first_row else { return Ok((rows, memory)) };
        match after {
            AfterCommit::Nothing => Ok((rows, memory)),
            AfterCommit::Fill { ids: at_ids, times: at_times } => {
                let (ids, times) = system_columns(first.0, committed.time, count);
                let mut columns = rows.columns().to_vec();
                at_ids.into_iter().for_each(|at| columns[at] = ids.clone());
                at_times.into_iter().for_each(|at| columns[at] = times.clone());
                Ok((whole(rows.schema(), columns, count)?, memory))
            }
            AfterCommit::Evaluate { statement, rows: mut columns, others, snapshot } => {
                let (ids, times) = system_columns(first.0, committed.time, count);
                columns.extend([ids.clone(), times.clone()]);
                let mut extras = vec![ExtraTable::of(CHANGED, extra_schema(&snapshot, &[]), columns)?];
                extras.extend(joined(&others, &ids, &times)?);
                // The answer of a committed statement is completed even after the deadline.
                let cancel = Cancellation::with_deadline(Instant::now() + COMMIT_WAIT);
                let writer = Writer { cancel: &cancel, ..*self };
                let done = |e: Error| e.with("committed at lsn", committed.lsn);
                let outcome = writer.run_with_extras(*statement, &extras);
                let outcome = interrupt::scope(cancel.clone(), outcome).await.map_err(done)?;
                if outcome.0.num_rows() != count {
                    return Err(done(Error::internal("RETURNING gave another number of rows")));
                }
                Ok(outcome)
            }
        }
    }
}

/// Makes tables of the joined rows. Each has the row id of the changed row as the key of the join.
fn joined(others: &[JoinedTable], ids: &ArrayRef, times: &ArrayRef) -> Result<Vec<ExtraTable>> {
    let extra = |(i, other): (usize, &JoinedTable)| {
        let mut fields = other.fields.clone();
        let mut columns = other.columns.clone();
        for (name, column) in [(ROW_ID_NAME, ids), (TIME_NAME, times)] {
            fields.push(Arc::new(Field::new(name, column.data_type().clone(), false)));
            columns.push(column.clone());
        }
        ExtraTable::of(&format!("{OTHER}{i}"), Arc::new(Schema::new(fields)), columns)
    };
    others.iter().enumerate().map(extra).collect()
}

/// Refuses the system columns of joined rows, which were not selected.
fn refuse_system_of(items: &[SelectItem], others: &[JoinedTable]) -> Result<()> {
    let is_other =
        |ident: &Ident| others.iter().any(|o| o.called.value.to_lowercase() == ident.value.to_lowercase());
    let found = visit_expressions(&items.to_vec(), |expr| match expr {
        Expr::CompoundIdentifier(parts)
            if is_other(&parts[0])
                && parts.last().is_some_and(|last| names::is_system_column(&last.value)) =>
        {
            ControlFlow::Break(expr.to_string())
        }
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(text) => Err(not_yet(&format!("RETURNING {text}"))
            .hint("join under a name: FROM (SELECT *, _row_id AS id …) AS other")),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn aggregated() -> Error {
    Error::invalid("RETURNING gives one row for each row that is changed")
        .hint("count and sum them in a query of their own")
}

fn system_columns(first: u64, time: Micros, count: usize) -> (ArrayRef, ArrayRef) {
    let ids = Int64Array::from_iter_values((0..count as i64).map(|at| first as i64 + at));
    let times = TimestampMicrosecondArray::from(vec![time; count]).with_timezone("UTC");
    (Arc::new(ids), Arc::new(times))
}

fn whole(schema: SchemaRef, columns: Vec<ArrayRef>, count: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|e| Error::internal(format!("the rows of RETURNING make no batch: {e}")))
}

/// Returns the positions of the requested columns in `schema`, if only columns are requested, each once and under its own name:
/// then nothing has to be planned. `schema` ends with the two system columns.
fn plain(items: &[SelectItem], called: &Ident, schema: &Schema) -> Option<Vec<usize>> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let resolved = |ident: &Ident| match names.iter().position(|name| *name == ident.value) {
        Some(at) => Some(at),
        None if ident.quote_style.is_some() => None,
        None => types::name::resolve(&ident.value, names.iter().copied()),
    };
    let mut places = Vec::with_capacity(names.len());
    for item in items {
        match item {
            SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default() => {
                places.extend(0..names.len() - 2);
            }
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => places.push(resolved(ident)?),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let [table, column] = parts.as_slice() else { return None };
                let is_column = names.iter().any(|name| name.to_lowercase() == table.value.to_lowercase());
                let is_called = table.value == called.value
                    || table.quote_style.is_none()
                        && table.value.to_lowercase() == called.value.to_lowercase();
                if is_column || !is_called {
                    return None;
                }
                places.push(resolved(column)?);
            }
            _ => return None,
        }
    }
    let mut once = places.clone();
    once.sort_unstable();
    once.dedup();
    (once.len() == places.len()).then_some(places)
}
