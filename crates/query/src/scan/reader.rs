//! Reads one partition of a scan, one piece per call, and counts the rows and bytes.

use std::ops::RangeInclusive;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, MetricBuilder, RecordOutput};
use table::BATCH_ROWS;
use types::ColumnId;

use super::dynamic_filters::FilterState;
use super::{Scan, ScanPart};
use crate::prune;

/// Name of the metric that counts scanned rows.
pub(super) const ROWS_SCANNED: &str = "rows_scanned";

pub(super) struct Reader {
    scan: Scan,
    partition: usize,
    /// The parts to read, and the reader's position in them; `None` before the first read.
    parts: Option<Vec<ScanPart>>,
    part: usize,
    next: usize,
    left: usize,
    filter_state: FilterState,
    baseline: BaselineMetrics,
    counts: Counts,
}

/// Metrics for EXPLAIN ANALYZE.
struct Counts {
    /// Rows looked up by key, row id or index, and the live ones among them.
    looked_up: Count,
    fetched: Count,
    /// Rows read by scanning.
    scanned: Count,
    /// Bytes of the scanned pieces, with all columns.
    bytes: Count,
    /// Bytes decoded: of the wanted columns, and of the rows that the time column left.
    decoded: Count,
    pieces_read: Count,
    /// Pieces left out because of their bounds while the plan ran.
    pieces_skipped: Count,
}

impl Scan {
    pub(super) fn reader(&self, partition: usize) -> Reader {
        let count = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let counts = Counts {
            looked_up: count("rows_looked_up"),
            fetched: count("rows_fetched"),
            scanned: count(ROWS_SCANNED),
            bytes: count("bytes_scanned"),
            decoded: count("bytes_decoded"),
            pieces_read: count("pieces_read"),
            pieces_skipped: count("pieces_skipped"),
        };
        Reader {
            baseline: BaselineMetrics::new(&self.metrics, partition),
            scan: self.clone(),
            partition,
            parts: None,
            part: 0,
            next: 0,
            left: self.limit.unwrap_or(usize::MAX),
            filter_state: FilterState::default(),
            counts,
        }
    }
}

impl Reader {
    /// Returns the parts of this partition. They are chosen at the first read: a join knows the keys of its other side by then.
    fn parts(&mut self) -> &[ScanPart] {
        let (scan, partition) = (&self.scan, self.partition);
        self.parts.get_or_insert_with(|| {
            let mut parts: Vec<ScanPart> = match scan.dynamic_lookup() {
                Some(found) => {
                    found.iter().skip(partition).step_by(scan.parts.len().max(1)).cloned().collect()
                }
                None => scan.parts.get(partition).cloned().into_iter().collect(),
            };
            if scan.newest_first {
                parts.reverse();
            }
            parts
        })
    }

    /// Returns the range of the table's time column that is wanted; `None` if it is unbounded.
    fn window(&self) -> Option<(ColumnId, RangeInclusive<i64>)> {
        let column = self.scan.snapshot.def().time?;
        let (_, tests) = self.scan.coverage.as_deref()?;
        let window = prune::time_range(tests.iter().chain(&self.filter_state.tests), column);
        (window != (i64::MIN..=i64::MAX)).then_some((column, window))
    }

    fn read(&mut self) -> Option<types::Result<RecordBatch>> {
        let _reading = vfs::read_path();
        let newest_first = self.scan.newest_first;
        loop {
            let (part, next) = (self.part, self.next);
            match self.parts().get(part)?.unit_at(next, newest_first) {
                PartUnit::Piece(piece) => {
                    self.next += 1;
                    if self.scan.refresh_filters(&mut self.filter_state)
                        && !prune::may_match(&piece, &self.filter_state.tests)
                    {
                        self.counts.pieces_skipped.add(1);
                        continue;
                    }
                    // The bounds of pages in the lake's files were not read when the statement was planned.
                    if let Some((_, tests)) = self.scan.coverage.as_deref().filter(|_| piece.is_evicted()) {
                        match piece.read_bounds() {
                            Ok(true) if !prune::may_match(&piece, tests) => {
                                self.counts.pieces_skipped.add(1);
                                continue;
                            }
                            Ok(_) => {}
                            Err(error) => return Some(Err(error)),
                        }
                    }
                    let read = piece.read_within(&self.scan.projection, self.window());
                    self.counts.pieces_read.add(1);
                    self.counts.bytes.add(piece.bytes() as usize);
                    self.counts.scanned.add(read.as_ref().map_or(0, |_| piece.rows()));
                    self.counts.decoded.add(read.as_ref().map_or(0, |read| read.decoded as usize));
                    return Some(read.map(|read| read.batch));
                }
                PartUnit::Rows(rows) => {
                    self.next += rows.len();
                    let batch = self.scan.snapshot.fetch(&rows, &self.scan.projection);
                    self.counts.looked_up.add(rows.len());
                    self.counts.fetched.add(batch.as_ref().map_or(0, RecordBatch::num_rows));
                    return Some(batch);
                }
                PartUnit::Count(rows) => {
                    self.next += 1;
                    let options = RecordBatchOptions::new().with_row_count(Some(rows));
                    let schema = self.scan.projection.schema().clone();
                    let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options);
                    return Some(
                        batch.map_err(|e| types::Error::internal(format!("counted rows make no batch: {e}"))),
                    );
                }
                PartUnit::End => (self.part, self.next) = (part + 1, 0),
            }
        }
    }
}

/// The next unit of a part.
enum PartUnit {
    Piece(table::ScanPiece),
    Rows(Vec<types::RowId>),
    Count(usize),
    End,
}

impl ScanPart {
    fn unit_at(&self, next: usize, newest_first: bool) -> PartUnit {
        match self {
            ScanPart::Pieces(pieces) => {
                let piece = if newest_first { pieces.iter().rev().nth(next) } else { pieces.get(next) };
                piece.map_or(PartUnit::End, |piece| PartUnit::Piece(piece.clone()))
            }
            ScanPart::Rows(rows) => {
                let left = rows.len().saturating_sub(next);
                let count = left.min(BATCH_ROWS);
                match count {
                    0 => PartUnit::End,
                    _ if newest_first => PartUnit::Rows(rows[left - count..left].to_vec()),
                    _ => PartUnit::Rows(rows[next..][..count].to_vec()),
                }
            }
            ScanPart::Count(rows) if next == 0 && *rows > 0 => {
                PartUnit::Count(usize::try_from(*rows).unwrap_or(usize::MAX))
            }
            ScanPart::Count(_) => PartUnit::End,
        }
    }
}

fn reversed(batch: &RecordBatch) -> Result<RecordBatch> {
    let last_first = UInt32Array::from_iter_values((0..batch.num_rows() as u32).rev());
    Ok(take_record_batch(batch, &last_first)?)
}

impl Iterator for Reader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let time = self.baseline.elapsed_compute().clone();
        let _timer = time.timer();
        let batch = match self.read()? {
            Ok(batch) => batch,
            Err(error) => {
                self.left = 0;
                return Some(Err(DataFusionError::External(Box::new(error))));
            }
        };
        let batch = match self.scan.newest_first.then(|| reversed(&batch)) {
            None => batch,
            Some(Ok(batch)) => batch,
            Some(Err(error)) => return Some(Err(error)),
        };
        let batch = if batch.num_rows() > self.left { batch.slice(0, self.left) } else { batch };
        self.left -= batch.num_rows();
        Some(Ok(batch.record_output(&self.baseline)))
    }
}
