//! Errors for features that DataFusion does not support. DataFusion prints the syntax tree that it could not plan; these messages
//! name the clause and say what to write instead.

use sql::not_yet;
use types::{Error, name};

/// Nodes of the parser's tree that DataFusion does not plan: their name in the tree, their name in SQL, and a replacement.
const NODES: [(&str, &str, &str); 11] = [
    ("Collate", "COLLATE", "leave it out: texts are compared byte by byte, as with COLLATE \"C\""),
    ("RLike", "RLIKE", "write `text ~ 'pattern'`"),
    ("IsNormalized", "IS NORMALIZED", ""),
    ("Pivot", "PIVOT", "write `sum(n) FILTER (WHERE month = 'may')` for each column"),
    ("Unpivot", "UNPIVOT", "write a UNION ALL of one SELECT for each column"),
    ("JsonTable", "JSON_TABLE", ""),
    ("OpenJsonTable", "OPENJSON", ""),
    ("XmlTable", "XMLTABLE", ""),
    ("MatchRecognize", "MATCH_RECOGNIZE", "window functions compare a row with those around it"),
    ("MatchAgainst", "MATCH … AGAINST", ""),
    ("Convert", "CONVERT", "write CAST(… AS …)"),
];

/// Operators that DataFusion does not plan: their name in the tree, their sign in SQL, and a replacement.
const OPERATORS: [(&str, &str, &str); 10] = [
    ("PGExp", "^", "write `power(a, b)`"),
    ("BitwiseNot", "~", "write `-1 - a`; before a pattern `~` stands between two texts"),
    ("PGPostfixFactorial", "!", "write `factorial(a)`"),
    ("PGPrefixFactorial", "!!", "write `factorial(a)`"),
    ("PGSquareRoot", "|/", "write `sqrt(a)`"),
    ("PGCubeRoot", "||/", "write `cbrt(a)`"),
    ("PGAbs", "@", "write `abs(a)`"),
    ("PGStartsWith", "^@", "write `starts_with(a, b)`"),
    ("PGOverlap", "&&", ""),
    ("Overlaps", "OVERLAPS", "compare the ends: `a < d AND c < b`"),
];

/// Expressions that the optimizer should have removed before the physical plan: their name in the plan, a description, and a
/// replacement.
const UNPLANNED: [(&str, &str, &str); 6] = [
    (
        "OuterReferenceColumn",
        "a query in FROM that reads columns of the tables before it (LATERAL)",
        "write a join with a condition; the first rows of each are those with row_number() OVER (PARTITION BY … ORDER BY …) <= n",
    ),
    (
        "ScalarSubquery",
        "a scalar subquery in an aggregate function or in ORDER BY, or one correlated by another operator than `=`,",
        "compute it in a subquery: SELECT sum(n) FROM (SELECT (SELECT …) AS n FROM t) q; or write a join",
    ),
    ("Exists", "EXISTS outside of WHERE", "`(SELECT count(*) FROM … WHERE …) > 0` is the same"),
    (
        "InSubquery",
        "IN with a query outside of WHERE, or with a correlated query that has LIMIT,",
        "join with the query",
    ),
    (
        "WindowFunction",
        "ORDER BY a window function that is not in the SELECT",
        "name it there: SELECT …, rank() OVER (…) AS place … ORDER BY place",
    ),
    (
        "AggregateFunction",
        "GROUP BY ALL beside such an aggregate",
        "name the columns to group by: GROUP BY 1, 2",
    ),
];

/// Returns an error with the meaning of DataFusion's text, or `None` for an unknown text.
pub(super) fn reword(text: &str) -> Option<Error> {
    if let Some(rest) = text.strip_prefix("Physical plan does not support logical expression ") {
        let found = node_name(rest);
        return Some(lookup(&UNPLANNED, found).unwrap_or_else(|| not_yet(&format!("`{found}` here"))));
    }
    if text.starts_with("Correlated scalar subquery can only be used in ") {
        return lookup(&UNPLANNED, "ScalarSubquery");
    }
    let node = text
        .strip_prefix("Unsupported ast node in sqltorel: ")
        .or_else(|| text.strip_prefix("Unsupported ast node "));
    if let Some(rest) = node {
        let found = node_name(rest);
        return Some(lookup(&NODES, found).unwrap_or_else(|| not_yet(&format!("`{found}` here"))));
    }
    let operator = text
        .strip_prefix("Unsupported binary operator: ")
        .or_else(|| text.strip_prefix("Unsupported SQL unary operator "));
    if let Some(rest) = operator {
        // The parser prints an operator without a variant of its own in quotes.
        let found = rest.split('"').nth(1).unwrap_or(node_name(rest));
        let entry = OPERATORS.iter().find(|(theirs, _, _)| *theirs == found);
        let (sign, hint) = entry.map_or((found, ""), |(_, sign, hint)| (*sign, *hint));
        return Some(hinted(not_yet(&format!("the operator `{sign}`")), hint));
    }
    of_json(text).or_else(|| in_windows(text)).or_else(|| clause(text))
}

/// Rewords errors about the operators that access parts of json.
fn of_json(text: &str) -> Option<Error> {
    let physical = text.strip_prefix("Binary operator '").and_then(|rest| rest.split('\'').next());
    let logical = || text.strip_prefix("Operator ")?.strip_suffix(" is not yet supported");
    let sign = match physical.or_else(logical)? {
        "AtArrow" => "@>",
        "ArrowAt" => "<@",
        sign => sign,
    };
    let error = not_yet(&format!("the operator `{}`", name::printable(sign)));
    Some(error.hint("json is stored as text: store the values that you query in columns, or in a struct"))
}

fn in_windows(text: &str) -> Option<Error> {
    if let Some((_, rest)) =
        text.split_once("sliding accumulator because `retract_batch` is not implemented: ")
    {
        let function = rest.split('(').next().unwrap_or_default();
        let error = not_yet(&format!("`{}` over a sliding frame", name::printable(function)));
        return Some(error.hint("let the frame begin at UNBOUNDED PRECEDING"));
    }
    text.starts_with("There is only support Literal types for field at idx").then(|| {
        not_yet("an argument of a window function that differs by row, as in lag(a, b),")
            .hint("write a constant: lag(a, 2)")
    })
}

fn clause(text: &str) -> Option<Error> {
    if text.starts_with("Unsupported LIMIT expression") || text.starts_with("Unsupported OFFSET expression") {
        let clause = text.split(' ').nth(1).unwrap_or_default();
        return Some(
            not_yet(&format!("{clause} by anything but a number"))
                .hint(format!("write {clause} 10, or {clause} $1")),
        );
    }
    (text == "ANY in LIKE expression").then(|| not_yet("LIKE ANY").hint("write `a LIKE 'x%' OR a LIKE 'y%'`"))
}

/// Rewords the error about a function in FROM whose argument is a column.
pub(super) fn argument(text: &str) -> Option<Error> {
    let (_, given) = text.strip_prefix("Argument #")?.split_once(", got ")?;
    (given.starts_with("Column(") || given.starts_with("OuterReferenceColumn(")).then(|| {
        not_yet("a function in FROM that reads columns")
            .hint("`SELECT a, unnest(generate_series(1, a)) FROM t` makes rows of each row")
    })
}

fn lookup(table: &[(&str, &str, &str)], found: &str) -> Option<Error> {
    let (_, what, hint) = table.iter().find(|(theirs, _, _)| *theirs == found)?;
    Some(hinted(Error::invalid(format!("{what} is not supported yet")), hint))
}

fn hinted(error: Error, hint: &str) -> Error {
    if hint.is_empty() { error } else { error.hint(hint) }
}

/// Returns the name of a node, at the beginning of its debug output.
fn node_name(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// Rewords the error about an invalid regular expression, which the regex library shows over several lines.
pub(super) fn pattern(text: &str) -> Option<Error> {
    let hint = "a backslash escapes a character: `\\(`; LIKE has only the wildcards `%` and `_`";
    if text.starts_with("Compiled regex exceeds size limit") {
        return Some(Error::invalid("a regular expression is too large").hint("repeat less in it"));
    }
    let (_, shown) = text.split_once("regex parse error:\n").or_else(|| {
        // This error does not say what is wrong.
        text.split_once("Regular expression did not compile: ").map(|(_, shown)| ("", shown))
    })?;
    let why = shown.split_once("error: ").map(|(_, why)| why.lines().next().unwrap_or_default().trim());
    // The library numbers the lines of a pattern that has several.
    let first = shown.lines().next().unwrap_or_default();
    let found = shown.lines().nth(1).is_none_or(|line| line.trim_start().starts_with('^')).then_some(first);
    let found = match found.map(|found| found.strip_prefix("    ").unwrap_or(found)) {
        Some(found) if !found.is_empty() => format!("`{}`", name::printable(found)),
        _ => "a pattern".into(),
    };
    let error = match why {
        Some(why) if !why.is_empty() => {
            Error::invalid(format!("{found} is not a valid regular expression: {why}"))
        }
        _ => Error::invalid(format!("{found} is not a valid regular expression")),
    };
    Some(error.hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_called_by_its_name() {
        for (theirs, ours) in [
            (
                "Correlated scalar subquery can only be used in Projection, Filter, Aggregate plan nodes",
                "a scalar subquery in an aggregate function or in ORDER BY, or one correlated by another operator than `=`, is not supported yet",
            ),
            ("Unsupported binary operator: PGExp", "the operator `^` is not supported yet"),
            ("Unsupported binary operator: Custom(\"<->\")", "the operator `<->` is not supported yet"),
            ("Unsupported SQL unary operator BitwiseNot", "the operator `~` is not supported yet"),
            ("Unsupported ast node in sqltorel: RLike { negated: false }", "RLIKE is not supported yet"),
            ("Unsupported ast node Pivot { table: Table {", "PIVOT is not supported yet"),
            ("Unsupported ast node in sqltorel: Prior(Id", "`Prior` here is not supported yet"),
            ("Operator -> is not yet supported", "the operator `->` is not supported yet"),
            (
                "Binary operator 'AtArrow' is not supported in the physical expr",
                "the operator `@>` is not supported yet",
            ),
            (
                "Aggregate can not be used as a sliding accumulator because `retract_batch` is not implemented: array_agg(v.x) ORDER BY [v.x ASC NULLS LAST]",
                "`array_agg` over a sliding frame is not supported yet",
            ),
            (
                "There is only support Literal types for field at idx: 1 in Window Function",
                "an argument of a window function that differs by row, as in lag(a, b), is not supported yet",
            ),
            (
                "Unsupported LIMIT expression: Some(ScalarSubquery(<subquery>))",
                "LIMIT by anything but a number is not supported yet",
            ),
        ] {
            assert_eq!(reword(theirs).map(|e| e.message().to_owned()).as_deref(), Some(ours), "{theirs}");
        }
        assert!(reword("CAST with format is not supported").is_none());
    }

    #[test]
    fn a_regular_expression_is_said_to_be_wrong_in_one_line() {
        let shown = "regex parse error:\n    (\n    ^\nerror: unclosed group";
        let whole =
            format!("Compute error: Regular expression did not compile: Syntax(\n~~~\n{shown}\n~~~\n)");
        let lines = "regex parse error:\n~~~~\n1: a\n2: (\n   ^\n~~~~\nerror: unclosed group";
        for (theirs, ours) in [
            (shown, "`(` is not a valid regular expression: unclosed group"),
            (whole.as_str(), "`(` is not a valid regular expression: unclosed group"),
            (lines, "a pattern is not a valid regular expression: unclosed group"),
            ("Regular expression did not compile: (", "`(` is not a valid regular expression"),
        ] {
            assert_eq!(pattern(theirs).map(|e| e.message().to_owned()).as_deref(), Some(ours), "{theirs}");
        }
        assert!(pattern("Divide by zero").is_none());
    }
}
