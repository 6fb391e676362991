//! `polynya bench sql_small`: small SQL statements with parameters, measured like the reads of [`crate::reads`]: as fast as possible,
//! then at a rate, alone and beside a writer that saturates the log.

use types::{Error, Result};

use crate::ProgressSink;
use crate::reads::{self, Options, ReadMethod};
use crate::report::Report;
use crate::target::LoadTarget;

/// Options for small SQL: lookups by key, no heavy SQL beside them.
pub fn options(target: LoadTarget) -> Options {
    Options {
        method: ReadMethod::Sql,
        rate: 200.0,
        heavy: 0,
        table: "bench_sql".into(),
        rows: 10_000,
        ..Options::new(target)
    }
}

/// Runs the workload. `options.method` must be [`ReadMethod::Sql`] or [`ReadMethod::SqlGroup`].
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    if !matches!(options.method, ReadMethod::Sql | ReadMethod::SqlGroup) {
        return Err(Error::invalid(format!("expected reads by SQL, found {:?}", options.method)));
    }
    reads::measure(options, Report::new("sql_small", options.seed), progress)
}
