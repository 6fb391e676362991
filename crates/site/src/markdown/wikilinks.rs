//! Finds `[[…]]` in a text before Markdown is read, and leaves a mark of three parts in its place: `⁅`, a number, `⁆`.
//!
//! Markdown takes brackets as pairs, so that behind one that stays open no link would be seen, and the name of a private
//! note would be text like any other (A1). A mark is one word to it wherever it stands: in link texts, titles, headings,
//! tables, footnotes. In code it becomes again what it was. So that nothing but a mark looks like one, `⁅` and `⁆` of the
//! text become marks themselves.
//!
//! What is in brackets is what CommonMark and Obsidian take for a link: on one line or wrapped, without `[[` in it. Time
//! grows with the length of the text: each `[[` looks no further than the next.

use std::borrow::Cow;

use comrak::nodes::NodeValue;
use comrak::{Arena, Options};

use crate::ticks::{Ticks, run_at};

/// Punctuation to Markdown, as `[` and `]` are, and nothing else.
const OPEN: char = '⁅';
const CLOSE: char = '⁆';

/// A link that goes over more is none, as in CommonMark.
const WRAPPED_BYTES_MAX: usize = 1_000;

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'t> {
    pub(super) kind: Kind,
    pub(super) source: &'t str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `[[a]]`
    Link,
    /// `![[a]]`
    Embed,
    /// `\[[a]]`, `[[a\]]`, `[[a|` without an end: text, which may name a private note all the same.
    Quoted,
    /// Text that would mean something else without a mark.
    Literal,
}

/// What a link says, entities and escapes resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) address: String,
    pub(super) label: Option<String>,
}

impl Item<'_> {
    pub(super) fn said(&self) -> Said {
        let source = self.source.trim_start_matches(['!', '\\']);
        let inner = source.strip_prefix("[[").unwrap_or(source);
        let inner = unwrapped(inner.strip_suffix("]]").unwrap_or(inner));
        // In a table the pipe has a backslash.
        let (address, label) = match inner.split_once('|') {
            Some((address, label)) => (address.strip_suffix('\\').unwrap_or(address), Some(label)),
            None => (inner.strip_suffix('\\').unwrap_or(&inner), None),
        };
        Said { address: resolved(address.trim()), label: label.map(|label| resolved(label.trim())) }
    }

    /// As text in a line that is not code.
    pub(super) fn text(&self) -> String {
        match self.kind {
            Kind::Quoted => resolved(&unwrapped(self.source)),
            _ => unwrapped(self.source).into_owned(),
        }
    }

    /// As text in a line of code, in a table's cell or not.
    pub(super) fn text_in_code(&self, is_cell: bool) -> String {
        let text = unwrapped(self.source);
        if is_cell { text.replace("\\|", "|") } else { text.into_owned() }
    }

    /// As text in a block of code whose lines begin in this column.
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

/// Wrapped lines as one.
fn unwrapped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim_end().to_owned();
    let next = |line: &str| format!(" {}", line.trim_start_matches([' ', '\t', '>']).trim_end());
    Cow::Owned(lines.fold(first, |text, line| text + &next(line)))
}

/// Without entities and backslashes, as Markdown resolves them in an address.
fn resolved(text: &str) -> String {
    if text.split_once('&').is_some_and(|(_, rest)| rest.contains(';')) {
        // What stands behind a fence is resolved likewise, and the parser shows no other way to its table of entities.
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

/// A part of a text with marks.
pub(super) enum Part<'a, 't> {
    Text(&'a str),
    Item(Item<'t>),
}

/// The parts of a text that came out of a marked one.
pub(super) fn parts<'a, 't>(text: &'a str, items: &'a [Item<'t>]) -> impl Iterator<Item = Part<'a, 't>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = rest.find(OPEN).unwrap_or(rest.len());
        if at > 0 {
            let (before, after) = rest.split_at(at);
            rest = after;
            return Some(Part::Text(before));
        }
        let mark = rest.strip_prefix(OPEN)?;
        let end = mark.find(|c: char| !c.is_ascii_digit()).unwrap_or(mark.len());
        let item = mark[..end].parse().ok().and_then(|number: usize| items.get(number));
        match (item, mark[end..].strip_prefix(CLOSE)) {
            (Some(item), Some(after)) => {
                rest = after;
                Some(Part::Item(*item))
            }
            // An entity may say it.
            _ => {
                let (sign, after) = rest.split_at(OPEN.len_utf8());
                rest = after;
                Some(Part::Text(sign))
            }
        }
    })
}

/// The text with marks, and what they stand for.
pub(super) fn mark(text: &str) -> (Cow<'_, str>, Vec<Item<'_>>) {
    if !text.contains("[[") && !text.contains([OPEN, CLOSE]) {
        return (Cow::Borrowed(text), Vec::new());
    }
    let mut marker = Marker { text, out: String::with_capacity(text.len()), items: Vec::new(), kept: 0 };
    let (mut line, mut at) = (0, 0);
    while at < text.len() {
        // A link may have come to the middle of its last line.
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
    items: Vec<Item<'t>>,
    /// Up to here the text is in `out`.
    kept: usize,
}

impl<'t> Marker<'t> {
    fn push(&mut self, kind: Kind, start: usize, end: usize) {
        self.out.push_str(&self.text[self.kept..start]);
        self.out.push(OPEN);
        self.out.push_str(&self.items.len().to_string());
        self.out.push(CLOSE);
        self.items.push(Item { kind, source: &self.text[start..end] });
        self.kept = end;
    }

    /// Marks what begins in the line between `start` and `end`. Returns where to go on: a link may be wrapped.
    fn line(&mut self, line: usize, start: usize, end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let ticks = Ticks::of(&bytes[start..end]);
        let wraps = Wraps::of(&bytes[line..end]);
        // Where the code span ends that is open.
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
                    let run = run_at(rest);
                    code = ticks.span_end(at - start, run).map(|end| start + end);
                    at += run;
                }
                b'\\' | b'[' | b'!' => {
                    let open = at + usize::from(rest[0] != b'[');
                    // In code a backslash is one.
                    let is_open = bytes[open..].starts_with(b"[[") && (rest[0] != b'\\' || code.is_none());
                    let limit = code.unwrap_or(self.text.len());
                    let Some((end, kind)) = is_open.then(|| self.find(open, limit, &wraps)).flatten() else {
                        at += 1;
                        continue;
                    };
                    let kind = match (rest[0], kind) {
                        (b'\\', _) => Kind::Quoted,
                        (b'!', Kind::Link) => Kind::Embed,
                        _ => kind,
                    };
                    self.push(kind, at, end);
                    (at, marked) = (end, true);
                }
                // With brackets in it this defines no reference, and marks have none.
                b']' if marked && rest[1..].starts_with(b":") => {
                    self.push(Kind::Literal, at + 1, at + 2);
                    at += 2;
                }
                first if first.is_ascii() => at += 1,
                _ => {
                    let sign = self.text[at..].chars().next().unwrap_or(OPEN);
                    if matches!(sign, OPEN | CLOSE) {
                        self.push(Kind::Literal, at, at + sign.len_utf8());
                    }
                    at += sign.len_utf8();
                }
            }
        }
        at
    }

    /// What begins with the `[[` at `open`: where it ends, and what it is.
    fn find(&self, open: usize, limit: usize, wraps: &Option<Wraps>) -> Option<(usize, Kind)> {
        let bytes = &self.text.as_bytes()[..limit];
        let inner = open + 2;
        if bytes.get(inner) == Some(&b'[') {
            return None;
        }
        let (mut depth, mut has_lone, mut at) = (0_usize, false, inner);
        // The first of each; of `]]` the first of inner brackets, which ends it if nothing else does.
        let (mut bracket, mut pipe, mut ending) = (None, None, None);
        let end = loop {
            let next = bytes.get(at + 1).copied().unwrap_or(b'\n');
            match bytes.get(at) {
                None => break None,
                // Escaped, it ends no link, and what is before it is a name all the same.
                Some(b'\\') if bracket.is_none() && bytes[at + 1..].starts_with(b"]]") => {
                    return Some((at + 3, Kind::Quoted));
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
                (!is_blank(end)).then_some((end + 2, Kind::Link))
            }
            // Links of Markdown's own in brackets.
            (Some(end), _) => {
                let text = &self.text[inner..end];
                let is_other = has_lone || text.contains("](") || text.contains("][");
                (!is_other).then_some((end + 2, Kind::Link))
            }
            (None, Some(end)) if is_named => Some((end + 2, Kind::Link)),
            (None, None) if is_named && bracket.is_none() => {
                pipe.filter(|pipe| !is_blank(*pipe)).map(|pipe| (pipe, Kind::Quoted))
            }
            (None, _) => None,
        }
    }
}

/// How a line goes on in the next one, both being of one paragraph.
struct Wraps {
    quotes: usize,
}

impl Wraps {
    fn of(line: &[u8]) -> Option<Wraps> {
        let (prefix, text) = line.split_at(prefix_of(line));
        let level = text.iter().take_while(|c| **c == b'#').count();
        let is_heading = level > 0 && text.get(level).is_none_or(u8::is_ascii_whitespace);
        let is_row = text.starts_with(b"|");
        (!is_heading && !is_row).then(|| Wraps { quotes: quotes_in(prefix) })
    }

    /// How much of the next line is not text, if that is of the same paragraph.
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
