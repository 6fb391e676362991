//! Arranges rows in memory by the table's layout: into partitions, and sorted within each.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::Int64Type;
use arrow::row::{RowConverter, SortField};
use iceberg::schema::Columns;
use iceberg::spec::Partition;
use iceberg::transform;
use types::{Error, Result, RowId};

use crate::commit::bytes_of;
use crate::order::RowOrder;

/// A set of rows in memory and the order in which they are written.
pub(crate) struct ArrangedRows {
    batches: Vec<RecordBatch>,
    pub runs: Vec<PartitionRows>,
    /// Number of rows from the front that were arranged: all of them, or those before the first row of a partition beyond
    /// the limit.
    pub rows: usize,
}

/// The rows of one partition.
pub(crate) struct PartitionRows {
    pub partition: Arc<Partition>,
    /// Batch and row number of each row, in order; `None` stands for all rows in their present order.
    picked: Option<Vec<(u32, u32)>>,
}

impl ArrangedRows {
    /// Arranges rows, which may come in any order, into `partitions_max` partitions at most.
    pub fn of(
        columns: &Columns,
        order: &RowOrder,
        batches: Vec<RecordBatch>,
        partitions_max: usize,
    ) -> Result<ArrangedRows> {
        let mut rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut runs = if columns.layout.partitions.is_empty() {
            let all = (0..batches.len())
                .flat_map(|at| (0..batches[at].num_rows()).map(move |row| (at as u32, row as u32)));
            vec![PartitionRows { partition: Arc::default(), picked: Some(all.collect()) }]
        } else {
            partition(columns, &batches, partitions_max, &mut rows)?
        };
        let keys = batches.iter().map(|batch| order.keys(batch)).collect::<Result<Vec<_>>>()?;
        for run in &mut runs {
            let picked = run.picked.get_or_insert_default();
            let compare = |a: &(u32, u32), b: &(u32, u32)| {
                keys[a.0 as usize].compare(a.1 as usize, &keys[b.0 as usize], b.1 as usize)
            };
            let is_sorted = picked.is_sorted_by(|a, b| compare(a, b).is_lt());
            if !is_sorted {
                picked.sort_unstable_by(compare);
            }
        }
        let as_they_are = |picked: &[(u32, u32)]| picked.len() == rows && picked.is_sorted();
        if let [run] = &mut runs[..]
            && run.picked.as_deref().is_some_and(as_they_are)
            && rows == batches.iter().map(RecordBatch::num_rows).sum::<usize>()
        {
            run.picked = None;
        }
        Ok(ArrangedRows { batches, runs, rows })
    }

    /// Returns the number of rows in a run.
    pub fn count(&self, run: &PartitionRows) -> usize {
        run.picked.as_ref().map_or(self.rows, Vec::len)
    }

    /// Passes the rows of a run to `each`, up to `batch_rows` at a time.
    pub fn each(
        &self,
        run: &PartitionRows,
        batch_rows: usize,
        each: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let Some(picked) = &run.picked else { return self.batches.iter().try_for_each(each) };
        // Passes only the batches in use, since interleaving has a cost for each.
        for part in picked.chunks(batch_rows.max(1)) {
            let mut used: Vec<u32> = part.iter().map(|(at, _)| *at).collect();
            used.sort_unstable();
            used.dedup();
            let batches: Vec<&RecordBatch> = used.iter().map(|at| &self.batches[*at as usize]).collect();
            let indices: Vec<(usize, usize)> =
                part.iter().map(|(at, row)| (used.partition_point(|u| u < at), *row as usize)).collect();
            let made = interleave_record_batch(&batches, &indices);
            each(&made.map_err(|e| Error::internal(format!("picking rows: {e}")))?)?;
        }
        Ok(())
    }

    /// Returns the id of the first row that was not arranged; `None` if all were.
    pub fn first_unarranged(&self) -> Option<RowId> {
        let mut before = self.rows;
        self.batches.iter().find_map(|batch| {
            let id = batch.column(0).as_primitive::<Int64Type>().values().get(before).copied();
            before = before.saturating_sub(batch.num_rows());
            id.map(|id| RowId(id as u64))
        })
    }

    /// Returns the number of rows that take about `bytes` in memory.
    pub fn batch_rows(&self, bytes: u64) -> usize {
        let all: u64 = self.batches.iter().map(bytes_of).sum();
        (bytes / (all / self.rows.max(1) as u64).max(1)).clamp(1, table::BATCH_ROWS as u64) as usize
    }
}

/// Groups rows by partition and keeps their order. Stops before the first row of a partition beyond `partitions_max`, and
/// sets `rows` to the number of rows before it.
fn partition(
    columns: &Columns,
    batches: &[RecordBatch],
    partitions_max: usize,
    rows: &mut usize,
) -> Result<Vec<PartitionRows>> {
    let failed = |e: arrow::error::ArrowError| Error::internal(format!("partitioning rows: {e}"));
    let partitions = &columns.layout.partitions;
    let mut converter: Option<RowConverter> = None;
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut runs: Vec<PartitionRows> = Vec::new();
    let mut taken = 0;
    for (at, batch) in batches.iter().enumerate() {
        let values = partitions
            .iter()
            .map(|by| transform::apply(by.transform, batch.column(by.at)))
            .collect::<Result<Vec<ArrayRef>>>()?;
        if converter.is_none() {
            let fields = values.iter().map(|array| SortField::new(array.data_type().clone()));
            converter = Some(RowConverter::new(fields.collect()).map_err(failed)?);
        }
        let converter = converter.as_ref().expect("made above");
        let keys = converter.convert_columns(&values).map_err(failed)?;
        let mut before: Option<usize> = None;
        for row in 0..batch.num_rows() {
            let key = keys.row(row);
            // Consecutive rows mostly share a partition.
            let same = before.filter(|_| row > 0 && keys.row(row - 1) == key);
            let run = match same.or_else(|| known.get(key.as_ref()).copied()) {
                Some(run) => run,
                None if runs.len() >= partitions_max.max(1) => {
                    *rows = taken;
                    return Ok(runs);
                }
                None => {
                    let of = values.iter().map(|array| transform::value_at(array, row));
                    let partition = Arc::new(Partition::new(of.collect::<Result<_>>()?));
                    runs.push(PartitionRows { partition, picked: Some(Vec::new()) });
                    known.insert(key.as_ref().to_vec(), runs.len() - 1);
                    runs.len() - 1
                }
            };
            runs[run].picked.get_or_insert_default().push((at as u32, row as u32));
            before = Some(run);
            taken += 1;
        }
    }
    Ok(runs)
}
