//! DataFusion's table provider over a table's snapshot: its columns, the use of filters, and the division into parallel parts.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use engine::View;
use index::column::{self, Indexes};
use table::{Projection, ScanPiece, Snapshot};
use types::{ColumnId, ROW_ID, RowId, TIME};

use crate::index_lookup::{self, IndexedRows};
use crate::prune::{self, ColumnTest, RowLocation};
use crate::scan::{Scan, ScanPart};

/// A table of a view, with the column indexes of the same root (S2).
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub snapshot: Arc<Snapshot>,
    pub indexes: Option<Arc<Indexes>>,
}

impl Table {
    pub fn of(view: &View, snapshot: Arc<Snapshot>) -> Table {
        let position = view.derived(column::NAME, &snapshot);
        Table { indexes: position.and_then(|position| position.published::<Indexes>()), snapshot }
    }

    /// Returns the same definition over an empty snapshot, which takes no memory.
    pub fn without_rows(&self) -> Table {
        Table { snapshot: self.snapshot.without_rows(), indexes: None }
    }
}

/// One table at one lsn. Its columns are the user's; the system columns follow in statements that name one of them.
#[derive(Debug)]
pub(crate) struct SnapshotProvider {
    table: Table,
    schema: SchemaRef,
    /// The column ids of `schema`.
    columns: Vec<ColumnId>,
    constraints: Constraints,
    system: bool,
}

impl SnapshotProvider {
    pub fn new(table: Table, system: bool) -> Self {
        let (schema, columns) = visible_columns(&table.snapshot, system);
        let key: Vec<usize> = table
            .snapshot
            .def()
            .primary_key
            .iter()
            .filter_map(|id| columns.iter().position(|c| c == id))
            .collect();
        let mut constraints = Vec::new();
        if !key.is_empty() {
            constraints.push(Constraint::PrimaryKey(key));
        }
        let constraints = Constraints::new_unverified(constraints);
        SnapshotProvider { table, schema, columns, constraints, system }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.table.snapshot
    }

    /// Returns a provider of the same table at another lsn. The definition must be the same.
    pub fn at(&self, table: Table) -> Self {
        debug_assert_eq!(table.snapshot.def().schema.version, self.snapshot().def().schema.version);
        SnapshotProvider {
            table,
            schema: self.schema.clone(),
            columns: self.columns.clone(),
            constraints: self.constraints.clone(),
            system: self.system,
        }
    }
}

impl SnapshotProvider {
    /// Returns all pieces of the table. They come in storage order, unless rows are only counted, or are chosen by id or arrival
    /// and not by the time column.
    fn pieces(&self, columns: &[ColumnId], tests: &[ColumnTest], first: RowId, end: RowId) -> Vec<ScanPiece> {
        let snapshot = self.snapshot();
        let of_column = |test: &ColumnTest, column| matches!(test, ColumnTest::Compare { column: id, .. } if *id == column);
        let by_time = snapshot.def().time.is_some_and(|id| tests.iter().any(|test| of_column(test, id)));
        let by_id = (first, end) != (RowId(0), snapshot.next_row());
        if columns.is_empty() && tests.is_empty() || by_id && !by_time {
            snapshot.pieces()
        } else {
            snapshot.stored_pieces()
        }
    }
}

fn visible_columns(snapshot: &Snapshot, system: bool) -> (SchemaRef, Vec<ColumnId>) {
    // Stored batches begin with the system columns, which `*` leaves out.
    let stored = snapshot.arrow_schema().fields();
    let mut fields = stored[2..].to_vec();
    let mut columns: Vec<ColumnId> = snapshot.def().schema.columns.iter().map(|c| c.id).collect();
    if system {
        fields.extend_from_slice(&stored[..2]);
        columns.extend([ROW_ID, TIME]);
    }
    (Arc::new(ArrowSchema::new(fields)), columns)
}

#[async_trait]
impl TableProvider for SnapshotProvider {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // The scan uses filters only to leave out pieces; DataFusion filters the rows.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Vec<ColumnId> = match projection {
            Some(wanted) => wanted.iter().map(|i| self.columns[*i]).collect(),
            None => self.columns.clone(),
        };
        let ours = |error| DataFusionError::External(Box::new(error));
        let snapshot = self.snapshot();
        let projection = snapshot.projection(&columns).map_err(ours)?;
        let tests = prune::tests(filters, snapshot.def());
        let fits = |piece: &ScanPiece| tests.is_empty() || prune::may_match(piece, &tests);
        let scan = |parts, exact, limit| Scan::new(snapshot.clone(), projection.clone(), parts, exact, limit);
        let location = prune::locate_rows(snapshot, &tests).map_err(ours)?;
        let found = match &location {
            RowLocation::Range(first, end) if first < end && !tests.is_empty() => {
                index_lookup::find(&self.table, &tests)
            }
            _ => None,
        };
        if let Some(found) = found {
            let parts = lookup_parts(snapshot, &found, &tests, state.config().target_partitions());
            let scan = scan(parts, false, None).with_index(found.name);
            return Ok(Arc::new(scan.with_coverage(self.table.clone(), tests)));
        }
        let by_range = matches!(location, RowLocation::Range(..));
        let parts = match location {
            RowLocation::Rows(rows) => vec![ScanPart::Rows(rows)],
            RowLocation::Range(first, end) => {
                let fits = |piece: &ScanPiece| {
                    let (low, high) = piece.row_range();
                    high >= first && low < end && fits(piece)
                };
                let pieces: Vec<ScanPiece> = if first >= end {
                    Vec::new()
                } else {
                    self.pieces(&columns, &tests, first, end).into_iter().filter(fits).collect()
                };
                // DataFusion pushes a limit this far only if no filter is above it.
                let pieces = if filters.is_empty() { pieces_for_limit(pieces, limit) } else { pieces };
                split_into_parts(pieces, state.config().target_partitions())
            }
        };
        // The number of live rows of an unreadable segment is unknown: a count must meet the error.
        let counted = |part: &ScanPart| match part {
            ScanPart::Pieces(pieces) => pieces.iter().all(ScanPiece::is_counted),
            ScanPart::Rows(_) | ScanPart::Count(_) => true,
        };
        let exact = filters.is_empty()
            && snapshot.segments().all(|segment| segment.check().is_ok())
            && parts.iter().all(counted);
        let limit = limit.filter(|_| exact);
        // The scan is complete if it left out only rows that the filters refuse.
        let of_all = limit.is_none() && by_range;
        let scan = scan(parts, exact, limit);
        Ok(Arc::new(if of_all { scan.with_coverage(self.table.clone(), tests) } else { scan }))
    }
}

/// Makes the parts of an index lookup: the rows found, and the index's tail as far as its pieces may match the tests.
pub(crate) fn lookup_parts(
    snapshot: &Snapshot,
    found: &IndexedRows,
    tests: &[ColumnTest],
    count: usize,
) -> Vec<ScanPart> {
    let mut parts: Vec<ScanPart> =
        found.rows.chunks(table::BATCH_ROWS).map(|rows| ScanPart::Rows(rows.to_vec())).collect();
    let mut tail = snapshot.pieces_after(found.reached);
    tail.retain(|piece| tests.is_empty() || prune::may_match(piece, tests));
    if !tail.is_empty() || parts.is_empty() {
        parts.extend(split_into_parts(tail, count));
    }
    parts
}

/// Returns the first pieces that together hold `limit` rows.
fn pieces_for_limit(mut pieces: Vec<ScanPiece>, limit: Option<usize>) -> Vec<ScanPiece> {
    let Some(limit) = limit else { return pieces };
    let mut rows = 0;
    let wanted = pieces.iter().take_while(|piece| {
        let more = rows < limit;
        // A piece whose live rows were not counted might have none.
        rows += if piece.is_counted() { piece.rows() } else { 0 };
        more
    });
    let count = wanted.count();
    pieces.truncate(count);
    pieces
}

/// Splits the pieces into at most `count` parts of about equal rows. Neighbours stay together, so each part is in row-id order.
fn split_into_parts(pieces: Vec<ScanPiece>, count: usize) -> Vec<ScanPart> {
    let total: usize = pieces.iter().map(ScanPiece::rows).sum();
    // A further thread is worth it for a full batch of rows.
    let count = count.min(total.div_ceil(table::BATCH_ROWS)).max(1);
    let target = total.div_ceil(count).max(1);
    let mut parts = Vec::with_capacity(count);
    let mut part = Vec::new();
    let mut rows = 0;
    let are_ordered = pieces.iter().all(ScanPiece::is_in_row_order);
    for piece in pieces {
        // Rows of an earlier time follow the others and begin again at smaller ids; this keeps each part in order.
        if are_ordered
            && part.last().is_some_and(|last: &ScanPiece| last.row_range().1 >= piece.row_range().0)
        {
            parts.push(ScanPart::Pieces(std::mem::take(&mut part)));
            rows = 0;
        }
        rows += piece.rows();
        part.push(piece);
        if rows >= target && parts.len() + 1 < count {
            parts.push(ScanPart::Pieces(std::mem::take(&mut part)));
            rows = 0;
        }
    }
    if !part.is_empty() || parts.is_empty() {
        parts.push(ScanPart::Pieces(part));
    }
    parts
}

/// Returns the position of a column in a projection.
pub(crate) fn position(projection: &Projection, wanted: ColumnId) -> Option<usize> {
    projection.columns().position(|column| column == wanted)
}

/// Returns a column of row ids as the engine's type.
pub(crate) fn row_ids(column: &arrow::array::Int64Array) -> impl Iterator<Item = RowId> + '_ {
    column.values().iter().map(|v| RowId(*v as u64))
}
