//! The published value of a text index, and how a checkpoint stores it.

use std::sync::Arc;

use bytes::Bytes;
use table::materializer::{Budget, Checkpoint, MaterializerDir};
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Lsn, Result, RowId, TableDef};

use super::bundle;
use super::dead_docs::{DeadDocs, PieceView};
use super::fields::{Fields, fields};
use super::piece::TextPiece;
use crate::merge_policy::PieceSize;
use crate::store::Files;

const VERSION: u8 = 1;
pub(super) const FILES: Files = Files { extension: ".piece" };

/// A text index up to its position, as an immutable value.
pub struct Index {
    /// Fingerprint of the definition that the index was built for. If the definition has changed, the index is useless.
    pub(super) fingerprint: u64,
    /// The pieces with their dead rows, in row-id order.
    pub(super) pieces: Vec<PieceView>,
    /// Deletes up to this lsn are known in `pieces`.
    pub(super) lsn: Lsn,
    /// The id of the next piece. No piece has had it yet.
    pub(super) next_id: u64,
}

/// Description of one piece of an index, for status reports and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceInfo {
    pub id: u64,
    /// The first row that the piece covers.
    pub first: RowId,
    /// The last row that the piece covers.
    pub last: RowId,
    /// Number of its rows that are alive.
    pub live: u64,
    /// Number of its rows that were deleted since.
    pub dead: u64,
    pub bytes: u64,
}

impl Index {
    pub fn pieces(&self) -> Vec<PieceInfo> {
        let info = |view: &PieceView| {
            let head = view.piece.head;
            let dead = view.dead.count().into();
            let bytes = view.piece.bytes();
            PieceInfo { id: head.id, first: head.first, last: head.last, live: view.live(), dead, bytes }
        };
        self.pieces.iter().map(info).collect()
    }

    /// Tells whether the index was built for the table's current definition.
    pub fn is_built_for(&self, def: &TableDef) -> bool {
        fields(def).is_some_and(|fields| fields.fingerprint() == self.fingerprint)
    }

    /// Returns the number of live rows in all pieces.
    pub fn rows(&self) -> u64 {
        self.pieces.iter().map(PieceView::live).sum()
    }

    /// Returns the rows and bytes of all pieces, including dead rows.
    pub(super) fn size(&self) -> (u64, u64) {
        let add = |(rows, bytes), view: &PieceView| {
            (rows + u64::from(view.piece.docs()), bytes + view.piece.bytes())
        };
        self.pieces.iter().fold((0, 0), add)
    }

    pub(super) fn sizes(&self) -> Vec<PieceSize> {
        let size = |view: &PieceView| {
            let dead = u64::from(view.dead.count());
            PieceSize { live: view.live(), dead, bytes: view.piece.bytes() }
        };
        self.pieces.iter().map(size).collect()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u8(VERSION);
        e.u64(self.fingerprint);
        e.varint(self.next_id);
        e.list(&self.pieces, |e, view| {
            e.varint(view.piece.head.id);
            e.u32(view.piece.crc());
        });
        e.bytes
    }

    /// Opens the pieces that a checkpoint names. Reads and verifies each of them completely, because tantivy trusts its
    /// bytes.
    pub(super) fn open(place: &MaterializerDir, fields: &Fields, checkpoint: &Checkpoint) -> Result<Index> {
        let mut d = Decoder::new(&checkpoint.state);
        let version = d.u8()?;
        if version != VERSION {
            return Err(Error::new(Kind::Newer, format!("a text index's checkpoint has version {version}")));
        }
        let fingerprint = d.u64()?;
        let next_id = d.varint()?;
        let pieces = d.list(|d| Ok((d.varint()?, d.u32()?)))?;
        d.finish()?;
        if fingerprint != fields.fingerprint() {
            return Err(Error::conflict("the definition of the table's text index has changed"));
        }
        let mut open: Vec<PieceView> = Vec::with_capacity(pieces.len());
        for (id, crc) in pieces {
            let damaged = |what: &str| Error::damaged(format!("piece {id} of a text index {what}"));
            let piece = read(place, id, fields)?;
            if piece.head.id != id || piece.crc() != crc {
                return Err(damaged("is not the one that the checkpoint names"));
            }
            if open.last().is_some_and(|last| last.piece.head.last >= piece.head.first) {
                return Err(damaged("is out of order"));
            }
            open.push(PieceView { dead: Arc::new(DeadDocs::none(&piece)), piece: Arc::new(piece) });
        }
        Ok(Index { fingerprint, pieces: open, lsn: checkpoint.lsn, next_id })
    }
}

fn read(place: &MaterializerDir, id: u64, fields: &Fields) -> Result<TextPiece> {
    TextPiece::open(FILES.map(place, id)?, fields)
        .map_err(|e| e.with("file", FILES.path(place, id).display()))
}

/// Writes a bundle to a new file, syncs it, and opens it as a piece.
pub(super) fn store(
    place: &MaterializerDir,
    id: u64,
    bytes: &Bytes,
    fields: &Fields,
    budget: &mut Budget<'_>,
) -> Result<TextPiece> {
    let mut output = FILES.create(place, id)?;
    output.write(bytes, budget)?;
    let mapped = output.finish(place, budget)?;
    debug_assert_eq!(bundle::crc(&mapped), bundle::crc(bytes));
    TextPiece::open(mapped, fields).map_err(|e| e.with("file", FILES.path(place, id).display()))
}
