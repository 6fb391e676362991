//! Performs a search on one thread and without a lock: finds, fuses, fetches and marks rows.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use dialect::execution::cancellation::Cancellation;
use index::text::{self, Marker, Query, Scanner, TextMaterializer};
use table::Snapshot;
use types::{ColumnId, Error, Kind, Lsn, ROW_ID, Result, RowId};

use super::plan::TableSearch;
use super::{Hit, Request, SearchResult, SearchedTable};

/// Constant of reciprocal rank fusion: a larger one weakens the lead of the first ranks.
const RANK_OFFSET: f64 = 60.0;
/// Bytes of the rows of one answer.
const ROWS_BYTES_MAX: usize = 32 << 20;
/// Rows that are fetched before their size is checked.
const FETCH_ROWS: usize = 16;
/// Deadline checks of a light search: some tens of milliseconds.
const LIGHT_CHECKS: u64 = 100;

pub(super) struct SearchJob {
    pub text: Arc<TextMaterializer>,
    pub request: Request,
    pub parts: Vec<TableSearch>,
    pub lsn: Lsn,
    pub cancel: Arc<Cancellation>,
}

/// The amount of work that a job may do on its thread.
struct WorkBudget {
    /// Deadline checks that are left. A search checks at least once per millisecond of work.
    left: Cell<u64>,
}

impl WorkBudget {
    fn check(&self, cancel: &Cancellation) -> Result<()> {
        cancel.check_deadline()?;
        let left =
            self.left.get().checked_sub(1).ok_or_else(|| Error::internal("more work than is light"))?;
        self.left.set(left);
        Ok(())
    }

    fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

/// The result in one table.
struct TableMatches {
    rows: Vec<(RowId, f64)>,
    total: u64,
    exact: bool,
    marker: Marker,
    /// The columns that were searched.
    columns: Vec<ColumnId>,
    searched_rows: u64,
    tail_rows: u64,
}

impl SearchJob {
    /// Runs the search, and gives up with `None` if it turns out to be much work: a search behind it on the same thread must wait
    /// for milliseconds only (R3).
    pub fn run_if_light(&self) -> Result<Option<SearchResult>> {
        let work = WorkBudget { left: Cell::new(LIGHT_CHECKS) };
        match self.run_within(&work) {
            Err(_) if work.is_spent() => Ok(None),
            found => found.map(Some),
        }
    }

    pub fn run(&self) -> Result<SearchResult> {
        self.run_within(&WorkBudget { left: Cell::new(u64::MAX) })
    }

    fn run_within(&self, work: &WorkBudget) -> Result<SearchResult> {
        let best: Vec<TableMatches> =
            self.parts.iter().map(|part| self.search(part, work)).collect::<Result<_>>()?;
        let chosen = self.fuse(&best);
        let mut tables = Vec::with_capacity(best.len());
        let mut texts = Vec::with_capacity(best.len());
        let mut room = ROWS_BYTES_MAX;
        for (table, (part, best)) in self.parts.iter().zip(&best).enumerate() {
            let rows: Vec<RowId> =
                chosen.iter().filter(|(of, ..)| *of == table).map(|(_, row, _)| *row).collect();
            let fetched = self.fetch(part, &best.columns, &rows, &mut room)?;
            tables.push(SearchedTable {
                table: part.snapshot.clone(),
                rows: fetched.rows,
                keys: fetched.keys,
                total: best.total,
                scanned: part.scanned,
                searched_rows: best.searched_rows,
                tail_rows: best.tail_rows,
                filtered: part.visible.is_some(),
            });
            texts.push(fetched.texts);
        }
        let mut next = vec![0; tables.len()];
        let hits = chosen.into_iter().map(|(table, row, score)| {
            let at = next[table];
            next[table] += 1;
            let snippets = self.snippets(&self.parts[table].snapshot, &best[table], &texts[table], at);
            Hit { table, at, row, score, snippets }
        });
        let hits = hits.collect();
        Ok(SearchResult {
            hits,
            total: best.iter().map(|best| best.total).sum(),
            exact: best.iter().all(|best| best.exact),
            tables,
            lsn: self.lsn,
        })
    }

    /// Finds the best rows of one table; of a single table, just the rows of the answer.
    fn search(&self, part: &TableSearch, work: &WorkBudget) -> Result<TableMatches> {
        let one = self.parts.len() == 1;
        let Request { limit, offset, text, .. } = &self.request;
        let (limit, offset) = if one { (*limit, *offset) } else { (limit + offset, 0) };
        let check = || work.check(&self.cancel);
        let visible = part.visible.as_ref().map(|visible| visible.rows(&part.snapshot)).transpose()?;
        let is_visible = |row: RowId| visible.as_ref().is_none_or(|rows| rows.contains(row));
        let passes =
            |row: RowId| part.filtered.as_ref().is_none_or(|rows| rows.contains(row.0)) && is_visible(row);
        let filters = part.filtered.is_some() || visible.is_some();
        let mut query =
            Query { limit, offset, columns: &part.columns, check: Some(&check), ..Query::new(text) };
        if filters {
            query.filter = Some(&passes);
        }
        let (hits, mut marker, columns, searched_rows, tail_rows) = if part.scanned {
            let scanner = Scanner::new(part.snapshot.def(), &part.columns)?;
            let columns = scanner.fields().iter().map(|field| field.column).collect();
            let hits = scanner.search(&part.snapshot, &query)?;
            let rows = visible.as_ref().map_or(part.snapshot.rows(), |rows| rows.len() as u64);
            (hits, scanner.marker(&query)?, columns, rows, 0)
        } else {
            let searcher = self.text.searcher(&part.snapshot, part.position.as_deref());
            let mut searcher = searcher.map_err(|error| {
                // The index's progress would reveal how many rows there are.
                if part.visible.is_some() { Error::new(error.kind(), error.message()) } else { error }
            })?;
            let mut tail_rows = searcher.tail_rows();
            if visible.is_some() {
                searcher = searcher.restricted_to(&is_visible);
                tail_rows = 0;
            }
            let all = || searcher.fields().iter().map(|field| field.column).collect();
            let columns = if part.columns.is_empty() { all() } else { part.columns.clone() };
            (searcher.search(&query)?, searcher.marker(&query)?, columns, searcher.rows(), tail_rows)
        };
        marker.share(self.request.limit * columns.len());
        let text::Hits { hits, total, exact } = hits;
        let rows = hits.iter().map(|hit| (hit.row, f64::from(hit.score))).collect();
        Ok(TableMatches { rows, total, exact, marker, columns, searched_rows, tail_rows })
    }

    /// Returns the rows of the answer, best first, as table index, row and score.
    fn fuse(&self, best: &[TableMatches]) -> Vec<(usize, RowId, f64)> {
        if let [one] = best {
            return one.rows.iter().map(|(row, score)| (0, *row, *score)).collect();
        }
        let ranked = |(table, best): (usize, &TableMatches)| {
            let rank =
                |(at, (row, _)): (usize, &(RowId, f64))| (table, *row, 1.0 / (RANK_OFFSET + 1.0 + at as f64));
            best.rows.iter().enumerate().map(rank).collect::<Vec<_>>()
        };
        let mut all: Vec<(usize, RowId, f64)> = best.iter().enumerate().flat_map(ranked).collect();
        // The sort is stable: of equal ranks, that of the earlier table comes first.
        all.sort_by(|a, b| b.2.total_cmp(&a.2));
        all.into_iter().skip(self.request.offset).take(self.request.limit).collect()
    }

    fn fetch(
        &self,
        part: &TableSearch,
        searched: &[ColumnId],
        rows: &[RowId],
        room: &mut usize,
    ) -> Result<FetchedRows> {
        let def = part.snapshot.def();
        let key: Vec<ColumnId> = match &part.visible {
            // A key with a hidden column does not identify a row.
            Some(visible) if def.primary_key.iter().any(|id| !visible.columns.contains(id)) => Vec::new(),
            _ => def.primary_key.clone(),
        };
        let mut columns = vec![ROW_ID];
        for id in part.fields.iter().chain(&key).chain(searched) {
            if !columns.contains(id) {
                columns.push(*id);
            }
        }
        let projection = part.snapshot.projection(&columns)?;
        let mut batches = Vec::new();
        for some in rows.chunks(FETCH_ROWS) {
            self.cancel.check_deadline()?;
            let batch = part.snapshot.fetch(some, &projection)?;
            if batch.num_rows() != some.len() {
                return Err(
                    Error::internal("a row that was found is not in the table").with("table", &def.name)
                );
            }
            let bytes: usize = batch
                .columns()
                .iter()
                .map(|c| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size()))
                .sum();
            *room = room.checked_sub(bytes).ok_or_else(|| {
                Error::new(
                    Kind::TooLarge,
                    format!("the rows that were found take more than {} MiB", ROWS_BYTES_MAX >> 20),
                )
                .hint("ask for fewer, or name the columns to show as `fields`")
            })?;
            batches.push(batch);
        }
        let whole = concat_batches(projection.schema(), &batches)
            .map_err(|e| Error::internal(format!("joining the rows that were found failed: {e}")))?;
        let position = |id: &ColumnId| columns.iter().position(|known| known == id);
        let part_of = |ids: &[ColumnId]| project(&whole, ids.iter().filter_map(position).collect());
        let texts = searched
            .iter()
            .filter_map(|id| Some((*id, whole.column(position(id)?).clone())))
            .collect::<HashMap<_, _>>();
        Ok(FetchedRows { rows: part_of(&part.fields)?, keys: part_of(&key)?, texts })
    }

    fn snippets(
        &self,
        snapshot: &Snapshot,
        best: &TableMatches,
        texts: &HashMap<ColumnId, arrow::array::ArrayRef>,
        at: usize,
    ) -> Vec<(String, String)> {
        let mut snippets = Vec::new();
        let mut first: Option<(String, String)> = None;
        for id in &best.columns {
            let Some(column) = snapshot.def().schema.column(*id) else { continue };
            let Some(texts) = texts.get(id).and_then(|texts| texts.as_string_opt::<i32>()) else { continue };
            if texts.is_null(at) {
                continue;
            }
            let snippet = best.marker.snippet(*id, texts.value(at), self.request.snippet_chars);
            if !snippet.marks.is_empty() {
                snippets.push((column.name.clone(), snippet.html()));
            } else if first.is_none() && !snippet.text.trim().is_empty() {
                first = Some((column.name.clone(), snippet.html()));
            }
        }
        if snippets.is_empty() {
            // The word stands beyond the part of a long text that is examined: show its beginning instead.
            snippets.extend(first);
        }
        snippets
    }
}

struct FetchedRows {
    rows: RecordBatch,
    keys: RecordBatch,
    texts: HashMap<ColumnId, arrow::array::ArrayRef>,
}

fn project(batch: &RecordBatch, columns: Vec<usize>) -> Result<RecordBatch> {
    let schema = batch.schema();
    let fields: Vec<_> = columns.iter().map(|at| schema.fields()[*at].clone()).collect();
    let arrays = columns.iter().map(|at| batch.column(*at).clone()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map_err(|e| Error::internal(format!("choosing columns failed: {e}")))
}
