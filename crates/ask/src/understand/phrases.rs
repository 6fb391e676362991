//! Phrases of a question: numbers of rows, figures, values behind columns, what joins conditions, and what is left over.

use types::TableDef;

use super::is_number;
use crate::task::*;
use crate::vocabulary as v;
use crate::words::{Word, Words};

/// Rows that a question may ask for.
const LIMIT_MAX: usize = 100;

/// `last 5`, `top 3`, `5 newest`: how many rows.
pub(super) fn limit(words: &mut Words) -> Option<usize> {
    for at in 0..words.len() {
        let ranks = [v::LATEST, v::OLDEST, v::HIGHEST, v::LOWEST, v::SLOWEST, v::FASTEST];
        if words.list[at].used || !ranks.iter().any(|rank| rank.contains(&words.at(at))) {
            continue;
        }
        for beside in [Some(at + 1), at.checked_sub(1)].into_iter().flatten() {
            let number = words.at(beside).parse::<usize>().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
            if let Some(number) = number.filter(|_| !words.list[beside].used) {
                words.mark(beside..beside + 1);
                return Some(number);
            }
        }
    }
    None
}

pub(super) fn aggregate(words: &mut Words) -> Option<Aggregate> {
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
    // `at least` is a comparison by now, and no lowest.
    let (of, kind) = kinds.into_iter().find(|(of, _)| free(words, of).next().is_some())?;
    words.take(of);
    Some(kind)
}

/// The values behind a column's name, and how many `or` there are between them.
pub(super) fn named_values(
    def: &TableDef,
    column: usize,
    name: &std::ops::Range<usize>,
    words: &mut Words,
    is_name: impl Fn(usize) -> bool,
) -> Option<(Named, usize)> {
    let is_bool = def.schema.columns[column].data_type == types::DataType::Bool;
    let wants_number = is_number(def, column);
    let before = name.start.checked_sub(1).map_or("", |at| words.at(at)).to_owned();
    let (mut at, mut said) = (name.end, matches!(before.as_str(), "with" | "where" | "whose" | "having"));
    let mut negated = false;
    loop {
        // `country IS`, with nothing behind it.
        let is_last =
            words.list.get(at + 1).is_none_or(|next| next.used || matches!(next.text.as_str(), "or" | "and"));
        if is_last && words.list.get(at).is_some_and(Word::is_code) {
            break;
        }
        match words.at(at) {
            "is" | "was" | "=" | "are" | "equals" => said = true,
            "of" => {}
            "not" => negated = true,
            _ => break,
        }
        at += 1;
    }
    let mut values = Vec::new();
    let mut unsure = Vec::new();
    let mut ors = 0;
    while let Some(is_sure) = value_at(words, at, said, wants_number).filter(|_| !is_name(at)) {
        values.push(words.list[at].raw.clone());
        if !is_sure {
            unsure.push(words.list[at].raw.clone());
        }
        words.mark(at..at + 1);
        // Behind `or` stands what was meant before it, whatever word it is.
        if words.at(at + 1) != "or"
            || is_name(at + 2)
            || value_at(words, at + 2, true, wants_number).is_none()
        {
            break;
        }
        (at, ors) = (at + 2, ors + 1);
    }
    if values.is_empty() && is_bool {
        // `paid orders`, `orders that are not paid`.
        values.push("true".into());
        negated |= before == "not";
    }
    (!values.is_empty()).then_some((Named { column, values, unsure, negated }, ors))
}

/// Whether a value stands there behind a column's name, and whether that is sure. `said`: something like `is` leads to it.
fn value_at(words: &Words, at: usize, said: bool, wants_number: bool) -> Option<bool> {
    let word = words.list.get(at)?;
    if wants_number && word.text.parse::<f64>().is_err() {
        return None;
    }
    let text = word.text.as_str();
    let is_small = v::FILLERS.contains(&text) || v::SMALL.contains(&text) || v::NO_VALUES.contains(&text);
    // `country is OR`, with nothing that it could join.
    let joins = matches!(text, "or" | "and" | "if" | "not");
    let next = words.list.get(at + 1);
    let is_end = next.is_none_or(|next| next.used || matches!(next.text.as_str(), "or" | "and"));
    match word {
        _ if word.quoted => Some(true),
        _ if word.used => None,
        _ if word.capital && !joins => Some(said || !is_small),
        _ if word.capital => (said && is_end).then_some(true),
        _ if !said => (!is_small).then_some(true),
        _ if v::NO_VALUES.contains(&text) => None,
        _ if v::SMALL.contains(&text) => is_end.then_some(false),
        _ => Some(true),
    }
}

/// Whether a word says that something is not so. `NO` is a country.
pub(super) fn is_negation(words: &Words, at: usize) -> bool {
    let word = &words.list[at];
    // `no` wants something behind it: `country is no` has none.
    let is_last = word.text == "no" && matches!(words.at(at + 1), "" | "or" | "and");
    !is_last && !word.quoted && !word.used && !word.is_code() && v::NEGATIONS.contains(&word.text.as_str())
}

/// Words that nobody knows, those that `or` joins together.
pub(super) fn bare(words: &Words) -> Vec<Bare> {
    let is_unknown = |at: usize| words.list.get(at).is_some_and(is_unknown);
    let mut found: Vec<Bare> = Vec::new();
    for at in (0..words.len()).filter(|at| is_unknown(*at)) {
        let word = words.list[at].raw.clone();
        let joined = at >= 2 && words.at(at - 1) == "or" && is_unknown(at - 2);
        match found.last_mut().filter(|_| joined) {
            Some(last) => last.words.push(word),
            None => {
                let negated = at.checked_sub(1).is_some_and(|before| v::NOT.contains(&words.at(before)));
                found.push(Bare { words: vec![word], negated });
            }
        }
    }
    found
}

/// The column that requests are counted by: `per route`.
pub(super) fn grouped(words: &mut Words) -> Option<&'static str> {
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

/// What joins conditions in a text.
pub(super) fn join_of(words: &Words) -> Join {
    let any = |word: &str| free(words, &[word]).next().is_some();
    match (any("and"), any("or")) {
        (true, true) => Join::Unclear,
        (true, false) => Join::All,
        _ => Join::Any,
    }
}

/// Words that are one of these, and that nobody has taken.
pub(super) fn free<'a>(words: &'a Words, of: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let is_free = move |word: &&Word| !word.used && !word.quoted && of.contains(&word.text.as_str());
    words.list.iter().filter(is_free).map(|word| word.text.as_str())
}

pub(super) fn trimmed(text: &str) -> &str {
    text.trim().trim_end_matches(['?', '.', '!', ',', ';', ' '])
}

/// Whether the answer is yes or no.
pub(super) fn is_whether(words: &Words) -> bool {
    const BEGIN: [&str; 13] =
        ["is", "are", "was", "were", "has", "have", "had", "do", "does", "did", "can", "any", "whether"];
    BEGIN.contains(&words.at(0)) || words.any(&["any", "whether", "anything", "ever"])
}

/// What nobody understood. Fillers are not worth it.
pub(super) fn left(words: &Words) -> Vec<String> {
    words.list.iter().filter(|word| is_unknown(word)).map(|word| word.raw.clone()).collect()
}

pub(super) fn is_unknown(word: &Word) -> bool {
    !word.used
        && (word.quoted || word.is_code() || !v::FILLERS.contains(&word.text.as_str()))
        && word.text.chars().any(char::is_alphanumeric)
}

/// The same by what `or` joins, for values of tables.
pub(super) fn alternatives(words: &Words) -> Vec<Vec<String>> {
    let is_sought = |word: &String| !v::ASKING.contains(&word.to_lowercase().as_str());
    let found = bare(words).into_iter().map(|bare| bare.words.into_iter().filter(is_sought).collect());
    found.filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// The same for a search: who asks why still wants texts about it.
pub(super) fn sought(words: &Words) -> Vec<String> {
    let is_sought =
        |word: &&Word| is_unknown(word) && (word.quoted || !v::ASKING.contains(&word.text.as_str()));
    words.list.iter().filter(is_sought).map(|word| word.raw.clone()).collect()
}
