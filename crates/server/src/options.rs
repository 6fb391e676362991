//! The settings of a server. All bounds of requests, connections and queues are defined here (R2).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::component::Component;
use crate::storm::StormSettings;

/// Settings of one server. The defaults suit a machine with 2 cores and 2 GiB.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// Number of threads of the runtime that accepts, parses and serves lookups.
    pub threads: usize,
    /// Number of threads of class `Work`, which decode bodies and write large answers.
    pub work_threads: usize,
    /// Maximum number of jobs that wait for those threads. A further one is answered 429.
    pub work_queue_max: usize,
    /// Maximum number of open connections. A further one gets 503 and is closed. The server lowers it if the process may not open
    /// that many files: a quarter of the files, and at least 256, are left to tables and log.
    pub connections_max: usize,
    /// Maximum number of bytes of a request's body, both as sent and decompressed.
    pub body_bytes_max: usize,
    /// Maximum number of bytes of the bodies of all requests together while they are read and decoded. Beyond it requests get
    /// 429.
    pub body_bytes_total_max: usize,
    /// Time that a body that holds no memory yet waits for some of it to be freed.
    pub body_room_wait: Duration,
    /// Maximum number of concurrent copies of incoming files (COPY … FROM STDIN). A further one waits up to 30 s.
    pub copies_in_max: usize,
    /// Maximum number of concurrent copies of outgoing files (COPY … TO STDOUT). A further one waits up to 30 s.
    pub copies_out_max: usize,
    /// Bytes of disk that all incoming Parquet files may take together while they are read.
    pub spool_bytes_max: u64,
    /// Bytes of the largest body that is decoded on the thread that read it, which is cheaper than a change of threads.
    pub inline_bytes_max: usize,
    /// Maximum number of bytes of a request's line and headers.
    pub head_bytes_max: usize,
    /// Maximum number of headers of a request.
    pub headers_max: usize,
    /// Time that a client may take to send line and headers.
    pub head_time_max: Duration,
    /// Longest pause in the arrival of a body.
    pub body_pause_max: Duration,
    /// Time that a whole body may take to arrive.
    pub body_time_max: Duration,
    /// Longest time for which a client may read nothing of its answer.
    pub answer_pause_max: Duration,
    /// Time that a client may take to read the whole answer. It also bounds the lifetime of a snapshot that a slow reader pins.
    pub answer_time_max: Duration,
    /// Time that a connection may stay open without a request.
    pub idle_time_max: Duration,
    /// Maximum number of rows of one `GET …/rows`.
    pub rows_limit_max: usize,
    /// Maximum number of bytes of one `GET …/rows`. A longer answer stops early and says where to continue.
    pub rows_bytes_max: usize,
    /// [`hash_of`](crate::hash_of) the secret of the data directory's owner. A program on this machine that presents the secret
    /// is admin while this server runs, whatever keys exist.
    pub owner_hash: Option<[u8; 32]>,
    /// Keyword search. Without it its routes answer 404.
    pub search: Option<query::Search>,
    /// The materializer that lands tables in the lake, if there is one. It carries out erasures and maintenance.
    pub lake: Option<Arc<lake::Materializer>>,
    /// The store of the Iceberg REST catalog for the tables of other engines. Without it its routes answer 404.
    pub catalog: Option<lake::catalog::TableStore>,
    /// Counters of rows that were read from the lake.
    pub lake_reads: Option<lake::ReadStatistics>,
    /// Properties, as Iceberg names them, that the catalog gives its clients to configure their access to files.
    pub catalog_defaults: BTreeMap<String, String>,
    /// Full name of the vault table whose pages answer every path that is not a route. Without it there is no site.
    pub site: Option<String>,
    /// Settings to start storms. Without them no storm can be started through this server.
    pub storm: Option<StormSettings>,
    /// Further components whose state `/ready` and `/metrics` report.
    pub components: Vec<Arc<dyn Component>>,
    /// True if requests are recorded in `polynya.requests`.
    pub record_requests: bool,
}

impl fmt::Debug for dyn Component {
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
            components: Vec::new(),
            record_requests: true,
        }
    }
}

impl Options {
    /// Returns settings for a machine with little memory: see `engine::Options::edge`.
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
