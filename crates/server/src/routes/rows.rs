//! Routes that read rows: a range in the order of row ids, or one row by its key.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Request, header};
use serde::Deserialize;
use types::{Error, Principal, ROW_ID, ROW_ID_NAME, RowId, TIME, TIME_NAME, TableDef, name};

use crate::app::Shared;
use crate::cursors;
use crate::failure::{Failure, Result};
use crate::input;
use crate::partition::Partition;
use wire::out::{self, Format};
use wire::{text, value};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeQuery {
    from: Option<u64>,
    since: Option<String>,
    /// The name of a cursor of the table. Reading begins after the cursor's row.
    cursor: Option<String>,
    /// Restricts the rows to this partition.
    partition: Option<String>,
    limit: Option<u64>,
    columns: Option<String>,
}

const LIMIT_DEFAULT: usize = 1_000;
/// Number of rows up to which an answer is made on the thread that read the request.
const INLINE_ROWS_MAX: usize = 200;
/// Number of rows that are read at once.
const PAGE_ROWS: usize = 256;
/// Approximate number of rows that one request may scan for those of a partition.
const SCAN_ROWS_MAX: usize = 1 << 18;

pub const FORMATS: &str =
    "ask for application/json, application/x-ndjson, text/csv or application/vnd.apache.arrow.stream";

pub fn format_of(headers: &HeaderMap) -> Result<Format> {
    let accept = headers.get(header::ACCEPT).map(|accept| accept.to_str().unwrap_or(""));
    Format::negotiate(accept).ok_or_else(|| Failure::not_acceptable(FORMATS))
}

pub async fn range(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: RangeQuery = input::query(request.uri())?;
    let format = format_of(request.headers())?;
    let limit_max = app.options.rows_limit_max;
    let limit = match params.limit {
        None => LIMIT_DEFAULT.min(limit_max),
        Some(limit) if (1..=limit_max as u64).contains(&limit) => limit as usize,
        Some(limit) => {
            return Err(Error::invalid(format!("a limit of {limit} rows; it is 1 to {limit_max}"))
                .hint("follow `next` with `from=`, or ask for everything with POST /v1/sql")
                .into());
        }
    };
    // Both lookups use the same root, so that the cursor belongs to the table that is read.
    let root = app.engine.root();
    let snapshot = app.engine.view_of(root.clone(), &principal)?.table(&table)?;
    let from = match &params.cursor {
        None => params.from,
        Some(_) if params.from.is_some() || params.since.is_some() => {
            return Err(Error::invalid("`cursor` cannot be combined with `from` or `since`")
                .hint("follow `next` with `from=`, and without the cursor")
                .into());
        }
        Some(cursor) => Some(row_of(&root, snapshot.def(), cursor)?.next().0),
    };
    drop(root);
    let since = match &params.since {
        None => None,
        Some(since) => {
            let micros = match since.parse() {
                Ok(number) => Some(text::micros_of_number(number).map_err(Error::invalid)?),
                Err(_) => text::parse_time(since),
            };
            Some(micros.ok_or_else(|| {
                Error::invalid(format!("`since` is not a time: `{}`", name::printable(since)))
                    .hint("use 2026-11-21T08:06:51Z, or microseconds since 1970")
            })?)
        }
    };
    let partition = params.partition.as_deref().map(|text| Partition::parse(snapshot.def(), text));
    let partition = partition.transpose()?;
    // Rows that are only in the lake may take a while to read, so the request moves to a work thread.
    let begins_in_lake =
        snapshot.has_evicted() && (since.is_some() || snapshot.needs_lake(RowId(from.unwrap_or(1))));
    let is_light = limit <= INLINE_ROWS_MAX && partition.is_none() && !begins_in_lake;
    let range = RangeRead {
        from,
        since,
        partition,
        limit,
        bytes_max: app.options.rows_bytes_max,
        columns: params.columns,
    };
    if is_light {
        return range.read(&snapshot, format);
    }
    app.work.run(move || range.read(&snapshot, format)).await?
}

/// Returns the last row that a cursor's consumer has processed. Fails if the cursor has an lsn only.
fn row_of(root: &engine::DatabaseRoot, table: &TableDef, cursor: &str) -> Result<RowId> {
    let _reading = vfs::read_path();
    let row = cursors::get(root, table, cursor)?.row;
    Ok(row.ok_or_else(|| {
        Error::invalid(format!("the cursor `{cursor}` has an lsn and no row"))
            .hint("use it with …/tail, or set its `row`")
    })?)
}

struct RangeRead {
    from: Option<u64>,
    since: Option<types::Micros>,
    partition: Option<Partition>,
    limit: usize,
    bytes_max: usize,
    columns: Option<String>,
}

impl RangeRead {
    fn read(&self, snapshot: &table::Snapshot, format: Format) -> Result<Response> {
        let _reading = vfs::read_path();
        let projection = match &self.columns {
            None => snapshot.all_columns().clone(),
            Some(columns) => snapshot.projection(&column_ids(snapshot.def(), columns)?)?,
        };
        let mut at = RowId(self.from.unwrap_or(1).max(1));
        if let Some(since) = self.since {
            at = at.max(snapshot.row_at_time(since)?);
        }
        let mut rows = RowPages::of(snapshot, self.partition.as_ref(), at, self.limit)?;
        let mut writer = out::Writer::new(format, projection.schema())?;
        let mut text = Vec::new();
        let mut first = true;
        if format == Format::Json {
            text.extend_from_slice(b"{\"rows\":[");
        }
        writer.begin(&mut text);
        // At least some rows are written whatever the bound, so that a client that follows `next` makes progress.
        let bytes_max = text.len().max(self.bytes_max) + 1;
        while text.len() < bytes_max
            && let Some(batch) = rows.page(&projection)?
        {
            let mut written = 0;
            // Few rows are written at a time, so that large ones exceed the bound by little.
            while written < batch.num_rows() && text.len() < bytes_max {
                let some = batch.slice(written, (batch.num_rows() - written).min(16));
                match &writer {
                    out::Writer::Ndjson(json) if format == Format::Json => {
                        json.objects(&some, &mut first, usize::MAX, &mut text);
                    }
                    _ => writer.batch(&some, &mut text)?,
                }
                written += some.num_rows();
            }
            rows.advance(written);
        }
        let next = rows.next.filter(|next| *next < snapshot.next_row());
        writer.end(&mut text)?;
        let next_text = next.map_or_else(|| "null".to_owned(), |next| next.to_string());
        if format == Format::Json {
            text.extend_from_slice(
                format!("],\"next\":{next_text},\"lsn\":{}}}\n", snapshot.lsn()).as_bytes(),
            );
        }
        let mut response = ([(header::CONTENT_TYPE, format.media_type())], text).into_response();
        let headers = response.headers_mut();
        headers.insert("polynya-lsn", HeaderValue::from(snapshot.lsn().0));
        if let Some(next) = next {
            headers.insert("polynya-next", HeaderValue::from(next.0));
        }
        Ok(response)
    }
}

/// The rows of an answer, read page by page.
struct RowPages<'s> {
    snapshot: &'s table::Snapshot,
    ids_only: table::Projection,
    /// The selected rows of a partition, and the row id to continue at after them; `None` if the request names no partition.
    selected: Option<(Vec<RowId>, Option<RowId>)>,
    /// Rows that may still be written.
    left: usize,
    /// The ids of the page's rows.
    page: Vec<RowId>,
    /// True if there are no rows after the page.
    is_last: bool,
    /// The row id to continue at after the rows that were written; `None` if there are no more.
    next: Option<RowId>,
}

impl<'s> RowPages<'s> {
    fn of(
        snapshot: &'s table::Snapshot,
        partition: Option<&Partition>,
        from: RowId,
        limit: usize,
    ) -> Result<RowPages<'s>> {
        let ids_only = snapshot.projection(&[ROW_ID])?;
        let selected =
            partition.map(|partition| partition.rows(snapshot, from, limit, SCAN_ROWS_MAX)).transpose()?;
        let next = match &selected {
            Some((ids, after)) if ids.is_empty() => *after,
            _ => Some(from),
        };
        Ok(RowPages { snapshot, ids_only, selected, left: limit, page: Vec::new(), is_last: false, next })
    }

    /// Reads the next page of rows; `None` at the end.
    fn page(&mut self, projection: &table::Projection) -> Result<Option<RecordBatch>> {
        let want = self.left.min(PAGE_ROWS);
        let Some(from) = self.next.filter(|_| want > 0 && !self.is_last) else { return Ok(None) };
        let batch = match &self.selected {
            Some((ids, _)) => {
                let first = ids.partition_point(|row| *row < from);
                self.page = ids[first..].iter().take(want).copied().collect();
                self.is_last = first + self.page.len() == ids.len();
                self.snapshot.fetch(&self.page, projection)?
            }
            None => {
                // The ids are read too, to know where to continue.
                let ids = self.snapshot.scan_from(from, want, &self.ids_only)?;
                let ids = ids.column(0).as_primitive::<Int64Type>();
                self.page = ids.values().iter().map(|row| RowId(*row as u64)).collect();
                self.is_last = self.page.len() < want;
                self.snapshot.scan_from(from, want, projection)?
            }
        };
        if self.page.is_empty() {
            // For a partition `next` is already the row id to continue the scan at.
            self.next = self.next.filter(|_| self.selected.is_some());
            return Ok(None);
        }
        Ok(Some(batch))
    }

    /// Notes that the first `rows` rows of the page were written.
    fn advance(&mut self, rows: usize) {
        self.left -= rows;
        let Some(last) = rows.checked_sub(1).and_then(|at| self.page.get(at)) else { return };
        self.next = Some(last.next());
        if self.is_last && rows == self.page.len() {
            self.next = self.selected.as_ref().and_then(|(_, after)| *after);
        } else {
            self.is_last = false;
        }
    }
}

fn column_ids(def: &TableDef, columns: &str) -> Result<Vec<types::ColumnId>> {
    let mut ids = Vec::new();
    for wanted in columns.split(',') {
        ids.push(match wanted {
            ROW_ID_NAME => ROW_ID,
            TIME_NAME => TIME,
            _ => def.schema.column_named(wanted).ok_or_else(|| no_column(def, wanted))?.id,
        });
    }
    if ids.len() > types::schema::COLUMNS_MAX + 2 {
        return Err(Error::invalid("more columns than a table can have").into());
    }
    Ok(ids)
}

fn no_column(def: &TableDef, wanted: &str) -> Error {
    let names = def.schema.columns.iter().map(|column| column.name.as_str());
    let error = Error::not_found(format!("there is no column `{}`", name::printable(wanted)))
        .with("table", name::short_table_name(&def.name));
    match engine::name_hints::similar_names(wanted, names.chain([ROW_ID_NAME, TIME_NAME])).as_slice() {
        [] => error.hint("GET /v1/tables/{table} lists the columns"),
        near => error.hint(engine::name_hints::did_you_mean(near)),
    }
}

pub async fn by_key(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path((table, key)): Path<(String, String)>,
) -> Result<Response> {
    let snapshot = app.engine.view(&principal)?.table(&table)?;
    let is_in_lake =
        !snapshot.def().is_keyed() && key.parse().is_ok_and(|row| snapshot.needs_lake(RowId(row)));
    if is_in_lake {
        app.work.run(move || read_row(&snapshot, &key)).await?
    } else {
        read_row(&snapshot, &key)
    }
}

fn read_row(snapshot: &table::Snapshot, key: &str) -> Result<Response> {
    let _reading = vfs::read_path();
    let def = snapshot.def();
    let row = find(snapshot, key)?.ok_or_else(|| no_row(def, key))?;
    let batch = snapshot.fetch(&[row], snapshot.all_columns())?;
    if batch.num_rows() == 0 {
        return Err(no_row(def, key).into());
    }
    let mut text = Vec::new();
    out::json::Writer::new(snapshot.arrow_schema()).rows(&batch, &mut text);
    let mut response = ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    let etag = HeaderValue::from_str(&format!("\"{row}\"")).expect("digits and quotes");
    response.headers_mut().insert(header::ETAG, etag);
    response.headers_mut().insert("polynya-lsn", HeaderValue::from(snapshot.lsn().0));
    Ok(response)
}

/// Finds the live row with the key in a path: a primary key, or a row id if the table has no primary key.
pub fn find(snapshot: &table::Snapshot, key: &str) -> Result<Option<RowId>> {
    let def = snapshot.def();
    if def.is_keyed() {
        let types: Vec<_> = def.key_columns().map(|c| c.data_type.clone()).collect();
        let values = value::key(key, &types)?;
        return Ok(snapshot.find(&types::key::encode_values(&types, &values)?)?);
    }
    let digits = key.bytes().all(|b| b.is_ascii_digit()).then_some(key);
    let row = digits.and_then(|digits| digits.parse().ok()).map(RowId).ok_or_else(|| {
        Error::invalid(format!("`{}` is not a row id", name::printable(key)))
            .hint("the table has no primary key, so its rows are named by `_row_id`")
    })?;
    Ok(snapshot.is_live(row)?.then_some(row))
}

pub fn no_row(def: &TableDef, key: &str) -> Error {
    Error::not_found(format!("there is no row `{}`", name::printable(key)))
        .with("table", name::short_table_name(&def.name))
}
