//! Ends a statement in the middle of its work.
//!
//! A tokio task can only end where it yields. DataFusion yields where batches come out of a table, and where tasks meet, which is
//! not enough: a join can turn one batch into any number of batches, or test billions of pairs that yield none, between two
//! batches that it reads. So the physical plan of every statement is changed ([`Cancellation::make_cancellable`]). The output of
//! a join counts as work after which the task yields, and the filter of a nested loop join checks for cancellation and for the
//! deadline on every call.

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
use crate::execution::cross_join;
use crate::execution::interrupt::FunctionMemory;

/// The cancellation flag and the deadline of one statement.
#[derive(Debug)]
pub struct Cancellation {
    cancelled: AtomicBool,
    deadline: Instant,
    /// The number of tasks and other holders that work for the statement.
    holds: AtomicUsize,
    /// The number of statements that at least one holder works for; shared by all statements.
    running: Arc<AtomicUsize>,
    /// The memory that values made by the statement's functions take.
    charges: Option<FunctionMemory>,
}

impl Cancellation {
    /// Returns one for work that other code counts.
    pub fn with_deadline(deadline: Instant) -> Arc<Self> {
        Cancellation::new(deadline, Arc::default(), None)
    }

    /// Returns one that counts in `running` from its first [`RunningGuard`] to the end of its last, and charges the values of its
    /// functions to `memory`.
    pub fn counted(deadline: Instant, running: Arc<AtomicUsize>, memory: Arc<dyn MemoryPool>) -> Arc<Self> {
        Cancellation::new(deadline, running, Some(FunctionMemory::new(memory)))
    }

    fn new(deadline: Instant, running: Arc<AtomicUsize>, charges: Option<FunctionMemory>) -> Arc<Self> {
        let (cancelled, holds) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Cancellation { cancelled, deadline, holds, running, charges })
    }

    pub fn charges(&self) -> Option<&FunctionMemory> {
        self.charges.as_ref()
    }

    pub fn hold(self: &Arc<Self>) -> RunningGuard {
        if self.holds.fetch_add(1, Ordering::Relaxed) == 0 {
            self.running.fetch_add(1, Ordering::Relaxed);
        }
        RunningGuard(self.clone())
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline {
            return Err(DataFusionError::External(Box::new(ended())));
        }
        self.charges.as_ref().map_or(Ok(()), FunctionMemory::check)
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
    pub fn make_cancellable(
        self: &Arc<Self>,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = plan.transform_up(|plan| {
            let any = plan.as_any();
            if let Some(join) = any.downcast_ref::<NestedLoopJoinExec>() {
                let filter = join.filter().map(|filter| {
                    let expression = Arc::new(CancellableExpr {
                        inner: filter.expression().clone(),
                        cancel: self.clone(),
                    });
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
                let join = Arc::new(cross_join::with_bounded_batches(join));
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
pub struct RunningGuard(Arc<Cancellation>);

impl Drop for RunningGuard {
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
pub struct CancelOnDrop(pub Option<Arc<Cancellation>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

/// An expression that fails once its statement should end.
#[derive(Debug)]
struct CancellableExpr {
    inner: Arc<dyn PhysicalExpr>,
    cancel: Arc<Cancellation>,
}

impl PartialEq for CancellableExpr {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for CancellableExpr {}

impl Hash for CancellableExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for CancellableExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for CancellableExpr {
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
        Ok(Arc::new(CancellableExpr { inner, cancel: self.cancel.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
