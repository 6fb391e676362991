//! Ends a statement in the middle of its work.
//!
//! A tokio task can only end where it yields. DataFusion yields where batches come out of a table, and where tasks meet, which is
//! not enough: a join can turn one batch into any number of batches, or test billions of pairs that yield none, between two
//! batches that it reads. So the physical plan of every statement is changed ([`Cancel::guard`]). The output of a join counts as
//! work after which the task yields, and the filter of a nested loop join checks for cancellation and for the deadline on every
//! call.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::unnest::UnnestExec;
use types::{Error, Kind};

use crate::execution::asof_join::AsOfExec;
use crate::execution::interrupt::Charges;
use crate::execution::long_rows;

/// The cancellation flag and the deadline of one statement.
#[derive(Debug)]
pub struct Cancel {
    cancelled: AtomicBool,
    deadline: Instant,
    /// The number of tasks and other holders that work for the statement.
    holds: AtomicUsize,
    /// The number of statements that at least one holder works for; shared by all statements.
    running: Arc<AtomicUsize>,
    /// The memory that values made by the statement's functions take.
    charges: Option<Charges>,
}

impl Cancel {
    /// Returns one for work that other code counts.
    pub fn at(deadline: Instant) -> Arc<Self> {
        Cancel::new(deadline, Arc::default(), None)
    }

    /// Returns one that counts in `running` from its first [`Hold`] to the end of its last, and charges the values of its
    /// functions to `memory`.
    pub fn counted(deadline: Instant, running: Arc<AtomicUsize>, memory: Arc<dyn MemoryPool>) -> Arc<Self> {
        Cancel::new(deadline, running, Some(Charges::to(memory)))
    }

    fn new(deadline: Instant, running: Arc<AtomicUsize>, charges: Option<Charges>) -> Arc<Self> {
        let (cancelled, holds) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Cancel { cancelled, deadline, holds, running, charges })
    }

    pub fn charges(&self) -> Option<&Charges> {
        self.charges.as_ref()
    }

    pub fn hold(self: &Arc<Self>) -> Hold {
        if self.holds.fetch_add(1, Ordering::Relaxed) == 0 {
            self.running.fetch_add(1, Ordering::Relaxed);
        }
        Hold(self.clone())
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline {
            return Err(DataFusionError::External(Box::new(ended())));
        }
        self.charges.as_ref().map_or(Ok(()), Charges::check)
    }

    /// Fails once the deadline has passed or the statement was cancelled.
    pub fn check_deadline(&self) -> types::Result<()> {
        if self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline {
            Err(ended())
        } else {
            Ok(())
        }
    }

    /// Changes the plan so that it can be ended at any time.
    pub fn guard(self: &Arc<Self>, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = plan.transform_up(|plan| {
            let any = plan.as_any();
            if let Some(join) = any.downcast_ref::<NestedLoopJoinExec>() {
                let filter = join.filter().map(|filter| {
                    let expression =
                        Arc::new(Watched { inner: filter.expression().clone(), cancel: self.clone() });
                    JoinFilter::new(expression, filter.column_indices().to_vec(), filter.schema().clone())
                });
                let join = NestedLoopJoinExec::try_new(
                    join.left().clone(),
                    join.right().clone(),
                    filter,
                    join.join_type(),
                    join.projection().as_ref().map(|columns| columns.to_vec()),
                )?;
                return Ok(Transformed::yes(
                    Arc::new(CooperativeExec::new(Arc::new(join))) as Arc<dyn ExecutionPlan>
                ));
            }
            if let Some(join) = any.downcast_ref::<CrossJoinExec>() {
                let join = Arc::new(long_rows::bounded(join));
                return Ok(Transformed::yes(Arc::new(CooperativeExec::new(join)) as Arc<dyn ExecutionPlan>));
            }
            let multiplies = any.is::<HashJoinExec>()
                || any.is::<SortMergeJoinExec>()
                || any.is::<UnnestExec>()
                || any.is::<AsOfExec>();
            if multiplies {
                return Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>));
            }
            Ok(Transformed::no(plan))
        })?;
        Ok(guarded.data)
    }
}

/// Marks the statement as running while something works for it, even after its client was told that it ended.
#[derive(Debug)]
pub struct Hold(Arc<Cancel>);

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.holds.fetch_sub(1, Ordering::Relaxed) == 1 {
            if let Some(charges) = &self.0.charges {
                charges.clear();
            }
            self.0.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn ended() -> Error {
    Error::new(Kind::Timeout, "the statement was cancelled or did not finish within its deadline")
        .hint("ask for less, or give it a longer deadline")
}

/// Cancels the statement when it is dropped, together with the reader or the waiter that owns it.
#[derive(Debug)]
pub struct CancelOnDrop(pub Option<Arc<Cancel>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

/// An expression that fails once its statement should end.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn PhysicalExpr>,
    cancel: Arc<Cancel>,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Watched {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.cancel.check()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().ok_or_else(|| DataFusionError::Internal("one child expected".into()))?;
        Ok(Arc::new(Watched { inner, cancel: self.cancel.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
