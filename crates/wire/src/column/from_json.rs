//! Takes values from JSON.

use types::{DataType, EpochUnit, Error, name};

use super::{BytesKind, ColumnBuffer, Data, EXACT_MAX, Member, Result, ValueFault};
use crate::parser::{Number, Parser, SyntaxError};
use crate::{Budget, text};

impl ColumnBuffer {
    /// Takes the next value of the input. After a misfit the column holds invalid values, but using it is memory-safe.
    pub fn push_json(&mut self, p: &mut Parser<'_>, budget: &mut Budget) -> Result<()> {
        if p.eat_null()? {
            return self.push_nulls(1, budget);
        }
        if let Data::Untyped = self.data {
            self.choose(p, budget)?;
        }
        match &mut self.data {
            Data::Untyped => unreachable!("a type was chosen above"),
            Data::Bool(v) => match p.peek() {
                Some(b't') => p.literal("true").map(|()| v.append(true))?,
                Some(b'f') => p.literal("false").map(|()| v.append(false))?,
                _ => return Err(misfit("bool", p)),
            },
            // Beyond 2^53, integers are also accepted as strings, the form for readers that would round the number.
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
                    None => return Err(unfit_number(number, "int64")),
                }
            }
            Data::Int32(v) => {
                let number = numeric("int32", p)?;
                let fits = number.integer.and_then(|n| i32::try_from(n).ok());
                v.push(fits.ok_or_else(|| unfit_number(number, "int32"))?);
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
                    ValueFault::Misfit(format!(
                        "decimal({precision},{scale}) expected, `{}` found",
                        name::printable(written)
                    ))
                })?;
                v.push(value);
            }
            Data::Bytes(offsets, bytes, BytesKind::Json) => {
                bytes.extend_from_slice(p.skip()?.as_bytes());
                offsets.push(bytes.len() as i32);
            }
            Data::Bytes(offsets, bytes, content) => {
                let string = *content == BytesKind::String;
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
                let written = quoted_text("date", p, &mut self.scratch)?;
                v.push(text::parse_day(written).ok_or_else(|| unread("date like `2026-11-21`", written))?);
            }
            Data::Timestamp(v) => match p.peek() {
                Some(b'-' | b'0'..=b'9') => {
                    v.push(time_of_number(p.number()?, self.input)?);
                }
                _ => {
                    let written = quoted_text("timestamp", p, &mut self.scratch)?;
                    let expected = "timestamp like `2026-11-21T08:06:51Z`";
                    v.push(text::parse_time(written).ok_or_else(|| unread(expected, written))?);
                }
            },
            Data::Uuid(v) => {
                let written = quoted_text("uuid", p, &mut self.scratch)?;
                v.extend_from_slice(&text::parse_uuid(written).ok_or_else(|| unread("uuid", written))?);
            }
            Data::List(offsets, item, nullable) => {
                if !p.eat(b'[') {
                    return Err(misfit("array", p));
                }
                let mut first = true;
                while !at_end(p, b']', &mut first)? {
                    if !*nullable && p.peek() == Some(b'n') {
                        return Err(misfit("list element that is not null", p));
                    }
                    item.push_json(p, budget)?;
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
                while !at_end(p, b']', &mut first)? {
                    v.push(float32(numeric("float32", p)?)?);
                }
                let found = v.len() - start;
                if found != *width {
                    return Err(ValueFault::Misfit(format!("{width} numbers expected, {found} found")));
                }
            }
            Data::Floats(names, columns) => read_point(names, columns, p, &mut self.scratch)?,
        }
        self.mark_valid();
        Ok(())
    }

    /// Chooses the type of a new column from its first value.
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
        self.set_type(data_type, budget)
    }

    /// Sets the type of a column that has only nulls so far.
    pub(super) fn set_type(&mut self, data_type: DataType, budget: &mut Budget) -> Result<()> {
        self.data = Data::new(&data_type);
        self.data_type = Some(data_type);
        self.chosen_at = self.len;
        let nulls = std::mem::take(&mut self.len);
        self.validity = None;
        self.push_nulls(nulls, budget)
    }

    /// Widens an int64 column to float64 when a fraction follows integers.
    pub(super) fn widen(&mut self) -> Result<()> {
        let Data::Int64(ints) = &self.data else { unreachable!("only int64 widens") };
        if let Some(n) = ints.iter().find(|n| n.unsigned_abs() > EXACT_MAX) {
            return Err(ValueFault::Misfit(format!(
                "a fraction found, but {n} came before it and float64 cannot hold that exactly"
            )));
        }
        self.data = Data::Float64(ints.iter().map(|n| *n as f64).collect());
        self.data_type = Some(DataType::Float64);
        self.widened_at = self.len;
        Ok(())
    }
}

/// Returns true if the closing bracket is next, and consumes it. Otherwise consumes the comma before the next element.
pub(crate) fn at_end(
    p: &mut Parser<'_>,
    close: u8,
    first: &mut bool,
) -> std::result::Result<bool, SyntaxError> {
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
    while !at_end(p, b'}', &mut first)? {
        let key = p.string(scratch)?;
        let Some(i) = name::resolve(key, members.iter().map(|m| m.name.as_str())) else {
            return Err(ValueFault::Misfit(format!("the struct has no field `{}`", name::printable(key))));
        };
        p.expect(b':', "`:`")?;
        let member = &mut members[i];
        if member.column.len > row {
            return Err(ValueFault::Misfit(format!("the field `{}` is given twice", member.name)));
        }
        if !member.nullable && p.peek() == Some(b'n') {
            return Err(ValueFault::Misfit(format!("the field `{}` is null but NOT NULL", member.name)));
        }
        member.column.push_json(p, budget)?;
    }
    for member in members {
        if member.column.len == row {
            if !member.nullable {
                return Err(ValueFault::Misfit(format!(
                    "the field `{}` is missing but NOT NULL",
                    member.name
                )));
            }
            member.column.push_nulls(1, budget)?;
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
        while !at_end(p, b']', &mut first)? {
            let value = float64(numeric("float64", p)?)?;
            if i < names.len() {
                point[i] = Some(value);
            }
            i += 1;
        }
        if i != names.len() {
            return Err(ValueFault::Misfit(format!("{} numbers expected, {i} found", names.len())));
        }
    } else if p.eat(b'{') {
        while !at_end(p, b'}', &mut first)? {
            let key = p.string(scratch)?;
            let Some(i) = names.iter().position(|n| *n == key) else {
                return Err(ValueFault::Misfit(format!("a point has no `{}`", name::printable(key))));
            };
            p.expect(b':', "`:`")?;
            if point[i].replace(float64(numeric("float64", p)?)?).is_some() {
                return Err(ValueFault::Misfit(format!("`{}` is given twice", names[i])));
            }
        }
        if let Some(i) = (0..names.len()).find(|i| point[*i].is_none()) {
            return Err(ValueFault::Misfit(format!("`{}` is missing", names[i])));
        }
    } else {
        return Err(misfit("point (an object or an array)", p));
    }
    for (column, value) in columns.iter_mut().zip(point) {
        column.push(value.expect("each coordinate was seen"));
    }
    Ok(())
}

/// Converts a number to a timestamp, in the declared unit or else in microseconds.
fn time_of_number(number: Number<'_>, input: Option<EpochUnit>) -> Result<i64> {
    match input {
        Some(unit) => {
            unit.micros(number.text).ok_or_else(|| unfit_number(number, &format!("timestamp as {unit}")))
        }
        None => {
            let whole =
                number.integer.ok_or_else(|| unfit_number(number, "timestamp in whole microseconds"))?;
            text::micros_of_number(whole).map_err(ValueFault::Misfit)
        }
    }
}

#[inline]
fn numeric<'a>(expected: &str, p: &mut Parser<'a>) -> Result<Number<'a>> {
    match p.peek() {
        Some(b'-' | b'0'..=b'9') => Ok(p.number()?),
        _ => Err(misfit(expected, p)),
    }
}

fn quoted_text<'s, 'a: 's>(expected: &str, p: &mut Parser<'a>, scratch: &'s mut String) -> Result<&'s str> {
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
        // An integer of any length is accepted if the float represents it exactly.
        Ok(v) if v.is_finite() && format!("{v:.0}") == number.text => Ok(v),
        _ => Err(unfit_number(number, "float64")),
    }
}

fn float32(number: Number<'_>) -> Result<f32> {
    match number.text.parse::<f32>() {
        Ok(v)
            if v.is_finite() && (number.fraction || number.integer.is_some_and(|n| v as f64 == n as f64)) =>
        {
            Ok(v)
        }
        _ => Err(unfit_number(number, "float32")),
    }
}

fn unfit_number(number: Number<'_>, expected: &str) -> ValueFault {
    unread(expected, number.text)
}

pub(super) fn unread(expected: &str, found: &str) -> ValueFault {
    ValueFault::Misfit(format!("{expected} expected, `{}` found", name::printable(found)))
}

/// Makes the error "int64 expected, `"abc"` found". If the value is malformed, that is reported instead.
fn misfit(expected: &str, p: &mut Parser<'_>) -> ValueFault {
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
            ValueFault::Misfit(format!("{expected} expected, {kind}`{}` found", name::printable(&shown)))
        }
        Err(malformed) => ValueFault::Malformed(malformed),
    }
}
