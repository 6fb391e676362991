//! What is published, and how a checkpoint names it.

use std::sync::Arc;

use bytes::Bytes;
use table::materializer::{Budget, Checkpoint, Place};
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Lsn, Result, RowId, TableDef};

use super::bundle;
use super::dead::{Dead, View};
use super::fields::{Fields, fields};
use super::piece::Piece;
use crate::levels::Size;
use crate::store::Files;

const VERSION: u8 = 1;
pub(super) const FILES: Files = Files { extension: ".piece" };

/// A text index up to its position: an immutable value.
pub struct Index {
    /// What it was built for; a changed definition makes it useless.
    pub(super) fingerprint: u64,
    /// In row-id order.
    pub(super) pieces: Vec<View>,
    /// The dead are known up to here.
    pub(super) lsn: Lsn,
    /// No piece has had this id yet.
    pub(super) next_id: u64,
}

/// One piece of an index, for those who look after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceInfo {
    pub id: u64,
    /// The rows that it covers.
    pub first: RowId,
    pub last: RowId,
    pub live: u64,
    pub dead: u64,
    pub bytes: u64,
}

impl Index {
    pub fn pieces(&self) -> Vec<PieceInfo> {
        let info = |view: &View| {
            let head = view.piece.head;
            let dead = view.dead.count().into();
            let bytes = view.piece.bytes();
            PieceInfo { id: head.id, first: head.first, last: head.last, live: view.live(), dead, bytes }
        };
        self.pieces.iter().map(info).collect()
    }

    /// Whether it was built for a table as it is defined.
    pub fn is_of(&self, def: &TableDef) -> bool {
        fields(def).is_some_and(|fields| fields.fingerprint() == self.fingerprint)
    }

    /// Live rows of all pieces.
    pub fn rows(&self) -> u64 {
        self.pieces.iter().map(View::live).sum()
    }

    /// Rows and bytes of all pieces, the dead counted too.
    pub(super) fn size(&self) -> (u64, u64) {
        let add =
            |(rows, bytes), view: &View| (rows + u64::from(view.piece.docs()), bytes + view.piece.bytes());
        self.pieces.iter().fold((0, 0), add)
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        let size = |view: &View| {
            let dead = u64::from(view.dead.count());
            Size { live: view.live(), dead, bytes: view.piece.bytes() }
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

    /// Finds the pieces of a checkpoint again. All of each is read: tantivy trusts its bytes.
    pub(super) fn open(place: &Place, fields: &Fields, checkpoint: &Checkpoint) -> Result<Index> {
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
            return Err(Error::conflict("the table's text index is defined otherwise now"));
        }
        let mut open: Vec<View> = Vec::with_capacity(pieces.len());
        for (id, crc) in pieces {
            let damaged = |what: &str| Error::damaged(format!("piece {id} of a text index {what}"));
            let piece = read(place, id, fields)?;
            if piece.head.id != id || piece.crc() != crc {
                return Err(damaged("is not the one that the checkpoint names"));
            }
            if open.last().is_some_and(|last| last.piece.head.last >= piece.head.first) {
                return Err(damaged("is out of order"));
            }
            open.push(View { dead: Arc::new(Dead::none(&piece)), piece: Arc::new(piece) });
        }
        Ok(Index { fingerprint, pieces: open, lsn: checkpoint.lsn, next_id })
    }
}

fn read(place: &Place, id: u64, fields: &Fields) -> Result<Piece> {
    Piece::open(FILES.map(place, id)?, fields).map_err(|e| e.with("file", FILES.path(place, id).display()))
}

/// Writes a bundle so that it survives a crash, then opens it.
pub(super) fn store(
    place: &Place,
    id: u64,
    bytes: &Bytes,
    fields: &Fields,
    budget: &mut Budget<'_>,
) -> Result<Piece> {
    let mut output = FILES.create(place, id)?;
    output.write(bytes, budget)?;
    let mapped = output.finish(place, budget)?;
    debug_assert_eq!(bundle::crc(&mapped), bundle::crc(bytes));
    Piece::open(mapped, fields).map_err(|e| e.with("file", FILES.path(place, id).display()))
}
