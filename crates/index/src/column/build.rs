//! Builds runs: a new run from rows, and one run from several.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use table::Snapshot;
use table::materializer::{Budget, MaterializerDir};
use types::{Error, Result, RowId};

use super::codec::IndexColumns;
use super::run::{Block, SortedRun, Writer};

/// Collects the entries of rows in memory for a new run.
pub(super) struct Builder<'a> {
    columns: &'a IndexColumns,
    entries: Vec<u8>,
    /// End offset of each entry in `entries`.
    ends: Vec<usize>,
    rows: Vec<RowId>,
}

impl<'a> Builder<'a> {
    pub fn new(columns: &'a IndexColumns) -> Builder<'a> {
        Builder { columns, entries: Vec::new(), ends: Vec::new(), rows: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Total size of the entries in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// Adds rows, all later than those before. The first column of `batch` holds the row ids; `places` gives the
    /// positions of the index's columns in it.
    pub fn add(&mut self, batch: &RecordBatch, places: &[usize]) -> Result<()> {
        let rows = batch
            .column(0)
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| Error::internal("a column index was given rows without their ids"))?;
        let columns: Vec<&dyn Array> = places.iter().map(|at| batch.column(*at).as_ref()).collect();
        for row in 0..batch.num_rows() {
            self.columns.append(&columns, row, &mut self.entries);
            self.ends.push(self.entries.len());
            self.rows.push(RowId(rows.value(row) as u64));
        }
        Ok(())
    }

    fn entry(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.entries[start..self.ends[at]]
    }

    /// Sorts the entries and writes the run. The rows must be all live rows between `first` and `last`.
    pub fn finish(
        self,
        place: &MaterializerDir,
        id: u64,
        first: RowId,
        last: RowId,
        budget: &mut Budget<'_>,
    ) -> Result<SortedRun> {
        // Most entries differ in their first bytes, so the sort compares a copy of those and avoids a memory access.
        let mut order: Vec<(u64, u32)> =
            (0..self.len()).map(|at| (sort_prefix(self.entry(at)), at as u32)).collect();
        order.sort_unstable_by(|a, b| {
            let by_entry = || self.entry(a.1 as usize).cmp(self.entry(b.1 as usize));
            a.0.cmp(&b.0).then_with(by_entry).then(a.1.cmp(&b.1))
        });
        let mut writer = Writer::create(place, id, first, last, self.columns.width(), budget)?;
        for (_, at) in order {
            writer.push(self.entry(at as usize), self.rows[at as usize], budget)?;
        }
        writer.finish(place, budget)
    }
}

/// Returns the first eight bytes of an entry as an integer that sorts as entries do, up to ties. It leaves out the
/// first byte, which marks a value that is not null; nulls sort last.
fn sort_prefix(entry: &[u8]) -> u64 {
    match entry {
        [1, rest @ ..] => {
            let mut bytes = [0; 8];
            let len = rest.len().min(8);
            bytes[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(bytes)
        }
        _ => u64::MAX,
    }
}

/// Merges neighbouring runs into one, without the rows that are dead in `table`. Returns `None` if no row is left.
pub(super) fn merge(
    place: &MaterializerDir,
    id: u64,
    runs: &[&SortedRun],
    columns: &IndexColumns,
    table: &Snapshot,
    budget: &mut Budget<'_>,
) -> Result<Option<SortedRun>> {
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(None) };
    let (first, last) = (first.head.first, last.head.last);
    let mut writer = Writer::create(place, id, first, last, columns.width(), budget)?;
    let mut cursors: Vec<Cursor> = runs.iter().map(|run| Cursor::new(run)).collect::<Result<_>>()?;
    // Runs are in row-id order, so visiting earlier runs first keeps the rows of an entry ascending.
    while let Some(least) = cursors.iter().filter_map(|cursor| cursor.entry).min() {
        for cursor in &mut cursors {
            while cursor.entry == Some(least) {
                for row in cursor.rows() {
                    if table.is_live(row)? {
                        writer.push(least, row, budget)?;
                    }
                }
                cursor.advance()?;
            }
        }
    }
    let run = writer.finish(place, budget)?;
    Ok((run.head.rows > 0).then_some(run))
}

/// Iterates over the entries of a run.
struct Cursor<'a> {
    run: &'a SortedRun,
    /// Index of the block after the current one.
    next: usize,
    block: Option<Block<'a>>,
    at: usize,
    /// The current entry, at `at` in the block; `None` at the end of the run.
    entry: Option<&'a [u8]>,
}

impl<'a> Cursor<'a> {
    fn new(run: &'a SortedRun) -> Result<Cursor<'a>> {
        let mut cursor = Cursor { run, next: 0, block: None, at: 0, entry: None };
        cursor.load_entry()?;
        Ok(cursor)
    }

    fn rows(&self) -> impl Iterator<Item = RowId> + use<'a> {
        let (first, block) = (self.run.head.first.0, self.block);
        let rows = block.map_or(0..0, |block| block.rows_of(self.at..self.at + 1));
        rows.filter_map(move |at| Some(RowId(first + u64::from(block?.row(at)))))
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.load_entry()
    }

    /// Moves to the next block if the current one is exhausted, and loads the current entry.
    fn load_entry(&mut self) -> Result<()> {
        while self.block.is_none_or(|block| self.at >= block.len()) {
            if self.next >= self.run.block_count() {
                self.entry = None;
                return Ok(());
            }
            self.block = Some(self.run.block(self.next)?);
            (self.next, self.at) = (self.next + 1, 0);
        }
        self.entry = self.block.map(|block| block.entry(self.at));
        Ok(())
    }
}
