//! A pull parser for JSON: the caller asks for the token that it expects next and gets slices of the input.
//!
//! It is not a library, because the decoder needs three features that no library combines: the text of a number
//! (decimals are exact), the bytes of a value (json columns keep them), and a comparison of the next key with the
//! expected one before anything is parsed (rows of equal shape need no hashing). Skipped values are validated too.

/// The greatest nesting depth of objects and arrays.
pub const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// A syntax error: the byte offset and the expected token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub at: usize,
    pub expected: &'static str,
}

type Result<T> = std::result::Result<T, SyntaxError>;

/// A number and its source text.
#[derive(Clone, Copy, Debug)]
pub struct Number<'a> {
    pub text: &'a str,
    /// The value if it is written without fraction and exponent and fits int64.
    pub integer: Option<i64>,
    /// True if it is written with a fraction or an exponent.
    pub fraction: bool,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Self {
        Parser { text, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// The number of bytes still to be read.
    pub fn left(&self) -> usize {
        self.text.len() - self.at
    }

    /// Goes back to the beginning of a value.
    pub fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    pub fn malformed<T>(&self, expected: &'static str) -> Result<T> {
        Err(SyntaxError { at: self.at, expected })
    }

    #[inline]
    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// Skips white space and returns the next byte without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.bytes();
        loop {
            match bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[inline]
    pub fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline]
    pub fn expect(&mut self, byte: u8, expected: &'static str) -> Result<()> {
        if self.eat(byte) { Ok(()) } else { self.malformed(expected) }
    }

    /// Consumes `"key":` if exactly that comes next. `quoted` is the key with its quotes.
    #[inline]
    pub fn eat_key(&mut self, quoted: &[u8]) -> bool {
        self.peek();
        let start = self.at;
        if !self.bytes()[start..].starts_with(quoted) {
            return false;
        }
        self.at += quoted.len();
        if self.eat(b':') {
            return true;
        }
        self.at = start;
        false
    }

    /// Reads a string. The content is a slice of the input, or in `scratch` if it has escapes.
    #[inline]
    pub fn string<'s>(&mut self, scratch: &'s mut String) -> Result<&'s str>
    where
        'a: 's,
    {
        self.expect(b'"', "a string")?;
        let start = self.at;
        self.at += special(&self.bytes()[start..]);
        if self.bytes().get(self.at) == Some(&b'"') {
            let found = &self.text[start..self.at];
            self.at += 1;
            return Ok(found);
        }
        scratch.clear();
        scratch.push_str(&self.text[start..self.at]);
        self.rest_of_string(Some(scratch))?;
        Ok(scratch)
    }

    /// Reads the rest of a string, from the first byte that is not plain to after the closing quote.
    fn rest_of_string(&mut self, mut out: Option<&mut String>) -> Result<()> {
        loop {
            match self.bytes().get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    if let Some(out) = out.as_deref_mut() {
                        out.push(c);
                    }
                }
                Some(_) => return self.malformed("no control character inside a string (escape it)"),
                None => return self.malformed("the end of the string"),
            }
            let start = self.at;
            self.at += special(&self.bytes()[start..]);
            if let Some(out) = out.as_deref_mut() {
                out.push_str(&self.text[start..self.at]);
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let c = match self.bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return self.malformed("a valid escape"),
        };
        self.at += 2;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char> {
        let unit = |at: usize| -> Option<u32> {
            let digits = self.bytes().get(at..at + 6)?;
            if !digits.starts_with(b"\\u") || !digits[2..].iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            u32::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
        };
        let first = unit(self.at);
        let (code, len) = match first {
            Some(high @ 0xd800..=0xdbff) => match unit(self.at + 6) {
                Some(low @ 0xdc00..=0xdfff) => (Some(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12),
                _ => (None, 0),
            },
            other => (other, 6),
        };
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.at += len;
                Ok(c)
            }
            None => self.malformed("a \\u escape of a character"),
        }
    }

    /// Reads a number, by JSON's grammar.
    #[inline]
    pub fn number(&mut self) -> Result<Number<'a>> {
        self.peek();
        let bytes = self.bytes();
        let start = self.at;
        let negative = bytes.get(start) == Some(&b'-');
        let mut at = start + usize::from(negative);
        let first = at;
        let mut value: i64 = 0;
        let mut fits = true;
        // The value is accumulated as a negative number, because the negative range is the larger one.
        while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
            match value.checked_mul(10).and_then(|v| v.checked_sub(i64::from(digit - b'0'))) {
                Some(v) => value = v,
                None => fits = false,
            }
            at += 1;
        }
        if at == first || (bytes[first] == b'0' && at > first + 1) {
            return self.malformed("a number");
        }
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut fraction = false;
        if bytes.get(at) == Some(&b'.') {
            fraction = true;
            let end = digits(at + 1);
            if end == at + 1 {
                self.at = end;
                return self.malformed("a digit after the point");
            }
            at = end;
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            fraction = true;
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let end = digits(at + 1 + sign);
            if end == at + 1 + sign {
                self.at = end;
                return self.malformed("an exponent");
            }
            at = end;
        }
        self.at = at;
        let integer = if !fits || fraction {
            None
        } else if negative {
            Some(value)
        } else {
            value.checked_neg()
        };
        Ok(Number { text: &self.text[start..at], integer, fraction })
    }

    /// Consumes the word `true`, `false` or `null`.
    #[inline]
    pub fn literal(&mut self, word: &'static str) -> Result<()> {
        self.peek();
        if self.bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        self.malformed("a value")
    }

    /// Consumes a `null` if one comes next.
    #[inline]
    pub fn eat_null(&mut self) -> Result<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.literal("null").map(|()| true)
    }

    /// Skips and validates one value of any kind, and returns its text.
    pub fn skip(&mut self) -> Result<&'a str> {
        self.skip_below(0)
    }

    /// Skips a value that is nested in `outer` objects and arrays; the depth limit includes these.
    pub fn skip_below(&mut self, outer: usize) -> Result<&'a str> {
        let deepest = DEPTH_MAX.saturating_sub(outer);
        let first = self.peek();
        let start = self.at;
        // One bit for each open bracket: 1 is an object.
        let (mut depth, mut objects): (usize, u64) = (0, 0);
        let mut next = first;
        loop {
            match next {
                Some(open @ (b'{' | b'[')) => {
                    if depth == deepest {
                        return self.malformed("at most 64 levels of nesting");
                    }
                    self.at += 1;
                    depth += 1;
                    objects = (objects << 1) | u64::from(open == b'{');
                    let close = if open == b'{' { b'}' } else { b']' };
                    if !self.eat(close) {
                        if open == b'{' {
                            self.skip_key()?;
                        }
                        next = self.peek();
                        continue;
                    }
                    depth -= 1;
                    objects >>= 1;
                }
                Some(b'"') => self.skip_string()?,
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                }
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return self.malformed("a value"),
            }
            // A value is complete: closing brackets follow, or a comma and the next value.
            loop {
                if depth == 0 {
                    return Ok(&self.text[start..self.at]);
                }
                let object = objects & 1 == 1;
                if self.eat(b',') {
                    if object {
                        self.skip_key()?;
                    }
                    next = self.peek();
                    break;
                }
                if object {
                    self.expect(b'}', "`,` or `}`")?
                } else {
                    self.expect(b']', "`,` or `]`")?
                }
                depth -= 1;
                objects >>= 1;
            }
        }
    }

    fn skip_key(&mut self) -> Result<()> {
        if self.peek() != Some(b'"') {
            return self.malformed("a field name in double quotes");
        }
        self.skip_string()?;
        self.expect(b':', "`:`")
    }

    fn skip_string(&mut self) -> Result<()> {
        self.expect(b'"', "a string")?;
        self.at += special(&self.bytes()[self.at..]);
        self.rest_of_string(None)
    }
}

const BLOCK: usize = 32;

/// Returns the position of the first quote, backslash or control character; the length if there is none.
#[inline]
fn special(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 0x80;
    let mut at = 0;
    // Most bytes of strings are plain. The check of a block has no branches, so it compiles to vector instructions.
    while let Some(block) = bytes.get(at..at + BLOCK) {
        let is_special = |b: u8| b == b'"' || b == b'\\' || b < 0x20;
        if block.iter().fold(false, |found, &b| found | is_special(b)) {
            break;
        }
        at += BLOCK;
    }
    while let Some(chunk) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("8 bytes"));
        // These are the classic tests for "a byte is zero" and "a byte is below n"; they are exact for the lowest
        // matching byte.
        let zero = |v: u64| v.wrapping_sub(ONES) & !v;
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c)) | below_space) & HIGH;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(&b) = bytes.get(at) {
        if b == b'"' || b == b'\\' || b < 0x20 {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<i64>().prop_map(|v| v.to_string()),
            any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:?}")),
            any::<String>().prop_map(|v| serde_json::to_string(&v).unwrap()),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|v| format!("[{}]", v.join(" , "))),
                prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|v| {
                    let fields: Vec<String> = v
                        .iter()
                        .map(|(k, v)| format!("{} :{v}", serde_json::to_string(k).unwrap()))
                        .collect();
                    format!("{{{}}}", fields.join(","))
                }),
            ]
        })
    }

    fn accepts(text: &str) -> bool {
        let mut parser = Parser::new(text);
        parser.skip().is_ok() && parser.peek().is_none()
    }

    proptest! {
        #[test]
        fn skip_takes_exactly_what_another_json_reader_takes(text in json(), cut in 0usize..60, junk in "[\\[\\]{}:,\"0-9a-e. \\\\-]{0,3}") {
            prop_assert!(accepts(&text));
            let mut broken = text;
            let at = (0..=cut.min(broken.len())).rev().find(|at| broken.is_char_boundary(*at)).unwrap();
            broken.insert_str(at, &junk);
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&broken).is_ok();
            // The two parsers differ only in a lone surrogate, which serde_json skips without a check.
            prop_assert_eq!(accepts(&broken), theirs && !broken.contains("\\ud"));
        }

        #[test]
        fn strings_are_read_as_written(text in any::<String>()) {
            let quoted = serde_json::to_string(&text).unwrap();
            let mut scratch = String::new();
            prop_assert_eq!(Parser::new(&quoted).string(&mut scratch).unwrap(), text.as_str());
        }
    }

    #[test]
    fn numbers_keep_their_text() {
        for (text, integer, fraction) in [
            ("0", Some(0), false),
            ("-0", Some(0), false),
            ("9223372036854775807", Some(i64::MAX), false),
            ("-9223372036854775808", Some(i64::MIN), false),
            ("9223372036854775808", None, false),
            ("1.50", None, true),
            ("1e3", None, true),
        ] {
            let number = Parser::new(text).number().unwrap();
            assert_eq!((number.text, number.integer, number.fraction), (text, integer, fraction));
        }
        for bad in ["-", "01", "1.", ".5", "1e", "+1", "--1", "NaN"] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn nesting_has_a_bound_and_needs_no_stack() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(accepts(&nested(DEPTH_MAX)));
        assert_eq!(
            Parser::new(&nested(DEPTH_MAX + 1)).skip(),
            Err(SyntaxError { at: DEPTH_MAX, expected: "at most 64 levels of nesting" })
        );
        assert!(Parser::new(&"[".repeat(1_000_000)).skip().is_err());
    }

    #[test]
    fn lone_surrogates_are_refused() {
        assert!(!accepts(r#""\ud800""#) && !accepts(r#""\ud800\u0041""#) && !accepts(r#""\udc00""#));
        let mut scratch = String::new();
        assert_eq!(Parser::new(r#""\ud83d\ude00""#).string(&mut scratch).unwrap(), "😀");
    }
}
