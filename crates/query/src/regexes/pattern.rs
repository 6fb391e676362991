//! One pattern, compiled, with how much one search for it may take.

use arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use regex::Regex;
use regex_syntax::hir::{Hir, HirKind};
use types::{Error, Kind};

/// Bytes of the text times the places of the pattern, for one search. The library mostly goes over a text once, at a gigabyte a
/// second; where it has to follow all places at once this is some seconds.
const STEPS_MAX: usize = 1_000_000_000;

/// The pattern of the row before, which mostly is that of the next one too.
#[derive(Default)]
pub(crate) struct Patterns {
    last: Option<(String, Pattern)>,
}

pub(crate) struct Pattern {
    regex: Regex,
    places: usize,
}

impl Patterns {
    /// The pattern of these signs with these flags, as `(?flags)pattern` has them.
    pub fn of(&mut self, pattern: &str, flags: Option<&str>) -> Result<&Pattern> {
        let whole = match flags {
            Some(flags) => format!("(?{flags}){pattern}"),
            None => pattern.to_owned(),
        };
        if self.last.as_ref().is_none_or(|(known, _)| *known != whole) {
            self.last = None;
            let compiled = Pattern::compile(&whole)?;
            self.last = Some((whole, compiled));
        }
        match &self.last {
            Some((_, pattern)) => Ok(pattern),
            None => Err(DataFusionError::Internal("a pattern was compiled".into())),
        }
    }
}

impl Pattern {
    fn compile(whole: &str) -> Result<Pattern> {
        // One that is refused says so itself, below.
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

    /// The expression, for searches in this text.
    pub fn within(&self, text: &str) -> Result<&Regex> {
        if text.len().saturating_mul(self.places) <= STEPS_MAX {
            return Ok(&self.regex);
        }
        let (most, places) = ((STEPS_MAX / self.places) >> 10, self.places);
        let message = format!(
            "a regular expression of {places} signs is looked for in a text of {} KiB; {most} KiB are searched at most",
            text.len() >> 10
        );
        let error = Error::new(Kind::TooLarge, message)
            .hint("search a part of the text, as by `left(text, 100000)`, or repeat less in the expression");
        Err(DataFusionError::External(Box::new(error)))
    }
}

/// [`places`] of a pattern; 1 of one that cannot be read.
pub(super) fn places_of(pattern: &str) -> usize {
    regex_syntax::parse(pattern).map_or(1, |hir| places(&hir))
}

/// How many places of a pattern a search may be at, at the same time: its signs, those that are repeated by number as often.
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
