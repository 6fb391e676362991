//! Writes record batches as JSON text, in one pass over the rows and without a value object per cell.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array,
    FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType as Arrow, Date32Type, Date64Type, Field, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Schema, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::column::EXACT_MAX;
use crate::parser::Parser;
use crate::text;

/// Writes batches of one schema.
pub struct Writer {
    /// The escaped `"name":` of each column.
    keys: Vec<Vec<u8>>,
    fields: Vec<Field>,
    /// True if integers of any size are written as numbers.
    is_exact: bool,
}

impl Writer {
    pub fn new(schema: &Schema) -> Self {
        let fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        Writer { keys: fields.iter().map(|f| key(f.name())).collect(), fields, is_exact: false }
    }

    /// Makes a writer for files: integers beyond 2^53 are numbers too. A reader that parses them as floats rounds
    /// them.
    pub fn exact(schema: &Schema) -> Self {
        Writer { is_exact: true, ..Writer::new(schema) }
    }

    /// Writes one object per line.
    pub fn rows(&self, batch: &RecordBatch, out: &mut Vec<u8>) {
        let cells = self.cells(batch);
        for row in 0..batch.num_rows() {
            object(&self.keys, &cells, row, out);
            out.push(b'\n');
        }
    }

    /// Writes objects separated by commas, as long as `out` stays below `bytes_max`. Returns the number of rows
    /// written.
    pub fn objects(
        &self,
        batch: &RecordBatch,
        first: &mut bool,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let cells = self.cells(batch);
        for row in 0..batch.num_rows() {
            if out.len() >= bytes_max {
                return row;
            }
            separate(first, out);
            object(&self.keys, &cells, row, out);
        }
        batch.num_rows()
    }

    /// Writes rows as arrays separated by commas: `[1,"a"],[2,"b"]`.
    pub fn arrays(&self, batch: &RecordBatch, first: &mut bool, out: &mut Vec<u8>) {
        let cells = self.cells(batch);
        for row in 0..batch.num_rows() {
            separate(first, out);
            out.push(b'[');
            for (i, cell) in cells.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                cell.write(row, out);
            }
            out.push(b']');
        }
    }

    fn cells<'a>(&self, batch: &'a RecordBatch) -> Vec<ColumnCells<'a>> {
        let columns = self.fields.iter().zip(batch.columns());
        columns.map(|(field, column)| ColumnCells::new(field, column, self.is_exact)).collect()
    }
}

fn separate(first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.push(b',');
    }
}

fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 3);
    string(name, &mut key);
    key.push(b':');
    key
}

fn object(keys: &[Vec<u8>], cells: &[ColumnCells<'_>], row: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, (key, cell)) in keys.iter().zip(cells).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(key);
        cell.write(row, out);
    }
    out.push(b'}');
}

/// Writes a string with quotes and escapes.
pub fn string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a Vec takes every byte");
}

/// The cells of one column. The type is resolved only once.
pub(super) struct ColumnCells<'a> {
    nulls: Option<NullBuffer>,
    kind: Kind<'a>,
    is_exact: bool,
}

enum Kind<'a> {
    Null,
    Bool(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    UInt8(&'a PrimitiveArray<UInt8Type>),
    UInt16(&'a PrimitiveArray<UInt16Type>),
    UInt32(&'a PrimitiveArray<UInt32Type>),
    UInt64(&'a PrimitiveArray<UInt64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal(&'a Decimal128Array, i8),
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Json(&'a StringArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    Uuid(&'a FixedSizeBinaryArray),
    FixedBinary(&'a FixedSizeBinaryArray),
    Date32(&'a PrimitiveArray<Date32Type>),
    Date64(&'a PrimitiveArray<Date64Type>),
    /// Timestamps: values, the conversion of their unit to microseconds, and whether they have a zone.
    Timestamp(&'a [i64], Unit, bool),
    /// Lists: the range of each row in the items, and the items.
    List(Box<dyn Fn(usize) -> (usize, usize) + 'a>, Box<ColumnCells<'a>>),
    Struct(Vec<Vec<u8>>, Vec<ColumnCells<'a>>),
    Dictionary(Vec<Option<usize>>, Box<ColumnCells<'a>>),
    /// Other types, in the text form that Arrow prints.
    Other(Option<ArrayFormatter<'a>>),
}

#[derive(Clone, Copy)]
enum Unit {
    Times(i64),
    Divided(i64),
}

impl<'a> ColumnCells<'a> {
    pub(super) fn new(field: &Field, array: &'a ArrayRef, is_exact: bool) -> Self {
        let json = || field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.json");
        let kind = match array.data_type() {
            Arrow::Null => Kind::Null,
            Arrow::Boolean => Kind::Bool(array.as_boolean()),
            Arrow::Int8 => Kind::Int8(array.as_primitive()),
            Arrow::Int16 => Kind::Int16(array.as_primitive()),
            Arrow::Int32 => Kind::Int32(array.as_primitive()),
            Arrow::Int64 => Kind::Int64(array.as_primitive()),
            Arrow::UInt8 => Kind::UInt8(array.as_primitive()),
            Arrow::UInt16 => Kind::UInt16(array.as_primitive()),
            Arrow::UInt32 => Kind::UInt32(array.as_primitive()),
            Arrow::UInt64 => Kind::UInt64(array.as_primitive()),
            Arrow::Float32 => Kind::Float32(array.as_primitive()),
            Arrow::Float64 => Kind::Float64(array.as_primitive()),
            Arrow::Decimal128(_, scale) => Kind::Decimal(array.as_primitive(), *scale),
            Arrow::Utf8 if json() => Kind::Json(array.as_string()),
            Arrow::Utf8 => Kind::Utf8(array.as_string()),
            Arrow::LargeUtf8 => Kind::LargeUtf8(array.as_string()),
            Arrow::Utf8View => Kind::Utf8View(array.as_string_view()),
            Arrow::Binary => Kind::Binary(array.as_binary()),
            Arrow::LargeBinary => Kind::LargeBinary(array.as_binary()),
            Arrow::BinaryView => Kind::BinaryView(array.as_binary_view()),
            Arrow::FixedSizeBinary(16) => Kind::Uuid(array.as_fixed_size_binary()),
            Arrow::FixedSizeBinary(_) => Kind::FixedBinary(array.as_fixed_size_binary()),
            Arrow::Date32 => Kind::Date32(array.as_primitive()),
            Arrow::Date64 => Kind::Date64(array.as_primitive()),
            Arrow::Timestamp(unit, zone) => {
                let zone = zone.is_some();
                match unit {
                    TimeUnit::Second => timestamps::<arrow::datatypes::TimestampSecondType>(
                        array,
                        Unit::Times(1_000_000),
                        zone,
                    ),
                    TimeUnit::Millisecond => timestamps::<arrow::datatypes::TimestampMillisecondType>(
                        array,
                        Unit::Times(1_000),
                        zone,
                    ),
                    TimeUnit::Microsecond => {
                        timestamps::<arrow::datatypes::TimestampMicrosecondType>(array, Unit::Times(1), zone)
                    }
                    TimeUnit::Nanosecond => timestamps::<arrow::datatypes::TimestampNanosecondType>(
                        array,
                        Unit::Divided(1_000),
                        zone,
                    ),
                }
            }
            Arrow::List(item) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets();
                let range = move |row: usize| (offsets[row] as usize, offsets[row + 1] as usize);
                Kind::List(Box::new(range), Box::new(ColumnCells::new(item, list.values(), is_exact)))
            }
            Arrow::LargeList(item) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets();
                let range = move |row: usize| (offsets[row] as usize, offsets[row + 1] as usize);
                Kind::List(Box::new(range), Box::new(ColumnCells::new(item, list.values(), is_exact)))
            }
            Arrow::FixedSizeList(item, width) => {
                let list = array.as_fixed_size_list();
                let width = *width as usize;
                let range = move |row: usize| (row * width, (row + 1) * width);
                Kind::List(Box::new(range), Box::new(ColumnCells::new(item, list.values(), is_exact)))
            }
            Arrow::Struct(fields) => {
                let columns = array.as_struct().columns();
                let cells = fields
                    .iter()
                    .zip(columns)
                    .map(|(field, column)| ColumnCells::new(field, column, is_exact))
                    .collect();
                Kind::Struct(fields.iter().map(|f| key(f.name())).collect(), cells)
            }
            Arrow::Dictionary(_, value) => {
                let dictionary = array.as_any_dictionary();
                let keys = dictionary.normalized_keys();
                let keys = keys
                    .into_iter()
                    .enumerate()
                    .map(|(row, key)| dictionary.keys().is_valid(row).then_some(key));
                let field = Field::new("", value.as_ref().clone(), true);
                let values = ColumnCells::new(&field, dictionary.values(), is_exact);
                Kind::Dictionary(keys.collect(), Box::new(values))
            }
            _ => {
                const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_display_error(true);
                Kind::Other(ArrayFormatter::try_new(array.as_ref(), &OPTIONS).ok())
            }
        };
        ColumnCells { nulls: array.nulls().cloned(), kind, is_exact }
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        match &self.kind {
            Kind::Null => true,
            Kind::Dictionary(keys, values) => keys[row].is_none_or(|key| values.is_null(key)),
            _ => self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)),
        }
    }

    /// Returns the text of a cell if it is a string that can be written as it is.
    pub(super) fn text(&self, row: usize) -> Option<&str> {
        match &self.kind {
            Kind::Utf8(v) => Some(v.value(row)),
            Kind::LargeUtf8(v) => Some(v.value(row)),
            Kind::Utf8View(v) => Some(v.value(row)),
            Kind::Json(v) => Some(v.value(row)),
            Kind::Dictionary(keys, values) => keys[row].and_then(|key| values.text(key)),
            _ => None,
        }
    }

    /// Returns the word for a float that is not a JSON number, in PostgreSQL's spelling.
    pub(super) fn word(&self, row: usize) -> Option<&'static str> {
        let value = match &self.kind {
            Kind::Float32(v) => f64::from(v.value(row)),
            Kind::Float64(v) => v.value(row),
            _ => return None,
        };
        float_word(value)
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            return out.extend_from_slice(b"null");
        }
        let quoted = |out: &mut Vec<u8>, write: &dyn Fn(&mut Vec<u8>)| {
            out.push(b'"');
            write(out);
            out.push(b'"');
        };
        match &self.kind {
            Kind::Null => {}
            Kind::Bool(v) => out.extend_from_slice(if v.value(row) { b"true" } else { b"false" }),
            Kind::Int8(v) => number(v.value(row), out),
            Kind::Int16(v) => number(v.value(row), out),
            Kind::Int32(v) => number(v.value(row), out),
            Kind::UInt8(v) => number(v.value(row), out),
            Kind::UInt16(v) => number(v.value(row), out),
            Kind::UInt32(v) => number(v.value(row), out),
            Kind::Int64(v) => {
                let v = v.value(row);
                if self.is_exact || v.unsigned_abs() <= EXACT_MAX {
                    number(v, out)
                } else {
                    quoted(out, &|out| number(v, out))
                }
            }
            Kind::UInt64(v) => {
                let v = v.value(row);
                if self.is_exact || v <= EXACT_MAX {
                    number(v, out)
                } else {
                    quoted(out, &|out| number(v, out))
                }
            }
            // NaN and the infinities are written as null by serde_json.
            Kind::Float32(v) => number(v.value(row), out),
            Kind::Float64(v) => number(v.value(row), out),
            Kind::Decimal(v, scale) => quoted(out, &|out| text::write_decimal(v.value(row), *scale, out)),
            Kind::Utf8(v) => string(v.value(row), out),
            Kind::LargeUtf8(v) => string(v.value(row), out),
            Kind::Utf8View(v) => string(v.value(row), out),
            Kind::Json(v) => json_text(v.value(row), out),
            Kind::Binary(v) => quoted(out, &|out| text::write_base64(v.value(row), out)),
            Kind::LargeBinary(v) => quoted(out, &|out| text::write_base64(v.value(row), out)),
            Kind::BinaryView(v) => quoted(out, &|out| text::write_base64(v.value(row), out)),
            Kind::FixedBinary(v) => quoted(out, &|out| text::write_base64(v.value(row), out)),
            Kind::Uuid(v) => quoted(out, &|out| text::write_uuid(v.value(row), out)),
            Kind::Date32(v) => quoted(out, &|out| text::write_date(v.value(row).into(), out)),
            Kind::Date64(v) => quoted(out, &|out| text::write_date(v.value(row).div_euclid(86_400_000), out)),
            Kind::Timestamp(values, unit, zone) => quoted(out, &|out| {
                let micros = match unit {
                    Unit::Times(n) => values[row].saturating_mul(*n),
                    Unit::Divided(n) => values[row].div_euclid(*n),
                };
                text::write_timestamp(micros, out);
                if *zone {
                    out.push(b'Z');
                }
            }),
            Kind::List(range, items) => {
                let (start, end) = range(row);
                out.push(b'[');
                for item in start..end {
                    if item > start {
                        out.push(b',');
                    }
                    items.write(item, out);
                }
                out.push(b']');
            }
            Kind::Struct(keys, cells) => object(keys, cells, row, out),
            Kind::Dictionary(keys, values) => match keys[row] {
                Some(key) => values.write(key, out),
                None => out.extend_from_slice(b"null"),
            },
            Kind::Other(Some(formatter)) => string(&formatter.value(row).to_string(), out),
            Kind::Other(None) => out.extend_from_slice(b"null"),
        }
    }
}

/// Returns `NaN`, `Infinity` or `-Infinity`; `None` for a number.
pub fn float_word(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

fn timestamps<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef, unit: Unit, zone: bool) -> Kind<'_> {
    Kind::Timestamp(array.as_primitive::<T>().values(), unit, zone)
}

fn number(value: impl serde::Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &value).expect("a Vec takes every byte");
}

/// Writes the text of a json column as a JSON value. A text from another source, such as an SQL function, may be
/// invalid JSON; it is then written as a string, so that the answer stays valid.
fn json_text(value: &str, out: &mut Vec<u8>) {
    let mut parser = Parser::new(value);
    if parser.skip().is_ok() && parser.peek().is_none() {
        // Line breaks between tokens would end an NDJSON line. Inside strings JSON allows no line breaks.
        if value.bytes().any(|b| b == b'\n' || b == b'\r') {
            out.extend(value.bytes().map(|b| if b == b'\n' || b == b'\r' { b' ' } else { b }));
        } else {
            out.extend_from_slice(value.as_bytes());
        }
    } else {
        string(value, out);
    }
}
