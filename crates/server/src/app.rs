//! The state that all requests share.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use types::Lsn;

use crate::assets::Assets;
use crate::live::Sample;
use crate::options::Options;
use crate::record::Recorder;
use crate::routes::copy::Copies;
use crate::routes::iceberg::Catalog;
use crate::routes::lake::erase::Erasures;
use crate::storm::Storm;
use crate::telemetry::Telemetry;
use crate::work_pool::WorkPool;

pub struct App {
    pub engine: engine::Engine,
    pub sql: query::Sql,
    pub ask: ask::Ask,
    pub options: Options,
    pub telemetry: Telemetry,
    pub work: WorkPool,
    pub copies: Copies,
    /// Notified when a body frees its memory.
    pub body_room: tokio::sync::Notify,
    /// Permits of requests that are answered before their rows are committed.
    pub ahead: Arc<tokio::sync::Semaphore>,
    /// Held while a cursor is made, so that cursors are made and counted one at a time.
    pub cursors: tokio::sync::Mutex<()>,
    /// The erasures of rows that run or have run.
    pub erasures: Erasures,
    /// The Iceberg REST catalog. Without it its routes answer 404.
    pub catalog: Option<Arc<Catalog>>,
    pub recorder: Recorder,
    pub assets: Assets,
    pub storm: Storm,
    /// The newest lsn that readers see. Updated only while somebody follows a table.
    pub lsn: watch::Sender<Lsn>,
    /// The feed of the page: one sample a second, shared by all viewers.
    pub live: watch::Sender<Arc<Sample>>,
    /// Notified once a second, so that running requests check whether their keys still exist.
    pub keys: watch::Sender<()>,
    /// True once the server is stopping.
    pub stopping: watch::Sender<bool>,
    pub started: Instant,
}

pub type Shared = Arc<App>;
