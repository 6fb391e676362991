//! Rewords DataFusion's most common errors. DataFusion gives them no codes, so they are recognised by the beginning of their
//! text. An unknown text is left unchanged.

use std::sync::LazyLock;

use sql::names::similar_names;
use sql::not_yet;
use types::{Error, name};

const CAST: &str = "CAST one of them";
/// Functions that exist only with OVER. DataFusion reports them as unknown functions.
const WINDOW: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// Replacements for functions that do not exist.
const INSTEAD: [(&str, &str); 3] = [
    ("div", "`a / b` of integers is a whole number; of others write `trunc(a / b)`"),
    ("regexp_split_to_array", "string_to_array(text, ', ') splits at a text"),
    ("to_number", "CAST the text to numeric"),
];

/// Names of the functions that DataFusion brings along, for suggestions.
static FUNCTIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let scalar = datafusion::functions::all_default_functions();
    let nested = datafusion::functions_nested::all_default_nested_functions();
    let aggregate = datafusion::functions_aggregate::all_default_aggregate_functions();
    let scalar = scalar.into_iter().chain(nested).map(|function| function.name().to_owned());
    scalar.chain(aggregate.into_iter().map(|function| function.name().to_owned())).collect()
});

/// Memory consumers by the beginning of their name in DataFusion, with a description.
const CONSUMERS: [(&str, &str); 13] = [
    ("FunctionValues", "a value that a function made"),
    ("ExternalSorterMerge", "the merge of a sort"),
    ("ExternalSorter", "a sort"),
    ("SortPreservingMerge", "the merge of a sort"),
    ("TopK", "the first rows of an order"),
    ("GroupedHashAggregate", "a grouping"),
    ("AggregateStream", "an aggregate"),
    ("HashJoin", "a join"),
    ("NestedLoopJoin", "a join"),
    ("CrossJoin", "a join"),
    ("SMJStream", "a join"),
    ("Repartition", "a queue between threads"),
    ("rows to be written", "the rows to write"),
];

/// Returns an error with the meaning of DataFusion's text, or `None` for an unknown text.
pub(super) fn reword(text: &str) -> Option<Error> {
    if text.starts_with("Divide by zero") {
        return Some(Error::invalid("a division by zero").hint("`a / nullif(b, 0)` is null there"));
    }
    arithmetic(text).or_else(|| function(text)).or_else(|| cast(text)).or_else(|| clause(text))
}

/// Rewords errors about wrong arguments that DataFusion reports as bugs of its own.
pub(super) fn argument_error(text: &str) -> Option<Error> {
    if text.contains("array_resize: failed to convert size to usize") {
        return Some(Error::invalid("`array_resize` takes a length from 0 on"));
    }
    let counts_from_one = text.contains("Nth value indices are 1 based");
    counts_from_one.then(|| Error::invalid("`nth_value` counts rows from 1"))
}

/// Describes which consumer asked for how much memory. DataFusion's memory pool says so somewhere in the text.
pub(super) fn memory(text: &str) -> String {
    let asked = || {
        let (before, after) = text.split_once(" bytes and asks for ")?;
        let (name, held) = before.rsplit_once(" holds ")?;
        let (asked, left) = after.split_once(" more, ")?;
        let bytes = |text: &str| text.split(' ').next()?.parse::<u64>().ok().map(mib);
        let name = name.lines().last()?.rsplit(": ").next()?;
        let name =
            CONSUMERS.iter().find(|(theirs, _)| name.starts_with(theirs)).map_or("a part of it", |(_, n)| n);
        let (held, asked, left) = (bytes(held)?, bytes(asked)?, bytes(left)?);
        Some(format!("{name} holds {held} and asks for {asked} more, {left} are left for it"))
    };
    asked().unwrap_or_else(|| {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(text);
        name::printable(last.rsplit("Resources exhausted: ").next().unwrap_or(last))
    })
}

fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if bytes == 0 { "none".into() } else { format!("{mib:.1} MiB") }
}

/// Rewords errors about an operator between types that do not fit.
fn arithmetic(text: &str) -> Option<Error> {
    let operands = text
        .strip_prefix("Cannot coerce arithmetic expression ")
        .and_then(|rest| rest.strip_suffix(" to valid types"))
        .or_else(|| {
            let rest = text.strip_prefix("Cannot infer common argument type for ")?;
            let rest = rest.strip_prefix("comparison operation ");
            rest.or_else(|| text.split_once("logical boolean operation ").map(|(_, rest)| rest))
        });
    if let Some(operands) = operands {
        let parts = words(operands);
        let (left, right) = (parts.first()?, parts.last()?);
        let operator = parts.get(1..parts.len() - 1)?.join(" ");
        let (left, right) = (type_name(left), type_name(right));
        return match operator.as_str() {
            "" => None,
            // DataFusion plans `NOT x` as `x IS DISTINCT FROM true`.
            "IS DISTINCT FROM" if right == "bool" => {
                Some(Error::invalid(format!("a condition is expected, {left} was given")))
            }
            _ => Some(Error::invalid(format!("`{operator}` does not take {left} and {right}")).hint(CAST)),
        };
    }
    let rest = text.strip_prefix("There isn't a common type to coerce ")?;
    let (types, operator) = rest.strip_suffix(" expression")?.split_once(" in ")?;
    let (left, right) = types.split_once(" and ")?;
    let (left, right) = (type_name(left), type_name(right));
    Some(Error::invalid(format!("`{operator}` does not take {left} and {right}")).hint(CAST))
}

/// Rewords errors about calls: unknown functions and wrong arguments.
fn function(text: &str) -> Option<Error> {
    if let Some(rest) = text.strip_prefix("Invalid function '") {
        let (wanted, rest) = rest.split_once('\'')?;
        let error = Error::invalid(format!("there is no function `{}`", name::printable(wanted)));
        if WINDOW.contains(&wanted.to_ascii_lowercase().as_str()) {
            let lower = wanted.to_ascii_lowercase();
            return Some(
                Error::invalid(format!("`{lower}` is a window function"))
                    .hint(format!("write `{lower}(…) OVER (ORDER BY …)`")),
            );
        }
        if let Some((_, hint)) = INSTEAD.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)) {
            return Some(error.hint(*hint));
        }
        // DataFusion's own suggestion only counts letters: for `coutn` it suggests `cot`.
        let suggested = rest.split('\'').nth(1);
        let known = FUNCTIONS.iter().map(String::as_str).chain(suggested);
        return Some(match similar_names(wanted, known).as_slice() {
            [] => error,
            [close, ..] => error.hint(format!("did you mean `{close}`?")),
        });
    }
    let called = |rest: &str| rest.split('\'').next().map(|name| name.to_owned());
    let name = [
        "Internal error: Function '",
        "Function '",
        "Failed to coerce arguments to satisfy a call to '",
        "'",
    ]
    .iter()
    .find_map(|begin| called(text.strip_prefix(begin)?))
    .filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
    let about_arguments = ["failed to match any signature", "No function matches the given name"];
    let name = name.filter(|_| {
        about_arguments.iter().any(|phrase| text.contains(phrase)) || text.contains("coercion failed")
    });
    // The error of an array function begins differently and names the function only at its end.
    let given = text.split_once("argument types '").map(|(_, rest)| rest);
    let name = name.or_else(|| given.and_then(|given| given.split('(').next()).map(str::to_owned))?;
    let name = name::printable(&name);
    if text.contains("does not support zero arguments")
        || text.contains("argument types") && given?.contains("()'")
    {
        return Some(Error::invalid(format!("`{name}` needs an argument")));
    }
    let counts: Vec<(&str, &str)> = text
        .match_indices("' expects ")
        .filter_map(|(at, begin)| {
            let (wanted, rest) = text[at + begin.len()..].split_once(" arguments but received ")?;
            Some((wanted, rest.split(|c: char| !c.is_ascii_digit()).next()?))
        })
        .filter(|(wanted, _)| wanted.bytes().all(|b| b.is_ascii_digit()))
        .collect();
    let requires = text.contains("but received ") && text.contains("(DataType: ");
    if let Some((wanted, given)) = counts.first().filter(|_| !requires) {
        let arguments = if *wanted == "1" { "argument" } else { "arguments" };
        let were = if *given == "1" { "was" } else { "were" };
        return Some(Error::invalid(format!("`{name}` takes {wanted} {arguments}, {given} {were} given")));
    }
    let hint = "check their number and types; CAST those of another type";
    if let Some(given) = given.and_then(|given| given.split_once('(')?.1.split_once(")'")) {
        let types: Vec<String> = parts(given.0).into_iter().map(type_name).collect();
        return Some(Error::invalid(format!("`{name}` does not take ({})", types.join(", "))).hint(hint));
    }
    if let Some((_, rest)) = text.split_once("(DataType: ") {
        let given = type_name(parts(&until_closing_bracket(rest)?).first()?);
        return Some(Error::invalid(format!("`{name}` does not take {given}")).hint(hint));
    }
    Some(Error::invalid(format!("`{name}` does not take these arguments")).hint(hint))
}

/// Rewords errors about a text that is not a valid value of a type.
fn cast(text: &str) -> Option<Error> {
    let hint = "TRY_CAST gives null instead";
    let rest = text.strip_prefix("Cannot cast string '").or_else(|| text.strip_prefix("Cannot cast value '"));
    if let Some((found, wanted)) = rest.and_then(|rest| rest.rsplit_once("' to value of ")) {
        let wanted = type_name(wanted.strip_suffix(" type").unwrap_or(wanted));
        return Some(
            Error::invalid(format!("`{}` is not a valid {wanted}", name::printable(found))).hint(hint),
        );
    }
    let (found, _) = text.strip_prefix("Error parsing timestamp from '")?.rsplit_once("': ")?;
    Some(
        Error::invalid(format!("`{}` is not a valid timestamp", name::printable(found)))
            .hint("write it as 2026-11-21T08:06:51Z"),
    )
}

/// Rewords errors about expressions in a clause that does not allow them.
fn clause(text: &str) -> Option<Error> {
    if text.starts_with("Column in SELECT must be in GROUP BY") {
        let (_, rest) = text.split_once("column \"")?;
        let (column, _) = rest.split_once("\" must appear")?;
        return Some(
            Error::invalid(format!(
                "`{}` is neither in GROUP BY nor in an aggregate function",
                name::printable(column)
            ))
            .hint("add it to GROUP BY, or say which of its values, as in `max(…)`"),
        );
    }
    if text.starts_with("HAVING clause references") {
        return Some(Error::invalid(
            "HAVING uses a column that is neither in GROUP BY nor in an aggregate function",
        ));
    }
    if let Some(rest) = text.strip_prefix("Cannot create filter with non-boolean predicate '") {
        let (what, given) = rest.rsplit_once("' returning ")?;
        let (what, given) = (name::printable(what), type_name(given));
        return Some(Error::invalid(format!("WHERE needs a condition; `{what}` is of type {given}")));
    }
    // A check of DataFusion's on its own plan failed.
    if text.starts_with("Plan: [") && text.contains(" does not satisfy ") {
        return Some(
            Error::invalid("no plan was found that returns all rows in the required order")
                .hint("compute one window function after the other, each in a query of its own"),
        );
    }
    if text.starts_with("Substring without for/from is not valid") {
        return Some(Error::invalid("`substr` needs a start position").hint("write `substr(text, 1, 3)`"));
    }
    if let Some(rest) = text.strip_prefix("Order by column out of bounds, specified: ") {
        let (wanted, there) = rest.split_once(", max: ")?;
        return Some(Error::invalid(format!("ORDER BY names column {wanted}, the query has {there}")));
    }
    if let Some(given) = text.strip_prefix("Expected LIMIT to be an integer or null, but got ") {
        return Some(Error::invalid(format!("LIMIT is a whole number, {} was given", type_name(given))));
    }
    if let Some(rest) = text.strip_prefix("Unsupported Value '") {
        let (what, hint) = match rest.split('(').next().unwrap_or_default() {
            "UnicodeStringLiteral" => ("text as U&'…'", "write its characters directly, or as E'\\u00e9'"),
            "SingleQuotedByteStringLiteral" => ("bits as b'…'", "write bytes as X'05'"),
            _ => ("a literal of this kind", "write a number, or a text in single quotes"),
        };
        return Some(not_yet(what).hint(hint));
    }
    if text.starts_with("Cannot access field at argument") {
        let error = Error::invalid("the expression before the point is not a struct, so it has no fields");
        return Some(
            error.hint("`FROM generate_series(1, 3) AS g` calls its column `g`: write `g`, or `g.g`"),
        );
    }
    if text.starts_with("Negation only supports") {
        return Some(Error::invalid("`-` takes a number, an interval or a timestamp"));
    }
    None
}

/// Converts the name of an Arrow type, as DataFusion prints it, to the name of a Polynya type.
fn type_name(text: &str) -> String {
    let text = text.trim();
    let head = text.split(['(', '<']).next().unwrap_or(text);
    match head {
        "Utf8" | "LargeUtf8" | "Utf8View" => "string".into(),
        "Boolean" => "bool".into(),
        "Binary" | "LargeBinary" | "BinaryView" | "FixedSizeBinary" => "binary".into(),
        "Date32" | "Date64" => "date".into(),
        "Timestamp" | "Interval" | "Duration" => head.to_lowercase(),
        "Time32" | "Time64" => "time".into(),
        "List" | "LargeList" | "FixedSizeList" | "Struct" => head.trim_start_matches("Large").to_lowercase(),
        "Decimal128" | "Decimal256" => text.replacen(head, "decimal", 1).replace(", ", ","),
        _ => name::printable(text).to_lowercase(),
    }
}

/// Splits at spaces outside of brackets.
fn words(text: &str) -> Vec<&str> {
    split(text, ' ')
}

/// Splits at commas outside of brackets.
fn parts(text: &str) -> Vec<&str> {
    split(text, ',')
}

fn split(text: &str, at: char) -> Vec<&str> {
    let mut depth = 0i32;
    text.split(move |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == at && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
    .collect()
}

/// Returns the text up to the bracket that closes one opened before the text.
fn until_closing_bracket(text: &str) -> Option<String> {
    let mut depth = 1;
    let end = text.find(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    })?;
    Some(text[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_are_said_in_our_words() {
        for (theirs, ours) in [
            ("Divide by zero error", "a division by zero"),
            (
                "Cannot coerce arithmetic expression Utf8 + Int64 to valid types",
                "`+` does not take string and int64",
            ),
            (
                "Cannot coerce arithmetic expression Timestamp(ns, \"UTC\") + Int64 to valid types",
                "`+` does not take timestamp and int64",
            ),
            ("Invalid function 'foo'.\nDid you mean 'pow'?", "there is no function `foo`"),
            ("Invalid function 'lag'.\nDid you mean 'log'?", "`lag` is a window function"),
            (
                "Function 'upper' expects 1 arguments but received 2 No function matches the given name and argument types 'upper(Int64, Int64)'. You",
                "`upper` takes 1 argument, 2 were given",
            ),
            (
                "'upper' does not support zero arguments No function matches the given name and argument types 'upper()'. You",
                "`upper` needs an argument",
            ),
            (
                "Function 'abs' expects NativeType::Numeric but received NativeType::String No function matches the given name and argument types 'abs(Utf8)'. You",
                "`abs` does not take (string)",
            ),
            (
                "Internal error: Function 'sum' failed to match any signature, errors: Error during planning: Function 'sum' requires TypeSignatureClass::Decimal, but received String (DataType: Utf8).,Error",
                "`sum` does not take string",
            ),
            (
                "Failed to coerce arguments to satisfy a call to 'left' function: coercion from Utf8 to the signature OneOf([Exact([Utf8View, Int64])]) failed No function matches the given name and argument types 'left(Utf8, Decimal128(1, 1))'. You",
                "`left` does not take (string, decimal(1,1))",
            ),
            (
                "array_element does not support type Int64 No function matches the given name and argument types 'array_element(Int64, Int64)'. You",
                "`array_element` does not take (int64, int64)",
            ),
            (
                "Function 'coalesce' user-defined coercion failed with \"Execution error: coalesce must have at least one argument\" No function matches the given name and argument types 'coalesce()'. You",
                "`coalesce` needs an argument",
            ),
            (
                "Internal error: Function 'power' failed to match any signature, errors: Error during planning: Function 'power' expects 2 arguments but received 1,Error",
                "`power` takes 2 arguments, 1 was given",
            ),
            ("Cannot cast string 'x' to value of Int64 type", "`x` is not a valid int64"),
            (
                "Cannot infer common argument type for comparison operation Int64 IS DISTINCT FROM Boolean",
                "a condition is expected, int64 was given",
            ),
            (
                "Cannot infer common argument type for logical boolean operation Utf8 AND Boolean",
                "`AND` does not take string and bool",
            ),
            (
                "There isn't a common type to coerce Int64 and Utf8 in LIKE expression",
                "`LIKE` does not take int64 and string",
            ),
            (
                "Plan: [\"BoundedWindowAggExec: mode=[Sorted]\"] does not satisfy order requirements: [a@1 NA]. Child-0 order: []",
                "no plan was found that returns all rows in the required order",
            ),
            (
                "Cannot create filter with non-boolean predicate 't.a' returning Int64",
                "WHERE needs a condition; `t.a` is of type int64",
            ),
        ] {
            assert_eq!(reword(theirs).map(|e| e.message().to_owned()).as_deref(), Some(ours), "{theirs}");
        }
        for kept in
            ["Date part 'foo' not supported", "something new", "'", "Function '", "Cannot cast string '"]
        {
            assert!(reword(kept).is_none(), "{kept}: {:?}", reword(kept));
        }
    }

    #[test]
    fn who_needs_more_memory_is_said_in_one_line() {
        let theirs = "Additional allocation failed for ExternalSorter[0] with top memory consumers (across reservations) as:\n  a\nResources exhausted: ExternalSorter[0] holds 0 bytes and asks for 50171395 more, 3145728 are left for it\n";
        assert_eq!(memory(theirs), "a sort holds none and asks for 47.8 MiB more, 3.0 MiB are left for it");
        assert_eq!(memory("Resources exhausted: too many files\n"), "too many files");
    }

    #[test]
    fn a_function_is_suggested_only_if_it_is_near() {
        let hint = |text: &str| reword(text).and_then(|e| e.hint_text().map(str::to_owned));
        assert_eq!(
            hint("Invalid function 'coun'.\nDid you mean 'count'?").as_deref(),
            Some("did you mean `count`?")
        );
        assert_eq!(
            hint("Invalid function 'coutn'.\nDid you mean 'cot'?").as_deref(),
            Some("did you mean `count`?")
        );
        assert_eq!(hint("Invalid function 'foo'.\nDid you mean 'cos'?"), None);
    }
}
