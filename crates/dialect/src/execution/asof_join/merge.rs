//! Merges the two sorted sides of an ASOF JOIN, in one partition.
//!
//! Keeps only those batches of the right side that contain a match of the current left rows.

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

/// Number of right batches that are kept for one answer. At more, the left rows matched so far are returned.
const HELD_MAX: usize = 32;

/// One sorted input.
pub(super) struct SortedSide {
    stream: SendableRecordBatchStream,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    time: Arc<dyn PhysicalExpr>,
    /// Converts keys to comparable bytes; `None` without keys, because then all keys are equal.
    key_rows: Option<RowConverter>,
    time_rows: RowConverter,
}

/// A batch with its keys and times in a form that can be compared.
struct SideBatch {
    rows: RecordBatch,
    keys: Option<Rows>,
    times: Rows,
    /// True for rows whose key and time are not null. A null equals nothing.
    complete: BooleanArray,
}

impl SortedSide {
    pub fn new(
        stream: SendableRecordBatchStream,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        time: Arc<dyn PhysicalExpr>,
        op: Operator,
    ) -> Result<SortedSide> {
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
        Ok(SortedSide { stream, keys, time, key_rows, time_rows })
    }

    /// Returns the next batch that is not empty, or `None` at the end.
    async fn next(&mut self) -> Result<Option<SideBatch>> {
        while let Some(rows) = self.stream.next().await {
            let rows = rows?;
            if rows.num_rows() > 0 {
                return self.batch(rows).map(Some);
            }
        }
        Ok(None)
    }

    fn batch(&self, rows: RecordBatch) -> Result<SideBatch> {
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&rows)?.into_array(rows.num_rows());
        let keys: Vec<ArrayRef> = self.keys.iter().map(evaluate).collect::<Result<_>>()?;
        let time = evaluate(&self.time)?;
        let mut complete = is_not_null(&time)?;
        for key in &keys {
            complete = and(&complete, &is_not_null(key)?)?;
        }
        let times = self.time_rows.convert_columns(&[time])?;
        let keys = self.key_rows.as_ref().map(|rows| rows.convert_columns(&keys)).transpose()?;
        Ok(SideBatch { rows, keys, times, complete })
    }
}

impl SideBatch {
    fn key(&self, row: usize) -> &[u8] {
        self.keys.as_ref().map_or(&[], |keys| keys.row(row).data())
    }
}

/// The last right row that was passed and may match: its batch in `held`, its row there, and its key.
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

pub(super) struct AsOfMerge {
    left: SortedSide,
    right: SortedSide,
    inclusive: bool,
    schema: SchemaRef,
    metrics: BaselineMetrics,
    /// The current left batch and its next row.
    left_rows: Option<(SideBatch, usize)>,
    /// The current right batch and its next row; `None` before the first batch and after the last.
    right_rows: Option<(SideBatch, usize)>,
    right_ended: bool,
    candidate: Option<Candidate>,
    /// A row of nulls, followed by the kept right batches. The current right batch is the last one.
    held: Vec<RecordBatch>,
    /// The greatest index in `held` that holds a match of a left row that was not returned yet.
    picked: usize,
}

impl AsOfMerge {
    pub fn new(
        left: SortedSide,
        right: SortedSide,
        inclusive: bool,
        schema: SchemaRef,
        metrics: BaselineMetrics,
    ) -> Result<AsOfMerge> {
        let width = left.stream.schema().fields().len();
        let nulls: Vec<ArrayRef> =
            schema.fields()[width..].iter().map(|field| new_null_array(field.data_type(), 1)).collect();
        let null_schema = arrow::datatypes::Schema::new(schema.fields()[width..].to_vec());
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let nulls = RecordBatch::try_new_with_options(Arc::new(null_schema), nulls, &options)?;
        Ok(AsOfMerge {
            left,
            right,
            inclusive,
            schema,
            metrics,
            left_rows: None,
            right_rows: None,
            right_ended: false,
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

    /// Returns the next left rows with their matches.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let (batch, start) = match self.left_rows.take() {
            Some(rows) => rows,
            None => match self.left.next().await? {
                Some(batch) => (batch, 0),
                None => return Ok(None),
            },
        };
        let (mut at, mut picks) = (start, Vec::with_capacity(batch.rows.num_rows() - start));
        while at < batch.rows.num_rows() && self.held.len() <= HELD_MAX {
            let pick = if batch.complete.value(at) { self.find_match(&batch, at).await? } else { None };
            let pick = pick.unwrap_or((0, 0));
            self.picked = self.picked.max(pick.0);
            picks.push(pick);
            at += 1;
        }
        let answer = self.answer(&batch.rows.slice(start, at - start), &picks)?;
        self.release_batches();
        if at < batch.rows.num_rows() {
            self.left_rows = Some((batch, at));
        }
        Ok(Some(answer.record_output(&self.metrics)))
    }

    /// Returns the match of a left row: its index in `held` and its row there.
    async fn find_match(&mut self, left: &SideBatch, at: usize) -> Result<Option<(usize, usize)>> {
        let (key, time) = (left.key(at), left.times.row(at));
        loop {
            if self.right_rows.is_none() && !self.right_ended {
                match self.right.next().await? {
                    Some(batch) => {
                        self.make_room();
                        self.held.push(batch.rows.clone());
                        self.right_rows = Some((batch, 0));
                    }
                    None => self.right_ended = true,
                }
            }
            let Some((right_rows, next)) = &mut self.right_rows else { break };
            let row = *next;
            if right_rows.complete.value(row) {
                match right_rows.key(row).cmp(key) {
                    Ordering::Less => {}
                    Ordering::Greater => break,
                    Ordering::Equal => {
                        let order = right_rows.times.row(row).cmp(&time);
                        let fits = order == Ordering::Less || self.inclusive && order == Ordering::Equal;
                        if !fits {
                            break;
                        }
                        let key = right_rows.keys.as_ref().map(|keys| keys.row(row).owned());
                        self.candidate = Some(Candidate { source: self.held.len() - 1, row, key });
                    }
                }
            }
            *next += 1;
            if *next == right_rows.rows.num_rows() {
                self.right_rows = None;
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

    /// Releases the right batches that no later left row can match: all but those of the candidate and of the current right rows.
    fn release_batches(&mut self) {
        let right_rows = self.right_rows.as_ref().map(|_| self.held.len() - 1);
        let matching = self.candidate.as_ref().map(|candidate| candidate.source);
        let mut kept: Vec<usize> = matching.into_iter().chain(right_rows).collect();
        kept.dedup();
        if let Some(candidate) = &mut self.candidate {
            // The candidate's batch is the first that is kept: the candidate never comes after the current right rows.
            candidate.source = 1;
        }
        self.held = std::iter::once(0).chain(kept).map(|source| self.held[source].clone()).collect();
        self.picked = 0;
    }

    /// Makes room for the next right batch: releases the batches that hold no match of a left row.
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
