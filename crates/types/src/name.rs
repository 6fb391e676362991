//! Names of tables and columns.
//!
//! A table name is `[namespace.]table`, with the default namespace `main`. Each part has 1 to 128 characters: letters
//! of any script, digits, `_` and `-`, starting with a letter. That keeps a name usable as a path component, in a URL
//! and in Iceberg. A part of a new name has at most 200 bytes, so that it fits into a file name. Column names are
//! freer: any text of 1 to 255 bytes without control characters that does not start with `_`.

use std::borrow::Cow;

use crate::{Error, Kind, Result};

pub const DEFAULT_NAMESPACE: &str = "main";

/// The namespace of Polynya's own tables (metrics, requests). Users read them and never write them.
pub const RESERVED_NAMESPACE: &str = "polynya";

pub const PART_CHARS_MAX: usize = 128;
const NEW_PART_BYTES_MAX: usize = 200;
pub const COLUMN_BYTES_MAX: usize = 255;

/// Splits `[namespace.]table` and checks both parts. Returns the full name `namespace.table`.
pub fn full_table_name(text: &str) -> Result<String> {
    let (namespace, table) = text.split_once('.').unwrap_or((DEFAULT_NAMESPACE, text));
    for part in [namespace, table] {
        check_part(part).map_err(|why| {
            Error::invalid(format!("`{}` is not a valid table name: {why}", printable(text)))
                .hint("use letters, digits, `_` and `-`, starting with a letter, at most 128 characters")
        })?;
    }
    Ok(format!("{namespace}.{table}"))
}

/// Returns true if a table of this name would be one of Polynya's own. Only the namespace decides, compared without
/// regard to case, because tables are found without regard to case. Takes `[namespace.]table`, validated or not.
pub fn is_reserved(name: &str) -> bool {
    let (namespace, _) = name.split_once('.').unwrap_or((DEFAULT_NAMESPACE, name));
    namespace.chars().flat_map(char::to_lowercase).eq(RESERVED_NAMESPACE.chars())
}

/// Adds the default namespace if the text has none. Nothing is validated: a table found under this name has a valid
/// one.
pub fn qualified(text: &str) -> Cow<'_, str> {
    if text.contains('.') { Cow::Borrowed(text) } else { Cow::Owned([DEFAULT_NAMESPACE, ".", text].concat()) }
}

/// Fails if the name is too long for a new table. It must have passed [`full_table_name`]. Existing tables with longer
/// names keep them.
pub fn check_new_table(full_name: &str) -> Result<()> {
    match full_name.split('.').find(|part| part.len() > NEW_PART_BYTES_MAX) {
        None => Ok(()),
        Some(part) => Err(Error::invalid(format!(
            "`{}` has {} bytes, more than the {NEW_PART_BYTES_MAX} of a table's or namespace's name",
            printable(part),
            part.len()
        ))
        .hint("letters beyond a to z take two to four bytes each")),
    }
}

/// Returns the name as users write it: without the default namespace.
pub fn short_table_name(full_name: &str) -> &str {
    full_name.strip_prefix("main.").unwrap_or(full_name)
}

fn check_part(part: &str) -> std::result::Result<(), String> {
    let Some(first) = part.chars().next() else { return Err("a part of it is empty".into()) };
    if !first.is_alphabetic() {
        return Err(format!("`{}` does not start with a letter", printable(part)));
    }
    if let Some(bad) = part.chars().find(|c| !c.is_alphanumeric() && *c != '_' && *c != '-') {
        return Err(format!("it contains `{}`", bad.escape_default()));
    }
    if part.chars().count() > PART_CHARS_MAX {
        return Err("it is too long".into());
    }
    Ok(())
}

/// Fails with [`Kind::Schema`] unless a column may have this name.
pub fn check_column(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > COLUMN_BYTES_MAX {
        format!("it has {} bytes, more than {COLUMN_BYTES_MAX}", name.len())
    } else if name.starts_with('_') {
        "names starting with `_` belong to Polynya".to_owned()
    } else if let Some(bad) = name.chars().find(|c| c.is_control()) {
        format!("it contains the control character `{}`", bad.escape_default())
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Schema, format!("`{}` is not a valid column name: {why}", printable(name))))
}

/// Finds `wanted` among `names`: the exact match, else the only one that differs just by case.
/// Returns its position, or `None` when there is no such name or several fit.
pub fn resolve<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<usize> {
    let mut folded = None;
    let mut several = false;
    let wanted_folded = wanted.to_lowercase();
    for (i, name) in names.enumerate() {
        if name == wanted {
            return Some(i);
        }
        if name.to_lowercase() == wanted_folded {
            several |= folded.is_some();
            folded = Some(i);
        }
    }
    folded.filter(|_| !several)
}

/// Formats a name for a message: cut to 80 characters, with invisible characters escaped. Quotes are kept, because
/// messages put names between backticks.
pub fn printable(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(80) {
        match c {
            '"' | '\'' => escaped.push(c),
            _ => escaped.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(80).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for bad in
            ["", ".", "..", "a/b", "../x", "a\0b", "a.b.c", "1a", "_x", "-x", "main.", ".x", "a b", "main._x"]
        {
            assert!(full_table_name(bad).is_err(), "{bad:?}");
        }
        assert!(full_table_name(&"x".repeat(129)).is_err());
    }

    #[test]
    fn a_new_table_has_a_name_that_fits_into_a_file_name() {
        let full_name = |part: &str| full_table_name(part).unwrap();
        check_new_table(&full_name(&"x".repeat(128))).unwrap();
        check_new_table(&full_name(&"é".repeat(100))).unwrap();
        for long in ["é".repeat(101), "語".repeat(67), format!("{}.t", "é".repeat(101))] {
            let error = check_new_table(&full_name(&long)).unwrap_err();
            assert!(error.message().contains("more than the 200"), "{error}");
        }
    }

    #[test]
    fn the_default_namespace_is_main() {
        assert_eq!(full_table_name("events").unwrap(), "main.events");
        assert_eq!(full_table_name("sensors.Température-2").unwrap(), "sensors.Température-2");
        assert_eq!(short_table_name("main.events"), "events");
        assert_eq!(short_table_name("sensors.x"), "sensors.x");
    }

    #[test]
    fn the_reserved_namespace_is_reserved_in_every_case() {
        for reserved in ["polynya.x", "POLYNYA.x", "PolYnya.requests", "polynya.x.y"] {
            assert!(is_reserved(reserved), "{reserved}");
        }
        for free in ["polynya", "x", "main.polynya", "polynya_2.x", "polyny.x", " polynya.x", "polynyä.x"] {
            assert!(!is_reserved(free), "{free}");
        }
    }

    #[test]
    fn a_name_in_a_message_is_short_and_visible() {
        assert_eq!(printable("\"big\" it's"), "\"big\" it's");
        assert_eq!(printable("a\0b\n\u{202e}"), "a\\0b\\n\\u{202e}");
        assert_eq!(printable(&"x".repeat(81)), "x".repeat(80) + "…");
    }

    #[test]
    fn an_exact_name_wins_over_one_that_differs_by_case() {
        assert_eq!(resolve("Id", ["id", "Id"].into_iter()), Some(1));
        assert_eq!(resolve("ID", ["id"].into_iter()), Some(0));
        assert_eq!(resolve("iD", ["id", "Id"].into_iter()), None);
        assert_eq!(resolve("x", ["id"].into_iter()), None);
    }

    #[test]
    fn column_names_are_free_but_for_underscore_first_and_control_characters() {
        assert!(check_column("größe (m²)").is_ok());
        for bad in ["", "_row_id", "a\0b", "line\nbreak"] {
            assert!(check_column(bad).is_err(), "{bad:?}");
        }
        assert!(check_column(&"x".repeat(256)).is_err());
    }
}
