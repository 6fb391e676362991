//! Converts DataFusion's errors to Polynya's: with a kind that says what the client can do, a plain message, and similar names in
//! the hint.

mod unsupported;
mod wording;

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use sql::names::similar_names;
use types::{Error, Kind, name};

/// Converts the failure of a statement to an error for the client.
pub fn from_datafusion(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(source) => match source.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => foreign(&other.to_string()),
        },
        DataFusionError::ArrowError(source, _) => match *source {
            arrow::error::ArrowError::ExternalError(source) => match source.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(source) => match source.downcast::<DataFusionError>() {
                    Ok(inner) => from_datafusion(*inner),
                    Err(other) => foreign(&other.to_string()),
                },
            },
            arrow::error::ArrowError::IoError(text, source) => Error::io(text, source),
            other => plan(&other.to_string()),
        },
        DataFusionError::Context(_, inner) => from_datafusion(*inner),
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let error = from_datafusion(*inner);
            match diagnostic.span {
                Some(span) => error.with("at line", span.start.line).with("column", span.start.column),
                None => error,
            }
        }
        DataFusionError::Shared(inner) => shared(&inner),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => from_datafusion(first),
            None => Error::internal("a statement failed without saying why"),
        },
        DataFusionError::SchemaError(error, _) => schema(*error),
        DataFusionError::ResourcesExhausted(text) => Error::new(
            Kind::TooLarge,
            format!("the statement needs more memory than is available: {}", wording::memory(&text)),
        )
        .hint("ask for fewer columns or rows, aggregate earlier, or give SQL more memory"),
        DataFusionError::NotImplemented(text) => unsupported_feature(&text),
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::Configuration(text) => plan(&text),
        DataFusionError::SQL(error, _) => Error::invalid(strip(&error.to_string())),
        DataFusionError::IoError(error) => Error::io("spilling", error),
        DataFusionError::ExecutionJoin(error) if error.is_cancelled() => {
            Error::new(Kind::Timeout, "the statement was cancelled")
        }
        other => {
            let text = other.to_string();
            wording::argument_error(&text).unwrap_or_else(|| foreign(&strip(&text)))
        }
    }
}

fn plan(text: &str) -> Error {
    if text.contains("Projections require unique expression names") {
        return Error::invalid("two columns have the same name").hint("name one of them with AS");
    }
    if text.contains("Windows require unique expression names") {
        return Error::invalid("two window functions differ only in a cast")
            .hint("CAST in a query below, and give the column a name there");
    }
    // The phrase that identifies the error may stand beyond the length to which `strip` cuts the text.
    let text_of = bare(text);
    let ours = wording::reword(text_of).or_else(|| unsupported::pattern(text_of));
    ours.or_else(|| unsupported::argument(text_of)).unwrap_or_else(|| Error::invalid(strip(text)))
}

fn unsupported_feature(text: &str) -> Error {
    unsupported::reword(bare(text))
        .unwrap_or_else(|| Error::invalid(format!("not supported yet: {}", strip(text))))
}

/// Converts an error of a library below DataFusion, of which only the text is known.
fn foreign(text: &str) -> Error {
    unsupported::pattern(text).unwrap_or_else(|| Error::internal(text))
}

/// Converts an error that several readers share, and that therefore cannot be moved out.
fn shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::Context(_, inner) => shared(inner),
        DataFusionError::Shared(inner) => shared(inner),
        DataFusionError::Diagnostic(_, inner) => shared(inner),
        DataFusionError::External(source) => match source.downcast_ref::<Error>() {
            Some(ours) => ours.clone(),
            None => foreign(&source.to_string()),
        },
        DataFusionError::ResourcesExhausted(text) => {
            from_datafusion(DataFusionError::ResourcesExhausted(text.clone()))
        }
        DataFusionError::ArrowError(source, _) => match source.as_ref() {
            arrow::error::ArrowError::ExternalError(source) => match source.downcast_ref::<Error>() {
                Some(ours) => ours.clone(),
                None => foreign(&source.to_string()),
            },
            other => plan(&other.to_string()),
        },
        DataFusionError::Plan(text) | DataFusionError::Execution(text) => plan(text),
        DataFusionError::NotImplemented(text) => unsupported_feature(text),
        other => foreign(&strip(&other.to_string())),
    }
}

fn schema(error: SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(&field, &valid_fields),
        SchemaError::AmbiguousReference { field } => {
            Error::invalid(format!("column `{}` is ambiguous", name::printable(&field.name)))
                .hint("write the table's name before it: `table.column`")
        }
        SchemaError::DuplicateQualifiedField { name: field, .. }
        | SchemaError::DuplicateUnqualifiedField { name: field } => {
            Error::invalid(format!("two columns have the name `{}`", name::printable(&field)))
                .hint("name one of them with AS")
        }
    }
}

fn no_column(field: &Column, valid: &[Column]) -> Error {
    let wanted = match &field.relation {
        Some(relation) => format!("{}.{}", relation.table(), field.name),
        None => field.name.clone(),
    };
    let error = Error::invalid(format!("there is no column `{}`", name::printable(&wanted)));
    let folded = field.name.to_lowercase();
    let same: Vec<&str> =
        valid.iter().map(|c| c.name.as_str()).filter(|name| name.to_lowercase() == folded).collect();
    let near = similar_names(&field.name, valid.iter().map(|c| c.name.as_str()));
    if field.relation.is_none() && !same.is_empty() {
        let quoted: Vec<String> = same.iter().map(|name| format!("\"{name}\"")).collect();
        return error.hint(format!("write it exactly: {}", quoted.join(" or ")));
    }
    if !near.is_empty() {
        return error.hint(format!("did you mean {}?", quoted(&near)));
    }
    let all: Vec<String> = valid.iter().take(12).map(|c| name::printable(&c.name)).collect();
    if all.is_empty() {
        return error.hint("write text in single quotes: 'text'");
    }
    let more = if valid.len() > 12 { ", …" } else { "" };
    error.hint(format!("columns here are {}{more}", quoted(&all)))
}

pub fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns DataFusion's text without its prefixes, backtraces and advice, cut to 600 characters.
fn strip(text: &str) -> String {
    let text = bare(text);
    let mut cut: String = text.chars().take(600).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

fn bare(text: &str) -> &str {
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text);
    let text = text.split("This issue was likely caused by a bug in DataFusion").next().unwrap_or(text);
    let mut text = text.trim();
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "Optimizer rule 'simplify_expressions' failed",
        "caused by",
        "Arrow error: ",
        "Cast error: ",
        "Parser error: ",
        "External error: ",
    ] {
        text = text.trim_start_matches(prefix).trim_start();
    }
    text
}
