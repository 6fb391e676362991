//! Keyword search over one view: in which tables, which rows, in which order, and what is shown of them.
//!
//! The index does the searching (`index::text`); here is what lies around it. A [`Request`] is understood against one
//! view (S2): its tables, their text index and position, what the principal may see of them (A1). Its filter is an SQL
//! predicate and runs as a statement over the same view. Then one piece of work without a lock finds, fuses, fetches and
//! marks (`Job`).
//!
//! ## Who works where (R3)
//! A search in an index begins on threads of class `Interactive` that do nothing else; one that turns out to be much work
//! (a phrase of frequent words, a prefix of one letter) begins anew on SQL's threads, in one of SQL's places. There
//! run from the beginning a filter, a search without an index, and one that would have to index many rows first. So they
//! wait for each other and for nobody else.
//!
//! ## Several tables
//! Scores of different tables say nothing to each other. Their ranks are fused: a row counts 1 / (60 + its rank in its
//! table), as reciprocal rank fusion has it.

mod job;
mod plan;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use dialect::execution::cancel::{Cancel, CancelOnDrop};
use engine::threads::Class;
use engine::{Engine, View};
use index::text::TextMaterializer;
use table::Snapshot;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use types::{Error, Kind, Lsn, Principal, Result, RowId, Value, name};

use crate::deadline::Deadline;
use crate::sql::Sql;

use job::Job;
use plan::Part;

/// Rows of one answer.
pub const LIMIT_MAX: usize = 1_000;
/// How far an answer may begin behind the best row, its own rows included.
pub const WINDOW_MAX: usize = 10_000;
/// Searches that run or wait; a further one is [`Kind::Busy`].
const WAITING_MAX: usize = 4_096;
/// What a search indexes itself on a thread that other searches wait for: rows, and about how many bytes of them.
const INLINE_ROWS_MAX: u64 = 4_096;
const INLINE_BYTES_MAX: u64 = 2 << 20;
/// How long a search waits for an index that is being opened: some seconds. What it would answer instead, right after a
/// restart, is that the index is being built.
const OPENING_PAUSE: Duration = Duration::from_millis(10);
const OPENING_LOOKS_MAX: u32 = 500;
const DEADLINE: Duration = Duration::from_secs(10);

/// What is sought.
#[derive(Clone, Debug)]
pub struct Request {
    /// As [`index::text::Query`] reads it.
    pub text: String,
    /// `[namespace.]table`; empty: every table with a text index that the principal may search.
    pub tables: Vec<String>,
    /// Columns to search in; empty: all that are indexed, or all that hold strings where none is.
    pub columns: Vec<String>,
    /// An SQL predicate over the table's columns, with `$1` for `params`.
    pub filter: Option<String>,
    pub params: Vec<Value>,
    /// At most [`LIMIT_MAX`].
    pub limit: usize,
    /// With `limit`, at most [`WINDOW_MAX`].
    pub offset: usize,
    /// Columns to show of each row; `None`: all.
    pub fields: Option<Vec<String>>,
    /// Without `fields`: show only what names a row, its key and a column `title`.
    pub brief: bool,
    /// The length of a snippet.
    pub snippet_chars: usize,
    /// `None`: ten seconds.
    pub deadline: Option<Duration>,
}

impl Request {
    /// The ten best rows of all tables that have a text index.
    pub fn new(text: impl Into<String>) -> Self {
        Request {
            text: text.into(),
            tables: Vec::new(),
            columns: Vec::new(),
            filter: None,
            params: Vec::new(),
            limit: 10,
            offset: 0,
            fields: None,
            brief: false,
            snippet_chars: 200,
            deadline: None,
        }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Best first.
    pub hits: Vec<Hit>,
    /// The tables that were searched.
    pub tables: Vec<Searched>,
    /// Rows that match, in all tables.
    pub total: u64,
    /// Else there are at least so many.
    pub exact: bool,
    /// Everything stands at this lsn (S2).
    pub lsn: Lsn,
}

/// One row that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Which of [`Found::tables`].
    pub table: usize,
    /// Which row of [`Searched::rows`] and [`Searched::keys`].
    pub at: usize,
    pub row: RowId,
    /// BM25; of several tables, the fused rank.
    pub score: f64,
    /// Column by column, HTML: escaped, the words in `<mark>`.
    pub snippets: Vec<(String, String)>,
}

/// One table that was searched.
#[derive(Clone, Debug)]
pub struct Searched {
    pub table: Arc<Snapshot>,
    /// What is shown of the rows that were found.
    pub rows: RecordBatch,
    /// The primary key's columns of the same rows; without columns if there is no key.
    pub keys: RecordBatch,
    pub total: u64,
    /// No index covers the columns: every row was read.
    pub scanned: bool,
    /// Rows that were searched, and how many of them the index does not hold yet.
    pub searched_rows: u64,
    pub tail_rows: u64,
    /// Whoever asked may see only some of its rows. Their ids must not be told: the gaps count the others.
    pub filtered: bool,
}

/// Keyword search over an engine. Cheap to clone; all clones share threads and limits.
#[derive(Clone)]
pub struct Search(Arc<Handle>);

struct Handle {
    engine: Engine,
    text: Arc<TextMaterializer>,
    sql: Sql,
    waiting: Arc<AtomicUsize>,
    moved: AtomicU64,
    /// Held by the one search that indexes many rows.
    turn: Arc<Semaphore>,
    spawner: tokio::runtime::Handle,
    runtime: vfs::Mutex<Option<Runtime>>,
}

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("waiting", &self.waiting()).finish()
    }
}

impl Search {
    /// Starts as many threads as there are cores. `text` is the materializer that is registered with the engine.
    pub fn new(engine: Engine, text: Arc<TextMaterializer>, sql: Sql) -> Result<Search> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("pn-search")
            .on_thread_start(|| Class::Interactive.enter())
            .build()
            .map_err(|e| Error::io("starting the threads of search", e))?;
        Ok(Search(Arc::new(Handle {
            engine,
            text,
            sql,
            waiting: Arc::default(),
            moved: AtomicU64::new(0),
            turn: Arc::new(Semaphore::new(1)),
            spawner: runtime.handle().clone(),
            runtime: vfs::Mutex::new(vfs::Rank::new(29, "search threads"), Some(runtime)),
        })))
    }

    /// Searches. May be awaited on any runtime; dropping the future ends the work.
    ///
    /// [`Kind::NotFound`] for a table, column or field that is not there; [`Kind::IndexBuilding`] while more rows are
    /// missing from an index than a search takes in itself; [`Kind::Timeout`] at the deadline.
    pub async fn run(&self, principal: &Principal, request: Request) -> Result<Found> {
        let _place = self.enter()?;
        let deadline = self.deadline(&request);
        let mut turn = None;
        let mut looks = OPENING_LOOKS_MAX;
        loop {
            let view = self.0.engine.view(principal)?;
            let parts = plan::understand(&view, &request)?;
            if looks > 0 && self.is_opening(&view, &parts) {
                looks -= 1;
                self.pause(deadline).await?;
                continue;
            }
            if self.lacks_much(&parts) && turn.is_none() {
                // Who waited looks again, at a newer view, and finds little left to do.
                turn = Some(self.turn(deadline).await?);
                continue;
            }
            return self.answer(view, parts, request, deadline, turn).await;
        }
    }

    /// [`Search::run`] over a view that the caller has, so that it stands at one lsn with what else is read there (S2).
    pub async fn run_in(&self, view: View, request: Request) -> Result<Found> {
        let _place = self.enter()?;
        let deadline = self.deadline(&request);
        let parts = plan::understand(&view, &request)?;
        let turn = if self.lacks_much(&parts) { Some(self.turn(deadline).await?) } else { None };
        self.answer(view, parts, request, deadline, turn).await
    }

    async fn answer(
        &self,
        view: View,
        mut parts: Vec<Part>,
        request: Request,
        deadline: Deadline,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Result<Found> {
        let Handle { text, sql, .. } = &*self.0;
        if let Some(filter) = &request.filter {
            for part in &mut parts {
                let params = request.params.clone();
                let rows = sql.rows_where(&view, part.snapshot.clone(), filter, params, deadline).await?;
                part.filtered = Some(rows);
            }
        } else if !request.params.is_empty() {
            return Err(
                Error::invalid("parameters without a filter").hint("a filter names them as `$1`, `$2`")
            );
        }
        let heavy = self.lacks_much(&parts) || parts.iter().any(|part| part.scanned);
        let cancel = Cancel::at(deadline.at());
        let _guard = CancelOnDrop(Some(cancel.clone()));
        let job = Arc::new(Job { text: text.clone(), request, parts, lsn: view.lsn(), cancel });
        drop(view);
        if !heavy {
            drop(turn);
            let light = job.clone();
            let found = self.interactive(move || {
                // R1: in debug builds any lock of ours would panic here.
                let _reading = vfs::read_path();
                light.run_if_light()
            });
            return match found.await? {
                Some(found) => Ok(found),
                None => {
                    self.0.moved.fetch_add(1, Ordering::Relaxed);
                    sql.blocking(deadline, move || job.run()).await
                }
            };
        }
        let unindexed =
            job.parts.iter().find(|part| part.scanned).map(|part| part.snapshot.def().name.clone());
        let found = sql.blocking(deadline, move || job.run()).await;
        drop(turn);
        match (found, unindexed) {
            (Err(error), Some(table)) if error.kind() == Kind::Timeout => {
                let table = name::printable(name::short_table_name(&table));
                Err(Error::new(Kind::Timeout, error.message()).hint(format!(
                    "every row was read, for want of an index: `CREATE INDEX ON {table} USING text (column)`"
                )))
            }
            (found, _) => found,
        }
    }

    fn deadline(&self, request: &Request) -> Deadline {
        Deadline::after(request.deadline.unwrap_or(DEADLINE).min(self.0.sql.deadline()))
    }

    /// Whether a search would have to index many rows first.
    fn lacks_much(&self, parts: &[Part]) -> bool {
        let (mut rows, mut bytes) = (0, 0);
        for part in parts.iter().filter(|part| !part.scanned) {
            let unbuilt = self.0.text.rows_to_index(&part.snapshot, part.position.as_deref());
            let row_bytes = part.snapshot.raw_bytes() / part.snapshot.rows().max(1);
            rows += unbuilt;
            bytes += unbuilt.saturating_mul(row_bytes);
        }
        rows > INLINE_ROWS_MAX || bytes > INLINE_BYTES_MAX
    }

    /// Whether an index is there and only not open yet, after a restart, and a search would have to do its work again.
    fn is_opening(&self, view: &View, parts: &[Part]) -> bool {
        let opening = |part: &Part| !part.scanned && view.is_opening(index::text::NAME, &part.snapshot);
        parts.iter().any(opening) && self.lacks_much(parts)
    }

    async fn pause(&self, deadline: Deadline) -> Result<()> {
        let pause = async {
            tokio::time::sleep(OPENING_PAUSE).await;
            Ok(())
        };
        self.0.sql.waiting(deadline, pause).await
    }

    /// Only one search at a time indexes many rows, for all: what two make at once is made in vain.
    async fn turn(&self, deadline: Deadline) -> Result<OwnedSemaphorePermit> {
        let waiting = self.0.turn.clone().acquire_owned();
        self.0.sql.waiting(deadline, async { waiting.await.map_err(|_| closed()) }).await
    }

    /// Searches that run or wait.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Searches so far that turned out to be too much work for the threads where they began.
    pub fn moved(&self) -> u64 {
        self.0.moved.load(Ordering::Relaxed)
    }

    /// Ends the threads; later searches fail with [`Kind::Closed`].
    pub fn close(&self) {
        let runtime = self.0.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }

    /// Counts a search as long as the place is held.
    fn enter(&self) -> Result<Place> {
        let before = self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.0.waiting.clone());
        if before >= WAITING_MAX {
            return Err(Error::new(Kind::Busy, format!("{before} searches wait already"))
                .hint("try again a little later"));
        }
        Ok(place)
    }

    async fn interactive<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.spawner.spawn(async move {
            // Nobody waits any more if the client left.
            if !sender.is_closed() {
                let _ = sender.send(job());
            }
        });
        receiver.await.unwrap_or_else(|_| match self.0.runtime.lock().is_none() {
            true => Err(closed()),
            false => Err(Error::internal("the search met a bug of Polynya and stopped")),
        })
    }
}

struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn closed() -> Error {
    Error::new(Kind::Closed, "search is closed")
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}
