//! The published value of a table's column indexes: how a checkpoint stores it, and how readers look rows up in it.

use std::fmt;
use std::sync::Arc;

use table::Snapshot;
use table::materializer::{Checkpoint, MaterializerDir};
use table::unique::Verdict;
use types::codec::{Decoder, Encoder};
use types::{Error, IndexDef, Kind, Result, RowId, TableDef};

use super::codec::{EntryRange, IndexColumns, KIND};
use super::run::{FILES, RowSpan, RunHeader, SortedRun};
use crate::merge_policy::PieceSize;

const VERSION: u8 = 1;

/// All column indexes of a table, as an immutable value.
#[derive(Clone, Default)]
pub struct Indexes {
    pub(super) list: Vec<Index>,
    /// The id of the next run. No run has had it yet.
    pub(super) next_id: u64,
}

/// One column index, complete up to the row [`Index::reached`]. It still contains rows that died since. Later rows are
/// not in it; readers look for them in the table itself.
#[derive(Clone)]
pub struct Index {
    columns: IndexColumns,
    fingerprint: u64,
    pub(super) row: RowId,
    /// The result of comparing its rows with each other, if the index is unique and still being checked. It is not
    /// stored, because its outcome becomes part of the table's definition.
    pub(super) verdict: Verdict,
    /// The runs, in row-id order.
    pub(super) runs: Vec<Arc<SortedRun>>,
}

/// The positions of the entries of some ranges in an index. It is valid only with the index that made it.
#[derive(Clone, Debug)]
pub struct EntrySpans {
    /// Index of a run, with the span within that run.
    spans: Vec<(usize, RowSpan)>,
    /// Number of entries, as returned by [`Index::count`].
    pub rows: u64,
}

/// Description of one run of an index, for status reports and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunInfo {
    pub id: u64,
    /// The first row that the run covers.
    pub first: RowId,
    /// The last row that the run covers.
    pub last: RowId,
    /// Number of rows in the run: those between `first` and `last` that were live when it was written.
    pub rows: u64,
    pub bytes: u64,
}

impl Index {
    pub(super) fn new(columns: IndexColumns) -> Index {
        Index {
            fingerprint: columns.fingerprint(),
            columns,
            row: RowId(0),
            verdict: Verdict::Unknown,
            runs: Vec::new(),
        }
    }

    pub fn columns(&self) -> &IndexColumns {
        &self.columns
    }

    /// Returns the last row that the index has taken in.
    pub fn reached(&self) -> RowId {
        self.row
    }

    /// Counts the rows with entries in these ranges, which must not overlap. The count includes rows that have died
    /// since.
    pub fn count(&self, ranges: &[EntryRange]) -> Result<u64> {
        self.find(ranges).map(|found| found.rows)
    }

    /// Returns the rows with entries in these ranges, ascending. Some may be dead; and since long values are cut, some
    /// may have another value.
    pub fn rows(&self, ranges: &[EntryRange]) -> Result<Vec<RowId>> {
        self.rows_at(&self.find(ranges)?)
    }

    /// Finds the positions of the entries of these ranges.
    pub fn find(&self, ranges: &[EntryRange]) -> Result<EntrySpans> {
        let mut found = EntrySpans { spans: Vec::new(), rows: 0 };
        for (at, run) in self.runs.iter().enumerate() {
            for range in ranges.iter().filter(|range| !range.is_empty()) {
                if let Some(span) = run.find(range)?.filter(|span| span.rows > 0) {
                    found.rows += span.rows;
                    found.spans.push((at, span));
                }
            }
        }
        Ok(found)
    }

    /// Returns the rows of an earlier [`Index::find`] on this same index, ascending.
    pub fn rows_at(&self, found: &EntrySpans) -> Result<Vec<RowId>> {
        let mut rows = Vec::with_capacity(found.rows as usize);
        for (at, span) in &found.spans {
            self.runs[*at].rows(span, &mut rows)?;
        }
        if !rows.is_sorted() {
            rows.sort_unstable();
        }
        rows.dedup();
        Ok(rows)
    }

    /// Tells whether all rows of the index are alive in `table`, so that [`Index::count`] is exact. The snapshot and
    /// the index must come from the same root.
    pub fn is_all_alive(&self, table: &Snapshot) -> Result<bool> {
        let held: u64 = self.runs.iter().map(|run| run.head.rows).sum();
        // The index holds every live row up to `self.row`, so a live row that it lacks is in the tail.
        let last = RowId(table.next_row().0.saturating_sub(1));
        let tail = if self.row < last { table.rows_between(self.row.next(), last)? } else { 0 };
        Ok(held + tail == table.rows())
    }

    pub fn runs(&self) -> Vec<RunInfo> {
        let info = |run: &Arc<SortedRun>| {
            let head = run.head;
            RunInfo { id: head.id, first: head.first, last: head.last, rows: head.rows, bytes: run.bytes() }
        };
        self.runs.iter().map(info).collect()
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.runs.iter().any(|run| run.is_damaged())
    }

    /// Returns the sizes of the runs for [`merge_policy::plan`](crate::merge_policy::plan). The dead rows of each run are counted
    /// only if the index has many of them.
    pub(super) fn sizes(&self, table: &Snapshot) -> Result<Vec<PieceSize>> {
        let rows: u64 = self.runs.iter().map(|run| run.head.rows).sum();
        // The number of live rows of the table bounds the number of live rows in the index.
        let has_many_dead = rows.saturating_sub(table.rows()) * 10 > rows * 3;
        let size = |run: &Arc<SortedRun>| {
            let RunHeader { first, last, rows, .. } = run.head;
            let live = if has_many_dead { table.rows_between(first, last)?.min(rows) } else { rows };
            Ok(PieceSize { live, dead: rows - live, bytes: run.bytes() })
        };
        self.runs.iter().map(size).collect()
    }
}

impl fmt::Debug for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().map(|index| (index.row, index.runs.len()))).finish()
    }
}

impl Indexes {
    /// Returns the published indexes, among those that the table declares.
    pub fn list(&self) -> &[Index] {
        &self.list
    }

    /// Returns the index that belongs to a definition, if its build has begun.
    pub fn of(&self, def: &TableDef, index: &IndexDef) -> Option<&Index> {
        let fingerprint = IndexColumns::of(def, index)?.fingerprint();
        self.list.iter().find(|index| index.fingerprint == fingerprint)
    }

    /// Returns the last row that all indexes have taken in.
    pub(super) fn reached(&self) -> RowId {
        self.list.iter().map(|index| index.row).min().unwrap_or_default()
    }

    /// Returns these indexes adapted to the table's current declarations: new ones start empty, dropped ones disappear.
    /// Two declarations over the same columns share one index.
    pub(super) fn adapted_to(&self, def: &TableDef) -> Indexes {
        let mut list: Vec<Index> = Vec::new();
        for columns in declared_columns(def) {
            let index = Index::new(columns);
            if list.iter().all(|other| other.fingerprint != index.fingerprint) {
                let known = self.list.iter().find(|known| known.fingerprint == index.fingerprint);
                let mut index = known.cloned().unwrap_or(index);
                // The engine has already acted on a published `Equal` verdict. A definition that asks again was made
                // anew since, so its rows must be compared again.
                if matches!(index.verdict, Verdict::Equal(_)) {
                    index.verdict = Verdict::Unknown;
                }
                list.push(index);
            }
        }
        Indexes { list, next_id: self.next_id }
    }

    pub(super) fn matches_declaration(&self, def: &TableDef) -> bool {
        let wanted = self.adapted_to(def);
        let names = |indexes: &Indexes| indexes.list.iter().map(|i| i.fingerprint).collect::<Vec<_>>();
        names(&wanted) == names(self)
    }

    pub(super) fn contains_run(&self, run: u64) -> bool {
        self.list.iter().flat_map(|index| &index.runs).any(|known| known.head.id == run)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u8(VERSION);
        e.varint(self.next_id);
        e.list(&self.list, |e, index| {
            e.u64(index.fingerprint);
            e.varint(index.row.0);
            e.list(&index.runs, |e, run| {
                e.varint(run.head.id);
                e.u32(run.crc());
            });
        });
        e.bytes
    }

    /// Opens the runs that a checkpoint names. Reads only the footer of each.
    pub(super) fn open(place: &MaterializerDir, def: &TableDef, checkpoint: &Checkpoint) -> Result<Indexes> {
        let mut d = Decoder::new(&checkpoint.state);
        let version = d.u8()?;
        if version != VERSION {
            return Err(Error::new(
                Kind::Newer,
                format!("a checkpoint of column indexes has version {version}"),
            ));
        }
        let next_id = d.varint()?;
        let declared: Vec<Index> = declared_columns(def).map(Index::new).collect();
        let list = d.list(|d| {
            let (fingerprint, row) = (d.u64()?, RowId(d.varint()?));
            let runs = d.list(|d| Ok((d.varint()?, d.u32()?)))?;
            // The index was dropped since; the next step removes its files.
            let Some(index) = declared.iter().find(|index| index.fingerprint == fingerprint) else {
                return Ok(None);
            };
            let runs = runs.into_iter().map(|(id, crc)| open(place, id, crc)).collect::<Result<Vec<_>>>()?;
            let neighbours = runs.iter().zip(runs.iter().skip(1));
            if neighbours.into_iter().any(|(a, b)| a.head.last >= b.head.first) {
                return Err(Error::damaged("the runs of a column index are out of order"));
            }
            Ok(Some(Index { row, runs, ..index.clone() }))
        })?;
        d.finish()?;
        Ok(Indexes { list: list.into_iter().flatten().collect(), next_id })
    }
}

fn open(place: &MaterializerDir, id: u64, crc: u32) -> Result<Arc<SortedRun>> {
    let run = SortedRun::open(FILES.map(place, id)?);
    let run = run.map_err(|e| e.with("file", FILES.path(place, id).display()))?;
    if run.head.id != id || run.crc() != crc {
        return Err(Error::damaged("a run of a column index is not the one that the checkpoint names")
            .with("file", FILES.path(place, id).display()));
    }
    Ok(Arc::new(run))
}

/// Returns the columns of each index that the table declares, without those that cannot be built.
pub(super) fn declared_columns(def: &TableDef) -> impl Iterator<Item = IndexColumns> + '_ {
    def.indexes.iter().filter(|index| index.kind == KIND).filter_map(|index| IndexColumns::of(def, index))
}
