//! Recognizes values that look like words with another meaning: `who is New York`, `status is new`.

use types::DataType;

use super::Interpreter;
use crate::sources::is_user_table;
use crate::time;
use crate::vocabulary as v;
use crate::words::{Word, Words};

/// Words of the vocabulary that a value may begin with, or be.
const LIKE_VALUES: [&[&str]; 5] = [v::CHANGED, v::LATEST, v::OLDEST, v::HIGHEST, v::LOWEST];
/// The number of words of a capitalized value.
const WORDS_MAX: usize = 4;

impl Interpreter<'_> {
    /// Joins and quotes such values. This runs first, since it changes the positions of words.
    pub fn quote_values(&self, words: &mut Words) {
        self.join_capitals(words);
        let tables = self.lexicon.tables_in(words);
        let mut columns = self.lexicon.columns_in(words, None);
        columns.retain(|(table, column, _)| {
            let def = self.def(*table);
            let is_asked = tables.iter().any(|(query, _)| query == table) || self.listed.contains(table);
            (is_asked || (tables.is_empty() && is_user_table(def)))
                && def.schema.columns[*column].data_type == DataType::String
        });
        for at in 1..words.len() {
            let is_value = columns.iter().any(|(_, _, range)| {
                let before = range.start.checked_sub(1).map_or("", |before| words.at(before));
                let not = usize::from(words.at(range.end + 1) == "not");
                let is_end = matches!(words.at(at + 1), "" | "or" | "and");
                let is_said = matches!(words.at(range.end), "is" | "are" | "was" | "=" | "equals");
                (range.end == at && matches!(before, "with" | "whose"))
                    || (is_said && is_end && range.end + 1 + not == at)
            });
            let word = &mut words.list[at];
            word.quoted |= is_value && is_like_value(word);
        }
    }

    /// Joins capitalized words inside a sentence: `New York` is one value.
    fn join_capitals(&self, words: &mut Words) {
        // In a heading, where all words are capitalized, capitals give no information.
        if !words.list.iter().any(|word| !word.quoted && word.raw.starts_with(char::is_lowercase)) {
            return;
        }
        let mut at = 0;
        while at + 1 < words.len() {
            let tables = self.lexicon.tables_in(words);
            let columns = self.lexicon.columns_in(words, None);
            let is_name = |at: usize| {
                tables.iter().any(|(_, range)| range.contains(&at))
                    || columns.iter().any(|(_, _, range)| range.contains(&at))
            };
            let first = &words.list[at];
            let begins = first.is_title() && is_like_value(first) && !time::begins(words, at, self.now);
            let goes_on = |at: &usize| {
                let word = words.list.get(*at);
                word.is_some_and(|word| word.is_title() && !v::is_known(&word.text)) && !is_name(*at)
            };
            let end = (at + 1..at + WORDS_MAX).take_while(goes_on).last();
            if let Some(last) = end.filter(|_| begins && !is_name(at)) {
                words.join(at..last + 1);
            }
            at += 1;
        }
    }
}

fn is_like_value(word: &Word) -> bool {
    !word.quoted && LIKE_VALUES.iter().any(|list| list.contains(&word.text.as_str()))
}
