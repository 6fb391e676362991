//! The rows that the index has not reached, indexed in memory by whoever searches first, for all.
//!
//! A table's tail is a chain of parts, each a piece of the rows of one range as of some lsn; later deletes are taken
//! from the snapshot, as with any piece. A search indexes only rows that came since the last one, and joins parts so that
//! they stay few: nothing is read or taken apart again for that. It publishes what it made by compare-and-swap: two
//! readers that do the same work at once waste it, and wait for nobody (R1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use table::Snapshot;
use table::materializer::Checkpoint;
use types::{Error, Kind, Lsn, Result, RowId, TableId};

use super::dead::{Deaths, View};
use super::fields::Fields;
use super::fresh::Builder;
use super::piece::Piece;
use crate::rows;

/// Rows that a reader indexes itself, at most. A database that keeps up has about 2,000, most of them indexed already.
pub(super) const READER_ROWS_MAX: u64 = 100_000;
pub(super) const READER_TEXT_BYTES_MAX: usize = 32 << 20;
/// Parts are joined up to this size: they stay few, and no reader pays for more than a millisecond or two of it.
const PART_ROWS: u32 = 1_024;
const PART_TEXT_BYTES: usize = 256 << 10;
const READ_ROWS: usize = 128;

/// The tails of all tables that are searched.
#[derive(Default)]
pub(super) struct Tails {
    tables: ArcSwap<imbl::HashMap<TableId, Arc<Slot>>>,
}

/// One table's.
#[derive(Default)]
struct Slot {
    chain: ArcSwapOption<Chain>,
    /// The row that the index has reached.
    passed: AtomicU64,
}

/// Neighbouring parts in row-id order; each was built at the lsn of the one before or later.
struct Chain {
    fingerprint: u64,
    parts: Vec<Part>,
}

#[derive(Clone)]
struct Part {
    view: View,
    /// Whoever reads at this lsn or later finds in it what he has to.
    lsn: Lsn,
    /// Deletes that came later may hit it.
    since: Lsn,
    /// Of the text that it was made of.
    text_bytes: usize,
}

impl Part {
    fn first(&self) -> RowId {
        self.view.piece.head.first
    }

    fn last(&self) -> RowId {
        self.view.piece.head.last
    }

    /// Documents, and bytes of their text.
    fn size(&self) -> (u32, usize) {
        (self.view.piece.docs(), self.text_bytes)
    }

    /// Neighbours as one: of rows that were dead when a later part was made, an earlier one may hold some.
    fn join(parts: &[Part]) -> Option<Part> {
        let pieces: Vec<&Piece> = parts.iter().map(|part| &*part.view.piece).collect();
        let piece = Piece::join(&pieces)?;
        Some(Part {
            view: View::new(Arc::new(piece)),
            lsn: parts.last()?.lsn,
            since: parts.first()?.since,
            text_bytes: parts.iter().map(|part| part.text_bytes).sum(),
        })
    }

    /// Whether whoever reads `table` finds in it what he has to, and nothing that he may not see.
    fn serves(&self, table: &Snapshot) -> bool {
        self.lsn <= table.lsn() && self.last() < table.next_row()
    }
}

/// Joins the last parts as a binary counter carries, all at once. Not the newest: readers at an lsn just before it do
/// without it, and must not lose more than that.
fn carry(parts: &mut Vec<Part>) {
    let Some(newest) = parts.pop() else { return };
    let mut from = parts.len().saturating_sub(1);
    let (mut docs, mut bytes) = parts.last().map_or((0, 0), Part::size);
    while let Some(before) = from.checked_sub(1).map(|at| parts[at].size()) {
        let fits = docs + before.0 <= PART_ROWS && bytes + before.1 <= PART_TEXT_BYTES;
        if before.0 > 2 * docs || !fits {
            break;
        }
        (docs, bytes) = (docs + before.0, bytes + before.1);
        from -= 1;
    }
    if parts.len() - from > 1
        && let Some(joined) = Part::join(&parts[from..])
    {
        parts.truncate(from);
        parts.push(joined);
    }
    parts.push(newest);
}

/// What died in neighbouring parts. A part is asked for more than it has to know: what it never held is not found in it.
fn deaths(table: &Snapshot, first: &Part, last: &Part) -> Result<Deaths> {
    let died = Checkpoint { row: last.last(), lsn: first.since, state: Vec::new() };
    Deaths::since(table, &died)
}

/// Whether parts hold anything that need not be held.
fn has_dead(table: &Snapshot, parts: &[Part]) -> Result<bool> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(false) };
    Ok(!deaths(table, first, last)?.is_none())
}

impl Tails {
    /// Pieces of all rows after `after` that are live in `table`.
    pub fn of(&self, table: &Snapshot, after: RowId, fields: &Fields) -> Result<Vec<View>> {
        let end = RowId(table.next_row().0 - 1);
        if after >= end {
            return Ok(Vec::new());
        }
        check_size(table, after)?;
        let slot = self.slot(table.def().id);
        let known = slot.chain.load_full();
        let fingerprint = fields.fingerprint();
        let mut parts: Vec<Part> = match &known {
            Some(chain) if chain.fingerprint == fingerprint => {
                let usable = |part: &&Part| part.last() > after && part.serves(table);
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
            // An older root than the one that the tail was made for.
            let last = RowId(next.0 - 1);
            let missing = build(table, first, last, fields, READER_TEXT_BYTES_MAX)?;
            views.extend(missing.map(|(piece, _)| View::new(Arc::new(piece))));
        }
        if from <= end {
            // All parts together are held in memory (R2). What died in them counts until they take too much: then they
            // are made anew of what is live.
            let held: usize = parts.iter().map(|part| part.text_bytes).sum();
            let docs: u64 = parts.iter().map(|part| u64::from(part.view.piece.docs())).sum();
            let room = READER_TEXT_BYTES_MAX.saturating_sub(held);
            let more = match docs > READER_ROWS_MAX {
                true => Err(building(table, from)),
                false => build(table, from, end, fields, room),
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
                let view = View::new(Arc::new(piece));
                parts.push(Part { view, lsn: table.lsn(), since: table.lsn(), text_bytes });
                carry(&mut parts);
            }
            let newest = |chain: &Chain| chain.parts.last().map(Part::last);
            let ours = Chain { fingerprint, parts: parts.clone() };
            // A reader of an older root does not take away what those of newer ones have made.
            if known.as_ref().is_none_or(|k| k.fingerprint != fingerprint || newest(k) <= newest(&ours)) {
                slot.publish(&known, ours);
            }
        }
        if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let deaths = deaths(table, first, last)?;
            for part in parts {
                let view = deaths.apply(table, part.view)?;
                let indexed = view.piece.first_after(after);
                views.push(view.without(0..indexed));
            }
        }
        Ok(views)
    }

    /// Row ids after `after` that nobody has indexed in memory yet for who reads `table`: what he has to do himself.
    pub fn unbuilt(&self, table: &Snapshot, after: RowId, fields: &Fields) -> u64 {
        let end = table.next_row().0 - 1;
        let tables = self.tables.load();
        let chain = tables.get(&table.def().id).and_then(|slot| slot.chain.load_full());
        let built = chain
            .filter(|chain| chain.fingerprint == fields.fingerprint())
            .filter(|chain| chain.parts.first().is_some_and(|part| part.first() <= after.next()))
            .and_then(|chain| chain.parts.iter().rfind(|part| part.serves(table)).map(Part::last));
        end.saturating_sub(built.unwrap_or(after).max(after).0)
    }

    /// The index has reached `row`.
    pub fn passed(&self, table: TableId, row: RowId) {
        if let Some(slot) = self.tables.load().get(&table) {
            // Lower than before where the index is built anew.
            slot.passed.store(row.0, Ordering::Release);
            slot.shed();
        }
    }

    pub fn forget(&self, table: TableId) {
        self.tables.rcu(|tables| tables.without(&table));
    }

    fn slot(&self, table: TableId) -> Arc<Slot> {
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

impl Slot {
    /// Unless somebody else was faster: then the next reader makes up for it.
    fn publish(&self, known: &Option<Arc<Chain>>, chain: Chain) {
        self.chain.compare_and_swap(known, Some(Arc::new(chain)));
        // The index may have come further meanwhile, and found nothing to take away.
        self.shed();
    }

    /// Lets go of parts that the index holds by now.
    fn shed(&self) {
        let row = RowId(self.passed.load(Ordering::Acquire));
        let known = self.chain.load_full();
        if let Some(chain) = &known
            && chain.parts.first().is_some_and(|part| part.last() <= row)
        {
            let parts = chain.parts.iter().filter(|part| part.last() > row).cloned().collect();
            let left = Chain { fingerprint: chain.fingerprint, parts };
            self.chain.compare_and_swap(&known, Some(Arc::new(left)));
        }
    }
}

/// A piece in memory of the live rows `first` to `last`, with the bytes of its text; `None` if there are none.
fn build(
    table: &Snapshot,
    first: RowId,
    last: RowId,
    fields: &Fields,
    text_bytes_max: usize,
) -> Result<Option<(Piece, usize)>> {
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
    Ok(Some((Piece::fresh(first, last, builder), text_bytes)))
}

/// A tail that has grown beyond what readers make is no tail any more (R2).
fn check_size(table: &Snapshot, after: RowId) -> Result<()> {
    if table.next_row().0 - 1 - after.0 <= READER_ROWS_MAX {
        return Ok(());
    }
    let pieces = table.pieces();
    let live: usize = pieces.iter().filter(|piece| piece.row_range().1 > after).map(table::Piece::rows).sum();
    if live as u64 > READER_ROWS_MAX { Err(building(table, after.next())) } else { Ok(()) }
}

fn building(table: &Snapshot, first: RowId) -> Error {
    let (done, all) = (first.0 - 1, table.next_row().0 - 1);
    Error::new(Kind::IndexBuilding, "the text index of this table is still being built")
        .with("table", types::name::short_table_name(&table.def().name))
        .hint(format!("{done} of {all} rows are indexed ({} %); ask again later", done * 100 / all.max(1)))
}
