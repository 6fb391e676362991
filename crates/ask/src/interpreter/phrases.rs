//! Phrases of a question: row limits, aggregates, values after column names, conjunctions, and the rest.

use types::TableDef;

use super::is_number;
use super::negations::{Negations, PrecedingNegation};
use crate::number::Number;
use crate::task::*;
use crate::time;
use crate::vocabulary as v;
use crate::words::{Word, Words};

/// The largest number of rows that a question may ask for.
const LIMIT_MAX: usize = 100;

/// Returns the row limit of `last 5`, `top 3` or `5 newest`.
pub(super) fn limit(words: &mut Words) -> Option<usize> {
    for at in 0..words.len() {
        let ranks = [v::LATEST, v::OLDEST, v::HIGHEST, v::LOWEST, v::SLOWEST, v::FASTEST];
        if words.list[at].used || !ranks.iter().any(|rank| rank.contains(&words.at(at))) {
            continue;
        }
        for beside in [Some(at + 1), at.checked_sub(1)].into_iter().flatten() {
            let number = crate::comparison::number(words.at(beside)).and_then(Number::to_i64);
            let number = number.and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=LIMIT_MAX).contains(n));
            if let Some(number) = number.filter(|_| !words.list[beside].used) {
                words.mark(beside..beside + 1);
                return Some(number);
            }
        }
    }
    None
}

pub(super) fn aggregate(words: &mut Words) -> Option<Aggregate> {
    // `most recent` is not a maximum.
    for at in 0..words.len() {
        if words.at(at) == "most" && matches!(words.at(at + 1), "recent" | "recently") {
            words.mark(at..at + 1);
        }
    }
    for count in v::COUNT {
        for at in 0..words.len() {
            if words.starts(at, count) {
                words.mark(at..at + count.len());
                return Some(Aggregate::Count);
            }
        }
    }
    let kinds = [
        (v::AVERAGE, Aggregate::Average),
        (v::SUM, Aggregate::Sum),
        (v::HIGHEST, Aggregate::Highest),
        (v::LOWEST, Aggregate::Lowest),
        (v::LATEST, Aggregate::Latest),
        (v::OLDEST, Aggregate::Oldest),
    ];
    // `at least` was already taken as a comparison.
    let (of, kind) = kinds.into_iter().find(|(of, _)| free(words, of).next().is_some())?;
    words.take(of);
    Some(kind)
}

/// Returns the values after a column's name, and the number of `or` between them.
pub(super) fn named_values(
    def: &TableDef,
    column: usize,
    name: &std::ops::Range<usize>,
    words: &mut Words,
    negations: &mut Negations,
    is_name: impl Fn(usize) -> bool,
) -> Option<(ColumnValues, usize)> {
    let is_bool = def.schema.columns[column].data_type == types::DataType::Bool;
    let wants = ValueKind::of(def, column);
    let before = name.start.checked_sub(1).map_or("", |at| words.at(at)).to_owned();
    let (mut at, mut is_introduced) =
        (name.end, matches!(before.as_str(), "with" | "where" | "whose" | "having"));
    let mut negated = false;
    loop {
        // `country IS` with nothing after it: `IS` is the value.
        let is_last =
            words.list.get(at + 1).is_none_or(|next| next.used || matches!(next.text.as_str(), "or" | "and"));
        if is_last && words.list.get(at).is_some_and(Word::is_code) {
            break;
        }
        match words.at(at) {
            "is" | "was" | "=" | "are" | "equals" => is_introduced = true,
            "!=" | "<>" => (is_introduced, negated) = (true, true),
            "of" => {}
            _ => match negations.end_at(at) {
                Some(end) => {
                    (at, negated) = (end, !negated);
                    continue;
                }
                None => break,
            },
        }
        at += 1;
    }
    let first = at;
    let mut values = Vec::new();
    let mut unsure = Vec::new();
    let mut ors = 0;
    while let Some(is_sure) = value_at(words, at, is_introduced, wants).filter(|_| !is_name(at)) {
        // `San Francisco` is one value.
        let goes_on = |at: &usize| {
            words.list.get(*at).is_some_and(|word| word.is_title() && is_unknown(word)) && !is_name(*at)
        };
        let is_open = wants == ValueKind::Anything && words.list[at].is_title();
        let end = (at + 1..).take_while(goes_on).last().filter(|_| is_open).map_or(at + 1, |last| last + 1);
        let raw: Vec<&str> = words.list[at..end].iter().map(|word| word.raw.as_str()).collect();
        let value = raw.join(" ");
        if !is_sure {
            unsure.push(value.clone());
        }
        values.push(value);
        words.mark(at..end);
        at = end - 1;
        // A word after `or` is a value, even if it has another meaning.
        if words.at(at + 1) != "or" || is_name(at + 2) || value_at(words, at + 2, true, wants).is_none() {
            break;
        }
        (at, ors) = (at + 2, ors + 1);
    }
    if values.is_empty() && is_bool {
        // `paid orders`, `orders that are not paid`.
        values.push("true".into());
    }
    if !values.is_empty() {
        negations.take_in(name.end..first);
        negated ^= negations.take_before(words, name.start, |before| before.negates_condition()).is_some();
    }
    (!values.is_empty()).then_some((ColumnValues { column, values, unsure, negated }, ors))
}

/// The kind of values that a column has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Anything,
    Number,
    Time,
}

impl ValueKind {
    fn of(def: &TableDef, column: usize) -> ValueKind {
        match def.schema.columns[column].data_type {
            _ if is_number(def, column) => ValueKind::Number,
            types::DataType::Timestamp | types::DataType::Date => ValueKind::Time,
            _ => ValueKind::Anything,
        }
    }

    fn can_be(self, word: &str) -> bool {
        match self {
            ValueKind::Anything => true,
            ValueKind::Number => Number::parse(word).is_some(),
            ValueKind::Time => time::window_of_word(word).is_some(),
        }
    }
}

/// Parses `price is null` (true) and `price is not missing` (false).
pub(super) fn null(
    name: &std::ops::Range<usize>,
    words: &mut Words,
    negations: &mut Negations,
) -> Option<bool> {
    let is = name.end + usize::from(matches!(words.at(name.end), "is" | "are" | "was" | "="));
    let not = negations.end_at(is);
    let null = not.unwrap_or(is);
    let is_null = matches!(words.at(null), "null" | "missing") && !words.list[null].used;
    is_null.then(|| {
        words.mark(null..null + 1);
        negations.take_in(is..null);
        not.is_none()
    })
}

/// Returns `Some(true)` if rows without a value in the column are asked for, `Some(false)` if rows with one are.
pub(super) fn missing(
    def: &TableDef,
    column: usize,
    name: &std::ops::Range<usize>,
    words: &mut Words,
    negations: &mut Negations,
) -> Option<bool> {
    let before = |at: usize| at.checked_sub(1).map_or("", |at| words.at(at));
    let article = usize::from(matches!(before(name.start), "a" | "an" | "the" | "any" | "some"));
    let start = name.start - article;
    if before(start) == "missing" {
        words.mark(start - 1..start);
        return Some(true);
    }
    let data_type = &def.schema.columns[column].data_type;
    let is_time = matches!(data_type, types::DataType::Timestamp | types::DataType::Date);
    // `not shipped` means that the time is missing; `not price` has no meaning.
    let none = |not: &PrecedingNegation| not.text == "no" || not.text == "without" || (is_time && not.is_not);
    if *data_type != types::DataType::Bool && negations.take_before(words, name.start, none).is_some() {
        return Some(true);
    }
    let with = matches!(before(start), "with" | "having");
    let done = is_time && matches!(before(start), "is" | "are" | "was" | "were" | "been" | "already");
    (*data_type != types::DataType::Bool && (with || done)).then_some(false)
}

/// Returns `Some` if the word after a column's name is a value, with true if that is certain. `said`: a word such as `is` leads
/// to it.
fn value_at(words: &Words, at: usize, is_introduced: bool, wants: ValueKind) -> Option<bool> {
    let word = words.list.get(at)?;
    if !wants.can_be(&word.text) {
        return None;
    }
    let text = word.text.as_str();
    let is_small = v::FILLERS.contains(&text) || v::SMALL.contains(&text) || v::NO_VALUES.contains(&text);
    // `country is OR`, with nothing for it to join.
    let joins = matches!(text, "or" | "and" | "if" | "not");
    let next = words.list.get(at + 1);
    let is_end = next.is_none_or(|next| next.used || matches!(next.text.as_str(), "or" | "and"));
    match word {
        _ if word.quoted => Some(true),
        _ if word.used => None,
        _ if word.capital && !joins => Some(is_introduced || !is_small),
        _ if word.capital => (is_introduced && is_end).then_some(true),
        _ if !is_introduced => (!is_small).then_some(true),
        _ if v::NO_VALUES.contains(&text) => None,
        _ if v::SMALL.contains(&text) => is_end.then_some(false),
        _ => Some(true),
    }
}

/// Returns true for a negating word. `NO` is a country.
pub(super) fn is_negation(words: &Words, at: usize) -> bool {
    let word = &words.list[at];
    // `no` negates the word after it; in `country is no` there is none.
    let is_last = word.text == "no" && matches!(words.at(at + 1), "" | "or" | "and");
    !is_last && !word.quoted && !word.used && !word.is_code() && v::NEGATIONS.contains(&word.text.as_str())
}

/// Returns the unknown words, with those that `or` joins in one group.
pub(super) fn value_words(
    words: &Words,
    mut negation: impl FnMut(usize) -> Option<String>,
) -> Vec<ValueWords> {
    let is_unknown = |at: usize| words.list.get(at).is_some_and(is_unknown);
    let mut found: Vec<ValueWords> = Vec::new();
    for at in (0..words.len()).filter(|at| is_unknown(*at)) {
        let word = words.list[at].raw.clone();
        let joined = at >= 2 && words.at(at - 1) == "or" && is_unknown(at - 2);
        match found.last_mut().filter(|_| joined) {
            Some(last) => last.words.push(word),
            None => {
                found.push(ValueWords { words: vec![word], not: negation(at) });
            }
        }
    }
    found
}

/// Returns the column to count requests by: `per route`.
pub(super) fn group_column(words: &mut Words) -> Option<&'static str> {
    const COLUMNS: [(&str, &str); 9] = [
        ("route", "route"),
        ("path", "route"),
        ("url", "route"),
        ("method", "method"),
        ("status", "status"),
        ("table", "table"),
        ("principal", "principal"),
        ("key", "principal"),
        ("user", "principal"),
    ];
    for at in 1..words.len() {
        if v::GROUPED.contains(&words.at(at - 1))
            && let Some((_, column)) = COLUMNS.iter().find(|(word, _)| *word == v::singular(words.at(at)))
        {
            words.mark(at - 1..at + 1);
            return Some(column);
        }
    }
    None
}

/// Returns the conjunction of the conditions in a text.
pub(super) fn conjunction_of(words: &Words) -> Conjunction {
    let any = |word: &str| free(words, &[word]).next().is_some();
    match (any("and"), any("or")) {
        (true, true) => Conjunction::Unclear,
        (true, false) => Conjunction::All,
        _ => Conjunction::Any,
    }
}

/// Returns the unmarked words that are one of these.
pub(super) fn free<'a>(words: &'a Words, of: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let is_free = move |word: &&Word| !word.used && !word.quoted && of.contains(&word.text.as_str());
    words.list.iter().filter(is_free).map(|word| word.text.as_str())
}

pub(super) fn trimmed(text: &str) -> &str {
    text.trim().trim_end_matches(['?', '.', '!', ',', ';', ' '])
}

/// Returns true if the answer is yes or no.
pub(super) fn asks_yes_or_no(words: &Words) -> bool {
    const BEGIN: [&str; 13] =
        ["is", "are", "was", "were", "has", "have", "had", "do", "does", "did", "can", "any", "whether"];
    BEGIN.contains(&words.at(0)) || words.any(&["any", "whether", "anything", "ever"])
}

/// Returns the words that were not understood, without fillers.
pub(super) fn unknown_words(words: &Words) -> Vec<String> {
    words.list.iter().filter(|word| is_unknown(word)).map(|word| word.raw.clone()).collect()
}

pub(super) fn is_unknown(word: &Word) -> bool {
    !word.used
        && (word.quoted || word.is_code() || !v::FILLERS.contains(&word.text.as_str()))
        && word.text.chars().any(char::is_alphanumeric)
}

/// Returns the unknown words in groups joined by `or`, to be looked up as values of tables.
pub(super) fn alternatives(words: &Words) -> Vec<Vec<String>> {
    let is_sought = |word: &String| !v::ASKING.contains(&word.to_lowercase().as_str());
    let found = value_words(words, |_| None)
        .into_iter()
        .map(|bare| bare.words.into_iter().filter(is_sought).collect());
    found.filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// Returns the unknown words for a full-text search. Question words such as `why` are dropped.
pub(super) fn search_terms(words: &Words) -> Vec<String> {
    let is_sought =
        |word: &&Word| is_unknown(word) && (word.quoted || !v::ASKING.contains(&word.text.as_str()));
    words.list.iter().filter(is_sought).map(|word| word.raw.clone()).collect()
}
