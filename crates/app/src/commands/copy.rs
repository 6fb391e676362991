//! COPY in `polynya sql`. The command reads or writes the file, with the rights of its user. The server converts between
//! the file's bytes and rows.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use query::files::{Copy, CopyDirection, CopyEndpoint, Draft, Format};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use types::{Error, Kind, Result, name};

use crate::client::{self, HttpClient, Upload, escaped};
use crate::output;

/// The use of standard input, which decides whether a COPY may read rows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinUse {
    /// Standard input is unused, and a statement may read rows from it.
    Free,
    /// Standard input contained the statements.
    Statements,
    /// The interactive shell reads its lines from standard input.
    Shell,
}

/// Bytes that are read from a file at once.
const PART_BYTES: usize = 256 << 10;
/// Parts of a file that wait to be sent.
const PARTS_WAITING: usize = 4;
/// Bytes at the end of an answer that are held back, because they may be an error. Longer errors do not occur.
const TRAILING_ERROR_BYTES: usize = 64 << 10;
/// Time after which a copy shows its progress.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Runs a COPY. `text` is the statement for the server, whose file is replaced by a stream. Returns the number of copied
/// rows, `None` if they went to standard output. Dropping the future cancels the copy and leaves no file.
pub async fn run(client: &mut HttpClient, copy: &Copy, text: &str, stdin: StdinUse) -> Result<Option<u64>> {
    let file = match &copy.endpoint {
        CopyEndpoint::File(path) if path != "-" => Some(path.as_str()),
        _ => None,
    };
    let copied = match copy.direction {
        CopyDirection::To { .. } => copy_to(client, copy, text, file).await,
        CopyDirection::From { .. } => copy_from(client, copy, text, file, stdin).await.map(Some),
    };
    copied.map_err(|error| match file {
        Some(path) if !error.message().contains(path) => error.with("file", path),
        _ => error,
    })
}

/// The destination of the copied bytes.
enum CopyOutput {
    File(Draft),
    Stdout,
}

impl CopyOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            CopyOutput::File(draft) => draft.write(bytes),
            CopyOutput::Stdout => {
                super::sql::write(bytes);
                Ok(())
            }
        }
    }
}

async fn copy_to(
    client: &mut HttpClient,
    copy: &Copy,
    text: &str,
    file: Option<&str>,
) -> Result<Option<u64>> {
    let mut out = match file {
        Some(path) => CopyOutput::File(Draft::new(path, copy.overwrite)?),
        None if copy.format == Format::Parquet && output::is_terminal() => {
            return Err(Error::invalid("Parquet cannot be read on a terminal")
                .hint("name a file, or send it into one: polynya sql \"COPY …\" > rows.parquet"));
        }
        None => CopyOutput::Stdout,
    };
    let body = json!({ "sql": text });
    let headers = [("content-type", "application/json"), ("accept", "*/*"), ("te", "trailers")];
    let response = client.send(Method::POST, "/v1/sql", &headers, Bytes::from(body.to_string())).await?;
    let mut stream = response.into_body();
    let progress = Progress::new(file, None);
    // The last bytes are held back, because they may be an error.
    let (mut held, mut done, mut count) = (Vec::new(), 0, 0);
    while let Some(frame) = stream.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                return Err(trailing_error(&held).unwrap_or_else(|| {
                    Error::new(Kind::Closed, "the server broke off in the middle")
                        .hint("its log says why")
                        .caused_by(error)
                }));
            }
        };
        if let Some(data) = frame.data_ref() {
            done += data.len() as u64;
            progress.set(done);
            held.extend_from_slice(data);
            if held.len() > TRAILING_ERROR_BYTES + PART_BYTES {
                let rest = held.split_off(held.len() - TRAILING_ERROR_BYTES);
                out.write(&std::mem::replace(&mut held, rest))?;
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            let text = trailers.get("polynya-count").and_then(|count| count.to_str().ok());
            count = text.and_then(|text| text.parse().ok()).unwrap_or(0);
        }
    }
    out.write(&held)?;
    match out {
        CopyOutput::File(draft) => draft.finish().map(|()| Some(count)),
        CopyOutput::Stdout => Ok(None),
    }
}

/// Returns the error at the end of an answer that broke off, if there is one.
fn trailing_error(held: &[u8]) -> Option<Error> {
    const BEGIN: &[u8] = b"\n{\"error\":";
    let begin = held.windows(BEGIN.len()).rposition(|window| window == BEGIN)?;
    serde_json::from_slice(&held[begin..]).ok().map(|value: Value| client::error_of(&value))
}

async fn copy_from(
    client: &mut HttpClient,
    copy: &Copy,
    text: &str,
    file: Option<&str>,
    stdin: StdinUse,
) -> Result<u64> {
    let (reader, len): (Box<dyn Read + Send>, _) = match (file, stdin) {
        (Some(path), _) => {
            let (file, len) = open(path)?;
            (Box::new(file), len)
        }
        (None, StdinUse::Free) => {
            if io::stdin().is_terminal() {
                eprintln!("Rows are read from the terminal; Ctrl-D ends them.");
            }
            (Box::new(io::stdin()), None)
        }
        (None, StdinUse::Statements) => {
            return Err(Error::invalid("standard input holds the statements, so no rows come from it")
                .hint("name a file: COPY … FROM 'file'"));
        }
        (None, StdinUse::Shell) => {
            return Err(Error::invalid("the shell reads the terminal, so no rows come from it").hint(
                "name a file: COPY … FROM 'file'; or pipe it in: polynya sql \"COPY … FROM STDIN\" < file",
            ));
        }
    };
    let progress = Progress::new(file, len);
    let (sender, parts) = mpsc::channel(PARTS_WAITING);
    // The error that ended the reading. The server only sees that the request was aborted.
    let unread = Arc::new(OnceLock::new());
    let told = unread.clone();
    let shown = progress.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = read_parts(reader, &sender, &shown) {
            let _ = told.set(Error::io("reading the rows", error));
            let _ = sender.blocking_send(Err(io::ErrorKind::UnexpectedEof.into()));
        }
    });
    let path = format!("/v1/copy?sql={}", escaped(text));
    let sent = client.upload(&path, &[("content-type", copy.format.media_type())], Upload(parts)).await;
    if let Some(error) = unread.get() {
        return Err(error.clone());
    }
    let answer = client::read(sent?).await?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    Ok(super::tables::number(&answer["count"]))
}

/// Opens a file and returns its length; `None` for a pipe or a device.
fn open(path: &str) -> Result<(std::fs::File, Option<u64>)> {
    let shown = name::printable(path);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("there is no file `{shown}`")),
        _ => Error::io(format!("copying `{shown}`"), error),
    };
    let file = std::fs::File::open(Path::new(path)).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::invalid(format!("`{shown}` is a folder")).hint("name a file in it"));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

fn read_parts(
    mut reader: Box<dyn Read + Send>,
    sender: &mpsc::Sender<io::Result<Bytes>>,
    progress: &Progress,
) -> io::Result<()> {
    let mut done = 0;
    loop {
        let mut part = vec![0; PART_BYTES];
        let count = match reader.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        part.truncate(count);
        // The send fails if the request has ended, because the server has answered already.
        if count == 0 || sender.blocking_send(Ok(part.into())).is_err() {
            return Ok(());
        }
        done += count as u64;
        progress.set(done);
    }
}

/// Shows the progress of a copy on a terminal, if it takes longer than [`SHOWN_AFTER`].
#[derive(Clone)]
struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    fn new(file: Option<&str>, len: Option<u64>) -> Self {
        let bar = ProgressBar::hidden();
        let template = match len {
            Some(len) => {
                bar.set_length(len);
                "{prefix} {bar:30} {percent}%  {bytes}, {bytes_per_sec}  ETA {eta}"
            }
            None => "{prefix} {spinner}  {bytes}, {bytes_per_sec}  {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let name = file.and_then(|path| Path::new(path).file_name());
        bar.set_prefix(name.map_or_else(|| "COPY".to_owned(), |name| name.to_string_lossy().into_owned()));
        Progress { bar, started: Instant::now() }
    }

    fn set(&self, bytes: u64) {
        self.bar.set_position(bytes);
        if self.bar.is_hidden() && self.started.elapsed() > SHOWN_AFTER {
            // The bar stays hidden if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_place_of_the_end_is_found_behind_whatever_the_file_is() {
        let error = b"\n{\"error\":{\"code\":\"timeout\",\"message\":\"too slow\",\"hint\":\"less\"}}\n";
        for begin in [&b"a,b\n1,2\n"[..], b"", b"{\"error\":1}\n", &[0xff, 0, b'\n', 0xfe]] {
            let held = [begin, error].concat();
            let found = trailing_error(&held).unwrap();
            assert_eq!((found.kind(), found.to_string()), (Kind::Timeout, "too slow; less".into()));
        }
        assert!(trailing_error(b"a,b\n1,2\n").is_none());
        assert!(trailing_error(b"\n{\"error\":").is_none());
    }
}
