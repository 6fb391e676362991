//! Filters that a scan receives while its plan runs: the join keys of the other side, and the bound of a sort with a limit.
//!
//! A join that has read its smaller side announces the values of its keys before the other side is read. If a key or an index of
//! that side covers them, its rows are looked up; the first reader of any part decides so for all parts. In addition, a piece
//! whose bounds show that it holds no wanted row is not read.

use std::sync::{Arc, OnceLock};

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};

use super::{Scan, ScanPart};
use crate::index_lookup;
use crate::provider::lookup_parts;
use crate::prune::{self, ColumnTest};

/// The filters over the scan's columns, and the lookup that replaced the scan; see the module.
#[derive(Debug, Default)]
pub(super) struct DynamicFilters {
    filters: Vec<Arc<dyn PhysicalExpr>>,
    lookup: OnceLock<Option<(String, Vec<ScanPart>)>>,
}

/// The latest state of the filters.
#[derive(Default)]
pub(super) struct FilterState {
    generation: u64,
    pub tests: Vec<ColumnTest>,
}

impl DynamicFilters {
    pub fn of(filters: Vec<Arc<dyn PhysicalExpr>>) -> DynamicFilters {
        DynamicFilters { filters, lookup: OnceLock::new() }
    }

    /// Returns the same filters, with no lookup decided.
    pub fn undecided(&self) -> DynamicFilters {
        DynamicFilters::of(self.filters.clone())
    }

    /// Returns the same filters and one more, with no lookup decided.
    pub fn with(&self, filter: Arc<dyn PhysicalExpr>) -> DynamicFilters {
        DynamicFilters::of(self.filters.iter().cloned().chain([filter]).collect())
    }

    /// Describes how rows were looked up while the plan ran.
    pub fn lookup(&self) -> Option<&str> {
        self.lookup.get()?.as_ref().map(|(how, _)| how.as_str())
    }
}

impl Scan {
    /// Refreshes the tests of the filters. Returns false if there are none.
    pub(super) fn refresh_filters(&self, known: &mut FilterState) -> bool {
        let generation =
            self.dynamic_filters.filters.iter().map(snapshot_generation).fold(0, u64::wrapping_add);
        if generation != known.generation {
            let columns: Vec<_> = self.columns().collect();
            known.generation = generation;
            known.tests.clear();
            for filter in &self.dynamic_filters.filters {
                if let Ok(now) = snapshot_physical_expr(filter.clone()) {
                    known.tests.extend(prune::possible_tests(&now, &columns, self.snapshot.def()));
                }
            }
        }
        !known.tests.is_empty()
    }

    /// Returns the parts that replace all pieces: the rows with the join's keys, if a key or an index finds them.
    pub(super) fn dynamic_lookup(&self) -> Option<&[ScanPart]> {
        if self.dynamic_filters.filters.is_empty() || self.index.is_some() {
            return None;
        }
        let found = self.dynamic_filters.lookup.get_or_init(|| {
            let (table, tests) = self.coverage()?;
            let mut known = FilterState::default();
            if !self.refresh_filters(&mut known) {
                return None;
            }
            let tests: Vec<ColumnTest> = known.tests.into_iter().chain(tests.iter().cloned()).collect();
            let few = index_lookup::pays(&table.snapshot);
            if let Ok(Some((how, rows))) = prune::rows_by_id(&table.snapshot, &tests, few) {
                let how = if rows.is_empty() { "nothing is wanted" } else { how };
                return Some((how.to_owned(), vec![ScanPart::Rows(rows)]));
            }
            let found = index_lookup::find(table, &tests)?;
            let parts = lookup_parts(&table.snapshot, &found, &tests, self.parts.len());
            Some((format!("index={}", found.name), parts))
        });
        found.as_ref().map(|(_, parts)| parts.as_slice())
    }
}
