//! Splits a question into parts: `if X, Y`, several sentences, `and`. Separators inside quotes are ignored.

use crate::words::{Words, quoted};

/// Splits `if X, Y`, `if X then Y` and `Y if X` into the condition X and the consequence Y. Returns `None` for `tell me if X`,
/// which asks X itself.
pub(crate) fn conditional(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let lower = masked(text);
    const BEGIN: [&str; 5] = ["if ", "in case ", "whenever ", "when ", "provided "];
    if let Some(begin) = BEGIN.iter().find(|begin| lower.starts_with(**begin)) {
        let from = begin.len();
        const ENDS: [&str; 14] = [
            ", then ",
            ",then ",
            " then ",
            ", ",
            ": ",
            " show me ",
            " show it",
            " show them",
            " show the ",
            " tell me",
            " let me know",
            " list ",
            " what ",
            " how ",
        ];
        let (at, end) = ENDS.iter().find_map(|end| lower[from..].find(end).map(|at| (at + from, *end)))?;
        // A consequence keeps its first words (`show`, `tell`, `list` …); only pure separators are cut off.
        let separator = if end.starts_with([',', ':']) || end == " then " { end.len() } else { 1 };
        let (condition, consequence) = (&text[from..at], &text[at + separator..]);
        // `when was …` asks for a time and is not a condition.
        let is_question = *begin == "when " && end.starts_with(' ') && end != " then ";
        return (!is_question && !condition.trim().is_empty() && !consequence.trim().is_empty())
            .then_some((condition, consequence));
    }
    let at = lower.find(" if ")?;
    let (first, behind) = (&text[..at], &text[at + 4..]);
    // `is X Y, if so Z`.
    if let Some(then) = lower[at + 4..].strip_prefix("so").filter(|then| then.starts_with([' ', ','])) {
        let then = behind[behind.len() - then.len()..].trim_start_matches([' ', ',']);
        let condition = first.trim_end_matches([' ', ',', '.', ';', '?']);
        let then = then.strip_prefix("then ").unwrap_or(then);
        return (!condition.is_empty() && !then.is_empty()).then_some((condition, then));
    }
    let consequence = first;
    let words = Words::of(consequence);
    const ASKS: [&str; 5] = ["know", "me", "check", "see", "whether"];
    let only_asks =
        words.list.last().is_some_and(|word| ASKS.contains(&word.text.as_str())) || words.len() == 0;
    (!only_asks && !behind.trim().is_empty()).then_some((behind, consequence))
}

/// Returns the text in ASCII lower case with quoted parts blanked out. It has the same length in bytes, so positions found in it
/// hold for the original.
pub(crate) fn masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut is_begin = true;
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        // A single quote opens a quotation only at the beginning of a word; elsewhere it is an apostrophe.
        let is_open = first == '"' || is_begin;
        match quoted(&text[at..], first).filter(|_| is_open) {
            Some((_, length)) => {
                masked.extend(std::iter::repeat_n('"', length));
                (at, is_begin) = (at + length, false);
            }
            None => {
                masked.push(first.to_ascii_lowercase());
                (at, is_begin) = (at + first.len_utf8(), first.is_whitespace());
            }
        }
    }
    debug_assert_eq!(masked.len(), text.len());
    masked
}

pub(crate) fn split_once_any<'a>(text: &'a str, separators: &[&str]) -> Option<(&'a str, &'a str)> {
    let lower = masked(text);
    separators.iter().find_map(|separator| {
        let at = lower.find(separator)?;
        Some((&text[..at], &text[at + separator.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_what_follows_come_apart() {
        for (text, expected) in [
            ("if X is Y, show it", Some(("X is Y", "show it"))),
            ("If X is Y then how many Z?", Some(("X is Y", "how many Z?"))),
            ("if X is Y, then tell me", Some(("X is Y", "tell me"))),
            ("if X is Y show it", Some(("X is Y", "show it"))),
            ("in case X is Y, show it", Some(("X is Y", "show it"))),
            ("how many Z if X is Y?", Some(("X is Y?", "how many Z"))),
            ("if X is above 1,000, show it", Some(("X is above 1,000", "show it"))),
            ("if \"a, b\" is Y, show it", Some(("\"a, b\" is Y", "show it"))),
            ("is X Y, if so how many Z", Some(("is X Y", "how many Z"))),
            ("is X Y? If so, show it", Some(("is X Y", "show it"))),
            // These ask X itself.
            ("tell me if X is Y", None),
            ("let me know if X is Y", None),
            ("check if X is Y", None),
            ("is X Y", None),
            ("if X is Y", None),
            ("if , show it", None),
            ("when was X last written", None),
        ] {
            assert_eq!(conditional(text), expected, "{text}");
        }
    }

    #[test]
    fn quoted_separators_do_not_split_and_positions_stay() {
        let text = "Ä \"B; and ü\" AND c \"open";
        let masked = masked(text);
        assert_eq!(masked.len(), text.len());
        assert!(!masked.contains(';') && masked.contains(" and c \"open"), "{masked}");
        assert_eq!(split_once_any(text, &[" and "]), Some(("Ä \"B; and ü\"", "c \"open")));
        let text = "don't 'B and C' and “D and E”";
        assert_eq!(split_once_any(text, &[" and "]), Some(("don't 'B and C'", "“D and E”")));
    }
}
