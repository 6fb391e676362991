//! Options of the lake.

use std::path::PathBuf;
use std::time::Duration;

use crate::lineage::Lineage;
use crate::objects::Objects;
use crate::rest::Catalog;

/// Settings of a [`Materializer`](crate::Materializer).
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the warehouse; a table is in `<namespace>/<table>` below it. Its parent must exist. The path is empty in an
    /// object store.
    pub warehouse: PathBuf,
    /// The runs of the data directory, needed if lakes may belong to another state of it.
    pub lineage: Option<Lineage>,
    /// Local directory with lakes from before the warehouse or the catalog moved elsewhere.
    pub former: Option<PathBuf>,
    /// The object store with the warehouse, if it is not on this machine.
    pub objects: Option<Objects>,
    /// The catalog elsewhere that has the tables; without one, metadata files are next to the data.
    pub catalog: Option<Catalog>,
    /// Location of the warehouse in Iceberg metadata: an absolute path or a URI, without a trailing `/`.
    pub location: String,
    /// True if tables without a setting of their own land.
    pub by_default: bool,
    /// Approximate bytes of waiting rows in memory that make a commit due.
    pub commit_bytes: u64,
    /// Approximate bytes of rows in memory that one commit takes, at most.
    pub commit_bytes_max: u64,
    /// Time after the first missing row when a commit is due anyway.
    pub commit_wait: Duration,
    /// Time after the first missing row when a commit of fewer than `trickle_rows` rows is due.
    pub trickle_wait: Duration,
    pub trickle_rows: u64,
    /// Bytes of missing rows at which writers are refused. They are slowed from half of it.
    pub lag_bytes_max: u64,
    /// Approximate bytes of a full data file.
    pub file_bytes: u64,
    /// Approximate bytes of rows in memory in one commit to a partitioned or sorted table, which sorts them there.
    pub arrange_bytes: u64,
    /// Partitions with new rows in one commit, at most; each gets a file.
    pub partitions_max: usize,
    /// Approximate bytes of files that one commit rewrites, at most; a single larger file is rewritten alone.
    pub rewrite_bytes_max: u64,
    /// Percentage of deleted rows above which a data file is rewritten.
    pub deleted_percent_max: u64,
    /// Bytes that readers of evicted rows keep decoded in memory, at most.
    pub read_bytes_max: usize,
    /// Number of newest snapshots that stay regardless of age.
    pub snapshots_min: usize,
    /// Time for which further snapshots stay, so that their readers find the files.
    pub snapshot_age_min: Duration,
    /// Snapshots that stay regardless of age, at most.
    pub snapshots_max: usize,
    /// Number of metadata files that stay besides the current one.
    pub metadata_files_max: usize,
    /// Time without a commit after which the small files of a table are merged completely.
    pub quiet_after: Duration,
    /// Time between sweeps for files that nothing names.
    pub sweep_every: Duration,
    /// Time after which unnamed files of other programs are removed.
    pub orphans_after: Duration,
}

impl Options {
    /// Options for a warehouse in an object store.
    pub fn remote(objects: Objects) -> Self {
        let location = objects.uri().to_owned();
        Options { objects: Some(objects), ..Options::new("", location) }
    }

    pub fn new(warehouse: impl Into<PathBuf>, location: impl Into<String>) -> Self {
        Options {
            warehouse: warehouse.into(),
            location: location.into(),
            lineage: None,
            former: None,
            objects: None,
            catalog: None,
            by_default: true,
            commit_bytes: 64 << 20,
            commit_bytes_max: 256 << 20,
            commit_wait: Duration::from_secs(10),
            trickle_wait: Duration::from_secs(60),
            trickle_rows: 1_000,
            // This is what a small machine takes in within a minute. Waiting rows are on this machine anyway.
            lag_bytes_max: 16 << 30,
            file_bytes: 128 << 20,
            arrange_bytes: 128 << 20,
            partitions_max: 1_000,
            rewrite_bytes_max: 512 << 20,
            deleted_percent_max: 30,
            read_bytes_max: 128 << 20,
            snapshots_min: 20,
            snapshot_age_min: Duration::from_secs(600),
            snapshots_max: 1_000,
            metadata_files_max: 20,
            quiet_after: Duration::from_secs(3_600),
            sweep_every: Duration::from_secs(6 * 3_600),
            orphans_after: Duration::from_secs(3 * 24 * 3_600),
        }
    }

    /// Returns the run of the database that commits name; `None` without a lineage.
    pub(crate) fn run_id(&self) -> types::Result<Option<&str>> {
        self.lineage.as_ref().map(Lineage::register_run).transpose()
    }
}
