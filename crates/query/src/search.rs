//! Keyword search over one view: finds rows in several tables, ranks them, and fetches what is shown of them.
//!
//! `index::text` does the searching itself; this module does the rest. It resolves a [`Request`] against one view (S2): its
//! tables, their text indexes and positions, and what the principal may see of them (A1). The filter is an SQL predicate and runs
//! as a statement over the same view. Then one `SearchJob` without a lock finds, fuses, fetches and marks the rows.
//!
//! ## Threads (R3)
//! A search in an index begins on threads of class `Interactive` that do nothing else. If it turns out to be much work (a phrase
//! of frequent words, a prefix of one letter), it is repeated on SQL's threads, in one of SQL's slots. Filters, searches without
//! an index, and searches that would first have to index many rows run on SQL's threads from the beginning, so such searches wait
//! only for each other.
//!
//! ## Several tables
//! Scores of different tables are not comparable. Reciprocal rank fusion joins their ranks: a row counts 1 / (60 + its rank in
//! its table).

mod job;
mod plan;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use dialect::execution::cancellation::{CancelOnDrop, Cancellation};
use engine::threads::Class;
use engine::{Engine, View};
use index::text::TextMaterializer;
use table::Snapshot;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use types::{Error, Kind, Lsn, Principal, Result, RowId, Value, name};

use crate::deadline::Deadline;
use crate::statements::Sql;

use job::SearchJob;
use plan::TableSearch;

/// Rows of one answer.
pub const LIMIT_MAX: usize = 1_000;
/// Rank of the last row that an answer may include.
pub const WINDOW_MAX: usize = 10_000;
/// Searches that run or wait; a further one is [`Kind::Busy`].
const WAITING_MAX: usize = 4_096;
/// Rows, and about how many bytes, that a search may index itself on the threads of class `Interactive`.
const INLINE_ROWS_MAX: u64 = 4_096;
const INLINE_BYTES_MAX: u64 = 2 << 20;
/// Time between two checks of an index that is being opened. A search waits some seconds for it; right after a restart the
/// alternative would be to answer that the index is being built.
const OPENING_PAUSE: Duration = Duration::from_millis(10);
const OPENING_LOOKS_MAX: u32 = 500;
const DEADLINE: Duration = Duration::from_secs(10);

/// A search request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The query text, in the syntax of [`index::text::Query`].
    pub text: String,
    /// `[namespace.]table`; empty: every table with a text index that the principal may search.
    pub tables: Vec<String>,
    /// Columns to search in; empty: all indexed ones, or all string columns if no column is indexed.
    pub columns: Vec<String>,
    /// An SQL predicate over the table's columns, with `$1` for `params`.
    pub filter: Option<String>,
    pub params: Vec<Value>,
    /// Rows of the answer, at most [`LIMIT_MAX`].
    pub limit: usize,
    /// Rows to skip; with `limit`, at most [`WINDOW_MAX`].
    pub offset: usize,
    /// Columns to show of each row; `None`: all.
    pub fields: Option<Vec<String>>,
    /// Shows only the columns that identify a row, its key and a column `title`; ignored with `fields`.
    pub brief: bool,
    /// Length of a snippet in characters.
    pub snippet_chars: usize,
    /// Time limit; `None`: ten seconds.
    pub deadline: Option<Duration>,
}

impl Request {
    /// Makes a request for the ten best rows of all tables with a text index.
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

/// The result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The rows found, best first.
    pub hits: Vec<Hit>,
    /// The tables that were searched.
    pub tables: Vec<SearchedTable>,
    /// Rows that match, in all tables.
    pub total: u64,
    /// False if `total` is only a lower bound.
    pub exact: bool,
    /// The lsn at which everything was read (S2).
    pub lsn: Lsn,
}

/// One row that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The row's table, as an index into [`SearchResult::tables`].
    pub table: usize,
    /// The row's position in [`SearchedTable::rows`] and [`SearchedTable::keys`].
    pub at: usize,
    pub row: RowId,
    /// The BM25 score; with several tables, the fused rank.
    pub score: f64,
    /// Column names and their snippets in HTML: escaped, with the found words in `<mark>`.
    pub snippets: Vec<(String, String)>,
}

/// One table that was searched.
#[derive(Clone, Debug)]
pub struct SearchedTable {
    pub table: Arc<Snapshot>,
    /// The shown columns of the rows found.
    pub rows: RecordBatch,
    /// The primary key's columns of the same rows; without columns if there is no key.
    pub keys: RecordBatch,
    pub total: u64,
    /// True if no index covers the columns, so that every row was read.
    pub scanned: bool,
    /// Rows that were searched, and those of them that the index does not hold yet.
    pub searched_rows: u64,
    pub tail_rows: u64,
    /// True if the principal may see only some rows. Their ids must not be shown: gaps between them would reveal the number of
    /// others.
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
    permit: Arc<Semaphore>,
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
            permit: Arc::new(Semaphore::new(1)),
            spawner: runtime.handle().clone(),
            runtime: vfs::Mutex::new(vfs::Rank::new(29, "search threads"), Some(runtime)),
        })))
    }

    /// Searches. May be awaited on any runtime; dropping the future ends the work.
    ///
    /// Returns [`Kind::NotFound`] for an unknown table, column or field; [`Kind::IndexBuilding`] while an index lacks more rows
    /// than a search indexes itself; and [`Kind::Timeout`] at the deadline.
    pub async fn run(&self, principal: &Principal, request: Request) -> Result<SearchResult> {
        let _guard = self.enter()?;
        let deadline = self.deadline(&request);
        let mut permit = None;
        let mut looks = OPENING_LOOKS_MAX;
        loop {
            let view = self.0.engine.view(principal)?;
            let parts = plan::resolve(&view, &request)?;
            if looks > 0 && self.is_opening(&view, &parts) {
                looks -= 1;
                self.pause(deadline).await?;
                continue;
            }
            if self.needs_indexing(&parts) && permit.is_none() {
                // After the wait, a newer view probably has little left to index.
                permit = Some(self.indexing_permit(deadline).await?);
                continue;
            }
            return self.answer(view, parts, request, deadline, permit).await;
        }
    }

    /// Searches over the caller's view, at the same lsn as the caller's other reads (S2).
    pub async fn run_in(&self, view: View, request: Request) -> Result<SearchResult> {
        let _guard = self.enter()?;
        let deadline = self.deadline(&request);
        let parts = plan::resolve(&view, &request)?;
        let permit =
            if self.needs_indexing(&parts) { Some(self.indexing_permit(deadline).await?) } else { None };
        self.answer(view, parts, request, deadline, permit).await
    }

    async fn answer(
        &self,
        view: View,
        mut parts: Vec<TableSearch>,
        request: Request,
        deadline: Deadline,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<SearchResult> {
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
        let heavy = self.needs_indexing(&parts) || parts.iter().any(|part| part.scanned);
        let cancel = Cancellation::with_deadline(deadline.at());
        let _guard = CancelOnDrop(Some(cancel.clone()));
        let job = Arc::new(SearchJob { text: text.clone(), request, parts, lsn: view.lsn(), cancel });
        drop(view);
        if !heavy {
            drop(permit);
            let light = job.clone();
            let found = self.interactive(move || {
                // R1: in debug builds, taking one of our locks would panic here.
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
        drop(permit);
        match (found, unindexed) {
            (Err(error), Some(table)) if error.kind() == Kind::Timeout => {
                let table = name::printable(name::short_table_name(&table));
                Err(Error::new(Kind::Timeout, error.message()).hint(format!(
                    "every row was read, as there is no index: `CREATE INDEX ON {table} USING text (column)`"
                )))
            }
            (found, _) => found,
        }
    }

    fn deadline(&self, request: &Request) -> Deadline {
        Deadline::after(request.deadline.unwrap_or(DEADLINE).min(self.0.sql.deadline()))
    }

    /// Returns true if a search would first have to index many rows.
    fn needs_indexing(&self, parts: &[TableSearch]) -> bool {
        let (mut rows, mut bytes) = (0, 0);
        for part in parts.iter().filter(|part| !part.scanned) {
            let unbuilt = self.0.text.rows_to_index(&part.snapshot, part.position.as_deref());
            let row_bytes = part.snapshot.raw_bytes() / part.snapshot.rows().max(1);
            rows += unbuilt;
            bytes += unbuilt.saturating_mul(row_bytes);
        }
        rows > INLINE_ROWS_MAX || bytes > INLINE_BYTES_MAX
    }

    /// Returns true if, after a restart, an index exists but is not open yet, and a search would have to repeat much of its work.
    fn is_opening(&self, view: &View, parts: &[TableSearch]) -> bool {
        let opening =
            |part: &TableSearch| !part.scanned && view.is_opening(index::text::NAME, &part.snapshot);
        parts.iter().any(opening) && self.needs_indexing(parts)
    }

    async fn pause(&self, deadline: Deadline) -> Result<()> {
        let pause = async {
            tokio::time::sleep(OPENING_PAUSE).await;
            Ok(())
        };
        self.0.sql.waiting(deadline, pause).await
    }

    /// Waits for the permit to index many rows: two searches at once would do the same work twice.
    async fn indexing_permit(&self, deadline: Deadline) -> Result<OwnedSemaphorePermit> {
        let waiting = self.0.permit.clone().acquire_owned();
        self.0.sql.waiting(deadline, async { waiting.await.map_err(|_| closed()) }).await
    }

    /// Returns the number of searches that run or wait.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of searches so far that were too much work for the threads on which they began.
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

    /// Counts a search until the returned guard is dropped.
    fn enter(&self) -> Result<SearchGuard> {
        let before = self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = SearchGuard(self.0.waiting.clone());
        if before >= WAITING_MAX {
            return Err(Error::new(Kind::Busy, format!("{before} searches wait already"))
                .hint("try again a little later"));
        }
        Ok(guard)
    }

    async fn interactive<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.spawner.spawn(async move {
            // The receiver is gone if the client left.
            if !sender.is_closed() {
                let _ = sender.send(job());
            }
        });
        receiver.await.unwrap_or_else(|_| {
            if self.0.runtime.lock().is_none() {
                Err(closed())
            } else {
                Err(Error::internal("the search met a bug of Polynya and stopped"))
            }
        })
    }
}

struct SearchGuard(Arc<AtomicUsize>);

impl Drop for SearchGuard {
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
