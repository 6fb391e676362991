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

use super::values::Part;

/// The keys of a join's first side, complete once all of its rows have passed.
#[derive(Debug)]
pub(crate) struct Said {
    /// True if the join treats nulls as equal.
    pub nulls_meet: bool,
    keys: usize,
    /// The keys of each partition that passes, and the number of partitions that have ended.
    parts: OnceLock<Vec<OnceLock<Vec<Part>>>>,
    ended: AtomicUsize,
    known: OnceLock<Vec<Values>>,
}

/// The values of one key.
#[derive(Debug)]
pub(super) struct Values {
    pub null: bool,
    pub others: Others,
}

#[derive(Debug)]
pub(super) enum Others {
    OneOf(ArrayRef),
    Between(ScalarValue, ScalarValue),
    Any,
}

impl Said {
    pub fn new(nulls_meet: bool, keys: usize) -> Said {
        Said { nulls_meet, keys, parts: OnceLock::new(), ended: AtomicUsize::new(0), known: OnceLock::new() }
    }

    /// Sets the number of partitions that will pass.
    pub(super) fn expect(&self, parts: usize) {
        self.parts.get_or_init(|| (0..parts).map(|_| OnceLock::new()).collect());
    }

    /// Records the keys of a partition whose rows have all passed.
    pub(super) fn ended(&self, part: usize, had: Vec<Part>) {
        let Some(parts) = self.parts.get() else { return };
        let is_first = parts.get(part).is_some_and(|place| place.set(had).is_ok());
        if is_first && self.ended.fetch_add(1, Ordering::AcqRel) + 1 == parts.len() {
            let of_key = |key: usize| {
                let all = parts.iter().filter_map(|part| part.get()?.get(key));
                Part::together(all, self.nulls_meet)
            };
            let _ = self.known.set((0..self.keys).map(of_key).collect());
        }
    }
}

/// A filter that accepts rows with one of the values, as far as they are known. It may accept others too.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The keys over the rows of the filter's holder, with their positions among the join's keys.
    keys: Vec<(usize, Arc<dyn PhysicalExpr>)>,
    said: Arc<Said>,
}

impl Told {
    pub fn new(keys: Vec<Option<Arc<dyn PhysicalExpr>>>, said: Arc<Said>) -> Told {
        let keys = keys.into_iter().enumerate().filter_map(|(at, key)| Some((at, key?))).collect();
        Told { keys, said }
    }

    /// Returns the names of the columns that the keys read.
    pub fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let columns = |(_, key): &(usize, Arc<dyn PhysicalExpr>)| {
            datafusion::physical_expr::utils::collect_columns(key)
        };
        self.keys.iter().flat_map(columns).map(|column: Column| column.name().to_owned())
    }

    fn now(&self) -> Result<Arc<dyn PhysicalExpr>> {
        let Some(known) = self.said.known.get() else { return Ok(lit(true)) };
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

impl Values {
    /// Returns the condition on `key`; `None` if the values do not restrict it.
    fn test(&self, key: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let others = match &self.others {
            Others::Any => return Ok(None),
            Others::OneOf(values) if values.is_empty() => lit(false),
            Others::OneOf(values) => {
                Arc::new(InListExpr::try_new_from_array(key.clone(), values.clone(), false)?)
            }
            Others::Between(least, greatest) => {
                let least = binary(key.clone(), Operator::GtEq, lit(least.clone()));
                binary(least, Operator::And, binary(key.clone(), Operator::LtEq, lit(greatest.clone())))
            }
        };
        let null = || Arc::new(IsNullExpr::new(key.clone()));
        Ok(Some(if self.null { binary(others, Operator::Or, null()) } else { others }))
    }
}

fn binary(left: Arc<dyn PhysicalExpr>, op: Operator, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, op, right))
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.said, &other.said) && self.keys == other.keys
    }
}

impl Eq for Told {}

impl Hash for Told {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.said).hash(state);
        self.keys.hash(state);
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(|(_, key)| key.to_string()).collect();
        write!(f, "told of {}", keys.join(", "))
    }
}

impl PhysicalExpr for Told {
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
        self.now()?.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().map(|(_, key)| key).collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let keys = self.keys.iter().map(|(at, _)| *at).zip(children).collect();
        Ok(Arc::new(Told { keys, said: self.said.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        self.now().map(Some)
    }

    fn snapshot_generation(&self) -> u64 {
        1 + u64::from(self.said.known.get().is_some())
    }
}
