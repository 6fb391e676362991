//! Layouts and projections: the columns of a stored batch, the columns that a reader wants, and the conversion between them.
//! Columns are matched by id, so that rename, drop and re-add are safe.

mod small_gather;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, interleave};
use arrow::datatypes::{DataType as Arrow, Field, Schema, SchemaRef};
use types::schema::column_ids;
use types::{
    Column, ColumnId, DataType, Error, ROW_ID, ROW_ID_NAME, Result, TIME, TIME_NAME, TableDef, Value,
};

use crate::evicted_rows::LakeRows;

/// The columns of stored batches, `_row_id` and `_time` first. There is one layout per schema version, shared by its batches.
#[derive(Debug)]
pub(crate) struct Layout {
    pub schema: SchemaRef,
    pub ids: Vec<ColumnId>,
    /// The position of each column, sorted by id.
    positions: Vec<(ColumnId, usize)>,
    /// The positions of the key's columns, in key order.
    pub key: Vec<usize>,
    /// The key columns' types; a key column's type never changes.
    pub key_types: Vec<DataType>,
    /// Columns that the rows have in their file but that their reader did not request.
    left_out: Vec<ColumnId>,
}

impl Layout {
    pub fn of(def: &TableDef) -> Arc<Layout> {
        let ids = [ROW_ID, TIME].into_iter().chain(def.schema.columns.iter().map(|c| c.id)).collect();
        Self::new(def.schema.to_arrow(), ids, def).expect("a definition has its key columns")
    }

    /// Makes the layout of a file's schema. Fails if a field carries no id or a key column of `def` is missing.
    pub fn of_stored(schema: SchemaRef, def: &TableDef) -> Result<Arc<Layout>> {
        let ids = column_ids(&schema)
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::damaged("a field without a column id"))?;
        if !ids.starts_with(&[ROW_ID, TIME]) {
            return Err(Error::damaged(format!("the first columns are not {ROW_ID_NAME} and {TIME_NAME}")));
        }
        Self::new(schema, ids, def)
    }

    fn new(schema: SchemaRef, ids: Vec<ColumnId>, def: &TableDef) -> Result<Arc<Layout>> {
        let mut positions: Vec<_> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        positions.sort_unstable();
        let mut key = Vec::new();
        let mut key_types = Vec::new();
        for column in def.key_columns() {
            let at =
                position(&positions, column.id).ok_or_else(|| Error::damaged("a key column is missing"))?;
            if *schema.field(at).data_type() != column.data_type.to_arrow() {
                return Err(Error::damaged("a key column has another type than the table's"));
            }
            key.push(at);
            key_types.push(column.data_type.clone());
        }
        Ok(Arc::new(Layout { schema, ids, positions, key, key_types, left_out: Vec::new() }))
    }

    /// Makes the layout of some of the columns, given by their positions, ascending.
    pub fn part(&self, columns: &[usize]) -> Result<Arc<Layout>> {
        let schema = self.schema.project(columns);
        let schema = schema.map_err(|e| Error::internal(format!("adding missing columns failed: {e}")))?;
        let ids: Vec<ColumnId> = columns.iter().map(|at| self.ids[*at]).collect();
        let mut positions: Vec<_> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        positions.sort_unstable();
        // A comparison of keys whose columns are missing should panic rather than find nothing.
        let key = self.key.iter().map(|at| columns.binary_search(at).unwrap_or(usize::MAX)).collect();
        let left_out = self.ids.iter().filter(|id| position(&positions, **id).is_none()).copied().collect();
        let (schema, key_types) = (Arc::new(schema), self.key_types.clone());
        Ok(Arc::new(Layout { schema, ids, positions, key, key_types, left_out }))
    }

    /// Returns the position of a column; `None` if the rows were written before the column existed. Fails if the column was left
    /// out.
    pub fn find(&self, id: ColumnId) -> Result<Option<usize>> {
        match self.position(id) {
            None if self.left_out.contains(&id) => {
                Err(Error::internal(format!("column {id} of a block was not requested")))
            }
            found => Ok(found),
        }
    }

    pub fn position(&self, id: ColumnId) -> Option<usize> {
        position(&self.positions, id)
    }
}

fn position(positions: &[(ColumnId, usize)], id: ColumnId) -> Option<usize> {
    positions.binary_search_by_key(&id, |(id, _)| *id).ok().map(|found| positions[found].1)
}

/// The columns that a read returns, in this order. It is made from a definition, so it fits every snapshot of the table with
/// that definition. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Projection(Arc<ProjectedColumns>);

#[derive(Debug)]
struct ProjectedColumns {
    schema: SchemaRef,
    columns: Vec<ProjectedColumn>,
}

#[derive(Debug)]
struct ProjectedColumn {
    id: ColumnId,
    arrow: Arrow,
    /// A one-row array with the column's value in rows written before it was added; `None` for null.
    initial: Option<ArrayRef>,
}

impl Projection {
    /// Returns the projection to these columns of `def`. [`ROW_ID`] and [`TIME`] are allowed, and so is the same column twice.
    pub fn new(def: &TableDef, columns: &[ColumnId]) -> Result<Projection> {
        Self::pick(def, &def.schema.to_arrow(), columns)
    }

    /// Returns the projection to these columns. `whole` must equal `def.schema.to_arrow()`.
    pub(crate) fn pick(def: &TableDef, whole: &SchemaRef, columns: &[ColumnId]) -> Result<Projection> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut wanted = Vec::with_capacity(columns.len());
        for id in columns {
            let (at, initial) = match *id {
                ROW_ID => (0, None),
                TIME => (1, None),
                id => {
                    let at = def.schema.columns.iter().position(|c| c.id == id).ok_or_else(|| {
                        Error::internal(format!("column {id} is not in the table's definition"))
                            .with("table", &def.name)
                    })?;
                    (at + 2, initial_value(&def.schema.columns[at])?)
                }
            };
            let field = whole.field(at).clone();
            wanted.push(ProjectedColumn { id: *id, arrow: field.data_type().clone(), initial });
            fields.push(field);
        }
        Ok(Projection(Arc::new(ProjectedColumns { schema: Arc::new(Schema::new(fields)), columns: wanted })))
    }

    /// Returns the projection to every column, system columns first. Shares `schema`, which must be `def.schema.to_arrow()`.
    pub(crate) fn all(def: &TableDef, schema: SchemaRef) -> Projection {
        Self::build(schema, def, &[ROW_ID, TIME])
    }

    /// Returns the projection to every user column.
    pub(crate) fn user(def: &TableDef) -> Projection {
        Self::build(def.schema.to_arrow_user(), def, &[])
    }

    fn build(schema: SchemaRef, def: &TableDef, system: &[ColumnId]) -> Projection {
        let user =
            def.schema.columns.iter().map(|c| (c.id, initial_value(c).expect("a default was checked")));
        let columns = system
            .iter()
            .map(|id| (*id, None))
            .chain(user)
            .zip(schema.fields())
            .map(|((id, initial), field)| ProjectedColumn { id, arrow: field.data_type().clone(), initial })
            .collect();
        Projection(Arc::new(ProjectedColumns { schema, columns }))
    }

    /// The schema of the batches that a read returns.
    pub fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    pub fn columns(&self) -> impl ExactSizeIterator<Item = ColumnId> + '_ {
        self.0.columns.iter().map(|c| c.id)
    }

    /// The columns, each with the Arrow type of the result.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (ColumnId, &Arrow)> {
        self.0.columns.iter().map(|column| (column.id, &column.arrow))
    }

    /// Returns the layout of the batches that this projection returns.
    pub(crate) fn layout(&self) -> Result<Arc<Layout>> {
        let ids: Vec<ColumnId> = self.columns().collect();
        let mut positions: Vec<_> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        positions.sort_unstable();
        positions.dedup_by_key(|(id, _)| *id);
        let schema = self.schema().clone();
        let (key, key_types, left_out) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Arc::new(Layout { schema, ids, positions, key, key_types, left_out }))
    }

    /// Makes a batch of rows from the lake, whose columns are those that this projection requested.
    pub(crate) fn of_lake_rows(&self, found: &LakeRows) -> Result<RecordBatch> {
        let rows = found.row_ids.len();
        let mut columns = found.columns.iter();
        let column = |wanted: &ProjectedColumn| match wanted.id {
            ROW_ID => Ok(Arc::new(found.row_ids.clone()) as ArrayRef),
            _ => match columns.next() {
                Some(Some(array)) if array.len() == rows => retype(array, &wanted.arrow),
                Some(None) => wanted.missing(rows),
                _ => Err(Error::internal("the lake returned other columns than were requested")),
            },
        };
        let columns = self.0.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        self.batch(columns, rows)
    }

    /// Returns a batch without rows.
    pub fn empty(&self) -> RecordBatch {
        RecordBatch::new_empty(self.0.schema.clone())
    }

    /// Projects a batch with the layout `from`. Copies no values except those of widened columns.
    pub(crate) fn apply(&self, from: &Layout, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |wanted: &ProjectedColumn| match from.find(wanted.id)? {
            Some(at) => retype(batch.column(at), &wanted.arrow),
            None => wanted.missing(rows),
        };
        let columns = self.0.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        self.batch(columns, rows)
    }

    /// Projects one row of a batch with the layout `from`.
    pub(crate) fn row(&self, from: &Layout, batch: &RecordBatch, row: usize) -> Result<Vec<ArrayRef>> {
        let column = |wanted: &ProjectedColumn| match from.find(wanted.id)? {
            Some(at) => retype(&batch.column(at).slice(row, 1), &wanted.arrow),
            None => wanted.missing(1),
        };
        self.0.columns.iter().map(column).collect()
    }

    /// Projects rows of several batches. Each pick is the index of its batch and the row's index there.
    pub(crate) fn gather<'a>(
        &self,
        batches: impl Iterator<Item = (&'a Layout, &'a RecordBatch)> + Clone,
        picks: &[(usize, usize)],
    ) -> Result<RecordBatch> {
        let column = |wanted: &ProjectedColumn| {
            if let Some(picked) = small_gather::pick(wanted.id, &wanted.arrow, batches.clone(), picks) {
                return Ok(picked);
            }
            let part = |(layout, batch): (&Layout, &RecordBatch)| match layout.find(wanted.id)? {
                Some(at) => retype(batch.column(at), &wanted.arrow),
                None => wanted.missing(batch.num_rows()),
            };
            let parts: Vec<ArrayRef> = batches.clone().map(part).collect::<Result<_>>()?;
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            interleave(&parts, picks).map_err(|e| Error::internal(format!("gathering rows failed: {e}")))
        };
        self.batch(self.0.columns.iter().map(column).collect::<Result<_>>()?, picks.len())
    }

    /// Projects a batch of user columns whose fields carry their ids.
    pub(crate) fn apply_user(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if Arc::ptr_eq(batch.schema_ref(), self.schema()) || batch.schema_ref() == self.schema() {
            return Ok(batch.clone());
        }
        let ids = column_ids(batch.schema_ref());
        let column = |wanted: &ProjectedColumn| match ids.iter().position(|id| *id == Some(wanted.id)) {
            Some(at) => retype(batch.column(at), &wanted.arrow),
            None => wanted.missing(batch.num_rows()),
        };
        let columns = self.0.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        self.batch(columns, batch.num_rows())
    }

    pub(crate) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.0.schema.clone(), columns, &options).map_err(|e| {
            Error::internal(format!("stored columns do not make a batch of the table's schema: {e}"))
        })
    }
}

impl ProjectedColumn {
    fn missing(&self, rows: usize) -> Result<ArrayRef> {
        match &self.initial {
            None => Ok(new_null_array(&self.arrow, rows)),
            Some(one) => repeat(one, rows),
        }
    }
}

fn initial_value(column: &Column) -> Result<Option<ArrayRef>> {
    column.initial.as_ref().map(|value| one_value(value, &column.data_type)).transpose()
}

fn one_value(value: &Value, data_type: &DataType) -> Result<ArrayRef> {
    Value::to_array(std::slice::from_ref(value), data_type)
}

/// Repeats the one value of `one` `rows` times.
pub(crate) fn repeat(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    let picks = arrow::array::UInt32Array::from_value(0, rows);
    arrow::compute::take(one, &picks, None)
        .map_err(|e| Error::internal(format!("repeating a default failed: {e}")))
}

/// Returns `array` with the type `arrow`, widened if need be. Nested fields may differ in names and metadata.
pub(crate) fn retype(array: &ArrayRef, arrow: &Arrow) -> Result<ArrayRef> {
    if array.data_type() == arrow {
        return Ok(array.clone());
    }
    if same_shape(array.data_type(), arrow) {
        return Ok(arrow::array::make_array(relabel(array.to_data(), arrow)?));
    }
    let strict = CastOptions { safe: false, ..Default::default() };
    cast_with_options(array, arrow, &strict).map_err(|e| {
        Error::internal(format!("a column stored as {} cannot be read as {arrow}: {e}", array.data_type()))
    })
}

/// Returns true if two types differ only in nested names, nullability and metadata.
fn same_shape(a: &Arrow, b: &Arrow) -> bool {
    a.equals_datatype(b) || {
        let field = |a: &Field, b: &Field| same_shape(a.data_type(), b.data_type());
        match (a, b) {
            (Arrow::List(a), Arrow::List(b)) => field(a, b),
            (Arrow::FixedSizeList(a, n), Arrow::FixedSizeList(b, m)) => n == m && field(a, b),
            (Arrow::Struct(a), Arrow::Struct(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| field(a, b))
            }
            _ => false,
        }
    }
}

fn relabel(data: arrow::array::ArrayData, arrow: &Arrow) -> Result<arrow::array::ArrayData> {
    let nested: Vec<&Arrow> = match arrow {
        Arrow::List(item) | Arrow::FixedSizeList(item, _) => vec![item.data_type()],
        Arrow::Struct(fields) => fields.iter().map(|f| f.data_type()).collect(),
        _ => Vec::new(),
    };
    let children = data.child_data().iter().cloned().zip(nested).map(|(child, arrow)| relabel(child, arrow));
    let children = children.collect::<Result<Vec<_>>>()?;
    data.into_builder()
        .data_type(arrow.clone())
        .child_data(children)
        .build()
        .map_err(|e| Error::internal(format!("a nested column does not fit its type: {e}")))
}
