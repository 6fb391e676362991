//! An answer that is read piece by piece: a change feed, or a large answer whose reader is slow.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use types::{Error, Kind, Result};

use crate::http::render;
use crate::target::LoadTarget;

pub(super) struct StreamedAnswer {
    reader: BufReader<TcpStream>,
    pub status: u16,
    /// Value of the header `polynya-lsn`, 0 if it is missing.
    pub lsn: u64,
    chunked: bool,
    /// Unread bytes of the current chunk or of the body.
    left: u64,
    ended: bool,
}

impl StreamedAnswer {
    /// Sends a request and reads the head of its answer. `accept` is a media type.
    pub fn open(
        target: &LoadTarget,
        method: &str,
        path: &str,
        accept: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<StreamedAnswer> {
        let request = render(target, method, path, "application/json", body);
        // `render` adds no other headers, so they are inserted after the first line.
        let head = request.windows(2).position(|pair| pair == b"\r\n").unwrap_or_default() + 2;
        let accept = format!("Accept: {accept}\r\nConnection: close\r\n");
        let request = [&request[..head], accept.as_bytes(), &request[head..]].concat();
        let connect = || {
            let mut stream = TcpStream::connect_timeout(&target.address(), Duration::from_secs(5))?;
            stream.set_read_timeout(Some(timeout))?;
            stream.write_all(&request)?;
            Ok(stream)
        };
        let stream = connect().map_err(|error| Error::io(format_args!("asking for {path}"), error))?;
        let mut stream = StreamedAnswer {
            reader: BufReader::with_capacity(4096, stream),
            status: 0,
            lsn: 0,
            chunked: false,
            left: u64::MAX,
            ended: false,
        };
        stream.head()?;
        Ok(stream)
    }

    fn head(&mut self) -> Result<()> {
        let first = self.raw_line()?;
        self.status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        loop {
            let line = self.raw_line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            match (name, value.trim()) {
                ("polynya-lsn", value) => self.lsn = value.parse().unwrap_or_default(),
                ("transfer-encoding", "chunked") => (self.chunked, self.left) = (true, 0),
                ("content-length", value) => self.left = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns an error that reports an unexpected status.
    pub fn unexpected(&mut self, what: &str) -> Error {
        let said = self.line().ok().flatten().unwrap_or_default();
        Error::invalid(format!("{what} was answered with {}: {said}", self.status))
    }

    /// Reads one line of the head or framing, without its line end.
    fn raw_line(&mut self) -> Result<String> {
        let mut line = String::new();
        let count =
            self.reader.read_line(&mut line).map_err(|error| Error::io("reading an answer", error))?;
        if count == 0 {
            return Err(Error::new(Kind::Io, "the connection was closed in the midst of an answer"));
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Reads one line of the body, without its line end. `None` at the end of the answer.
    pub fn line(&mut self) -> Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            if self.left == 0 && !self.next_chunk()? {
                return Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()));
            }
            let count = (&mut self.reader)
                .take(self.left)
                .read_until(b'\n', &mut line)
                .map_err(|error| Error::io("reading an answer", error))?;
            if count == 0 {
                return Err(Error::new(Kind::Io, "the connection was closed in the midst of an answer"));
            }
            self.left -= count as u64;
            if line.last() == Some(&b'\n') {
                line.pop();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
        }
    }

    /// Starts the next chunk. Returns false at the end of the answer.
    fn next_chunk(&mut self) -> Result<bool> {
        if !self.chunked || self.ended {
            return Ok(false);
        }
        let mut size = self.raw_line()?;
        if size.is_empty() {
            // An empty line ends the previous chunk.
            size = self.raw_line()?;
        }
        self.left = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(|_| Error::invalid(format!("expected a chunk's size, found {size:?}")))?;
        self.ended = self.left == 0;
        Ok(!self.ended)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answered(answer: &'static [u8]) -> StreamedAnswer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            stream.write_all(answer).expect("it reads");
        });
        let target = LoadTarget::new(&address).expect("loopback");
        StreamedAnswer::open(&target, "GET", "/", "text/plain", b"", Duration::from_secs(20))
            .expect("an answer")
    }

    #[test]
    fn lines_are_whole_wherever_chunks_end() {
        let _limit = testkit::limit(60);
        let mut stream = answered(
            b"HTTP/1.1 200 OK\r\nPolynya-Lsn: 17\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n2\r\ntw\r\n4\r\no\n\nt\r\n0\r\n\r\n",
        );
        assert_eq!((stream.status, stream.lsn), (200, 17));
        let mut lines = Vec::new();
        while let Some(line) = stream.line().expect("whole") {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two", "", "t"]);
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error_and_no_end() {
        let _limit = testkit::limit(60);
        for broken in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none\n",
        ] {
            let mut stream = answered(broken);
            assert_eq!(stream.line().expect("it came"), Some("one".to_owned()));
            assert!(stream.line().is_err());
        }
        let mut whole = answered(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\none\n");
        assert_eq!((whole.status, whole.line().expect("it came")), (404, Some("one".to_owned())));
        assert_eq!(whole.line().expect("its end"), None);
    }
}
