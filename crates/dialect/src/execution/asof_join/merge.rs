//! Merging the two sorted sides of an ASOF JOIN, one partition.
//!
//! Of the right side only the rows are kept that the left rows at hand have for their matches, batch by batch.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{SortOptions, and, interleave, is_not_null};
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use futures::{Stream, StreamExt};

use super::exec::time_order;

/// Batches of the right side that are held for one answer. Beyond them the left rows matched so far are given out.
const HELD_MAX: usize = 32;

/// One sorted input.
pub(super) struct Side {
    stream: SendableRecordBatchStream,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    time: Arc<dyn PhysicalExpr>,
    /// `None` without keys: then all rows are equal.
    key_rows: Option<RowConverter>,
    time_rows: RowConverter,
}

/// Rows in a form in which they can be compared.
struct Batch {
    rows: RecordBatch,
    keys: Option<Rows>,
    times: Rows,
    /// Whether all of them is there: what is null equals nothing.
    whole: BooleanArray,
}

impl Side {
    pub fn new(
        stream: SendableRecordBatchStream,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        time: Arc<dyn PhysicalExpr>,
        op: Operator,
    ) -> Result<Side> {
        let schema = stream.schema();
        let field = |expr: &Arc<dyn PhysicalExpr>, options: SortOptions| {
            Ok::<_, datafusion::error::DataFusionError>(SortField::new_with_options(
                expr.data_type(&schema)?,
                options,
            ))
        };
        let fields = keys.iter().map(|key| field(key, SortOptions::default())).collect::<Result<Vec<_>>>()?;
        let key_rows = if fields.is_empty() { None } else { Some(RowConverter::new(fields)?) };
        let time_rows = RowConverter::new(vec![field(&time, time_order(op))?])?;
        Ok(Side { stream, keys, time, key_rows, time_rows })
    }

    /// The next rows, if there are any.
    async fn next(&mut self) -> Result<Option<Batch>> {
        while let Some(rows) = self.stream.next().await {
            let rows = rows?;
            if rows.num_rows() > 0 {
                return self.batch(rows).map(Some);
            }
        }
        Ok(None)
    }

    fn batch(&self, rows: RecordBatch) -> Result<Batch> {
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&rows)?.into_array(rows.num_rows());
        let keys: Vec<ArrayRef> = self.keys.iter().map(evaluate).collect::<Result<_>>()?;
        let time = evaluate(&self.time)?;
        let mut whole = is_not_null(&time)?;
        for key in &keys {
            whole = and(&whole, &is_not_null(key)?)?;
        }
        let times = self.time_rows.convert_columns(&[time])?;
        let keys = self.key_rows.as_ref().map(|rows| rows.convert_columns(&keys)).transpose()?;
        Ok(Batch { rows, keys, times, whole })
    }
}

impl Batch {
    fn key(&self, row: usize) -> &[u8] {
        self.keys.as_ref().map_or(&[], |keys| keys.row(row).data())
    }
}

/// The last right row that was passed and may match: where it is held, and its key.
struct Candidate {
    source: usize,
    row: usize,
    key: Option<OwnedRow>,
}

impl Candidate {
    fn has(&self, key: &[u8]) -> bool {
        self.key.as_ref().map_or(&[][..], |own| own.row().data()) == key
    }
}

pub(super) struct Merge {
    left: Side,
    right: Side,
    inclusive: bool,
    schema: SchemaRef,
    metrics: BaselineMetrics,
    /// The left rows at hand, and which is next.
    rows: Option<(Batch, usize)>,
    /// The right rows at hand, and which is next; `None` once there are no more, or before the first.
    ahead: Option<(Batch, usize)>,
    is_over: bool,
    candidate: Option<Candidate>,
    /// Rows of nulls first, then what is held of the right side, the last being those at hand.
    held: Vec<RecordBatch>,
    /// The last of them that a left row has for its match, of those not given out yet.
    picked: usize,
}

impl Merge {
    pub fn new(
        left: Side,
        right: Side,
        inclusive: bool,
        schema: SchemaRef,
        metrics: BaselineMetrics,
    ) -> Result<Merge> {
        let width = left.stream.schema().fields().len();
        let nulls: Vec<ArrayRef> =
            schema.fields()[width..].iter().map(|field| new_null_array(field.data_type(), 1)).collect();
        let null_schema = arrow::datatypes::Schema::new(schema.fields()[width..].to_vec());
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let nulls = RecordBatch::try_new_with_options(Arc::new(null_schema), nulls, &options)?;
        Ok(Merge {
            left,
            right,
            inclusive,
            schema,
            metrics,
            rows: None,
            ahead: None,
            is_over: false,
            candidate: None,
            held: vec![nulls],
            picked: 0,
        })
    }

    pub fn into_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        futures::stream::try_unfold(self, |mut merge| async move {
            Ok(merge.next().await?.map(|batch| (batch, merge)))
        })
    }

    /// The next left rows with their matches.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let (batch, start) = match self.rows.take() {
            Some(rows) => rows,
            None => match self.left.next().await? {
                Some(batch) => (batch, 0),
                None => return Ok(None),
            },
        };
        let (mut at, mut picks) = (start, Vec::with_capacity(batch.rows.num_rows() - start));
        while at < batch.rows.num_rows() && self.held.len() <= HELD_MAX {
            let pick = if batch.whole.value(at) { self.matched(&batch, at).await? } else { None };
            let pick = pick.unwrap_or((0, 0));
            self.picked = self.picked.max(pick.0);
            picks.push(pick);
            at += 1;
        }
        let answer = self.answer(&batch.rows.slice(start, at - start), &picks)?;
        self.forget();
        if at < batch.rows.num_rows() {
            self.rows = Some((batch, at));
        }
        Ok(Some(answer.record_output(&self.metrics)))
    }

    /// The match of a left row: where it is held, and its place there.
    async fn matched(&mut self, left: &Batch, at: usize) -> Result<Option<(usize, usize)>> {
        let (key, time) = (left.key(at), left.times.row(at));
        loop {
            if self.ahead.is_none() && !self.is_over {
                match self.right.next().await? {
                    Some(batch) => {
                        self.make_room();
                        self.held.push(batch.rows.clone());
                        self.ahead = Some((batch, 0));
                    }
                    None => self.is_over = true,
                }
            }
            let Some((ahead, next)) = &mut self.ahead else { break };
            let row = *next;
            if ahead.whole.value(row) {
                match ahead.key(row).cmp(key) {
                    Ordering::Less => {}
                    Ordering::Greater => break,
                    Ordering::Equal => {
                        let order = ahead.times.row(row).cmp(&time);
                        let fits = order == Ordering::Less || self.inclusive && order == Ordering::Equal;
                        if !fits {
                            break;
                        }
                        let key = ahead.keys.as_ref().map(|keys| keys.row(row).owned());
                        self.candidate = Some(Candidate { source: self.held.len() - 1, row, key });
                    }
                }
            }
            *next += 1;
            if *next == ahead.rows.num_rows() {
                self.ahead = None;
            }
        }
        let candidate = self.candidate.as_ref().filter(|candidate| candidate.has(key));
        Ok(candidate.map(|candidate| (candidate.source, candidate.row)))
    }

    fn answer(&self, left: &RecordBatch, picks: &[(usize, usize)]) -> Result<RecordBatch> {
        let _timer = self.metrics.elapsed_compute().timer();
        let mut columns = left.columns().to_vec();
        for column in 0..self.held[0].num_columns() {
            let arrays: Vec<&dyn Array> = self.held.iter().map(|held| held.column(column).as_ref()).collect();
            columns.push(interleave(&arrays, picks)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(left.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// Lets go of what no further left row can match: all but the candidate's rows and those at hand.
    fn forget(&mut self) {
        let ahead = self.ahead.as_ref().map(|_| self.held.len() - 1);
        let matching = self.candidate.as_ref().map(|candidate| candidate.source);
        let mut kept: Vec<usize> = matching.into_iter().chain(ahead).collect();
        kept.dedup();
        if let Some(candidate) = &mut self.candidate {
            // It is never past the rows at hand.
            candidate.source = 1;
        }
        self.held = std::iter::once(0).chain(kept).map(|source| self.held[source].clone()).collect();
        self.picked = 0;
    }

    /// Makes room for the next right rows: of what was held, what no left row has for its match.
    fn make_room(&mut self) {
        let free = self.picked + 1;
        let candidate = self.candidate.as_mut().filter(|candidate| candidate.source >= free);
        let taken = candidate.map_or(0, |candidate| {
            self.held.swap(candidate.source, free);
            candidate.source = free;
            1
        });
        self.held.truncate(free + taken);
    }
}
