//! The join keys that were collected on one side, and the filter expression that applies them to a scan of the other side.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType as Arrow, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, IsNullExpr, lit};

use super::key_collector::PartitionKeys;

/// The keys of a join's first side, complete once all of its rows have passed.
#[derive(Debug)]
pub(crate) struct CollectedKeys {
    /// True if the join treats nulls as equal.
    pub nulls_equal: bool,
    keys: usize,
    /// The keys of each partition that passes, and the number of partitions that have ended.
    parts: OnceLock<Vec<OnceLock<Vec<PartitionKeys>>>>,
    ended: AtomicUsize,
    known: OnceLock<Vec<KeySet>>,
}

/// The values of one key.
#[derive(Debug)]
pub(super) struct KeySet {
    pub null: bool,
    pub values: KeyValues,
}

#[derive(Debug)]
pub(super) enum KeyValues {
    OneOf(ArrayRef),
    Between(ScalarValue, ScalarValue),
    Any,
}

impl CollectedKeys {
    pub fn new(nulls_equal: bool, keys: usize) -> CollectedKeys {
        CollectedKeys {
            nulls_equal,
            keys,
            parts: OnceLock::new(),
            ended: AtomicUsize::new(0),
            known: OnceLock::new(),
        }
    }

    /// Sets the number of partitions that will pass.
    pub(super) fn expect_partitions(&self, parts: usize) {
        self.parts.get_or_init(|| (0..parts).map(|_| OnceLock::new()).collect());
    }

    /// Records the keys of a partition whose rows have all passed.
    pub(super) fn record_partition(&self, part: usize, keys: Vec<PartitionKeys>) {
        let Some(parts) = self.parts.get() else { return };
        let is_first = parts.get(part).is_some_and(|place| place.set(keys).is_ok());
        if is_first && self.ended.fetch_add(1, Ordering::AcqRel) + 1 == parts.len() {
            let of_key = |key: usize| {
                let all = parts.iter().filter_map(|part| part.get()?.get(key));
                PartitionKeys::merge(all, self.nulls_equal)
            };
            let _ = self.known.set((0..self.keys).map(of_key).collect());
        }
    }
}

/// A filter that accepts rows with one of the values, as far as they are known. It may accept others too.
#[derive(Clone, Debug)]
pub(crate) struct JoinKeyFilter {
    /// The keys over the rows of the filter's holder, with their positions among the join's keys.
    keys: Vec<(usize, Arc<dyn PhysicalExpr>)>,
    collected: Arc<CollectedKeys>,
}

impl JoinKeyFilter {
    pub fn new(keys: Vec<Option<Arc<dyn PhysicalExpr>>>, collected: Arc<CollectedKeys>) -> JoinKeyFilter {
        let keys = keys.into_iter().enumerate().filter_map(|(at, key)| Some((at, key?))).collect();
        JoinKeyFilter { keys, collected }
    }

    /// Returns the names of the columns that the keys read.
    pub fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let columns = |(_, key): &(usize, Arc<dyn PhysicalExpr>)| {
            datafusion::physical_expr::utils::collect_columns(key)
        };
        self.keys.iter().flat_map(columns).map(|column: Column| column.name().to_owned())
    }

    fn current_test(&self) -> Result<Arc<dyn PhysicalExpr>> {
        let Some(known) = self.collected.known.get() else { return Ok(lit(true)) };
        let mut all: Option<Arc<dyn PhysicalExpr>> = None;
        for (at, key) in &self.keys {
            let Some(values) = known.get(*at) else { continue };
            let Some(one) = values.test(key)? else { continue };
            all = Some(match all {
                None => one,
                Some(all) => binary(all, Operator::And, one),
            });
        }
        Ok(all.unwrap_or_else(|| lit(true)))
    }
}

impl KeySet {
    /// Returns the condition on `key`; `None` if the values do not restrict it.
    fn test(&self, key: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let values = match &self.values {
            KeyValues::Any => return Ok(None),
            KeyValues::OneOf(values) if values.is_empty() => lit(false),
            KeyValues::OneOf(values) => {
                Arc::new(InListExpr::try_new_from_array(key.clone(), values.clone(), false)?)
            }
            KeyValues::Between(least, greatest) => {
                let least = binary(key.clone(), Operator::GtEq, lit(least.clone()));
                binary(least, Operator::And, binary(key.clone(), Operator::LtEq, lit(greatest.clone())))
            }
        };
        let null = || Arc::new(IsNullExpr::new(key.clone()));
        Ok(Some(if self.null { binary(values, Operator::Or, null()) } else { values }))
    }
}

fn binary(left: Arc<dyn PhysicalExpr>, op: Operator, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, op, right))
}

impl PartialEq for JoinKeyFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.collected, &other.collected) && self.keys == other.keys
    }
}

impl Eq for JoinKeyFilter {}

impl Hash for JoinKeyFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.collected).hash(state);
        self.keys.hash(state);
    }
}

impl fmt::Display for JoinKeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(|(_, key)| key.to_string()).collect();
        write!(f, "told of {}", keys.join(", "))
    }
}

impl PhysicalExpr for JoinKeyFilter {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn data_type(&self, _: &Schema) -> Result<Arrow> {
        Ok(Arrow::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(true)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.current_test()?.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().map(|(_, key)| key).collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let keys = self.keys.iter().map(|(at, _)| *at).zip(children).collect();
        Ok(Arc::new(JoinKeyFilter { keys, collected: self.collected.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        self.current_test().map(Some)
    }

    fn snapshot_generation(&self) -> u64 {
        1 + u64::from(self.collected.known.get().is_some())
    }
}
