//! Removes `%%comments%%` before the Markdown parser runs, so that no part of them can appear on a page.
//!
//! A comment goes from `%%` to the next `%%`, across lines and paragraphs. A comment without an end extends to the end
//! of the note: it is worse to show text that was meant to be hidden than to hide too much. In fenced code and in code
//! spans on one line, `%%` has no special meaning.

use std::borrow::Cow;

use crate::backticks::{BacktickRuns, run_len};

pub(crate) fn strip(text: &str) -> Cow<'_, str> {
    if !text.contains("%%") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut fence: Option<(u8, usize)> = None;
    let mut hidden = false;
    for line in text.split_inclusive('\n') {
        if !hidden {
            if let Some((mark, count, closes)) = fence_of(line) {
                match fence {
                    None => fence = Some((mark, count)),
                    Some((open, least)) if open == mark && count >= least && closes => fence = None,
                    Some(_) => {}
                }
                out.push_str(line);
                continue;
            }
            if fence.is_some() {
                out.push_str(line);
                continue;
            }
        }
        hidden = strip_line(line, hidden, &mut out);
    }
    Cow::Owned(out)
}

/// Returns the fence in this line, if it is one: its character, its length, and whether it can close a fence.
fn fence_of(line: &str) -> Option<(u8, usize, bool)> {
    let line = line.trim_start_matches([' ', '\t', '>']).trim_end();
    // In a list, the fence follows the bullet.
    let line = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line).trim_start();
    let mark = *line.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let count = line.bytes().take_while(|byte| *byte == mark).count();
    let rest = &line[count..];
    let opens = count >= 3 && (mark == b'~' || !rest.contains('`'));
    opens.then_some((mark, count, rest.is_empty()))
}

/// Copies a line without its comments. Returns true if a comment continues after this line.
fn strip_line(line: &str, mut hidden: bool, out: &mut String) -> bool {
    let ticks = BacktickRuns::of(line.as_bytes());
    let mut rest = line;
    loop {
        if hidden {
            let Some(end) = rest.find("%%") else {
                // The line break stays, so that two lines do not become one.
                out.push_str(if rest.ends_with('\n') { "\n" } else { "" });
                return true;
            };
            rest = &rest[end + 2..];
            hidden = false;
        }
        match rest.find(['%', '`']) {
            None => {
                out.push_str(rest);
                return false;
            }
            Some(at) => {
                out.push_str(&rest[..at]);
                rest = &rest[at..];
            }
        }
        if let Some(after) = rest.strip_prefix("%%") {
            rest = after;
            hidden = true;
        } else if rest.starts_with('%') {
            out.push('%');
            rest = &rest[1..];
        } else {
            let (at, run) = (line.len() - rest.len(), run_len(rest.as_bytes()));
            let end = ticks.span_end(at, run).unwrap_or(at + run);
            out.push_str(&line[at..end]);
            rest = &line[end..];
        }
    }
}
