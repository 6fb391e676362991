//! `POST /v1/copy?sql=COPY … FROM STDIN`: the body is the file, of any size. A thread of its own reads it as it arrives and
//! commits it in pieces, as the library does. `COPY … TO STDOUT` is answered by `POST /v1/sql`.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use engine::Engine;
use http::Request;
use query::files::{self, Copy, CopyDirection, CopyEndpoint, Format, Input, LoadSummary};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Error, Kind, Principal, Result as CoreResult, TableDef};

use super::incoming::{self, BodyReader};
use super::{json, milliseconds};
use crate::app::Shared;
use crate::content::{self, Encoding};
use crate::failure::Result;
use crate::input;
use crate::options::Options;

/// Limits the resources of concurrent copies, and counts them.
pub struct Copies {
    /// Permits for incoming copies.
    /// Permits for outgoing copies.
    within: Arc<Semaphore>,
    out: Arc<Semaphore>,
    /// Bytes of all spooled files.
    spooled: Arc<AtomicU64>,
    refused: AtomicU64,
}

/// Time that a copy waits for a permit.
const PLACE_WAIT: Duration = Duration::from_secs(30);
/// Bytes of the disk that a spooled file leaves free.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Bytes of a spooled file between two checks of the free space.
const FREE_LOOK_BYTES: u64 = 64 << 20;

impl Copies {
    pub fn new(options: &Options) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.max(1)));
        Copies {
            within: places(options.copies_in_max),
            out: places(options.copies_out_max),
            spooled: Arc::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Returns the number of copies that got no permit.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the number of copies that are running.
    pub fn running(&self, options: &Options) -> usize {
        let places = options.copies_in_max.max(1) + options.copies_out_max.max(1);
        places.saturating_sub(self.within.available_permits() + self.out.available_permits())
    }

    /// Returns the bytes of files that are spooled to disk, because their format (Parquet) needs random access.
    pub fn spooled(&self) -> u64 {
        self.spooled.load(Relaxed)
    }

    pub async fn place_in(&self) -> CoreResult<OwnedSemaphorePermit> {
        self.place(&self.within).await
    }

    pub async fn place_out(&self) -> CoreResult<OwnedSemaphorePermit> {
        self.place(&self.out).await
    }

    async fn place(&self, places: &Arc<Semaphore>) -> CoreResult<OwnedSemaphorePermit> {
        let busy = || {
            self.refused.fetch_add(1, Relaxed);
            Error::new(Kind::Busy, "too many copies are running").hint("send it again a little later")
        };
        match tokio::time::timeout(PLACE_WAIT, places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyQuery {
    sql: String,
}

pub async fn copy(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request<Body>,
) -> Result<Response> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let params: CopyQuery = input::query(&parts.uri)?;
    let Some(copy) = app.sql.parse_copy(&params.sql)? else {
        return Err(Error::invalid("only COPY … FROM STDIN is accepted here")
            .hint("send other statements to POST /v1/sql")
            .into());
    };
    let CopyDirection::From { table, .. } = &copy.direction else {
        return Err(Error::invalid("COPY … TO STDOUT is not accepted here")
            .hint("send COPY … TO STDOUT to POST /v1/sql")
            .into());
    };
    if let CopyEndpoint::File(_) = copy.endpoint {
        return Err(files::forbidden().into());
    }
    let encoding = Encoding::of(&parts.headers)?;
    let def = app.engine.view(&principal)?.table(table)?.def().clone();
    let place = app.copies.place_in().await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    let job = CopyJob {
        engine: app.engine.clone(),
        principal,
        copy,
        def,
        spool: Spool {
            dir: app.sql.spill_dir().to_owned(),
            all: app.copies.spooled.clone(),
            bytes_max: app.options.spool_bytes_max,
            bytes: 0,
        },
    };
    let read = incoming::read(&app, body, "pn-copy", move |input| {
        let loaded = job.run(input, encoding);
        drop(place);
        loaded
    });
    let loaded = match read.await? {
        (Ok(loaded), _) => loaded,
        // If the body broke off, its reader knows only that no more bytes come, so the reason is reported instead.
        (Err(error), Some(broken)) => return Err(broken.with_context_of(&error)),
        (Err(error), None) => return Err(error.into()),
    };
    app.telemetry.rows_in.fetch_add(loaded.count, Relaxed);
    let lsn = loaded.lsn.unwrap_or_else(|| app.engine.root().lsn());
    Ok(json(&json!({
        "columns": [], "rows": [], "count": loaded.count, "commits": loaded.commits, "lsn": lsn.0,
        "statement": "COPY", "took_ms": milliseconds(started.elapsed()), "truncated": false,
    })))
}

struct CopyJob {
    engine: Engine,
    principal: Arc<Principal>,
    copy: Copy,
    def: Arc<TableDef>,
    spool: Spool,
}

impl CopyJob {
    fn run(mut self, input: BodyReader, encoding: Encoding) -> CoreResult<LoadSummary> {
        let CopyDirection::From { columns, .. } = &self.copy.direction else {
            return Err(Error::internal("rows that come in go out"));
        };
        let client = input.client();
        let plain = content::reader(encoding, input)?;
        let input = match self.copy.format {
            Format::Parquet => Input::File(self.spool.store(&self.engine, plain)?),
            Format::Csv | Format::Ndjson => Input::Stream(plain),
        };
        let rows = files::read(&self.copy, &self.def, columns, input)?;
        let mut begun = false;
        files::load(rows, |batch| {
            // The first batch is always committed. Further commits are made only while the client still waits.
            if std::mem::replace(&mut begun, true) {
                client.check()?;
            }
            files::commit(&self.engine, &self.principal, &self.def, batch)
        })
    }
}

/// An unlinked temporary file for an incoming copy. Its bytes are counted until it is dropped.
struct Spool {
    dir: std::path::PathBuf,
    /// Bytes of all spooled files of the server.
    all: Arc<AtomicU64>,
    bytes_max: u64,
    bytes: u64,
}

impl Spool {
    fn store(&mut self, engine: &Engine, mut from: Box<dyn Read + Send>) -> CoreResult<Arc<dyn vfs::File>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let failed = |error| Error::io("keeping the file that is copied", error);
        let disk = &engine.env().disk;
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = self.dir.join(format!("{}{number}", files::SPOOL_PREFIX));
        let file = disk.create(&path).map_err(failed)?;
        // An open file keeps its bytes although its name is removed, and leaves nothing behind when the process dies.
        disk.remove(&path).map_err(failed)?;
        let mut buffer = Vec::with_capacity(1 << 20);
        let mut looked = None;
        loop {
            buffer.clear();
            let read = (&mut from).take(1 << 20).read_to_end(&mut buffer);
            read.map_err(files::read_failed)?;
            if buffer.is_empty() {
                return Ok(file);
            }
            let count = buffer.len() as u64;
            let others = self.all.fetch_add(count, Relaxed);
            let at = self.bytes;
            self.bytes += count;
            if others + count > self.bytes_max {
                let message =
                    format!("files that are copied take more than {} MiB together", self.bytes_max >> 20);
                return Err(Error::new(Kind::TooLarge, message).hint(
                    "Parquet is kept on the disk while it is read: copy it in several files, or later, or as csv or ndjson",
                ));
            }
            if looked.is_none_or(|looked| at - looked >= FREE_LOOK_BYTES) {
                looked = Some(at);
                if disk.free_bytes(&self.dir).map_err(failed)? < FREE_BYTES_MIN {
                    return Err(Error::new(
                        Kind::DiskFull,
                        format!("less than {} MiB of the disk are free", FREE_BYTES_MIN >> 20),
                    )
                    .hint("Parquet is kept on the disk while it is read: make room, or copy csv or ndjson"));
                }
            }
            file.write_at(&[io::IoSlice::new(&buffer)], at).map_err(failed)?;
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}
