//! A question and its bounds.

use std::time::Duration;

use types::{Error, Kind, Result};

use crate::words::Words;

/// The length of the longest question, in characters.
const CHARS_MAX: usize = 1_000;
/// The length of the longest question, in words. A longer one is refused rather than cut: the words cut off might reverse its
/// meaning.
const WORDS_MAX: usize = 200;
/// The number of sources that a question may list.
const SOURCES_MAX: usize = 50;

/// A question. `Question::new("is the disk nearly full?")` lets every source answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    pub text: String,
    /// Sources to ask: `metrics`, `requests`, `changes`, `notes`, `tables`, or a table's name. Empty: all.
    pub sources: Vec<String>,
    /// The time limit. The answer then consists of the sources that have answered. `None`: [`crate::Options::deadline`].
    pub deadline: Option<Duration>,
}

impl Question {
    pub fn new(text: impl Into<String>) -> Self {
        Question { text: text.into(), ..Question::default() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.text.trim().is_empty() {
            return Err(
                Error::invalid("there is no question").hint("ask, for example: is the disk nearly full?")
            );
        }
        if self.text.chars().count() > CHARS_MAX {
            return Err(Error::new(Kind::TooLarge, format!("a question has at most {CHARS_MAX} characters")));
        }
        if Words::of(&self.text).len() > WORDS_MAX {
            return Err(Error::new(Kind::TooLarge, format!("a question has at most {WORDS_MAX} words")));
        }
        if self.sources.len() > SOURCES_MAX {
            return Err(Error::new(Kind::TooLarge, format!("at most {SOURCES_MAX} sources can be listed")));
        }
        Ok(())
    }
}
