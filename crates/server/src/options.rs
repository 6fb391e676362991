//! How the server is run. Every bound of a request, a connection or a queue stands here (R2).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::part::Part;
use crate::storm::StormSettings;

/// Settings of one server. The defaults suit a machine with 2 cores and 2 GiB.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads of the runtime that accepts, parses and looks up.
    pub threads: usize,
    /// Threads that decode bodies and write large answers, in class `Work`.
    pub work_threads: usize,
    /// Jobs that may wait for those threads; a further one is answered 429.
    pub work_queue_max: usize,
    /// Open connections. A further one gets 503 and is closed. The server takes fewer where the process may not have so
    /// many files open: a quarter of those, and at least 256, are left to tables and log.
    pub connections_max: usize,
    /// A request's body, as sent and also decompressed.
    pub body_bytes_max: usize,
    /// Bodies of all requests together while they are read and decoded; beyond it 429.
    pub body_bytes_total_max: usize,
    /// How long a body of which nothing is held yet waits for room among them.
    pub body_room_wait: Duration,
    /// Copies of files that come in (COPY … FROM STDIN), and that go out, at once; a further one waits up to 30 s.
    pub copies_in_max: usize,
    pub copies_out_max: usize,
    /// What Parquet files that come in may take of the disk together, while they are read.
    pub spool_bytes_max: u64,
    /// Bodies up to this size are decoded where they were read: cheaper than a change of threads.
    pub inline_bytes_max: usize,
    /// A request's line and headers.
    pub head_bytes_max: usize,
    pub headers_max: usize,
    /// How long a client may take to send line and headers.
    pub head_time_max: Duration,
    /// How long a body may stand still, and take in all.
    pub body_pause_max: Duration,
    pub body_time_max: Duration,
    /// How long a client may take nothing of its answer, and take to read it in all. The second also ends what a slow
    /// reader pins: no snapshot outlives it.
    pub answer_pause_max: Duration,
    pub answer_time_max: Duration,
    /// How long a connection may stay open without a request.
    pub idle_time_max: Duration,
    /// Rows of one `GET …/rows`.
    pub rows_limit_max: usize,
    /// Bytes of one `GET …/rows`; an answer that would be longer stops early and says where to go on.
    pub rows_bytes_max: usize,
    /// [`hash_of`](crate::hash_of) the secret of whoever owns the data directory: with it a program of this machine is
    /// admin while this server runs, whatever keys exist.
    pub owner_hash: Option<[u8; 32]>,
    /// Keyword search; without it its routes answer 404.
    pub search: Option<query::Search>,
    /// What lands tables, if anything does: asked for erasures and maintenance.
    pub lake: Option<Arc<lake::Materializer>>,
    /// Where the Iceberg REST catalog keeps tables of others; without it its routes answer 404.
    pub catalog: Option<lake::catalog::Store>,
    /// Tells of rows that were read in the lake.
    pub lake_reads: Option<lake::Reads>,
    /// What it tells its clients of how files are reached: properties as Iceberg names them.
    pub catalog_defaults: BTreeMap<String, String>,
    /// Full name of the vault whose pages are everything that no route is; without such a table there is no site.
    pub site: Option<String>,
    /// What starts a storm; without it none can be started here.
    pub storm: Option<StormSettings>,
    /// What else `/ready` and `/metrics` tell of.
    pub parts: Vec<Arc<dyn Part>>,
    /// Whether requests are recorded into `polynya.requests`.
    pub record_requests: bool,
}

impl fmt::Debug for dyn Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 8484)),
            threads: cores,
            work_threads: cores,
            work_queue_max: 4_096,
            connections_max: 20_000,
            body_bytes_max: 64 << 20,
            body_bytes_total_max: 512 << 20,
            body_room_wait: Duration::from_millis(250),
            copies_in_max: 4,
            copies_out_max: 2,
            spool_bytes_max: 16 << 30,
            inline_bytes_max: 16 << 10,
            head_bytes_max: 64 << 10,
            headers_max: 64,
            head_time_max: Duration::from_secs(15),
            body_pause_max: Duration::from_secs(30),
            body_time_max: Duration::from_secs(300),
            answer_pause_max: Duration::from_secs(60),
            answer_time_max: Duration::from_secs(600),
            idle_time_max: Duration::from_secs(150),
            rows_limit_max: 10_000,
            rows_bytes_max: 32 << 20,
            owner_hash: None,
            search: None,
            lake: None,
            catalog: None,
            lake_reads: None,
            catalog_defaults: BTreeMap::new(),
            site: None,
            storm: None,
            parts: Vec::new(),
            record_requests: true,
        }
    }
}

impl Options {
    /// For a machine with little memory: see `engine::Options::edge`.
    pub fn edge() -> Self {
        Options {
            threads: 1,
            work_threads: 1,
            work_queue_max: 256,
            connections_max: 256,
            body_bytes_max: 4 << 20,
            body_bytes_total_max: 8 << 20,
            rows_bytes_max: 2 << 20,
            ..Options::default()
        }
    }
}
