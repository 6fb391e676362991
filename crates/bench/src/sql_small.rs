//! `polynya bench sql_small`: small SQL statements with parameters, measured in the way of [`crate::reads`]: as fast as possible,
//! then at a rate, alone and beside a writer that saturates the log.

use types::{Error, Result};

use crate::Progress;
use crate::reads::{self, By, Options};
use crate::report::Report;
use crate::target::Target;

/// Options for small SQL: lookups by key, no heavy SQL beside them.
pub fn options(target: Target) -> Options {
    Options {
        by: By::Sql,
        rate: 200.0,
        heavy: 0,
        table: "bench_sql".into(),
        rows: 10_000,
        ..Options::new(target)
    }
}

/// Runs the workload. `options.by` must be [`By::Sql`] or [`By::SqlGroup`].
pub fn run(options: &Options, progress: Progress<'_>) -> Result<Report> {
    if !matches!(options.by, By::Sql | By::SqlGroup) {
        return Err(Error::invalid(format!("expected reads by SQL, found {:?}", options.by)));
    }
    reads::measure(options, Report::new("sql_small", options.seed), progress)
}
