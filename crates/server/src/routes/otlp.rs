//! The route for logs of OpenTelemetry's exporters: OTLP over HTTP, in Protobuf or JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use engine::dead_letters::{self, DeadLetter};
use engine::{Mode, Op, Transaction};
use http::{HeaderMap, HeaderValue, Request, header};
use serde::{Deserialize, Serialize};
use serde_json::json;
use types::{Error, Kind, Principal, name};
use wire::{Limits, otlp};

use super::define::{RetryDeadline, commit};
use super::write;
use crate::app::Shared;
use crate::auth::Admitted;
use crate::body;
use crate::content::{self, Encoding};
use crate::failure::{Failure, Result};
use crate::idempotency::{self, Key};
use crate::input;

/// The table for logs of requests that name none.
const TABLE: &str = "otel.logs";

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogsQuery {
    table: Option<String>,
}

/// The encoding of a request, which its answer uses too.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Media {
    Protobuf,
    Json,
}

/// Commits the records of an export request as rows of one commit. Answers once they are durable.
pub async fn logs(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(asker): Extension<Admitted>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let media = media_of(&parts.headers)?;
    // Exporters expect errors in their own encoding.
    match commit_logs(&app, &principal, &asker, parts, body, media).await {
        Ok((outcome, is_replayed)) => {
            let mut answer = outcome.answer(media);
            if is_replayed {
                idempotency::mark_replayed(answer.headers_mut());
            }
            Ok(answer)
        }
        Err(failure) if media == Media::Json => Err(failure),
        Err(failure) => Ok(in_protobuf(failure)),
    }
}

/// The result of an export: the number of rejected records and the first reason. Stored with the Idempotency-Key, if there is
/// one.
#[derive(Debug, Default, Deserialize, Serialize)]
struct ExportOutcome {
    rejected: usize,
    why: String,
}

/// Returns the text about rejected records that are stored as dead letters, with the reason of the first.
fn kept_message(refused: &[otlp::RefusedRecord], table: &str) -> String {
    let table = dead_letters::table_of(table);
    let table = name::short_table_name(&table);
    refused
        .first()
        .map_or_else(String::new, |of| format!("record {}: {} (kept in `{table}`)", of.record, of.reason))
}

/// Returns the text about rejected records that could not be stored as dead letters.
fn not_kept_message(refused: &[otlp::RefusedRecord], error: &Error) -> String {
    let first =
        refused.first().map_or_else(String::new, |of| format!("record {}: {}; ", of.record, of.reason));
    format!("{first}rejected records cannot be stored: {}", error.message())
}

impl ExportOutcome {
    /// Encodes an ExportLogsServiceResponse. It is empty unless records were rejected.
    fn answer(&self, media: Media) -> Response {
        match media {
            Media::Json if self.rejected == 0 => ([(header::CONTENT_TYPE, JSON)], "{}").into_response(),
            Media::Json => {
                // Protobuf's JSON encoding writes a 64-bit number as a string.
                let partial =
                    json!({ "rejectedLogRecords": self.rejected.to_string(), "errorMessage": self.why });
                ([(header::CONTENT_TYPE, JSON)], json!({ "partialSuccess": partial }).to_string())
                    .into_response()
            }
            Media::Protobuf => {
                ([(header::CONTENT_TYPE, PROTOBUF)], otlp::answer(self.rejected, &self.why)).into_response()
            }
        }
    }
}

/// Commits the valid records of an export, and the rejected ones as dead letters. Returns true beside the result if the request
/// was committed before.
async fn commit_logs(
    app: &Shared,
    principal: &Arc<Principal>,
    asker: &Admitted,
    parts: http::request::Parts,
    body: Body,
    media: Media,
) -> Result<(ExportOutcome, bool)> {
    let params: LogsQuery = input::query(&parts.uri)?;
    let table = name::full_table_name(params.table.as_deref().unwrap_or(TABLE))?;
    let encoding = Encoding::of(&parts.headers)?;
    let key = Key::of_table(&parts.headers, asker, "POST logs", &table)?;
    let mut held = body::read(app, &parts.headers, body).await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    app.telemetry.ingest_bytes.fetch_add(held.bytes.len() as u64, Relaxed);
    let pause = app.engine.pace_of(&table);
    if !pause.is_zero() {
        app.telemetry.paced.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
    }
    write::decompress(app, &mut held, encoding).await?;
    let request: [&[u8]; 1] = [&held.bytes];
    let known = || -> Result<Option<ExportOutcome>> {
        let Some(key) = &key else { return Ok(None) };
        let Some(known) = key.find(&app.engine, &request)? else { return Ok(None) };
        let note = known.note.as_deref().unwrap_or_default();
        let outcome = serde_json::from_str(note)
            .map_err(|e| Error::damaged(format!("the answer of an export that was remembered: {e}")))?;
        Ok(Some(outcome))
    };
    if let Some(outcome) = known()? {
        return Ok((outcome, true));
    }
    app.telemetry.work_jobs.fetch_add(1, Relaxed);
    let bytes = held.bytes.clone();
    let decode = move || match media {
        Media::Protobuf => otlp::decode_protobuf(&bytes, &Limits::default()),
        Media::Json => otlp::decode_json(&bytes, &Limits::default()),
    };
    let otlp::DecodedLogs { rows: batch, refused } = app.work.run(decode).await??;
    let rows = batch.num_rows();
    let mut outcome = ExportOutcome { rejected: refused.len(), why: String::new() };
    if rows == 0 && refused.is_empty() {
        return Ok((outcome, false));
    }
    let letters = refused.iter().map(|refused| DeadLetter {
        at_row: Some(refused.record),
        column: None,
        reason: &refused.reason,
        raw: &refused.raw,
    });
    let letters: Vec<DeadLetter<'_>> = letters.collect();
    let (retries, mut keeps) = (RetryDeadline::new(), !letters.is_empty());
    loop {
        let root = app.engine.root();
        let seen = root.lsn();
        // The name may be spelled in another case, so that of the existing table decides where dead letters go.
        let view = app.engine.view_of(root.clone(), principal)?;
        let def = |name: &str| view.find(name).map(|table| table.def().clone());
        let own = def(&table);
        let table = own.as_ref().map_or(&table, |def| &def.name);
        let mut ops = Vec::new();
        if rows > 0 {
            ops = engine::ensure_table_ops(own.as_deref(), table, &otlp::COLUMNS, "time", "OTLP")?;
            let mode = Mode::of_rows(own.as_deref());
            ops.push(Op::Insert { table: table.clone(), batch: batch.clone(), mode });
        }
        if keeps {
            let dead = def(&dead_letters::table_of(table));
            let keeping = dead_letters::check(table, own.as_deref())
                .and_then(|()| dead_letters::insert_ops(table, own.as_deref(), dead.as_deref(), &letters));
            match keeping {
                Ok(keeping) => {
                    outcome.why = kept_message(&refused, table);
                    ops.extend(keeping);
                }
                Err(error) => (keeps, outcome.why) = (false, not_kept_message(&refused, &error)),
            }
        }
        if ops.is_empty() {
            return Ok((outcome, false));
        }
        drop((root, view));
        let mut transaction = Transaction::new(ops);
        if let Some(key) = &key {
            let note = serde_json::to_string(&outcome).ok();
            // If all records were rejected, the table itself may not exist.
            let its = if rows > 0 { table.clone() } else { dead_letters::table_of(table) };
            transaction = transaction.remember(key.remember(&request, vec![its], note));
        }
        match commit(app, principal, transaction).await {
            Ok(_) => break,
            Err(error) if idempotency::is_repeated(&error) => {
                if let Some(outcome) = known()? {
                    return Ok((outcome, true));
                }
                if !retries.wait_for_newer_root(app, seen).await {
                    return Err(error.into());
                }
            }
            // Another request made or changed the table at the same time.
            Err(error) if error.kind() == Kind::Conflict && retries.wait_for_newer_root(app, seen).await => {}
            // A key that may write the table may lack the right to write its dead letters.
            Err(error) if keeps && error.kind() == Kind::Forbidden => {
                (keeps, outcome.why) = (false, not_kept_message(&refused, &error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    app.telemetry.rows_in.fetch_add(rows as u64, Relaxed);
    Ok((outcome, false))
}

fn media_of(headers: &HeaderMap) -> Result<Media> {
    let said = content::single(headers, &header::CONTENT_TYPE)?.unwrap_or_default();
    content::is_utf8(said)?;
    match said.split(';').next().unwrap_or("").trim().to_ascii_lowercase().as_str() {
        PROTOBUF => Ok(Media::Protobuf),
        JSON => Ok(Media::Json),
        other => Err(Failure::unsupported(
            format!("logs cannot be read from `{}`", name::printable(other)),
            "send application/x-protobuf or application/json, as OTLP over HTTP says",
        )),
    }
}

/// Converts an error into the form that exporters expect: a `google.rpc.Status` with the message. Status and Retry-After are the
/// usual ones.
fn in_protobuf(failure: Failure) -> Response {
    let text = failure.message_and_hint();
    let mut response = failure.into_response();
    let status = otlp::status(&text);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(status);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_what_the_header_says() {
        let media = |said: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(said).unwrap());
            media_of(&headers)
        };
        assert_eq!(media("application/x-protobuf").unwrap(), Media::Protobuf);
        assert_eq!(media("Application/JSON; charset=utf-8").unwrap(), Media::Json);
        assert!(media("text/plain").is_err());
        assert!(media_of(&HeaderMap::new()).is_err());
    }
}
