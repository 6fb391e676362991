//! Rows as an Arrow IPC stream.
//!
//! The reader of `arrow` validates offsets and text, but it trusts the lengths in messages: it allocates the claimed
//! size of a compressed buffer, and a dictionary of one large string can stand for any number of copies. So the
//! messages are checked first (`check_messages`), and the size of a cast's result is charged before the cast.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatchOptions};
use arrow::compute;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, Schema};
use arrow::ipc;
use arrow::ipc::reader::StreamReader;
use arrow::record_batch::RecordBatch;
use types::{ColumnId, DataType, Error, Field, Kind, NESTING_MAX, check_new_column, name};

use super::column::null_bytes;
use super::{
    BadRow, Budget, DecodeTarget, DecodedRows, Limits, NewColumn, RefusedBody, RowRange, SiftedRows,
    json_texts, names, refused,
};

/// Reads all batches of a stream into one. Column names are resolved like those of JSON rows; `table::conform` casts
/// the values later. Texts for json columns are checked to be JSON.
pub fn decode(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<DecodedRows, RefusedBody> {
    let rows = read(body, target, limits)?;
    let bad = json_texts::invalid_json(&rows, target, limits.bad_rows_max);
    if bad.is_empty() {
        return Ok(rows);
    }
    let refused = SiftedRows::whole(rows, limits.before).refuse(body, bad, limits)?;
    Err(refused.unwrap_or_else(|| Error::internal("a refused body without bad rows").into()))
}

fn read(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<DecodedRows, RefusedBody> {
    let mut budget = Budget::new(limits.decoded_bytes_max);
    check_messages(body, &mut budget)?;
    if limits.part.is_some() {
        // The other rows of the body are freed before the next part is read, so they are not charged to this one.
        budget = Budget::new(limits.decoded_bytes_max);
    }
    // The reader still trusts some indexes and lengths. A panic in it means a bad body, not a bug of this project.
    let read = catch_unwind(AssertUnwindSafe(|| -> Result<_, arrow::error::ArrowError> {
        let reader = StreamReader::try_new(body, None)?;
        let schema = reader.schema();
        Ok((schema, reader.collect::<Result<Vec<_>, _>>()?))
    }));
    let (schema, batches) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(e)) => return Err(broken(e).into()),
        Err(_) => return Err(broken("its parts contradict each other").into()),
    };
    let batches = match limits.part {
        Some(part) => some_of(&batches, part),
        None => batches,
    };
    let (names, new) = resolve(&schema, target, limits)?;
    let row_bytes =
        16 + target.def.map_or(0, |def| def.schema.columns.iter().map(|c| null_bytes(&c.data_type)).sum());
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    budget.take(rows.saturating_mul(row_bytes))?;

    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::new(); schema.fields().len()];
    for batch in &batches {
        for (i, column) in batch.columns().iter().enumerate() {
            columns[i].push(plain(column, &names[i].0, &mut budget)?);
        }
    }
    drop(batches);
    let (mut fields, mut arrays, mut new_columns) = (Vec::new(), Vec::new(), Vec::new());
    for (i, parts) in columns.into_iter().enumerate() {
        // A column of only nulls, without a type, is not made.
        if *schema.field(i).data_type() == Arrow::Null {
            continue;
        }
        let (name, existing) = &names[i];
        let array = match parts.as_slice() {
            [] => continue,
            // This copies the rows: a slice would keep the memory of all rows alive.
            [one] if limits.part.is_some() => compute::concat(&[one, &one.slice(0, 0)]).map_err(broken)?,
            [one] => one.clone(),
            parts => {
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                compute::concat(&parts).map_err(broken)?
            }
        };
        fields.push(ArrowField::new(name, array.data_type().clone(), true));
        arrays.push(array);
        if !existing && let Some(new) = new.iter().find(|new| new.name == *name) {
            new_columns.push(new.clone());
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch =
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(broken)?;
    Ok(DecodedRows { batch, new_columns })
}

/// Reads the rows of a stream, and leaves out those with invalid JSON texts.
pub fn sift(body: &[u8], target: DecodeTarget<'_>, limits: &Limits) -> Result<SiftedRows, RefusedBody> {
    let rows = read(body, target, limits)?;
    let bad = json_texts::invalid_json(&rows, target, usize::MAX);
    let mut sifted = SiftedRows::whole(rows, limits.before);
    sifted.leave_out(body, bad)?;
    Ok(sifted)
}

/// Selects a range of rows. This allocates nothing per row, because a batch may claim any number of rows without a
/// byte.
fn some_of(batches: &[RecordBatch], part: RowRange) -> Vec<RecordBatch> {
    let end = part.first.saturating_add(part.rows);
    let (mut found, mut before) = (Vec::new(), 0);
    for batch in batches {
        let rows = batch.num_rows();
        let (from, to) = (part.first.saturating_sub(before).min(rows), end.saturating_sub(before).min(rows));
        if from < to {
            found.push(batch.slice(from, to - from));
        }
        before += rows;
    }
    found
}

pub(crate) fn broken(why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("the body is not a readable Arrow IPC stream: {why}"))
        .hint("write it with a stream writer (not a file writer) and send the whole of it")
}

/// Walks the encapsulated messages. Each must lie inside the body, and its claimed sizes are charged to the budget.
fn check_messages(body: &[u8], budget: &mut Budget) -> Result<(), Error> {
    let cut = || broken("it is cut off");
    let mut rest = body;
    let word = |bytes: &[u8]| bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
    while !rest.is_empty() {
        let mut size = word(rest).ok_or_else(cut)?;
        rest = &rest[4..];
        if size == u32::MAX {
            size = word(rest).ok_or_else(cut)?;
            rest = &rest[4..];
        }
        if size == 0 {
            // Rows of a second stream would otherwise be dropped silently.
            return if rest.trim_ascii_start().is_empty() {
                Ok(())
            } else {
                Err(broken("something follows its end"))
            };
        }
        let (header, behind) = rest.split_at_checked(size as usize).ok_or_else(cut)?;
        let message = ipc::root_as_message(header)
            .map_err(|e| broken(format!("a message's header is damaged: {e}")))?;
        let body_len =
            usize::try_from(message.bodyLength()).map_err(|_| broken("a message has a negative length"))?;
        let (data, behind) = behind.split_at_checked(body_len).ok_or_else(cut)?;
        rest = behind;
        let batch = match message.header_type() {
            ipc::MessageHeader::RecordBatch => message.header_as_record_batch(),
            ipc::MessageHeader::DictionaryBatch => {
                message.header_as_dictionary_batch().and_then(|d| d.data())
            }
            _ => continue,
        };
        let Some(batch) = batch else { return Err(broken("a message is empty")) };
        check_batch(&batch, data, budget)?;
    }
    Ok(())
}

fn check_batch(batch: &ipc::RecordBatch<'_>, data: &[u8], budget: &mut Budget) -> Result<(), Error> {
    let length = |n: i64| usize::try_from(n).map_err(|_| broken("a negative length"));
    // A column of nulls, or of values without width, has a length that is not backed by bytes.
    const ROWS_MAX: usize = 1 << 27;
    let mut lengths = vec![length(batch.length())?];
    for node in batch.nodes().into_iter().flatten() {
        lengths.push(length(node.length())?);
        if length(node.null_count())? > length(node.length())? {
            return Err(broken("more nulls than values"));
        }
    }
    if lengths.iter().any(|n| *n > ROWS_MAX) {
        return Err(Error::new(Kind::TooLarge, "a record batch claims more than 134217728 values")
            .hint("send fewer rows in one body"));
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let (offset, len) = (length(buffer.offset())?, length(buffer.length())?);
        let end = offset.checked_add(len).ok_or_else(|| broken("the end of a buffer is out of range"))?;
        let bytes = data.get(offset..end).ok_or_else(|| broken("a buffer lies outside its message"))?;
        let claimed = match (batch.compression().is_some(), bytes.first_chunk::<8>()) {
            (true, Some(prefix)) => match i64::from_le_bytes(*prefix) {
                // The value -1 marks a buffer that is not compressed.
                -1 => len,
                claimed => length(claimed)?,
            },
            _ => len,
        };
        budget.take(claimed)?;
    }
    Ok(())
}

type FieldNames = Vec<(String, bool)>;

/// Returns the table's name of each field and whether the column exists, and the columns to be added.
fn resolve(
    schema: &Schema,
    target: DecodeTarget<'_>,
    limits: &Limits,
) -> Result<(FieldNames, Vec<NewColumn>), RefusedBody> {
    // A column of only nulls, without a type, is not made, so its name is not checked.
    let known = names::columns(target);
    let is_taken = |name: &str| name::resolve(name, known.iter().map(|c| c.name.as_str())).is_some();
    let counts =
        |field: &&Arc<ArrowField>| *field.data_type() != Arrow::Null || is_taken(field.name().as_str());
    let wanted: Vec<&Arc<ArrowField>> = schema.fields().iter().filter(counts).collect();
    let places = names::resolve(wanted.iter().map(|field| field.name().as_str()), target, limits)?;
    let (mut found, mut new, mut bad): (FieldNames, Vec<NewColumn>, Vec<BadRow>) = Default::default();
    let mut hint = None;
    let mut places = places.into_iter();
    for field in schema.fields() {
        let place = if counts(&field) { places.next().flatten() } else { None };
        if let Some(at) = place {
            found.push((known[at].name.clone(), true));
            continue;
        }
        found.push((field.name().clone(), false));
        if *field.data_type() == Arrow::Null {
            continue;
        }
        let wanted = data_type(field, 0).map_err(|why| Error::new(Kind::Schema, why));
        match wanted.and_then(|t| check_new_column(field.name(), &t).map(|()| t)) {
            Ok(data_type) => new.push(NewColumn { name: field.name().clone(), data_type }),
            Err(error) => {
                hint = hint.or(error.hint_text().map(str::to_owned));
                let (column, message) = (Some(name::printable(field.name())), error.message().to_owned());
                bad.push(BadRow { row: 1, line: None, column, message });
                if bad.len() >= limits.bad_rows_max {
                    break;
                }
            }
        }
    }
    if bad.is_empty() { Ok((found, new)) } else { Err(refused(bad, limits, hint)) }
}

/// Returns the column type for a field of an Arrow schema.
fn data_type(field: &ArrowField, depth: usize) -> Result<DataType, String> {
    if depth > NESTING_MAX {
        return Err(format!("its type nests more than {NESTING_MAX} levels deep"));
    }
    let extension = field.metadata().get("ARROW:extension:name").map(String::as_str);
    let nested = |item: &ArrowField, name: &str| -> Result<Field, String> {
        let data_type = data_type(item, depth + 1)?;
        Ok(Field { id: ColumnId(0), name: name.to_owned(), data_type, nullable: item.is_nullable() })
    };
    Ok(match field.data_type() {
        Arrow::Boolean => DataType::Bool,
        Arrow::Int8 | Arrow::Int16 | Arrow::Int32 | Arrow::UInt8 | Arrow::UInt16 => DataType::Int32,
        Arrow::Int64 | Arrow::UInt32 | Arrow::UInt64 => DataType::Int64,
        Arrow::Float16 | Arrow::Float32 => DataType::Float32,
        Arrow::Float64 => DataType::Float64,
        Arrow::Decimal128(p, s) if *s >= 0 && *s as u8 <= *p => {
            DataType::Decimal { precision: *p, scale: *s as u8 }
        }
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View if extension == Some("arrow.json") => DataType::Json,
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => DataType::String,
        Arrow::FixedSizeBinary(16) if extension == Some("arrow.uuid") => DataType::Uuid,
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
            DataType::Binary
        }
        Arrow::Date32 | Arrow::Date64 => DataType::Date,
        Arrow::Timestamp(..) => DataType::Timestamp,
        Arrow::FixedSizeList(item, n) if *item.data_type() == Arrow::Float32 && (1..=65_536).contains(n) => {
            DataType::Vector(*n as u32)
        }
        Arrow::List(item) | Arrow::LargeList(item) => DataType::List(Box::new(nested(item, "element")?)),
        Arrow::Struct(fields) => {
            DataType::Struct(fields.iter().map(|f| nested(f, f.name())).collect::<Result<_, _>>()?)
        }
        Arrow::Dictionary(_, value) => {
            data_type(&ArrowField::new("", value.as_ref().clone(), true), depth + 1)?
        }
        other => return Err(format!("Arrow's type {other} has no matching column type")),
    })
}

/// Converts dictionaries and views to plain arrays. The size of the result is charged first.
fn plain(array: &ArrayRef, name: &str, budget: &mut Budget) -> Result<ArrayRef, Error> {
    let to = match array.data_type() {
        Arrow::Dictionary(_, value) => {
            let dictionary = array.as_any_dictionary();
            let values = dictionary.values();
            let mean = values.get_array_memory_size() / values.len().max(1) + 1;
            // For strings the sum is exact, because single values can be large.
            let bytes = match value.as_ref() {
                Arrow::Utf8 => {
                    let values = values.as_string::<i32>();
                    let keys = dictionary.normalized_keys();
                    keys.iter()
                        .filter(|k| **k < values.len())
                        .map(|k| values.value_length(*k) as usize + 5)
                        .sum()
                }
                v if v.is_nested() || v.is_run_ends_type() => {
                    return Err(unsupported(array, name));
                }
                v if v.is_primitive() || *v == Arrow::Boolean => mean.min(32) * array.len(),
                _ => values.get_array_memory_size().saturating_mul(array.len()),
            };
            budget.take(bytes)?;
            value.as_ref().clone()
        }
        Arrow::Utf8View => {
            let views = array.as_string_view();
            budget.take((0..views.len()).map(|i| (views.views()[i] as u32) as usize + 5).sum())?;
            Arrow::Utf8
        }
        Arrow::BinaryView => {
            let views = array.as_binary_view();
            budget.take((0..views.len()).map(|i| (views.views()[i] as u32) as usize + 5).sum())?;
            Arrow::Binary
        }
        Arrow::RunEndEncoded(..)
        | Arrow::ListView(_)
        | Arrow::LargeListView(_)
        | Arrow::Map(..)
        | Arrow::Union(..) => {
            return Err(unsupported(array, name));
        }
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => {
            return if simple(item.data_type()) { Ok(array.clone()) } else { Err(unsupported(array, name)) };
        }
        Arrow::Struct(fields) => {
            let all = fields.iter().all(|f| simple(f.data_type()));
            return if all { Ok(array.clone()) } else { Err(unsupported(array, name)) };
        }
        _ => return Ok(array.clone()),
    };
    compute::cast(array, &to).map_err(broken)
}

/// Returns true if the size of a nested array follows from its buffers.
fn simple(data_type: &Arrow) -> bool {
    match data_type {
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => {
            simple(item.data_type())
        }
        Arrow::Struct(fields) => fields.iter().all(|f| simple(f.data_type())),
        Arrow::Dictionary(..)
        | Arrow::Utf8View
        | Arrow::BinaryView
        | Arrow::RunEndEncoded(..)
        | Arrow::ListView(_)
        | Arrow::LargeListView(_)
        | Arrow::Map(..)
        | Arrow::Union(..) => false,
        _ => true,
    }
}

fn unsupported(array: &ArrayRef, name: &str) -> Error {
    Error::new(
        Kind::Schema,
        format!("column `{}` comes as Arrow's {}", name::printable(name), array.data_type()),
    )
    .hint("cast it to plain strings, numbers, lists or structs first")
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int32Array, Int64Array, StringArray};
    use arrow::datatypes::Int32Type;
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

    use super::*;

    fn stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer =
            StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
        batches.iter().for_each(|b| writer.write(b).unwrap());
        writer.into_inner().unwrap()
    }

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([
            ("a", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
            ("b", Arc::new(StringArray::from(vec![Some("x"), None]))),
        ])
        .unwrap()
    }

    const TARGET: DecodeTarget<'static> = DecodeTarget { table: "t", def: None, may_add_columns: true };

    #[test]
    fn batches_become_one_with_columns_to_add() {
        for compression in [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)] {
            let rows = decode(&stream(&[batch(), batch()], compression), TARGET, &Limits::default()).unwrap();
            assert_eq!(rows.batch.num_rows(), 4);
            let new: Vec<_> =
                rows.new_columns.iter().map(|c| (c.name.as_str(), c.data_type.to_string())).collect();
            assert_eq!(new, [("a", "int64".into()), ("b", "string".into())]);
        }
    }

    /// Arrow does not distinguish JSON from other texts, and the content of a json column is written into answers
    /// unchanged.
    #[test]
    fn what_is_no_json_goes_into_no_json_column() {
        let mut def = types::TableDef::new(types::TableId(1), "main.t");
        for (name, text) in [("j", "json"), ("s", "struct<j: json>"), ("l", "list<json>")] {
            def.add_column(name, &DataType::parse(text, &mut ColumnId(0)).unwrap(), true, None).unwrap();
        }
        let texts = |bad: &str| StringArray::from(vec![Some("{\"a\": 1}"), None, Some(bad), Some(" 7 ")]);
        let columns = |bad: &str| -> Vec<(&str, &str, ArrayRef)> {
            let field = Arc::new(ArrowField::new("J", Arrow::Utf8, true));
            let inner = arrow::array::StructArray::from(vec![(field, Arc::new(texts(bad)) as ArrayRef)]);
            let item = Arc::new(ArrowField::new("item", Arrow::Utf8, true));
            let offsets = arrow::buffer::OffsetBuffer::from_lengths([1, 1, 1, 1]);
            let list = arrow::array::ListArray::new(item, offsets, Arc::new(texts(bad)), None);
            vec![
                ("j", "j", Arc::new(texts(bad))),
                ("s", "s.j", Arc::new(inner)),
                ("l", "l[]", Arc::new(list)),
            ]
        };
        let target = DecodeTarget { def: Some(&def), ..TARGET };
        for bad in ["not json", "", "{} x", "[1"] {
            for (name, path, array) in columns(bad) {
                let body = stream(&[RecordBatch::try_from_iter([(name, array)]).unwrap()], None);
                let refused = decode(&body, target, &Limits::default()).unwrap_err();
                let named: Vec<_> = refused.rows.iter().map(|bad| (bad.row, bad.column.as_deref())).collect();
                assert_eq!(named, [(3, Some(path))], "{bad:?}: {}", refused.error);
                let sifted = sift(&body, target, &Limits::default()).unwrap();
                assert_eq!((sifted.rows.batch.num_rows(), sifted.skipped.len()), (3, 1), "{bad:?}");
            }
        }
        for (name, _, array) in columns("[null]") {
            let body = stream(&[RecordBatch::try_from_iter([(name, array.clone())]).unwrap()], None);
            let rows = decode(&body, target, &Limits::default()).unwrap();
            assert_eq!(rows.batch.column(0).to_data(), array.to_data(), "as they were written");
        }
        let new = ArrowField::new("n", Arrow::Utf8, true)
            .with_metadata([("ARROW:extension:name".to_owned(), "arrow.json".to_owned())].into());
        let schema = Arc::new(Schema::new(vec![new]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(texts("not json"))]).unwrap();
        let refused = decode(&stream(&[batch], None), TARGET, &Limits::default()).unwrap_err();
        assert_eq!((refused.rows.len(), refused.rows[0].row), (1, 3));
    }

    /// Columns of these types were accepted with 200, and the table's lake stopped for good or was unreadable for
    /// other engines.
    #[test]
    fn a_column_that_no_table_can_hold_is_refused_before_its_rows() {
        let field = |name: &str, data_type| Arc::new(ArrowField::new(name, data_type, true));
        let of_struct = |fields: Vec<Arc<ArrowField>>| Arrow::Struct(fields.into());
        let list_of = |data_type| Arrow::List(field("item", data_type));
        let deep = (0..NESTING_MAX + 1).fold(Arrow::Int64, |inner, _| list_of(inner));
        for (name, arrow, said) in [
            ("s", of_struct(vec![]), "`s` is a struct without fields"),
            ("s", list_of(of_struct(vec![])), "`s[]` is a struct without fields"),
            ("s", of_struct(vec![field("a", of_struct(vec![]))]), "`s.a` is a struct without fields"),
            ("s", of_struct(vec![field("", Arrow::Int64)]), "`s` has a field whose name is empty"),
            ("s", of_struct(vec![field("\0", Arrow::Int64)]), "the control character"),
            ("s", deep, "more than 16 levels deep"),
            ("", Arrow::Int64, "it is empty"),
            ("\0", Arrow::Int64, "the control character"),
        ] {
            let batch = RecordBatch::new_empty(Arc::new(Schema::new(vec![field(name, arrow)])));
            let refused = decode(&stream(&[batch], None), TARGET, &Limits::default()).unwrap_err();
            assert_eq!(refused.error.kind(), Kind::Schema, "{name:?}: {}", refused.error);
            assert!(refused.error.to_string().contains(said), "{name:?}: {}", refused.error);
        }
    }

    /// The parser of a message header descends at most 64 levels, before anything is built from it.
    #[test]
    fn ten_thousand_nested_types_are_an_error_and_no_abort() {
        let _limit = testkit::limit(60);
        let body = std::thread::Builder::new().stack_size(1 << 30).spawn(|| {
            let nested = (0..10_000)
                .fold(Arrow::Int64, |inner, _| Arrow::Struct(vec![ArrowField::new("f", inner, true)].into()));
            let schema = Schema::new(vec![ArrowField::new("a", nested, true)]);
            let writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
            let body = writer.into_inner().unwrap();
            // Dropping the type would recurse as deep as building it.
            std::mem::forget(schema);
            body
        });
        let body = body.unwrap().join().unwrap();
        let refused = decode(&body, TARGET, &Limits::default()).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::Invalid, "{}", refused.error);
    }

    #[test]
    fn no_flipped_or_missing_byte_panics() {
        let whole = stream(&[batch(), batch()], Some(CompressionType::ZSTD));
        for i in 0..whole.len() {
            for bit in [0x01, 0x80] {
                let mut flipped = whole.clone();
                flipped[i] ^= bit;
                let _ = decode(&flipped, TARGET, &Limits::default());
            }
            let _ = decode(&whole[..i], TARGET, &Limits::default());
        }
    }

    #[test]
    fn a_dictionary_of_one_large_string_is_counted_before_it_is_unfolded() {
        let large = "x".repeat(1 << 20);
        let keys = Int32Array::from(vec![0; 100_000]);
        let dictionary =
            DictionaryArray::<Int32Type>::try_new(keys, Arc::new(StringArray::from(vec![large.as_str()])))
                .unwrap();
        let bomb = RecordBatch::try_from_iter([("d", Arc::new(dictionary) as ArrayRef)]).unwrap();
        let refused = decode(&stream(&[bomb], None), TARGET, &Limits::default()).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::TooLarge, "{}", refused.error);
    }

    /// A batch may claim 134217728 rows without a byte. The row indexes of a part's rows took a gigabyte.
    #[test]
    fn a_part_of_rows_without_bytes_takes_no_memory() {
        const ROWS: usize = 1 << 27;
        let part = |first, rows, decoded_bytes_max| {
            let nulls = Arc::new(arrow::array::NullArray::new(ROWS)) as ArrayRef;
            let body = stream(&[RecordBatch::try_from_iter([("n", nulls)]).unwrap()], None);
            let part = Some(RowRange { first, rows });
            decode(&body, TARGET, &Limits { part, decoded_bytes_max, ..Limits::default() })
        };
        let highest = || -> usize {
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
        };
        let before = highest();
        assert_eq!(part(0, ROWS, 256 << 20).unwrap_err().error.kind(), Kind::TooLarge);
        assert_eq!(part(7, ROWS / 2, 256 << 20).unwrap_err().error.kind(), Kind::TooLarge);
        assert!(highest() - before < 900 << 10, "{before} KiB, then {}", highest());
        assert_eq!(part(ROWS - 10, 20, 1_000).unwrap().batch.num_rows(), 10);
    }

    #[test]
    fn a_part_has_its_rows_and_keeps_no_others() {
        let options = RecordBatchOptions::new().with_row_count(Some(5));
        let none =
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).unwrap();
        let of = |body: &[u8], first, rows| {
            let part = Some(RowRange { first, rows });
            decode(body, TARGET, &Limits { part, ..Limits::default() }).unwrap().batch
        };
        // The same holds for a batch without columns.
        assert_eq!(of(&stream(&[none], None), 3, 100).num_rows(), 2);

        let numbers = |from: i64| {
            let n = Arc::new(Int64Array::from_iter_values(from..from + 10_000)) as ArrayRef;
            RecordBatch::try_from_iter([("n", n)]).unwrap()
        };
        let body = stream(&[numbers(0), numbers(10_000)], None);
        for (first, rows) in [(0, 2), (9_999, 2), (10_000, 1), (19_990, 100)] {
            let part = of(&body, first, rows);
            let found = part.column(0).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec();
            let end = (first + rows).min(20_000);
            assert_eq!(found, (first as i64..end as i64).collect::<Vec<_>>());
            assert!(part.get_array_memory_size() < 2_000, "{}", part.get_array_memory_size());
        }
    }
}
