//! The control socket: a Unix socket in the data directory, for the commands of the directory's owner.
//!
//! It serves requests that must not depend on API keys or must not be reachable over a network. They manage the keys, take
//! backups into folders of this machine, examine every byte, and ingest files with their progress in the same commit as their
//! rows. The file system grants access: the socket has mode 0600, and a user who can open it could read the directory
//! anyway. It speaks HTTP/1.1, so that [`crate::client`] can use it. It is not a public interface.

mod backups;
mod examinations;
mod ingests;
mod job;
mod keys;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use engine::Engine;
use engine::threads::Class;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use types::{Error, Kind, Micros, Result, Scope};

pub use ingests::{PieceHeader, Position, StoredPosition};

const FILE_NAME: &str = "control.sock";
/// Bytes of the largest request body.
const BODY_BYTES_MAX: usize = 96 << 20;
/// Connections that are served at once; a further one waits to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// The server of the control socket. Dropping it removes the socket and ends the requests that run.
pub struct Control {
    runtime: Option<Runtime>,
    path: PathBuf,
}

impl Control {
    /// Starts to serve the socket of `data`, which `engine` must have open. Since no other process can have it open, an
    /// existing socket is a leftover and is replaced.
    pub fn start(engine: Engine, data: &Path) -> Result<Self> {
        let path = data.join(FILE_NAME);
        let failed = |error| Error::io(format!("listening at {}", path.display()), error);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(4)
            .thread_name("control")
            .on_thread_start(|| Class::Work.enter())
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = {
            let _context = runtime.enter();
            let (directory, short) = short_path(data).map_err(failed)?;
            let listener = UnixListener::bind(short).map_err(failed)?;
            drop(directory);
            listener
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        runtime.spawn(accept(listener, engine));
        Ok(Control { runtime: Some(runtime), path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The socket goes first, so that no further command connects.
        let _ = std::fs::remove_file(&self.path);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Returns a short path to the socket, through a file descriptor of the opened directory, because a socket's path may have
/// only 107 bytes. The directory must stay open until the path has been used.
pub fn short_path(data: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    use std::os::fd::AsRawFd;
    let directory = std::fs::File::open(data)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}/{FILE_NAME}", directory.as_raw_fd()));
    Ok((directory, short))
}

async fn accept(listener: UnixListener, engine: Engine) {
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a command could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let engine = engine.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| handle(engine.clone(), request));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(600));
            // An error means that the command disconnected, which is not a failure of the server.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

/// The answer of a route: one value, or lines that are sent while a job runs.
enum RouteAnswer {
    Value(Value),
    Lines(job::JobLines),
}

type ResponseBody = Either<Full<Bytes>, job::JobLines>;

async fn handle(
    engine: Engine,
    request: Request<Incoming>,
) -> std::result::Result<Response<ResponseBody>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return Ok(error_response(&Error::invalid(format!("the body cannot be read: {error}"))));
        }
    };
    // Decoding and committing block the thread.
    let done =
        tokio::task::spawn_blocking(move || route(&engine, &parts.method, parts.uri.path(), &body)).await;
    let outcome =
        done.unwrap_or_else(|error| Err(Error::internal("a command failed in the server").caused_by(error)));
    Ok(match outcome {
        Ok(RouteAnswer::Value(value)) => {
            Response::new(Either::Left(Full::new(Bytes::from(value.to_string()))))
        }
        Ok(RouteAnswer::Lines(lines)) => Response::new(Either::Right(lines)),
        Err(error) => error_response(&error),
    })
}

fn route(engine: &Engine, method: &Method, path: &str, body: &Bytes) -> Result<RouteAnswer> {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (what, name) = (parts.next().unwrap_or_default(), parts.next().map(unescaped).transpose()?);
    let value = match (method.as_str(), what, name) {
        ("GET", "keys", None) => Ok(keys::list(engine)),
        ("POST", "keys", None) => keys::create(engine, &parse(body)?),
        ("DELETE", "keys", Some(name)) => keys::remove(engine, &name),
        ("POST", "backups", None) => return backups::take(engine, &parse(body)?).map(RouteAnswer::Lines),
        ("POST", "examinations", None) => return examinations::run(engine).map(RouteAnswer::Lines),
        ("GET", "tables", Some(name)) => ingests::describe(engine, &name),
        ("GET", "ingests", Some(id)) => ingests::find(engine, &id),
        ("POST", "ingests", Some(id)) => ingests::store(engine, &id, body),
        _ => Err(Error::not_found(format!("this server knows no {method} {path}"))
            .hint("does it run the same version as this command?")),
    };
    value.map(RouteAnswer::Value)
}

fn parse(body: &Bytes) -> Result<Value> {
    serde_json::from_slice(body).map_err(|error| Error::invalid("the body is not JSON").caused_by(error))
}

/// Decodes the percent escapes of a path: `%C3%BC` becomes `ü`.
fn unescaped(text: &str) -> Result<String> {
    let wrong = || Error::invalid(format!("`{text}` cannot be unescaped"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
        let digits = std::str::from_utf8(&digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Makes the response for an error, in the form of the public HTTP interface, so that one client reads both.
fn error_response(error: &Error) -> Response<ResponseBody> {
    let status = match error.kind() {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::Exists | Kind::Conflict => StatusCode::CONFLICT,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::Schema => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Busy | Kind::DiskFull => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(error_json(error).to_string()))));
    *response.status_mut() = status;
    response
}

/// Returns `{"error": {"code", "message", "hint"}}`; the message includes the error's context.
fn error_json(error: &Error) -> Value {
    let mut message = error.message().to_owned();
    for (key, value) in error.context() {
        message += &format!(" ({key} {value})");
    }
    json!({ "error": { "code": error.kind().name(), "message": message, "hint": error.hint_text() } })
}

/// Formats a timestamp as the HTTP interface does.
pub fn timestamp_text(micros: Micros) -> String {
    let array = arrow::array::TimestampMicrosecondArray::from(vec![micros]);
    arrow::util::display::array_value_to_string(&array, 0).map(|text| text + "Z").unwrap_or_default()
}

/// Parses the scope named in a request.
fn scope(value: &Value) -> Result<Scope> {
    Scope::parse(value.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests;
