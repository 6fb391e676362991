//! A table's durable state, as the manifest stores it, so that opening a table needs only the last part of the log.
//!
//! ```text
//! version u8 = 2 · definition · lsn, next row, sealed next varints · sealed time i64
//! segments: count varint · per segment: SegmentMeta · deletes: length varint, Roaring treemap (portable), empty if none
//! history floor varint · history: count varint · per run: lsn minus the one before varint, first row id varint, rows varint
//! past: created varint, floor varint · definitions: count varint · per definition: lsn that ended it varint, definition
//! · segments of rows that ended: count varint · per segment: SegmentMeta, last end varint
//! ```
//!
//! Version 1 has no past, and stores of each run of deletes only its first row: every run is one row.

use roaring::RoaringTreemap;
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Lsn, Micros, Result, RowId, TableDef};

use crate::history::EndedRows;
use crate::{SegmentMeta, Snapshot};

const VERSION: u8 = 2;
const WITHOUT_PAST: u8 = 1;

/// All of a table except the head's rows, which are in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub def: TableDef,
    /// Everything committed up to here is in this state or, as a head row, in the log.
    pub lsn: Lsn,
    /// The id of the next row.
    pub next_row: RowId,
    /// The first row id that no segment covers: the log has the rows from here on.
    pub sealed_next: RowId,
    /// `_time` of the last row that was ever sealed, which no replayed row falls below; `i64::MIN` if none was.
    pub sealed_time: Micros,
    /// Segments in row-id order.
    pub segments: Vec<SegmentMeta>,
    /// The deleted row ids of each segment, in the same order.
    pub deletes: Vec<RoaringTreemap>,
    /// The lsn after which the history has every delete.
    pub history_floor: Lsn,
    /// Remembered deletes, ascending.
    pub history: Vec<EndedRows>,
    pub past: PastState,
}

/// The part of a table's state that serves readers of its past.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastState {
    /// The commit that made the table; 0 if unknown.
    pub created: Lsn,
    /// The smallest lsn at which the table can be read.
    pub floor: Lsn,
    /// Former definitions, each with the commit that replaced it. Ascending.
    pub defs: Vec<(Lsn, TableDef)>,
    /// Segments of ended rows, each with the last commit that ended one of its rows.
    pub segments: Vec<(SegmentMeta, Lsn)>,
}

impl State {
    pub fn encode(&self, e: &mut Encoder) {
        e.u8(VERSION);
        self.def.encode(e);
        e.varint(self.lsn.0);
        e.varint(self.next_row.0);
        e.varint(self.sealed_next.0);
        e.i64(self.sealed_time);
        e.varint(self.segments.len() as u64);
        for (segment, deletes) in self.segments.iter().zip(&self.deletes) {
            segment.encode(e);
            let mut bytes = Vec::new();
            if !deletes.is_empty() {
                deletes.serialize_into(&mut bytes).expect("a Vec takes every byte");
            }
            e.blob(&bytes);
        }
        e.varint(self.history_floor.0);
        let mut last = 0;
        e.list(&self.history, |e, run| {
            e.varint(run.lsn.0 - last);
            e.varint(run.first.0);
            e.varint(run.rows);
            last = run.lsn.0;
        });
        e.varint(self.past.created.0);
        e.varint(self.past.floor.0);
        e.list(&self.past.defs, |e, (lsn, def)| {
            e.varint(lsn.0);
            def.encode(e);
        });
        e.list(&self.past.segments, |e, (segment, last_end)| {
            segment.encode(e);
            e.varint(last_end.0);
        });
    }

    /// Decodes a state. Fails with [`Kind::Damaged`] or [`Kind::Newer`] if the bytes are not a state that this program reads.
    pub fn decode(d: &mut Decoder<'_>) -> Result<State> {
        let version = d.u8()?;
        match version {
            VERSION | WITHOUT_PAST => {}
            0 => return Err(d.damaged("0 is not a version of a table's state")),
            newer => {
                let what = format!("a table's state has version {newer}, this program reads {VERSION}");
                return Err(Error::new(Kind::Newer, what)
                    .hint("open this directory with the newer Polynya that wrote it"));
            }
        }
        let def = TableDef::decode(d)?;
        let (lsn, next_row, sealed_next) = (Lsn(d.varint()?), RowId(d.varint()?), RowId(d.varint()?));
        let sealed_time = d.i64()?;
        let mut deletes = Vec::new();
        let mut last_row: Option<RowId> = None;
        let segments = d.list(|d| {
            let segment = SegmentMeta::decode(d)?;
            let bytes = d.blob()?;
            let bitmap = if bytes.is_empty() {
                RoaringTreemap::new()
            } else {
                RoaringTreemap::deserialize_from(bytes)
                    .map_err(|e| d.damaged(format!("a delete vector that is not a bitmap: {e}")))?
            };
            let range = segment.first_row.0..=segment.last_row.0;
            let outside = [bitmap.min(), bitmap.max()].into_iter().flatten().any(|row| !range.contains(&row));
            if outside
                || last_row.is_some_and(|last| last >= segment.first_row)
                || segment.last_row >= sealed_next
            {
                return Err(d.damaged("segments that overlap or deletes outside of their segment"));
            }
            last_row = Some(segment.last_row);
            deletes.push(bitmap);
            Ok(segment)
        })?;
        let history_floor = Lsn(d.varint()?);
        let mut last = 0u64;
        let history = d.list(|d| {
            let (more, first) = (d.varint()?, d.varint()?);
            let rows = if version == WITHOUT_PAST { 1 } else { d.varint()? };
            last = last.checked_add(more).ok_or_else(|| d.damaged("an lsn beyond 64 bits"))?;
            if rows == 0 || first.checked_add(rows).is_none_or(|end| end > next_row.0) {
                return Err(d.damaged("deletes of rows that were never written"));
            }
            Ok(EndedRows { lsn: Lsn(last), first: RowId(first), rows })
        })?;
        let past = match version {
            // Earlier versions dropped ended rows without a record of them.
            WITHOUT_PAST => PastState { floor: lsn, ..PastState::default() },
            _ => PastState {
                created: Lsn(d.varint()?),
                floor: Lsn(d.varint()?),
                defs: d.list(|d| Ok((Lsn(d.varint()?), TableDef::decode(d)?)))?,
                segments: d.list(|d| Ok((SegmentMeta::decode(d)?, Lsn(d.varint()?))))?,
            },
        };
        if sealed_next > next_row || sealed_next.0 == 0 {
            return Err(d.damaged("a table with more rows sealed than written"));
        }
        Ok(State {
            def,
            lsn,
            next_row,
            sealed_next,
            sealed_time,
            segments,
            deletes,
            history_floor,
            history,
            past,
        })
    }
}

impl State {
    /// Returns the state for a directory that begins at this lsn: without the past.
    pub fn without_past(mut self) -> State {
        self.past = PastState { created: self.past.created, floor: self.lsn, ..PastState::default() };
        self
    }
}

impl Snapshot {
    /// Returns the state of this table for the manifest.
    pub fn state(&self) -> State {
        let parts = &self.parts;
        State {
            def: (*parts.compiled.def).clone(),
            lsn: self.lsn,
            next_row: RowId(parts.next_row),
            sealed_next: RowId(parts.sealed_next),
            sealed_time: parts.sealed_time,
            segments: self.segments().map(|s| s.meta().clone()).collect(),
            deletes: parts.segments.iter().map(|e| e.deletes.to_bitmap()).collect(),
            history_floor: parts.history.floor(),
            history: parts.history.to_vec(),
            past: PastState {
                created: Lsn(parts.past.created),
                floor: Lsn(parts.past.floor),
                defs: parts
                    .past
                    .defs
                    .iter()
                    .map(|(lsn, compiled)| (Lsn(*lsn), (*compiled.def).clone()))
                    .collect(),
                segments: self.past_segments().map(|(s, last)| (s.meta().clone(), last)).collect(),
            },
        }
    }

    /// Returns the state after the whole head was sealed into `segment`, which [`seal`](crate::seal()) wrote from this snapshot:
    /// a state that needs no log.
    pub fn state_sealed(&self, segment: SegmentMeta) -> State {
        let mut state = self.state();
        state.sealed_next = segment.last_row.next();
        state.sealed_time = self.parts.last_time;
        state.segments.push(segment);
        state.deletes.push(RoaringTreemap::new());
        state.without_past()
    }
}
