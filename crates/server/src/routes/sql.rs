//! `POST /v1/sql`: runs one SQL statement and streams its rows.

mod copy;
mod size;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::record_batch::RecordBatch;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::{HeaderName, Request, header};
use http_body::Frame;
use http_body_util::StreamBody;
use query::files;
use query::{Answer, Limits, Overflow};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::OwnedSemaphorePermit;
use types::{Error, Lsn, Principal, Result as CoreResult};

use super::rows::format_of;
use super::{Unrecorded, milliseconds};
use crate::app::Shared;
use crate::body;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::input;
use crate::values;
use wire::out::{self, Format};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBody {
    sql: String,
    #[serde(default)]
    params: Vec<Json>,
    /// Maximum number of rows in the answer. Without it, a JSON answer ends at [`JSON_ROWS_MAX`] and says `truncated`. The other
    /// formats have no place for that, so they use the server's own limit and fail beyond it.
    rows_max: Option<u64>,
    /// Time limit in milliseconds, at most the server's own.
    deadline_ms: Option<u64>,
    /// The lsn or the time at which the whole statement reads.
    as_of: Option<Json>,
}

const JSON_ROWS_MAX: u64 = 100_000;
/// Bytes up to which an answer is sent with its length. An error before that has its own status.
const WHOLE_BYTES: usize = 64 << 10;
/// Approximate bytes of the pieces of a longer answer.
const PIECE_BYTES: usize = 256 << 10;
/// Time between two checks whether the end of a failed answer was sent.
const BREAK_PAUSE: Duration = Duration::from_millis(20);
/// Number of cells up to which rows are encoded on the thread that read the request.
const INLINE_CELLS: usize = 4_096;

pub async fn sql(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request<Body>,
) -> Result<Response> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let format = format_of(&parts.headers);
    let mut held = body::read(&app, &parts.headers, body).await?;
    let mut asked: SqlBody = input::body(&mut held, "statement", r#"{"sql":"SELECT 1","params":[]}"#)?;
    if let Some(copy) = app.sql.parse_copy(&asked.sql)? {
        drop(held);
        return copy::out(app, &principal, &copy, &asked, started, connection).await;
    }
    let format = format?;
    let params = values::parameters(&std::mem::take(&mut asked.params))?;
    // JSON reports truncation. In the other formats too many rows are an error, so they are never cut silently.
    let (rows_max, overflow) = match (format, asked.rows_max) {
        (Format::Json, rows_max) => (Some(rows_max.unwrap_or(JSON_ROWS_MAX)), Overflow::Truncate),
        (_, rows_max) => (rows_max, Overflow::Error),
    };
    let limits = Limits { deadline: input::deadline(asked.deadline_ms)?, rows_max, overflow };
    let view = asked.as_of.take().map(|point| view_at(&app, &principal, &point)).transpose()?;
    // The parameters belong to the statement now, whose memory has its own bound.
    drop(held);
    let answered = match view {
        None => app.sql.run(&principal, &asked.sql, params, limits).await,
        Some(view) => app.sql.read(view, &asked.sql, params, limits).await.map(Answer::Rows),
    };
    let result = match answered {
        Err(e) => Err(e.into()),
        Ok(Answer::Done(done)) => Ok(super::json(&json!({
            "columns": [], "rows": [], "count": done.count, "took_ms": milliseconds(started.elapsed()),
            "truncated": false, "statement": done.kind.name(), "lsn": done.lsn.0,
        }))),
        Ok(Answer::Rows(rows)) => {
            // Reading the records must not fill them. The tables that the statement reads decide, not its text.
            let about_records = rows.reads_only_records();
            rows_answer(app, rows, format, started, connection).await.map(|mut response| {
                if about_records {
                    response.extensions_mut().insert(Unrecorded);
                }
                response
            })
        }
    };
    Ok(result.unwrap_or_else(IntoResponse::into_response))
}

/// Returns the view of the principal at a point in the past: an lsn or a time.
fn view_at(app: &Shared, principal: &Principal, point: &Json) -> CoreResult<engine::View> {
    let view = app.engine.view(principal)?;
    let unread = || {
        Error::invalid("`as_of` is neither an lsn nor a time")
            .hint(r#"`"as_of": 123` or `"as_of": "2026-01-01T12:00:00Z"`"#)
    };
    let lsn = match point {
        Json::Number(lsn) => Lsn(lsn.as_u64().ok_or_else(unread)?),
        Json::String(text) => match text.parse() {
            // An lsn above 2^53 may be sent as text, because some programs have no number for it.
            Ok(lsn) => Lsn(lsn),
            Err(_) => {
                let nanos = string_to_timestamp_nanos(text).map_err(|_| unread())?;
                view.lsn_at(nanos.div_euclid(1_000))?
            }
        },
        _ => return Err(unread()),
    };
    view.at(lsn)
}

async fn rows_answer(
    app: Shared,
    rows: query::AnswerRows,
    format: Format,
    started: Instant,
    connection: Arc<Connection>,
) -> Result<Response> {
    let lsn = rows.lsn();
    let mut encoder = Encoder::new(AnswerForm::Rows(out::Writer::new(format, rows.schema())?, format));
    encoder.begin(&rows.columns());
    let statement = Statement::new(app, rows, encoder, started);
    let headers = [(header::CONTENT_TYPE, format.media_type().to_owned()), (POLYNYA_LSN, lsn.to_string())];
    Ok((headers, statement.answer(connection).await?).into_response())
}

const POLYNYA_LSN: HeaderName = HeaderName::from_static("polynya-lsn");

/// The rest of a long answer.
enum AnswerRest {
    Head(Statement, Vec<u8>),
    Rows(Statement),
    /// The statement failed. The connection is broken, so that no client takes the answer for complete.
    Broken,
    Nothing,
}

impl AnswerRest {
    async fn next(self, connection: &Connection) -> Option<(std::io::Result<Frame<Bytes>>, AnswerRest)> {
        let mut statement = match self {
            AnswerRest::Head(statement, head) => return Some((data(head), AnswerRest::Rows(statement))),
            AnswerRest::Rows(statement) if statement.ended => {
                let trailers = copy::trailers(&statement)?;
                return Some((Ok(Frame::trailers(trailers)), AnswerRest::Nothing));
            }
            AnswerRest::Rows(statement) => statement,
            AnswerRest::Broken => {
                // The error in the last piece must reach the socket first: closing the connection would drop it.
                tokio::task::yield_now().await;
                while connection.is_blocked() {
                    tokio::time::sleep(BREAK_PAUSE).await;
                }
                return Some((Err(std::io::Error::other("the statement failed")), AnswerRest::Nothing));
            }
            AnswerRest::Nothing => return None,
        };
        match statement.piece(PIECE_BYTES).await {
            Ok(piece) => Some((data(piece), AnswerRest::Rows(statement))),
            Err(failure) => {
                let (last, whole) = statement.error_end(&failure);
                Some((data(last), if whole { AnswerRest::Nothing } else { AnswerRest::Broken }))
            }
        }
    }
}

fn data(bytes: Vec<u8>) -> std::io::Result<Frame<Bytes>> {
    Ok(Frame::data(bytes.into()))
}

/// A statement whose rows are being encoded. Dropping it cancels the statement.
struct Statement {
    app: Shared,
    rows: query::AnswerRows,
    encoder: Option<Encoder>,
    /// The rest of a batch that is larger than a piece.
    batch: Option<RecordBatch>,
    started: Instant,
    ended: bool,
    /// The permit of a copy; `None` for other statements.
    place: Option<OwnedSemaphorePermit>,
}

impl Statement {
    fn new(app: Shared, rows: query::AnswerRows, encoder: Encoder, started: Instant) -> Self {
        Statement { app, rows, encoder: Some(encoder), batch: None, started, ended: false, place: None }
    }

    /// Returns the answer's body: complete if it is short, else a stream. An error before the body begins has its own status.
    async fn answer(mut self, connection: Arc<Connection>) -> Result<Body> {
        let mut head = Vec::new();
        while head.len() < WHOLE_BYTES && !self.ended {
            head.append(&mut self.piece(WHOLE_BYTES).await?);
        }
        if self.ended && !self.is_copy() {
            return Ok(head.into());
        }
        let rest = stream::unfold(AnswerRest::Head(self, head), move |rest| {
            let connection = connection.clone();
            async move { rest.next(&connection).await }
        });
        Ok(Body::new(StreamBody::new(rest)))
    }

    fn is_copy(&self) -> bool {
        self.place.is_some()
    }

    /// Returns about `bytes` more of the answer, or the end of the answer after the last row.
    async fn piece(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => match self.rows.next().await {
                Some(batch) => batch?,
                None => {
                    self.ended = true;
                    let truncated = self.rows.truncated();
                    let took = milliseconds(self.started.elapsed());
                    return self.encoder().end(took, truncated);
                }
            },
        };
        self.rows.check_deadline()?;
        let rows = batch.num_rows();
        let now = size::rows_within(&batch, bytes);
        if now == 1 {
            size::check_row(&batch)?;
        }
        let part = batch.slice(0, now);
        self.batch = (now < rows).then(|| batch.slice(now, rows - now));
        if part.num_rows() * part.num_columns() <= INLINE_CELLS {
            return self.encoder().batch(&part);
        }
        let mut encoder = self.encoder.take().ok_or_else(|| Error::internal("an answer is written twice"))?;
        let written = self.app.work.run(move || {
            let written = encoder.batch(&part);
            (encoder, written)
        });
        let (encoder, written) = written.await?;
        self.encoder = Some(encoder);
        written
    }

    fn encoder(&mut self) -> &mut Encoder {
        self.encoder.as_mut().expect("given back after each piece")
    }

    /// Returns the end of a failed answer, with the error if the format has a place for it. The second result is true if the
    /// answer itself shows that it is incomplete, which only JSON can.
    fn error_end(&mut self, failure: &Failure) -> (Vec<u8>, bool) {
        let error = failure.to_json();
        let Some(encoder) = self.encoder.as_ref() else { return (Vec::new(), false) };
        match encoder.form {
            AnswerForm::Rows(_, Format::Json) => {
                let count = encoder.count;
                (format!("],\"count\":{count},\"truncated\":true,\"error\":{error}}}\n").into(), true)
            }
            AnswerForm::Rows(_, Format::Ndjson) => (format!("{}\n", json!({ "error": error })).into(), false),
            AnswerForm::Rows(_, Format::Csv | Format::ArrowStream) => (Vec::new(), false),
            // The error becomes a last line, whatever the file's format. The connection breaks too, so no client takes it for a
            // row.
            AnswerForm::File(_) => (format!("\n{}\n", json!({ "error": error })).into(), false),
        }
    }
}

/// The format of the answer.
enum AnswerForm {
    Rows(out::Writer, Format),
    /// The file of a COPY.
    File(files::Writer),
}

struct Encoder {
    form: AnswerForm,
    first: bool,
    count: u64,
    out: Vec<u8>,
}

impl Encoder {
    fn new(form: AnswerForm) -> Self {
        Encoder { form, first: true, count: 0, out: Vec::with_capacity(4 << 10) }
    }

    fn begin(&mut self, columns: &[query::AnswerColumn]) {
        let AnswerForm::Rows(writer, format) = &mut self.form else { return };
        if *format == Format::Json {
            let columns: Vec<Json> =
                columns.iter().map(|c| json!({ "name": c.name, "type": c.data_type })).collect();
            self.out
                .extend_from_slice(format!("{{\"columns\":{},\"rows\":[", Json::from(columns)).as_bytes());
        }
        writer.begin(&mut self.out);
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<Vec<u8>> {
        self.count += batch.num_rows() as u64;
        match &mut self.form {
            AnswerForm::Rows(out::Writer::Ndjson(json), Format::Json) => {
                json.arrays(batch, &mut self.first, &mut self.out);
            }
            AnswerForm::Rows(writer, _) => writer.batch(batch, &mut self.out)?,
            AnswerForm::File(writer) => writer.batch(batch, &mut self.out)?,
        }
        Ok(std::mem::take(&mut self.out))
    }

    fn end(&mut self, took_ms: f64, truncated: bool) -> Result<Vec<u8>> {
        let format = match &mut self.form {
            AnswerForm::Rows(writer, format) => {
                writer.end(&mut self.out)?;
                Some(*format)
            }
            AnswerForm::File(writer) => {
                writer.end(&mut self.out)?;
                None
            }
        };
        if format == Some(Format::Json) {
            let end =
                format!("],\"count\":{},\"took_ms\":{took_ms},\"truncated\":{truncated}}}\n", self.count);
            self.out.extend_from_slice(end.as_bytes());
        }
        Ok(std::mem::take(&mut self.out))
    }
}
