//! Routes that insert rows and delete rows by key.

mod chunked;
mod media;
mod memory;
mod row_ops;
pub mod several;
mod skip;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::{Committed, Op, RecordedRequest, Transaction};
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;
use types::{Error, Kind, Lsn, Principal, RowId, name};

use super::define::{RetryDeadline, commit_read};
use super::json;
use crate::app::Shared;
use crate::auth::Admitted;
use crate::body;
use crate::content::{self, Encoding};
use crate::failure::{Failure, Result};
use crate::idempotency::{self, Key};
use crate::input;
use media::Media;
pub use memory::AHEAD_MAX;
pub use row_ops::is_changed;
use row_ops::{AcceptedRows, WriteOptions, as_conflict, decode, is_created};
use wire::{Limits, RowRange, StreamOffset, value};

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    Insert,
    #[default]
    Upsert,
    InsertIfAbsent,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum AckMode {
    #[default]
    Durable,
    Memory,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InsertQuery {
    mode: Option<WriteMode>,
    #[serde(default)]
    ack: AckMode,
    create: Option<bool>,
    #[serde(default)]
    on_error: OnBadRow,
    #[serde(default)]
    chunked: bool,
}

/// The treatment of rows that do not fit their table.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum OnBadRow {
    #[default]
    Refuse,
    Skip,
}

/// The precondition in the headers of a write.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    None,
    /// `If-Match: "17"`: the row's live version must have this id.
    Version(RowId),
    /// `If-None-Match: *`: the keys must be new.
    Absent,
}

pub async fn rows(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(asker): Extension<Admitted>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    insert_rows(app, principal, &asker, &table, &parts, body).await
}

/// Returns the table of a request that inserts rows, if its name is in the path without percent-encoding.
pub fn table_of_rows(parts: &Parts) -> Option<&str> {
    let table = parts.uri.path().strip_prefix("/v1/tables/")?.strip_suffix("/rows")?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    (parts.method == Method::POST && !table.is_empty() && table.bytes().all(is_plain)).then_some(table)
}

pub async fn insert_rows<B>(
    app: Shared,
    principal: Arc<Principal>,
    asker: &Admitted,
    table: &str,
    parts: &Parts,
    body: B,
) -> Result<Response>
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
{
    let head = parse_head(&parts.uri, &parts.headers, table, asker)?;
    if head.chunked {
        return chunked::rows(app, principal, head, Body::new(body)).await;
    }
    let mut held = body::read(&app, &parts.headers, body).await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    app.telemetry.ingest_bytes.fetch_add(held.bytes.len() as u64, Relaxed);

    // Writers are slowed down before they are refused.
    let pause = app.engine.pace_of(&head.full_name);
    if !pause.is_zero() {
        app.telemetry.paced.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
    }
    let inline = head.encoding == Encoding::Identity && held.bytes.len() <= app.options.inline_bytes_max;
    decompress(&app, &mut held, head.encoding).await?;
    let head = Arc::new(head);
    let job = Job {
        app: app.clone(),
        principal,
        media: head.media,
        head: head.clone(),
        before: StreamOffset::default(),
        part: None,
        bytes: held.bytes.clone(),
    };
    Ok(match settle(&app, inline, head.ack, held, job).await? {
        Settled::Nothing(accepted) => answer(&head, &accepted, None, app.engine.root().lsn().0),
        Settled::Before(known) => {
            let accepted = AcceptedRows::before(&head, &known);
            let mut answer = answer(&head, &accepted, Some(known.committed), known.committed.lsn.0);
            idempotency::mark_replayed(answer.headers_mut());
            answer
        }
        Settled::Committed(accepted, committed) => {
            app.telemetry.rows_in.fetch_add(accepted.rows as u64, Relaxed);
            answer(&head, &accepted, Some(committed), committed.lsn.0)
        }
        Settled::Admitted(accepted) => answer(&head, &accepted, Some(Committed::default()), 0),
    })
}

/// Decompresses a body within the memory that bodies may take.
pub async fn decompress(app: &Shared, held: &mut body::RequestBody, encoding: Encoding) -> Result<()> {
    if encoding == Encoding::Identity {
        return Ok(());
    }
    let (packed, bytes_max) = (held.bytes.clone(), app.options.body_bytes_max);
    app.telemetry.work_jobs.fetch_add(1, Relaxed);
    let plain = app.work.run(move || content::decompress(encoding, &packed, bytes_max)).await??;
    held.grow(plain.len())?;
    held.bytes = plain.into();
    Ok(())
}

/// The result of submitting a body once.
enum Submitted<T> {
    /// The body has no rows.
    Nothing(T),
    /// This request was already committed.
    Before(RecordedRequest),
    /// The commit thread has the rows, and the receiver gets the outcome.
    Waiting(T, oneshot::Receiver<types::Result<Committed>>),
}

/// The outcome of a body.
enum Settled<T> {
    Nothing(T),
    Before(RecordedRequest),
    Committed(T, Committed),
    /// The rows wait for the commit thread, and the client is already answered because of `ack=memory`.
    Admitted(T),
}

/// The number of rows that a request inserts.
trait RowCount: Clone + Send + 'static {
    fn rows(&self) -> usize;
}

impl RowCount for AcceptedRows {
    fn rows(&self) -> usize {
        self.rows
    }
}

/// The decoded body of a write, which may be submitted several times until it is settled.
trait Attempt: Send + Sync {
    type Summary;

    /// Decodes the body for the tables as they are now, and hands the rows to the commit thread.
    fn submit(&self) -> Result<Submitted<Self::Summary>>;

    /// Returns the full names of the tables that it would make.
    fn makes(&self, summary: &Self::Summary) -> Vec<String>;

    /// Returns a failure that lists every bad row, if `error` of its commit may be about one of them: [`row_ops::bad_rows`].
    fn bad_rows(&self, error: &Error) -> Option<Failure>;
}

/// Submits until the outcome is known, or with `ack=memory` until the rows are admitted. The body's memory is held as long as it
/// may be needed.
async fn settle<T: RowCount>(
    app: &Shared,
    inline: bool,
    ack: AckMode,
    held: body::RequestBody,
    attempt: impl Attempt<Summary = T> + 'static,
) -> Result<Settled<T>> {
    let attempts =
        Attempts { app: app.clone(), inline, attempt: Arc::new(attempt), retries: RetryDeadline::new() };
    match ack {
        AckMode::Memory => memory::admitted(attempts, held).await,
        AckMode::Durable => {
            let settled = attempts.settled(None).await;
            drop(held);
            settled
        }
    }
}

/// Submits a body until the outcome is known, and again if another request changed a table in the meantime. A small body is
/// decoded on the calling thread.
struct Attempts<T> {
    app: Shared,
    inline: bool,
    attempt: Arc<dyn Attempt<Summary = T>>,
    retries: RetryDeadline,
}

impl<T: Send + 'static> Attempts<T> {
    /// Submits once. The result begins with the newest lsn that readers saw before.
    async fn submit(&self) -> Result<(Lsn, Submitted<T>)> {
        let seen = self.app.engine.root().lsn();
        let submitted = if self.inline {
            self.attempt.submit()?
        } else {
            let attempt = self.attempt.clone();
            self.app.telemetry.work_jobs.fetch_add(1, Relaxed);
            self.app.work.run(move || attempt.submit()).await??
        };
        Ok((seen, submitted))
    }

    /// Returns the outcome. `first` is the result of a submission that was made already.
    async fn settled(&self, first: Option<(Lsn, Submitted<T>)>) -> Result<Settled<T>> {
        let mut first = first;
        // The message about an existing table that the last attempt wanted to make.
        let mut last_conflict = None;
        loop {
            let (seen, submitted) = match first.take() {
                Some(first) => first,
                None => self.submit().await?,
            };
            match submitted {
                Submitted::Nothing(summary) => return Ok(Settled::Nothing(summary)),
                Submitted::Before(known) => return Ok(Settled::Before(known)),
                Submitted::Waiting(summary, receiver) => match receiver.await {
                    Ok(Ok(committed)) => return Ok(Settled::Committed(summary, committed)),
                    // Another request made the table first, so this waits until the table is visible. If the same error comes
                    // again then, it was not a race.
                    Ok(Err(e)) if is_created(&e) => {
                        let again = last_conflict.as_deref() == Some(e.message());
                        if again
                            || !self.retries.wait_for_tables(&self.app, &self.attempt.makes(&summary)).await
                        {
                            return Err(e.into());
                        }
                        last_conflict = Some(e.message().to_owned());
                    }
                    // Either the table's columns changed while the body was decoded, so it is decoded for the new ones. Or the
                    // same request was faster, and its answer appears once it is durable.
                    Ok(Err(e)) if is_changed(&e) || idempotency::is_repeated(&e) => {
                        if !self.retries.wait_for_newer_root(&self.app, seen).await {
                            return Err(e.into());
                        }
                    }
                    Ok(Err(e)) if e.kind() == Kind::Schema => {
                        let attempt = self.attempt.clone();
                        let all = move || attempt.bad_rows(&e).unwrap_or_else(|| e.into());
                        return Err(if self.inline { all() } else { self.app.work.run(all).await? });
                    }
                    Ok(Err(e)) => return Err(e.into()),
                    Err(_) => return Err(Error::new(Kind::Closed, "the database is closing").into()),
                },
            }
        }
    }
}

/// Hands a transaction to the commit thread. `seen` translates an error for this request.
fn send(
    app: &Shared,
    principal: &Principal,
    transaction: Transaction,
    seen: impl FnOnce(Error) -> Error + Send + 'static,
) -> oneshot::Receiver<types::Result<Committed>> {
    let (sender, receiver) = oneshot::channel();
    app.engine.submit(principal, transaction, move |result| {
        // The send fails if the client is gone. The commit stays.
        let _ = sender.send(result.map_err(seen));
    });
    receiver
}

fn answer(head: &Head, accepted: &AcceptedRows, committed: Option<Committed>, lsn: u64) -> Response {
    let in_memory = head.ack == AckMode::Memory && committed.is_some();
    let left_out = accepted.left_out.as_ref();
    let mut body = if in_memory {
        json!({ "count": accepted.rows, "first_row_id": null, "last_row_id": null, "lsn": null })
    } else {
        let committed = committed.unwrap_or_default();
        // The dead letters come first in a commit, so the ids are those of the good rows, if there are any.
        let count = committed.count.saturating_sub(left_out.map_or(0, |left_out| left_out.count as u64));
        let id = |row: Option<RowId>| row.filter(|_| count > 0).map(|row| row.0);
        let mut body = json!({
            "count": count,
            "first_row_id": id(committed.first_row),
            "last_row_id": id(committed.last_row),
            "lsn": lsn,
        });
        if let Some(repeated) = accepted.repeated(count) {
            body["repeated"] = json!(repeated);
        }
        body
    };
    if let Some(left_out) = left_out {
        left_out.add_to(&mut body);
    }
    if in_memory { (StatusCode::ACCEPTED, json(&body)).into_response() } else { json(&body) }
}

/// The parsed line and headers of a request, before its body is read.
#[derive(Debug)]
pub struct Head {
    full_name: String,
    options: WriteOptions,
    ack: AckMode,
    chunked: bool,
    media: Media,
    encoding: Encoding,
    idempotency: Option<Key>,
    /// The parts of the request, besides the body, that must be equal when it is sent again with the same key.
    identity: String,
}

fn parse_head(uri: &http::Uri, headers: &HeaderMap, table: &str, asker: &Admitted) -> Result<Head> {
    let full_name = name::full_table_name(table)?;
    let params: InsertQuery = input::query(uri)?;
    let idempotency = Key::of_table(headers, asker, "POST rows", &full_name)?;
    if idempotency.is_some() && params.ack == AckMode::Memory {
        return Err(no_key_in_memory());
    }
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let media = Media::of(headers)?;
    let encoding = Encoding::of(headers)?;
    let condition = match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Condition::None,
        (Some(version), None) => Condition::Version(version_of(version)?),
        (None, Some("*")) => Condition::Absent,
        _ => return Err(Error::invalid("If-None-Match takes `*` only, and not beside If-Match").into()),
    };
    if params.mode.is_some() && !matches!(condition, Condition::None) {
        return Err(Error::invalid("`mode` cannot be combined with If-Match or If-None-Match").into());
    }
    let query = uri.query().unwrap_or("");
    let distinct = format!("{query}\n{media:?}\n{condition:?}");
    Ok(Head {
        full_name,
        idempotency,
        identity: distinct,
        options: WriteOptions {
            mode: params.mode,
            create: params.create.unwrap_or(true),
            on_error: params.on_error,
            condition,
        },
        ack: params.ack,
        chunked: params.chunked,
        media,
        encoding,
    })
}

fn no_key_in_memory() -> Failure {
    Error::invalid("`ack=memory` and Idempotency-Key exclude each other")
        .hint("an answer about rows that may be lost cannot be stored: leave one of them out")
        .into()
}

pub fn version_of(header: &str) -> Result<RowId> {
    let digits = header.trim().trim_matches('"');
    digits.parse().map(RowId).map_err(|_| {
        Error::invalid(format!("If-Match: `{}` is not a row id", name::printable(header)))
            .hint("send the ETag that the row was read with")
            .into()
    })
}

struct Job {
    app: Shared,
    principal: Arc<Principal>,
    head: Arc<Head>,
    media: Media,
    /// The rows before `bytes` if they are a piece of a body.
    before: StreamOffset,
    part: Option<RowRange>,
    bytes: Bytes,
}

impl Job {
    fn limits(&self) -> Limits {
        // In a later piece of a stream of lines, `[` does not begin an array of rows. The pieces of an array are not lines.
        let among_rows = self.media == Media::Json { lines: true } && self.before != StreamOffset::default();
        Limits { before: self.before, part: self.part, among_rows, ..Limits::default() }
    }
}

impl Attempt for Job {
    type Summary = AcceptedRows;

    fn makes(&self, summary: &AcceptedRows) -> Vec<String> {
        summary.makes.then(|| self.head.full_name.clone()).into_iter().collect()
    }

    fn bad_rows(&self, error: &Error) -> Option<Failure> {
        let Head { full_name, options, .. } = &*self.head;
        let view = self.app.engine.view(&self.principal).ok()?;
        row_ops::bad_rows(&view, full_name, *options, self.media, &self.bytes, &self.limits(), error)
            .map(Into::into)
    }

    fn submit(&self) -> Result<Submitted<AcceptedRows>> {
        let head = &self.head;
        let request: [&[u8]; 2] = [head.identity.as_bytes(), &self.bytes];
        if let Some(key) = &head.idempotency
            && let Some(known) = key.find(&self.app.engine, &request)?
        {
            return Ok(Submitted::Before(known));
        }
        let view = self.app.engine.view(&self.principal)?;
        let (accepted, ops) =
            decode(&view, &head.full_name, head.options, self.media, &self.bytes, &self.limits())?;
        if ops.is_empty() {
            return Ok(Submitted::Nothing(accepted));
        }
        let mut transaction = Transaction::new(ops);
        let tables = || vec![head.full_name.clone()];
        transaction.remember =
            head.idempotency.map(|key| key.remember(&request, tables(), accepted.to_note()));
        let makes = accepted.makes;
        let receiver = send(&self.app, &self.principal, transaction, move |error| as_conflict(error, makes));
        Ok(Submitted::Waiting(accepted, receiver))
    }
}

/// Deletes the row with a key, or with this row id if the table has no key.
pub async fn delete(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path((table, key)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    let view = app.engine.view(&principal)?;
    let snapshot = view.table(&table)?;
    let def = snapshot.def();
    let row = super::rows::find(&snapshot, &key)?.ok_or_else(|| super::rows::no_row(def, &key))?;
    let expected = match headers.get(header::IF_MATCH) {
        Some(version) => Some(version_of(version.to_str().unwrap_or("\u{fffd}"))?),
        None => None,
    };
    let op = match expected {
        Some(version) if version != row => {
            return Err(Error::conflict(format!("the row's version is {row}, not {version}"))
                .hint("read it again")
                .into());
        }
        Some(_) => Op::Delete { table: def.name.clone(), rows: vec![row], must_exist: true },
        None if def.is_keyed() => {
            let types: Vec<_> = def.key_columns().map(|c| c.data_type.clone()).collect();
            Op::DeleteKeys { table: def.name.clone(), keys: vec![value::key(&key, &types)?] }
        }
        None => Op::Delete { table: def.name.clone(), rows: vec![row], must_exist: false },
    };
    let committed = commit_read(&app, &view, &principal, Transaction::new(vec![op])).await?;
    Ok(json(&json!({ "count": committed.deleted, "lsn": committed.lsn.0 })))
}
