//! Checks texts that go into json columns. Arrow does not distinguish them from other texts, and readers take them for
//! JSON.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType as Arrow;
use types::{DataType, Field, RejectedRow, name};

use crate::parser::Parser;
use crate::{DecodeTarget, DecodedRows, names};

/// Returns the first `max` rows, in ascending order, that have invalid JSON where the type requires JSON. Valid texts
/// are kept as they are written.
pub(crate) fn invalid_json(rows: &DecodedRows, target: DecodeTarget<'_>, max: usize) -> Vec<RejectedRow> {
    let mut found = BTreeMap::new();
    for (given, array) in rows.batch.schema_ref().fields().iter().zip(rows.batch.columns()) {
        let name = given.name();
        let known = names::columns(target).iter().find(|column| column.name == *name);
        let new = || rows.new_columns.iter().find(|column| column.name == *name);
        let data_type = known.map(|column| &column.data_type).or_else(|| Some(&new()?.data_type));
        let Some(data_type) = data_type.filter(|data_type| has_json(data_type)) else { continue };
        for unfit in invalid_rows(name, array, data_type).take(max) {
            found.entry(unfit.row).or_insert(unfit);
        }
    }
    found.into_values().take(max).collect()
}

/// Returns the rows of a column, in ascending order, that have invalid JSON where the type requires JSON.
pub fn invalid_rows<'a>(
    name: &'a str,
    array: &'a dyn Array,
    data_type: &'a DataType,
) -> impl Iterator<Item = RejectedRow> + 'a {
    let rows = if has_json(data_type) { array.len() } else { 0 };
    (0..rows).filter_map(move |row| {
        let (path, message) = misfit(array, row, data_type)?;
        Some(RejectedRow { row, column: Some(format!("{name}{path}")), message })
    })
}

/// Returns true if a type is JSON or contains JSON.
pub fn has_json(data_type: &DataType) -> bool {
    match data_type {
        DataType::Json => true,
        DataType::List(item) => has_json(&item.data_type),
        DataType::Struct(fields) => fields.iter().any(|field| has_json(&field.data_type)),
        _ => false,
    }
}

/// Returns the path and the fault of invalid JSON in a value. Arrays of other types pass; the table checks those.
fn misfit(array: &dyn Array, row: usize, data_type: &DataType) -> Option<(String, String)> {
    if array.is_null(row) {
        return None;
    }
    match (data_type, array.data_type()) {
        (DataType::Json, Arrow::Utf8) => malformed(array.as_string::<i32>().value(row)),
        (DataType::Json, Arrow::LargeUtf8) => malformed(array.as_string::<i64>().value(row)),
        (DataType::Json, Arrow::Utf8View) => malformed(array.as_string_view().value(row)),
        (_, Arrow::Dictionary(_, plain)) => misfit(&cast(&array.slice(row, 1), plain).ok()?, 0, data_type),
        (_, Arrow::RunEndEncoded(_, plain)) => {
            misfit(&cast(&array.slice(row, 1), plain.data_type()).ok()?, 0, data_type)
        }
        (DataType::List(item), Arrow::List(_)) => of_items(&array.as_list::<i32>().value(row), item),
        (DataType::List(item), Arrow::LargeList(_)) => of_items(&array.as_list::<i64>().value(row), item),
        (DataType::List(item), Arrow::FixedSizeList(..)) => {
            of_items(&array.as_fixed_size_list().value(row), item)
        }
        (DataType::Struct(fields), Arrow::Struct(_)) => {
            let given = array.as_struct();
            given.fields().iter().zip(given.columns()).find_map(|(inner, values)| {
                let at = name::resolve(inner.name(), fields.iter().map(|field| field.name.as_str()))?;
                let (path, message) = misfit(values, row, &fields[at].data_type)?;
                Some((format!(".{}{path}", fields[at].name), message))
            })
        }
        _ => None,
    }
}

fn of_items(items: &dyn Array, item: &Field) -> Option<(String, String)> {
    let (path, message) = (0..items.len()).find_map(|at| misfit(items, at, &item.data_type))?;
    Some((format!("[]{path}"), message))
}

fn malformed(text: &str) -> Option<(String, String)> {
    let mut p = Parser::new(text);
    let read = p.skip().map(|_| ()).and_then(|()| match p.peek() {
        None => Ok(()),
        Some(_) => p.malformed("the end of the value"),
    });
    let wrong = read.err()?;
    let what =
        format!("JSON ({} at byte {}) expected, `{}` found", wrong.expected, wrong.at, name::printable(text));
    Some((String::new(), what))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, ListArray, StringArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field as ArrowField;
    use types::ColumnId;

    use super::*;

    #[test]
    fn text_is_looked_at_wherever_it_becomes_json() {
        for (text, is_some) in [("{\"a\": [1]}", true), ("no", false), ("", false), ("1 2", false)] {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("1"), None, Some(text)]));
            let words = Arrow::Dictionary(Box::new(Arrow::Int32), Box::new(Arrow::Utf8));
            let words = cast(&texts, &words).unwrap();
            let item = Arc::new(ArrowField::new("element", Arrow::Utf8, true));
            let offsets = OffsetBuffer::from_lengths([2, 1]);
            let lists: ArrayRef = Arc::new(ListArray::try_new(item, offsets, texts.clone(), None).unwrap());
            let field = |name: &str, array: &ArrayRef| {
                (Arc::new(ArrowField::new(name, array.data_type().clone(), true)), array.clone())
            };
            let of_lists: ArrayRef = Arc::new(StructArray::from(vec![field("a", &lists)]));
            let of_words: ArrayRef = Arc::new(StructArray::from(vec![field("a", &words)]));
            for (array, wanted, row, place) in [
                (&texts, "json", 2, "c"),
                (&words, "json", 2, "c"),
                (&lists, "list<json>", 1, "c[]"),
                (&of_lists, "struct<A: list<json>>", 1, "c.A[]"),
                (&of_words, "struct<A: json>", 2, "c.A"),
            ] {
                let wanted = DataType::parse(wanted, &mut ColumnId(0)).unwrap();
                let found = invalid_rows("c", array, &wanted).next().map(|bad| (bad.row, bad.column));
                let expected = (!is_some).then(|| (row, Some(place.to_owned())));
                assert_eq!(found, expected, "{text} as {wanted}");
                assert!(invalid_rows("c", &array.slice(0, 1), &wanted).next().is_none());
            }
            assert!(invalid_rows("c", &texts, &DataType::String).next().is_none());
        }
    }
}
