//! Types in the notation of the interface.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema, TimeUnit};
use polynya::{Error, Result};

use super::ArrowSchema;

const DICTIONARY_ORDERED: i64 = 1;
const NULLABLE: i64 = 2;
const MAP_KEYS_SORTED: i64 = 4;
/// The deepest nesting of a type. Deeper types are taken for errors.
const NESTING_MAX: usize = 32;

/// The memory that an exported schema points into.
struct ExportedStrings {
    format: CString,
    name: CString,
    metadata: Option<Vec<u8>>,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
}

/// Exports a schema as a struct of its fields, the form that streams of batches use.
pub fn export(schema: &Schema) -> Result<ArrowSchema> {
    let fields = schema.fields().clone();
    let field = Field::new("", DataType::Struct(fields), false).with_metadata(schema.metadata().clone());
    of_field(&field)
}

fn of_field(field: &Field) -> Result<ArrowSchema> {
    let data_type = field.data_type();
    let children: Vec<&FieldRef> = match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => vec![item],
        DataType::Map(entries, _) => vec![entries],
        DataType::Struct(fields) => fields.iter().collect(),
        _ => Vec::new(),
    };
    let children = children.into_iter().map(|child| of_field(child)).collect::<Result<Vec<_>>>()?;
    let (format, dictionary) = match data_type {
        DataType::Dictionary(index, values) => {
            let values = of_field(&Field::new("", values.as_ref().clone(), true))?;
            (format(index)?, Some(values))
        }
        other => (format(other)?, None),
    };
    let mut flags = 0;
    if field.is_nullable() {
        flags |= NULLABLE;
    }
    if field.dict_is_ordered() == Some(true) {
        flags |= DICTIONARY_ORDERED;
    }
    if matches!(data_type, DataType::Map(_, true)) {
        flags |= MAP_KEYS_SORTED;
    }
    let mut owned = Box::new(ExportedStrings {
        format: c_string(&format)?,
        name: c_string(field.name())?,
        metadata: encode_metadata(field.metadata()),
        children: children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect(),
        dictionary: dictionary.map_or(std::ptr::null_mut(), |values| Box::into_raw(Box::new(values))),
    });
    Ok(ArrowSchema {
        format: owned.format.as_ptr(),
        name: owned.name.as_ptr(),
        metadata: owned.metadata.as_ref().map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast()),
        flags,
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: owned.dictionary,
        release: Some(release),
        private_data: Box::into_raw(owned).cast(),
    })
}

unsafe extern "C" fn release(schema: *mut ArrowSchema) {
    // SAFETY: a consumer releases what it was given once; `private_data` was made by `of_field`.
    let owned = unsafe {
        (*schema).release = None;
        Box::from_raw((*schema).private_data.cast::<ExportedStrings>())
    };
    for child in owned.children.iter().chain([&owned.dictionary]).filter(|child| !child.is_null()) {
        // SAFETY: made by `Box::into_raw` in `of_field`; dropping it releases it unless the consumer moved it away.
        drop(unsafe { Box::from_raw(*child) });
    }
}

/// Converts a text to a C string, with U+FFFD for each zero byte.
fn c_string(text: &str) -> Result<CString> {
    CString::new(text.replace('\0', "\u{fffd}")).map_err(|e| Error::internal(format!("a name: {e}")))
}

fn format(data_type: &DataType) -> Result<String> {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 's',
        TimeUnit::Millisecond => 'm',
        TimeUnit::Microsecond => 'u',
        TimeUnit::Nanosecond => 'n',
    };
    Ok(match data_type {
        DataType::Null => "n".into(),
        DataType::Boolean => "b".into(),
        DataType::Int8 => "c".into(),
        DataType::UInt8 => "C".into(),
        DataType::Int16 => "s".into(),
        DataType::UInt16 => "S".into(),
        DataType::Int32 => "i".into(),
        DataType::UInt32 => "I".into(),
        DataType::Int64 => "l".into(),
        DataType::UInt64 => "L".into(),
        DataType::Float16 => "e".into(),
        DataType::Float32 => "f".into(),
        DataType::Float64 => "g".into(),
        DataType::Binary => "z".into(),
        DataType::LargeBinary => "Z".into(),
        DataType::BinaryView => "vz".into(),
        DataType::Utf8 => "u".into(),
        DataType::LargeUtf8 => "U".into(),
        DataType::Utf8View => "vu".into(),
        DataType::Decimal32(precision, scale) => format!("d:{precision},{scale},32"),
        DataType::Decimal64(precision, scale) => format!("d:{precision},{scale},64"),
        DataType::Decimal128(precision, scale) => format!("d:{precision},{scale}"),
        DataType::Decimal256(precision, scale) => format!("d:{precision},{scale},256"),
        DataType::FixedSizeBinary(width) => format!("w:{width}"),
        DataType::Date32 => "tdD".into(),
        DataType::Date64 => "tdm".into(),
        DataType::Time32(u) | DataType::Time64(u) => format!("tt{}", unit(u)),
        DataType::Timestamp(u, zone) => format!("ts{}:{}", unit(u), zone.as_deref().unwrap_or_default()),
        DataType::Duration(u) => format!("tD{}", unit(u)),
        DataType::Interval(IntervalUnit::YearMonth) => "tiM".into(),
        DataType::Interval(IntervalUnit::DayTime) => "tiD".into(),
        DataType::Interval(IntervalUnit::MonthDayNano) => "tin".into(),
        DataType::List(_) => "+l".into(),
        DataType::LargeList(_) => "+L".into(),
        DataType::FixedSizeList(_, len) => format!("+w:{len}"),
        DataType::Struct(_) => "+s".into(),
        DataType::Map(..) => "+m".into(),
        other => {
            return Err(Error::invalid(format!("a column of type {other} cannot be given as Arrow"))
                .hint("CAST it in the statement"));
        }
    })
}

/// Imports a struct type as a schema.
///
/// # Safety `schema` is valid and not released.
pub unsafe fn import(schema: &ArrowSchema) -> Result<Schema> {
    // SAFETY: the caller guarantees it.
    let field = unsafe { to_field(schema, 0)? };
    match field.data_type() {
        DataType::Struct(fields) => Ok(Schema::new_with_metadata(fields.clone(), field.metadata().clone())),
        other => Err(Error::invalid(format!("a table or its like is expected, an array of {other} found"))),
    }
}

unsafe fn to_field(schema: &ArrowSchema, depth: usize) -> Result<Field> {
    if depth > NESTING_MAX {
        return Err(Error::invalid(format!("a type nests more than {NESTING_MAX} levels deep")));
    }
    // SAFETY: the interface requires a format; name and metadata may be missing.
    let (format, name, metadata) = unsafe {
        (text(schema.format)?, text(schema.name).unwrap_or_default(), decode_metadata(schema.metadata)?)
    };
    let children = (0..usize::try_from(schema.n_children).unwrap_or_default())
        // SAFETY: there are `n_children` of them, as valid as their parent.
        .map(|i| unsafe { to_field(&**schema.children.add(i), depth + 1) })
        .collect::<Result<Vec<_>>>()?;
    let mut data_type = parse(&format, children, schema.flags)?;
    // SAFETY: as valid as its parent.
    if let Some(dictionary) = unsafe { schema.dictionary.as_ref() } {
        // SAFETY: the same.
        let values = unsafe { to_field(dictionary, depth + 1)? };
        data_type = DataType::Dictionary(Box::new(data_type), Box::new(values.data_type().clone()));
    }
    Ok(Field::new(name, data_type, schema.flags & NULLABLE != 0).with_metadata(metadata))
}

fn parse(format: &str, children: Vec<Field>, flags: i64) -> Result<DataType> {
    let unknown = || {
        Error::invalid(format!("`{format}` is no type of Arrow that is taken here"))
            .hint("cast the column before: unions, run-end encoded arrays and list views are not taken")
    };
    let only = |mut children: Vec<Field>| match children.len() {
        1 => Ok(Arc::new(children.remove(0))),
        _ => Err(unknown()),
    };
    let number = |text: &str| text.parse::<i32>().ok().filter(|n| *n >= 0).ok_or_else(unknown);
    let unit = |text: &str| {
        Ok(match text {
            "s" => TimeUnit::Second,
            "m" => TimeUnit::Millisecond,
            "u" => TimeUnit::Microsecond,
            "n" => TimeUnit::Nanosecond,
            _ => return Err(unknown()),
        })
    };
    Ok(match format {
        "n" => DataType::Null,
        "b" => DataType::Boolean,
        "c" => DataType::Int8,
        "C" => DataType::UInt8,
        "s" => DataType::Int16,
        "S" => DataType::UInt16,
        "i" => DataType::Int32,
        "I" => DataType::UInt32,
        "l" => DataType::Int64,
        "L" => DataType::UInt64,
        "e" => DataType::Float16,
        "f" => DataType::Float32,
        "g" => DataType::Float64,
        "z" => DataType::Binary,
        "Z" => DataType::LargeBinary,
        "vz" => DataType::BinaryView,
        "u" => DataType::Utf8,
        "U" => DataType::LargeUtf8,
        "vu" => DataType::Utf8View,
        "tdD" => DataType::Date32,
        "tdm" => DataType::Date64,
        "tts" => DataType::Time32(TimeUnit::Second),
        "ttm" => DataType::Time32(TimeUnit::Millisecond),
        "ttu" => DataType::Time64(TimeUnit::Microsecond),
        "ttn" => DataType::Time64(TimeUnit::Nanosecond),
        "tiM" => DataType::Interval(IntervalUnit::YearMonth),
        "tiD" => DataType::Interval(IntervalUnit::DayTime),
        "tin" => DataType::Interval(IntervalUnit::MonthDayNano),
        "tDs" | "tDm" | "tDu" | "tDn" => DataType::Duration(unit(&format[2..])?),
        "+l" => DataType::List(only(children)?),
        "+L" => DataType::LargeList(only(children)?),
        "+s" => DataType::Struct(children.into_iter().collect::<Fields>()),
        "+m" => DataType::Map(only(children)?, flags & MAP_KEYS_SORTED != 0),
        _ => match format.split_once(':').ok_or_else(unknown)? {
            ("w", width) => DataType::FixedSizeBinary(number(width)?),
            ("+w", len) => DataType::FixedSizeList(only(children)?, number(len)?),
            ("d", numbers) => {
                let numbers: Vec<&str> = numbers.split(',').map(str::trim).collect();
                let (precision, scale, bits) = match numbers[..] {
                    [precision, scale] => (precision, scale, "128"),
                    [precision, scale, bits] => (precision, scale, bits),
                    _ => return Err(unknown()),
                };
                let precision = precision.parse().map_err(|_| unknown())?;
                let scale = scale.parse().map_err(|_| unknown())?;
                match bits {
                    "32" => DataType::Decimal32(precision, scale),
                    "64" => DataType::Decimal64(precision, scale),
                    "128" => DataType::Decimal128(precision, scale),
                    "256" => DataType::Decimal256(precision, scale),
                    _ => return Err(unknown()),
                }
            }
            (kind, zone) if kind.len() == 3 && kind.starts_with("ts") => {
                DataType::Timestamp(unit(&kind[2..])?, Some(zone).filter(|z| !z.is_empty()).map(Into::into))
            }
            _ => return Err(unknown()),
        },
    })
}

unsafe fn text(from: *const c_char) -> Result<String> {
    if from.is_null() {
        return Err(Error::invalid("a type without a format"));
    }
    // SAFETY: the interface ends texts with a zero byte.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(str::to_owned).map_err(|_| Error::invalid("a name or type that is not UTF-8"))
}

/// Encodes the number of pairs, and for each pair the length and bytes of key and value.
fn encode_metadata(metadata: &HashMap<String, String>) -> Option<Vec<u8>> {
    if metadata.is_empty() {
        return None;
    }
    let mut bytes = (metadata.len() as i32).to_ne_bytes().to_vec();
    for text in metadata.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend((text.len() as i32).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    Some(bytes)
}

unsafe fn decode_metadata(from: *const c_char) -> Result<HashMap<String, String>> {
    let mut metadata = HashMap::new();
    if from.is_null() {
        return Ok(metadata);
    }
    let mut at = from.cast::<u8>();
    let mut take = |len: usize| {
        // SAFETY: the lengths read before give the number of bytes that follow.
        unsafe {
            let bytes = std::slice::from_raw_parts(at, len);
            at = at.add(len);
            bytes
        }
    };
    let number = |bytes: &[u8]| {
        let number = i32::from_ne_bytes(bytes.try_into().unwrap_or_default());
        usize::try_from(number).map_err(|_| Error::invalid("metadata of a negative length"))
    };
    for _ in 0..number(take(4))? {
        let mut text = || -> Result<String> {
            let len = number(take(4))?;
            Ok(String::from_utf8_lossy(take(len)).into_owned())
        };
        let (key, value) = (text()?, text()?);
        metadata.insert(key, value);
    }
    Ok(metadata)
}
