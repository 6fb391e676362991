//! COPY between tables and files, as far as it is text and types. Whoever owns the database carries it out: a statement
//! that comes to [`crate::Sql`] from elsewhere must not name files of this machine, and is refused there.

use arrow::array::ArrayRef;
use datafusion::sql::sqlparser::ast::{
    CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Statement,
};
use types::{DataType, Error, Result, name};

use crate::ddl::later;
use crate::names::Written;
use crate::{convert, parse};

/// What COPY asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub what: What,
    pub path: String,
    pub format: Format,
    /// Whether the first line of CSV names the columns.
    pub header: bool,
    /// Of CSV.
    pub delimiter: char,
    /// What stands for NULL in CSV.
    pub null: String,
    /// Whether a file that is there may be replaced.
    pub overwrite: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// COPY … TO: the rows of this query.
    To { query: String },
    /// COPY … FROM: rows for these columns of a table; for all of them if none is named. Names with whether they are quoted.
    From { table: String, columns: Vec<(String, bool)> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    Ndjson,
    Parquet,
}

/// The COPY that a text is; `None` if it is another statement.
pub fn copy(text: &str, bytes_max: usize) -> Result<Option<Copy>> {
    let first = text.trim_start().get(..4).unwrap_or_default();
    if !first.eq_ignore_ascii_case("copy") {
        return Ok(None);
    }
    let Statement::Copy { source, to, target, options, legacy_options, .. } =
        parse::statement(text, bytes_max)?
    else {
        return Ok(None);
    };
    let path = match target {
        CopyTarget::File { filename } => filename,
        other => return Err(streams(&other)),
    };
    let what = match (source, to) {
        (CopySource::Query(query), _) => What::To { query: query.to_string() },
        (CopySource::Table { table_name, columns }, true) => {
            let columns = columns.iter().map(Ident::to_string).collect::<Vec<_>>().join(", ");
            let columns = if columns.is_empty() { "*".to_owned() } else { columns };
            What::To { query: format!("SELECT {columns} FROM {table_name}") }
        }
        (CopySource::Table { table_name, columns }, false) => What::From {
            table: Written::of(&table_name)?.text(),
            columns: columns.into_iter().map(|c| (c.value, c.quote_style.is_some())).collect(),
        },
    };
    let mut copy = Copy {
        what,
        format: by_ending(&path).unwrap_or(Format::Csv),
        path,
        header: false,
        delimiter: ',',
        null: String::new(),
        overwrite: false,
    };
    for option in options {
        match option {
            CopyOption::Format(format) => copy.format = format_named(&format.value)?,
            CopyOption::Header(header) => copy.header = header,
            CopyOption::Delimiter(delimiter) if delimiter.is_ascii() => copy.delimiter = delimiter,
            CopyOption::Null(null) => copy.null = null,
            other => return Err(later(&format!("COPY with {other}"))),
        }
    }
    for option in legacy_options {
        match option {
            CopyLegacyOption::AllowOverwrite => copy.overwrite = true,
            other => return Err(later(&format!("COPY with {other}")).hint("write WITH (FORMAT csv, HEADER)")),
        }
    }
    Ok(Some(copy))
}

fn by_ending(path: &str) -> Option<Format> {
    format_named(path.rsplit_once('.')?.1).ok()
}

fn format_named(wanted: &str) -> Result<Format> {
    Ok(match wanted.to_ascii_lowercase().as_str() {
        "csv" => Format::Csv,
        "ndjson" | "jsonl" | "json" => Format::Ndjson,
        "parquet" => Format::Parquet,
        _ => {
            return Err(Error::invalid(format!("`{}` is no format of files", name::printable(wanted)))
                .hint("formats are csv, ndjson and parquet"));
        }
    })
}

/// The refusal of a COPY that a server is asked for, or that is no file.
pub(crate) fn refused(target: &CopyTarget) -> Error {
    match target {
        CopyTarget::File { .. } => Error::new(types::Kind::Forbidden, "COPY reads and writes files of the machine, which only the owner of the database may")
            .hint("over HTTP POST /v1/sql with `Accept: text/csv` gives rows as a file, and POST /v1/tables/TABLE/rows takes one; in a program `Database::sql` copies"),
        other => streams(other),
    }
}

fn streams(target: &CopyTarget) -> Error {
    match target {
        CopyTarget::Program { .. } => {
            Error::invalid("COPY starts no programs").hint("copy to or from a file")
        }
        _ => Error::invalid("COPY with STDIN or STDOUT has nowhere to go here").hint(
            "SELECT gives rows: POST /v1/sql with `Accept: text/csv`; POST /v1/tables/TABLE/rows takes them",
        ),
    }
}

/// Texts as values of a column, as a literal of SQL is read.
pub fn from_text(texts: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    convert::to_column(texts, data_type)
}

/// Values as text, of which [`from_text`] makes the same values again. Refused for what has none: bytes, lists and structs.
pub fn to_text(values: &ArrayRef) -> Result<ArrayRef> {
    convert::to_column(values, &DataType::String)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_is_read_and_nothing_else_is_taken_for_one() {
        let read = |text: &str| copy(text, 1_000);
        assert_eq!(read("select 1").unwrap(), None);
        assert_eq!(read("co").unwrap(), None);
        let to =
            read(" copy t (a, \"B c\") to '/x/y.csv' with (header, delimiter ';', null '-') allowoverwrite")
                .unwrap()
                .unwrap();
        assert_eq!(to.what, What::To { query: "SELECT a, \"B c\" FROM t".into() });
        assert_eq!(
            (to.format, to.header, to.delimiter, to.null.as_str(), to.overwrite),
            (Format::Csv, true, ';', "-", true)
        );
        let from = read("COPY main.\"T\" FROM 'rows.jsonl'").unwrap().unwrap();
        assert_eq!(from.what, What::From { table: "main.T".into(), columns: vec![] });
        assert_eq!((from.format, from.overwrite), (Format::Ndjson, false));
        assert_eq!(read("copy (select 1) to 'a' (format parquet)").unwrap().unwrap().format, Format::Parquet);
        for text in [
            "copy t to stdout",
            "copy t from program 'ls'",
            "copy t to 'x' (format xml)",
            "copy t to 'x' (freeze)",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
