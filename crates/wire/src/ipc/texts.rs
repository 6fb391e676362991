//! Texts for json columns: Arrow does not tell them from others, and whoever reads them takes them for JSON.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType as Arrow;
use types::{DataType, Field, Unfit, name};

use crate::parser::Parser;
use crate::{Rows, Target, names};

/// The first `max` rows with a text that is no JSON where JSON goes, ascending. Those that are stay as they are written.
pub(super) fn no_json(rows: &Rows, target: Target<'_>, max: usize) -> Vec<Unfit> {
    let mut found = BTreeMap::new();
    for (given, array) in rows.batch.schema_ref().fields().iter().zip(rows.batch.columns()) {
        let name = given.name();
        let known = names::columns(target).iter().find(|column| column.name == *name);
        let new = || rows.new_columns.iter().find(|column| column.name == *name);
        let data_type = known.map(|column| &column.data_type).or_else(|| Some(&new()?.data_type));
        let Some(data_type) = data_type.filter(|data_type| has_json(data_type)) else { continue };
        let bad = (0..array.len()).filter_map(|row| Some((row, misfit(array, row, data_type)?)));
        for (row, (path, message)) in bad.take(max) {
            let column = Some(format!("{name}{path}"));
            found.entry(row).or_insert(Unfit { row, column, message });
        }
    }
    found.into_values().take(max).collect()
}

fn has_json(data_type: &DataType) -> bool {
    match data_type {
        DataType::Json => true,
        DataType::List(item) => has_json(&item.data_type),
        DataType::Struct(fields) => fields.iter().any(|field| has_json(&field.data_type)),
        _ => false,
    }
}

/// What is wrong with a value, and where in it. Of another type than JSON can have the table speaks.
fn misfit(array: &dyn Array, row: usize, data_type: &DataType) -> Option<(String, String)> {
    if array.is_null(row) {
        return None;
    }
    match (data_type, array.data_type()) {
        (DataType::Json, Arrow::Utf8) => malformed(array.as_string::<i32>().value(row)),
        (DataType::Json, Arrow::LargeUtf8) => malformed(array.as_string::<i64>().value(row)),
        (DataType::Json, Arrow::Utf8View) => malformed(array.as_string_view().value(row)),
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
