//! Intervals may be written as in PostgreSQL and ISO 8601: `1 day 02:30`, `2 hours ago`, `P1DT2H`. DataFusion reads only units in
//! words, so literals are rewritten to those.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, Interval, Statement, TypedString, Value, visit_expressions_mut,
};

/// Rewrites the interval literals of a statement. A text of unknown form is left unchanged.
pub fn rewrite_intervals(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        match expr {
            Expr::Interval(Interval { value, leading_field: None, .. }) => spell(value),
            Expr::Cast { expr: value, data_type: SqlType::Interval { .. }, .. } => spell(value),
            Expr::TypedString(TypedString { value, data_type: SqlType::Interval { .. }, .. }) => {
                spell_value(&mut value.value);
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
}

fn spell(expr: &mut Expr) {
    if let Expr::Value(value) = expr {
        spell_value(&mut value.value);
    }
}

fn spell_value(value: &mut Value) {
    if let Value::SingleQuotedString(text) = value
        && let Some(words) = iso(text.trim()).or_else(|| words(text))
    {
        *text = words;
    }
}

/// Reads `P1Y2M3W4DT5H6M7.5S`, where each part may have a sign.
fn iso(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('P').filter(|rest| !rest.is_empty())?;
    let mut units = [('Y', "years"), ('M', "months"), ('W', "weeks"), ('D', "days")].as_slice();
    let mut words = Vec::new();
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T') {
            units = &[('H', "hours"), ('M', "minutes"), ('S', "seconds")];
            rest = time;
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_uppercase())?;
        let (number, letter) = (&rest[..end], rest[end..].chars().next()?);
        let at = units.iter().position(|(own, _)| *own == letter)?;
        words.push(format!("{} {}", decimal(number)?, units[at].1));
        units = &units[at + 1..];
        rest = &rest[end + 1..];
    }
    (!words.is_empty()).then(|| words.join(" "))
}

/// Reads clock times, `[-]hours:minutes[:seconds]`, and `ago` at the end.
fn words(text: &str) -> Option<String> {
    let mut parts: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let is_ago = parts.last().is_some_and(|last| last.eq_ignore_ascii_case("ago"));
    if is_ago {
        parts.pop();
    } else if !text.contains(':') {
        return None;
    }
    let mut words = Vec::new();
    for part in parts {
        match clock(&part) {
            Some(spelled) => words.extend(spelled),
            None => words.push(part),
        }
    }
    if is_ago {
        for word in words.iter_mut().filter(|word| decimal(word).is_some()) {
            let negated = word.strip_prefix('-').map(str::to_owned);
            *word = negated.unwrap_or_else(|| format!("-{}", word.trim_start_matches('+')));
        }
    }
    Some(words.join(" "))
}

fn clock(part: &str) -> Option<Vec<String>> {
    let (sign, shown) = match part.strip_prefix('-') {
        Some(shown) => ("-", shown),
        None => ("", part.strip_prefix('+').unwrap_or(part)),
    };
    let numbers: Vec<&str> = shown.split(':').collect();
    let (hours, minutes, seconds) = match numbers.as_slice() {
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, *seconds),
        _ => return None,
    };
    let is_whole = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let below_60 =
        |number: &str| decimal(number).and_then(|n| n.parse::<f64>().ok()).is_some_and(|n| n < 60.0);
    if !is_whole(hours) || !is_whole(minutes) || !below_60(minutes) || !below_60(seconds) {
        return None;
    }
    let words = [(*hours, "hours"), (*minutes, "minutes"), (seconds, "seconds")];
    Some(words.into_iter().flat_map(|(number, unit)| [format!("{sign}{number}"), unit.to_owned()]).collect())
}

/// Returns the text if it is a number with a digit before its point, and at most one sign.
fn decimal(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(['-', '+']);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.parse::<f64>().is_ok()
        && text.len() <= digits.len() + 1;
    is_number.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_is_put_into_words() {
        for (theirs, ours) in [
            ("02:30", "2 hours 30 minutes 0 seconds"),
            ("1 day -02:30:15.5", "1 day -02 hours -30 minutes -15.5 seconds"),
            ("1 day 2 hours ago", "-1 day -2 hours"),
            ("-3 days ago", "3 days"),
            ("P1Y2M3DT4H5M6.5S", "1 years 2 months 3 days 4 hours 5 minutes 6.5 seconds"),
            ("PT-1H", "-1 hours"),
            ("P2W", "2 weeks"),
        ] {
            let words = iso(theirs).or_else(|| words(theirs)).unwrap();
            assert_eq!(words.replace("02", "2"), ours.replace("02", "2"), "{theirs}");
        }
        for theirs in ["1 day", "P", "PT", "P1H", "P1D2Y", "02:75", "a:b"] {
            let found = iso(theirs).or_else(|| words(theirs)).filter(|words| words != theirs);
            assert_eq!(found, None, "{theirs}");
        }
    }
}
