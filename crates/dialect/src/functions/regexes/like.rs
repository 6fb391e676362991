//! A LIKE pattern, classified by the cheapest way to match it.

use crate::rewrites::coercion::before_wildcards;

#[derive(Debug, PartialEq, Eq)]
pub enum LikePattern {
    Equal(String),
    StartsWith(String),
    EndsWith(String),
    Contains(String),
    /// A regular expression that matches the same texts.
    Regex(String),
}

impl LikePattern {
    /// Reads a pattern whose escape is the backslash.
    pub fn read(pattern: &str, ignores_case: bool) -> Self {
        if !ignores_case {
            match before_wildcards(pattern) {
                (plain, None) => return LikePattern::Equal(plain),
                (plain, Some("%")) => return LikePattern::StartsWith(plain),
                _ => {}
            }
            if let Some(rest) = pattern.strip_prefix('%') {
                match before_wildcards(rest) {
                    (plain, None) => return LikePattern::EndsWith(plain),
                    (plain, Some("%")) => return LikePattern::Contains(plain),
                    _ => {}
                }
            }
        }
        LikePattern::Regex(regex(pattern, ignores_case))
    }

    /// Returns true if the pattern needs no regular expression, but one pass over the text.
    pub fn is_simple(&self) -> bool {
        !matches!(self, LikePattern::Regex(_))
    }
}

fn regex(pattern: &str, ignores_case: bool) -> String {
    // A `%` at the beginning or the end leaves the expression unanchored there.
    let mut regex = String::from(if ignores_case { "(?si)" } else { "(?s)" });
    let mut signs = pattern.chars().peekable();
    if signs.next_if_eq(&'%').is_none() {
        regex.push('^');
    }
    loop {
        match signs.next() {
            None => break regex.push('$'),
            Some('%') if signs.peek().is_none() => break,
            // Several `%` mean the same as one.
            Some('%') if signs.peek() == Some(&'%') => {}
            Some('%') => regex.push_str(".*"),
            Some('_') => regex.push('.'),
            // A backslash at the end stands for itself.
            Some('\\') => regex.push_str(&regex_syntax::escape(&signs.next().unwrap_or('\\').to_string())),
            Some(sign) => regex.push_str(&regex_syntax::escape(sign.encode_utf8(&mut [0; 4]))),
        }
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::LikePattern::{Contains, EndsWith, Equal, Regex, StartsWith};
    use super::*;

    #[test]
    fn each_pattern_is_read_as_the_cheapest_that_decides_it() {
        for (pattern, wanted) in [
            ("abc", Equal("abc".into())),
            ("", Equal("".into())),
            ("abc%", StartsWith("abc".into())),
            (r"a\%c%", StartsWith("a%c".into())),
            ("%abc", EndsWith("abc".into())),
            ("%a.c%", Contains("a.c".into())),
            ("%", StartsWith("".into())),
            ("%%", Contains("".into())),
            ("a%c", Regex("(?s)^a.*c$".into())),
            ("%a_c%", Regex("(?s)a.c".into())),
            (r"_\_.\%\", Regex(r"(?s)^._\.%\\$".into())),
            ("a%%%", Regex("(?s)^a".into())),
        ] {
            assert_eq!(LikePattern::read(pattern, false), wanted, "{pattern}");
        }
        assert_eq!(LikePattern::read("Ab%", true), Regex("(?si)^Ab".into()));
    }
}
