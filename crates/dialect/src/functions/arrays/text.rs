//! Reads lists as PostgreSQL writes them: `{1,NULL,"a b",{2}}`.

use std::iter::Peekable;
use std::str::Chars;

use types::{DataType, Error, Field, Kind, Result, Value, name};

use crate::values::convert::text_to_value;

/// Depth to which lists may be nested.
const DEPTH_MAX: usize = 16;

#[derive(Debug, PartialEq)]
pub(super) enum ListItem {
    Null,
    Text(String),
    List(Vec<ListItem>),
}

/// Returns true if a text is a list in braces, and not a list in JSON.
pub fn is_braced(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Converts a text to a list with items of the type of `item`.
pub fn to_value(text: &str, item: &Field) -> Result<Value> {
    let items = items(text)?;
    value(items, item)
}

/// Splits a text into its items.
pub(super) fn items(text: &str) -> Result<Vec<ListItem>> {
    let mut reader = Reader { signs: text.trim().chars().peekable() };
    let list = reader.list(0).filter(|_| reader.signs.peek().is_none());
    list.ok_or_else(|| {
        Error::new(Kind::Schema, format!("`{}` is not a list", name::printable(text)))
            .hint("write it as {1,2,NULL}, and texts with special characters as {\"a, b\"}")
    })
}

fn value(items: Vec<ListItem>, item: &Field) -> Result<Value> {
    let one = |found: ListItem| match (found, &item.data_type) {
        (ListItem::Null, _) => Ok(Value::Null),
        (ListItem::Text(text), data_type) => text_to_value(&text, data_type),
        (ListItem::List(items), DataType::List(inner)) => value(items, inner),
        (ListItem::List(_), data_type) => {
            Err(Error::new(Kind::Schema, format!("{data_type} expected, a list within the list found")))
        }
    };
    items.into_iter().map(one).collect::<Result<_>>().map(Value::List)
}

struct Reader<'a> {
    signs: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn list(&mut self, depth: usize) -> Option<Vec<ListItem>> {
        self.signs.next_if_eq(&'{').filter(|_| depth < DEPTH_MAX)?;
        let mut items = Vec::new();
        self.spaces();
        if self.signs.next_if_eq(&'}').is_some() {
            return Some(items);
        }
        loop {
            self.spaces();
            items.push(match self.signs.peek()? {
                '{' => ListItem::List(self.list(depth + 1)?),
                '"' => ListItem::Text(self.quoted()?),
                _ => self.bare()?,
            });
            self.spaces();
            match self.signs.next()? {
                ',' => {}
                '}' => return Some(items),
                _ => return None,
            }
        }
    }

    fn spaces(&mut self) {
        while self.signs.next_if(|sign| sign.is_whitespace()).is_some() {}
    }

    fn quoted(&mut self) -> Option<String> {
        let mut text = String::new();
        self.signs.next();
        loop {
            match self.signs.next()? {
                '"' => return Some(text),
                '\\' => text.push(self.signs.next()?),
                sign => text.push(sign),
            }
        }
    }

    fn bare(&mut self) -> Option<ListItem> {
        let (mut text, mut is_escaped) = (String::new(), false);
        // Trailing spaces are cut, except for an escaped one.
        let mut end = 0;
        while let Some(sign) = self.signs.next_if(|sign| !matches!(sign, ',' | '}')) {
            match sign {
                '{' | '"' => return None,
                '\\' => {
                    text.push(self.signs.next()?);
                    (is_escaped, end) = (true, text.len());
                }
                sign => {
                    text.push(sign);
                    if !sign.is_whitespace() {
                        end = text.len();
                    }
                }
            }
        }
        text.truncate(end);
        match text.as_str() {
            "" => None,
            null if !is_escaped && null.eq_ignore_ascii_case("null") => Some(ListItem::Null),
            _ => Some(ListItem::Text(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ListItem {
        ListItem::Text(text.into())
    }

    #[test]
    fn a_list_is_read_as_postgresql_writes_it() {
        for (written, expected) in [
            ("{}", vec![]),
            (" { } ", vec![]),
            ("{1, -2 ,NULL}", vec![text("1"), text("-2"), ListItem::Null]),
            (r#"{a b,"c, \"d\"","null",""}"#, vec![text("a b"), text("c, \"d\""), text("null"), text("")]),
            (r"{\n\u\l\l,a\ }", vec![text("null"), text("a ")]),
            ("{{1},{}}", vec![ListItem::List(vec![text("1")]), ListItem::List(vec![])]),
        ] {
            assert_eq!(items(written).unwrap(), expected, "{written}");
        }
        for wrong in ["", "{", "{1", "{1,}", "{,1}", "{a\"b\"}", "{\"a\"b}", "{1}2", "1,2", "{\"a}", "{\\"] {
            assert!(items(wrong).is_err(), "{wrong}");
        }
        assert!(items(&"{".repeat(100_000)).is_err());
    }
}
