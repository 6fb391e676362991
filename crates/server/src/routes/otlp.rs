//! Logs as OpenTelemetry's exporters send them: OTLP over HTTP, in Protobuf or JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use engine::{Mode, Op, Transaction};
use http::{HeaderMap, HeaderValue, Request, header};
use serde::Deserialize;
use types::{Kind, Principal, name};
use wire::otlp;

use super::define::{Patience, commit};
use crate::app::Shared;
use crate::asked;
use crate::body;
use crate::content::{self, Encoding};
use crate::failure::{Failure, Result};

/// Where logs go that do not say.
const TABLE: &str = "otel.logs";

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    table: Option<String>,
}

/// How a request is written, and so its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Media {
    Protobuf,
    Json,
}

/// An export request becomes rows of one commit; the answer comes when they survive a crash.
pub async fn logs(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let media = media_of(&parts.headers)?;
    // Exporters read errors in the form that they speak.
    match take(&app, &principal, parts, body, media).await {
        Ok(()) if media == Media::Json => Ok(([(header::CONTENT_TYPE, JSON)], "{}").into_response()),
        // An ExportLogsServiceResponse without a partial success is no bytes.
        Ok(()) => Ok(([(header::CONTENT_TYPE, PROTOBUF)], Vec::new()).into_response()),
        Err(failure) if media == Media::Json => Err(failure),
        Err(failure) => Ok(in_protobuf(failure)),
    }
}

async fn take(
    app: &Shared,
    principal: &Arc<Principal>,
    parts: http::request::Parts,
    body: Body,
    media: Media,
) -> Result<()> {
    let asked: Asked = asked::query(&parts.uri)?;
    let table = name::full_table_name(asked.table.as_deref().unwrap_or(TABLE))?;
    let encoding = Encoding::of(&parts.headers)?;
    let held = body::read(app, &parts.headers, body).await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    app.telemetry.ingest_bytes.fetch_add(held.bytes.len() as u64, Relaxed);
    let pause = app.engine.pace_of(&table);
    if !pause.is_zero() {
        app.telemetry.paced.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
    }
    app.telemetry.work_jobs.fetch_add(1, Relaxed);
    let (bytes, bytes_max) = (held.bytes.clone(), app.options.body_bytes_max);
    let decode = move || {
        let plain;
        let bytes: &[u8] = match encoding {
            Encoding::Identity => &bytes,
            _ => {
                plain = content::decompress(encoding, &bytes, bytes_max)?;
                &plain
            }
        };
        match media {
            Media::Protobuf => otlp::decode_protobuf(bytes),
            Media::Json => otlp::decode_json(bytes),
        }
    };
    let batch = app.work.run(decode).await??;
    let rows = batch.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let patience = Patience::new();
    loop {
        let root = app.engine.root();
        let seen = root.lsn();
        let mut ops = engine::lacking(&root, &table, &otlp::COLUMNS, "time", "OTLP")?;
        drop(root);
        ops.push(Op::Insert { table: table.clone(), batch: batch.clone(), mode: Mode::Append });
        match commit(app, principal, Transaction::new(ops)).await {
            Ok(_) => break,
            // Another request makes the table at the same moment.
            Err(error) if error.kind() == Kind::Conflict && patience.newer_root(app, seen).await => {}
            Err(error) => return Err(error.into()),
        }
    }
    app.telemetry.rows_in.fetch_add(rows as u64, Relaxed);
    Ok(())
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

/// An error as exporters expect it: a `google.rpc.Status` with the message, the status code and Retry-After as always.
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
