//! The head: rows that no segment holds yet, as immutable Arrow batches that are merged ("folded") in geometrically growing
//! sizes.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType as Arrow, TimeUnit};
use once_cell::race::OnceBox;
use types::{Error, Micros, Result};

use crate::layout::{Layout, Projection};
use crate::lsn_runs::{self, LsnRun};
use crate::segment::zones;
use crate::{BATCH_ROWS, Zone, memory};

/// Bytes above which batches are not folded, so that no text column overflows its 32-bit offsets.
const FOLD_BYTES_MAX: u64 = 64 << 20;
/// Number of a row's first columns that [`Stored::touch`] reads.
const TOUCHED_MAX: usize = 8;

/// Rows with their system columns, in the layout under which they were written.
#[derive(Debug)]
pub(crate) struct Stored {
    pub batch: RecordBatch,
    pub layout: Arc<Layout>,
}

impl Stored {
    pub fn row_ids(&self) -> &[i64] {
        use arrow::array::AsArray;
        self.batch.column(0).as_primitive::<arrow::datatypes::Int64Type>().values()
    }

    pub fn times(&self) -> &[i64] {
        use arrow::array::AsArray;
        self.batch.column(1).as_primitive::<arrow::datatypes::TimestampMicrosecondType>().values()
    }

    /// Prefetches a row: reads the first columns of the row once, before its values are used. The columns lie apart in memory,
    /// and these loads do not wait for each other.
    pub fn touch(&self, row: usize) {
        use arrow::array::AsArray;
        use arrow::datatypes::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
        let first = |array: &ArrayRef| match array.data_type() {
            Arrow::Int64 => array.as_primitive::<Int64Type>().values()[row] as u64,
            Arrow::Float64 => array.as_primitive::<Float64Type>().values()[row].to_bits(),
            Arrow::Int32 => array.as_primitive::<Int32Type>().values()[row] as u64,
            Arrow::Timestamp(TimeUnit::Microsecond, _) => {
                array.as_primitive::<TimestampMicrosecondType>().values()[row] as u64
            }
            Arrow::Utf8 => array.as_string::<i32>().value_offsets()[row] as u64,
            _ => 0,
        };
        let [_, _, user @ ..] = self.batch.columns() else { return };
        let user = &user[..user.len().min(TOUCHED_MAX)];
        std::hint::black_box(user.iter().fold(0, |all, array| all ^ first(array)));
        // The offsets tell where the text bytes are.
        let texts = user.iter().filter_map(|array| array.as_string_opt::<i32>());
        let first = |text: &StringArray| {
            let start = text.value_offsets()[row] as usize;
            text.value_data().get(start).copied().unwrap_or(0)
        };
        std::hint::black_box(texts.fold(0, |all, text| all ^ first(text)));
    }
}

/// Neighbouring rows of the head, without a gap in their ids.
#[derive(Debug)]
pub(crate) struct HeadBatch {
    pub first: u64,
    pub stored: Arc<Stored>,
    pub runs: Vec<LsnRun>,
    pub bytes: u64,
    /// The first row of the larger batch whose memory this one shares; `None` if the batch has memory of its own.
    shares: Option<u64>,
    /// Zone of each column, by the column's position; computed at first use.
    zones: Box<[OnceBox<Option<Zone>>]>,
}

impl HeadBatch {
    fn new(
        first: u64,
        stored: Arc<Stored>,
        runs: Vec<LsnRun>,
        bytes: u64,
        shares: Option<u64>,
    ) -> Arc<HeadBatch> {
        let zones = stored.batch.columns().iter().map(|_| OnceBox::new()).collect();
        Arc::new(HeadBatch { first, stored, runs, bytes, shares, zones })
    }

    /// Returns the bounds of a stored column's values; `None` for types without a zone.
    pub fn zone(&self, position: usize) -> Option<&Zone> {
        let zone = || Box::new(zones::of(self.stored.batch.column(position)));
        self.zones.get(position)?.get_or_init(zone).as_ref()
    }

    pub fn rows(&self) -> usize {
        self.stored.batch.num_rows()
    }

    /// The row id after the last one.
    pub fn end(&self) -> u64 {
        self.first + self.rows() as u64
    }
}

/// The batches in row-id order. Snapshots share them: a change copies the list of batches, not the batches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    batches: Arc<Vec<Arc<HeadBatch>>>,
    bytes: u64,
    rows: u64,
    /// The row id below which batches are shared with other values of the table and must not be folded: folding would only copy
    /// them.
    frozen_below: u64,
    /// Rows copied by folding so far.
    #[cfg(test)]
    pub copied: u64,
}

/// Rows that are about to be added to the head.
struct PendingRows {
    first: u64,
    batch: RecordBatch,
    runs: Vec<LsnRun>,
}

impl Head {
    pub fn batches(&self) -> &[Arc<HeadBatch>] {
        &self.batches
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Excludes the batches of rows below `row` from folding.
    pub fn freeze_below(&mut self, row: u64) {
        self.frozen_below = row;
    }

    /// Returns the batch that holds a row id, and the row's index in it.
    pub fn locate(&self, row: u64) -> Option<(&Arc<HeadBatch>, usize)> {
        // Most batches are full, so the guess is usually right.
        let start = self.batches.first()?.first;
        let guess = (row.checked_sub(start)? / crate::BATCH_ROWS as u64) as usize;
        let holds = |batch: &&Arc<HeadBatch>| batch.first <= row && row < batch.end();
        let batch = match self.batches.get(guess).filter(holds) {
            Some(batch) => batch,
            None => {
                let at = self.batches.partition_point(|batch| batch.first <= row);
                self.batches.get(at.checked_sub(1)?).filter(holds)?
            }
        };
        Some((batch, (row - batch.first) as usize))
    }

    /// Appends `user` columns in `layout` as rows from `first` on, then folds. Folding joins the last batches with the new one:
    /// those that are not full and have less than twice as many rows as all batches after them together. So each row is copied at
    /// most log₁.₅ 8192 times, and `n` rows lie in at most `log2(n + 1) + n / 8192` batches (unless rows are so large that bytes
    /// limit folding).
    pub fn push(
        &mut self,
        first: u64,
        time: Micros,
        runs: Vec<LsnRun>,
        user: &RecordBatch,
        layout: &Arc<Layout>,
        all: &Projection,
    ) -> Result<()> {
        let rows = user.num_rows();
        let last = first + rows as u64;
        let row_ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first as i64..last as i64));
        let times = TimestampMicrosecondArray::from_value(time, rows).with_timezone("UTC");
        let columns = [row_ids, Arc::new(times)].into_iter().chain(user.columns().iter().cloned()).collect();
        let batch = all.batch(columns, rows)?;
        let (batch, mut bytes) = self.own(batch, None);

        // Counts the batches at the end that are folded, their rows and their bytes.
        let mut total = rows;
        let mut folded = 0;
        for older in self.batches.iter().rev() {
            let full = older.rows() >= BATCH_ROWS || older.bytes + bytes > FOLD_BYTES_MAX;
            if full || older.rows() >= 2 * total || older.first < self.frozen_below {
                break;
            }
            total += older.rows();
            bytes += older.bytes;
            folded += 1;
        }
        let kept = self.batches.len() - folded;
        let mut parts = Vec::with_capacity(folded + 1);
        for older in &self.batches[kept..] {
            let stored = &older.stored;
            let batch = if Arc::ptr_eq(&stored.layout, layout) {
                stored.batch.clone()
            } else {
                all.apply(&stored.layout, &stored.batch)?
            };
            parts.push(PendingRows { first: older.first, batch, runs: older.runs.clone() });
        }
        let fresh = if folded == 0 && rows <= BATCH_ROWS {
            let stored = Arc::new(Stored { batch, layout: layout.clone() });
            vec![HeadBatch::new(first, stored, runs, bytes, None)]
        } else {
            parts.push(PendingRows { first, batch, runs });
            self.chunk(parts, layout)?
        };

        let batches = Arc::make_mut(&mut self.batches);
        batches.truncate(kept);
        batches.extend(fresh);
        self.recount();
        Ok(())
    }

    /// Cuts neighbouring parts into batches of [`BATCH_ROWS`].
    fn chunk(&mut self, parts: Vec<PendingRows>, layout: &Arc<Layout>) -> Result<Vec<Arc<HeadBatch>>> {
        let mut batches = Vec::new();
        let mut slices: Vec<RecordBatch> = Vec::new();
        let (mut rows, mut runs, mut first) = (0, Vec::new(), parts[0].first);
        let count = parts.len();
        for (i, part) in parts.into_iter().enumerate() {
            let mut offset = 0;
            let whole = part.batch.num_rows();
            while offset < whole {
                let take = (BATCH_ROWS - rows).min(whole - offset);
                slices.push(part.batch.slice(offset, take));
                let from = part.first + offset as u64;
                lsn_runs::slice(&part.runs, from, from + take as u64)
                    .into_iter()
                    .for_each(|run| lsn_runs::push(&mut runs, run));
                offset += take;
                rows += take;
                let at_end = i + 1 == count && offset == whole;
                if rows < BATCH_ROWS && !at_end {
                    continue;
                }
                let (batch, shares) = if slices.len() > 1 {
                    #[cfg(test)]
                    {
                        self.copied += rows as u64;
                    }
                    let joined = concat_batches(&layout.schema, &slices);
                    (joined.map_err(|e| Error::internal(format!("folding head batches failed: {e}")))?, None)
                } else {
                    (slices[0].clone(), (rows < whole).then_some(part.first))
                };
                // A short last slice would keep the memory of the whole large batch alive.
                let shares = shares.filter(|_| rows == BATCH_ROWS);
                let (batch, bytes) = self.own(batch, shares);
                let stored = Arc::new(Stored { batch, layout: layout.clone() });
                let runs = std::mem::take(&mut runs);
                batches.push(HeadBatch::new(first, stored, runs, bytes, shares));
                slices.clear();
                first = from + take as u64;
                rows = 0;
            }
        }
        Ok(batches)
    }

    /// Returns the batch with memory that holds little else (a copy if need be), and its bytes. A slice of a batch that stays in
    /// the head as a whole counts only the bytes that it shows.
    fn own(&mut self, batch: RecordBatch, shares: Option<u64>) -> (RecordBatch, u64) {
        let used = memory::used(&batch);
        if shares.is_some() {
            return (batch, used);
        }
        let held = memory::held(&batch);
        if !memory::pins(used, held) {
            return (batch, held);
        }
        #[cfg(test)]
        {
            self.copied += batch.num_rows() as u64;
        }
        let batch = memory::copied(&batch);
        let held = memory::held(&batch);
        (batch, held)
    }

    /// Returns the head without the rows from `end` on. Copies no row.
    pub fn below(&self, end: u64) -> Head {
        let at = self.batches.partition_point(|batch| batch.first < end);
        let mut batches = self.batches[..at].to_vec();
        if let Some(last) = batches.last_mut()
            && last.end() > end
        {
            let rows = (end - last.first) as usize;
            let stored =
                Stored { batch: last.stored.batch.slice(0, rows), layout: last.stored.layout.clone() };
            let runs = lsn_runs::slice(&last.runs, last.first, end);
            let bytes = last.bytes * rows as u64 / last.rows() as u64;
            *last = HeadBatch::new(last.first, Arc::new(stored), runs, bytes, last.shares);
        }
        let mut head = Head { batches: Arc::new(batches), ..self.clone() };
        head.recount();
        head
    }

    /// Drops the rows below `row`, which are in a segment now.
    pub fn drop_below(&mut self, row: u64) {
        let from = self.batches.partition_point(|batch| batch.end() <= row);
        let mut rest: Vec<Arc<HeadBatch>> = self.batches[from..].to_vec();
        for batch in &mut rest {
            let cut = row.saturating_sub(batch.first) as usize;
            // Only batches at the boundary can need a copy: a batch that is cut, and one that shares memory with a batch below
            // the boundary.
            if cut == 0 && batch.shares.is_none_or(|parent| parent >= row) {
                continue;
            }
            let part = memory::copied(&batch.stored.batch.slice(cut, batch.rows() - cut));
            let first = batch.first + cut as u64;
            let bytes = memory::held(&part);
            let runs = lsn_runs::slice(&batch.runs, first, batch.end());
            let stored = Arc::new(Stored { batch: part, layout: batch.stored.layout.clone() });
            *batch = HeadBatch::new(first, stored, runs, bytes, None);
        }
        self.batches = Arc::new(rest);
        self.recount();
    }

    fn recount(&mut self) {
        self.bytes = self.batches.iter().map(|b| b.bytes).sum();
        self.rows = self.batches.last().map_or(0, |last| last.end() - self.batches[0].first);
    }
}

#[cfg(test)]
#[path = "head/tests.rs"]
mod tests;
