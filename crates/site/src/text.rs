//! Helpers for text: escaping, case folding, heading ids. All work on Unicode.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use unicode_normalization::UnicodeNormalization;

/// The characters to escape in the path of a URL: all but RFC 3986's unreserved characters and the separator.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The characters to escape in an address that an author wrote: those that HTML or the URL syntax cannot carry.
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

/// Appends `text` to `out`, escaped for HTML: valid between tags and inside double or single quotes.
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

/// Returns `text` escaped for HTML; see [`escape_into`].
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(&mut out, text);
    out
}

/// Returns `text` escaped for XML (Atom, sitemaps): as for HTML, and without the control characters that XML 1.0 cannot
/// represent.
pub(crate) fn escape_xml(text: &str) -> String {
    let valid =
        |c: &char| !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    escape(&text.chars().filter(valid).collect::<String>())
}

/// Encodes a path of a vault as the path of a URL.
pub(crate) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Encodes a fragment, or one part of a query.
pub(crate) fn encode_part(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// Encodes an address from outside, as an author writes it.
pub(crate) fn encode_address(address: &str) -> String {
    utf8_percent_encode(address, ADDRESS).to_string()
}

/// Percent-decodes a text, or returns `None` if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// Folds a name for comparison: composed (NFC) and in lower case. Names are equal after folding if a reader would call
/// them the same.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // Conversion to lower case can decompose a character (İ), so NFC is applied again afterwards.
    text.nfc().collect::<String>().to_lowercase().nfc().collect()
}

/// Makes the id of a heading as GitHub does: lower case, letters and digits of every script kept, spaces replaced by
/// hyphens. The id contains neither `:` nor `^`, which are used in the ids of footnotes, blocks and parts of the page.
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

/// Tells whether a character is a mark that belongs to a letter (vowel signs of Indic scripts, combining accents), or a
/// joiner.
fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c) || matches!(c, '\u{200c}' | '\u{200d}')
}

/// Tells whether a reader of `text` could recognise `name` in it. Both must be folded. The name counts if it occurs
/// alone or within a word, however its own words are joined. A name of one or two letters occurs in too many words, so
/// it counts only if it stands alone.
pub(crate) fn reveals(text: &str, name: &str) -> bool {
    const LETTERS_MIN: usize = 3;
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let short = letters(name);
    let is_long = short.chars().nth(LETTERS_MIN - 1).is_some();
    (is_long && letters(text).contains(&short)) || contains_word(text, name)
}

/// Tells whether `word` stands alone in `text`. Both must be folded.
fn contains_word(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return false;
    }
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(word).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next())
    })
}

/// Shortens a text to at most `chars_max` characters, cut between words.
pub(crate) fn shorten(text: &str, chars_max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text.to_owned() };
    let cut = &text[..end];
    let cut = cut.rfind(' ').map_or(cut, |space| &cut[..space]);
    format!("{}…", cut.trim_end())
}
