//! LIKE takes any escape character, and SIMILAR TO matches whole texts, as in PostgreSQL. DataFusion refuses an escape other than
//! the backslash, and takes a SIMILAR TO pattern for a regular expression that may match anywhere. Here the patterns are
//! converted.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use types::{Error, Result, name};

use super::comparison::binary;
use super::{CoercionPass, external};
use crate::functions::common_type::is_text;
use crate::functions::regexes;

/// Greatest repetition count in a pattern.
const COUNT_MAX: u32 = 255;

impl CoercionPass<'_> {
    /// Converts the pattern to one whose escape is the backslash. A LIKE without wildcards becomes an equality.
    pub(super) fn like(&self, like: Like) -> DfResult<Expr> {
        let syntax = PatternSyntax::Like(like.escape_char.unwrap_or('\\'));
        if like.escape_char.is_none() && !matches!(&*like.pattern, Expr::Literal(..)) {
            return Ok(self.interruptible(Expr::Like(like)));
        }
        let pattern = syntax.convert(*like.pattern)?;
        if let Expr::Literal(scalar, _) = &pattern
            && let Some(Some(text)) = scalar.try_as_str()
            && let (whole, None) = before_wildcards(text)
            && !like.case_insensitive
            && self.type_of(&like.expr).is_some_and(|data_type| is_text(&data_type))
        {
            let op = if like.negated { Operator::NotEq } else { Operator::Eq };
            let whole = Expr::Literal(ScalarValue::Utf8(Some(whole)), None);
            return Ok(binary(*like.expr, op, whole));
        }
        let like = Like { pattern: Box::new(pattern), escape_char: None, ..like };
        Ok(self.interruptible(Expr::Like(like)))
    }

    /// Turns a pattern operator into a function call if evaluating the operator could block the planner.
    pub(super) fn interruptible(&self, expr: Expr) -> Expr {
        let (text, pattern) = match &expr {
            Expr::Like(like) => (&*like.expr, &*like.pattern),
            Expr::BinaryExpr(binary) => (&*binary.left, &*binary.right),
            _ => return expr,
        };
        let is_text = |expr| self.type_of(expr).is_some_and(|data_type| is_text(&data_type));
        if is_text(text) && is_text(pattern) { regexes::call_if_slow(expr) } else { expr }
    }

    pub(super) fn similar_to(&self, like: Like) -> DfResult<Expr> {
        let syntax = PatternSyntax::Similar(like.escape_char.unwrap_or('\\'));
        let op = if like.negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
        Ok(self.interruptible(binary(*like.expr, op, syntax.convert(*like.pattern)?)))
    }
}

/// Splits a LIKE pattern into the plain text before its first wildcard, and the rest from there on; `None` for the rest if it has
/// no wildcard.
pub fn before_wildcards(pattern: &str) -> (String, Option<&str>) {
    let mut plain = String::new();
    let mut signs = pattern.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '%' | '_' => return (plain, Some(&pattern[at..])),
            // A backslash at the end stands for itself.
            '\\' => plain.push(signs.next().map_or('\\', |(_, sign)| sign)),
            sign => plain.push(sign),
        }
    }
    (plain, None)
}

/// The syntax of a pattern, with its escape character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PatternSyntax {
    Like(char),
    Similar(char),
}

impl PatternSyntax {
    /// Converts a pattern to DataFusion's syntax: now if it is a constant, else by a function when it is evaluated.
    fn convert(self, pattern: Expr) -> DfResult<Expr> {
        if let Expr::Literal(scalar, _) = &pattern
            && let Some(text) = scalar.try_as_str()
        {
            let read = text.map(|text| self.read(text)).transpose().map_err(external)?;
            return Ok(Expr::Literal(ScalarValue::Utf8(read), None));
        }
        let signature =
            Signature::one_of(vec![TypeSignature::Exact(vec![Arrow::Utf8])], Volatility::Immutable);
        let function = Arc::new(ScalarUDF::new_from_impl(PatternFunction { syntax: self, signature }));
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![pattern])))
    }

    fn read(self, pattern: &str) -> Result<String> {
        match self {
            PatternSyntax::Like('\\') => Ok(pattern.to_owned()),
            PatternSyntax::Like(escape) => like(pattern, escape),
            PatternSyntax::Similar(escape) => SimilarPattern::read(pattern, escape),
        }
    }
}

/// Converts a LIKE pattern with another escape character to one with the backslash.
fn like(pattern: &str, escape: char) -> Result<String> {
    let mut read = String::with_capacity(pattern.len() + 8);
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        match sign {
            sign if sign == escape => {
                let meant = signs.next().ok_or_else(|| wrong("LIKE", pattern, "it ends with its escape"))?;
                read.extend(['\\', meant]);
            }
            '\\' => read.push_str("\\\\"),
            sign => read.push(sign),
        }
    }
    Ok(read)
}

fn wrong(of: &str, pattern: &str, why: &str) -> Error {
    Error::invalid(format!("`{}` is not a valid pattern of {of}: {why}", name::printable(pattern)))
}

/// Converts a SIMILAR TO pattern to a regular expression.
struct SimilarPattern<'a> {
    pattern: &'a str,
    signs: std::iter::Peekable<std::str::Chars<'a>>,
    escape: char,
    read: String,
}

impl<'a> SimilarPattern<'a> {
    /// Returns a regular expression that matches whole texts only.
    fn read(pattern: &'a str, escape: char) -> Result<String> {
        let signs = pattern.chars().peekable();
        let mut this = SimilarPattern { pattern, signs, escape, read: "^(?s:".to_owned() };
        let mut open = 0;
        // True if a repetition may follow.
        let mut repeats = false;
        while let Some(sign) = this.signs.next() {
            let before = std::mem::replace(&mut repeats, true);
            match sign {
                sign if sign == escape => match this.signs.next() {
                    Some('"') => return Err(this.wrong("an escaped `\"` has no meaning here")),
                    Some(meant) => this.plain(meant),
                    None => return Err(this.wrong("it ends with its escape")),
                },
                '%' => this.read.push_str(".*"),
                '_' => this.read.push('.'),
                '|' => {
                    this.read.push('|');
                    repeats = false;
                }
                '(' => {
                    this.read.push_str("(?:");
                    open += 1;
                    repeats = false;
                }
                ')' if open == 0 => return Err(this.wrong("a `)` closes nothing")),
                ')' => {
                    this.read.push(')');
                    open -= 1;
                }
                '*' | '+' | '?' | '{' if !before => {
                    return Err(this.wrong(&format!("there is nothing before `{sign}` that it could repeat")));
                }
                '*' | '+' | '?' => {
                    this.read.push(sign);
                    repeats = false;
                }
                '{' => {
                    this.count()?;
                    repeats = false;
                }
                '[' => this.class()?,
                sign => this.plain(sign),
            }
        }
        if open > 0 {
            return Err(this.wrong("a `(` is not closed"));
        }
        this.read.push_str(")$");
        Ok(this.read)
    }

    fn wrong(&self, why: &str) -> Error {
        wrong("SIMILAR TO", self.pattern, why)
    }

    /// Appends a character that stands for itself.
    fn plain(&mut self, sign: char) {
        if sign.is_ascii_punctuation() {
            self.read.push('\\');
        }
        self.read.push(sign);
    }

    /// Converts a repetition count: `{2}`, `{2,}`, `{2,3}`.
    fn count(&mut self) -> Result<()> {
        let text: String = self.signs.by_ref().take_while(|sign| *sign != '}').collect();
        let number = |text: &str| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u32>().ok().filter(|count| digits && *count <= COUNT_MAX)
        };
        let is_right = match text.split_once(',') {
            None => number(&text).is_some(),
            Some((least, "")) => number(least).is_some(),
            Some((least, most)) => number(least).zip(number(most)).is_some_and(|(least, most)| least <= most),
        };
        if !is_right {
            let why = format!(
                "`{{{text}}}` is not a count such as `{{2}}`, `{{2,}}` or `{{2,3}}`, up to {COUNT_MAX}"
            );
            return Err(self.wrong(&why));
        }
        self.read.extend(["{", &text, "}"]);
        Ok(())
    }

    /// Converts a character class: `[a-z_]`, `[^0-9]`, `[[:alpha:]]`.
    fn class(&mut self) -> Result<()> {
        self.read.push('[');
        if self.signs.next_if_eq(&'^').is_some() {
            self.read.push('^');
        }
        let mut is_first = true;
        loop {
            let sign = self.signs.next();
            match sign {
                None => return Err(self.wrong("a `[` is not closed")),
                Some(']') if !is_first => break,
                Some('[') if self.signs.peek() == Some(&':') => self.named()?,
                Some(sign) => {
                    let from = self.member(sign)?;
                    let mut ahead = self.signs.clone();
                    let is_range = ahead.next() == Some('-') && ahead.peek().is_some_and(|sign| *sign != ']');
                    self.code(from);
                    if is_range {
                        self.signs.next();
                        let to = self.signs.next().unwrap_or('-');
                        let to = self.member(to)?;
                        if to < from {
                            return Err(self.wrong(&format!("`{from}-{to}` begins after its end")));
                        }
                        self.read.push('-');
                        self.code(to);
                    }
                }
            }
            is_first = false;
        }
        self.read.push(']');
        Ok(())
    }

    /// Returns the character that a member of a class stands for.
    fn member(&mut self, sign: char) -> Result<char> {
        match sign {
            sign if sign == self.escape => {
                self.signs.next().ok_or_else(|| self.wrong("it ends with its escape"))
            }
            sign => Ok(sign),
        }
    }

    fn code(&mut self, sign: char) {
        self.read.push_str(&format!("\\x{{{:x}}}", u32::from(sign)));
    }

    /// Converts a named class such as `[:alpha:]`, whose first bracket was read.
    fn named(&mut self) -> Result<()> {
        const NAMES: [&str; 12] = [
            "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
            "upper", "xdigit",
        ];
        let text: String = self.signs.by_ref().skip(1).take_while(|sign| *sign != ':').collect();
        if self.signs.next() != Some(']') || !NAMES.contains(&text.as_str()) {
            return Err(self.wrong(&format!("`[:{text}` is not a class such as `[:alpha:]`")));
        }
        self.read.extend(["[:", &text, ":]"]);
        Ok(())
    }
}

/// The function of [`PatternSyntax::read`], for a pattern that is not constant, or a parameter without a value yet.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PatternFunction {
    syntax: PatternSyntax,
    signature: Signature,
}

impl ScalarUDFImpl for PatternFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        match self.syntax {
            PatternSyntax::Like(_) => "like_pattern",
            PatternSyntax::Similar(_) => "similar_pattern",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> DfResult<Arrow> {
        Ok(Arrow::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let read = |text: Option<&str>| text.map(|text| self.syntax.read(text)).transpose().map_err(external);
        match args.args.as_slice() {
            [ColumnarValue::Scalar(scalar)] => {
                let read = read(scalar.try_as_str().flatten())?;
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(read)))
            }
            [ColumnarValue::Array(texts)] => {
                let texts = arrow::compute::cast(texts, &Arrow::Utf8)?;
                let read = texts.as_string::<i32>().iter().map(read).collect::<DfResult<StringArray>>()?;
                Ok(ColumnarValue::Array(Arc::new(read) as ArrayRef))
            }
            _ => Err(DataFusionError::Internal("a pattern is read from one argument".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_similar_to_becomes_an_expression_for_whole_texts() {
        let read = |pattern: &str| SimilarPattern::read(pattern, '\\').unwrap();
        assert_eq!(read("a%_"), "^(?s:a.*.)$");
        assert_eq!(read("(a|b)+c{2,3}"), "^(?s:(?:a|b)+c{2,3})$");
        assert_eq!(read(r"a.b^$\%"), r"^(?s:a\.b\^\$\%)$");
        assert_eq!(read("[]a-c[:digit:]x-]"), r"^(?s:[\x{5d}\x{61}-\x{63}[:digit:]\x{78}\x{2d}])$");
        assert_eq!(read("[^[:digit:]_]"), "^(?s:[^[:digit:]\\x{5f}])$");
        assert_eq!(SimilarPattern::read("a!%b\\", '!').unwrap(), r"^(?s:a\%b\\)$");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (pattern, why) in [
            ("(a", "a `(` is not closed"),
            ("a)", "a `)` closes nothing"),
            ("*a", "there is nothing before `*`"),
            ("a|+", "there is nothing before `+`"),
            ("a**", "there is nothing before `*`"),
            ("a{x}", "is not a count"),
            ("a{3,2}", "is not a count"),
            ("a{1000}", "is not a count"),
            ("[a", "a `[` is not closed"),
            ("[z-a]", "begins after its end"),
            ("[[:nothing:]]", "is not a class"),
            ("a\\", "it ends with its escape"),
        ] {
            let error = SimilarPattern::read(pattern, '\\').unwrap_err();
            assert!(error.message().contains(why), "{pattern}: {error}");
        }
        assert!(like("a!", '!').is_err());
    }

    #[test]
    fn an_escape_of_another_kind_becomes_a_backslash() {
        assert_eq!(like(r"50!%\_x!!", '!').unwrap(), r"50\%\\_x\!");
        assert_eq!(before_wildcards(r"50\%\\_x"), ("50%\\".to_owned(), Some("_x")));
        assert_eq!(before_wildcards(r"a\_b\"), ("a_b\\".to_owned(), None));
    }
}
