//! Routes of keyword search in one or several tables.

use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use http::{Request, header};
use query::search::{SearchResult, SearchedTable};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Principal, name};

use super::milliseconds;
use crate::app::Shared;
use crate::body::{self, RequestBody};
use crate::failure::Result;
use crate::input;
use crate::values;
use wire::out;

/// The parameters of a search in the query string. Lists are separated by commas.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchQuery {
    q: Option<String>,
    mode: Option<String>,
    tables: Option<String>,
    columns: Option<String>,
    fields: Option<String>,
    filter: Option<String>,
    limit: Option<u64>,
    offset: Option<u64>,
    deadline_ms: Option<u64>,
}

/// The parameters of a search in a JSON body.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchBody {
    q: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    tables: Vec<String>,
    #[serde(default)]
    columns: Vec<String>,
    fields: Option<Vec<String>>,
    filter: Option<String>,
    #[serde(default)]
    params: Vec<Json>,
    limit: Option<u64>,
    offset: Option<u64>,
    deadline_ms: Option<u64>,
}

const LIMIT_DEFAULT: u64 = 10;
/// Maximum number of bytes of an answer. Single rows and texts may be large.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum number of names in each list of a request: as many as a table has columns.
const NAMES_MAX: usize = types::schema::COLUMNS_MAX;
/// Number of rows up to which the answer is written on the thread that read the request.
const INLINE_ROWS_MAX: usize = 100;

pub async fn table(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let asked = from_url(&request)?;
    search(app, principal, Some(table), asked, None).await
}

pub async fn table_post(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (asked, held) = from_body(&app, request).await?;
    search(app, principal, Some(table), asked, Some(held)).await
}

pub async fn all(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request<Body>,
) -> Result<Response> {
    let asked = from_url(&request)?;
    search(app, principal, None, asked, None).await
}

pub async fn all_post(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request<Body>,
) -> Result<Response> {
    let (asked, held) = from_body(&app, request).await?;
    search(app, principal, None, asked, Some(held)).await
}

fn from_url(request: &Request<Body>) -> Result<SearchBody> {
    let asked: SearchQuery = input::query(request.uri())?;
    let list = |text: String| match text.trim() {
        "" => Vec::new(),
        text => text.split(',').map(|part| part.trim().to_owned()).collect(),
    };
    Ok(SearchBody {
        q: asked.q,
        mode: asked.mode,
        tables: asked.tables.map(list).unwrap_or_default(),
        columns: asked.columns.map(list).unwrap_or_default(),
        fields: asked.fields.map(list),
        filter: asked.filter.filter(|filter| !filter.trim().is_empty()),
        params: Vec::new(),
        limit: asked.limit,
        offset: asked.offset,
        deadline_ms: asked.deadline_ms,
    })
}

/// Reads the JSON body of a search. The second result holds the memory of its values.
async fn from_body(app: &Shared, request: Request<Body>) -> Result<(SearchBody, RequestBody)> {
    let (parts, body) = request.into_parts();
    if parts.uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(Error::invalid("a POST to search takes no query string")
            .hint("use GET with a query string, or put it all into the JSON body")
            .into());
    }
    let mut held = body::read(app, &parts.headers, body).await?;
    Ok((input::body(&mut held, "search", r#"{"q":"words","limit":10}"#)?, held))
}

fn to_request(table: Option<String>, asked: SearchBody) -> Result<query::search::Request> {
    match asked.mode.as_deref() {
        None | Some("keyword") => {}
        Some(mode @ ("vector" | "hybrid")) => {
            return Err(Error::invalid(format!("mode `{mode}` is not supported yet"))
                .hint("this version searches by keyword")
                .into());
        }
        Some(other) => {
            return Err(Error::invalid(format!("there is no mode `{}`", name::printable(other)))
                .hint("the mode is `keyword`")
                .into());
        }
    }
    if table.is_some() && !asked.tables.is_empty() {
        return Err(Error::invalid("the path names the table already")
            .hint("/v1/search takes several tables")
            .into());
    }
    let lists = [
        ("tables", asked.tables.len()),
        ("columns", asked.columns.len()),
        ("fields", asked.fields.as_ref().map_or(0, Vec::len)),
    ];
    if let Some((list, sent)) = lists.into_iter().find(|(_, sent)| *sent > NAMES_MAX) {
        let what = format!("a search has at most {NAMES_MAX} `{list}`, {sent} were sent");
        return Err(Error::new(Kind::TooLarge, what).into());
    }
    let text = asked
        .q
        .ok_or_else(|| Error::invalid("`q` is missing").hint("give the words to search for: ?q=words"))?;
    let number = |wanted: u64| usize::try_from(wanted).unwrap_or(usize::MAX);
    Ok(query::search::Request {
        tables: table.map_or(asked.tables, |table| vec![table]),
        columns: asked.columns,
        fields: asked.fields,
        filter: asked.filter,
        params: values::parameters(&asked.params)?,
        limit: number(asked.limit.unwrap_or(LIMIT_DEFAULT)),
        offset: number(asked.offset.unwrap_or(0)),
        deadline: input::deadline(asked.deadline_ms)?,
        ..query::search::Request::new(text)
    })
}

async fn search(
    app: Shared,
    principal: Arc<Principal>,
    table: Option<String>,
    asked: SearchBody,
    held: Option<RequestBody>,
) -> Result<Response> {
    let started = Instant::now();
    let Some(search) = &app.options.search else {
        return Err(Error::not_found("this server was started without search").into());
    };
    let one = table.is_some();
    let request = to_request(table, asked)?;
    // The parameters belong to the search now.
    drop(held);
    let found = search.run(&principal, request).await?;
    let lsn = found.lsn.0;
    let text = if found.hits.len() <= INLINE_ROWS_MAX {
        answer_json(&found, one, started)?
    } else {
        app.work.run(move || answer_json(&found, one, started)).await??
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::HeaderName::from_static("polynya-lsn"), lsn.to_string()),
    ];
    Ok((headers, text).into_response())
}

/// Writes the JSON answer. `one` is true if the request was about one table.
pub fn answer_json(found: &SearchResult, one: bool, started: Instant) -> Result<Vec<u8>> {
    let rows: Vec<Vec<u8>> = found.tables.iter().map(|table| lines(&table.rows)).collect();
    let keys: Vec<Vec<Vec<u8>>> = found.tables.iter().map(|table| keys(&table.keys)).collect();
    let rows: Vec<Vec<&[u8]>> = rows.iter().map(|text| text.split(|b| *b == b'\n').collect()).collect();
    let mut out = Vec::with_capacity(1024 * found.hits.len() + 256);
    out.extend_from_slice(b"{\"hits\":[");
    for (at, hit) in found.hits.iter().enumerate() {
        let searched = &found.tables[hit.table];
        let mut head = json!({
            "table": name::short_table_name(&searched.table.def().name),
            "score": hit.score,
        });
        if !searched.filtered {
            head["row_id"] = json!(hit.row.0);
        }
        let head = head.to_string();
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
        // The snippets are written by hand in the order of the table's columns, which an object of serde_json would not keep.
        out.extend_from_slice(b",\"snippets\":{");
        for (at, (column, html)) in hit.snippets.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out::json::string(column, &mut out);
            out.push(b':');
            out::json::string(html, &mut out);
        }
        out.push(b'}');
        out.extend_from_slice(b",\"key\":");
        out.extend_from_slice(keys[hit.table].get(hit.at).map_or(b"null", Vec::as_slice));
        out.extend_from_slice(b",\"row\":");
        out.extend_from_slice(rows[hit.table].get(hit.at).copied().unwrap_or(b"{}"));
        out.push(b'}');
        if out.len() > ANSWER_BYTES_MAX {
            return Err(Error::new(
                types::Kind::TooLarge,
                format!("the answer is longer than {} MiB", ANSWER_BYTES_MAX >> 20),
            )
            .hint("ask for fewer rows, or name the columns to show as `fields`")
            .into());
        }
    }
    let mut end = json!({
        "total": found.total,
        "exact": found.exact,
        "took_ms": milliseconds(started.elapsed()),
        "lsn": found.lsn.0,
        "scanned": found.tables.iter().any(|table| table.scanned),
    });
    match found.tables.as_slice() {
        [table] if one => end["index"] = index(table),
        tables => {
            let shown = |table: &SearchedTable| {
                json!({
                    "table": name::short_table_name(&table.table.def().name),
                    "total": table.total,
                    "index": index(table),
                })
            };
            end["tables"] = tables.iter().map(shown).collect();
        }
    }
    let end = end.to_string();
    out.extend_from_slice(b"],");
    out.extend_from_slice(&end.as_bytes()[1..]);
    out.push(b'\n');
    Ok(out)
}

/// Returns the number of searched rows, and how many of them were not in the index.
fn index(table: &SearchedTable) -> Json {
    if table.scanned {
        json!({ "rows": table.searched_rows, "scanned": true })
    } else {
        json!({ "rows": table.searched_rows, "tail_rows": table.tail_rows })
    }
}

/// Writes one JSON object per line.
fn lines(batch: &RecordBatch) -> Vec<u8> {
    let mut text = Vec::new();
    out::json::Writer::new(batch.schema_ref()).rows(batch, &mut text);
    text
}

/// Writes the keys of the rows: a key of one column as its value, one of several columns as an array. Returns nothing without a
/// key.
fn keys(batch: &RecordBatch) -> Vec<Vec<u8>> {
    if batch.num_columns() == 0 {
        return Vec::new();
    }
    let writer = out::json::Writer::new(batch.schema_ref());
    let key = |row: usize| {
        let mut text = Vec::new();
        writer.arrays(&batch.slice(row, 1), &mut true, &mut text);
        match batch.num_columns() {
            1 => text[1..text.len() - 1].to_vec(),
            _ => text,
        }
    };
    (0..batch.num_rows()).map(key).collect()
}
