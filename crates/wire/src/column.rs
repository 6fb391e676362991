//! One column while a JSON body is read: plain vectors of its type, filled straight from the text.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType as Arrow;
use types::{DataType, Error, name};

use super::parser::{Malformed, Number, Parser};
use super::{Budget, text};

/// Beyond this magnitude a float64 no longer holds every integer.
pub(super) const EXACT_MAX: u64 = 1 << 53;

/// Why a value could not be taken.
#[derive(Debug)]
pub(super) enum Fault {
    /// The body is not JSON; nothing behind this place means anything.
    Malformed(Malformed),
    /// This value does not fit: "int64 expected, `"x"` found".
    Misfit(String),
    /// A limit; the body is given up.
    Limit(Error),
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Fault::Malformed(malformed)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Limit(error)
    }
}

type Result<T> = std::result::Result<T, Fault>;

#[derive(Debug)]
pub(super) struct Column {
    data_type: Option<DataType>,
    /// Whether the type may still be chosen or widened: the column is new in this body.
    open: bool,
    pub len: usize,
    /// Made at the first null.
    validity: Option<BooleanBufferBuilder>,
    data: Data,
    scratch: String,
}

#[derive(Debug)]
enum Data {
    /// Only nulls so far.
    Waiting,
    Bool(BooleanBufferBuilder),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, u8),
    /// Strings, JSON texts and binaries.
    Bytes(Vec<i32>, Vec<u8>, Content),
    Date(Vec<i32>),
    Timestamp(Vec<i64>),
    Uuid(Vec<u8>),
    List(Vec<i32>, Box<Column>, bool),
    Struct(Vec<Member>),
    Vector(Vec<f32>, usize),
    /// Points: one vector for each coordinate.
    Floats(&'static [&'static str], Vec<Vec<f64>>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    String,
    Json,
    Base64,
}

#[derive(Debug)]
struct Member {
    name: String,
    nullable: bool,
    column: Column,
}

impl Column {
    pub fn new(data_type: &DataType) -> Self {
        let data = Data::new(data_type);
        let data_type = Some(data_type.clone());
        Column { data_type, open: false, len: 0, validity: None, data, scratch: String::new() }
    }

    /// A column whose type its first values decide.
    pub fn waiting() -> Self {
        Column {
            data_type: None,
            open: true,
            len: 0,
            validity: None,
            data: Data::Waiting,
            scratch: String::new(),
        }
    }

    /// `None` while only nulls came.
    pub fn data_type(&self) -> Option<&DataType> {
        self.data_type.as_ref()
    }

    /// Bytes that one null of this column takes, roughly from above.
    pub fn null_bytes(&self) -> usize {
        self.data_type.as_ref().map_or(1, null_bytes)
    }

    pub fn nulls(&mut self, count: usize, budget: &mut Budget) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        budget.take(count.saturating_mul(self.null_bytes()))?;
        let len = self.len;
        self.validity
            .get_or_insert_with(|| {
                let mut valid = BooleanBufferBuilder::new(len + count);
                valid.append_n(len, true);
                valid
            })
            .append_n(count, false);
        self.len += count;
        match &mut self.data {
            Data::Waiting => {}
            Data::Bool(v) => v.append_n(count, false),
            Data::Int32(v) | Data::Date(v) => v.resize(v.len() + count, 0),
            Data::Int64(v) | Data::Timestamp(v) => v.resize(v.len() + count, 0),
            Data::Float32(v) => v.resize(v.len() + count, 0.0),
            Data::Float64(v) => v.resize(v.len() + count, 0.0),
            Data::Decimal(v, ..) => v.resize(v.len() + count, 0),
            Data::Bytes(offsets, bytes, _) => offsets.resize(offsets.len() + count, bytes.len() as i32),
            Data::Uuid(v) => v.resize(v.len() + count * 16, 0),
            Data::List(offsets, item, _) => offsets.resize(offsets.len() + count, item.len as i32),
            Data::Vector(v, width) => v.resize(v.len() + count * *width, 0.0),
            Data::Floats(_, columns) => columns.iter_mut().for_each(|v| v.resize(v.len() + count, 0.0)),
            Data::Struct(members) => {
                for member in members {
                    member.column.fill(count, budget)?;
                }
            }
        }
        Ok(())
    }

    /// Rows below a null parent: nobody sees them, yet a NOT NULL child must not be null there. A null count that
    /// Arrow would find is avoided by building the array without validity, see [`Column::finish`].
    fn fill(&mut self, count: usize, budget: &mut Budget) -> Result<()> {
        self.nulls(count, budget)
    }

    fn valid(&mut self) {
        if let Some(validity) = &mut self.validity {
            validity.append(true);
        }
        self.len += 1;
    }

    /// Takes the next value of the text. After a misfit the column is unusable but safe.
    pub fn read(&mut self, p: &mut Parser<'_>, budget: &mut Budget) -> Result<()> {
        if p.eat_null()? {
            return self.nulls(1, budget);
        }
        if let Data::Waiting = self.data {
            self.choose(p, budget)?;
        }
        match &mut self.data {
            Data::Waiting => unreachable!("a type was chosen above"),
            Data::Bool(v) => match p.peek() {
                Some(b't') => p.literal("true").map(|()| v.append(true))?,
                Some(b'f') => p.literal("false").map(|()| v.append(false))?,
                _ => return Err(misfit("bool", p)),
            },
            // As it is written for readers that would round the number.
            Data::Int64(v) if !self.open && p.peek() == Some(b'"') => {
                let start = p.at();
                let large = p.string(&mut self.scratch)?.parse().ok();
                match large.filter(|n: &i64| n.unsigned_abs() > EXACT_MAX) {
                    Some(n) => v.push(n),
                    None => {
                        p.rewind(start);
                        return Err(misfit("int64", p));
                    }
                }
            }
            Data::Int64(v) => {
                let number = numeric("int64", p)?;
                match number.integer {
                    Some(n) => v.push(n),
                    None if self.open && number.fraction => {
                        self.widen()?;
                        let Data::Float64(v) = &mut self.data else { unreachable!("just widened") };
                        v.push(float64(number)?);
                    }
                    None => return Err(not(number, "int64")),
                }
            }
            Data::Int32(v) => {
                let number = numeric("int32", p)?;
                let fits = number.integer.and_then(|n| i32::try_from(n).ok());
                v.push(fits.ok_or_else(|| not(number, "int32"))?);
            }
            Data::Float64(v) => v.push(float64(numeric("float64", p)?)?),
            Data::Float32(v) => v.push(float32(numeric("float32", p)?)?),
            Data::Decimal(v, precision, scale) => {
                let (precision, scale) = (*precision, *scale);
                let written = match p.peek() {
                    Some(b'"') => p.string(&mut self.scratch)?,
                    Some(b'-' | b'0'..=b'9') => p.number()?.text,
                    _ => return Err(misfit("decimal", p)),
                };
                let value = text::parse_decimal(written, precision, scale).ok_or_else(|| {
                    Fault::Misfit(format!(
                        "decimal({precision},{scale}) expected, `{}` found",
                        name::printable(written)
                    ))
                })?;
                v.push(value);
            }
            Data::Bytes(offsets, bytes, Content::Json) => {
                bytes.extend_from_slice(p.skip()?.as_bytes());
                offsets.push(bytes.len() as i32);
            }
            Data::Bytes(offsets, bytes, content) => {
                let string = *content == Content::String;
                if p.peek() != Some(b'"') {
                    return Err(misfit(if string { "string" } else { "base64 string" }, p));
                }
                let written = p.string(&mut self.scratch)?;
                if string {
                    bytes.extend_from_slice(written.as_bytes());
                } else if !text::parse_base64(written, bytes) {
                    return Err(unread("base64 string", written));
                }
                offsets.push(bytes.len() as i32);
            }
            Data::Date(v) => {
                let written = worded("date", p, &mut self.scratch)?;
                v.push(text::parse_date(written).ok_or_else(|| unread("date like `2026-11-21`", written))?);
            }
            Data::Timestamp(v) => match p.peek() {
                Some(b'-' | b'0'..=b'9') => {
                    let number = p.number()?;
                    v.push(number.integer.ok_or_else(|| not(number, "timestamp in whole microseconds"))?);
                }
                _ => {
                    let written = worded("timestamp", p, &mut self.scratch)?;
                    let expected = "timestamp like `2026-11-21T08:06:51Z`";
                    v.push(text::parse_timestamp(written).ok_or_else(|| unread(expected, written))?);
                }
            },
            Data::Uuid(v) => {
                let written = worded("uuid", p, &mut self.scratch)?;
                v.extend_from_slice(&text::parse_uuid(written).ok_or_else(|| unread("uuid", written))?);
            }
            Data::List(offsets, item, nullable) => {
                if !p.eat(b'[') {
                    return Err(misfit("array", p));
                }
                let mut first = true;
                while !end_of(p, b']', &mut first)? {
                    if !*nullable && p.peek() == Some(b'n') {
                        return Err(misfit("list element that is not null", p));
                    }
                    item.read(p, budget)?;
                }
                offsets.push(
                    i32::try_from(item.len)
                        .map_err(|_| Error::invalid("a list column has too many elements"))?,
                );
            }
            Data::Struct(members) => read_struct(members, p, budget, &mut self.scratch, self.len)?,
            Data::Vector(v, width) => {
                if !p.eat(b'[') {
                    return Err(misfit(&format!("array of {width} numbers"), p));
                }
                let (start, mut first) = (v.len(), true);
                while !end_of(p, b']', &mut first)? {
                    v.push(float32(numeric("float32", p)?)?);
                }
                let found = v.len() - start;
                if found != *width {
                    return Err(Fault::Misfit(format!("{width} numbers expected, {found} found")));
                }
            }
            Data::Floats(names, columns) => read_point(names, columns, p, &mut self.scratch)?,
        }
        self.valid();
        Ok(())
    }

    /// Picks the type of a new column from its first value.
    fn choose(&mut self, p: &mut Parser<'_>, budget: &mut Budget) -> Result<()> {
        let data_type = match p.peek() {
            Some(b'"') => DataType::String,
            Some(b't' | b'f') => DataType::Bool,
            Some(b'{' | b'[') => DataType::Json,
            Some(b'-' | b'0'..=b'9') => {
                let start = p.at();
                let fraction = p.number()?.fraction;
                p.rewind(start);
                if fraction { DataType::Float64 } else { DataType::Int64 }
            }
            _ => return Err(p.malformed::<()>("a value").unwrap_err().into()),
        };
        self.data = Data::new(&data_type);
        self.data_type = Some(data_type);
        let nulls = std::mem::take(&mut self.len);
        self.validity = None;
        self.nulls(nulls, budget)
    }

    /// A fraction came behind integers.
    fn widen(&mut self) -> Result<()> {
        let Data::Int64(ints) = &self.data else { unreachable!("only int64 widens") };
        if let Some(n) = ints.iter().find(|n| n.unsigned_abs() > EXACT_MAX) {
            return Err(Fault::Misfit(format!(
                "a fraction found, but {n} came before it and float64 cannot hold that exactly"
            )));
        }
        self.data = Data::Float64(ints.iter().map(|n| *n as f64).collect());
        self.data_type = Some(DataType::Float64);
        Ok(())
    }

    /// The array. `None` if every value was null and no type is known.
    pub fn finish(mut self) -> types::Result<Option<ArrayRef>> {
        let nulls = self.validity.take().map(|mut v| NullBuffer::new(v.finish()));
        let Some(data_type) = &self.data_type else { return Ok(None) };
        self.data.finish(data_type, self.len, nulls).map(Some)
    }
}

impl Data {
    fn new(data_type: &DataType) -> Self {
        let bytes = |content| Data::Bytes(vec![0], Vec::new(), content);
        match data_type {
            DataType::Bool => Data::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int32 => Data::Int32(Vec::new()),
            DataType::Int64 => Data::Int64(Vec::new()),
            DataType::Float32 => Data::Float32(Vec::new()),
            DataType::Float64 => Data::Float64(Vec::new()),
            DataType::Decimal { precision, scale } => Data::Decimal(Vec::new(), *precision, *scale),
            DataType::String => bytes(Content::String),
            DataType::Json => bytes(Content::Json),
            DataType::Binary => bytes(Content::Base64),
            DataType::Date => Data::Date(Vec::new()),
            DataType::Timestamp => Data::Timestamp(Vec::new()),
            DataType::Uuid => Data::Uuid(Vec::new()),
            DataType::List(item) => {
                Data::List(vec![0], Box::new(Column::new(&item.data_type)), item.nullable)
            }
            DataType::Struct(fields) => Data::Struct(
                fields
                    .iter()
                    .map(|f| Member {
                        name: f.name.clone(),
                        nullable: f.nullable,
                        column: Column::new(&f.data_type),
                    })
                    .collect(),
            ),
            DataType::Vector(width) => Data::Vector(Vec::new(), *width as usize),
            DataType::Point => Data::Floats(&["lon", "lat"], vec![Vec::new(); 2]),
            DataType::Point3d => Data::Floats(&["x", "y", "z"], vec![Vec::new(); 3]),
        }
    }

    fn finish(self, data_type: &DataType, len: usize, nulls: Option<NullBuffer>) -> types::Result<ArrayRef> {
        let broken =
            |e: arrow::error::ArrowError| Error::internal(format!("a decoded {data_type} column: {e}"));
        let offsets = |v: Vec<i32>| OffsetBuffer::new(ScalarBuffer::from(v));
        Ok(match self {
            Data::Waiting => unreachable!("a column without a type makes no array"),
            Data::Bool(mut v) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            Data::Int32(v) => Arc::new(Int32Array::new(v.into(), nulls)),
            Data::Int64(v) => Arc::new(Int64Array::new(v.into(), nulls)),
            Data::Float32(v) => Arc::new(Float32Array::new(v.into(), nulls)),
            Data::Float64(v) => Arc::new(Float64Array::new(v.into(), nulls)),
            Data::Decimal(v, ..) => {
                Arc::new(Decimal128Array::new(v.into(), nulls).with_data_type(data_type.to_arrow()))
            }
            Data::Date(v) => Arc::new(Date32Array::new(v.into(), nulls)),
            Data::Timestamp(v) => {
                Arc::new(TimestampMicrosecondArray::new(v.into(), nulls).with_timezone("UTC"))
            }
            Data::Uuid(v) => {
                Arc::new(FixedSizeBinaryArray::try_new(16, Buffer::from_vec(v), nulls).map_err(broken)?)
            }
            Data::Bytes(o, bytes, Content::Base64) => {
                Arc::new(BinaryArray::try_new(offsets(o), Buffer::from_vec(bytes), nulls).map_err(broken)?)
            }
            Data::Bytes(o, bytes, _) => {
                Arc::new(StringArray::try_new(offsets(o), Buffer::from_vec(bytes), nulls).map_err(broken)?)
            }
            Data::List(o, item, _) => {
                let Arrow::List(field) = data_type.to_arrow() else { unreachable!("a list") };
                let values = item.finish()?.expect("a declared type is known");
                Arc::new(ListArray::try_new(field, offsets(o), values, nulls).map_err(broken)?)
            }
            Data::Struct(members) => {
                let Arrow::Struct(fields) = data_type.to_arrow() else { unreachable!("a struct") };
                let mut columns = Vec::with_capacity(members.len());
                for mut member in members {
                    if !member.nullable {
                        // Its only nulls stand below a null parent, where zeroes serve as well.
                        member.column.validity = None;
                    }
                    columns.push(member.column.finish()?.expect("a declared type is known"));
                }
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls, len).map_err(broken)?)
            }
            Data::Vector(v, width) => {
                let Arrow::FixedSizeList(field, _) = data_type.to_arrow() else { unreachable!("a vector") };
                let values = Arc::new(Float32Array::new(v.into(), None));
                Arc::new(FixedSizeListArray::try_new(field, width as i32, values, nulls).map_err(broken)?)
            }
            Data::Floats(_, columns) => {
                let Arrow::Struct(fields) = data_type.to_arrow() else { unreachable!("a point") };
                let columns =
                    columns.into_iter().map(|v| Arc::new(Float64Array::new(v.into(), None)) as ArrayRef);
                Arc::new(StructArray::try_new(fields, columns.collect(), nulls).map_err(broken)?)
            }
        })
    }
}

/// Bytes that a null of this type takes in Arrow.
pub(super) fn null_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::Bool => 1,
        DataType::Int32 | DataType::Float32 | DataType::Date => 5,
        DataType::String | DataType::Binary | DataType::Json | DataType::List(_) => 5,
        DataType::Int64 | DataType::Float64 | DataType::Timestamp => 9,
        DataType::Decimal { .. } | DataType::Uuid => 17,
        DataType::Point => 17,
        DataType::Point3d => 25,
        DataType::Vector(width) => 1 + *width as usize * 4,
        DataType::Struct(fields) => 1 + fields.iter().map(|f| null_bytes(&f.data_type)).sum::<usize>(),
    }
}

/// Whether the bracket closes here; else the comma before the next element is taken.
pub(super) fn end_of(
    p: &mut Parser<'_>,
    close: u8,
    first: &mut bool,
) -> std::result::Result<bool, Malformed> {
    if p.eat(close) {
        return Ok(true);
    }
    if !std::mem::take(first) {
        p.expect(b',', if close == b']' { "`,` or `]`" } else { "`,` or `}`" })?;
    }
    Ok(false)
}

fn read_struct(
    members: &mut [Member],
    p: &mut Parser<'_>,
    budget: &mut Budget,
    scratch: &mut String,
    row: usize,
) -> Result<()> {
    if !p.eat(b'{') {
        return Err(misfit("object", p));
    }
    let mut first = true;
    while !end_of(p, b'}', &mut first)? {
        let key = p.string(scratch)?;
        let Some(i) = name::resolve(key, members.iter().map(|m| m.name.as_str())) else {
            return Err(Fault::Misfit(format!("the struct has no field `{}`", name::printable(key))));
        };
        p.expect(b':', "`:`")?;
        let member = &mut members[i];
        if member.column.len > row {
            return Err(Fault::Misfit(format!("the field `{}` is given twice", member.name)));
        }
        if !member.nullable && p.peek() == Some(b'n') {
            return Err(Fault::Misfit(format!("the field `{}` is null but NOT NULL", member.name)));
        }
        member.column.read(p, budget)?;
    }
    for member in members {
        if member.column.len == row {
            if !member.nullable {
                return Err(Fault::Misfit(format!("the field `{}` is missing but NOT NULL", member.name)));
            }
            member.column.nulls(1, budget)?;
        }
    }
    Ok(())
}

fn read_point(
    names: &[&str],
    columns: &mut [Vec<f64>],
    p: &mut Parser<'_>,
    scratch: &mut String,
) -> Result<()> {
    let mut point = [None; 3];
    let mut first = true;
    if p.eat(b'[') {
        let mut i = 0;
        while !end_of(p, b']', &mut first)? {
            let value = float64(numeric("float64", p)?)?;
            if i < names.len() {
                point[i] = Some(value);
            }
            i += 1;
        }
        if i != names.len() {
            return Err(Fault::Misfit(format!("{} numbers expected, {i} found", names.len())));
        }
    } else if p.eat(b'{') {
        while !end_of(p, b'}', &mut first)? {
            let key = p.string(scratch)?;
            let Some(i) = names.iter().position(|n| *n == key) else {
                return Err(Fault::Misfit(format!("a point has no `{}`", name::printable(key))));
            };
            p.expect(b':', "`:`")?;
            if point[i].replace(float64(numeric("float64", p)?)?).is_some() {
                return Err(Fault::Misfit(format!("`{}` is given twice", names[i])));
            }
        }
        if let Some(i) = (0..names.len()).find(|i| point[*i].is_none()) {
            return Err(Fault::Misfit(format!("`{}` is missing", names[i])));
        }
    } else {
        return Err(misfit("point (an object or an array)", p));
    }
    for (column, value) in columns.iter_mut().zip(point) {
        column.push(value.expect("each coordinate was seen"));
    }
    Ok(())
}

#[inline]
fn numeric<'a>(expected: &str, p: &mut Parser<'a>) -> Result<Number<'a>> {
    match p.peek() {
        Some(b'-' | b'0'..=b'9') => Ok(p.number()?),
        _ => Err(misfit(expected, p)),
    }
}

fn worded<'s, 'a: 's>(expected: &str, p: &mut Parser<'a>, scratch: &'s mut String) -> Result<&'s str> {
    match p.peek() {
        Some(b'"') => Ok(p.string(scratch)?),
        _ => Err(misfit(expected, p)),
    }
}

fn float64(number: Number<'_>) -> Result<f64> {
    if let Some(n) = number.integer
        && n.unsigned_abs() <= EXACT_MAX
    {
        return Ok(n as f64);
    }
    match number.text.parse::<f64>() {
        Ok(v) if v.is_finite() && number.fraction => Ok(v),
        // Integers of any length pass where the float is exactly that integer.
        Ok(v) if v.is_finite() && format!("{v:.0}") == number.text => Ok(v),
        _ => Err(not(number, "float64")),
    }
}

fn float32(number: Number<'_>) -> Result<f32> {
    match number.text.parse::<f32>() {
        Ok(v)
            if v.is_finite() && (number.fraction || number.integer.is_some_and(|n| v as f64 == n as f64)) =>
        {
            Ok(v)
        }
        _ => Err(not(number, "float32")),
    }
}

fn not(number: Number<'_>, expected: &str) -> Fault {
    unread(expected, number.text)
}

fn unread(expected: &str, found: &str) -> Fault {
    Fault::Misfit(format!("{expected} expected, `{}` found", name::printable(found)))
}

/// "int64 expected, `"abc"` found"; a malformed value is reported as such instead.
fn misfit(expected: &str, p: &mut Parser<'_>) -> Fault {
    p.peek();
    let start = p.at();
    let found = p.skip();
    p.rewind(start);
    match found {
        Ok(found) => {
            let kind = match found.as_bytes()[0] {
                b'"' => "string ",
                b'{' => "object ",
                b'[' => "array ",
                b'0'..=b'9' | b'-' => "number ",
                _ => "",
            };
            let mut shown: String = found.chars().take(40).collect();
            if shown.len() < found.len() {
                shown.push('…');
            }
            Fault::Misfit(format!("{expected} expected, {kind}`{}` found", name::printable(&shown)))
        }
        Err(malformed) => Fault::Malformed(malformed),
    }
}
