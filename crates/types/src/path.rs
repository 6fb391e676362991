//! Dotted paths: the place of a column's values in a JSON object, when it is not the field with the column's name.

use std::fmt;

use crate::{Error, Result, name};

/// Field names from the outside in: `payload.user.id`. A name with a dot, a space or a quote is put in double quotes,
/// with its own quotes doubled: `a."b.c"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    parts: Vec<String>,
}

/// The greatest number of names in a path, that is, of nested objects.
const PARTS_MAX: usize = 16;
const BYTES_MAX: usize = 1_000;

impl Path {
    pub fn parse(text: &str) -> Result<Path> {
        let no_path = |why: &str| {
            Error::invalid(format!("`{}` is not a valid path: {why}", name::printable(text)))
                .hint("names of fields with dots between them: `payload.user.id`; `a.\"b.c\"` where a name holds a dot")
        };
        if text.len() > BYTES_MAX {
            return Err(no_path(&format!("it has more than {BYTES_MAX} bytes")));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        loop {
            let part = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let (part, behind) = unquoted(quoted).ok_or_else(|| no_path("a quote is not closed"))?;
                    rest = behind;
                    part
                }
                None => {
                    let end = rest.find(['.', '"']).unwrap_or(rest.len());
                    let (part, behind) = rest.split_at(end);
                    rest = behind;
                    part.to_owned()
                }
            };
            if part.is_empty() {
                return Err(no_path("a name is empty"));
            }
            parts.push(part);
            match rest.strip_prefix('.') {
                Some(next) => rest = next,
                None if rest.is_empty() => break,
                None => return Err(no_path("a dot is missing")),
            }
        }
        if parts.len() > PARTS_MAX {
            return Err(no_path(&format!("it has more than {PARTS_MAX} names")));
        }
        Ok(Path { parts })
    }

    /// The names, from the outside in. There is at least one.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }
}

/// Splits at the closing quote: returns the unescaped text before it and the rest after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut part, mut rest) = (String::new(), text);
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Some((part, rest)),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            if part.contains(['.', '"', ' ']) {
                write!(f, "\"{}\"", part.replace('"', "\"\""))?
            } else {
                f.write_str(part)?
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_and_written_the_same() {
        for (text, parts) in [
            ("a", &["a"][..]),
            ("payload.user.id", &["payload", "user", "id"]),
            ("a.\"b.c\".d", &["a", "b.c", "d"]),
            ("\"say \"\"hi\"\"\"", &["say \"hi\""]),
            ("é.x-y_z", &["é", "x-y_z"]),
        ] {
            let path = Path::parse(text).unwrap();
            assert_eq!(
                (path.parts(), path.to_string().as_str()),
                (&parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()[..], text)
            );
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "\"a",
            "a\"b\"",
            "\"a\"b",
            "\"\"",
            &"a.".repeat(16),
            &"a".repeat(1_001),
        ] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
        assert!(
            Path::parse(&vec!["a"; 16].join(".")).is_ok() && Path::parse(&vec!["a"; 17].join(".")).is_err()
        );
    }
}
