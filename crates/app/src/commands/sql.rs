//! `polynya sql`.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use types::{Error, Kind, Result};

use crate::cli::ServerArgs;
use crate::client::HttpClient;
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output;
use crate::units::counted;

use super::copy::{self, StdinUse};
use super::shell::{self, ShellStep, State};

#[derive(Debug, Args)]
#[command(
    long_about = "Ask in SQL (PostgreSQL's dialect). With a statement: its answer, as a table on a terminal, else as one \
                  JSON object a row. Without one: an interactive shell with history.\n\nCOPY writes a table or a query \
                  into a file, and reads one: CSV, NDJSON or Parquet, told by the file's name or by WITH (FORMAT …). The \
                  file is yours, wherever the server is: its name is relative to the directory that you are in, and `-`, \
                  STDIN and STDOUT are pipes. A file that is there stays unless ALLOWOVERWRITE stands at the end.",
    after_help = "Examples:\n  polynya sql \"SELECT name, count(*) FROM polynya.metrics GROUP BY name\"\n  \
                  polynya sql --csv \"SELECT * FROM access\" > access.csv\n  \
                  polynya sql \"SELECT * FROM access WHERE status = \\$1\" -p 404\n  \
                  polynya sql \"COPY access TO 'access.parquet'\"\n  \
                  polynya sql \"COPY stock FROM STDIN WITH (FORMAT csv, HEADER)\" < stock.csv\n  \
                  polynya sql -f report.sql\n  polynya sql                      the shell; \\help explains it"
)]
pub struct Options {
    /// The statement
    statement: Option<String>,
    /// Read statements from a file, each ended by `;` (`-` is standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "statement")]
    file: Option<PathBuf>,
    /// A value for $1, $2, …: a JSON value, else text
    #[arg(short, long = "param", value_name = "VALUE", requires = "statement")]
    params: Vec<String>,
    /// Print one JSON object a row
    #[arg(long)]
    json: bool,
    /// Print CSV with a header
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The format in which answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFormat {
    Table,
    Json,
    Csv,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let format = match (options.json, options.csv) {
        (true, _) => AnswerFormat::Json,
        (_, true) => AnswerFormat::Csv,
        _ if output::is_terminal() => AnswerFormat::Table,
        _ => AnswerFormat::Json,
    };
    let (steps, stdin) = match (&options.statement, &options.file) {
        (Some(statement), _) => (vec![ShellStep::Statement(statement.clone())], StdinUse::Free),
        (None, Some(path)) if path.as_os_str() == "-" => {
            (shell::steps(&read_file(path)?), StdinUse::Statements)
        }
        (None, Some(path)) => (shell::steps(&read_file(path)?), StdinUse::Free),
        (None, None) if !io::stdin().is_terminal() => {
            (shell::steps(&read_file(&PathBuf::from("-"))?), StdinUse::Statements)
        }
        (None, None) => return shell::run(config, &options.server),
    };
    let params: Vec<Value> = options.params.iter().map(|text| param(text)).collect();
    let ask = async |connection: &mut DataConnection| {
        let mut state = State { timing: false, format };
        for step in &steps {
            let statement = match step {
                ShellStep::Statement(statement) => statement,
                ShellStep::Command(line) => match state.command(connection, line).await? {
                    Some(text) => {
                        output::print(&text);
                        continue;
                    }
                    None => return Ok(()),
                },
            };
            let started = Instant::now();
            tokio::select! {
                // `biased` polls the signal first, so that Ctrl-C is heard before the statement is sent.
                biased;
                _ = tokio::signal::ctrl_c() => {
                    return Err(Error::new(Kind::Timeout, "interrupted; the statement was cancelled"));
                }
                outcome = answer(connection.client(), statement, &params, state.format, stdin) => {
                    outcome.map(|_| ()).map_err(|error| with_file_hint(error, statement))?;
                }
            }
            if state.timing {
                output::print(&format!("{:.1} ms\n", started.elapsed().as_secs_f64() * 1e3));
            }
        }
        Ok(())
    };
    super::block_on(async { DataConnection::open(config, &options.server).await?.with(ask).await })?;
    Ok(ExitCode::SUCCESS)
}

/// Adds a hint to the error of a statement that is the name of an existing file.
fn with_file_hint(error: Error, statement: &str) -> Error {
    let is_name = !statement.contains(char::is_whitespace) && Path::new(statement).is_file();
    if is_name {
        error.hint(format!("to run the statements in that file: `polynya sql -f {statement}`"))
    } else {
        error
    }
}

/// Parses a parameter: valid JSON, such as a number, `true` or `null`, as its value, everything else as text.
fn param(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn read_file(path: &PathBuf) -> Result<String> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
    Ok(text)
}

/// Runs one statement and prints its answer. Dropping the future cancels it.
pub async fn answer(
    client: &mut HttpClient,
    statement: &str,
    params: &[Value],
    format: AnswerFormat,
    stdin: StdinUse,
) -> Result<()> {
    let Some((copy_statement, text)) = query::files::parse_streamed_copy(statement, TEXT_BYTES_MAX)? else {
        return print(client, statement, params, format).await.map(|_| ());
    };
    if !params.is_empty() {
        return Err(query::files::no_params());
    }
    let Some(count) = copy::run(client, &copy_statement, &text, stdin).await? else { return Ok(()) };
    let line = json!({ "statement": "COPY", "count": count });
    output::print(&if format == AnswerFormat::Json {
        format!("{line}\n")
    } else {
        result_line(&line) + "\n"
    });
    Ok(())
}

/// Bytes of the longest text that is examined for a COPY of a file of this machine. The server refuses a longer COPY.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Runs a statement other than COPY and prints its answer. Returns the number of its rows.
async fn print(
    client: &mut HttpClient,
    statement: &str,
    params: &[Value],
    format: AnswerFormat,
) -> Result<u64> {
    let body = json!({ "sql": statement, "params": params });
    if format == AnswerFormat::Table {
        let answer = client.json(Method::POST, "/v1/sql", Some(&body)).await?;
        let rows = super::tables::number(&answer["count"]);
        let has_columns = answer["columns"].as_array().is_some_and(|columns| !columns.is_empty());
        let mut text = if has_columns {
            format!("{}{}", output::sql_table(&answer).render(), counted(rows, "row"))
        } else {
            result_line(&answer)
        };
        if let Some(error) = trailing_error(&answer) {
            output::print(&(text + " so far\n"));
            return Err(error);
        }
        if answer["truncated"] == Value::Bool(true) {
            text += ", and there are more: add a LIMIT, or use --json or --csv, which stream";
        }
        output::print(&(text + "\n"));
        return Ok(rows);
    }
    let accept = if format == AnswerFormat::Csv { "text/csv" } else { "application/x-ndjson" };
    let headers = [("content-type", "application/json"), ("accept", accept)];
    let response = client.send(Method::POST, "/v1/sql", &headers, Bytes::from(body.to_string())).await?;
    // A statement that changes something is answered in JSON, whatever the `accept` header says.
    let is_json = response
        .headers()
        .get("content-type")
        .is_some_and(|media| media.as_bytes().starts_with(b"application/json"));
    if is_json {
        let bytes = crate::client::read(response).await?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let line = json!({ "statement": answer["statement"], "count": answer["count"] });
        output::print(&if format == AnswerFormat::Json {
            format!("{line}\n")
        } else {
            result_line(&answer) + "\n"
        });
        return Ok(super::tables::number(&answer["count"]));
    }
    let mut stream = response.into_body();
    let mut lines = HeldLines::default();
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(Kind::Closed, "the answer ended in the middle, so what was printed is not all of it")
                .hint("the server's log says why; a LIMIT or a longer sql.deadline may help")
                .caused_by(error)
        })?;
        if let Some(data) = frame.data_ref() {
            lines.take(data);
        }
    }
    lines.end(format)
}

/// Formats the result of a statement without rows, such as `INSERT 3`.
fn result_line(answer: &Value) -> String {
    let statement = answer["statement"].as_str().unwrap_or("done");
    match super::tables::number(&answer["count"]) {
        0 if statement.contains("TABLE") || statement.contains("INDEX") => statement.to_owned(),
        count => format!("{statement} {count}"),
    }
}

/// Returns the error with which a streamed answer ended early, if it did.
fn trailing_error(answer: &Value) -> Option<Error> {
    let message = answer["error"]["message"].as_str()?;
    let _code = answer["error"]["code"].as_str()?;
    let error = Error::new(Kind::Internal, format!("the answer is not complete: {message}"));
    Some(match answer["error"]["hint"].as_str() {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

/// Prints the lines of an answer as they arrive. The last line is held back, because it may be an error and not a row.
#[derive(Default)]
struct HeldLines {
    held: Vec<u8>,
    count: u64,
}

impl HeldLines {
    fn take(&mut self, data: &[u8]) {
        self.count += data.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.held.extend_from_slice(data);
        let body = &self.held[..self.held.len().saturating_sub(1)];
        if let Some(newline) = body.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.held.split_off(newline + 1);
            write(&std::mem::replace(&mut self.held, rest));
        }
    }

    fn end(self, format: AnswerFormat) -> Result<u64> {
        if format == AnswerFormat::Json
            && self.held.starts_with(b"{\"error\":")
            && let Some(error) =
                serde_json::from_slice(&self.held).ok().and_then(|last| trailing_error(&last))
        {
            return Err(error);
        }
        write(&self.held);
        Ok(self.count)
    }
}

/// Writes to standard output; on a terminal, control characters are escaped. Exits with status 0 if the reader is gone.
pub fn write(bytes: &[u8]) {
    let shown;
    let bytes = match output::is_terminal() {
        true => {
            shown = output::visible(&String::from_utf8_lossy(bytes)).into_owned();
            shown.as_bytes()
        }
        false => bytes,
    };
    let mut out = io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        // A reader that closed the pipe early (`| head`) is not an error.
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_place_of_the_last_row_is_an_error() {
        let mut lines = HeldLines::default();
        lines.take(b"");
        lines.take(br#"{"error":{"code":"timeout","message":"too slow","hint":"ask for less"}}"#);
        lines.take(b"\n");
        let error = lines.end(AnswerFormat::Json).unwrap_err().to_string();
        assert_eq!(error, "the answer is not complete: too slow; ask for less");
    }

    #[test]
    fn parameters_are_json_or_text() {
        assert_eq!(param("404"), json!(404));
        assert_eq!(param("null"), Value::Null);
        assert_eq!(param("GET /"), json!("GET /"));
    }
}
