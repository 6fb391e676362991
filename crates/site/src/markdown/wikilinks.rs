//! Finds `[[…]]` in a text before the Markdown parser runs, and replaces it by a *mark* of three parts: `⁅`, a number,
//! `⁆`.
//!
//! Markdown pairs brackets. After an unpaired bracket it would see no link, and the name of a private note would be
//! ordinary text (A1). To the parser a mark is one word wherever it stands: in link texts, titles, headings, tables,
//! footnotes. In code a mark is replaced by its original text again. So that only marks look like marks, each `⁅` and
//! `⁆` of the text becomes a mark itself.
//!
//! The rules for the content of the brackets are those of CommonMark and Obsidian: on one line or wrapped, without `[[`
//! inside. The time is linear in the length of the text, since the search from each `[[` ends at the next.

use std::borrow::Cow;

use comrak::nodes::NodeValue;
use comrak::{Arena, Options};

use crate::backticks::{BacktickRuns, run_len};

/// The start of a mark. To Markdown it is punctuation, as `[` and `]` are, without any other meaning.
const OPEN: char = '⁅';
const CLOSE: char = '⁆';

/// The most bytes that a wrapped link may have before a line break, as in CommonMark. A longer one is not a link.
const WRAPPED_BYTES_MAX: usize = 1_000;

/// The original of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkSource<'t> {
    pub(super) kind: MarkKind,
    pub(super) source: &'t str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkKind {
    /// `[[a]]`
    Link,
    /// `![[a]]`
    Embed,
    /// `\[[a]]`, `[[a\]]`, or `[[a|` without an end. It is text, but may name a private note.
    Quoted,
    /// Text that would have another meaning without a mark.
    Literal,
}

/// The address and label of a wikilink, with entities and escapes resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedWikilink {
    pub(super) address: String,
    pub(super) label: Option<String>,
}

impl MarkSource<'_> {
    pub(super) fn parsed(&self) -> ParsedWikilink {
        let source = self.source.trim_start_matches(['!', '\\']);
        let inner = source.strip_prefix("[[").unwrap_or(source);
        let inner = unwrapped(inner.strip_suffix("]]").unwrap_or(inner));
        // In a table a backslash precedes the pipe.
        let (address, label) = match inner.split_once('|') {
            Some((address, label)) => (address.strip_suffix('\\').unwrap_or(address), Some(label)),
            None => (inner.strip_suffix('\\').unwrap_or(&inner), None),
        };
        ParsedWikilink { address: resolved(address.trim()), label: label.map(|label| resolved(label.trim())) }
    }

    /// Returns the original as text in a line that is not code.
    pub(super) fn text(&self) -> String {
        match self.kind {
            MarkKind::Quoted => resolved(&unwrapped(self.source)),
            _ => unwrapped(self.source).into_owned(),
        }
    }

    /// Returns the original as text in a line of code. `is_cell` is true in the cell of a table.
    pub(super) fn text_in_code(&self, is_cell: bool) -> String {
        let text = unwrapped(self.source);
        if is_cell { text.replace("\\|", "|") } else { text.into_owned() }
    }

    /// Returns the original as text in a block of code whose lines begin in this column.
    pub(super) fn lines(&self, column: usize) -> String {
        let cut = |line: &str| {
            let prefix = line.len() - line.trim_start_matches([' ', '\t', '>']).len();
            line[prefix.min(column)..].to_owned()
        };
        let mut lines = self.source.split('\n');
        let first = lines.next().unwrap_or_default().to_owned();
        lines.fold(first, |text, line| text + "\n" + &cut(line))
    }
}

/// Joins wrapped lines into one.
fn unwrapped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim_end().to_owned();
    let next = |line: &str| format!(" {}", line.trim_start_matches([' ', '\t', '>']).trim_end());
    Cow::Owned(lines.fold(first, |text, line| text + &next(line)))
}

/// Resolves entities and backslashes as Markdown does in an address.
fn resolved(text: &str) -> String {
    if text.split_once('&').is_some_and(|(_, rest)| rest.contains(';')) {
        // The parser offers no direct access to its table of entities. It resolves the info string after a fence in the
        // same way.
        let arena = Arena::new();
        let root = comrak::parse_document(&arena, &format!("~~~ {text}"), &Options::default());
        if let Some(node) = root.first_child()
            && let NodeValue::CodeBlock(code) = &node.data().value
        {
            return code.info.clone();
        }
    }
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        kept.push(chars.next_if(|next| c == '\\' && next.is_ascii_punctuation()).unwrap_or(c));
    }
    kept
}

/// A part of a marked text.
pub(super) enum MarkedPart<'a, 't> {
    Text(&'a str),
    Mark(MarkSource<'t>),
}

/// Splits text that the parser produced from a marked text into its parts.
pub(super) fn parts<'a, 't>(
    text: &'a str,
    items: &'a [MarkSource<'t>],
) -> impl Iterator<Item = MarkedPart<'a, 't>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = rest.find(OPEN).unwrap_or(rest.len());
        if at > 0 {
            let (before, after) = rest.split_at(at);
            rest = after;
            return Some(MarkedPart::Text(before));
        }
        let mark = rest.strip_prefix(OPEN)?;
        let end = mark.find(|c: char| !c.is_ascii_digit()).unwrap_or(mark.len());
        let item = mark[..end].parse().ok().and_then(|number: usize| items.get(number));
        match (item, mark[end..].strip_prefix(CLOSE)) {
            (Some(item), Some(after)) => {
                rest = after;
                Some(MarkedPart::Mark(*item))
            }
            // An entity in the text may produce the character too.
            _ => {
                let (sign, after) = rest.split_at(OPEN.len_utf8());
                rest = after;
                Some(MarkedPart::Text(sign))
            }
        }
    })
}

/// Replaces the wikilinks of a text by marks. Returns the marked text and the originals.
pub(super) fn mark(text: &str) -> (Cow<'_, str>, Vec<MarkSource<'_>>) {
    if !text.contains("[[") && !text.contains([OPEN, CLOSE]) {
        return (Cow::Borrowed(text), Vec::new());
    }
    let mut marker = Marker { text, out: String::with_capacity(text.len()), items: Vec::new(), kept: 0 };
    let (mut line, mut at) = (0, 0);
    while at < text.len() {
        // A wrapped link may have ended in the middle of a line.
        let end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
        at = marker.line(line, at, end);
        line = text[line..at].rfind('\n').map_or(line, |end| line + end + 1);
    }
    marker.out.push_str(&text[marker.kept..]);
    (Cow::Owned(marker.out), marker.items)
}

struct Marker<'t> {
    text: &'t str,
    out: String,
    items: Vec<MarkSource<'t>>,
    /// The text up to this offset is in `out`.
    kept: usize,
}

impl<'t> Marker<'t> {
    fn push(&mut self, kind: MarkKind, start: usize, end: usize) {
        self.out.push_str(&self.text[self.kept..start]);
        self.out.push(OPEN);
        self.out.push_str(&self.items.len().to_string());
        self.out.push(CLOSE);
        self.items.push(MarkSource { kind, source: &self.text[start..end] });
        self.kept = end;
    }

    /// Marks the wikilinks that begin in the line between `start` and `end`. `line` is the offset at which that line
    /// begins. Returns the offset from which to continue, since a link may be wrapped.
    fn line(&mut self, line: usize, start: usize, end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let ticks = BacktickRuns::of(&bytes[start..end]);
        let wraps = LineContinuation::of(&bytes[line..end]);
        // The end of the open code span.
        let mut code = None;
        let mut marked = false;
        let mut at = start;
        while at < end {
            code = code.filter(|end| at < *end);
            let rest = &bytes[at..];
            match rest[0] {
                b'\\' if code.is_none() && !rest[1..].starts_with(b"[[") => {
                    at += if rest.get(1).is_some_and(u8::is_ascii_punctuation) { 2 } else { 1 };
                }
                b'`' if code.is_none() => {
                    let run = run_len(rest);
                    code = ticks.span_end(at - start, run).map(|end| start + end);
                    at += run;
                }
                b'\\' | b'[' | b'!' => {
                    let open = at + usize::from(rest[0] != b'[');
                    // In code a backslash has no special meaning.
                    let is_open = bytes[open..].starts_with(b"[[") && (rest[0] != b'\\' || code.is_none());
                    let limit = code.unwrap_or(self.text.len());
                    let Some((end, kind)) = is_open.then(|| self.examine(open, limit, &wraps)).flatten()
                    else {
                        at += 1;
                        continue;
                    };
                    let kind = match (rest[0], kind) {
                        (b'\\', _) => MarkKind::Quoted,
                        (b'!', MarkKind::Link) => MarkKind::Embed,
                        _ => kind,
                    };
                    self.push(kind, at, end);
                    (at, marked) = (end, true);
                }
                // A label with brackets in it defines no reference. A mark has none, so the `:` is marked to keep it
                // so.
                b']' if marked && rest[1..].starts_with(b":") => {
                    self.push(MarkKind::Literal, at + 1, at + 2);
                    at += 2;
                }
                first if first.is_ascii() => at += 1,
                _ => {
                    let sign = self.text[at..].chars().next().unwrap_or(OPEN);
                    if matches!(sign, OPEN | CLOSE) {
                        self.push(MarkKind::Literal, at, at + sign.len_utf8());
                    }
                    at += sign.len_utf8();
                }
            }
        }
        at
    }

    /// Examines the `[[` at `open`. Returns the end and the kind of the wikilink, or `None` if it is not one.
    fn examine(
        &self,
        open: usize,
        limit: usize,
        wraps: &Option<LineContinuation>,
    ) -> Option<(usize, MarkKind)> {
        let bytes = &self.text.as_bytes()[..limit];
        let inner = open + 2;
        if bytes.get(inner) == Some(&b'[') {
            return None;
        }
        let (mut depth, mut has_lone, mut at) = (0_usize, false, inner);
        // The first offset of each. `ending` is the first `]]` of inner brackets, which ends the link if no other does.
        let (mut bracket, mut pipe, mut ending) = (None, None, None);
        let end = loop {
            let next = bytes.get(at + 1).copied().unwrap_or(b'\n');
            match bytes.get(at) {
                None => break None,
                // An escaped `]]` does not end a link, but the text before it may still be a name.
                Some(b'\\') if bracket.is_none() && bytes[at + 1..].starts_with(b"]]") => {
                    return Some((at + 3, MarkKind::Quoted));
                }
                Some(b'\\') if bytes[at + 1..].starts_with(b"[[") => break None,
                Some(b'\\') if next.is_ascii_punctuation() && next != b'|' => at += 1,
                Some(b'|') => pipe = pipe.or(Some(at)),
                Some(b'\n') => {
                    let fits = bracket.is_none() && at - inner < WRAPPED_BYTES_MAX;
                    let wraps = wraps.as_ref().filter(|_| fits);
                    match wraps.and_then(|wraps| wraps.next(&bytes[at + 1..])) {
                        Some(prefix) => at += prefix,
                        None => break None,
                    }
                }
                Some(b'[') if next == b'[' => break None,
                Some(b'[') => {
                    bracket = bracket.or(Some(at));
                    depth += 1;
                }
                Some(b']') if next == b']' && depth == 0 => break Some(at),
                Some(b']') => {
                    ending = ending.or((next == b']').then_some(at));
                    bracket = bracket.or(Some(at));
                    has_lone |= depth == 0;
                    depth = depth.saturating_sub(1);
                }
                Some(_) => {}
            }
            at += 1;
        };
        let is_blank = |end: usize| self.text[inner..end].trim().is_empty();
        let is_named = pipe.is_some_and(|pipe| bracket.is_none_or(|bracket| pipe < bracket));
        match (end, ending) {
            (Some(end), _) if bracket.is_none() || is_named => {
                (!is_blank(end)).then_some((end + 2, MarkKind::Link))
            }
            // The brackets may hold ordinary Markdown links.
            (Some(end), _) => {
                let text = &self.text[inner..end];
                let is_other = has_lone || text.contains("](") || text.contains("][");
                (!is_other).then_some((end + 2, MarkKind::Link))
            }
            (None, Some(end)) if is_named => Some((end + 2, MarkKind::Link)),
            (None, None) if is_named && bracket.is_none() => {
                pipe.filter(|pipe| !is_blank(*pipe)).map(|pipe| (pipe, MarkKind::Quoted))
            }
            (None, _) => None,
        }
    }
}

/// The state that tells whether the next line continues the same paragraph.
struct LineContinuation {
    quotes: usize,
}

impl LineContinuation {
    fn of(line: &[u8]) -> Option<LineContinuation> {
        let (prefix, text) = line.split_at(prefix_of(line));
        let level = text.iter().take_while(|c| **c == b'#').count();
        let is_heading = level > 0 && text.get(level).is_none_or(u8::is_ascii_whitespace);
        let is_row = text.starts_with(b"|");
        (!is_heading && !is_row).then(|| LineContinuation { quotes: quotes_in(prefix) })
    }

    /// Returns the length of the next line's prefix (blanks and quote marks) if that line continues the paragraph.
    fn next(&self, rest: &[u8]) -> Option<usize> {
        let (prefix, text) = rest.split_at(prefix_of(rest));
        let first = text.first().copied().unwrap_or(b'\n');
        let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
        let is_item = digits > 0 && matches!(text.get(digits), Some(b'.' | b')'));
        let is_block = is_item || b"\r\n#-*+=_~`|<:$".contains(&first);
        (!is_block && quotes_in(prefix) == self.quotes).then_some(prefix.len())
    }
}

fn prefix_of(line: &[u8]) -> usize {
    line.iter().take_while(|c| matches!(c, b' ' | b'\t' | b'>')).count()
}

fn quotes_in(prefix: &[u8]) -> usize {
    prefix.iter().filter(|c| **c == b'>').count()
}
