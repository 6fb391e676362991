//! `POST /v1/rows`: rows of several tables in one request and one commit, all or none.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::{Transaction, dead_letters};
use http::{HeaderMap, Request, StatusCode, Uri, header};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Principal, name};
use wire::Limits;

use super::media::Media;
use super::row_ops::{AcceptedRows, WriteOptions, as_conflict, bad_rows, decode};
use super::skip::SkippedRows;
use super::{
    AckMode, Attempt, Condition, OnBadRow, RowCount, Settled, Submitted, WriteMode, decompress, send, settle,
};
use crate::app::Shared;
use crate::auth::Admitted;
use crate::body;
use crate::content::Encoding;
use crate::failure::{Failure, Result};
use crate::idempotency::{self, Key};
use crate::input;
use crate::routes::json;

/// Maximum number of tables in one request.
const TABLES_MAX: usize = 100;
const EXAMPLE: &str = r#"{"tables":{"events":[{"kind":"a"}],"users":[{"id":1}]}}"#;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InsertQuery {
    mode: Option<WriteMode>,
    #[serde(default)]
    ack: AckMode,
    create: Option<bool>,
    #[serde(default)]
    on_error: OnBadRow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables<'a> {
    #[serde(borrow)]
    tables: RowsByTable<'a>,
}

/// The unparsed rows of each table, in the order of the body. Tables beyond [`TABLES_MAX`] are only counted.
#[derive(Debug)]
struct RowsByTable<'a> {
    pairs: Vec<(Cow<'a, str>, &'a RawValue)>,
    sent: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for RowsByTable<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Pairs<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Pairs<'a> {
            type Value = RowsByTable<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of rows by table")
            }

            fn visit_map<M: MapAccess<'de>>(
                self,
                mut map: M,
            ) -> std::result::Result<RowsByTable<'a>, M::Error> {
                let mut named = RowsByTable { pairs: Vec::new(), sent: 0 };
                while named.sent < TABLES_MAX {
                    let Some(pair) = map.next_entry()? else { return Ok(named) };
                    named.pairs.push(pair);
                    named.sent += 1;
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    named.sent += 1;
                }
                Ok(named)
            }
        }
        from.deserialize_map(Pairs(std::marker::PhantomData))
    }
}

/// The parsed line and headers of a request, before its body is read.
struct Head {
    options: WriteOptions,
    ack: AckMode,
    encoding: Encoding,
    idempotency: Option<Key>,
    /// The parts of the request, besides the body, that must be equal when it is sent again with the same key.
    identity: String,
}

/// The results for all tables. Stored with a request that has an Idempotency-Key.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct TablesSummary {
    tables: Vec<TableSummary>,
    /// The full names of the tables that are made.
    #[serde(skip)]
    makes: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct TableSummary {
    table: String,
    rows: usize,
    left_out: Option<SkippedRows>,
}

pub async fn rows(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(asker): Extension<Admitted>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let head = parse_head(&parts.uri, &parts.headers, &asker)?;
    let mut held = body::read(&app, &parts.headers, body).await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    app.telemetry.ingest_bytes.fetch_add(held.bytes.len() as u64, Relaxed);
    let inline = head.encoding == Encoding::Identity && held.bytes.len() <= app.options.inline_bytes_max;
    decompress(&app, &mut held, head.encoding).await?;
    let bytes = held.bytes.clone();
    let on_error = head.options.on_error;
    let names = if inline {
        names(&bytes, on_error)?
    } else {
        app.work.run(move || names(&bytes, on_error)).await??
    };
    // Writers are slowed down before they are refused.
    let pause = names.iter().map(|table| app.engine.pace_of(table)).max().unwrap_or_default();
    if !pause.is_zero() {
        app.telemetry.paced.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
    }
    let ack = head.ack;
    let job = Job { app: app.clone(), principal, head, bytes: held.bytes.clone() };
    Ok(match settle(&app, inline, ack, held, job).await? {
        Settled::Nothing(all) => json(&all.to_json(0, app.engine.root().lsn().0)),
        Settled::Before(known) => {
            let note = known.note.as_deref().unwrap_or_default();
            let all: TablesSummary = serde_json::from_str(note).unwrap_or_default();
            let mut answer = json(&all.to_json(known.committed.count, known.committed.lsn.0));
            idempotency::mark_replayed(answer.headers_mut());
            answer
        }
        Settled::Committed(all, _) if ack == AckMode::Memory => {
            app.telemetry.rows_in.fetch_add(all.rows() as u64, Relaxed);
            all.admitted()
        }
        Settled::Admitted(all) => all.admitted(),
        Settled::Committed(all, committed) => {
            app.telemetry.rows_in.fetch_add(all.rows() as u64, Relaxed);
            json(&all.to_json(committed.count, committed.lsn.0))
        }
    })
}

fn parse_head(uri: &Uri, headers: &HeaderMap, asker: &Admitted) -> Result<Head> {
    let params: InsertQuery = input::query(uri)?;
    let media = Media::of(headers)?;
    if !matches!(media, Media::Json { .. }) {
        return Err(Failure::unsupported(
            "rows of several tables are one object of JSON",
            format!("send {EXAMPLE}"),
        ));
    }
    for other in [header::IF_MATCH, header::IF_NONE_MATCH] {
        if headers.contains_key(&other) {
            return Err(Error::invalid(format!(
                "`{other}` applies to one table, but this request has several"
            ))
            .hint("send the rows to POST /v1/tables/{table}/rows, or use POST /v1/transactions")
            .into());
        }
    }
    let idempotency = Key::of(headers, asker, "POST rows of tables")?;
    if idempotency.is_some() && params.ack == AckMode::Memory {
        return Err(super::no_key_in_memory());
    }
    let options = WriteOptions {
        mode: params.mode,
        create: params.create.unwrap_or(true),
        on_error: params.on_error,
        condition: Condition::None,
    };
    let encoding = Encoding::of(headers)?;
    Ok(Head {
        options,
        ack: params.ack,
        encoding,
        idempotency,
        identity: uri.query().unwrap_or("").to_owned(),
    })
}

/// Parses the body. Fails if it names a table twice, or has rows for the table of dead letters of another one.
fn tables(bytes: &[u8], on_error: OnBadRow) -> Result<Vec<(String, &RawValue)>> {
    let body: Tables<'_> = input::json(bytes, "object of rows by table", EXAMPLE)?;
    let RowsByTable { pairs, sent } = body.tables;
    if pairs.is_empty() {
        return Err(Error::invalid("`tables` is empty").hint(format!("send {EXAMPLE}")).into());
    }
    if sent > TABLES_MAX {
        return Err(Error::new(
            Kind::TooLarge,
            format!("a request has rows of at most {TABLES_MAX} tables, {sent} were sent"),
        )
        .hint("send them in several requests")
        .into());
    }
    let mut seen = HashSet::new();
    let full = pairs.into_iter().map(|(table, rows)| {
        let full_name = name::full_table_name(&table)?;
        if seen.insert(full_name.to_lowercase()) {
            Ok((full_name, rows))
        } else {
            Err(Error::invalid(format!("table `{}` is named twice", name::printable(&table)))
                .hint("put all of its rows into one array"))
        }
    });
    let full = full.collect::<types::Result<Vec<_>>>()?;
    let takes_bad_rows = |table: &str| seen.contains(&dead_letters::table_of(table).to_lowercase());
    if on_error == OnBadRow::Skip
        && let Some((table, _)) = full.iter().find(|(table, _)| takes_bad_rows(table))
    {
        let (short, dead) = (name::short_table_name(table), dead_letters::table_of(table));
        let dead = name::short_table_name(&dead);
        let what = format!("`{dead}` takes the bad rows of `{short}` and has rows of its own here");
        let hint = format!("send the rows of `{dead}` in a request of their own, or leave on_error=skip out");
        return Err(Error::invalid(what).hint(hint).into());
    }
    Ok(full)
}

fn names(body: &[u8], on_error: OnBadRow) -> Result<BTreeSet<String>> {
    Ok(tables(body, on_error)?.into_iter().map(|(table, _)| table).collect())
}

struct Job {
    app: Shared,
    principal: Arc<Principal>,
    head: Head,
    bytes: Bytes,
}

impl Attempt for Job {
    type Summary = TablesSummary;

    fn makes(&self, all: &TablesSummary) -> Vec<String> {
        all.makes.clone()
    }

    fn bad_rows(&self, error: &Error) -> Option<Failure> {
        let view = self.app.engine.view(&self.principal).ok()?;
        let (options, media, limits) = (self.head.options, Media::Json { lines: false }, Limits::default());
        tables(&self.bytes, options.on_error).ok()?.into_iter().find_map(|(table, rows)| {
            let refused = bad_rows(&view, &table, options, media, rows.get().as_bytes(), &limits, error)?;
            Some(Failure::from(refused).with_table(name::short_table_name(&table)))
        })
    }

    fn submit(&self) -> Result<Submitted<TablesSummary>> {
        let head = &self.head;
        let request: [&[u8]; 2] = [head.identity.as_bytes(), &self.bytes];
        if let Some(key) = &head.idempotency
            && let Some(known) = key.find(&self.app.engine, &request)?
        {
            return Ok(Submitted::Before(known));
        }
        let view = self.app.engine.view(&self.principal)?;
        let (mut all, mut ops) = (TablesSummary::default(), Vec::new());
        let mut of_tables = Vec::new();
        let mut limits = Limits::default();
        for (table, rows) in tables(&self.bytes, head.options.on_error)? {
            let media = Media::Json { lines: false };
            let short = name::short_table_name(&table).to_owned();
            let (accepted, more) = decode(&view, &table, head.options, media, rows.get().as_bytes(), &limits)
                .map_err(|failure| failure.with_table(&short))?;
            let AcceptedRows { rows, left_out, makes: makes_it, .. } = accepted;
            // All tables share the decoded bytes that one body may take.
            let bytes: usize = more.iter().map(held_bytes).sum();
            limits.decoded_bytes_max = limits.decoded_bytes_max.saturating_sub(bytes);
            ops.extend(more);
            all.makes.extend(makes_it.then(|| table.clone()));
            of_tables.push(table);
            all.tables.push(TableSummary { table: short, rows, left_out });
        }
        if ops.is_empty() {
            return Ok(Submitted::Nothing(all));
        }
        let mut transaction = Transaction::new(ops);
        let note = || serde_json::to_string(&all).ok();
        transaction.remember = head.idempotency.map(|key| key.remember(&request, of_tables, note()));
        let makes = !all.makes.is_empty();
        let receiver = send(&self.app, &self.principal, transaction, move |error| as_conflict(error, makes));
        Ok(Submitted::Waiting(all, receiver))
    }
}

fn held_bytes(op: &engine::Op) -> usize {
    match op {
        engine::Op::Insert { batch, .. } => batch.get_array_memory_size(),
        _ => 0,
    }
}

impl RowCount for TablesSummary {
    fn rows(&self) -> usize {
        self.tables.iter().map(|one| one.rows).sum()
    }
}

impl TablesSummary {
    /// Returns the answer to `ack=memory`.
    fn admitted(&self) -> Response {
        let mut body = self.to_json(0, 0);
        body["count"] = json!(self.rows());
        body["lsn"] = Json::Null;
        (StatusCode::ACCEPTED, json(&body)).into_response()
    }

    /// Returns the JSON of the answer. `written` is the number of inserted rows, dead letters included.
    fn to_json(&self, written: u64, lsn: u64) -> Json {
        let left_out = |one: &TableSummary| one.left_out.as_ref().map_or(0, |left_out| left_out.count);
        let bad: usize = self.tables.iter().map(left_out).sum();
        let tables = self.tables.iter().map(|one| {
            let mut shown = json!({ "rows": one.rows });
            if let Some(left_out) = &one.left_out {
                left_out.add_to(&mut shown);
            }
            (one.table.clone(), shown)
        });
        json!({
            "count": written.saturating_sub(bad as u64),
            "lsn": lsn,
            "tables": tables.collect::<serde_json::Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten million tables took 3.7 GB before they were counted.
    #[test]
    fn of_too_many_tables_no_more_are_kept_than_may_be_there() {
        let pairs = |count: usize| format!(r#"{{{}"b":[]}}"#, r#""a":0,"#.repeat(count - 1));
        let text = pairs(TABLES_MAX);
        let named: RowsByTable<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!((named.pairs.len(), named.sent, named.pairs[TABLES_MAX - 1].1.get()), (100, 100, "[]"));
        let text = pairs(100_000);
        let named: RowsByTable<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!((named.pairs.len(), named.sent), (TABLES_MAX, 100_000));
    }
}
