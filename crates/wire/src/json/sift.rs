//! Leaves out bad rows of JSON.
//!
//! A row that is valid JSON but does not fit is skipped as one value. The end of a row that is invalid JSON is not
//! known. In an array this refuses the body. In a sequence of rows the bad row ends with its line, and decoding goes
//! on with the next line.

use types::Error;

use super::{Decoder, NameTarget, at_end};
use crate::column::ValueFault;
use crate::parser::{Parser, SyntaxError};
use crate::sift::{RowOrigins, SiftedRows, SkippedRow, bounded, charge};
use crate::{BadRow, DecodeTarget, Limits, RefusedBody};

/// The state of a decoder that skips bad rows.
pub(super) struct SiftState {
    skipped: Vec<SkippedRow>,
    /// The offset of each good row in the body.
    starts: Vec<usize>,
    /// The column and the reason of the current row's fault.
    pub why: Option<(Option<String>, String)>,
    /// True if the body is declared to have one row per line.
    lines: bool,
}

/// Decodes the good rows of a body and reports the bad ones. `lines` declares that each line is a row, as in NDJSON.
/// Otherwise a row of invalid JSON refuses the body if the row may span several lines.
pub fn sift(
    body: &[u8],
    target: DecodeTarget<'_>,
    limits: &Limits,
    lines: bool,
) -> Result<SiftedRows, RefusedBody> {
    let mut decoder = Decoder::new(target, limits);
    decoder.row_bytes += size_of::<usize>();
    decoder.sift = Some(SiftState { skipped: Vec::new(), starts: Vec::new(), why: None, lines });
    decoder.sift_body(body)?;
    let sift = decoder.sift.take();
    let rows = decoder.finish()?;
    let SiftState { skipped, starts, .. } =
        sift.ok_or_else(|| Error::internal("a decoder lost its bad rows"))?;
    Ok(SiftedRows {
        rows,
        skipped,
        origins: RowOrigins { starts, raw, has_lines: false, before: limits.before },
    })
}

/// Returns the text of the row that begins at byte `start`.
fn raw(body: &[u8], start: usize) -> String {
    let text = valid(&body[start..]);
    bounded(Parser::new(text).skip().unwrap_or(text)).to_owned()
}

/// Returns the longest prefix that is valid UTF-8.
fn valid(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(cut) => std::str::from_utf8(&bytes[..cut.valid_up_to()]).unwrap_or_default(),
    }
}

impl Decoder<'_> {
    fn sift_body(&mut self, body: &[u8]) -> Result<(), RefusedBody> {
        let mut base = super::mark_len(body, self.limits);
        let mut rest = &body[base..];
        let is_array = !self.limits.among_rows && rest.trim_ascii_start().starts_with(b"[");
        loop {
            let cut = match std::str::from_utf8(rest) {
                Ok(text) if is_array => {
                    return self
                        .sift_array(text, base)
                        .map_err(|fault| self.refusal(&body[..base], text, fault));
                }
                Ok(text) => {
                    return self
                        .sift_rows(text, base)
                        .map_err(|fault| self.refusal(&body[..base], text, fault));
                }
                Err(cut) if is_array => return Err(super::no_utf8(cut, self.limits).into()),
                Err(cut) => cut.valid_up_to(),
            };
            // The line with the invalid byte is a bad row of its own.
            let begin = rest[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let before = valid(&rest[..begin]);
            let passed = &body[..base];
            self.sift_rows(before, base).map_err(|fault| self.refusal(passed, before, fault))?;
            let end =
                rest[cut..].iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| cut + at + 1);
            let line = String::from_utf8_lossy(&rest[begin..end]);
            let why = format!("not UTF-8: byte {} of the line is invalid", cut - begin);
            self.leave_out(None, why, line.trim())?;
            (rest, base) = (&rest[end..], base + end);
        }
    }

    fn refusal(&self, passed: &[u8], text: &str, fault: ValueFault) -> RefusedBody {
        match fault {
            ValueFault::Malformed(malformed) => self.malformed(passed, text, malformed),
            ValueFault::Limit(error) => error.into(),
            ValueFault::Misfit(message) => {
                Error::internal(format!("a bad row refused a body: {message}")).into()
            }
        }
    }

    fn sift_array(&mut self, text: &str, base: usize) -> Result<(), ValueFault> {
        let mut p = Parser::new(text);
        p.expect(b'[', "`[`")?;
        let mut first = true;
        while !at_end(&mut p, b']', &mut first)? {
            if let Some(malformed) = self.sift_row(&mut p, text, base)? {
                return Err(malformed.into());
            }
        }
        match p.peek() {
            Some(_) => p.malformed("the end of the body after `]`").map_err(ValueFault::from),
            None => Ok(()),
        }
    }

    fn sift_rows(&mut self, text: &str, base: usize) -> Result<(), ValueFault> {
        let mut p = Parser::new(text);
        while p.peek().is_some() {
            let start = p.at();
            let Some(malformed) = self.sift_row(&mut p, text, base)? else { continue };
            let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
            let line = text[start..end].trim_end();
            if !self.is_line(text, base, line) {
                return Err(malformed.into());
            }
            let at = malformed.at.clamp(start, end);
            let found = match text[at..end].chars().next() {
                Some(c) => format!("`{}`", c.escape_debug()),
                None => "the end of the line".into(),
            };
            // If parsing went on into a later line, the parser's expectation there is meaningless, unless only white
            // space was crossed.
            let is_here = malformed.at <= end || text[end..malformed.at].trim().is_empty();
            let expected = if is_here { malformed.expected } else { "the rest of the row" };
            let why =
                format!("not JSON: {expected} expected at byte {} of the line, {found} found", at - start);
            self.leave_out(None, why, line)?;
            p.rewind(end);
        }
        Ok(())
    }

    /// Returns true if the line is all of the row of invalid JSON that begins in it.
    fn is_line(&self, text: &str, base: usize, line: &str) -> bool {
        let Some(sift) = &self.sift else { return false };
        // A line that ends inside an open bracket may go on in the next one. So may any row if the previous row
        // spanned lines.
        let goes_on = line.ends_with(['{', '[', ',']);
        let did = || {
            let last = sift.starts.last().and_then(|start| text.get(start.checked_sub(base)?..));
            last.is_some_and(|row| Parser::new(row).skip().is_ok_and(|row| row.contains('\n')))
        };
        sift.lines || !goes_on && !did()
    }

    /// Takes the next row or leaves it out. Returns the fault of a row that is invalid JSON: nothing of it was taken,
    /// and its end is not known.
    fn sift_row(
        &mut self,
        p: &mut Parser<'_>,
        text: &str,
        base: usize,
    ) -> Result<Option<SyntaxError>, ValueFault> {
        p.peek();
        let (start, slots) = (p.at(), self.slots.len());
        let fault = match self.any_row(p) {
            Ok(()) => {
                self.sift.as_mut().into_iter().for_each(|sift| sift.starts.push(base + start));
                return Ok(None);
            }
            Err(ValueFault::Limit(error)) => return Err(error.into()),
            Err(fault) => fault,
        };
        self.undo_row(slots);
        p.rewind(start);
        if let Err(malformed) = p.skip() {
            return Ok(Some(match fault {
                ValueFault::Malformed(first) => first,
                _ => malformed,
            }));
        }
        let raw = &text[start..p.at()];
        let why = self.sift.as_mut().and_then(|sift| sift.why.take());
        let (column, message) = match (fault, why) {
            (ValueFault::Misfit(_), Some(why)) => why,
            (ValueFault::Malformed(malformed), _) => (None, format!("{} expected", malformed.expected)),
            (other, _) => return Err(other),
        };
        self.leave_out(column, message, raw)?;
        Ok(None)
    }

    fn leave_out(&mut self, column: Option<String>, message: String, raw: &str) -> Result<(), Error> {
        let Some(sift) = &mut self.sift else { return Ok(()) };
        let row = self.limits.before.rows + self.row + sift.skipped.len() + 1;
        let bad = BadRow { row, line: None, column, message };
        let skipped = SkippedRow { bad, raw: bounded(raw).to_owned() };
        charge(&skipped, &mut self.budget)?;
        sift.skipped.push(skipped);
        Ok(())
    }

    /// Undoes the current row. `slots` is the number of slots before it.
    fn undo_row(&mut self, slots: usize) {
        for slot in self.slots.drain(slots..) {
            let folded = slot.name.to_lowercase();
            match slot.existing {
                Some(at) => {
                    self.folded.insert(folded, NameTarget::Column(at));
                }
                None => {
                    self.folded.remove(&folded);
                    self.new_columns -= 1;
                    self.row_bytes -= 8;
                }
            }
        }
        // New spellings of this row are kept if their slot stays.
        self.by_key.retain(|_, slot| *slot < slots);
        self.order.retain(|slot| *slot < slots);
        if let Some(extract) = &mut self.extract {
            extract.undo_row(slots, self.row);
        }
        for slot in &mut self.slots {
            slot.seen = slot.seen.min(self.row);
            slot.column.truncate(self.row);
        }
    }
}
