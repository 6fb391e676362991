//! The text analyzer, which splits text into terms. Documents, queries and snippets share it.
//!
//! - A word is a run of letters and digits with their combining marks, in lower case.
//! - In scripts without spaces (Han, Kana, Thai, …) each character is a term. Neighbouring characters of a query form a
//!   phrase.
//! - The ending after an apostrophe is left out: `don't`, `it's`, `we'll`.
//! - `c++` and `c#` are words.
//! - Accents are folded to ASCII.
//! - A word longer than [`WORD_BYTES_MAX`] is cut there. Words of a query are cut too, so that it is still found.

use tantivy::tokenizer::{AsciiFoldingFilter, Stemmer, TextAnalyzer, Token, TokenStream, Tokenizer};
use types::{Error, Result};

/// Version of the analyzer, part of the fingerprint of an index. A new number makes every index be rebuilt.
pub(super) const VERSION: u32 = 1;
/// The longest term, in bytes of UTF-8.
pub(super) const WORD_BYTES_MAX: usize = 255;

/// The language whose rules reduce words to their stems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Words are not stemmed.
    None,
    /// The default. English rules do little harm to words of other languages.
    #[default]
    English,
    Arabic,
    Danish,
    Dutch,
    Finnish,
    French,
    German,
    Greek,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Tamil,
    Turkish,
}

use tantivy::tokenizer::Language as Stems;

const LANGUAGES: [(&str, Language, Option<Stems>); 19] = [
    ("none", Language::None, None),
    ("english", Language::English, Some(Stems::English)),
    ("arabic", Language::Arabic, Some(Stems::Arabic)),
    ("danish", Language::Danish, Some(Stems::Danish)),
    ("dutch", Language::Dutch, Some(Stems::Dutch)),
    ("finnish", Language::Finnish, Some(Stems::Finnish)),
    ("french", Language::French, Some(Stems::French)),
    ("german", Language::German, Some(Stems::German)),
    ("greek", Language::Greek, Some(Stems::Greek)),
    ("hungarian", Language::Hungarian, Some(Stems::Hungarian)),
    ("italian", Language::Italian, Some(Stems::Italian)),
    ("norwegian", Language::Norwegian, Some(Stems::Norwegian)),
    ("portuguese", Language::Portuguese, Some(Stems::Portuguese)),
    ("romanian", Language::Romanian, Some(Stems::Romanian)),
    ("russian", Language::Russian, Some(Stems::Russian)),
    ("spanish", Language::Spanish, Some(Stems::Spanish)),
    ("swedish", Language::Swedish, Some(Stems::Swedish)),
    ("tamil", Language::Tamil, Some(Stems::Tamil)),
    ("turkish", Language::Turkish, Some(Stems::Turkish)),
];

impl Language {
    /// Parses the English name of a language in lower case, or `none`.
    pub fn parse(name: &str) -> Result<Language> {
        LANGUAGES.iter().find(|row| row.0 == name).map(|row| row.1).ok_or_else(|| {
            let names: Vec<&str> = LANGUAGES.iter().map(|row| row.0).collect();
            Error::invalid("no such language of a text index").hint(format!("one of {}", names.join(", ")))
        })
    }

    pub fn name(self) -> &'static str {
        self.row().0
    }

    fn row(self) -> &'static (&'static str, Language, Option<Stems>) {
        LANGUAGES.iter().find(|row| row.1 == self).unwrap_or(&LANGUAGES[0])
    }

    pub(super) fn analyzer(self) -> TextAnalyzer {
        let words = TextAnalyzer::builder(WordTokenizer);
        match self.row().2 {
            None => words.filter(AsciiFoldingFilter).build(),
            // In English, accents carry no meaning and are folded before stemming. In other languages endings depend on
            // them, so stemming comes first.
            Some(Stems::English) => {
                words.filter(AsciiFoldingFilter).filter(Stemmer::new(Stems::English)).build()
            }
            Some(stems) => words.filter(Stemmer::new(stems)).filter(AsciiFoldingFilter).build(),
        }
    }
}

/// A word of a text, with the term that it is indexed as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub term: String,
    /// Byte offset of its start in the text.
    pub from: usize,
    /// Byte offset of its end in the text.
    pub to: usize,
}

pub(super) fn analyze(analyzer: &mut TextAnalyzer, text: &str) -> Vec<Word> {
    let mut stream = analyzer.token_stream(text);
    let mut words = Vec::new();
    while stream.advance() {
        let token = stream.token();
        words.push(Word { term: token.text.clone(), from: token.offset_from, to: token.offset_to });
    }
    words
}

/// Returns the last word of a text in lower case and without accents, but not stemmed. Prefixes are compared in this
/// form.
pub(super) fn fold(text: &str) -> String {
    let mut words = analyze(&mut Language::None.analyzer(), text);
    words.pop().map(|word| word.term).unwrap_or_default()
}

#[derive(Clone)]
struct WordTokenizer;

impl Tokenizer for WordTokenizer {
    type TokenStream<'a> = WordStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> WordStream<'a> {
        WordStream { text, at: 0, token: Token::default() }
    }
}

struct WordStream<'a> {
    text: &'a str,
    at: usize,
    token: Token,
}

impl TokenStream for WordStream<'_> {
    fn advance(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some((skipped, first)) = rest.char_indices().find(|(_, c)| starts_word(*c)) else {
            self.at = self.text.len();
            return false;
        };
        let from = self.at + skipped;
        let word = &self.text[from..];
        let len = if stands_alone(first) { character(word, first) } else { word_len(word) };
        self.token.text.clear();
        push_lower(&mut self.token.text, &word[..len]);
        self.token.offset_from = from;
        self.token.offset_to = from + len;
        self.token.position = self.token.position.wrapping_add(1);
        self.at = from + len + contraction(&word[len..]);
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

fn starts_word(c: char) -> bool {
    c.is_alphanumeric()
}

/// Tells whether a character belongs to a script without spaces, where each character is a term.
fn stands_alone(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF
        | 0xFF66..=0xFF9F | 0x20000..=0x3FFFF
        // Thai, Lao; Myanmar; Khmer.
        | 0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF)
}

/// Tells whether a character continues a word but cannot begin one: combining marks, joiners and soft hyphens.
fn continues_word(c: char) -> bool {
    let code = u32::from(c);
    matches!(code, 0xAD | 0x300..=0x36F | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x200C | 0x200D | 0x20D0..=0x20FF
        | 0xFE20..=0xFE2F | 0x0E31..=0x0E4E | 0x0EB1..=0x0ECE | 0x102B..=0x103E | 0x17B4..=0x17D3)
        // These are the signs of the Indic scripts other than letters, without their full stops.
        || (0x0900..=0x0DFF).contains(&code) && !c.is_alphanumeric() && !matches!(code, 0x964 | 0x965 | 0x970)
}

fn character(word: &str, first: char) -> usize {
    let rest = &word[first.len_utf8()..];
    first.len_utf8() + rest.find(|c: char| !continues_word(c)).unwrap_or(rest.len())
}

fn word_len(word: &str) -> usize {
    let ends = |c: char| stands_alone(c) || !(c.is_alphanumeric() || continues_word(c));
    let len = word.find(ends).unwrap_or(word.len());
    // `c++` and `f#` name programming languages, so the signs belong to the word.
    let sign = ["++", "#"].iter().find(|sign| word[len..].starts_with(**sign)).map_or(0, |sign| sign.len());
    let apart = !word[len + sign..].starts_with(|c: char| c.is_alphanumeric());
    if len <= 2 && word.starts_with(|c: char| c.is_ascii_alphabetic()) && apart { len + sign } else { len }
}

/// Returns the length in bytes of a contraction after a word: an apostrophe with one or two letters, such as `'s` or
/// `'ll`.
fn contraction(rest: &str) -> usize {
    let Some(mark) = rest.chars().next().filter(|c| matches!(c, '\'' | '’')) else { return 0 };
    let tail = &rest[mark.len_utf8()..];
    let len = tail.find(|c: char| !c.is_alphanumeric()).unwrap_or(tail.len());
    let short = (1..=2).contains(&len) && tail[..len].bytes().all(|b| b.is_ascii_alphabetic());
    if short { mark.len_utf8() + len } else { 0 }
}

fn push_lower(out: &mut String, word: &str) {
    for c in word.chars() {
        // A combining mark is dropped, as the accent of a precomposed letter is.
        if matches!(u32::from(c), 0x300..=0x36F | 0xAD | 0x200C | 0x200D) {
            continue;
        }
        let before = out.len();
        if c.is_ascii() {
            out.push(c.to_ascii_lowercase());
        } else {
            // İ becomes two characters, of which the second is a mark.
            out.extend(c.to_lowercase().filter(|c| !matches!(u32::from(*c), 0x300..=0x36F)));
        }
        if out.len() > WORD_BYTES_MAX {
            out.truncate(before);
            return;
        }
    }
}
