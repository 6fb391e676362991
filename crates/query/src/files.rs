//! COPY between tables and files: parses the statement, reads and writes the formats, and loads rows into a table.
//!
//! The owner of the files carries COPY out: the library, the command, and for streams the server. They share this module, so a
//! file means the same to all of them. A COPY that comes to [`crate::Sql`] itself must not name files of this machine, and is
//! refused.

mod csv;
mod draft;
mod input;
mod load;
mod ndjson;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod writer;

use datafusion::sql::sqlparser::ast::{
    CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Statement,
};
use sql::names::ParsedTableName;
use sql::not_yet;
use sql::parse;
use types::{Error, Result, name};

use crate::session::first_word;

pub use draft::Draft;
pub use input::{Input, failed as read_failed};
pub use load::{COMMITS_OF_PIECE_MAX, LoadSummary, PIECE_BYTES, commit, load, too_many_commits};
pub use rows::{Batches, LineRange, open, read};
pub use writer::Writer;

/// Prefix of the files in the spill directory that hold the input of a copy. Leftovers are removed at the next start.
pub const SPOOL_PREFIX: &str = "copy-";

/// A parsed COPY statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub direction: CopyDirection,
    pub endpoint: CopyEndpoint,
    pub format: Format,
    /// True if the first line of CSV names the columns.
    pub header: bool,
    /// The delimiter of CSV.
    pub delimiter: char,
    /// The text of NULL in CSV.
    pub null: String,
    /// True if an existing file may be replaced.
    pub overwrite: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// COPY … TO: writes the rows of this query.
    To { query: String },
    /// COPY … FROM: inserts rows into these columns of a table, or into all if none is named. The flag of a name is true if it
    /// was quoted.
    From { table: String, columns: Vec<(String, bool)> },
}

/// The other end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyEndpoint {
    File(String),
    /// STDIN or STDOUT: the sender of the statement gives or takes the bytes.
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    Ndjson,
    Parquet,
}

impl Format {
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Csv => "text/csv; charset=utf-8",
            Format::Ndjson => "application/x-ndjson",
            Format::Parquet => "application/vnd.apache.parquet",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Ndjson => "ndjson",
            Format::Parquet => "parquet",
        }
    }
}

/// Parses a COPY statement; returns `None` for any other statement.
pub fn parse_copy(text: &str, bytes_max: usize) -> Result<Option<Copy>> {
    match parse_if_copy(text, bytes_max)? {
        Some(statement) => copy_of_statement(statement).map(Some),
        None => Ok(None),
    }
}

/// Parses a COPY statement for the owner of the file. Also returns the statement that asks a server for the file's bytes (`COPY …
/// TO STDOUT`), or to take them (`COPY … FROM STDIN`).
pub fn parse_streamed_copy(text: &str, bytes_max: usize) -> Result<Option<(Copy, String)>> {
    let Some(statement) = parse_if_copy(text, bytes_max)? else { return Ok(None) };
    let copy = copy_of_statement(statement.clone())?;
    let Statement::Copy { source, to, .. } = &statement else {
        return Err(Error::internal("a COPY statement is none"));
    };
    let source = match source {
        CopySource::Query(query) => format!("({})", parse::text_of(query)),
        CopySource::Table { table_name, columns } if columns.is_empty() => table_name.to_string(),
        CopySource::Table { table_name, columns } => {
            let columns: Vec<String> = columns.iter().map(Ident::to_string).collect();
            format!("{table_name} ({})", columns.join(", "))
        }
    };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let text = format!(
        "COPY {source} {} WITH (FORMAT {}{}, DELIMITER {}, NULL {})",
        if *to { "TO STDOUT" } else { "FROM STDIN" },
        copy.format.name(),
        if copy.header { ", HEADER" } else { "" },
        quoted(&copy.delimiter.to_string()),
        quoted(&copy.null),
    );
    Ok(Some((copy, text)))
}

fn parse_if_copy(text: &str, bytes_max: usize) -> Result<Option<Statement>> {
    if !first_word(text).eq_ignore_ascii_case("copy") {
        return Ok(None);
    }
    // After FROM STDIN the parser expects a semicolon, and takes the text after it for rows.
    let text = text.trim_end().trim_end_matches([';', ' ', '\t', '\r', '\n']);
    let statement = parse::statement(&format!("{text}\n;"), bytes_max)?;
    Ok(matches!(statement, Statement::Copy { .. }).then_some(statement))
}

fn copy_of_statement(statement: Statement) -> Result<Copy> {
    let Statement::Copy { source, to, target, options, legacy_options, values } = statement else {
        return Err(Error::internal("a COPY statement is none"));
    };
    if !values.is_empty() {
        return Err(Error::invalid("rows after the statement are not read").hint(
            "put them into a file: COPY … FROM 'file'; over HTTP send them as the body of POST /v1/copy",
        ));
    }
    let endpoint = match target {
        CopyTarget::File { filename } => CopyEndpoint::File(filename),
        CopyTarget::Program { .. } => return Err(no_program()),
        CopyTarget::Stdin if to => {
            return Err(Error::invalid("rows are copied TO STDOUT or FROM STDIN"));
        }
        CopyTarget::Stdout if !to => {
            return Err(Error::invalid("rows are copied TO STDOUT or FROM STDIN"));
        }
        CopyTarget::Stdin | CopyTarget::Stdout => CopyEndpoint::Stream,
    };
    let direction = match (source, to) {
        // The writes would stay even if the file could not be made.
        (CopySource::Query(query), _) if !parse::reads_only(&query) => {
            return Err(Error::invalid("COPY copies what a query reads; this one writes").hint(
                "run the statement with RETURNING by itself, or copy the rows before it removes them",
            ));
        }
        (CopySource::Query(query), _) => CopyDirection::To { query: parse::text_of(&query) },
        (CopySource::Table { table_name, columns }, true) => {
            let columns = columns.iter().map(Ident::to_string).collect::<Vec<_>>().join(", ");
            let columns = if columns.is_empty() { "*".to_owned() } else { columns };
            CopyDirection::To { query: format!("SELECT {columns} FROM {table_name}") }
        }
        (CopySource::Table { table_name, columns }, false) => CopyDirection::From {
            table: ParsedTableName::of(&table_name)?.text(),
            columns: columns.into_iter().map(|c| (c.value, c.quote_style.is_some())).collect(),
        },
    };
    let path_format = match &endpoint {
        CopyEndpoint::File(path) => format_of_path(path),
        CopyEndpoint::Stream => None,
    };
    let mut copy = Copy {
        direction,
        format: path_format.unwrap_or(Format::Csv),
        endpoint,
        header: false,
        delimiter: ',',
        null: String::new(),
        overwrite: false,
    };
    for option in options {
        match option {
            CopyOption::Format(format) => copy.format = format_named(&format.value)?,
            CopyOption::Header(header) => copy.header = header,
            CopyOption::Delimiter(delimiter) if delimiter.is_ascii() => {
                if matches!(delimiter, '"' | '\r' | '\n') {
                    return Err(Error::invalid("the delimiter cannot be a quote or an end of a line"));
                }
                copy.delimiter = delimiter;
            }
            CopyOption::Null(null) => copy.null = null,
            other => return Err(not_yet(&format!("COPY with {other}"))),
        }
    }
    let is_special = |c: char| matches!(c, '"' | '\r' | '\n') || c == copy.delimiter;
    if copy.null.contains(is_special) {
        return Err(Error::invalid(
            "the text of NULL must not contain a separator, a quote or an end of a line",
        ));
    }
    for option in legacy_options {
        match option {
            CopyLegacyOption::AllowOverwrite => copy.overwrite = true,
            other => {
                return Err(not_yet(&format!("COPY with {other}")).hint("write WITH (FORMAT csv, HEADER)"));
            }
        }
    }
    Ok(copy)
}

fn format_of_path(path: &str) -> Option<Format> {
    format_named(path.rsplit_once('.')?.1).ok()
}

fn format_named(wanted: &str) -> Result<Format> {
    Ok(match wanted.to_ascii_lowercase().as_str() {
        "csv" => Format::Csv,
        "ndjson" | "jsonl" | "json" => Format::Ndjson,
        "parquet" => Format::Parquet,
        _ => {
            return Err(Error::invalid(format!("`{}` is not a file format", name::printable(wanted)))
                .hint("formats are csv, ndjson and parquet"));
        }
    })
}

/// Returns the error of a COPY that was sent to [`crate::Sql`] itself.
pub(crate) fn refused(target: &CopyTarget) -> Error {
    match target {
        CopyTarget::File { .. } => forbidden(),
        CopyTarget::Program { .. } => no_program(),
        CopyTarget::Stdin | CopyTarget::Stdout => no_stream(),
    }
}

/// Returns the error of a file's name that comes to a server: files belong to the sender's machine.
pub fn forbidden() -> Error {
    Error::new(
        types::Kind::Forbidden,
        "a file name in COPY means a file on the client's machine, and a server opens no files for its clients",
    )
    .hint(
        "`polynya sql` copies files of its own directory; over HTTP send `COPY … TO STDOUT` to POST /v1/sql, and the file as the body of POST /v1/copy?sql=COPY … FROM STDIN; in a program `Database::sql` copies",
    )
}

/// Returns the error of STDIN and STDOUT where there are no streams.
pub fn no_stream() -> Error {
    Error::invalid("COPY with STDIN or STDOUT has nowhere to go here").hint(
        "name a file; `polynya sql`, POST /v1/sql (TO STDOUT) and POST /v1/copy (FROM STDIN) have streams",
    )
}

/// Returns the error of a COPY with parameters.
pub fn no_params() -> Error {
    Error::invalid("COPY has no parameters").hint("put the values into its query")
}

/// Returns the error of `COPY (INSERT …) TO` without rows.
pub(crate) fn no_rows() -> Error {
    Error::invalid("COPY … TO takes a query that returns rows")
}

fn no_program() -> Error {
    Error::invalid("COPY starts no programs").hint("copy to or from a file")
}

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;
