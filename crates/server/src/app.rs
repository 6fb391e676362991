//! What all requests share.

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
use crate::work::Pool;

pub struct App {
    pub engine: engine::Engine,
    pub sql: query::Sql,
    pub ask: ask::Ask,
    pub options: Options,
    pub telemetry: Telemetry,
    pub work: Pool,
    pub copies: Copies,
    /// Told when a body lets go of its memory.
    pub body_room: tokio::sync::Notify,
    /// Places of requests that are answered before their rows are committed.
    pub ahead: Arc<tokio::sync::Semaphore>,
    /// Held by who makes a cursor.
    pub cursors: tokio::sync::Mutex<()>,
    /// What is or was erased.
    pub erasures: Erasures,
    /// The Iceberg REST catalog; without it its routes answer 404.
    pub catalog: Option<Arc<Catalog>>,
    pub recorder: Recorder,
    pub assets: Assets,
    pub storm: Storm,
    /// The newest lsn that readers see, while somebody follows a table.
    pub lsn: watch::Sender<Lsn>,
    /// The page's feed: one sample a second for all who watch.
    pub live: watch::Sender<Arc<Sample>>,
    /// Told once a second: requests that are under way look whether their keys are still there.
    pub keys: watch::Sender<()>,
    /// True once the server stops.
    pub stopping: watch::Sender<bool>,
    pub started: Instant,
}

pub type Shared = Arc<App>;
