//! Collects the distinct values of join keys while rows pass, and publishes them after the last row.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat, filter, is_not_null, take};
use arrow::datatypes::{DataType as Arrow, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use dialect::rules::float_keys::has_float;
use futures::{Stream, StreamExt};

use super::join_keys::{CollectedKeys, KeySet, KeyValues};
use crate::index_lookup::RANGES_MAX;

/// Rows of a partition above which only the bounds of its values are published: they hardly have few distinct values.
const ROWS_MAX: usize = 64 * RANGES_MAX;
/// Bytes of the distinct values above which only their bounds are published.
const BYTES_MAX: usize = 1 << 20;

/// A plan node that collects keys; see the module.
#[derive(Debug)]
pub(crate) struct KeyCollectorExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The collector of the join; `None`: no scan uses it.
    shared_keys: Option<Arc<CollectedKeys>>,
    /// The columns whose scan uses the keys, for EXPLAIN.
    targets: Vec<String>,
}

impl KeyCollectorExec {
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        shared_keys: Arc<CollectedKeys>,
        targets: &[String],
    ) -> KeyCollectorExec {
        KeyCollectorExec { input, keys, shared_keys: Some(shared_keys), targets: targets.to_vec() }
    }

    fn with(
        &self,
        input: Arc<dyn ExecutionPlan>,
        shared_keys: Option<Arc<CollectedKeys>>,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(KeyCollectorExec {
            input,
            keys: self.keys.clone(),
            shared_keys,
            targets: self.targets.clone(),
        })
    }
}

impl DisplayAs for KeyCollectorExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "CollectKeys: values of [{}], to [{}]", keys.join(", "), self.targets.join(", "))
    }
}

impl ExecutionPlan for KeyCollectorExec {
    fn name(&self) -> &str {
        "CollectKeys"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(input) => self.with(input, self.shared_keys.clone()),
            None => self,
        })
    }

    /// The scan has dropped its filters on reset, so the keys need not be collected.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.with(self.input.clone(), None))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let Some(shared_keys) = self.shared_keys.clone() else { return Ok(input) };
        let schema = input.schema();
        shared_keys.expect_partitions(self.properties().output_partitioning().partition_count());
        let of_key = |key: &Arc<dyn PhysicalExpr>| Ok(KeyAccumulator::new(key.data_type(&schema)?));
        let collected = self.keys.iter().map(of_key).collect::<Result<_>>()?;
        Ok(Box::pin(KeyCollectorStream { input, keys: self.keys.clone(), collected, shared_keys, partition }))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        self.input.partition_statistics(partition)
    }
}

struct KeyCollectorStream {
    input: SendableRecordBatchStream,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    collected: Vec<KeyAccumulator>,
    shared_keys: Arc<CollectedKeys>,
    partition: usize,
}

impl Stream for KeyCollectorStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let next = ready!(this.input.poll_next_unpin(context));
        Poll::Ready(match next {
            Some(Ok(batch)) => {
                for (key, collected) in this.keys.iter().zip(&mut this.collected) {
                    match key.evaluate(&batch).and_then(|values| values.into_array(batch.num_rows())) {
                        Ok(values) => collected.add(&values),
                        // The join would meet the same error.
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
                Some(Ok(batch))
            }
            None => {
                let collected = std::mem::take(&mut this.collected);
                this.shared_keys.record_partition(
                    this.partition,
                    collected.into_iter().map(KeyAccumulator::finish).collect(),
                );
                None
            }
            failed => failed,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl RecordBatchStream for KeyCollectorStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// The values of one key so far.
#[derive(Debug)]
struct KeyAccumulator {
    data_type: Arrow,
    null: bool,
    /// The distinct values; `None` once they are too many.
    distinct: Option<DistinctValues>,
    /// The least and greatest value; `None` for types without them.
    bounds: Option<(MinAccumulator, MaxAccumulator)>,
}

#[derive(Debug)]
struct DistinctValues {
    converter: RowConverter,
    seen: HashSet<Box<[u8]>>,
    values: Vec<ArrayRef>,
    rows: usize,
    bytes: usize,
}

impl KeyAccumulator {
    fn new(data_type: Arrow) -> KeyAccumulator {
        // Zone maps do not order NaN.
        let has_bounds = !data_type.is_nested() && !has_float(&data_type);
        let bounds = || {
            let (least, greatest) =
                (MinAccumulator::try_new(&data_type), MaxAccumulator::try_new(&data_type));
            Some((least.ok()?, greatest.ok()?))
        };
        let bounds = if has_bounds { bounds() } else { None };
        KeyAccumulator { null: false, distinct: DistinctValues::new(&data_type), bounds, data_type }
    }

    fn add(&mut self, values: &ArrayRef) {
        let mut values = values.clone();
        if values.logical_null_count() > 0 {
            self.null = true;
            let without = is_not_null(&values).and_then(|some| filter(&values, &some));
            let Ok(without) = without else { return self.give_up() };
            values = without;
        }
        if values.is_empty() {
            return;
        }
        if self.distinct.as_mut().is_some_and(|distinct| distinct.add(&values).is_none()) {
            self.distinct = None;
        }
        self.widen(&values);
    }

    fn widen(&mut self, values: &ArrayRef) {
        if let Some((least, greatest)) = &mut self.bounds {
            let values = std::slice::from_ref(values);
            if least.update_batch(values).and_then(|()| greatest.update_batch(values)).is_err() {
                self.bounds = None;
            }
        }
    }

    /// Gives up collecting: the values are not restricted.
    fn give_up(&mut self) {
        (self.distinct, self.bounds) = (None, None);
    }

    fn finish(self) -> PartitionKeys {
        let bounds = self
            .bounds
            .and_then(|(mut least, mut greatest)| Some((least.evaluate().ok()?, greatest.evaluate().ok()?)));
        let values = self.distinct.map(|distinct| distinct.values);
        PartitionKeys { data_type: self.data_type, null: self.null, values, bounds }
    }
}

/// The values of one key in one partition.
#[derive(Debug)]
pub(super) struct PartitionKeys {
    data_type: Arrow,
    null: bool,
    /// The distinct values; `None` if they are too many.
    values: Option<Vec<ArrayRef>>,
    /// The bounds; null if there are no values.
    bounds: Option<(ScalarValue, ScalarValue)>,
}

impl PartitionKeys {
    /// Merges the values of several partitions.
    pub fn merge<'a>(mut parts: impl Iterator<Item = &'a PartitionKeys>, nulls_equal: bool) -> KeySet {
        let Some(first) = parts.next() else { return KeySet { null: false, values: KeyValues::Any } };
        let mut all = KeyAccumulator::new(first.data_type.clone());
        for part in std::iter::once(first).chain(parts) {
            all.null |= part.null;
            match (&part.values, &part.bounds) {
                (Some(values), _) => values.iter().for_each(|values| all.add(values)),
                (None, Some((least, greatest))) => {
                    all.distinct = None;
                    for bound in [least, greatest].into_iter().filter(|bound| !bound.is_null()) {
                        match bound.to_array() {
                            Ok(bound) => all.widen(&bound),
                            Err(_) => all.bounds = None,
                        }
                    }
                }
                (None, None) => all.give_up(),
            }
        }
        let whole = all.finish();
        let values = match (whole.values.as_deref().map(concat_values), whole.bounds) {
            (Some(Some(values)), _) => KeyValues::OneOf(values),
            (_, Some((least, greatest))) if !least.is_null() && !greatest.is_null() => {
                KeyValues::Between(least, greatest)
            }
            _ => KeyValues::Any,
        };
        KeySet { null: whole.null && nulls_equal, values }
    }
}

fn concat_values(values: &[ArrayRef]) -> Option<ArrayRef> {
    let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    concat(&values).ok()
}

impl DistinctValues {
    /// Returns `None` for types without a row format.
    fn new(data_type: &Arrow) -> Option<DistinctValues> {
        let converter = RowConverter::new(vec![SortField::new(data_type.clone())]).ok()?;
        Some(DistinctValues {
            converter,
            seen: HashSet::new(),
            values: vec![arrow::array::new_empty_array(data_type)],
            rows: 0,
            bytes: 0,
        })
    }

    /// Adds values; returns `None` once they are too many.
    fn add(&mut self, values: &ArrayRef) -> Option<()> {
        self.rows += values.len();
        if self.rows > ROWS_MAX {
            return None;
        }
        let rows = self.converter.convert_columns(std::slice::from_ref(values)).ok()?;
        let mut new = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            if !self.seen.contains(row.as_ref()) {
                self.bytes += row.as_ref().len();
                if self.seen.len() == RANGES_MAX || self.bytes > BYTES_MAX {
                    return None;
                }
                self.seen.insert(row.as_ref().into());
                new.push(at as u32);
            }
        }
        if !new.is_empty() {
            self.values.push(take(values, &UInt32Array::from(new), None).ok()?);
        }
        Some(())
    }
}
