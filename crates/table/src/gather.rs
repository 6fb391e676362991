//! Rows picked one by one from where they lie.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave;
use types::{Error, Result};

use crate::Projection;
use crate::head::Stored;

/// Rows in the order in which they were picked.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    sources: Vec<Arc<Stored>>,
    known: HashMap<*const Stored, usize>,
    picks: Vec<(usize, usize)>,
}

impl Gather {
    pub fn add(&mut self, stored: &Arc<Stored>, index: usize) {
        // Neighbours stand together as a rule.
        let last = self.picks.last().map(|(source, _)| *source);
        let source = last.filter(|last| Arc::ptr_eq(&self.sources[*last], stored)).unwrap_or_else(|| {
            *self.known.entry(Arc::as_ptr(stored)).or_insert_with(|| {
                self.sources.push(stored.clone());
                self.sources.len() - 1
            })
        });
        self.picks.push((source, index));
    }

    pub fn finish(self, projection: &Projection) -> Result<RecordBatch> {
        if let [(source, index)] = self.picks[..] {
            let stored = &self.sources[source];
            return projection.apply(&stored.layout, &stored.batch.slice(index, 1));
        }
        if self.picks.is_empty() {
            return Ok(projection.empty());
        }
        let apply = |stored: &Arc<Stored>| projection.apply(&stored.layout, &stored.batch);
        let sources = self.sources.iter().map(apply).collect::<Result<Vec<_>>>()?;
        let column = |at: usize| {
            let arrays: Vec<_> = sources.iter().map(|batch| batch.column(at).as_ref()).collect();
            interleave(&arrays, &self.picks)
                .map_err(|e| Error::internal(format!("gathering rows failed: {e}")))
        };
        let columns = (0..projection.schema().fields().len()).map(column).collect::<Result<_>>()?;
        projection.batch(columns, self.picks.len())
    }
}
