//! Reads the live rows of a table, batch by batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use roaring::RoaringTreemap;
use types::Result;

use super::equality::DeleteFilter;
use super::parquet_file::{Batches, ParquetFile, damaged};
use super::project::{self, ColumnSource};
use super::{DataFile, ForeignTable};

/// Reads a table's rows from an offset on.
pub struct RowReader {
    table: Arc<ForeignTable>,
    schema: SchemaRef,
    /// The index of the next data file.
    at: usize,
    /// Rows to skip in the next data file, not counting those that are deleted by position.
    skip: u64,
    /// The offset of the next batch.
    offset: u64,
    open: Option<OpenFile>,
}

/// Rows with their offsets in the table.
#[derive(Clone, Debug)]
pub struct RowBatch {
    pub rows: RecordBatch,
    /// The offset of the first row.
    start: u64,
    /// Offsets, relative to `start` and ascending, of rows that equality deletes removed.
    removed: Vec<u64>,
}

impl RowBatch {
    /// Returns the offset of a row. For the row number after the last, returns the offset at which the batch ends.
    pub fn offset(&self, row: usize) -> u64 {
        self.start + live_position(&self.removed, row as u64)
    }

    /// Splits the batch before one of its rows.
    pub fn split(&self, row: usize) -> (RowBatch, RowBatch) {
        let offset = self.offset(row);
        let at = offset - self.start;
        let behind = self.removed.iter().filter(|removed| **removed > at).map(|removed| removed - at);
        let rest = self.rows.slice(row, self.rows.num_rows() - row);
        let rest = RowBatch { rows: rest, start: offset, removed: behind.collect() };
        let before = self.removed.iter().copied().filter(|removed| *removed < at);
        (RowBatch { rows: self.rows.slice(0, row), start: self.start, removed: before.collect() }, rest)
    }
}

/// A data file that is being read.
struct OpenFile {
    batches: Batches,
    /// The source of each of the table's columns.
    sources: Vec<ColumnSource>,
    filters: Vec<DeleteFilter>,
    /// The position in the file of the next batch.
    position: u64,
    rows: u64,
    deleted: Arc<RoaringTreemap>,
}

impl RowReader {
    pub(super) fn new(table: Arc<ForeignTable>, from: u64) -> RowReader {
        let fields =
            table.columns.iter().map(|column| Field::new(&column.name, column.data_type.to_arrow(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let (mut at, mut skip) = (0, from);
        while let Some(file) = table.data.get(at).filter(|file| file.undeleted_rows() <= skip) {
            skip -= file.undeleted_rows();
            at += 1;
        }
        RowReader { table, schema, at, skip, offset: from, open: None }
    }

    /// Returns the next rows; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        loop {
            if self.open.is_none() {
                let Some(file) = self.table.data.get(self.at) else { return Ok(None) };
                let first = live_position_in_file(&file.deleted, self.skip);
                self.open = Some(open(&self.table, file, first).map_err(|e| e.with("file", &file.path))?);
                (self.at, self.skip) = (self.at + 1, 0);
            }
            let file = &self.table.data[self.at - 1];
            let Some(open) = &mut self.open else { continue };
            match open.next(&self.schema).map_err(|e| e.with("file", &file.path))? {
                Some((rows, removed)) => {
                    let start = self.offset;
                    self.offset += (rows.num_rows() + removed.len()) as u64;
                    if rows.num_rows() > 0 {
                        return Ok(Some(RowBatch { rows, start, removed }));
                    }
                }
                None => self.open = None,
            }
        }
    }
}

/// Returns the position of the live row that has `live` live rows before it. `deleted` are deleted positions, ascending.
fn live_position(deleted: &[u64], live: u64) -> u64 {
    let mut at = live;
    for position in deleted {
        if *position > at {
            break;
        }
        at += 1;
    }
    at
}

/// Returns the position in a file of the live row that has `live` live rows before it, like [`live_position`].
fn live_position_in_file(deleted: &RoaringTreemap, live: u64) -> u64 {
    let (mut low, mut high) = (live, live + deleted.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if middle + 1 - deleted.rank(middle) > live { high = middle } else { low = middle + 1 }
    }
    low
}

/// Reads a data file's footer; checks that it is the file in the manifest and has what the table's columns need.
pub(super) fn check(table: &ForeignTable, file: &DataFile) -> Result<()> {
    let parquet = ParquetFile::open(&table.locator, file)?;
    let columns = FileColumns::find(table, file, parquet.schema())?;
    parquet.read(&columns.roots, 0).map(drop)
}

/// The columns of a data file that are read.
struct FileColumns {
    /// Indexes of the file's columns, ascending.
    roots: Vec<usize>,
    /// The source of each of the table's columns.
    sources: Vec<ColumnSource>,
    /// Groups of equality deletes that apply to the file, with the sources of their key columns.
    groups: Vec<(usize, Vec<ColumnSource>)>,
}

impl FileColumns {
    fn find(table: &ForeignTable, file: &DataFile, schema: &Schema) -> Result<FileColumns> {
        let (mut sources, mut roots) = project::sources(table, file, &table.nodes, schema)?;
        let mut groups = Vec::new();
        for group in table.equality.groups_for(file) {
            let (keys, more) = project::sources(table, file, table.equality.nodes(group), schema)?;
            roots.extend(more);
            groups.push((group, keys));
        }
        roots.sort_unstable();
        roots.dedup();
        let of_groups = groups.iter_mut().flat_map(|(_, keys)| keys);
        sources.iter_mut().chain(of_groups).for_each(|source| source.renumber(&roots));
        Ok(FileColumns { roots, sources, groups })
    }
}

/// Opens a data file at one of its rows.
fn open(table: &ForeignTable, file: &DataFile, first: u64) -> Result<OpenFile> {
    let parquet = ParquetFile::open(&table.locator, file)?;
    let columns = FileColumns::find(table, file, parquet.schema())?;
    let batches = parquet.read(&columns.roots, first)?;
    let (groups, keys): (Vec<usize>, Vec<Vec<ColumnSource>>) = columns.groups.into_iter().unzip();
    let sets = table.equality.keys(table, &groups)?;
    let filter = |(keys, sources)| DeleteFilter { sources, keys, sequence: file.sequence };
    Ok(OpenFile {
        batches,
        sources: columns.sources,
        filters: sets.into_iter().zip(keys).map(filter).collect(),
        position: first,
        rows: file.rows,
        deleted: file.deleted.clone(),
    })
}

impl OpenFile {
    /// Returns the next rows, and the indexes of those that equality deletes removed, among the rows that no position deletes.
    fn next(&mut self, schema: &SchemaRef) -> Result<Option<(RecordBatch, Vec<u64>)>> {
        let Some(mut batch) = self.batches.next()? else {
            return if self.position >= self.rows { Ok(None) } else { Err(damaged(&"it ends too early")) };
        };
        let (start, end) = (self.position, self.position + batch.num_rows() as u64);
        self.position = end;
        if !self.deleted.is_empty() {
            let live = (start..end).map(|at| !self.deleted.contains(at)).collect();
            batch = filtered(batch, live)?;
        }
        let mut live = vec![true; batch.num_rows()];
        self.filters.iter().try_for_each(|filter| filter.apply(&batch, &mut live))?;
        let removed = live.iter().enumerate().filter(|(_, live)| !**live).map(|(at, _)| at as u64).collect();
        batch = filtered(batch, live)?;
        let columns = self.sources.iter().map(|source| source.column(&batch));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
        Ok(Some((rows.map_err(|e| damaged(&e))?, removed)))
    }
}

fn filtered(batch: RecordBatch, live: Vec<bool>) -> Result<RecordBatch> {
    if live.iter().all(|live| *live) {
        Ok(batch)
    } else {
        filter_record_batch(&batch, &BooleanArray::from(live)).map_err(|e| damaged(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_row_is_found_behind_the_deleted_ones() {
        for (deleted, live, at) in
            [(vec![], 5, 5), (vec![0, 1], 0, 2), (vec![5], 5, 6), (vec![6], 5, 5), (vec![0, 3, 4, 9], 3, 6)]
        {
            assert_eq!(live_position(&deleted, live), at, "{deleted:?}");
            assert_eq!(live_position_in_file(&deleted.iter().copied().collect(), live), at, "{deleted:?}");
        }
        let deleted: Vec<u64> = (0..100).filter(|at| at * at % 7 < 3).collect();
        for live in 0..120 {
            assert_eq!(
                live_position_in_file(&deleted.iter().copied().collect(), live),
                live_position(&deleted, live),
                "{live}"
            );
        }
    }

    #[test]
    fn parts_of_a_batch_stand_where_their_rows_did() {
        use arrow::array::UInt64Array;
        // Each value is the row's own offset.
        let removed = [0, 1, 4, 8, 9];
        let rows: Vec<u64> =
            (0..10).filter(|offset| !removed.contains(offset)).map(|offset| offset + 100).collect();
        let column: ArrayRef = Arc::new(UInt64Array::from(rows.clone()));
        let rows_of =
            |batch: &RowBatch| (0..batch.rows.num_rows()).map(|row| batch.offset(row)).collect::<Vec<_>>();
        let whole = RowBatch {
            rows: RecordBatch::try_from_iter([("at", column)]).unwrap(),
            start: 100,
            removed: removed.to_vec(),
        };
        assert_eq!((rows_of(&whole), whole.offset(5)), (rows.clone(), 110));
        for at in 0..=rows.len() {
            let (first, second) = whole.split(at);
            assert_eq!((rows_of(&first), rows_of(&second)), (rows[..at].to_vec(), rows[at..].to_vec()));
            for cut in 0..=second.rows.num_rows() {
                assert_eq!(rows_of(&second.split(cut).1), rows[at + cut..]);
            }
            assert!(first.offset(at) <= second.start && second.offset(rows.len() - at) == 110);
        }
    }
}
