//! A compiled pattern, with a bound on the cost of one search for it.

use std::borrow::Cow;

use arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use regex::Regex;
use regex_syntax::hir::{Hir, HirKind};
use types::{Error, Kind};

use crate::execution::interrupt;

/// Limit of the cost of one search, in steps: bytes of the text times places of the pattern. The library mostly reads a text
/// once, at a gigabyte per second; in the worst case, where it has to follow all places at once, the limit is some seconds.
const STEPS_MAX: usize = 1_000_000_000;

/// Bytes of the longest pattern. Parsing and compiling takes some hundred times as many.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// Number of steps between two checks of the statement's deadline: about a millisecond.
const STEPS_BETWEEN_CHECKS: usize = 1 << 20;

/// Compiles the patterns of rows, and bounds the searches for them. It keeps the last pattern, because the next row mostly has
/// the same.
#[derive(Default)]
pub struct Patterns {
    last: Option<(String, Pattern)>,
    /// The number of steps since the last check of the deadline.
    steps: usize,
}

struct Pattern {
    regex: Regex,
    places: usize,
}

impl Patterns {
    /// Returns the regular expression of a pattern and its flags (`(?flags)pattern`), for one search in `text`. Fails with
    /// [`Kind::TooLarge`] if that search could take more than `STEPS_MAX`.
    pub fn regex_for(&mut self, text: &str, pattern: &str, flags: Option<&str>) -> Result<&Regex> {
        let whole = match flags {
            Some(flags) => Cow::Owned(format!("(?{flags}){pattern}")),
            None => Cow::Borrowed(pattern),
        };
        if self.last.as_ref().is_none_or(|(known, _)| *known != whole) {
            interrupt::check()?;
            check_length(&whole)?;
            self.last = None;
            let compiled = Pattern::compile(&whole)?;
            self.last = Some((whole.into_owned(), compiled));
        }
        let places = self.last.as_ref().map_or(1, |(_, pattern)| pattern.places);
        let steps = text.len().saturating_mul(places);
        if steps > STEPS_MAX {
            return Err(too_long(text, places));
        }
        self.take(steps)?;
        match &self.last {
            Some((_, pattern)) => Ok(&pattern.regex),
            None => Err(DataFusionError::Internal("a pattern was compiled".into())),
        }
    }

    /// Counts steps, and checks the deadline after [`STEPS_BETWEEN_CHECKS`] of them.
    fn take(&mut self, steps: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_BETWEEN_CHECKS {
            self.steps = 0;
            interrupt::check()?;
        }
        Ok(())
    }
}

impl Pattern {
    fn compile(whole: &str) -> Result<Pattern> {
        // An invalid pattern has 1 place here, and is refused below.
        let places = places_of(whole);
        let regex = Regex::new(whole).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => DataFusionError::External(Box::new(error)),
            error => {
                let text = format!("Regular expression did not compile: {error:?}");
                ArrowError::ComputeError(text).into()
            }
        })?;
        Ok(Pattern { regex, places })
    }
}

fn check_length(pattern: &str) -> Result<()> {
    if pattern.len() <= PATTERN_BYTES_MAX {
        return Ok(());
    }
    let (found, most) = (pattern.len() >> 10, PATTERN_BYTES_MAX >> 10);
    let error = Error::new(
        Kind::TooLarge,
        format!("a pattern of {found} KiB is too long: at most {most} KiB are allowed"),
    )
    .hint("`strpos` and `=` find texts of any length");
    Err(DataFusionError::External(Box::new(error)))
}

fn too_long(text: &str, places: usize) -> DataFusionError {
    let most = (STEPS_MAX / places) >> 10;
    let message = format!(
        "a pattern of {places} characters cannot be searched in a text of {} KiB: at most {most} KiB are allowed",
        text.len() >> 10
    );
    let error = Error::new(Kind::TooLarge, message)
        .hint("search a part of the text, as by `left(text, 100000)`, or repeat less in the pattern");
    DataFusionError::External(Box::new(error))
}

/// Returns the number of [`places`] of a pattern; 1 for an invalid one, [`usize::MAX`] for one longer than [`PATTERN_BYTES_MAX`].
pub(super) fn places_of(pattern: &str) -> usize {
    if pattern.len() > PATTERN_BYTES_MAX {
        return usize::MAX;
    }
    regex_syntax::parse(pattern).map_or(1, |hir| places(&hir))
}

/// Returns the number of places in the pattern at which a search may be at the same time: one for each character, times its
/// repetitions.
fn places(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => literal.0.len().max(1),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            places(&repetition.sub).saturating_mul(times.max(1) as usize)
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(places).fold(0, usize::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_signs_count_as_often_as_they_are_repeated() {
        for (pattern, wanted) in [
            ("abc", 3),
            (r"a[^z]*z|a", 4),
            ("(ab){10}", 20),
            (r"\d{4}-\d{2}", 7),
            ("((x{30}){30}){10}", 9_000),
        ] {
            assert_eq!(places(&regex_syntax::parse(pattern).unwrap()), wanted, "{pattern}");
        }
    }
}
