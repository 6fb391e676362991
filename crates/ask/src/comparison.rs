//! Comparisons in questions: `slower than 20 ms`, `above 80 %`, `at least 5`.

use std::cmp::Ordering;

use crate::number::Number;
use crate::words::Words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    Unequal,
}

impl Op {
    pub fn sql(self) -> &'static str {
        match self {
            Op::Above => ">",
            Op::AtLeast => ">=",
            Op::Below => "<",
            Op::AtMost => "<=",
            Op::Equal => "=",
            Op::Unequal => "<>",
        }
    }

    /// Returns true if the comparison holds. It never holds for NaN.
    pub fn holds(self, left: f64, right: f64) -> bool {
        left.partial_cmp(&right).is_some_and(|order| self.fits(order))
    }

    /// Returns true if the comparison holds for operands in this order.
    pub fn fits(self, order: Ordering) -> bool {
        match self {
            Op::Above => order.is_gt(),
            Op::AtLeast => order.is_ge(),
            Op::Below => order.is_lt(),
            Op::AtMost => order.is_le(),
            Op::Equal => order.is_eq(),
            Op::Unequal => order.is_ne(),
        }
    }

    /// Returns the words of a sentence: `above` in `above 80 %`.
    pub fn phrase(self) -> &'static str {
        match self {
            Op::Above => "above",
            Op::AtLeast => "at least",
            Op::Below => "below",
            Op::AtMost => "at most",
            Op::Equal => "exactly",
            Op::Unequal => "not",
        }
    }

    /// Returns the operator that holds exactly where this one does not.
    fn negated(self) -> Op {
        match self {
            Op::Above => Op::AtMost,
            Op::AtLeast => Op::Below,
            Op::Below => Op::AtLeast,
            Op::AtMost => Op::Above,
            Op::Equal => Op::Unequal,
            Op::Unequal => Op::Equal,
        }
    }

    /// Returns true if large values satisfy the comparison.
    pub fn is_upward(self) -> bool {
        matches!(self, Op::Above | Op::AtLeast)
    }
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Percent,
    /// Time, with the microseconds of one unit.
    Time(u64),
    /// Bytes, with the bytes of one unit.
    Bytes(u64),
}

impl Unit {
    pub fn parse(text: &str) -> Option<Unit> {
        Some(match text {
            "%" | "percent" | "pct" => Unit::Percent,
            "us" | "µs" | "μs" | "microsecond" | "microseconds" => Unit::Time(1),
            "ms" | "millisecond" | "milliseconds" | "msec" => Unit::Time(1_000),
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Time(1_000_000),
            "min" | "mins" | "minute" | "minutes" => Unit::Time(60_000_000),
            "h" | "hour" | "hours" => Unit::Time(3_600_000_000),
            "byte" | "bytes" => Unit::Bytes(1),
            "kb" => Unit::Bytes(1_000),
            "mb" => Unit::Bytes(1_000_000),
            "gb" => Unit::Bytes(1_000_000_000),
            "tb" => Unit::Bytes(1_000_000_000_000),
            "kib" => Unit::Bytes(1 << 10),
            "mib" => Unit::Bytes(1 << 20),
            "gib" => Unit::Bytes(1 << 30),
            "tib" => Unit::Bytes(1 << 40),
            _ => return None,
        })
    }
}

/// A comparison with a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub op: Op,
    pub number: Number,
    pub unit: Option<Unit>,
    /// True if the words speak of speed: `slower than`, `longer than`.
    pub of_time: bool,
    /// True if the rows for which the comparison fails are asked for, including those without a value.
    pub negated: bool,
    /// True if it applies to each row, even where an aggregate is asked for: `average price of orders with size above 5`.
    pub of_rows: bool,
    /// The comparison as written: `slower than 20 ms`.
    pub phrase: String,
    /// Position of the word before the comparison, which may name the compared column.
    pub before: Option<usize>,
    /// Position of the word after the comparison, which may name the counted things.
    pub behind: Option<usize>,
}

impl Comparison {
    /// Returns the number in microseconds. A number without a unit counts as milliseconds.
    pub fn micros(&self) -> Option<f64> {
        match self.unit {
            Some(Unit::Time(micros)) => Some(self.number.to_f64() * micros as f64),
            None => Some(self.number.to_f64() * 1_000.0),
            Some(_) => None,
        }
    }
}

/// Phrases of comparison with their operator, and true if they speak of time. Longer phrases come first.
const PHRASES: [(&[&str], Op, bool); 52] = [
    (&["greater", "than", "or", "equal", "to"], Op::AtLeast, false),
    (&["less", "than", "or", "equal", "to"], Op::AtMost, false),
    (&["no", "more", "than"], Op::AtMost, false),
    (&["not", "more", "than"], Op::AtMost, false),
    (&["no", "less", "than"], Op::AtLeast, false),
    (&["not", "less", "than"], Op::AtLeast, false),
    (&["no", "slower", "than"], Op::AtMost, true),
    (&["not", "above"], Op::AtMost, false),
    (&["not", "below"], Op::AtLeast, false),
    (&["not", "over"], Op::AtMost, false),
    (&["not", "under"], Op::AtLeast, false),
    (&["greater", "than"], Op::Above, false),
    (&["more", "than"], Op::Above, false),
    (&["higher", "than"], Op::Above, false),
    (&["larger", "than"], Op::Above, false),
    (&["bigger", "than"], Op::Above, false),
    (&["slower", "than"], Op::Above, true),
    (&["longer", "than"], Op::Above, true),
    (&["less", "than"], Op::Below, false),
    (&["fewer", "than"], Op::Below, false),
    (&["lower", "than"], Op::Below, false),
    (&["smaller", "than"], Op::Below, false),
    (&["faster", "than"], Op::Below, true),
    (&["quicker", "than"], Op::Below, true),
    (&["shorter", "than"], Op::Below, true),
    (&["at", "least"], Op::AtLeast, false),
    (&["at", "most"], Op::AtMost, false),
    (&["up", "to"], Op::AtMost, false),
    (&["equal", "to"], Op::Equal, false),
    (&["above"], Op::Above, false),
    (&["over"], Op::Above, false),
    (&["exceeds"], Op::Above, false),
    (&["exceed"], Op::Above, false),
    (&["exceeded"], Op::Above, false),
    (&["exceeding"], Op::Above, false),
    (&["beyond"], Op::Above, false),
    (&["below"], Op::Below, false),
    (&["under"], Op::Below, false),
    (&["beneath"], Op::Below, false),
    (&["equals"], Op::Equal, false),
    (&["exactly"], Op::Equal, false),
    (&[">="], Op::AtLeast, false),
    (&["=>"], Op::AtLeast, false),
    (&["<="], Op::AtMost, false),
    (&["=<"], Op::AtMost, false),
    (&[">"], Op::Above, false),
    (&["<"], Op::Below, false),
    (&["="], Op::Equal, false),
    (&["=="], Op::Equal, false),
    (&["!="], Op::Unequal, false),
    (&["<>"], Op::Unequal, false),
    (&["minimum"], Op::AtLeast, false),
];

/// Finds the comparisons in a question and marks their words.
pub(crate) fn comparisons(words: &mut Words) -> Vec<Comparison> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if let Some((both, end)) = between(words, at) {
            words.mark(at..end);
            found.extend(both);
            at = end;
            continue;
        }
        match at_word(words, at) {
            Some((comparison, end)) => {
                words.mark(at..end);
                found.push(comparison);
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// Parses `between 5 and 10 ms`, both bounds included. [`crate::time::window`] runs first and takes `between` two times.
fn between(words: &Words, at: usize) -> Option<([Comparison; 2], usize)> {
    if words.at(at) != "between" || words.list[at].used {
        return None;
    }
    let low = number(words.at(at + 1))?;
    let low_unit = Unit::parse(words.at(at + 2));
    let and = at + 2 + usize::from(low_unit.is_some());
    if words.at(and) != "and" {
        return None;
    }
    let high = number(words.at(and + 1))?;
    let high_unit = Unit::parse(words.at(and + 2));
    let end = and + 2 + usize::from(high_unit.is_some());
    let one = |op: Op, number: Number, unit: Option<Unit>| {
        let (before, behind) = (named_before(words, at), (end < words.len()).then_some(end));
        let phrase = format!("{} {}", op.phrase(), number.phrase());
        let of_time = matches!(unit, Some(Unit::Time(_)));
        Comparison { op, number, unit, of_time, negated: false, of_rows: false, phrase, before, behind }
    };
    let (low_unit, high_unit) = (low_unit.or(high_unit), high_unit.or(low_unit));
    Some(([one(Op::AtLeast, low, low_unit), one(Op::AtMost, high, high_unit)], end))
}

/// Returns the position of the word that a comparison is about.
fn named_before(words: &Words, at: usize) -> Option<usize> {
    let mut before = at.checked_sub(1)?;
    while before > 0
        && matches!(words.at(before), "is" | "was" | "are" | "were" | "been" | "went" | "of" | "than")
    {
        before -= 1;
    }
    Some(before)
}

fn at_word(words: &Words, at: usize) -> Option<(Comparison, usize)> {
    if words.list[at].used {
        return None;
    }
    let known = |at: usize| PHRASES.iter().find(|(phrase, ..)| words.starts(at, phrase));
    // `not equal to 5`: phrases that contain their own `not` have precedence.
    let turned = known(at).is_none() && words.at(at) == "not" && !words.list[at].used;
    let (phrase, op, of_time) = known(at + usize::from(turned))?;
    let op = &if turned { op.negated() } else { *op };
    let number_at = at + usize::from(turned) + phrase.len();
    let number = number(words.at(number_at))?;
    let unit = Unit::parse(words.at(number_at + 1));
    let mut end = number_at + 1 + usize::from(unit.is_some());
    let mut op = *op;
    // `20 ms or more` names the bound first. Only `= 20 ms or more` is handled here; `above 20 ms or more` is not English.
    if words.starts(end, &["or", "more"]) && op == Op::Equal {
        (op, end) = (Op::AtLeast, end + 2);
    }
    let before = named_before(words, at);
    // A decimal comma is repeated in answers as a point, the way it was parsed.
    let is_comma = words.at(number_at).contains(',') && number.to_i64().is_none();
    let shown =
        |at: usize| if is_comma && at == number_at { number.phrase() } else { words.at(at).to_owned() };
    let phrase = (at..end).map(shown).collect::<Vec<_>>().join(" ");
    let behind = (end < words.len()).then_some(end);
    Some((
        Comparison {
            op,
            number,
            unit,
            of_time: *of_time,
            negated: false,
            of_rows: false,
            phrase,
            before,
            behind,
        },
        end,
    ))
}

/// Parses a number in digits, or in words up to ten.
pub(crate) fn number(word: &str) -> Option<Number> {
    const NAMES: [&str; 11] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    if let Some(n) = NAMES.iter().position(|name| *name == word) {
        return Some(Number::from(n as i64));
    }
    Number::parse(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Op, f64, Option<Unit>)> {
        comparisons(&mut Words::of(text)).into_iter().map(|c| (c.op, c.number.to_f64(), c.unit)).collect()
    }

    #[test]
    fn comparisons_are_found_with_number_and_unit() {
        let ms = Some(Unit::Time(1_000));
        assert_eq!(found("any request slower than 20 ms?"), [(Op::Above, 20.0, ms)]);
        assert_eq!(found("slower than 20ms"), [(Op::Above, 20.0, ms)]);
        assert_eq!(found("is cpu above 80 %"), [(Op::Above, 80.0, Some(Unit::Percent))]);
        assert_eq!(found("at least 1.5 gb"), [(Op::AtLeast, 1.5, Some(Unit::Bytes(1_000_000_000)))]);
        assert_eq!(
            found("price >= 10 and price < 1,000"),
            [(Op::AtLeast, 10.0, None), (Op::Below, 1000.0, None)]
        );
        assert_eq!(found("not equal to 5"), [(Op::Unequal, 5.0, None)]);
        assert_eq!(found("not larger than 5"), [(Op::AtMost, 5.0, None)]);
        assert_eq!(found("price != 5"), [(Op::Unequal, 5.0, None)]);
        assert_eq!(found("price <>5"), [(Op::Unequal, 5.0, None)]);
        assert_eq!(found("not more than five"), [(Op::AtMost, 5.0, None)]);
        assert_eq!(found("price above 50,5"), [(Op::Above, 50.5, None)]);
        assert_eq!(found("price above 1,00,5"), []);
        assert_eq!(found("temperature below -3"), [(Op::Below, -3.0, None)]);
        assert_eq!(found("price between 5 and 10"), [(Op::AtLeast, 5.0, None), (Op::AtMost, 10.0, None)]);
        assert_eq!(found("took between 1 and 5 ms"), [(Op::AtLeast, 1.0, ms), (Op::AtMost, 5.0, ms)]);
        assert_eq!(found("between 9:00 and 10:00"), []);
    }

    #[test]
    fn words_without_a_number_compare_nothing() {
        for text in
            ["over the last hour", "more than anything", "at least", "above the door", "is it under v1.2"]
        {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
