//! Small functions on text: escaping, folding, heading ids. All work on Unicode.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use unicode_normalization::UnicodeNormalization;

/// What stands unescaped in the path of a URL: RFC 3986's unreserved characters and the separator.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// What an address that its author wrote may keep: everything but what HTML or the URL syntax cannot carry.
const ADDRESS: &AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Appends `text` so that it means itself between tags and inside double or single quotes.
pub(crate) fn escape_into(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\'', '\0']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            b'\'' => "&#39;",
            _ => "\u{fffd}",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// See [`escape_into`].
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(&mut out, text);
    out
}

/// For Atom and sitemaps: as in HTML, without the control characters that XML 1.0 cannot carry at all.
pub(crate) fn escape_xml(text: &str) -> String {
    let valid =
        |c: &char| !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    escape(&text.chars().filter(valid).collect::<String>())
}

/// A path of a vault as the path of a URL.
pub(crate) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// A fragment, or one part of a query.
pub(crate) fn encode_part(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// An address from outside, such as an author writes it.
pub(crate) fn encode_address(address: &str) -> String {
    utf8_percent_encode(address, ADDRESS).to_string()
}

/// Percent-decoded; `None` if that is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// What names are compared by: composed, lower case. Equal for what a reader would call the same name.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // Lower case can decompose (İ), so it comes first.
    text.nfc().collect::<String>().to_lowercase().nfc().collect()
}

/// A heading's id, as GitHub makes it: lower case, letters and digits of every script kept, spaces become hyphens.
/// Contains none of `:` and `^`, which the ids of footnotes, blocks and the page's own parts have.
pub(crate) fn slug(text: &str) -> String {
    let kept = fold(text.trim());
    kept.chars()
        .filter_map(|c| match c {
            ' ' | '\t' | '\n' | '\u{a0}' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() || is_mark(c) => Some(c),
            _ => None,
        })
        .collect()
}

/// Marks that belong to a letter (vowel signs of Indic scripts, combining accents), and joiners.
fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c) || matches!(c, '\u{200c}' | '\u{200d}')
}

/// Whether who reads `text` can tell `name` from it, both folded: it stands there, alone or within a word, however its
/// words are joined. A name of one or two letters is in too many words, and counts where it stands alone.
pub(crate) fn tells(text: &str, name: &str) -> bool {
    const LETTERS_MIN: usize = 3;
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let short = letters(name);
    let is_long = short.chars().nth(LETTERS_MIN - 1).is_some();
    (is_long && letters(text).contains(&short)) || mentions(text, name)
}

/// Whether `word` stands in `text` on its own, both folded.
fn mentions(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return false;
    }
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(word).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next())
    })
}

/// At most `chars_max` characters, cut between words.
pub(crate) fn shorten(text: &str, chars_max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text.to_owned() };
    let cut = &text[..end];
    let cut = cut.rfind(' ').map_or(cut, |space| &cut[..space]);
    format!("{}…", cut.trim_end())
}
