//! Executes `regexp_count`, `regexp_instr`, `regexp_replace`, `regexp_like` and LIKE row by row.

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, BooleanBuilder, Int64Builder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use regex::{Captures, Regex};
use types::Error;

use super::{LikePattern, Patterns};
use crate::execution::interrupt;
use crate::functions::text_or_number::TextOrNumber;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RegexFunctionKind {
    /// `regexp_count(text, pattern[, start[, flags]])`.
    Count,
    /// `regexp_instr(text, pattern[, start[, nth[, flags[, group]]]])`.
    Position,
    /// `regexp_replace(text, pattern, new[, flags])`.
    Replace,
    /// `regexp_like(text, pattern[, flags])`.
    IsMatch,
    /// `text LIKE pattern`, or with a third argument `i` `text ILIKE pattern`. The escape character is the backslash.
    Like,
}

/// Registers these functions, which replace DataFusion's.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, what) in [
        ("regexp_count", RegexFunctionKind::Count),
        ("regexp_instr", RegexFunctionKind::Position),
        ("regexp_replace", RegexFunctionKind::Replace),
        ("regexp_like", RegexFunctionKind::IsMatch),
    ] {
        let inner = registry.udf(name)?;
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(RegexFunction {
            inner,
            what,
            is_operator: false,
        })))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegexFunction {
    inner: Arc<ScalarUDF>,
    what: RegexFunctionKind,
    /// True for a function that stands for an operator. The optimizer must not turn it into an operator again.
    is_operator: bool,
}

/// The function behind `text ~ pattern`, and with a third argument `i` behind `text ~* pattern`.
pub(super) static OPERATOR: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let inner = datafusion::functions::regex::regexp_like();
    Arc::new(ScalarUDF::new_from_impl(RegexFunction {
        inner,
        what: RegexFunctionKind::IsMatch,
        is_operator: true,
    }))
});

/// The function behind LIKE and ILIKE.
pub(super) static LIKE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let inner = datafusion::functions::regex::regexp_like();
    Arc::new(ScalarUDF::new_from_impl(RegexFunction {
        inner,
        what: RegexFunctionKind::Like,
        is_operator: true,
    }))
});

/// Returns true for a function that stands for an operator.
pub(super) fn is_operator(function: &ScalarUDF) -> bool {
    function.inner().as_any().downcast_ref::<RegexFunction>().is_some_and(|this| this.is_operator)
}

impl ScalarUDFImpl for RegexFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        if self.what == RegexFunctionKind::Like { "like" } else { self.inner.name() }
    }

    fn aliases(&self) -> &[String] {
        if self.what == RegexFunctionKind::Like { &[] } else { self.inner.aliases() }
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if self.is_operator {
            Ok(ExprSimplifyResult::Original(args))
        } else {
            self.inner.simplify(args, info)
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let arguments = Arguments::of(&args.args, rows)?;
        let found: ArrayRef = match self.what {
            RegexFunctionKind::Count => count(&arguments, rows)?,
            RegexFunctionKind::Position => position(&arguments, rows)?,
            RegexFunctionKind::Replace => replace(&arguments, rows)?,
            RegexFunctionKind::IsMatch => is_match(&arguments, rows)?,
            RegexFunctionKind::Like => is_like(&arguments, rows)?,
        };
        let found = cast(&found, args.return_field.data_type())?;
        if is_constant {
            ScalarValue::try_from_array(&found, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(found))
        }
    }
}

/// The arguments of a call.
struct Arguments(Vec<TextOrNumber>);

impl Arguments {
    fn of(args: &[ColumnarValue], rows: usize) -> Result<Arguments> {
        args.iter().map(|arg| TextOrNumber::of(arg, rows)).collect::<Result<_>>().map(Arguments)
    }

    fn text(&self, at: usize, row: usize) -> Option<&str> {
        self.0.get(at)?.text(row)
    }

    fn has(&self, at: usize) -> bool {
        at < self.0.len()
    }

    /// Returns an integer argument, or `otherwise` if the call does not have it. Null counts as 0.
    fn number(&self, at: usize, row: usize, otherwise: i64) -> i64 {
        self.0.get(at).map_or(otherwise, |argument| argument.number(row).unwrap_or(0))
    }
}

/// Checks the flags of a function that does not take the flag `g`; empty flags become `None`.
fn flags_without_g<'a>(name: &str, flags: Option<&'a str>) -> Result<Option<&'a str>> {
    match flags {
        Some(flags) if flags.contains('g') => Err(invalid(format!("`{name}` does not take the flag `g`"))),
        flags => Ok(flags.filter(|flags| !flags.is_empty())),
    }
}

/// Returns the byte offset of the character `start`, counted from 1; `None` beyond the end.
fn from_character(text: &str, start: i64) -> Option<usize> {
    let before = usize::try_from(start - 1).ok()?;
    text.char_indices().nth(before).map(|(byte, _)| byte)
}

fn count(arguments: &Arguments, rows: usize) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    let mut counts = Int64Builder::with_capacity(rows);
    for row in 0..rows {
        let pattern = arguments.text(1, row).filter(|pattern| !pattern.is_empty());
        let (Some(text), Some(pattern)) = (arguments.text(0, row).filter(|text| !text.is_empty()), pattern)
        else {
            counts.append_value(0);
            continue;
        };
        let start = arguments.number(2, row, 1);
        if start < 1 {
            return Err(invalid("`regexp_count` begins at a character, counted from 1".into()));
        }
        let flags = flags_without_g("regexp_count", arguments.text(3, row))?;
        let text = &text[from_character(text, start).unwrap_or(text.len())..];
        let mut found = 0;
        for _ in patterns.regex_for(text, pattern, flags)?.find_iter(text) {
            interrupt::check()?;
            found += 1;
        }
        counts.append_value(found);
    }
    Ok(Arc::new(counts.finish()))
}

fn position(arguments: &Arguments, rows: usize) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    let mut places = Int64Builder::with_capacity(rows);
    for row in 0..rows {
        let (text, pattern) = (arguments.text(0, row), arguments.text(1, row));
        let (Some(text), Some(pattern)) = (text, pattern) else {
            places.append_null();
            continue;
        };
        if text.is_empty() || pattern.is_empty() {
            places.append_value(0);
            continue;
        }
        let flags = flags_without_g("regexp_instr", arguments.text(4, row))?;
        let (start, nth) = (arguments.number(2, row, 1), arguments.number(3, row, 1));
        if start < 1 || nth < 1 {
            return Err(invalid("`regexp_instr` counts characters and matches from 1".into()));
        }
        let Some(start) = from_character(text, start) else {
            places.append_value(0);
            continue;
        };
        let regex = patterns.regex_for(text, pattern, flags)?;
        let at = match arguments.number(5, row, 0) {
            group @ 1.. => usize::try_from(group)
                .ok()
                .and_then(|group| regex.captures(&text[start..])?.get(group))
                .map(|group| group.start()),
            _ => nth_match(regex, &text[start..], nth)?,
        };
        places.append_value(at.map_or(0, |at| text[..start + at].chars().count() as i64 + 1));
    }
    Ok(Arc::new(places.finish()))
}

fn nth_match(regex: &Regex, text: &str, nth: i64) -> Result<Option<usize>> {
    for (found, at) in (1..).zip(regex.find_iter(text)) {
        interrupt::check()?;
        if found == nth {
            return Ok(Some(at.start()));
        }
    }
    Ok(None)
}

fn replace(arguments: &Arguments, rows: usize) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    let mut replaced = StringBuilder::new();
    // The replacement of the previous row, in the syntax of the regex library.
    let mut last: Option<(&str, String)> = None;
    for row in 0..rows {
        let flags = if arguments.has(3) { arguments.text(3, row).map(Some) } else { Some(None) };
        let texts = (arguments.text(0, row), arguments.text(1, row), arguments.text(2, row), flags);
        let (Some(text), Some(pattern), Some(new), Some(flags)) = texts else {
            replaced.append_null();
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| *known != new) {
            last = Some((new, as_library(new).into_owned()));
        }
        let new = last.as_ref().map_or("", |(_, new)| new);
        let all = flags.is_some_and(|flags| flags.contains('g'));
        let others = flags.map(|flags| flags.replace('g', ""));
        let others = others.as_deref().filter(|others| !others.is_empty());
        let regex = patterns.regex_for(text, pattern, others)?;
        replace_in(regex, text, new, all, |part| {
            // Writing to a builder of texts cannot fail.
            let _ = std::fmt::Write::write_str(&mut replaced, part);
        })?;
        replaced.append_value("");
    }
    Ok(Arc::new(replaced.finish()))
}

/// Calls `give` with the parts of the text in which the first match, or each match if `all`, is replaced.
fn replace_in(regex: &Regex, text: &str, new: &str, all: bool, mut give: impl FnMut(&str)) -> Result<()> {
    let quotes = new.contains('$');
    let mut end = 0;
    let mut part = String::new();
    let mut take = |at: std::ops::Range<usize>, captures: Option<&Captures<'_>>| {
        give(&text[end..at.start]);
        match captures {
            Some(captures) => {
                part.clear();
                captures.expand(new, &mut part);
                give(&part);
            }
            None => give(new),
        }
        end = at.end;
    };
    let most = if all { usize::MAX } else { 1 };
    if quotes {
        for captures in regex.captures_iter(text).take(most) {
            interrupt::check()?;
            take(captures.get_match().range(), Some(&captures));
        }
    } else {
        for found in regex.find_iter(text).take(most) {
            interrupt::check()?;
            take(found.range(), None);
        }
    }
    give(&text[end..]);
    Ok(())
}

/// Converts `\1` to `${1}`, the syntax of the regex library.
fn as_library(new: &str) -> Cow<'_, str> {
    static GROUPS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\{1,2}(\d+)").expect("a pattern"));
    GROUPS.replace_all(new, "$${$1}")
}

fn is_match(arguments: &Arguments, rows: usize) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    let mut matches = BooleanBuilder::with_capacity(rows);
    for row in 0..rows {
        let flags = if arguments.has(2) { arguments.text(2, row).map(Some) } else { Some(None) };
        let (Some(text), Some(pattern), Some(flags)) =
            (arguments.text(0, row), arguments.text(1, row), flags)
        else {
            matches.append_null();
            continue;
        };
        let flags = flags_without_g("regexp_like", flags)?;
        matches.append_value(patterns.regex_for(text, pattern, flags)?.is_match(text));
    }
    Ok(Arc::new(matches.finish()))
}

fn is_like(arguments: &Arguments, rows: usize) -> Result<ArrayRef> {
    let ignores_case = arguments.has(2);
    let mut patterns = Patterns::default();
    let mut matches = BooleanBuilder::with_capacity(rows);
    // The pattern of the previous row.
    let mut last: Option<(&str, LikePattern)> = None;
    for row in 0..rows {
        let (Some(text), Some(pattern)) = (arguments.text(0, row), arguments.text(1, row)) else {
            matches.append_null();
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| *known != pattern) {
            last = Some((pattern, LikePattern::read(pattern, ignores_case)));
        }
        let matched = match last.as_ref().map(|(_, read)| read) {
            Some(LikePattern::Equal(whole)) => text == whole.as_str(),
            Some(LikePattern::StartsWith(start)) => text.starts_with(start.as_str()),
            Some(LikePattern::EndsWith(end)) => text.ends_with(end.as_str()),
            Some(LikePattern::Contains(part)) => text.contains(part.as_str()),
            Some(LikePattern::Regex(regex)) => patterns.regex_for(text, regex, None)?.is_match(text),
            None => false,
        };
        matches.append_value(matched);
    }
    Ok(Arc::new(matches.finish()))
}

fn invalid(message: String) -> DataFusionError {
    DataFusionError::External(Box::new(Error::invalid(message)))
}
