//! Reads rows from a file, batch by batch, into the columns of a table. Errors name the line.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use dialect::values::convert;
use types::{Column, Error, Kind, Result, TableDef, name};
use vfs::{Access, Env};

use super::input::Input;
use super::{Copy, Format, csv, ndjson};

/// Rows of one batch.
pub(super) const ROWS: usize = 8_192;
/// Bytes of text after which a batch ends, so that large rows do not add up.
pub(super) const BATCH_BYTES: usize = 8 << 20;
/// Bytes that are read at once.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// Lines of a text, counted from 1, or rows of Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    pub first: u64,
    pub last: u64,
}

/// Batches with the lines that they come from. The iterator ends after an error.
pub type Batches = Box<dyn Iterator<Item = Result<(RecordBatch, LineRange)>>>;

/// Opens the file of a COPY FROM.
pub fn open(path: &str) -> Result<Input> {
    let file = Env::real().disk.open(Path::new(path), Access::Read);
    file.map(Input::File).map_err(|error| not_opened(path, error))
}

/// Returns the error of a file that cannot be opened or written.
pub(super) fn not_opened(path: &str, error: std::io::Error) -> Error {
    let shown = name::printable(path);
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::not_found(format!("there is no file `{shown}`")),
        _ => Error::io(format!("copying `{shown}`"), error),
    }
}

/// Reads the rows of a file for `columns` of a table (names, and true if quoted). Without `columns`, the file's header chooses
/// them, or else all columns are read.
pub fn read(copy: &Copy, def: &TableDef, columns: &[(String, bool)], input: Input) -> Result<Batches> {
    let places = columns.iter().map(|column| position(def, column)).collect::<Result<Vec<_>>>()?;
    let named = |places: &[usize]| -> Vec<Column> {
        places.iter().map(|at| def.schema.columns[*at].clone()).collect()
    };
    let all: Vec<usize> = (0..def.schema.columns.len()).collect();
    let chosen = named(if places.is_empty() { &all } else { &places });
    match copy.format {
        Format::Csv => {
            let mut rows = csv::CsvInput::new(copy, input)?;
            let header = rows.header(copy)?;
            let columns = match (header, places.is_empty()) {
                (Some(header), true) => {
                    let there = header.into_iter().map(|name| position(def, &(name, false)));
                    let there = there.collect::<Result<Vec<_>>>()?;
                    if let Some(twice) =
                        there.iter().enumerate().find(|(at, place)| there[..*at].contains(place))
                    {
                        let name = name::printable(&def.schema.columns[*twice.1].name);
                        return Err(Error::invalid(format!("the header names `{name}` twice")));
                    }
                    named(&there)
                }
                _ => chosen,
            };
            Ok(Box::new(rows.of(columns, def)))
        }
        Format::Ndjson => Ok(Box::new(ndjson::NdjsonRows::new(def, chosen, input)?)),
        #[cfg(feature = "parquet")]
        Format::Parquet => Ok(Box::new(super::parquet::read(def, &places, input)?)),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(no_parquet()),
    }
}

/// Returns the position of a column in a table.
pub(super) fn position(def: &TableDef, (wanted, quoted): &(String, bool)) -> Result<usize> {
    let names = || def.schema.columns.iter().map(|column| column.name.as_str());
    let found = if *quoted { names().position(|n| n == wanted) } else { name::resolve(wanted, names()) };
    found.ok_or_else(|| {
        Error::invalid(format!("there is no column `{}`", name::printable(wanted))).with("table", &def.name)
    })
}

/// Converts texts to values of a column, like literals of SQL.
pub(super) fn typed(texts: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    convert::to_column(texts, &column.data_type)
}

/// Refuses NULL in a column that is NOT NULL. Defaults are for columns that are absent entirely.
pub(super) fn check_null(column: &Column, array: &ArrayRef) -> Result<()> {
    if (column.nullable && !column.refuses_null) || array.null_count() == 0 {
        Ok(())
    } else {
        Err(Error::new(Kind::Schema, "NULL, and the column is NOT NULL"))
    }
}

/// Returns an error with its place, `line 5, column x`, in front of the message.
pub(super) fn at(place: impl std::fmt::Display, column: Option<&str>, error: Error) -> Error {
    let column = column.map_or_else(String::new, |name| format!(", column `{}`", name::printable(name)));
    let mut message = format!("{place}{column}: {}", error.message());
    for (key, value) in error.context() {
        message += &format!(" ({key} {value})");
    }
    let said = Error::new(error.kind(), message);
    match error.hint_text() {
        Some(hint) => said.hint(hint),
        None => said,
    }
}

pub(super) fn batch_of(columns: &[Column], arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
    let field =
        |(column, array): (&Column, &ArrayRef)| Field::new(&column.name, array.data_type().clone(), true);
    let schema = Schema::new(columns.iter().zip(&arrays).map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), arrays)
        .map_err(|e| Error::invalid(format!("the rows of the file make no batch: {e}")))
}

/// Converts an error of Parquet's reader and writer.
#[cfg(feature = "parquet")]
pub(super) fn arrow_failed(error: arrow::error::ArrowError) -> Error {
    use arrow::error::ArrowError;
    let text = match error {
        ArrowError::IoError(_, error) => return super::input::failed(error),
        ArrowError::ExternalError(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => return super::input::failed(*error),
            Err(source) => source.to_string(),
        },
        ArrowError::ParquetError(text) => text,
        other => other.to_string(),
    };
    Error::new(Kind::Schema, text.chars().take(300).collect::<String>())
}

#[cfg(not(feature = "parquet"))]
pub(super) fn no_parquet() -> Error {
    Error::invalid("this program was built without Parquet")
        .hint("take csv or ndjson, or build it with the feature `parquet` of the crate `polynya`")
}
