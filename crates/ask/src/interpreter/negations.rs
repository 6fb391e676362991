//! Assigns each negation to the words that it negates. A negation left without any is named as not understood.

use std::ops::Range;

use super::QuestionElements;
use crate::vocabulary as v;
use crate::words::Words;

/// Words that may stand between a negation and its object: `not from DE`, `without a country of DE`.
const BETWEEN: [&str; 24] = [
    "with", "from", "in", "of", "to", "for", "at", "on", "by", "where", "whose", "having", "have", "has",
    "a", "an", "the", "any", "yet", "been", "being", "already", "come", "comes",
];
/// Negations of two words, or of words that do not negate elsewhere.
const OTHERS: [&[&str]; 7] = [
    &["other", "than"],
    &["except", "for"],
    &["except"],
    &["excluding"],
    &["all", "but"],
    &["everything", "but"],
    &["apart", "from"],
];

/// The negations of a question about a table.
pub(super) struct Negations(Vec<NegationWords>);

struct NegationWords {
    range: Range<usize>,
    /// The words as written.
    raw: String,
    /// True for `not` and the like. `no` means absence, unless it follows `with`.
    is_not: bool,
    used: bool,
}

impl Negations {
    pub fn of(words: &mut Words, elements: &QuestionElements) -> Negations {
        let one =
            |range: Range<usize>, raw: String, is_not| NegationWords { range, raw, is_not, used: false };
        let mut all: Vec<NegationWords> = Vec::new();
        for not in &elements.negations {
            let is_not = v::NOT.contains(&not.text.as_str()) || matches!(&*not.text, "never" | "neither");
            // `no longer paid`.
            let longer = not.text == "no" && words.at(not.at + 1) == "longer";
            let end = not.at + 1 + usize::from(longer);
            words.mark(not.at..end);
            let raw = if longer { format!("{} longer", not.raw) } else { not.raw.clone() };
            all.push(one(not.at..end, raw, is_not || longer));
        }
        // `neither DE nor AT` is `not DE or AT`.
        if elements.negations.iter().any(|not| not.text == "neither") {
            let nor = words.list.iter_mut().filter(|word| word.text == "nor" && !word.quoted);
            nor.for_each(|word| word.text = "or".into());
        }
        for at in 0..words.len() {
            let Some(phrase) = OTHERS.iter().find(|phrase| words.starts(at, phrase)) else { continue };
            let range = at..at + phrase.len();
            if range.clone().all(|at| !words.list[at].used) {
                let raw: Vec<&str> = words.list[range.clone()].iter().map(|word| &*word.raw).collect();
                all.push(one(range.clone(), raw.join(" "), true));
                words.mark(range);
            }
        }
        Negations(all)
    }

    /// Returns the end of the negation that begins at `at`.
    pub fn end_at(&self, at: usize) -> Option<usize> {
        let one = self.0.iter().find(|one| one.range.start == at && one.is_not && !one.used)?;
        Some(one.range.end)
    }

    /// Takes the negations in a range of words.
    pub fn take_in(&mut self, range: Range<usize>) {
        self.0.iter_mut().filter(|one| range.contains(&one.range.start)).for_each(|one| one.used = true);
    }

    /// Takes the negation before a word if `wanted` accepts it, and returns it as written.
    pub fn take_before(
        &mut self,
        words: &Words,
        at: usize,
        wanted: impl Fn(&PrecedingNegation) -> bool,
    ) -> Option<String> {
        let mut at = at;
        loop {
            if let Some(one) = self.0.iter_mut().find(|one| one.range.end == at && !one.used) {
                let before = one.range.start.checked_sub(1).map_or("", |at| words.at(at));
                let with = matches!(before, "with" | "having" | "have" | "has");
                let text = if one.range.len() == 1 { words.at(one.range.start) } else { "" };
                one.used = wanted(&PrecedingNegation { is_not: one.is_not, with, text });
                return one.used.then(|| one.raw.clone());
            }
            match at.checked_sub(1) {
                Some(before) if BETWEEN.contains(&words.at(before)) => at = before,
                _ => return None,
            }
        }
    }

    /// Returns the words of the negations that negate nothing, and true if the question asks for absence.
    pub fn unused(self, words: &Words) -> (Vec<String>, bool) {
        let mut left = Vec::new();
        let mut is_nothing = false;
        for one in self.0.into_iter().filter(|one| !one.used) {
            let before = one.range.start.checked_sub(1).map_or("", |at| words.at(at));
            if one.is_not || matches!(before, "with" | "having" | "and" | "or" | "but") {
                left.push(one.raw)
            } else {
                is_nothing = true
            }
        }
        (left, is_nothing)
    }
}

/// A negation with its surroundings.
pub(super) struct PrecedingNegation<'a> {
    pub is_not: bool,
    /// True if it follows `with`.
    pub with: bool,
    pub text: &'a str,
}

impl PrecedingNegation<'_> {
    /// Returns true if it negates a condition: `not from DE`, `with no price above 25`.
    pub fn negates_condition(&self) -> bool {
        self.is_not || self.with
    }
}
