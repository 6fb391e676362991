//! Rows picked one by one from where they lie.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use types::Result;

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
        match self.picks[..] {
            [] => Ok(projection.empty()),
            [(source, index)] => {
                let Stored { layout, batch, .. } = &*self.sources[source];
                projection.batch(projection.row(layout, batch, index)?, 1)
            }
            _ => {
                let sources = self.sources.iter().map(|stored| (&*stored.layout, &stored.batch));
                projection.gather(sources, &self.picks)
            }
        }
    }
}
