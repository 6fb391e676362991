//! The tail: the rows that the index has not reached. The first search indexes them in memory, and all later searches
//! share the result.
//!
//! The tail of a table is a chain of parts. Each part is a piece of a range of rows as of some lsn; later deletes are
//! taken from the snapshot, as with any piece. A search indexes only the rows that came since the last search. It joins
//! parts so that they stay few, without reading or analyzing their rows again. It publishes its result by
//! compare-and-swap. Two readers may do the same work at the same time, but neither waits for the other (R1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use table::Snapshot;
use table::materializer::Checkpoint;
use types::{Error, Kind, Lsn, Result, RowId, TableId};

use super::dead_docs::{DeletedRows, PieceView};
use super::fields::Fields;
use super::in_memory::Builder;
use super::piece::TextPiece;
use crate::rows;

/// The largest number of rows that a reader indexes itself. If the index keeps up, about 2,000 rows are in the tail,
/// and earlier readers have indexed most of them.
pub(super) const READER_ROWS_MAX: u64 = 100_000;
/// The largest number of bytes of text that a reader indexes itself.
pub(super) const READER_TEXT_BYTES_MAX: usize = 32 << 20;
/// The largest number of rows of a joined part. It keeps the parts few, and limits the cost of a join to one or two
/// milliseconds for a reader.
const PART_ROWS: u32 = 1_024;
/// The largest number of bytes of text of a joined part.
const PART_TEXT_BYTES: usize = 256 << 10;
const READ_ROWS: usize = 128;

/// The tails of all tables that were searched.
#[derive(Default)]
pub(super) struct Tails {
    tables: ArcSwap<imbl::HashMap<TableId, Arc<TableTail>>>,
}

/// The tail of one table.
#[derive(Default)]
struct TableTail {
    chain: ArcSwapOption<TailChain>,
    /// The last row that the index has taken in.
    reached: AtomicU64,
}

/// Neighbouring parts in row-id order. Each was built at the same lsn as the one before it, or later.
struct TailChain {
    fingerprint: u64,
    parts: Vec<TailPart>,
}

#[derive(Clone)]
struct TailPart {
    view: PieceView,
    /// The lowest lsn of readers for which the part is complete.
    lsn: Lsn,
    /// The lsn after which deletes may affect rows of the part.
    since: Lsn,
    /// Bytes of text in the part.
    text_bytes: usize,
}

impl TailPart {
    fn first(&self) -> RowId {
        self.view.piece.head.first
    }

    fn last(&self) -> RowId {
        self.view.piece.head.last
    }

    /// Returns the number of documents and the bytes of their text.
    fn size(&self) -> (u32, usize) {
        (self.view.piece.docs(), self.text_bytes)
    }

    /// Joins neighbouring parts into one. An earlier part may contain rows that had died by the lsn of a later one, so
    /// the result takes `since` from the first part.
    fn join(parts: &[TailPart]) -> Option<TailPart> {
        let pieces: Vec<&TextPiece> = parts.iter().map(|part| &*part.view.piece).collect();
        let piece = TextPiece::join(&pieces)?;
        Some(TailPart {
            view: PieceView::new(Arc::new(piece)),
            lsn: parts.last()?.lsn,
            since: parts.first()?.since,
            text_bytes: parts.iter().map(|part| part.text_bytes).sum(),
        })
    }

    /// Tells whether a reader of `table` can use the part: it must contain all rows that the reader needs, and no row
    /// later than the snapshot.
    fn is_usable_by(&self, table: &Snapshot) -> bool {
        self.lsn <= table.lsn() && self.last() < table.next_row()
    }
}

/// Joins the last parts in the manner of a carry in a binary counter, several at a time. The newest part stays as it
/// is: a reader at an lsn just before it cannot use it, and must not lose older parts too.
fn carry(parts: &mut Vec<TailPart>) {
    let Some(newest) = parts.pop() else { return };
    let mut from = parts.len().saturating_sub(1);
    let (mut docs, mut bytes) = parts.last().map_or((0, 0), TailPart::size);
    while let Some(before) = from.checked_sub(1).map(|at| parts[at].size()) {
        let fits = docs + before.0 <= PART_ROWS && bytes + before.1 <= PART_TEXT_BYTES;
        if before.0 > 2 * docs || !fits {
            break;
        }
        (docs, bytes) = (docs + before.0, bytes + before.1);
        from -= 1;
    }
    if parts.len() - from > 1
        && let Some(joined) = TailPart::join(&parts[from..])
    {
        parts.truncate(from);
        parts.push(joined);
    }
    parts.push(newest);
}

/// Returns the rows that died in neighbouring parts. The list may contain rows that a part never held; applying them
/// has no effect.
fn deleted_in(table: &Snapshot, first: &TailPart, last: &TailPart) -> Result<DeletedRows> {
    let died = Checkpoint { row: last.last(), lsn: first.since, state: Vec::new() };
    DeletedRows::since(table, &died)
}

/// Tells whether parts hold dead rows, which a rebuild would leave out.
fn has_dead(table: &Snapshot, parts: &[TailPart]) -> Result<bool> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(false) };
    Ok(!deleted_in(table, first, last)?.is_none())
}

impl Tails {
    /// Returns pieces that cover all rows after `after` that are live in `table`. Builds and publishes the missing
    /// parts.
    pub fn views(&self, table: &Snapshot, after: RowId, fields: &Fields) -> Result<Vec<PieceView>> {
        let end = RowId(table.next_row().0 - 1);
        if after >= end {
            return Ok(Vec::new());
        }
        check_size(table, after)?;
        let slot = self.slot(table.def().id);
        let known = slot.chain.load_full();
        let fingerprint = fields.fingerprint();
        let mut parts: Vec<TailPart> = match &known {
            Some(chain) if chain.fingerprint == fingerprint => {
                let usable = |part: &&TailPart| part.last() > after && part.is_usable_by(table);
                chain.parts.iter().filter(usable).cloned().collect()
            }
            _ => Vec::new(),
        };
        let before = parts.first().map(|part| (after.next(), part.first()));
        let from = parts.last().map_or(after.next(), |part| part.last().next());
        let mut views = Vec::with_capacity(parts.len() + 2);
        if let Some((first, next)) = before
            && first < next
        {
            // The snapshot is older than the one for which the tail was built, so the rows before the first part are
            // missing.
            let last = RowId(next.0 - 1);
            let missing = build(table, first, last, fields, READER_TEXT_BYTES_MAX)?;
            views.extend(missing.map(|(piece, _)| PieceView::new(Arc::new(piece))));
        }
        if from <= end {
            // All parts are in memory, so their total size is limited (R2). Dead rows count towards it until they take
            // too much; then the parts are rebuilt from live rows only.
            let held: usize = parts.iter().map(|part| part.text_bytes).sum();
            let docs: u64 = parts.iter().map(|part| u64::from(part.view.piece.docs())).sum();
            let room = READER_TEXT_BYTES_MAX.saturating_sub(held);
            let more = if docs > READER_ROWS_MAX {
                Err(building(table, from))
            } else {
                build(table, from, end, fields, room)
            };
            let built = match more {
                Err(error) if error.kind() == Kind::IndexBuilding && has_dead(table, &parts)? => {
                    parts.clear();
                    views.clear();
                    build(table, after.next(), end, fields, READER_TEXT_BYTES_MAX)?
                }
                built => built?,
            };
            if let Some((piece, text_bytes)) = built {
                let view = PieceView::new(Arc::new(piece));
                parts.push(TailPart { view, lsn: table.lsn(), since: table.lsn(), text_bytes });
                carry(&mut parts);
            }
            let newest = |chain: &TailChain| chain.parts.last().map(TailPart::last);
            let ours = TailChain { fingerprint, parts: parts.clone() };
            // A reader of an older root must not replace parts that readers of newer roots have made.
            if known.as_ref().is_none_or(|k| k.fingerprint != fingerprint || newest(k) <= newest(&ours)) {
                slot.publish(&known, ours);
            }
        }
        if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let deaths = deleted_in(table, first, last)?;
            for part in parts {
                let view = deaths.apply(table, part.view)?;
                let indexed = view.piece.first_after(after);
                views.push(view.without(0..indexed));
            }
        }
        Ok(views)
    }

    /// Returns the number of row ids after `after` that no reader has indexed in memory yet in a form that a reader of
    /// `table` can use. The reader must index these rows itself.
    pub fn rows_to_index(&self, table: &Snapshot, after: RowId, fields: &Fields) -> u64 {
        let end = table.next_row().0 - 1;
        let tables = self.tables.load();
        let chain = tables.get(&table.def().id).and_then(|slot| slot.chain.load_full());
        let built = chain
            .filter(|chain| chain.fingerprint == fields.fingerprint())
            .filter(|chain| chain.parts.first().is_some_and(|part| part.first() <= after.next()))
            .and_then(|chain| chain.parts.iter().rfind(|part| part.is_usable_by(table)).map(TailPart::last));
        end.saturating_sub(built.unwrap_or(after).max(after).0)
    }

    /// Records that the index of a table has reached `row`, and drops the parts that it holds by now.
    pub fn index_reached(&self, table: TableId, row: RowId) {
        if let Some(slot) = self.tables.load().get(&table) {
            // The row may be lower than before if the index is being rebuilt.
            slot.reached.store(row.0, Ordering::Release);
            slot.drop_indexed();
        }
    }

    pub fn forget(&self, table: TableId) {
        self.tables.rcu(|tables| tables.without(&table));
    }

    fn slot(&self, table: TableId) -> Arc<TableTail> {
        if let Some(slot) = self.tables.load().get(&table) {
            return slot.clone();
        }
        self.tables.rcu(|tables| {
            let mut tables = (**tables).clone();
            tables.entry(table).or_default();
            tables
        });
        self.tables.load().get(&table).cloned().unwrap_or_default()
    }
}

impl TableTail {
    /// Publishes a chain, unless another reader has replaced `known` meanwhile; then the next reader does the work
    /// again.
    fn publish(&self, known: &Option<Arc<TailChain>>, chain: TailChain) {
        self.chain.compare_and_swap(known, Some(Arc::new(chain)));
        // The index may have advanced meanwhile and found no parts to drop.
        self.drop_indexed();
    }

    /// Drops the parts that the index holds by now.
    fn drop_indexed(&self) {
        let row = RowId(self.reached.load(Ordering::Acquire));
        let known = self.chain.load_full();
        if let Some(chain) = &known
            && chain.parts.first().is_some_and(|part| part.last() <= row)
        {
            let parts = chain.parts.iter().filter(|part| part.last() > row).cloned().collect();
            let left = TailChain { fingerprint: chain.fingerprint, parts };
            self.chain.compare_and_swap(&known, Some(Arc::new(left)));
        }
    }
}

/// Builds a piece in memory from the live rows `first` to `last`. Returns it with the bytes of its text, or `None` if
/// there are no such rows.
fn build(
    table: &Snapshot,
    first: RowId,
    last: RowId,
    fields: &Fields,
    text_bytes_max: usize,
) -> Result<Option<(TextPiece, usize)>> {
    let projection = table.projection(&fields.columns())?;
    let mut builder = Builder::new(fields);
    let mut next = first;
    while next <= last {
        let batch = table.scan_from(next, READ_ROWS, &projection)?;
        let Some(newest) = rows::last(&batch) else { break };
        if !builder.add(&rows::up_to(&batch, last), text_bytes_max)? {
            return Err(building(table, first));
        }
        next = newest.next();
    }
    if builder.docs() == 0 {
        return Ok(None);
    }
    let text_bytes = builder.bytes();
    Ok(Some((TextPiece::in_memory(first, last, builder), text_bytes)))
}

/// Fails if the tail has more live rows than a reader may index itself (R2).
fn check_size(table: &Snapshot, after: RowId) -> Result<()> {
    if table.next_row().0 - 1 - after.0 <= READER_ROWS_MAX {
        return Ok(());
    }
    let pieces = table.pieces();
    let live: usize =
        pieces.iter().filter(|piece| piece.row_range().1 > after).map(table::ScanPiece::rows).sum();
    if live as u64 > READER_ROWS_MAX { Err(building(table, after.next())) } else { Ok(()) }
}

fn building(table: &Snapshot, first: RowId) -> Error {
    let (done, all) = (first.0 - 1, table.next_row().0 - 1);
    Error::new(Kind::IndexBuilding, "the text index of this table is still being built")
        .with("table", types::name::short_table_name(&table.def().name))
        .hint(format!("{done} of {all} rows are indexed ({} %); ask again later", done * 100 / all.max(1)))
}
