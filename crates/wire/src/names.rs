//! Resolves the names in a body to columns, and decides whether a new name may become a column.

use std::collections::HashSet;

use types::schema::COLUMNS_MAX;
use types::{Column, name};

use super::{BadRow, DecodeTarget, Limits, RefusedBody, refused};

/// The reason why a name cannot become a column, and a hint.
pub(crate) struct Refusal {
    pub message: String,
    pub hint: Option<String>,
}

/// Fails if a name without a column must not become one.
pub(crate) fn check_new(wanted: &str, target: DecodeTarget<'_>) -> Result<(), Refusal> {
    if let Err(error) = name::check_column(wanted) {
        let hint = wanted
            .starts_with('_')
            .then(|| "rename the field; `_row_id` and `_time` are given by the server".to_owned());
        return Err(Refusal { message: error.message().to_owned(), hint });
    }
    if !target.may_add_columns {
        let hint = format!(
            "add the column first (ALTER TABLE, or PUT /v1/tables/{}), or leave the field out",
            target.table
        );
        return Err(Refusal { message: "the table has no such column".into(), hint: Some(hint) });
    }
    Ok(())
}

pub(crate) fn columns<'a>(target: DecodeTarget<'a>) -> &'a [Column] {
    target.def.map_or(&[], |def| &def.schema.columns)
}

/// Resolves the columns that a body names before its rows: returns the position of each among the table's columns,
/// `None` for a new one. The error names all that are refused, up to a limit.
pub(crate) fn resolve<'n>(
    wanted: impl Iterator<Item = &'n str>,
    target: DecodeTarget<'_>,
    limits: &Limits,
) -> Result<Vec<Option<usize>>, RefusedBody> {
    let known = columns(target);
    let (mut found, mut bad, mut hint, mut new) = (Vec::new(), Vec::new(), None, 0);
    let mut seen = HashSet::new();
    for wanted in wanted {
        let existing = name::resolve(wanted, known.iter().map(|c| c.name.as_str()));
        let message = if !seen.insert(wanted.to_lowercase()) {
            Some("the column is given twice".into())
        } else if existing.is_some() {
            None
        } else {
            new += 1;
            match check_new(wanted, target) {
                Err(refusal) => {
                    hint = hint.or(refusal.hint);
                    Some(refusal.message)
                }
                Ok(()) if known.len() + new > COLUMNS_MAX => {
                    Some(format!("the table would get more than {COLUMNS_MAX} columns"))
                }
                Ok(()) => None,
            }
        };
        if let Some(message) = message {
            bad.push(BadRow { row: 1, line: None, column: Some(name::printable(wanted)), message });
            if bad.len() >= limits.bad_rows_max {
                break;
            }
        }
        found.push(existing);
    }
    if bad.is_empty() { Ok(found) } else { Err(refused(bad, limits, hint)) }
}
