//! The HTTP/1.1 client of the commands: one request at a time on one connection that is kept open. It speaks plain `http`
//! to a server on this machine or behind a tunnel, or talks over the socket of a data directory.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use types::{Error, Kind, Result};

pub type Response = http::Response<Incoming>;

/// Time that a TCP connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type RequestBody = Either<Full<Bytes>, Upload>;

/// A request body that is streamed from a channel. An error received from the channel aborts the request.
pub struct Upload(pub mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|part| part.map(|part| part.map(Frame::data)))
    }
}

/// A connection to one server.
pub struct HttpClient {
    address: ServerAddress,
    key: Option<String>,
    connection: Option<SendRequest<RequestBody>>,
}

enum ServerAddress {
    /// Host and port, such as `127.0.0.1:8484`.
    Address(String),
    /// The data directory whose socket is used.
    Socket(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Address(authority) => f.write_str(authority),
            ServerAddress::Socket(data) => write!(f, "{}", data.display()),
        }
    }
}

impl ServerAddress {
    fn unreachable(&self, why: &dyn fmt::Display) -> Error {
        Error::new(Kind::Closed, format!("no server answers at {self}: {why}"))
            .hint("start one with `polynya serve`, or name another with --url")
    }

    /// Explains a failed connection. If a server exists and this user may not talk to it, the hint does not propose to
    /// start one, which would not help.
    fn refused(&self, error: &std::io::Error) -> Error {
        if error.kind() != std::io::ErrorKind::PermissionDenied {
            return self.unreachable(error);
        }
        let cure = match self {
            ServerAddress::Address(_) => "does a firewall of this machine forbid it?",
            ServerAddress::Socket(_) => {
                "run as the user who owns the directory, or reach its server with --url and --key"
            }
        };
        Error::new(Kind::Forbidden, format!("this user may not talk to the server at {self}: {error}"))
            .hint(cure)
    }
}

/// A failed request: the server's error, or the reason why no answer came.
#[derive(Debug)]
pub struct Refusal {
    pub error: Error,
    /// Time to wait before a retry, from the `Retry-After` header.
    pub retry_after: Option<Duration>,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

impl HttpClient {
    /// Makes a client of the server at `url`, `http://host:port` (port 80 if none is named). Opens no connection yet.
    /// Fails with `invalid` for any other form.
    pub fn new(url: &str, key: Option<String>) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("`{}` is not the address of a server", types::name::printable(url)))
                .hint("write http://127.0.0.1:8484; for https use a tunnel or a proxy on this machine")
        };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        if rest.is_empty() || rest.contains(['/', ' ', '@', '?', '#']) {
            return Err(wrong());
        }
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { rest.to_owned() } else { format!("{rest}:80") };
        Ok(HttpClient { address: ServerAddress::Address(authority), key, connection: None })
    }

    /// Makes a client of the process that has this data directory open.
    pub fn socket(data: &Path) -> Self {
        HttpClient { address: ServerAddress::Socket(data.to_owned()), key: None, connection: None }
    }

    /// Sends a request and returns the response, whose body the caller reads. A status other than 2xx becomes an error
    /// with the server's message.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> std::result::Result<Response, Refusal> {
        self.send_body(method, path, headers, Either::Left(Full::new(body))).await
    }

    /// Posts a streamed body of any length, and returns the response as [`HttpClient::send`] does.
    pub async fn upload(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: Upload,
    ) -> std::result::Result<Response, Refusal> {
        self.send_body(Method::POST, path, headers, Either::Right(body)).await
    }

    async fn send_body(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: RequestBody,
    ) -> std::result::Result<Response, Refusal> {
        let host = match &self.address {
            ServerAddress::Address(authority) => authority,
            ServerAddress::Socket(_) => "localhost",
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).map_err(|error| {
            Refusal::of(
                Error::invalid("the request cannot be written as HTTP: is the key right?").caused_by(error),
            )
        })?;
        let mut connection = self.connect().await.map_err(Refusal::of)?;
        let answered = connection.send_request(request).await;
        let response = answered.map_err(|error| {
            Refusal::of(
                Error::new(Kind::Closed, format!("the server at {} closed the connection", self.address))
                    .hint("was it stopped? its log says why")
                    .caused_by(error),
            )
        })?;
        self.connection = Some(connection);
        if response.status().is_success() {
            return Ok(response);
        }
        Err(read_refusal(response).await)
    }

    /// Sends `body`, if there is one, and returns the JSON of the answer; `Null` for an empty answer.
    pub async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<serde_json::Value> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let headers: &[(&str, &str)] = match body {
            Some(_) => &[("content-type", "application/json"), ("accept", "application/json")],
            None => &[("accept", "application/json")],
        };
        let response = self.send(method, path, headers, bytes).await?;
        let bytes = read(response).await?;
        if bytes.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::internal(format!(
                "the server at {} answered with something that is not JSON",
                self.address
            ))
            .hint("is it a Polynya?")
            .caused_by(error)
        })
    }

    /// Returns the kept connection if it is still open, else a new one.
    async fn connect(&mut self) -> Result<SendRequest<RequestBody>> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let unreachable = |why: &dyn fmt::Display| self.address.unreachable(why);
        let refused = |error: &std::io::Error| self.address.refused(error);
        let (connection, driver) = match &self.address {
            ServerAddress::Address(authority) => {
                let connecting = TcpStream::connect(authority);
                let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => return Err(refused(&error)),
                    Err(_) => return Err(unreachable(&"it does not accept connections")),
                };
                // Without this, Nagle's algorithm would delay small requests.
                stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
                handshake(stream).await
            }
            ServerAddress::Socket(data) => {
                let (directory, path) = crate::control::short_path(data).map_err(|error| refused(&error))?;
                let stream = UnixStream::connect(path).await.map_err(|error| refused(&error))?;
                drop(directory);
                handshake(stream).await
            }
        }
        .map_err(|error| unreachable(&error))?;
        tokio::spawn(driver);
        Ok(connection)
    }
}

/// The background task that moves the bytes of a connection, whether TCP or Unix socket.
type Driver = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<(SendRequest<RequestBody>, Driver)> {
    let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
    // The driver's error may be dropped: the request in flight fails too and reports it.
    Ok((connection, Box::pin(async move { drop(driver.await) })))
}

impl Refusal {
    fn of(error: Error) -> Self {
        Refusal { error, retry_after: None }
    }
}

/// Reads the whole body of a response into memory.
pub async fn read(response: Response) -> Result<Bytes> {
    let collected = response.into_body().collect().await;
    collected
        .map(|body| body.to_bytes())
        .map_err(|error| Error::new(Kind::Closed, "the server's answer ended in the middle").caused_by(error))
}

async fn read_refusal(response: Response) -> Refusal {
    let status = response.status();
    let header =
        |name| response.headers().get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let retry_after =
        header(header::RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs_f64);
    let body = read(response).await.unwrap_or_default();
    Refusal { error: error_of_body(status, &body), retry_after }
}

/// Turns the body of a failed response, `{"error": {"code", "message", "hint"}}`, into an [`Error`]. The kind follows from
/// the status.
fn error_of_body(status: StatusCode, body: &[u8]) -> Error {
    let kind = match status.as_u16() {
        400 => Kind::Invalid,
        401 | 403 => Kind::Forbidden,
        404 => Kind::NotFound,
        409 => Kind::Conflict,
        413 => Kind::TooLarge,
        422 => Kind::Schema,
        408 | 504 => Kind::Timeout,
        429 | 503 => Kind::Busy,
        _ => Kind::Internal,
    };
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = |name: &str| parsed.as_ref()?.get("error")?.get(name)?.as_str().map(str::to_owned);
    let message = text("message").unwrap_or_else(|| format!("the server answered {status}"));
    let error = Error::new(kind, message);
    match text("hint") {
        Some(hint) => error.hint(as_commands(&hint)),
        None => error,
    }
}

/// Turns the last line of a streamed answer, `{"error": {"code", "message", "hint"}}`, into an [`Error`]. The kind follows
/// from the code, because the status was sent before the work failed.
pub fn error_of(value: &serde_json::Value) -> Error {
    let error = &value["error"];
    let kinds = [
        Kind::Invalid,
        Kind::Exists,
        Kind::NotFound,
        Kind::Closed,
        Kind::DiskFull,
        Kind::Damaged,
        Kind::Io,
        Kind::Schema,
        Kind::Timeout,
        Kind::TooLarge,
    ];
    let kind = kinds.into_iter().find(|kind| error["code"] == kind.name()).unwrap_or(Kind::Internal);
    let failure = Error::new(kind, error["message"].as_str().unwrap_or_default());
    match error["hint"].as_str() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Replaces the HTTP routes in a hint by the commands that do the same.
fn as_commands(hint: &str) -> String {
    hint.replace("`GET /v1/tables` or `SHOW TABLES` lists the tables", "`polynya tables` lists the tables")
        .replace("GET /v1/tables/{table} lists the columns", "`polynya tables TABLE` lists the columns")
}

/// Percent-encodes a table's name or a key's value as one part of a URL's path.
pub fn escaped(part: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if keep(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_http() {
        assert_eq!(HttpClient::new("http://[::1]:8484/", None).unwrap().address.to_string(), "[::1]:8484");
        assert_eq!(HttpClient::new("http://box", None).unwrap().address.to_string(), "box:80");
        for bad in ["https://x", "127.0.0.1:8484", "http://", "http://a/b", "http://u@h"] {
            assert!(HttpClient::new(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_socket_that_may_not_be_used_is_no_absent_server() {
        let to = ServerAddress::Socket("somewhere/data".into());
        let error = to.refused(&std::io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(error.contains("may not talk to the server") && error.contains("--url"), "{error}");
        assert!(!error.contains("polynya serve"), "{error}");
        let error = to.refused(&std::io::ErrorKind::ConnectionRefused.into()).to_string();
        assert!(error.contains("no server answers") && error.contains("polynya serve"), "{error}");
    }

    #[test]
    fn the_servers_words_are_kept() {
        let body =
            br#"{"error":{"code":"not_found","message":"there is no table `x`","hint":"did you mean `y`?"}}"#;
        let error = error_of_body(StatusCode::NOT_FOUND, body);
        assert_eq!(error.to_string(), "there is no table `x`; did you mean `y`?");
        let body = br#"{"error":{"code":"not_found","message":"there is no table `x`","hint":"`GET /v1/tables` or `SHOW TABLES` lists the tables"}}"#;
        let error = error_of_body(StatusCode::NOT_FOUND, body);
        assert_eq!(error.to_string(), "there is no table `x`; `polynya tables` lists the tables");
        assert_eq!(
            error_of_body(StatusCode::BAD_GATEWAY, b"<html>").to_string(),
            "the server answered 502 Bad Gateway"
        );
    }

    #[test]
    fn parts_of_paths_are_escaped() {
        assert_eq!(escaped("a b/ü.x"), "a%20b%2F%C3%BC.x");
    }
}
