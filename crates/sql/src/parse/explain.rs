//! Reads the options of `EXPLAIN (ANALYZE, VERBOSE)`, PostgreSQL's other way to write `EXPLAIN ANALYZE VERBOSE`. The planner
//! would ignore the brackets.

use sqlparser::ast::{Expr, Statement, UtilityOption, Value};
use types::{Error, Result, name};

pub(super) fn apply_options(explain: &mut Statement) -> Result<()> {
    let Statement::Explain { analyze, verbose, options, .. } = explain else { return Ok(()) };
    for option in options.take().into_iter().flatten() {
        let is = |name: &str| option.name.value.eq_ignore_ascii_case(name);
        if is("analyze") {
            *analyze = is_on(&option)?;
        } else if is("verbose") {
            *verbose = is_on(&option)?;
        } else {
            let found = name::printable(&option.name.value).to_uppercase();
            return Err(Error::invalid(format!("EXPLAIN does not take {found}"))
                .hint("it takes ANALYZE and VERBOSE: `EXPLAIN (ANALYZE, VERBOSE) SELECT …`"));
        }
    }
    Ok(())
}

fn is_on(option: &UtilityOption) -> Result<bool> {
    let Some(arg) = &option.arg else { return Ok(true) };
    let text = match arg {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => {
            let (name, text) = (option.name.value.to_uppercase(), name::printable(&text));
            Err(Error::invalid(format!("{name} of EXPLAIN is on or off, not `{text}`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::statement;

    #[test]
    fn what_stands_in_brackets_is_read() {
        let read = |text: &str| match statement(text, 1_000).unwrap() {
            Statement::Explain { analyze, verbose, options: None, .. } => (analyze, verbose),
            other => panic!("{other}"),
        };
        assert_eq!(read("explain (analyze) select 1"), (true, false));
        assert_eq!(read("explain (analyze, verbose) select 1"), (true, true));
        assert_eq!(read("explain (analyze false, verbose on) select 1"), (false, true));
        assert_eq!(read("explain analyze select 1"), (true, false));
        for (text, why) in [
            ("explain (analyze, buffers) select 1", "EXPLAIN does not take BUFFERS"),
            ("explain (format json) select 1", "EXPLAIN does not take FORMAT"),
            ("explain (analyze maybe) select 1", "ANALYZE of EXPLAIN is on or off, not `maybe`"),
        ] {
            assert_eq!(statement(text, 1_000).unwrap_err().message(), why);
        }
    }
}
