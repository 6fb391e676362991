//! Bounds the length of texts that are cast to decimals. Arrow's parser calls itself once for each 38 digits, and a text of
//! megabytes overflowed the stack of its thread.

use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::datatypes::DataType as Arrow;
use arrow::error::ArrowError;
use types::{Error, Kind};

/// Bytes of the longest text that is read as a decimal.
const TEXT_BYTES_MAX: usize = 1_000;

/// Tells whether a cast between these types reads decimals from texts, also within lists, structs and dictionaries.
pub fn is_read(from: &Arrow, to: &Arrow) -> bool {
    if let (Some(from), Some(to)) = (item(from), item(to)) {
        return is_read(from, to);
    }
    match (from, to) {
        (Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View, to) => to.is_decimal(),
        (Arrow::Dictionary(_, from), to) => is_read(from, to),
        (from, Arrow::Dictionary(_, to)) => is_read(from, to),
        (Arrow::Struct(from), Arrow::Struct(to)) => {
            from.iter().zip(to).any(|(from, to)| is_read(from.data_type(), to.data_type()))
        }
        _ => false,
    }
}

/// Fails with [`Kind::TooLarge`] if a cast of this array reads a decimal from more than `TEXT_BYTES_MAX`.
pub fn check(array: &ArrayRef, to: &Arrow) -> Result<(), ArrowError> {
    if !is_read(array.data_type(), to) {
        return Ok(());
    }
    match (array.data_type(), to) {
        (Arrow::Utf8, _) => check_lengths(array.as_string::<i32>().iter()),
        (Arrow::LargeUtf8, _) => check_lengths(array.as_string::<i64>().iter()),
        (Arrow::Utf8View, _) => check_lengths(array.as_string_view().iter()),
        (Arrow::Struct(_), Arrow::Struct(fields)) => {
            let columns = array.as_struct().columns().iter();
            columns.zip(fields).try_for_each(|(column, field)| check(column, field.data_type()))
        }
        (Arrow::Dictionary(..), _) => check(array.as_any_dictionary().values(), to),
        (_, Arrow::Dictionary(_, to)) => check(array, to),
        (_, to) => {
            let lists = array.to_data();
            match (lists.child_data().first(), item(to)) {
                (Some(items), Some(to)) => check(&make_array(items.clone()), to),
                _ => Ok(()),
            }
        }
    }
}

fn check_lengths<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Result<(), ArrowError> {
    let longest = texts.flatten().map(str::len).max().unwrap_or(0);
    if longest <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("a text of {longest} bytes is read as a decimal; {TEXT_BYTES_MAX} are read at most");
    Err(ArrowError::ExternalError(Box::new(Error::new(Kind::TooLarge, message))))
}

/// Returns the type of the items of a list.
pub fn item(data_type: &Arrow) -> Option<&Arrow> {
    match data_type {
        Arrow::List(item)
        | Arrow::LargeList(item)
        | Arrow::ListView(item)
        | Arrow::LargeListView(item)
        | Arrow::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}
