//! Which indexes would have helped: statements that read far more rows than their filters took, by table and columns.
//!
//! Kept in memory, of a bounded number of such columns, and without a lock that readers could wait for. Nothing of what a
//! statement asked for is kept, only the columns that it compared.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::Operator;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use futures::{Stream, StreamExt};
use types::{ColumnId, IndexDef, TableDef, TableId};

use crate::prune::Test;
use crate::scan::Scan;

/// A statement that reads less is quick enough.
const ROWS_MIN: u64 = 10_000;
/// Rows read for each that the filter took.
const ROWS_FOR_ONE: u64 = 100;
/// Tables and columns that are remembered; further ones are not.
const KNOWN_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    known: ArcSwap<imbl::OrdMap<Place, Arc<Seen>>>,
}

type Place = (TableId, Vec<ColumnId>);

#[derive(Debug, Default)]
struct Seen {
    queries: AtomicU64,
    scanned: AtomicU64,
    returned: AtomicU64,
}

/// What is remembered of one table's columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub columns: Vec<ColumnId>,
    pub queries: u64,
    pub scanned: u64,
    pub returned: u64,
}

impl Advice {
    /// What would help a table and does not exist yet.
    pub fn of(&self, def: &TableDef) -> Vec<Piece> {
        let known = self.known.load();
        let of_table = known.iter().filter(|((id, columns), _)| {
            let is_there =
                |index: &IndexDef| index.kind == index::column::KIND && index.columns.starts_with(columns);
            *id == def.id
                && !def.indexes.iter().any(is_there)
                && columns.iter().all(|column| def.schema.column(*column).is_some())
        });
        let piece = |((_, columns), seen): (&Place, &Arc<Seen>)| Piece {
            columns: columns.clone(),
            queries: seen.queries.load(Ordering::Relaxed),
            scanned: seen.scanned.load(Ordering::Relaxed),
            returned: seen.returned.load(Ordering::Relaxed),
        };
        of_table.map(piece).collect()
    }

    fn add(&self, table: TableId, columns: Vec<ColumnId>, scanned: u64, returned: u64) {
        let key = (table, columns);
        let mut seen = self.known.load().get(&key).cloned();
        if seen.is_none() {
            self.known.rcu(|known| {
                let full = known.len() >= KNOWN_MAX;
                let mut next = imbl::OrdMap::clone(known);
                seen = match next.get(&key) {
                    Some(seen) => Some(seen.clone()),
                    None if full => None,
                    None => Some(next.entry(key.clone()).or_default().clone()),
                };
                next
            });
        }
        let Some(seen) = seen else { return };
        seen.queries.fetch_add(1, Ordering::Relaxed);
        seen.scanned.fetch_add(scanned, Ordering::Relaxed);
        seen.returned.fetch_add(returned, Ordering::Relaxed);
    }

    /// Looks at what a plan has read.
    fn look(&self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(filter) = plan.as_any().downcast_ref::<FilterExec>()
            && let Some(scan) = scan_below(filter.input())
        {
            let returned = filter.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or(0) as u64;
            // No index would help who reads the past.
            let scanned = if scan.snapshot().as_of().is_none() { scan.scanned() } else { 0 };
            if is_much(scanned) && scanned >= returned.max(1).saturating_mul(ROWS_FOR_ONE) {
                let def = scan.snapshot().def();
                let columns = scan.of_all().map(|(_, tests)| columns(tests, def)).unwrap_or_default();
                if !columns.is_empty() {
                    self.add(def.id, columns, scanned, returned);
                }
            }
        }
        plan.children().into_iter().for_each(|child| self.look(child));
    }

    /// The same rows; when they have ended, or nobody wants more of them, it is looked at what was read for them.
    pub fn watching(
        self: &Arc<Self>,
        plan: &Arc<dyn ExecutionPlan>,
        stream: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        if !reads_much(plan) {
            return stream;
        }
        Box::pin(Watched { stream, plan: plan.clone(), advice: self.clone() })
    }
}

fn is_much(rows: u64) -> bool {
    rows >= ROWS_MIN
}

fn reads_much(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.as_any().downcast_ref::<Scan>() {
        Some(scan) => {
            scan.of_all().is_some_and(|(_, tests)| !tests.is_empty()) && is_much(scan.rows(None) as u64)
        }
        None => plan.children().into_iter().any(reads_much),
    }
}

fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&Scan> {
    let any = plan.as_any();
    if let Some(scan) = any.downcast_ref::<Scan>() {
        return Some(scan);
    }
    let passes = any.is::<CooperativeExec>() || any.is::<RepartitionExec>();
    let [input] = plan.children()[..] else { return None };
    if passes { scan_below(input) } else { None }
}

/// Those of an index that would have found the rows: first what has certain values, then one of which more is known.
fn columns(tests: &[Test], def: &TableDef) -> Vec<ColumnId> {
    let fits = |id: ColumnId| {
        let index = IndexDef {
            name: String::new(),
            kind: index::column::KIND.into(),
            columns: vec![id],
            options: Vec::new(),
            unique: None,
        };
        def.schema.column(id).is_some() && index::column::check(def, &index).is_ok()
    };
    let mut equal: Vec<ColumnId> = tests
        .iter()
        .filter_map(|test| match test {
            Test::Compare { column, op: Operator::Eq, .. } | Test::OneOf { column, .. } => Some(*column),
            Test::IsNull(column) => Some(*column),
            _ => None,
        })
        .filter(|id| fits(*id))
        .collect();
    equal.sort_unstable();
    equal.dedup();
    let next = tests.iter().find_map(|test| match test {
        Test::Compare { column, .. } | Test::StartsWith { column, .. } => {
            Some(*column).filter(|id| fits(*id) && !equal.contains(id))
        }
        _ => None,
    });
    equal.truncate(index::column::COLUMNS_MAX - 1);
    equal.extend(next);
    equal
}

struct Watched {
    stream: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    advice: Arc<Advice>,
}

impl Stream for Watched {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(context)
    }
}

impl RecordBatchStream for Watched {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.advice.look(&self.plan);
    }
}
