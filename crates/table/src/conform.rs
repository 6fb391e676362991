//! Converts batches that name their columns to a table's columns.

mod nan;
mod nested;
mod unfit;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeBinaryBuilder, RecordBatch, RecordBatchOptions,
    make_array, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Date64Type, Decimal128Type, DecimalType, SchemaRef, TimeUnit,
    TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow::util::display::array_value_to_string;
use types::name::{printable, resolve, short_table_name};
use types::{Column, DATES, DataType, Error, Kind, Result, TIMES, TableDef, Value};

use crate::layout::repeat;
use crate::memory;

pub use unfit::unfit;

/// Orders the columns of `batch` as the table does, adds the missing ones (default, else null), casts values that can be cast
/// without loss, and checks NOT NULL. The result has the schema `def.schema.to_arrow_user()`.
///
/// Column names match exactly or else regardless of case. The casts are: integers and floats that fit exactly, any
/// encoding of text and bytes, timestamps of any unit (those without a zone are UTC), decimals that keep their digits,
/// text that reads as a date, timestamp or uuid; list items and struct fields by the same rules. Every NaN becomes the same NaN,
/// whatever its bits were, because indexes sort floats by their bits.
///
/// Fails with [`Kind::Schema`], naming row (from 1) and column, if a value does not fit.
pub fn conform(batch: &RecordBatch, def: &TableDef) -> Result<RecordBatch> {
    with_schema(batch, def, &def.schema.to_arrow_user())
}

/// Converts a batch like [`conform`]. `schema` must equal `def.schema.to_arrow_user()`.
pub(crate) fn with_schema(batch: &RecordBatch, def: &TableDef, schema: &SchemaRef) -> Result<RecordBatch> {
    if Arc::ptr_eq(batch.schema_ref(), schema) || batch.schema_ref() == schema {
        // A batch with the right schema may still have nulls in a column that refuses them only lately, or computed values out of
        // range.
        for (array, column) in batch.columns().iter().zip(&def.schema.columns) {
            if column.refuses_null {
                refuse_null(array, column, def)?;
            }
            check(array, &column.data_type).map_err(|misfit| misfit.error(&column.name, def))?;
        }
        return nan::of_rows(batch);
    }
    let given = given(batch, def)?;
    let rows = batch.num_rows();
    let mut arrays = Vec::with_capacity(given.len());
    for ((column, field), given) in def.schema.columns.iter().zip(schema.fields()).zip(given) {
        let array = match (given, &column.default) {
            (Some(i), _) => to_type(batch.column(i), &column.data_type, field.data_type())
                .map_err(|misfit| misfit.error(&column.name, def))?,
            (None, Some(value)) => {
                repeat(&Value::to_array(std::slice::from_ref(value), &column.data_type)?, rows)?
            }
            (None, None) if !column.takes_null() => {
                let what = format!("column `{}` is NOT NULL, has no default and was not given", column.name);
                return Err(schema_error(what, def).with("column", &column.name));
            }
            (None, None) => new_null_array(field.data_type(), rows),
        };
        if !column.takes_null() {
            refuse_null(&array, column, def)?;
        }
        arrays.push(nan::one(&array).unwrap_or(array));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
        .map_err(|e| schema_error(format!("the rows do not fit the table: {e}"), def))
}

/// Returns for each column of the table the index of the batch's column with its values.
fn given(batch: &RecordBatch, def: &TableDef) -> Result<Vec<Option<usize>>> {
    let columns = &def.schema.columns;
    let exact: HashMap<&str, usize> = columns.iter().enumerate().map(|(i, c)| (c.name.as_str(), i)).collect();
    let mut given: Vec<Option<usize>> = vec![None; columns.len()];
    for (i, field) in batch.schema_ref().fields().iter().enumerate() {
        let name = field.name().as_str();
        let at = exact.get(name).copied().or_else(|| resolve(name, columns.iter().map(|c| c.name.as_str())));
        let Some(at) = at else { return Err(unknown_column(name, def)) };
        if let Some(earlier) = given[at].replace(i) {
            let earlier = batch.schema_ref().field(earlier).name();
            let what = format!(
                "`{}` and `{}` both name column `{}`",
                printable(earlier),
                printable(name),
                columns[at].name
            );
            return Err(schema_error(what, def));
        }
    }
    Ok(given)
}

const NO_VALUE: &str = "it is NOT NULL and no value was given";

fn refuse_null(array: &ArrayRef, column: &Column, def: &TableDef) -> Result<()> {
    if array.null_count() == 0 {
        return Ok(());
    }
    let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or(0);
    Err(Misfit::new(row, NO_VALUE).error(&column.name, def))
}

/// Bytes that [`conform`] adds to these rows for columns that they lack: one default or null per row. Callers check it first,
/// since a small request can become a large one.
pub fn added_bytes(batch: &RecordBatch, def: &TableDef) -> Result<u64> {
    let columns = &def.schema.columns;
    let exact: HashMap<&str, usize> = columns.iter().enumerate().map(|(i, c)| (c.name.as_str(), i)).collect();
    let at = |name: &str| {
        exact.get(name).copied().or_else(|| resolve(name, columns.iter().map(|c| c.name.as_str())))
    };
    let given: HashSet<usize> = batch.schema_ref().fields().iter().filter_map(|f| at(f.name())).collect();
    let mut row_bytes = 0u64;
    for (_, column) in columns.iter().enumerate().filter(|(at, _)| !given.contains(at)) {
        let one = match &column.default {
            Some(value) => Value::to_array(std::slice::from_ref(value), &column.data_type)?,
            None => new_null_array(&column.data_type.to_arrow(), 1),
        };
        row_bytes = row_bytes.saturating_add(memory::used_by(&one));
    }
    Ok(row_bytes.saturating_mul(batch.num_rows() as u64))
}

fn schema_error(what: String, def: &TableDef) -> Error {
    Error::new(Kind::Schema, what).with("table", short_table_name(&def.name))
}

fn unknown_column(name: &str, def: &TableDef) -> Error {
    let error = schema_error(format!("the table has no column `{}`", printable(name)), def);
    if name.starts_with('_') {
        return error.hint("names starting with `_` belong to Polynya; leave the column out");
    }
    let have: Vec<&str> = def.schema.columns.iter().take(20).map(|c| c.name.as_str()).collect();
    error.hint(format!("add the column to the table first; it has {}", have.join(", ")))
}

/// The place of a value that does not fit, and the reason.
#[derive(Debug)]
struct Misfit {
    row: Option<usize>,
    /// The steps from the column to the value: `.field`, `[]`.
    path: String,
    what: String,
}

impl Misfit {
    fn new(row: usize, what: impl Into<String>) -> Misfit {
        Misfit { row: Some(row), path: String::new(), what: what.into() }
    }

    fn of_column(what: impl Into<String>) -> Misfit {
        Misfit { row: None, path: String::new(), what: what.into() }
    }

    /// Moves the misfit one level outwards: `step` is put before its path, and `row` maps the inner row to the outer one.
    fn within(mut self, step: &str, row: impl FnOnce(usize) -> usize) -> Misfit {
        self.path.insert_str(0, step);
        self.row = self.row.map(row);
        self
    }

    /// Makes the error of a misfit. Rows are counted from 1, as in every message that a user reads. The message names the place,
    /// so that the error's context need not.
    fn error(self, column: &str, def: &TableDef) -> Error {
        let place = match self.row {
            Some(row) => format!("row {}, column `{column}{}`", row + 1, self.path),
            None => format!("column `{column}{}`", self.path),
        };
        schema_error(format!("{place}: {}", self.what), def)
    }
}

/// Casts `array` to `data_type`, whose Arrow type is `arrow`.
fn to_type(array: &ArrayRef, data_type: &DataType, arrow: &Arrow) -> std::result::Result<ArrayRef, Misfit> {
    use Arrow::*;
    let from = array.data_type();
    if from == arrow {
        return checked(array.clone(), data_type);
    }
    let integer = from.is_integer();
    match (from, data_type) {
        (Null, _) => Ok(new_null_array(arrow, array.len())),
        (Dictionary(_, values), _) => to_type(&cast(array, values)?, data_type, arrow),
        (RunEndEncoded(_, values), _) => to_type(&cast(array, values.data_type())?, data_type, arrow),
        (_, DataType::Int32 | DataType::Int64 | DataType::Decimal { .. }) if integer => cast(array, arrow),
        (Int8 | Int16 | UInt8 | UInt16 | Float16, DataType::Float32) => cast(array, arrow),
        (Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, DataType::Float64) => cast(array, arrow),
        (Float16 | Float32, DataType::Float64) => cast(array, arrow),
        (Int64 | UInt64, DataType::Float64) => {
            // Integers beyond 2^53 are not exact as float64.
            let floats = cast(array, arrow)?;
            let values = floats.as_primitive::<arrow::datatypes::Float64Type>();
            let inexact =
                |row: &usize| values.is_valid(*row) && values.value(*row).abs() > (1u64 << 53) as f64;
            match (0..array.len()).find(inexact) {
                Some(row) => Err(misfit(array, row, data_type)),
                None => Ok(floats),
            }
        }
        (
            Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale),
            DataType::Decimal { scale: to, .. },
        ) if *scale <= *to as i8 => cast(array, arrow),
        (Utf8 | LargeUtf8 | Utf8View, DataType::String | DataType::Json) => cast(array, arrow),
        (Utf8 | LargeUtf8 | Utf8View, DataType::Date) => checked(cast(array, arrow)?, data_type),
        (Date64, DataType::Date) => checked(days(array), data_type),
        (Utf8 | LargeUtf8 | Utf8View | Timestamp(..), DataType::Timestamp) => {
            checked(timestamps(array)?, data_type)
        }
        (Utf8 | LargeUtf8 | Utf8View, DataType::Uuid) => uuids(&cast(array, &Utf8)?),
        (LargeBinary | BinaryView | FixedSizeBinary(_), DataType::Binary) => cast(array, arrow),
        (Binary | LargeBinary | BinaryView, DataType::Uuid) => cast(&cast(array, &Binary)?, arrow),
        (_, DataType::List(item)) if nested::is_list(from) => nested::list(array, item, arrow),
        (_, DataType::Vector(len)) if nested::is_list(from) => nested::vector(array, *len, arrow),
        (Struct(_), DataType::Struct(fields)) => nested::structure(array, fields, arrow),
        (Struct(_), DataType::Point) => nested::point(array, &[&["lon", "x"], &["lat", "y"]], arrow),
        (Struct(_), DataType::Point3d) => nested::point(array, &[&["x"], &["y"], &["z"]], arrow),
        _ => Err(Misfit::of_column(format!("{data_type} expected, {from} found"))),
    }
}

/// Returns true if an Arrow array of this type can hold values that the type does not allow.
fn has_bounds(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal { .. } | DataType::Date | DataType::Timestamp => true,
        DataType::List(item) => has_bounds(&item.data_type),
        DataType::Struct(fields) => fields.iter().any(|field| has_bounds(&field.data_type)),
        _ => false,
    }
}

fn checked(array: ArrayRef, data_type: &DataType) -> std::result::Result<ArrayRef, Misfit> {
    check(&array, data_type).map(|()| array)
}

/// Returns an error for the first value that the Arrow array can hold and the type does not allow: a decimal with too many
/// digits, or a time out of range. Arithmetic makes such values. Bytes behind a null or outside a slice do not count.
fn check(array: &ArrayRef, data_type: &DataType) -> std::result::Result<(), Misfit> {
    let mut first = None;
    each_misfit(array, data_type, &mut |misfit| {
        first = Some(misfit);
        false
    });
    first.map_or(Ok(()), Err)
}

/// Calls `found` for each value that [`check`] refuses, until it returns false.
fn each_misfit(array: &ArrayRef, data_type: &DataType, found: &mut dyn FnMut(Misfit) -> bool) {
    match data_type {
        DataType::Decimal { precision, .. } => {
            let fits = |value| Decimal128Type::is_valid_decimal_precision(value, *precision);
            let what = || format!("a number has more than {precision} digits");
            each_not::<Decimal128Type>(array, fits, |row| found(Misfit::new(row, what())));
        }
        DataType::Date => {
            let what = "a date lies beyond the years 1 to 9999";
            each_not::<Date32Type>(array, |day| DATES.contains(&day), |row| found(Misfit::new(row, what)));
        }
        DataType::Timestamp => {
            let what = "a time lies beyond the years 1 to 9999";
            let fits = |at| TIMES.contains(&at);
            each_not::<TimestampMicrosecondType>(array, fits, |row| found(Misfit::new(row, what)));
        }
        DataType::List(item) if has_bounds(&item.data_type) => {
            let lists = array.as_list::<i32>();
            if check(lists.values(), &item.data_type).is_ok() {
                return;
            }
            for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
                if let Err(misfit) = check(&lists.value(row), &item.data_type)
                    && !found(misfit.within("[]", |_| row))
                {
                    return;
                }
            }
        }
        DataType::Struct(fields) => {
            let rows = array.as_struct();
            for (field, values) in fields.iter().zip(rows.columns()) {
                if check(values, &field.data_type).is_ok() {
                    continue;
                }
                let step = format!(".{}", field.name);
                for row in (0..rows.len()).filter(|row| rows.is_valid(*row)) {
                    if let Err(misfit) = check(&values.slice(row, 1), &field.data_type)
                        && !found(misfit.within(&step, |_| row))
                    {
                        return;
                    }
                }
            }
        }
        _ => {}
    }
}

/// Calls `found` for each row whose value does not fit, until it returns false.
fn each_not<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    fits: impl Fn(T::Native) -> bool,
    mut found: impl FnMut(usize) -> bool,
) {
    let values = array.as_primitive::<T>();
    // Values behind a null may be anything.
    if values.values().iter().all(|value| fits(*value)) {
        return;
    }
    let mut bad = (0..values.len()).filter(|row| values.is_valid(*row) && !fits(values.value(*row)));
    while bad.next().is_some_and(&mut found) {}
}

/// Casts with Arrow. Fails, naming the row, if a value would become null.
fn cast(array: &ArrayRef, to: &Arrow) -> std::result::Result<ArrayRef, Misfit> {
    let safe = CastOptions { safe: true, ..Default::default() };
    let out = cast_with_options(array, to, &safe).map_err(|e| Misfit::of_column(e.to_string()))?;
    if out.null_count() > array.logical_null_count() {
        let nulls = array.logical_nulls();
        let lost = |row: &usize| out.is_null(*row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        if let Some(row) = (0..array.len()).find(lost) {
            return Err(misfit(array, row, &to));
        }
    }
    Ok(out)
}

fn misfit(array: &ArrayRef, row: usize, to: &dyn std::fmt::Display) -> Misfit {
    let value = array_value_to_string(array, row).unwrap_or_default();
    Misfit::new(row, format!("`{}` does not fit {to}", printable(&value)))
}

/// Converts timestamps of any unit, or text, to microseconds in UTC. A stored timestamp counts from the epoch in UTC whatever its
/// zone is; one without a zone is taken as UTC. (Arrow's own cast needs a zone database for that.)
fn timestamps(array: &ArrayRef) -> std::result::Result<ArrayRef, Misfit> {
    let naive = match array.data_type() {
        Arrow::Timestamp(unit, Some(_)) => {
            let data = array.to_data().into_builder().data_type(Arrow::Timestamp(*unit, None)).build();
            make_array(data.map_err(|e| Misfit::of_column(e.to_string()))?)
        }
        _ => array.clone(),
    };
    let micros = match naive.data_type() {
        // Rounds downwards, also before 1970, as digits of a text are; Arrow rounds towards 1970.
        Arrow::Timestamp(TimeUnit::Nanosecond, None) => {
            let nanos = naive.as_primitive::<TimestampNanosecondType>();
            Arc::new(nanos.unary::<_, TimestampMicrosecondType>(|at| at.div_euclid(1_000)))
        }
        _ => cast(&naive, &Arrow::Timestamp(TimeUnit::Microsecond, None))?,
    };
    Ok(Arc::new(micros.as_primitive::<TimestampMicrosecondType>().clone().with_timezone("UTC")))
}

/// Converts dates in milliseconds to days.
fn days(array: &ArrayRef) -> ArrayRef {
    let day = |at: i64| i32::try_from(at.div_euclid(86_400_000)).unwrap_or(i32::MAX);
    Arc::new(array.as_primitive::<Date64Type>().unary::<_, Date32Type>(day))
}

/// Parses text as uuids: 32 hexadecimal digits, hyphens anywhere.
fn uuids(array: &ArrayRef) -> std::result::Result<ArrayRef, Misfit> {
    let texts = array.as_string::<i32>();
    let mut out = FixedSizeBinaryBuilder::with_capacity(texts.len(), 16);
    for (row, text) in texts.iter().enumerate() {
        let Some(text) = text else {
            out.append_null();
            continue;
        };
        let digits = text.bytes().filter(|b| *b != b'-');
        let mut value = 0u128;
        let mut count = 0;
        for digit in digits {
            let Some(digit) = char::from(digit).to_digit(16) else {
                return Err(misfit(array, row, &DataType::Uuid));
            };
            value = value << 4 | u128::from(digit);
            count += 1;
        }
        if count != 32 {
            return Err(misfit(array, row, &DataType::Uuid));
        }
        out.append_value(value.to_be_bytes()).expect("a uuid is 16 bytes");
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests;
