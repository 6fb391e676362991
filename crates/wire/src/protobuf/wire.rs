//! Reads the fields of Protobuf messages in place, from unvalidated bytes.

use prost::encoding::{WireType, decode_key, decode_varint};

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedMessage(pub &'static str);

/// The raw value of a field, by its wire type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// A wire type that no known field has.
    Other,
}

impl<'a> Field<'a> {
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// An iterator over the fields of a message, in their order.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    /// The number of bytes not read yet.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the number and the value of the next field; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, MalformedMessage> {
        const CUT: MalformedMessage = MalformedMessage("it is cut off");
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, form) =
            decode_key(&mut self.rest).map_err(|_| MalformedMessage("the tag of a field is invalid"))?;
        let field = match form {
            WireType::Varint => Field::Varint(
                decode_varint(&mut self.rest)
                    .map_err(|_| MalformedMessage("a number is cut off or too long"))?,
            ),
            WireType::SixtyFourBit => {
                let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(CUT)?;
                self.rest = rest;
                Field::Fixed64(u64::from_le_bytes(*bytes))
            }
            WireType::LengthDelimited => {
                let len = decode_varint(&mut self.rest)
                    .map_err(|_| MalformedMessage("a length is cut off or too long"))?;
                let len = usize::try_from(len).map_err(|_| CUT)?;
                let (bytes, rest) = self.rest.split_at_checked(len).ok_or(CUT)?;
                self.rest = rest;
                Field::Bytes(bytes)
            }
            WireType::ThirtyTwoBit => {
                self.rest = self.rest.get(4..).ok_or(CUT)?;
                Field::Other
            }
            WireType::StartGroup | WireType::EndGroup => {
                return Err(MalformedMessage("it contains a group"));
            }
        };
        Ok(Some((number, field)))
    }
}

/// A message `Value`. Nested messages are decoded only when they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int64(i64),
    Double(f64),
    String(&'a str),
    Bytes(&'a [u8]),
    Timestamp(i64),
    Json(&'a str),
    /// A message `List`.
    List(&'a [u8]),
    /// A message `Struct`.
    Struct(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, MalformedMessage> {
        let mut fields = Fields::new(message);
        let Some((number, field)) = fields.next()? else { return Ok(Value::Null) };
        if fields.left() > 0 {
            return Err(MalformedMessage("a value has more than one field"));
        }
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| MalformedMessage("a text is not UTF-8"));
        Ok(match (number, field) {
            (1, Field::Varint(_)) => Value::Null,
            (2, Field::Varint(flag)) => Value::Bool(flag != 0),
            (3, Field::Varint(number)) => Value::Int64(number as i64),
            (4, Field::Fixed64(bits)) => Value::Double(f64::from_bits(bits)),
            (5, Field::Bytes(bytes)) => Value::String(text(bytes)?),
            (6, Field::Bytes(bytes)) => Value::Bytes(bytes),
            (7, Field::Varint(micros)) => Value::Timestamp(micros as i64),
            (8, Field::Bytes(bytes)) => Value::Json(text(bytes)?),
            (9, Field::Bytes(bytes)) => Value::List(bytes),
            (10, Field::Bytes(bytes)) => Value::Struct(bytes),
            (1..=10, _) => return Err(MalformedMessage("a value has the wrong wire type for its kind")),
            _ => return Err(MalformedMessage("a value has an unknown kind")),
        })
    }

    /// Returns the name of the kind for messages: "int64 expected, string `x` found".
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int64(_) => "int64",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Timestamp(_) => "timestamp",
            Value::Json(_) => "json",
            Value::List(_) => "list",
            Value::Struct(_) => "struct",
        }
    }
}

/// Iterates over the values of a message `Row` or `List`.
pub(crate) fn values(message: &[u8]) -> impl Iterator<Item = Result<Value<'_>, MalformedMessage>> {
    repeated(message).map(|value| Value::read(value?))
}

/// Iterates over the names and values of a message `Struct`. A field without a value is null.
pub(crate) fn members(message: &[u8]) -> impl Iterator<Item = Result<(&str, Value<'_>), MalformedMessage>> {
    let member = |message| {
        let (mut name, mut value) = (None, None);
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            let known = match (number, field.bytes()) {
                (1, Some(bytes)) => {
                    let text = std::str::from_utf8(bytes)
                        .map_err(|_| MalformedMessage("a field's name is not UTF-8"))?;
                    name.replace(text).is_none()
                }
                (2, Some(bytes)) => value.replace(Value::read(bytes)?).is_none(),
                _ => false,
            };
            if !known {
                return Err(MalformedMessage("a field of a struct has more than a name and a value"));
            }
        }
        Ok((name.unwrap_or_default(), value.unwrap_or(Value::Null)))
    };
    repeated(message).map(move |message| member(message?))
}

/// Iterates over the occurrences of field 1; any other field is an error.
fn repeated(message: &[u8]) -> impl Iterator<Item = Result<&[u8], MalformedMessage>> {
    let mut fields = Fields::new(message);
    std::iter::from_fn(move || match fields.next() {
        Ok(None) => None,
        Ok(Some((1, Field::Bytes(bytes)))) => Some(Ok(bytes)),
        Ok(Some(_)) => {
            fields = Fields::new(&[]);
            Some(Err(MalformedMessage("it has an unexpected field")))
        }
        Err(broken) => {
            fields = Fields::new(&[]);
            Some(Err(broken))
        }
    })
}
