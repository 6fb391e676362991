//! Checks the flags about a CSV file's form against the file. A flag that cannot take effect is an error.

use types::{Error, Result};

use super::IngestJob;
use super::csv::{CsvOptions, Dialect};

/// Fails with `conflict` if the flags differ from the dialect of an earlier run. A resumed file keeps its dialect, so the
/// flags would have no effect.
pub fn check_same_dialect(job: &IngestJob, known: &Dialect, title: &str) -> Result<()> {
    let CsvOptions { has_header, delimiter, types } = &job.csv;
    let differs = types.iter().find_map(|(name, wanted)| {
        let (_, read) = known.columns.iter().find(|(column, _)| column.eq_ignore_ascii_case(name))?;
        let name = types::name::printable(name);
        (read != wanted)
            .then(|| format!("--column {name}:{wanted}: {title} was read before with `{name}` as {read}"))
    });
    let differs = differs.or_else(|| {
        let other = has_header.is_some_and(|has_header| has_header != known.has_header);
        other.then(|| format!("--no-header: {title} was read before with a header"))
    });
    let differs = differs.or_else(|| {
        let other = delimiter.is_some_and(|delimiter| delimiter != known.delimiter);
        let read = char::from(known.delimiter);
        other.then(|| format!("--delimiter: {title} was read before with {read:?} between fields"))
    });
    match differs {
        None => Ok(()),
        Some(message) => Err(Error::conflict(message).hint(
            "leave it out to go on as before, or read all of it into another table with --table NAME (--again: once more into this one)",
        )),
    }
}

/// Fails if `--column` names a column that the file does not have, or if the file is not CSV.
pub fn check_columns(job: &IngestJob, dialect: Option<&Dialect>, title: &str) -> Result<()> {
    let Some((first, _)) = job.csv.types.first() else { return Ok(()) };
    let Some(dialect) = dialect else {
        return Err(Error::invalid(format!(
            "--column {first}: {title} is not CSV, its values have types already"
        ))
        .hint("create the table with the types that you want first, or leave --column out"));
    };
    let titles = || dialect.columns.iter().map(|(title, _)| title.as_str());
    for (wanted, _) in &job.csv.types {
        if titles().any(|title| title.eq_ignore_ascii_case(wanted)) {
            continue;
        }
        let hint = match crate::config::nearest(wanted, titles()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its columns are {}", titles().take(20).collect::<Vec<_>>().join(", ")),
        };
        let wanted = types::name::printable(wanted);
        return Err(
            Error::not_found(format!("--column {wanted}: {title} has no column `{wanted}`")).hint(hint)
        );
    }
    Ok(())
}
