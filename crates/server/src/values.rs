//! Bounds the number of JSON values of a body. Two bytes of text, `0,`, become tens or hundreds of bytes of memory once they are
//! parsed, so a body within its own bound may still be far too large. Its values are counted before it is parsed. Their estimated
//! size counts against the memory of all bodies until they have become parameters, which belong to the statement.
//!
//! Rows are not counted like this: they are parsed into columns, within bounds of their own.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use types::{Error, Kind, Result as CoreResult, Value};

use crate::app::Shared;
use crate::body::RequestBody;
use crate::failure::Result;

/// Maximum number of values of one body. It is lower if half the memory of all bodies has no room for them.
const VALUES_MAX: usize = 1_000_000;
/// Bytes that one value is estimated to take. A number in an array takes 32, and 95 for a moment while the array grows. A number
/// that is itself a parameter takes twice 32. Short texts take 32 more.
const VALUE_BYTES: usize = 64;
/// Values that an array is counted as. With its first item it takes 190 bytes.
const VALUES_OF_ARRAY: usize = 2;
/// Values that an object is counted as. With its first field it takes 680 bytes.
const VALUES_OF_OBJECT: usize = 10;
/// Number of values up to which a body takes no memory besides its own bytes. They are about as many as in a vector.
const FEW_VALUES: usize = 4_096;
/// Maximum number of parameters of a statement: the limit of PostgreSQL's protocol.
pub const PARAMS_MAX: usize = 65_535;

/// Takes memory for the values of a body that was read completely. Fails with [`Kind::TooLarge`] if there are too many values.
pub fn admit(held: &mut RequestBody) -> Result<()> {
    let bytes = held.bytes.clone();
    held.grow(bytes_of(held.app(), [&bytes[..]])?)
}

/// Takes memory for the values of parts of a body, until the result is dropped.
pub fn room<'a>(app: &Shared, parts: impl IntoIterator<Item = &'a [u8]>) -> Result<RequestBody> {
    let mut held = RequestBody::of(app, Bytes::new());
    held.grow(bytes_of(app, parts)?)?;
    Ok(held)
}

/// Returns the bytes that the values of these texts are estimated to take together. Fails if there are too many values.
fn bytes_of<'a>(app: &Shared, texts: impl IntoIterator<Item = &'a [u8]>) -> CoreResult<usize> {
    let max = VALUES_MAX.min(app.options.body_bytes_total_max / 2 / VALUE_BYTES);
    let mut count = 0;
    for text in texts {
        count += wire::count::values(text, VALUES_OF_ARRAY, VALUES_OF_OBJECT, max - count);
        if count > max {
            let what = format!(
                "a request has at most {max} values of JSON, an array counted twice and an object ten times"
            );
            return Err(Error::new(Kind::TooLarge, what).hint("send less in one request"));
        }
    }
    Ok(if count > FEW_VALUES { count * VALUE_BYTES } else { 0 })
}

/// Converts the parameters of a statement. Fails if there are more than [`PARAMS_MAX`].
pub fn parameters(params: &[Json]) -> CoreResult<Vec<Value>> {
    if params.len() > PARAMS_MAX {
        let what = format!("a statement takes at most {PARAMS_MAX} parameters, {} were sent", params.len());
        return Err(Error::new(Kind::TooLarge, what).hint("an array is one parameter: `WHERE id = ANY($1)`"));
    }
    params.iter().map(wire::value::parameter).collect()
}

/// An array of which at most `MAX` items are kept. Further items are parsed and counted only.
#[derive(Debug)]
pub struct BoundedList<T, const MAX: usize> {
    items: Vec<T>,
    sent: usize,
}

impl<T, const MAX: usize> BoundedList<T, MAX> {
    /// Returns all items, or the number that was sent if that is more than `MAX`.
    pub fn all(self) -> std::result::Result<Vec<T>, usize> {
        if self.sent > MAX { Err(self.sent) } else { Ok(self.items) }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = BoundedList<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> std::result::Result<Self::Value, S::Error> {
                let mut list = BoundedList { items: Vec::new(), sent: 0 };
                while list.sent < MAX {
                    let Some(item) = seq.next_element()? else { return Ok(list) };
                    list.items.push(item);
                    list.sent += 1;
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    list.sent += 1;
                }
                Ok(list)
            }
        }
        from.deserialize_seq(Items(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_keeps_few_of_many_items_and_knows_how_many_there_were() {
        let list: BoundedList<u8, 3> = serde_json::from_str("[1,2,3]").unwrap();
        assert_eq!(list.all(), Ok(vec![1, 2, 3]));
        let list: BoundedList<u8, 3> = serde_json::from_str(r#"[1,2,3,"any",{"thing":[]}]"#).unwrap();
        assert_eq!(list.items, [1, 2, 3]);
        assert_eq!(list.all(), Err(5));
        serde_json::from_str::<BoundedList<u8, 3>>("[1,2,3,4").unwrap_err();
        let error = serde_json::from_str::<BoundedList<u8, 3>>("7").unwrap_err();
        assert_eq!(
            crate::input::plain_message(&error),
            "an array expected, integer `7` found at line 1 column 1"
        );
    }

    #[test]
    fn a_statement_has_a_bounded_number_of_parameters() {
        assert_eq!(parameters(&vec![Json::Null; PARAMS_MAX]).unwrap().len(), PARAMS_MAX);
        assert_eq!(parameters(&vec![Json::Null; PARAMS_MAX + 1]).unwrap_err().kind(), Kind::TooLarge);
    }
}
