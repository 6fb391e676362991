//! The words of a question.

use crate::vocabulary as v;

/// One word of a question, with a mark once its meaning is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The word in lower case, without punctuation around it.
    pub text: String,
    /// The word as written.
    pub raw: String,
    /// True if the word stood in quotes: then it is a name or a value, never vocabulary.
    pub quoted: bool,
    /// True if the word is in capitals in a text that is not all capitals. So `AT` may be a value where `at` cannot.
    pub capital: bool,
    pub used: bool,
}

impl Word {
    fn new(raw: &str, quoted: bool) -> Self {
        Word { text: raw.to_lowercase(), raw: raw.to_owned(), quoted, capital: false, used: false }
    }

    /// Returns true for `York`: one capital before small letters.
    pub fn is_title(&self) -> bool {
        !self.quoted && is_title(&self.raw)
    }

    /// Returns true for two capitals, as in country codes: `AT`, `IT`, `NO`. `OR` and `IF` count as emphasis instead.
    pub fn is_code(&self) -> bool {
        self.capital && self.raw.len() == 2 && !matches!(self.raw.as_str(), "OR" | "IF")
    }
}

/// The words of a question, or of a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub list: Vec<Word>,
}

/// HTTP methods. They count only in capitals, since `get` and `put` are common verbs.
pub(crate) const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];

/// Contractions with their full forms.
const CONTRACTIONS: [(&str, &[&str]); 25] = [
    ("what's", &["what", "is"]),
    ("whats", &["what", "is"]),
    ("how's", &["how", "is"]),
    ("where's", &["where", "is"]),
    ("who's", &["who", "is"]),
    ("there's", &["there", "is"]),
    ("it's", &["it", "is"]),
    ("that's", &["that", "is"]),
    ("isn't", &["is", "not"]),
    ("isnt", &["is", "not"]),
    ("aren't", &["are", "not"]),
    ("wasn't", &["was", "not"]),
    ("wasnt", &["was", "not"]),
    ("weren't", &["were", "not"]),
    ("hasn't", &["has", "not"]),
    ("haven't", &["have", "not"]),
    ("didn't", &["did", "not"]),
    ("doesn't", &["does", "not"]),
    ("don't", &["do", "not"]),
    ("can't", &["can", "not"]),
    ("cannot", &["can", "not"]),
    ("won't", &["will", "not"]),
    ("i'm", &["i", "am"]),
    ("i've", &["i", "have"]),
    ("today's", &["today"]),
];

impl Words {
    pub fn of(text: &str) -> Words {
        let mut list = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { break };
            if let Some((inside, end)) = quoted(rest, first) {
                rest = &rest[end..];
                if !inside.trim().is_empty() {
                    list.push(Word::new(inside.trim(), true));
                }
                continue;
            }
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            push(&rest[..end], &mut list);
            rest = &rest[end..];
        }
        let is_capital = |word: &Word| word.raw.len() > 1 && word.raw.chars().all(|c| c.is_uppercase());
        // A text that is all in capitals gives no information by them.
        if list.iter().any(|word| !word.quoted && word.raw.chars().any(char::is_lowercase)) {
            list.iter_mut().for_each(|word| word.capital = !word.quoted && is_capital(word));
        }
        Words { list }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the text of an unquoted word; empty past the end.
    pub fn at(&self, at: usize) -> &str {
        self.list.get(at).filter(|word| !word.quoted).map_or("", |word| &word.text)
    }

    /// Returns true if these words stand at `at`.
    pub fn starts(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(i, word)| self.at(at + i) == *word)
    }

    /// Returns true if any unquoted word is one of these.
    pub fn any(&self, of: &[&str]) -> bool {
        self.list.iter().any(|word| !word.quoted && of.contains(&word.text.as_str()))
    }

    /// Marks every unquoted word that is one of these. Returns true if there was one.
    pub fn take(&mut self, of: &[&str]) -> bool {
        let mut any = false;
        for word in self.list.iter_mut().filter(|word| !word.quoted && of.contains(&word.text.as_str())) {
            word.used = true;
            any = true;
        }
        any
    }

    pub fn mark(&mut self, range: std::ops::Range<usize>) {
        let end = range.end.min(self.list.len());
        self.list[range.start.min(end)..end].iter_mut().for_each(|word| word.used = true);
    }

    pub fn unmark(&mut self, range: std::ops::Range<usize>) {
        let end = range.end.min(self.list.len());
        self.list[range.start.min(end)..end].iter_mut().for_each(|word| word.used = false);
    }

    /// Joins several words into one, as if they were quoted.
    pub fn join(&mut self, range: std::ops::Range<usize>) {
        let raw: Vec<&str> = self.list[range.clone()].iter().map(|word| word.raw.as_str()).collect();
        let joined = Word::new(&raw.join(" "), true);
        self.list.splice(range, [joined]);
    }

    /// Returns the words that are not marked as understood.
    #[cfg(test)]
    pub fn unused(&self) -> Vec<&Word> {
        self.list.iter().filter(|word| !word.used).collect()
    }
}

/// Returns true for a word that in small letters is a filler or a negation rather than a value.
pub(crate) fn is_small(word: &str) -> bool {
    let word = word.to_lowercase();
    v::FILLERS.contains(&word.as_str()) || v::NEGATIONS.contains(&word.as_str())
}

/// Returns the cache key of a question. It is equal for questions that differ only in case, spaces and final punctuation. Quoted
/// parts, methods, paths and names of metrics depend on case, so they are kept as written.
pub(crate) fn normal(text: &str) -> String {
    let text = text.trim();
    let is_apostrophe = |c: char| matches!(c, '\'' | '‘');
    let has_single = || Words::of(text).list.iter().any(|word| word.quoted);
    if text.contains(|c| closing_quote(c).is_some() && !is_apostrophe(c))
        || (text.contains(is_apostrophe) && has_single())
    {
        return text.to_owned();
    }
    let mut normal = String::with_capacity(text.len());
    let bare = |word: &&str| is_title(word.trim_matches(|c: char| !c.is_alphanumeric()));
    let words: Vec<&str> = text.trim_end_matches(|c: char| "?!. ".contains(c)).split_whitespace().collect();
    for (at, word) in words.iter().copied().enumerate() {
        // `New York` is a value, `new york` may be two words with a meaning.
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let in_pair = bare(&word) && beside.filter_map(|at| words.get(at)).any(bare);
        if !normal.is_empty() {
            normal.push(' ');
        }
        let is_code = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        let is_exact = |word: &str| {
            METHODS.contains(&word) || word.contains(['/', '_']) || (is_code(word) && is_small(word))
        };
        if in_pair || is_exact(word.trim_matches(|c: char| !c.is_alphanumeric())) || is_exact(word) {
            normal.push_str(word)
        } else {
            normal.push_str(&word.to_lowercase())
        }
    }
    normal
}

fn is_title(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(char::is_uppercase) && chars.next().is_some_and(char::is_lowercase)
}

/// Returns the quoted part at the beginning of a text and the position of its end. A single quote may also be an apostrophe. It
/// closes a quotation only after a character other than a space, and before one that is not alphanumeric: `'O'Brien'` ends at the
/// last one, `'tis don't` has none.
pub(crate) fn quoted(text: &str, first: char) -> Option<(&str, usize)> {
    let close = closing_quote(first)?;
    let inside = &text[first.len_utf8()..];
    let is_single = matches!(first, '\'' | '‘');
    if is_single && !inside.starts_with(|c: char| !c.is_whitespace()) {
        return None;
    }
    let closes = |at: &usize| {
        let (before, after) = (&inside[..*at], &inside[*at + close.len_utf8()..]);
        !before.ends_with(char::is_whitespace) && !after.starts_with(char::is_alphanumeric)
    };
    let end = inside.match_indices(close).map(|(at, _)| at).find(|at| !is_single || closes(at))?;
    Some((&inside[..end], first.len_utf8() + end + close.len_utf8()))
}

fn closing_quote(open: char) -> Option<char> {
    match open {
        '"' => Some('"'),
        '“' => Some('”'),
        '„' => Some('“'),
        '`' => Some('`'),
        '«' => Some('»'),
        '\'' => Some('\''),
        '‘' => Some('’'),
        _ => None,
    }
}

/// Splits a raw word: removes punctuation, expands contractions, and separates a sign, a number and its unit.
fn push(text: &str, list: &mut Vec<Word>) {
    let text = text.replace('’', "'");
    // `!=` is a sign, not the end of a sentence.
    let is_unequal = text.starts_with("!=");
    let text = text.trim_matches(|c: char| "?!,;:()[]{}\"'…".contains(c));
    let text = text.trim_end_matches(['.', '?', '!']);
    if text.is_empty() {
        return;
    }
    let lower = text.to_lowercase();
    if let Some((_, full)) = CONTRACTIONS.iter().find(|(short, _)| *short == lower) {
        list.extend(full.iter().map(|word| Word::new(word, false)));
        // Answers repeat the negation as written: `don't`.
        list.iter_mut()
            .last()
            .filter(|last| last.text == "not")
            .into_iter()
            .for_each(|not| not.raw = text.into());
        return;
    }
    let text = text.strip_suffix("'s").or_else(|| text.strip_suffix("'S")).unwrap_or(text);
    // `>=20ms`: the sign, the number, the unit.
    let sign = text.find(|c: char| !"<>=".contains(c)).unwrap_or(text.len());
    if sign > 0 {
        let sign = if is_unequal { "!=" } else { &text[..sign] };
        list.push(Word::new(sign, false));
    }
    let text = &text[sign..];
    let number = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let unit = &text[number..];
    let is_unit = !unit.is_empty() && crate::comparison::Unit::parse(&unit.to_lowercase()).is_some();
    if number > 0 && is_unit && text[..number].parse::<f64>().is_ok() {
        list.push(Word::new(&text[..number], false));
        list.push(Word::new(unit, false));
    } else if !text.is_empty() {
        list.push(Word::new(text, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        Words::of(text).list.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn punctuation_contractions_and_units_come_apart() {
        assert_eq!(texts("What's  the disk's state?"), ["what", "is", "the", "disk", "state"]);
        assert_eq!(
            texts("slower than 20ms, or >=80%!"),
            ["slower", "than", "20", "ms", "or", ">=", "80", "%"]
        );
        assert_eq!(texts("polynya.metrics since 14:00."), ["polynya.metrics", "since", "14:00"]);
        assert_eq!(texts("v1.2 and 10x"), ["v1.2", "and", "10x"]);
        assert!(texts(" ?! ").is_empty());
    }

    #[test]
    fn a_quoted_phrase_is_one_word() {
        let words = Words::of("is “New York” or \"x  y\" in `main.t`?");
        let quoted: Vec<&str> = words.list.iter().filter(|w| w.quoted).map(|w| w.raw.as_str()).collect();
        assert_eq!(quoted, ["New York", "x  y", "main.t"]);
        assert_eq!(texts("an \"open end"), ["an", "open", "end"]);
        // Single quotes delimit; apostrophes do not.
        let words = Words::of("is 'New York' or 'O'Brien', ‘don’t’, the users' O'Brien and don't");
        let quoted: Vec<&str> = words.list.iter().filter(|w| w.quoted).map(|w| w.raw.as_str()).collect();
        assert_eq!(quoted, ["New York", "O'Brien", "don’t"]);
        assert_eq!(texts("'tis his disk's, don't"), ["tis", "his", "disk", "do", "not"]);
    }

    #[test]
    fn questions_that_differ_only_in_writing_are_equal() {
        assert_eq!(normal("Is the disk  nearly FULL?"), "is the disk nearly full");
        assert_eq!(normal("is the disk nearly full"), normal(" Is the disk nearly full ?! "));
    }

    #[test]
    fn questions_that_may_mean_something_else_are_not() {
        for (one, other) in [
            ("how many GET requests", "how many get requests"),
            ("how many GET requests?", "how many \"GET\" requests?"),
            ("requests to /V1/sql", "requests to /v1/sql"),
            ("orders \"a  b\"", "orders \"a b\""),
            ("orders \"DE\"", "orders \"de\""),
            ("orders IT", "orders it"),
            ("orders from country NO", "orders from country no"),
            // The position of the comma decides what the condition is.
            ("if a is b, c d", "if a is b c, d"),
            ("orders New York", "orders new york"),
            ("orders 'DE'", "orders 'de'"),
            ("a; b c", "a b; c"),
            ("what is this: a", "what is this a"),
        ] {
            assert_ne!(normal(one), normal(other), "{one} · {other}");
        }
        // No part at the end of a long question is ignored.
        let long = "the ".repeat(220);
        assert_ne!(normal(&format!("{long}orders AT")), normal(&format!("{long}orders DE")));
    }
}
