//! A minimal HTTP/1.1 for load: requests rendered once, cheap reading of answers, and a blocking client for all other requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use types::{Error, Kind, Result};

use crate::target::LoadTarget;

/// The largest answer that a benchmark accepts, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Renders a complete request.
pub fn render(target: &LoadTarget, method: &str, path: &str, content_type: &str, body: &[u8]) -> Bytes {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", target.address());
    if let Some(key) = &target.key {
        request.push_str(&format!("Authorization: Bearer {key}\r\n"));
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT") {
        request.push_str(&format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    bytes.into()
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl HttpAnswer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Returns the first 300 bytes of a body, for a message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(300)]);
    if body.is_empty() { "an empty body".into() } else { text.into_owned() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

#[derive(Clone, Copy, Debug)]
struct AnswerHead {
    status: u16,
    framing: Framing,
    close: bool,
    retry_after: Option<u32>,
}

/// An answer while it arrives. A connection has one request in flight at a time, so bytes after the answer are an error.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    buffer: Vec<u8>,
    filled: usize,
    head: Option<AnswerHead>,
    /// The offset of the next unread byte of the body's framing.
    position: usize,
    /// The offset of the body's first byte. The data of chunked bodies is gathered in `chunks` instead.
    body: usize,
    chunks: Vec<u8>,
    finished: bool,
}

impl Incoming {
    /// The space for the next bytes. The caller reports the number of bytes read to [`Incoming::received`].
    pub(crate) fn space(&mut self) -> &mut [u8] {
        const STEP: usize = 16 << 10;
        if self.buffer.len() - self.filled < STEP / 4 {
            let more = STEP.max(self.buffer.len());
            self.buffer.resize(self.buffer.len() + more, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Processes `count` new bytes; 0 means that the server closed the connection. Returns true once the answer is complete.
    pub(crate) fn received(&mut self, count: usize) -> Result<bool, String> {
        self.filled += count;
        if self.filled > ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
        if self.head.is_none() {
            self.find_head()?;
        }
        self.finished = match self.head.map(|head| head.framing) {
            None => false,
            Some(Framing::Length(length)) => self.ends_at(self.body + length)?,
            Some(Framing::Chunked) => self.gather_chunks()?,
            Some(Framing::UntilClose) => count == 0,
        };
        if count == 0 && !self.finished {
            return Err(format!("the connection was closed after {} bytes of an answer", self.filled));
        }
        Ok(self.finished)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.map_or(0, |head| head.status)
    }

    pub(crate) fn closes(&self) -> bool {
        self.head.is_some_and(|head| head.close || head.framing == Framing::UntilClose)
    }

    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.head.and_then(|head| head.retry_after)
    }

    /// The body of a finished answer.
    pub(crate) fn body(&self) -> &[u8] {
        match self.head.map(|head| head.framing) {
            Some(Framing::Chunked) => &self.chunks,
            Some(_) => &self.buffer[self.body..self.filled],
            None => &[],
        }
    }

    /// Prepares for the next answer; keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.filled = 0;
        self.head = None;
        self.finished = false;
        self.chunks.clear();
    }

    fn find_head(&mut self) -> Result<(), String> {
        let Some(end) = find(&self.buffer[..self.filled], b"\r\n\r\n") else {
            return if self.filled > HEAD_BYTES_MAX {
                Err("an answer's head is too long".into())
            } else {
                Ok(())
            };
        };
        self.head = Some(parse_head(&self.buffer[..end])?);
        self.body = end + 4;
        self.position = self.body;
        Ok(())
    }

    fn ends_at(&self, end: usize) -> Result<bool, String> {
        if self.filled > end {
            return Err(format!("{} bytes followed the answer", self.filled - end));
        }
        Ok(self.filled == end)
    }

    fn gather_chunks(&mut self) -> Result<bool, String> {
        loop {
            let rest = &self.buffer[self.position..self.filled];
            let Some(line) = find(rest, b"\r\n") else { return Ok(false) };
            let size = std::str::from_utf8(&rest[..line]).ok().and_then(|text| {
                usize::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16).ok()
            });
            let Some(size) = size.filter(|size| *size <= ANSWER_BYTES_MAX) else {
                return Err(format!("expected a chunk's size, found {}", excerpt(&rest[..line])));
            };
            let data = line + 2;
            if size == 0 {
                // The client requests no trailers; with trailers, the empty line would come later.
                let Some(end) = find(&rest[line..], b"\r\n\r\n") else { return Ok(false) };
                return self.ends_at(self.position + line + end + 4);
            }
            if rest.len() < data + size + 2 {
                return Ok(false);
            }
            self.chunks.extend_from_slice(&rest[data..data + size]);
            self.position += data + size + 2;
        }
    }
}

fn parse_head(head: &[u8]) -> Result<AnswerHead, String> {
    let text = std::str::from_utf8(head).map_err(|_| "an answer's head is not UTF-8".to_string())?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status =
        first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    let Some(status) = status else {
        return Err(format!("expected an HTTP/1.1 status line, found {}", excerpt(first.as_bytes())));
    };
    let mut framing = None;
    let (mut close, mut retry_after) = (first.starts_with("HTTP/1.0"), None);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().map_err(|_| format!("expected a content length, found {value:?}"))?;
            framing = framing.or(Some(Framing::Length(length)));
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            framing = Some(Framing::Chunked);
        } else if name.eq_ignore_ascii_case("connection") {
            close |= value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("retry-after") {
            retry_after = value.parse().ok();
        }
    }
    let empty = matches!(status, 204 | 304);
    let framing = if empty { Framing::Length(0) } else { framing.unwrap_or(Framing::UntilClose) };
    Ok(AnswerHead { status, framing, close, retry_after })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// A blocking client with one connection, which is made on first use and kept. It serves all requests that are not load.
#[derive(Debug)]
pub struct HttpClient {
    target: LoadTarget,
    timeout: Duration,
    connection: Option<TcpStream>,
    incoming: Incoming,
}

impl HttpClient {
    pub fn new(target: &LoadTarget) -> HttpClient {
        HttpClient {
            target: target.clone(),
            timeout: Duration::from_secs(60),
            connection: None,
            incoming: Incoming::default(),
        }
    }

    /// Sets the time that one read or write may take. The default is 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> HttpClient {
        self.timeout = timeout;
        self
    }

    pub fn target(&self) -> &LoadTarget {
        &self.target
    }

    /// Sends a request and reads the answer, whatever its status. An error means that no answer came.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<HttpAnswer> {
        let request = render(&self.target, method, path, content_type, body);
        // The server may have closed a kept connection at its idle limit; only then is a second attempt harmless.
        let kept = self.connection.is_some();
        match self.exchange(&request) {
            Err(_) if kept && self.incoming.is_empty() && matches!(method, "GET" | "HEAD") => {
                self.exchange(&request)
            }
            other => other,
        }
        .map_err(|error| {
            Error::new(Kind::Io, format!("{method} {path} at {}: {error}", self.target.address()))
        })
    }

    /// Sends and receives JSON. Any status but 2xx is an error with the start of the answer's body.
    pub fn json(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self.request(method, path, "application/json", body.as_bytes())?;
        if !answer.is_success() {
            return Err(Error::invalid(format!(
                "{method} {path} was answered with {}: {}",
                answer.status,
                excerpt(&answer.body)
            )));
        }
        if answer.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::invalid(format!("{method} {path}: expected JSON: {error}")))
    }

    fn exchange(&mut self, request: &[u8]) -> Result<HttpAnswer, String> {
        let text = |error: std::io::Error| error.to_string();
        self.incoming.reset();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = TcpStream::connect_timeout(&self.target.address(), Duration::from_secs(5))
                    .map_err(text)?;
                connection.set_nodelay(true).map_err(text)?;
                connection.set_read_timeout(Some(self.timeout)).map_err(text)?;
                connection.set_write_timeout(Some(self.timeout)).map_err(text)?;
                connection
            }
        };
        connection.write_all(request).map_err(text)?;
        loop {
            let count = match connection.read(self.incoming.space()) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(text)?,
            };
            if self.incoming.received(count)? {
                break;
            }
        }
        let answer = HttpAnswer { status: self.incoming.status(), body: self.incoming.body().to_vec() };
        if !self.incoming.closes() {
            self.connection = Some(connection);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
