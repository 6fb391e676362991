//! How the lake is kept.

use std::path::PathBuf;
use std::time::Duration;

use crate::lineage::Lineage;
use crate::objects::Objects;
use crate::rest::Catalog;

/// Settings of a [`Materializer`](crate::Materializer).
#[derive(Clone, Debug)]
pub struct Options {
    /// The warehouse: `<namespace>/<table>` is below it. Its parent exists. In an object store it is the empty path.
    pub warehouse: PathBuf,
    /// The runs of the data directory, where lakes could be those of another state of it.
    pub lineage: Option<Lineage>,
    /// Where on this machine lakes may lie that were written before the warehouse or the catalog was elsewhere.
    pub former: Option<PathBuf>,
    /// The store in which the warehouse is, if it is not on this machine.
    pub objects: Option<Objects>,
    /// The catalog elsewhere that has the tables, if there is one; else their metadata files are beside the data.
    pub catalog: Option<Catalog>,
    /// What Iceberg calls the warehouse: an absolute path or a URI, without a `/` at the end.
    pub location: String,
    /// Whether tables land that do not say.
    pub by_default: bool,
    /// A commit is made at about so many bytes of rows, as they are in memory.
    pub commit_bytes: u64,
    /// One commit takes in no more than about this of rows in memory.
    pub commit_bytes_max: u64,
    /// Else so long after the first row that is missing.
    pub commit_wait: Duration,
    /// If fewer rows than `trickle_rows` are missing, after this.
    pub trickle_wait: Duration,
    pub trickle_rows: u64,
    /// Writers are slowed when half of this is missing in the lake, and refused at all of it.
    pub lag_bytes_max: u64,
    /// A data file ends at about this.
    pub file_bytes: u64,
    /// Of a table that is partitioned or sorted, one commit takes in about so much of rows in memory: they are put in order
    /// there.
    pub arrange_bytes: u64,
    /// One commit takes in rows of so many partitions at most, each of which gets a file.
    pub partitions_max: usize,
    /// One commit writes about so many bytes of files anew, or one that is larger.
    pub rewrite_bytes_max: u64,
    /// A data file with more rows deleted is written anew.
    pub deleted_percent_max: u64,
    /// What readers of rows that are in the lake alone keep in memory, unpacked.
    pub read_bytes_max: usize,
    /// Snapshots that stay however old they are.
    pub snapshots_min: usize,
    /// Snapshots beyond those stay this long, so that whoever reads one finds its files.
    pub snapshot_age_min: Duration,
    /// No more than these stay however young they are.
    pub snapshots_max: usize,
    /// Metadata files that stay besides the current one.
    pub metadata_files_max: usize,
    /// A table without a commit for so long gets its small files merged to the end.
    pub quiet_after: Duration,
    /// How often it is looked for files that nothing names.
    pub sweep_every: Duration,
    /// Those that another program wrote are removed once they have been seen for so long.
    pub orphans_after: Duration,
}

impl Options {
    /// Of a warehouse in an object store.
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
            // A minute of all that a small machine takes in. Rows that wait are on this machine anyway.
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

    /// What commits say which run of the database made them.
    pub(crate) fn run(&self) -> types::Result<Option<&str>> {
        self.lineage.as_ref().map(Lineage::begin).transpose()
    }
}
