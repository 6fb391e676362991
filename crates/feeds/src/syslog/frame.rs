//! Splits a byte stream into messages (RFC 6587): by a length in front of each message, or at line breaks.

/// The bytes of one connection that do not form a whole message yet.
#[derive(Debug, Default)]
pub(super) struct FrameSplitter {
    bytes: Vec<u8>,
    /// The position at which the next message begins.
    at: usize,
    /// The part still to come of a message that was cut: a number of bytes, or all up to the line break.
    skipping: Skip,
}

#[derive(Debug, Default, PartialEq)]
enum Skip {
    #[default]
    Nothing,
    Bytes(usize),
    Line,
}

/// The bytes of one message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub bytes: Vec<u8>,
    /// True if the end of the message is missing.
    pub cut: bool,
}

/// The greatest number of digits in a length. No message is so long that it needs more.
const DIGITS_MAX: usize = 9;

enum NextFrame {
    /// The length of the head and the length of the message.
    Counted(usize, usize),
    Line(usize),
    Nothing,
}

impl FrameSplitter {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole message, or the first `max` bytes of a longer one.
    pub fn next(&mut self, max: usize) -> Option<Frame> {
        loop {
            if !self.skip() {
                return None;
            }
            let rest = &self.bytes[self.at..];
            let (head, len, is_line) = match find(rest) {
                NextFrame::Counted(head, len) => (head, len, false),
                NextFrame::Line(len) => (0, len, true),
                NextFrame::Nothing if rest.len() > max => {
                    // This is a line whose end has not arrived yet.
                    let bytes = rest[..max].to_vec();
                    self.at += max;
                    self.skipping = Skip::Line;
                    return Some(Frame { bytes, cut: true });
                }
                NextFrame::Nothing => return None,
            };
            let there = rest.len() - head;
            if len > max {
                if there < max {
                    return None;
                }
                let bytes = rest[head..head + max].to_vec();
                self.at += head + max;
                self.skipping = if is_line { Skip::Line } else { Skip::Bytes(len - max) };
                return Some(Frame { bytes, cut: true });
            }
            if there < len {
                return None;
            }
            let bytes = trimmed(&rest[head..head + len]).to_vec();
            self.at += head + len + usize::from(is_line);
            if !bytes.is_empty() {
                return Some(Frame { bytes, cut: false });
            }
        }
    }

    /// Returns the remaining bytes as a message when the stream ends.
    pub fn last(&mut self, max: usize) -> Option<Frame> {
        if !self.skip() {
            return None;
        }
        let rest = &self.bytes[self.at..];
        let (head, is_counted) = match find(rest) {
            // Fewer bytes arrived than the length announced.
            NextFrame::Counted(head, _) => (head, true),
            _ => (0, false),
        };
        let end = rest.len().min(head + max);
        let cut = is_counted || end < rest.len();
        let bytes = trimmed(&rest[head..end]).to_vec();
        self.at = self.bytes.len();
        (!bytes.is_empty()).then_some(Frame { bytes, cut })
    }

    /// Skips the rest of a message that was cut. Returns false if more of it is still to come.
    fn skip(&mut self) -> bool {
        let left = self.bytes.len() - self.at;
        match self.skipping {
            Skip::Nothing => return true,
            Skip::Bytes(bytes) if bytes <= left => self.at += bytes,
            Skip::Bytes(bytes) => {
                self.at += left;
                self.skipping = Skip::Bytes(bytes - left);
                return false;
            }
            Skip::Line => match self.bytes[self.at..].iter().position(|b| *b == b'\n') {
                Some(end) => self.at += end + 1,
                None => {
                    self.at += left;
                    return false;
                }
            },
        }
        self.skipping = Skip::Nothing;
        true
    }
}

/// Finds the next message. A number, a space and `<` announce the length of the message that starts with `<`;
/// everything else is a line.
fn find(bytes: &[u8]) -> NextFrame {
    let digits = bytes.iter().take(DIGITS_MAX + 1).take_while(|b| b.is_ascii_digit()).count();
    if (1..=DIGITS_MAX).contains(&digits) && bytes[0] != b'0' {
        match &bytes[digits..] {
            [b' ', b'<', ..] => {
                let number = std::str::from_utf8(&bytes[..digits]).unwrap_or("");
                if let Ok(len) = number.parse() {
                    return NextFrame::Counted(digits + 1, len);
                }
            }
            // The next bytes will decide whether this is a length or a line.
            [] | [b' '] => return NextFrame::Nothing,
            _ => {}
        }
    }
    bytes.iter().position(|b| *b == b'\n').map_or(NextFrame::Nothing, NextFrame::Line)
}

/// Removes the line breaks and zeros that some senders put after a message.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r' | 0)).map_or(0, |last| last + 1);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: &[&[u8]], max: usize) -> Vec<(String, bool)> {
        let mut frames = FrameSplitter::default();
        let mut found = Vec::new();
        for part in parts {
            frames.push(part);
            while let Some(frame) = frames.next(max) {
                found.push((String::from_utf8(frame.bytes).unwrap(), frame.cut));
            }
        }
        found.extend(frames.last(max).map(|frame| (String::from_utf8(frame.bytes).unwrap(), frame.cut)));
        found
    }

    #[test]
    fn messages_are_the_same_however_a_stream_is_torn() {
        let stream = b"<1>one\n12 <2>two\nlines<3>three\r\n\n\0\n12 <4>a b c d e7 words\n5 <5>ab<6>last";
        let whole = frames(&[stream], 100);
        let texts: Vec<&str> = whole.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(
            texts,
            ["<1>one", "<2>two\nlines", "<3>three", "<4>a b c d e", "7 words", "<5>ab", "<6>last"]
        );
        assert!(whole.iter().all(|(_, cut)| !cut));
        for at in 0..stream.len() {
            let (one, two) = stream.split_at(at);
            assert_eq!(frames(&[one, two], 100), whole, "torn at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(frames(&bytes, 100), whole);
    }

    #[test]
    fn what_is_too_long_is_cut_and_the_next_message_is_whole() {
        let stream = b"<1>0123456789\n19 <2>0123456789abcdef<3>ok\n";
        for chunk in [1, 3, 7, 100] {
            let parts: Vec<&[u8]> = stream.chunks(chunk).collect();
            let found = frames(&parts, 8);
            let expected = [("<1>01234", true), ("<2>01234", true), ("<3>ok", false)];
            assert_eq!(found, expected.map(|(text, cut)| (text.to_owned(), cut)), "in pieces of {chunk}");
        }
        // The message has a length, and the connection ended before it was complete.
        assert_eq!(frames(&[b"50 <1>short"], 100), [("<1>short".to_owned(), true)]);
        assert_eq!(frames(&[b"999999999999 <1>x\n"], 100), [("999999999999 <1>x".to_owned(), false)]);
    }

    #[test]
    fn a_stream_keeps_no_more_than_a_message() {
        let mut frames = FrameSplitter::default();
        for _ in 0..10_000 {
            frames.push(&[b'x'; 1000]);
            while frames.next(4096).is_some() {}
            assert!(frames.bytes.len() <= 4096 + 1000);
        }
    }
}
