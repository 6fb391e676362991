//! Reads files into tables: recognises the format, cuts the file into pieces and sends each piece as one commit.
//!
//! A file's pieces are sent one after the other on one connection, while the next one is read. Its rows therefore keep
//! their order, and an interruption leaves a prefix of the file in the table. The same command later resumes exactly
//! there, because [`crate::control`] stores the file's position in the same commit as the rows. No position is stored for
//! standard input, which cannot be read twice, or with `--url`. There an interrupted run starts over, and its error says
//! so.

mod csv;
mod csv_options;
mod lines;
pub mod parquet;
mod piece;
mod resume;
mod source;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::arrow::array::RecordBatch;
use bytes::Bytes;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::sync::mpsc;
use types::{ColumnId, DataType, Error, Kind, Result};

use crate::client::{self, HttpClient, Refusal, escaped};
use crate::connection::DataConnection;
use crate::control::{self, Position};
use crate::units::{counted, grouped};

pub use csv::CsvOptions;
use csv::Dialect;
use csv_options::{check_columns, check_same_dialect};
pub use piece::ARROW;
use piece::JSON;
pub use piece::{PIECE_BYTES, Pieces, SourcePiece};
pub use resume::{ResolvedTable, ResumePoint, SourceKind, same_renames, stored_position};
pub use source::Format;
use source::IngestSource;

/// The request to ingest one file.
#[derive(Clone, Debug)]
pub struct IngestJob {
    pub path: PathBuf,
    pub table: Option<String>,
    pub format: Option<Format>,
    /// True to read the file from its beginning, even if a part of it was ingested before.
    pub again: bool,
    pub csv: CsvOptions,
    /// Columns of a Parquet file to rename for the table: old and new name.
    pub renames: Vec<(String, String)>,
}

/// The result of ingesting one file.
#[derive(Clone, Debug, PartialEq)]
pub struct IngestOutcome {
    pub file: String,
    pub table: String,
    /// Rows stored by this run.
    pub rows: u64,
    /// Rows stored by earlier runs.
    pub rows_before: u64,
    pub seconds: f64,
    pub note: Option<String>,
}

/// Attempts to begin with a file whose stored position changes in between.
const ATTEMPTS: usize = 5;
/// Time for which a piece is retried while the server is too busy.
const BUSY_PATIENCE: Duration = Duration::from_secs(300);

/// Ingests one file. Pieces sent before an error stay stored, and the same command resumes after them.
pub async fn file(
    connection: &mut DataConnection,
    job: &IngestJob,
    bar: &ProgressBar,
) -> Result<IngestOutcome> {
    let mut attempts = 1;
    loop {
        match attempt(connection, job, bar).await {
            // The last piece of an interrupted command arrived after this attempt had read the file's position.
            Err(FailedAttempt { first: true, error })
                if error.kind() == Kind::Conflict && attempts < ATTEMPTS =>
            {
                attempts += 1;
            }
            outcome => return outcome.map_err(|failed| failed.error),
        }
    }
}

/// The error that ended an attempt to read a file.
struct FailedAttempt {
    error: Error,
    /// True if the first piece failed, so that this attempt stored nothing and another one may be made.
    first: bool,
}

impl From<Error> for FailedAttempt {
    fn from(error: Error) -> Self {
        FailedAttempt { error, first: false }
    }
}

async fn attempt(
    connection: &mut DataConnection,
    job: &IngestJob,
    bar: &ProgressBar,
) -> Result<IngestOutcome, FailedAttempt> {
    let started = Instant::now();
    let mut source = IngestSource::open(&job.path)?;
    let format = match job.format {
        Some(format) => format,
        None => source.recognise()?,
    };
    let table = match &job.table {
        Some(table) => table.clone(),
        None => source.table_name()?,
    };
    types::name::full_table_name(&table)?;
    let (mut sink, table) = match (connection.control(), source.path.clone()) {
        (Some(control), Some(path)) => {
            let target = ResolvedTable::find(control, &table).await?;
            let content = match source.len.filter(|_| source.is_plain()) {
                _ if format == Format::Parquet => SourceKind::Parquet(&job.renames),
                Some(len) => SourceKind::Plain(len),
                None => SourceKind::Packed,
            };
            let resumed = ResumePoint::find(control, &path, &target, content, job.again).await?;
            (Sink::Control(control, Box::new(resumed)), target.name)
        }
        _ => (Sink::Public(connection.client(), table.clone()), table),
    };
    let mut here = sink.position();
    let dialect = match (format, &here.shape) {
        (Format::Csv, Some(shape)) if here.position > 0 => {
            let known = Dialect::from_text(shape)?;
            check_same_dialect(job, &known, &source.title())?;
            Some(known)
        }
        (Format::Csv, _) => Some(infer(&mut sink, &source, job, &table).await?),
        _ => None,
    };
    check_columns(job, dialect.as_ref(), &source.title())?;
    if format != Format::Parquet {
        here.shape = dialect.as_ref().map(Dialect::to_text);
    }
    let read = (!source.is_plain()).then(|| source.read.clone());
    let (pieces, total) =
        open_pieces(&mut source, job, format, dialect, here.position as u64, here.line as u64)?;
    let stream = PieceStream { title: source.title(), table, pieces, total, read };
    send_pieces(sink, here, stream, started, bar).await
}

/// A source that is cut into pieces, with its title, table and length.
pub struct PieceStream {
    /// Name of the source for messages.
    pub title: String,
    pub table: String,
    pub pieces: Box<dyn Pieces>,
    /// Length of the source in the unit of its positions, if known.
    pub total: Option<u64>,
    /// Bytes read so far of a packed file, whose positions count unpacked bytes.
    pub read: Option<Arc<AtomicU64>>,
}

/// Sends the pieces of a source one after the other, while another thread reads the next one. `here` is the position
/// before the first piece.
async fn send_pieces(
    mut sink: Sink<'_>,
    mut here: Position,
    stream: PieceStream,
    started: Instant,
    bar: &ProgressBar,
) -> Result<IngestOutcome, FailedAttempt> {
    let PieceStream { title, table, pieces, total, read } = stream;
    let rows_before = u64::try_from(here.rows).unwrap_or(0);
    style(bar, total);
    bar.set_prefix(title.clone());

    let (sender, mut receiver) = mpsc::channel(1);
    let reader = tokio::task::spawn_blocking(move || read_pieces(pieces, &sender));
    let mut rows = 0;
    // Only a source with a stored position can be attempted again.
    let mut first = matches!(sink, Sink::Control(..));
    while let Some(piece) = receiver.recv().await {
        let end = piece.end;
        let mut parts = vec![piece];
        while let Some(part) = parts.pop() {
            let after = Position { position: part.end as i64, line: part.line as i64, ..here.clone() };
            match sink.send(&part, here.position, &after, bar).await {
                Ok(stored) => rows += stored,
                Err(error) => {
                    // The piece becomes too large for one commit once it is decoded, so nothing of it is stored.
                    if error.kind() == Kind::TooLarge
                        && let Some([half, rest]) = part.halves()?
                    {
                        parts.extend([rest, half]);
                        continue;
                    }
                    let unit = if part.content_type == ARROW { "rows" } else { "lines" };
                    let place = format!("{unit} {} to {} of {title}", here.line + 1, part.line);
                    let placed = Error::new(error.kind(), format!("{place}: {}", error.message()));
                    let is_array = error.kind() == Kind::TooLarge && part.content_type == JSON;
                    let hint = if is_array { Some(AS_LINES) } else { error.hint_text() };
                    let error = sink.explain(placed, hint, rows_before + rows);
                    return Err(FailedAttempt { error, first });
                }
            }
            here = after;
            first = false;
        }
        let at = read.as_ref().map_or(end, |read| read.load(Ordering::Relaxed));
        bar.set_position(at);
        let rate = rows as f64 / started.elapsed().as_secs_f64().max(1e-3);
        bar.set_message(format!("{} rows, {} rows/s", grouped(rows_before + rows), grouped(rate as u64)));
    }
    let cut = reader.await.map_err(|error| Error::internal("reading failed").caused_by(error))?;
    let note = cut.map_err(|error| {
        let message = format!("{title}: {}", error.message());
        sink.explain(Error::new(error.kind(), message), error.hint_text(), rows_before + rows)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(IngestOutcome { file: title, table, rows, rows_before, seconds, note })
}

/// Ingests a source that is not a file, such as an Iceberg table, from the position in `resumed`. Without `resumed`, or
/// without the directory's socket, no position is stored.
pub async fn stream(
    connection: &mut DataConnection,
    resumed: Option<ResumePoint>,
    stream: PieceStream,
    bar: &ProgressBar,
) -> Result<IngestOutcome> {
    let started = Instant::now();
    let sink = match (resumed, connection.control()) {
        (Some(resumed), Some(control)) => Sink::Control(control, Box::new(resumed)),
        _ => Sink::Public(connection.client(), stream.table.clone()),
    };
    let here = sink.position();
    send_pieces(sink, here, stream, started, bar).await.map_err(|failed| failed.error)
}

/// The destination of pieces.
enum Sink<'a> {
    /// The control socket, which stores rows and position in one commit.
    Control(&'a mut HttpClient, Box<ResumePoint>),
    /// The public interface, which stores only the rows, into this table.
    Public(&'a mut HttpClient, String),
}

impl Sink<'_> {
    fn position(&self) -> Position {
        match self {
            Sink::Control(_, resumed) => resumed.position.clone(),
            Sink::Public(..) => Position::default(),
        }
    }

    /// Sends one piece, and again for up to [`BUSY_PATIENCE`] while the server is too busy. Returns the number of rows that
    /// the server stored.
    async fn send(
        &mut self,
        piece: &SourcePiece,
        start: i64,
        after: &Position,
        bar: &ProgressBar,
    ) -> Result<u64> {
        let (client, path, media, body) = match self {
            Sink::Control(client, resumed) => {
                let head = control::PieceHeader {
                    start,
                    media: piece.content_type.to_owned(),
                    after: after.clone(),
                    anew: resumed.restart_version.filter(|_| start == 0),
                };
                let mut body = serde_json::to_vec(&head)
                    .map_err(|error| Error::internal("a piece cannot be written").caused_by(error))?;
                body.push(b'\n');
                body.extend_from_slice(&piece.body);
                (client, format!("/ingests/{}", resumed.id), "application/octet-stream", Bytes::from(body))
            }
            Sink::Public(..) if piece.rows == 0 => return Ok(0),
            Sink::Public(client, table) => (
                client,
                format!("/v1/tables/{}/rows", escaped(table)),
                piece.content_type,
                piece.body.clone(),
            ),
        };
        let started = Instant::now();
        loop {
            match client.send(Method::POST, &path, &[("content-type", media)], body.clone()).await {
                Ok(response) => {
                    let bytes = client::read(response).await?;
                    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                    return Ok(answer["count"].as_u64().unwrap_or(0));
                }
                Err(Refusal { error, retry_after })
                    if error.kind() == Kind::Busy && started.elapsed() < BUSY_PATIENCE =>
                {
                    let wait = retry_after.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(30));
                    bar.set_message(format!("waiting: {}", error.message()));
                    tokio::time::sleep(wait).await;
                }
                Err(refusal) => return Err(refusal.error),
            }
        }
    }

    /// Adds a hint to `error` that says which rows are stored already and what to do next.
    fn explain(&self, error: Error, hint: Option<&str>, rows: u64) -> Error {
        let stored = match (rows, self) {
            (0, _) => "nothing of it is stored".to_owned(),
            (rows, Sink::Control(..)) => {
                format!(
                    "the {} before are stored, and the same command goes on after them",
                    counted(rows, "row")
                )
            }
            (rows, Sink::Public(..)) => {
                format!(
                    "the {} before are stored; sending them again would store them twice",
                    counted(rows, "row")
                )
            }
        };
        error.hint(hint.map_or(stored.clone(), |hint| format!("{hint}; {stored}")))
    }
}

/// Infers the dialect of a CSV file. The types of an existing table's columns win over inferred ones.
async fn infer(sink: &mut Sink<'_>, source: &IngestSource, job: &IngestJob, table: &str) -> Result<Dialect> {
    let mut declared = job.csv.clone();
    let existing = match sink {
        Sink::Control(control, _) => {
            control.json(Method::GET, &format!("/tables/{}", escaped(table)), None).await
        }
        Sink::Public(client, _) => {
            client.json(Method::GET, &format!("/v1/tables/{}", escaped(table)), None).await
        }
    };
    match existing {
        Ok(answer) => declared.types.extend(columns(&answer)),
        Err(error) if error.kind() == Kind::NotFound => {}
        Err(error) => return Err(error),
    }
    csv::infer(source::text_prefix(&source.prefix), &declared)
}

/// Opens the source at `position` to be cut into pieces, and returns its length in the unit of positions, if known.
fn open_pieces(
    source: &mut IngestSource,
    job: &IngestJob,
    format: Format,
    dialect: Option<Dialect>,
    position: u64,
    line: u64,
) -> Result<(Box<dyn Pieces>, Option<u64>)> {
    let len = source.len;
    let pieces: Box<dyn Pieces> = match (format, dialect) {
        (Format::Parquet, _) => {
            let path = source.path.clone().ok_or_else(|| {
                Error::invalid("Parquet cannot be read from standard input: its index is at its end")
                    .hint("save it to a file")
            })?;
            let file = parquet::Parquet::open(&path, position, &job.renames)?;
            let rows = file.rows;
            return Ok((Box::new(file), Some(rows)));
        }
        (Format::Csv, Some(dialect)) => {
            Box::new(csv::Csv::new(source.reader(position)?, dialect, position, line))
        }
        (Format::AccessLog, _) => Box::new(lines::AccessLog::new(source.reader(position)?, position, line)),
        (Format::Json, _) => Box::new(JsonArray::new(source, position)?),
        (Format::Ndjson | Format::Csv, _) => {
            Box::new(lines::Ndjson::new(source.reader(position)?, position, line))
        }
    };
    Ok((pieces, len))
}

/// One JSON array, which cannot be cut and is one piece.
struct JsonArray(Option<Bytes>);

/// Bytes of the largest array: the server's limit for a request.
const ARRAY_BYTES_MAX: u64 = 64 << 20;
/// The hint for an array that is too large: lines can be cut into pieces.
const AS_LINES: &str = "make it one object a line: `jq -c '.[]' FILE | polynya ingest - --table NAME`";

impl JsonArray {
    fn new(source: &mut IngestSource, position: u64) -> Result<Self> {
        use std::io::Read;
        let mut text = Vec::new();
        let mut reader = source.reader(0)?.take(ARRAY_BYTES_MAX + 1);
        reader.read_to_end(&mut text).map_err(|error| Error::io("reading the array", error))?;
        if text.len() as u64 > ARRAY_BYTES_MAX {
            return Err(Error::new(Kind::TooLarge, "one JSON array of more than 64 MiB cannot be sent")
                .hint(AS_LINES));
        }
        let body = Bytes::from(text);
        let body = body.slice(body.len() - source::text_prefix(&body).len()..);
        if position != 0 && position != body.len() as u64 {
            return Err(Error::conflict(format!(
                "{} changed since it was read, and an array has no place to go on from",
                source.title()
            ))
            .hint("read all of it once more with --again"));
        }
        Ok(JsonArray((position == 0).then_some(body)))
    }
}

impl Pieces for JsonArray {
    fn next(&mut self) -> Result<Option<SourcePiece>> {
        Ok(self.0.take().map(|body| SourcePiece {
            end: body.len() as u64,
            line: 1,
            rows: 1,
            content_type: JSON,
            body,
            ends: Vec::new(),
        }))
    }
}

/// Reads pieces and sends them to `sender`, until the end, an error, or until the receiver is dropped. Returns the source's
/// note for people.
fn read_pieces(mut pieces: Box<dyn Pieces>, sender: &mpsc::Sender<SourcePiece>) -> Result<Option<String>> {
    while let Some(piece) = pieces.next()? {
        if sender.blocking_send(piece).is_err() {
            break;
        }
    }
    Ok(pieces.note())
}

/// Returns the names and types of a table's columns from its description.
fn columns(answer: &Value) -> Vec<(String, DataType)> {
    let column = |column: &Value| {
        let data_type = DataType::parse(column["type"].as_str()?, &mut ColumnId(0)).ok()?;
        Some((column["name"].as_str()?.to_owned(), data_type))
    };
    answer["columns"].as_array().map(|all| all.iter().filter_map(column).collect()).unwrap_or_default()
}

fn style(bar: &ProgressBar, total: Option<u64>) {
    let template = match total {
        Some(total) => {
            bar.set_length(total);
            "{prefix} {bar:30} {percent}%  {msg}  ETA {eta}"
        }
        None => "{prefix} {spinner}  {msg}  {elapsed}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// Encodes a batch as an Arrow IPC stream.
pub fn arrow_stream(batch: &RecordBatch) -> Result<Bytes> {
    let failed = |error| Error::internal("rows cannot be written as Arrow").caused_by(error);
    let mut writer =
        ::arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).map_err(failed)?;
    writer.write(batch).and_then(|()| writer.finish()).map_err(failed)?;
    writer.into_inner().map(Bytes::from).map_err(failed)
}
