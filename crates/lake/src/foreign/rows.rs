//! Reads the live rows of a table, batch by batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use roaring::RoaringTreemap;
use types::Result;

use super::equality::Filter;
use super::parquet_file::{Batches, ParquetFile, damaged};
use super::project::{self, Source};
use super::{DataFile, Foreign};

/// Reads a table's rows from an offset on.
pub struct Rows {
    table: Arc<Foreign>,
    schema: SchemaRef,
    /// The index of the next data file.
    at: usize,
    /// Rows to skip in the next data file, not counting those that are deleted by position.
    skip: u64,
    /// The offset of the next batch.
    place: u64,
    open: Option<Open>,
}

/// Rows with their offsets in the table.
#[derive(Clone, Debug)]
pub struct Batch {
    pub rows: RecordBatch,
    /// The offset of the first row.
    begin: u64,
    /// Offsets, relative to `begin` and ascending, of rows that equality deletes removed.
    gone: Vec<u64>,
}

impl Batch {
    /// Returns the offset of a row. For the row number after the last, returns the offset at which the batch ends.
    pub fn place(&self, row: usize) -> u64 {
        self.begin + nth(&self.gone, row as u64)
    }

    /// Splits the batch before one of its rows.
    pub fn split(&self, row: usize) -> (Batch, Batch) {
        let place = self.place(row);
        let at = place - self.begin;
        let behind = self.gone.iter().filter(|gone| **gone > at).map(|gone| gone - at);
        let rest = self.rows.slice(row, self.rows.num_rows() - row);
        let rest = Batch { rows: rest, begin: place, gone: behind.collect() };
        let before = self.gone.iter().copied().filter(|gone| *gone < at);
        (Batch { rows: self.rows.slice(0, row), begin: self.begin, gone: before.collect() }, rest)
    }
}

/// A data file that is being read.
struct Open {
    batches: Batches,
    /// The source of each of the table's columns.
    sources: Vec<Source>,
    filters: Vec<Filter>,
    /// The position in the file of the next batch.
    position: u64,
    rows: u64,
    deleted: Arc<RoaringTreemap>,
}

impl Rows {
    pub(super) fn new(table: Arc<Foreign>, from: u64) -> Rows {
        let fields =
            table.columns.iter().map(|column| Field::new(&column.name, column.data_type.to_arrow(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let (mut at, mut skip) = (0, from);
        while let Some(file) = table.data.get(at).filter(|file| file.places() <= skip) {
            skip -= file.places();
            at += 1;
        }
        Rows { table, schema, at, skip, place: from, open: None }
    }

    /// Returns the next rows; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            if self.open.is_none() {
                let Some(file) = self.table.data.get(self.at) else { return Ok(None) };
                let first = stored(&file.deleted, self.skip);
                self.open = Some(open(&self.table, file, first).map_err(|e| e.with("file", &file.path))?);
                (self.at, self.skip) = (self.at + 1, 0);
            }
            let file = &self.table.data[self.at - 1];
            let Some(open) = &mut self.open else { continue };
            match open.next(&self.schema).map_err(|e| e.with("file", &file.path))? {
                Some((rows, gone)) => {
                    let begin = self.place;
                    self.place += (rows.num_rows() + gone.len()) as u64;
                    if rows.num_rows() > 0 {
                        return Ok(Some(Batch { rows, begin, gone }));
                    }
                }
                None => self.open = None,
            }
        }
    }
}

/// Returns the position of the live row that has `live` live rows before it. `deleted` are deleted positions, ascending.
fn nth(deleted: &[u64], live: u64) -> u64 {
    let mut at = live;
    for position in deleted {
        if *position > at {
            break;
        }
        at += 1;
    }
    at
}

/// Returns the position in a file of the live row that has `live` live rows before it, like [`nth`].
fn stored(deleted: &RoaringTreemap, live: u64) -> u64 {
    let (mut low, mut high) = (live, live + deleted.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match middle + 1 - deleted.rank(middle) > live {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

/// Reads a data file's footer; checks that it is the file in the manifest and has what the table's columns need.
pub(super) fn check(table: &Foreign, file: &DataFile) -> Result<()> {
    let parquet = ParquetFile::open(&table.place, file)?;
    let columns = Columns::find(table, file, parquet.schema())?;
    parquet.read(&columns.roots, 0).map(drop)
}

/// The columns of a data file that are read.
struct Columns {
    /// Indexes of the file's columns, ascending.
    roots: Vec<usize>,
    /// The source of each of the table's columns.
    sources: Vec<Source>,
    /// Groups of equality deletes that apply to the file, with the sources of their key columns.
    groups: Vec<(usize, Vec<Source>)>,
}

impl Columns {
    fn find(table: &Foreign, file: &DataFile, schema: &Schema) -> Result<Columns> {
        let (mut sources, mut roots) = project::sources(table, file, &table.nodes, schema)?;
        let mut groups = Vec::new();
        for group in table.equality.of(file) {
            let (keys, more) = project::sources(table, file, table.equality.nodes(group), schema)?;
            roots.extend(more);
            groups.push((group, keys));
        }
        roots.sort_unstable();
        roots.dedup();
        let of_groups = groups.iter_mut().flat_map(|(_, keys)| keys);
        sources.iter_mut().chain(of_groups).for_each(|source| source.rank(&roots));
        Ok(Columns { roots, sources, groups })
    }
}

/// Opens a data file at one of its rows.
fn open(table: &Foreign, file: &DataFile, first: u64) -> Result<Open> {
    let parquet = ParquetFile::open(&table.place, file)?;
    let columns = Columns::find(table, file, parquet.schema())?;
    let batches = parquet.read(&columns.roots, first)?;
    let (groups, keys): (Vec<usize>, Vec<Vec<Source>>) = columns.groups.into_iter().unzip();
    let sets = table.equality.keys(table, &groups)?;
    let filter = |(keys, sources)| Filter { sources, keys, sequence: file.sequence };
    Ok(Open {
        batches,
        sources: columns.sources,
        filters: sets.into_iter().zip(keys).map(filter).collect(),
        position: first,
        rows: file.rows,
        deleted: file.deleted.clone(),
    })
}

impl Open {
    /// Returns the next rows, and the indexes of those that equality deletes removed, among the rows that no position deletes.
    fn next(&mut self, schema: &SchemaRef) -> Result<Option<(RecordBatch, Vec<u64>)>> {
        let Some(mut batch) = self.batches.next()? else {
            return match self.position >= self.rows {
                true => Ok(None),
                false => Err(damaged(&"it ends too early")),
            };
        };
        let (begin, end) = (self.position, self.position + batch.num_rows() as u64);
        self.position = end;
        if !self.deleted.is_empty() {
            let live = (begin..end).map(|at| !self.deleted.contains(at)).collect();
            batch = only(batch, live)?;
        }
        let mut live = vec![true; batch.num_rows()];
        self.filters.iter().try_for_each(|filter| filter.apply(&batch, &mut live))?;
        let gone = live.iter().enumerate().filter(|(_, live)| !**live).map(|(at, _)| at as u64).collect();
        batch = only(batch, live)?;
        let columns = self.sources.iter().map(|source| source.column(&batch));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
        Ok(Some((rows.map_err(|e| damaged(&e))?, gone)))
    }
}

fn only(batch: RecordBatch, live: Vec<bool>) -> Result<RecordBatch> {
    match live.iter().all(|live| *live) {
        true => Ok(batch),
        false => filter_record_batch(&batch, &BooleanArray::from(live)).map_err(|e| damaged(&e)),
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
            assert_eq!(nth(&deleted, live), at, "{deleted:?}");
            assert_eq!(stored(&deleted.iter().copied().collect(), live), at, "{deleted:?}");
        }
        let deleted: Vec<u64> = (0..100).filter(|at| at * at % 7 < 3).collect();
        for live in 0..120 {
            assert_eq!(stored(&deleted.iter().copied().collect(), live), nth(&deleted, live), "{live}");
        }
    }

    #[test]
    fn parts_of_a_batch_stand_where_their_rows_did() {
        use arrow::array::UInt64Array;
        // Each value is the row's own offset.
        let gone = [0, 1, 4, 8, 9];
        let rows: Vec<u64> = (0..10).filter(|place| !gone.contains(place)).map(|place| place + 100).collect();
        let column: ArrayRef = Arc::new(UInt64Array::from(rows.clone()));
        let rows_of =
            |batch: &Batch| (0..batch.rows.num_rows()).map(|row| batch.place(row)).collect::<Vec<_>>();
        let whole = Batch {
            rows: RecordBatch::try_from_iter([("at", column)]).unwrap(),
            begin: 100,
            gone: gone.to_vec(),
        };
        assert_eq!((rows_of(&whole), whole.place(5)), (rows.clone(), 110));
        for at in 0..=rows.len() {
            let (first, second) = whole.split(at);
            assert_eq!((rows_of(&first), rows_of(&second)), (rows[..at].to_vec(), rows[at..].to_vec()));
            for cut in 0..=second.rows.num_rows() {
                assert_eq!(rows_of(&second.split(cut).1), rows[at + cut..]);
            }
            assert!(first.place(at) <= second.begin && second.place(rows.len() - at) == 110);
        }
    }
}
