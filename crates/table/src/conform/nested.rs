//! Conversion of lists, vectors, structs and points.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float32Array, Float32Builder, ListArray,
    StructArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::nullif;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, Float32Type};
use types::{DataType, Field};

use super::{Misfit, cast, to_type};

type Fit = Result<ArrayRef, Misfit>;

pub(super) fn is_list(from: &Arrow) -> bool {
    matches!(from, Arrow::List(_) | Arrow::LargeList(_) | Arrow::FixedSizeList(..))
}

/// Converts any list to one with 32-bit offsets and unchanged items, without items outside of its rows.
fn plain_list(array: &ArrayRef) -> Result<ListArray, Misfit> {
    let item = match array.data_type() {
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => item.clone(),
        other => return Err(Misfit::of_column(format!("a list expected, {other} found"))),
    };
    let lists = cast(array, &Arrow::List(item.clone()))?.as_list::<i32>().clone();
    let (first, last) = (lists.offsets()[0], lists.offsets()[lists.len()]);
    let items = (last - first) as usize;
    if items == lists.values().len() {
        return Ok(lists);
    }
    let values = lists.values().slice(first as usize, items);
    let offsets = OffsetBuffer::new(lists.offsets().iter().map(|offset| offset - first).collect());
    ListArray::try_new(item, offsets, values, lists.nulls().cloned())
        .map_err(|e| Misfit::of_column(e.to_string()))
}

/// Returns the row of a list that has the item at index `item`.
fn row_of(offsets: &OffsetBuffer<i32>, item: usize) -> usize {
    offsets.partition_point(|offset| *offset as usize <= item).saturating_sub(1)
}

pub(super) fn list(array: &ArrayRef, item: &Field, arrow: &Arrow) -> Fit {
    let Arrow::List(field) = arrow else { unreachable!("a list is held as List") };
    let lists = plain_list(array)?;
    let offsets = lists.offsets();
    let within = |misfit: Misfit| misfit.within("[]", |item| row_of(offsets, item));
    let items = to_type(lists.values(), &item.data_type, field.data_type()).map_err(within)?;
    if !item.nullable && items.null_count() > 0 {
        // Only items of rows that are not null count.
        let shown = |row: &usize| lists.is_valid(*row);
        let bad = (0..lists.len())
            .filter(shown)
            .find(|row| (offsets[*row] as usize..offsets[*row + 1] as usize).any(|item| items.is_null(item)));
        if let Some(row) = bad {
            return Err(Misfit::new(row, "an item is null").within("[]", |row| row));
        }
    }
    let made = ListArray::try_new(field.clone(), offsets.clone(), items, lists.nulls().cloned());
    made.map(|list| Arc::new(list) as ArrayRef).map_err(|e| Misfit::of_column(e.to_string()))
}

pub(super) fn vector(array: &ArrayRef, len: u32, arrow: &Arrow) -> Fit {
    let Arrow::FixedSizeList(field, size) = arrow else { unreachable!("a vector is held as FixedSizeList") };
    let lists = plain_list(array)?;
    if !lists.values().data_type().is_numeric() {
        let what = format!("numbers expected, {} found", lists.values().data_type());
        return Err(Misfit::of_column(what));
    }
    // Embeddings often come as float64; the type promises the nearest float32.
    let numbers = cast(lists.values(), &Arrow::Float32)?;
    let numbers: &Float32Array = numbers.as_primitive::<Float32Type>();
    let mut out = Float32Builder::with_capacity(lists.len() * len as usize);
    for row in 0..lists.len() {
        if lists.is_null(row) {
            out.append_value_n(0.0, len as usize);
            continue;
        }
        let (from, to) = (lists.offsets()[row] as usize, lists.offsets()[row + 1] as usize);
        if to - from != len as usize {
            return Err(Misfit::new(row, format!("{} numbers where vector({len}) has {len}", to - from)));
        }
        if (from..to).any(|at| numbers.is_null(at)) {
            return Err(Misfit::new(row, "a number of the vector is null"));
        }
        out.append_slice(&numbers.values()[from..to]);
    }
    let made =
        FixedSizeListArray::try_new(field.clone(), *size, Arc::new(out.finish()), lists.nulls().cloned());
    made.map(|list| Arc::new(list) as ArrayRef).map_err(|e| Misfit::of_column(e.to_string()))
}

pub(super) fn structure(array: &ArrayRef, fields: &[Field], arrow: &Arrow) -> Fit {
    let Arrow::Struct(wanted) = arrow else { unreachable!("a struct is held as Struct") };
    let given = array.as_struct();
    if let Some(unknown) = given.fields().iter().find(|f| !fields.iter().any(|w| same(&w.name, f))) {
        return Err(Misfit::of_column(format!("the struct has no field `{}`", unknown.name())));
    }
    let mut columns = Vec::with_capacity(fields.len());
    for (field, wanted) in fields.iter().zip(wanted) {
        let at = given.fields().iter().position(|f| *f.name() == field.name);
        let at = at.or_else(|| given.fields().iter().position(|f| same(&field.name, f)));
        let step = format!(".{}", field.name);
        let column = match at {
            Some(at) => to_type(&shown(given, at)?, &field.data_type, wanted.data_type())
                .map_err(|misfit| misfit.within(&step, |row| row))?,
            None => new_null_array(wanted.data_type(), given.len()),
        };
        if !field.nullable
            && let Some(row) = (0..given.len()).find(|row| given.is_valid(*row) && column.is_null(*row))
        {
            return Err(Misfit::new(row, "it is NOT NULL and no value was given").within(&step, |row| row));
        }
        columns.push(column);
    }
    let made = StructArray::try_new(wanted.clone(), columns, given.nulls().cloned());
    made.map(|s| Arc::new(s) as ArrayRef).map_err(|e| Misfit::of_column(e.to_string()))
}

/// Returns the values of a field, with null in the rows where the struct itself is null.
fn shown(rows: &StructArray, at: usize) -> Fit {
    let values = rows.column(at);
    let Some(nulls) = rows.nulls() else { return Ok(values.clone()) };
    let is_hidden = BooleanArray::new(!nulls.inner(), None);
    nullif(values, &is_hidden).map_err(|e| Misfit::of_column(e.to_string()))
}

/// Converts a struct to a point. `names` has the accepted field names of each coordinate.
pub(super) fn point(array: &ArrayRef, names: &[&[&str]], arrow: &Arrow) -> Fit {
    let Arrow::Struct(wanted) = arrow else { unreachable!("a point is held as Struct") };
    let given = array.as_struct();
    let mut columns = Vec::with_capacity(names.len());
    for names in names {
        let at = given.fields().iter().position(|f| names.iter().any(|name| same(name, f)));
        let Some(at) = at else {
            return Err(Misfit::of_column(format!("a point without `{}`", names[0])));
        };
        let step = format!(".{}", names[0]);
        let column = to_type(given.column(at), &DataType::Float64, &Arrow::Float64)
            .map_err(|misfit| misfit.within(&step, |row| row))?;
        if let Some(row) = (0..given.len()).find(|row| given.is_valid(*row) && column.is_null(*row)) {
            return Err(Misfit::new(row, "a coordinate is null").within(&step, |row| row));
        }
        columns.push(column);
    }
    if given.fields().len() != names.len() {
        return Err(Misfit::of_column(format!(
            "a point has {} fields, {} found",
            names.len(),
            given.fields().len()
        )));
    }
    let made = StructArray::try_new(wanted.clone(), columns, given.nulls().cloned());
    made.map(|s| Arc::new(s) as ArrayRef).map_err(|e| Misfit::of_column(e.to_string()))
}

fn same(wanted: &str, given: &ArrowField) -> bool {
    wanted == given.name() || wanted.to_lowercase() == given.name().to_lowercase()
}
