//! Checks one data file of another program and describes it for our manifests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use arrow::row::{RowConverter, SortField};
use bytes::Bytes;
use iceberg::checksums::Checksums;
use iceberg::manifest::{DataFile, Entry, Metrics};
use iceberg::schema::{Columns, Leaf};
use iceberg::single_value::{PrimitiveType, SingleValue};
use iceberg::spec::{self, Spec};
use iceberg::transform;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{LogicalType, TimeUnit, Type as Physical};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};
use types::{Error, ROW_ID, Result, TIME, Transform, parquet_footer};

use super::super::CommitBuilder;
use super::super::new_rows::SCAN_BYTES;
use super::RowComparison;
use super::offered_snapshot::{read, refusal_from, refused};
use super::{pages, statistics};
use crate::data_file::{count_nans, group_offset, metrics};
use crate::live_rows::LiveRows;
use crate::order::SortKeys;
use crate::row_ids::{self, ids_of};

impl CommitBuilder<'_> {
    /// Reads a whole file and checks its columns, partition and statistics. Adds its rows to `rows`.
    pub(super) fn check_file(&mut self, entry: &Entry, rows: &mut RowComparison) -> Result<DataFile> {
        let called = &entry.file.path;
        let path = self.base.local(called)?;
        let bytes = read(self.base, &path, called)?;
        self.check_contents(entry, bytes, rows).map_err(|error| match error.kind() {
            // The message names the file already.
            types::Kind::Conflict => error,
            _ => refusal_from(error, called),
        })
    }

    fn check_contents(&mut self, entry: &Entry, bytes: Bytes, rows: &mut RowComparison) -> Result<DataFile> {
        let (file, columns) = (&entry.file, self.columns);
        let refuse = |why: &str| Err(refused(format!("{} {why}", file.path)));
        if bytes.len() as u64 != file.bytes {
            return refuse("is not as long as its manifest says");
        }
        parquet_footer::check(file.bytes, |at, count| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            Ok(bytes[at..][..count].to_vec())
        })?;
        // The page index is loaded, as in readers of few rows.
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let opened = ArrowReaderMetadata::load(&bytes, options)
            .map_err(|e| Error::damaged(format!("it is not a Parquet file: {e}")))?;
        let parquet = opened.metadata();
        if parquet.file_metadata().num_rows() != file.rows as i64 || file.rows == 0 {
            return refuse("has no rows, or another number of them than its manifest says");
        }
        let leaves = leaves_in(parquet.file_metadata().schema_descr(), columns)?;
        for group in 0..parquet.num_row_groups() {
            pages::check(&bytes, parquet, group)?;
            (self.tick)(0)?;
        }
        let spec = spec::find(&self.base.specs, file.spec)?;
        let mut partition_check = PartitionCheck::new(spec, file.partition.values.clone(), columns)?;
        // The file's claim alone does not count: rows that its writer took for equal are ordered by their ids here.
        let mut in_order = self.sort_order.is_some() && file.sort_order == self.sort_order;
        let (mut ids, mut observed) = (row_ids::Builder::default(), ObservedValues::new(columns));
        let mut statistics_check = statistics::StatisticsCheck::new(parquet, &leaves, columns);
        let mut before: Option<SortKeys> = None;
        let mut source = LiveRows::open(bytes.clone(), columns.clone(), Vec::new(), SCAN_BYTES)?;
        while let Some(batch) = source.next()? {
            rows.add_added(&batch)?;
            partition_check.check(&batch)?;
            ids.extend(batch.column(0))?;
            observed.add(columns, &batch)?;
            statistics_check.add(&batch)?;
            if in_order {
                let keys = self.order.keys(&batch)?;
                let follows = |last: &SortKeys| last.compare(last.len() - 1, &keys, 0).is_lt();
                in_order = keys.ascend() && before.as_ref().is_none_or(follows);
                before = Some(keys);
            }
            (self.tick)(0)?;
        }
        let unbounded = statistics_check.finish()?;
        if let Some(ids) = ids.finish()? {
            self.base.cache.put(&file.path, Arc::new(ids));
        }
        Ok(DataFile {
            content: file.content,
            path: file.path.clone(),
            spec: file.spec,
            partition: file.partition.clone(),
            rows: file.rows,
            bytes: file.bytes,
            metrics: observed.metrics(parquet, &leaves, columns, file.rows, &unbounded),
            split_offsets: parquet.row_groups().iter().map(group_offset).collect(),
            sort_order: file.sort_order.filter(|_| in_order),
            checksums: Some(Checksums::of(&bytes).into()),
        })
    }
}

/// Returns the leaves that a file has, with their Parquet indices. Refuses a file whose columns are not the table's.
fn leaves_in(found: &SchemaDescriptor, columns: &Columns) -> Result<Vec<Option<Leaf>>> {
    let mut roots: HashMap<i32, &Type> = HashMap::new();
    for field in found.root_schema().get_fields() {
        let info = field.get_basic_info();
        if info.has_id() && roots.insert(info.id(), field).is_some() {
            return Err(Error::damaged(format!("it has two columns with the field id {}", info.id())));
        }
    }
    for wanted in columns.parquet.root_schema().get_fields() {
        let id = wanted.get_basic_info().id();
        // A missing column reads like in older files, or fails when the file is read.
        let Some(field) = roots.get(&id) else { continue };
        if inner_ids(field) != inner_ids(wanted) {
            let column = wanted.name();
            return Err(Error::damaged(format!("the fields in its column `{column}` are not the table's")));
        }
    }
    let mut by_id: HashMap<i32, usize> = HashMap::new();
    for (at, leaf) in found.columns().iter().enumerate() {
        let info = leaf.self_type().get_basic_info();
        if info.has_id() && by_id.insert(info.id(), at).is_some() {
            return Err(Error::damaged(format!("it has two columns with the field id {}", info.id())));
        }
    }
    let leaf = |leaf: &Leaf| match by_id.get(&leaf.id) {
        None => Ok(None),
        Some(at) if fits(&found.column(*at), leaf.primitive_type) => {
            Ok(Some(Leaf { at: *at, ..leaf.clone() }))
        }
        Some(at) => {
            let column = found.column(*at);
            let path = column.path().string();
            Err(Error::damaged(format!("its column `{path}` is not stored like other columns of its type")))
        }
    };
    columns.leaves.iter().map(leaf).collect()
}

/// Returns the field ids in a type, depth first.
fn inner_ids(of: &Type) -> Vec<i32> {
    let info = of.get_basic_info();
    let mut ids: Vec<i32> = info.has_id().then(|| info.id()).into_iter().collect();
    if of.is_group() {
        ids.extend(of.get_fields().iter().flat_map(|field| inner_ids(field)));
    }
    ids
}

/// Returns true if a column's physical type makes its statistics valid bounds of such values.
fn fits(column: &ColumnDescriptor, primitive_type: PrimitiveType) -> bool {
    let (physical, logical) = (column.physical_type(), column.logical_type_ref());
    match primitive_type {
        PrimitiveType::Bool => physical == Physical::BOOLEAN,
        PrimitiveType::Int => physical == Physical::INT32,
        PrimitiveType::Long => matches!(physical, Physical::INT64 | Physical::INT32),
        PrimitiveType::Float => physical == Physical::FLOAT,
        PrimitiveType::Double => matches!(physical, Physical::DOUBLE | Physical::FLOAT),
        PrimitiveType::Decimal { scale, .. } => column.type_scale() == i32::from(scale),
        PrimitiveType::Date => physical == Physical::INT32 && matches!(logical, Some(LogicalType::Date)),
        PrimitiveType::Timestamptz => {
            let utc = LogicalType::Timestamp { is_adjusted_to_u_t_c: true, unit: TimeUnit::MICROS };
            physical == Physical::INT64 && logical == Some(&utc)
        }
        PrimitiveType::String | PrimitiveType::Binary => physical == Physical::BYTE_ARRAY,
        PrimitiveType::Uuid => physical == Physical::FIXED_LEN_BYTE_ARRAY,
    }
}

/// Observations of a file's values. Bounds of row ids and times are computed from the values, since the lake relies on
/// them. The bounds of other columns come from the row groups' statistics, which are checked.
struct ObservedValues {
    nans: Vec<u64>,
    ids: (i64, i64),
    times: (i64, i64),
}

impl ObservedValues {
    fn new(columns: &Columns) -> ObservedValues {
        let none = (i64::MAX, i64::MIN);
        ObservedValues { nans: vec![0; columns.leaves.len()], ids: none, times: none }
    }

    fn add(&mut self, columns: &Columns, batch: &RecordBatch) -> Result<()> {
        let with = |bounds: (i64, i64), value: &i64| (bounds.0.min(*value), bounds.1.max(*value));
        self.ids = ids_of(batch.column(0))?.iter().fold(self.ids, with);
        let times = batch.column(1).as_primitive_opt::<TimestampMicrosecondType>();
        let times = times.ok_or_else(|| Error::internal("a batch without times"))?;
        self.times = times.values().iter().fold(self.times, with);
        for (leaf, nans) in columns.leaves.iter().zip(&mut self.nans) {
            if matches!(leaf.primitive_type, PrimitiveType::Float | PrimitiveType::Double) {
                *nans += count_nans(batch, &leaf.path);
            }
        }
        Ok(())
    }

    fn metrics(
        &self,
        parquet: &ParquetMetaData,
        leaves: &[Option<Leaf>],
        columns: &Columns,
        rows: u64,
        unbounded: &HashSet<i32>,
    ) -> Metrics {
        let there: Vec<(Leaf, u64)> =
            leaves.iter().zip(&self.nans).filter_map(|(leaf, nans)| Some((leaf.clone()?, *nans))).collect();
        let (there, nans): (Vec<Leaf>, Vec<u64>) = there.into_iter().unzip();
        let mut metrics = metrics(parquet, &there, &nans);
        // A row group with NaNs may lack statistics although it has bounds; such columns get none.
        for bounds in [&mut metrics.lower, &mut metrics.upper] {
            bounds.retain(|(leaf, _)| !unbounded.contains(leaf));
        }
        let known: HashSet<i32> = there.iter().map(|leaf| leaf.id).collect();
        for leaf in columns.leaves.iter().filter(|leaf| !known.contains(&leaf.id)) {
            metrics.add_nulls(leaf.id, rows);
        }
        for (id, (least, most)) in [(ROW_ID, self.ids), (TIME, self.times)] {
            for (bounds, value) in [(&mut metrics.lower, least), (&mut metrics.upper, most)] {
                bounds.retain(|(of, _)| *of != id.0 as i32);
                bounds.push((id.0 as i32, value.to_le_bytes().to_vec()));
            }
        }
        metrics
    }
}

/// Checks that a file's rows are in the partition that its entry names.
struct PartitionCheck {
    /// Indices of source columns in a batch, with their transforms.
    fields: Vec<(usize, Transform)>,
    values: Vec<Option<SingleValue>>,
    converter: Option<RowConverter>,
}

impl PartitionCheck {
    fn new(spec: &Spec, claimed: Vec<Option<SingleValue>>, columns: &Columns) -> Result<PartitionCheck> {
        let ids = types::schema::column_ids(&columns.arrow);
        let (mut fields, mut values) = (Vec::new(), Vec::new());
        for (at, field) in spec.fields.iter().enumerate() {
            let value = claimed.get(at).cloned().flatten();
            if field.transform == "void" {
                if value.is_some() {
                    return Err(Error::damaged("it has a value where its partition has none"));
                }
                continue;
            }
            let source = |id: &Option<types::ColumnId>| {
                id.is_some_and(|id| i64::from(id.0) == i64::from(field.source))
            };
            let column = ids.iter().position(source);
            let (column, transform) = column.zip(transform::parse(&field.transform)).ok_or_else(|| {
                Error::damaged(format!(
                    "it is partitioned by `{}`, which the table no longer has",
                    field.name
                ))
            })?;
            fields.push((column, transform));
            values.push(value);
        }
        Ok(PartitionCheck { fields, values, converter: None })
    }

    fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.fields.is_empty() || batch.num_rows() == 0 {
            return Ok(());
        }
        let failed = |e: arrow::error::ArrowError| Error::internal(format!("comparing partitions: {e}"));
        let made = self.fields.iter().map(|(at, by)| transform::apply(*by, batch.column(*at)));
        let made = made.collect::<Result<Vec<ArrayRef>>>()?;
        if self.converter.is_none() {
            let fields = made.iter().map(|array| SortField::new(array.data_type().clone()));
            self.converter = Some(RowConverter::new(fields.collect()).map_err(failed)?);
        }
        let converter = self.converter.as_ref().expect("made above");
        let keys = converter.convert_columns(&made).map_err(failed)?;
        let first = made.iter().map(|array| transform::value_at(array, 0)).collect::<Result<Vec<_>>>()?;
        if first == self.values && (1..keys.num_rows()).all(|row| keys.row(row) == keys.row(0)) {
            Ok(())
        } else {
            Err(Error::damaged("some of its rows are not in the partition that it claims"))
        }
    }
}
