//! What is published, and how a checkpoint names it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use table::materializer::{Checkpoint, Place};
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Lsn, Result, RowId};
use vfs::Access;

use super::bundle;
use super::dead::{Dead, View};
use super::fields::Fields;
use super::merge::Size;
use super::piece::Piece;

const VERSION: u8 = 1;
const EXTENSION: &str = ".piece";

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
    let path = place.dir.join(file_name(id));
    let failed = |e| Error::io(format!("reading {}", path.display()), e);
    let file = place.env.disk.open(&path, Access::Read).map_err(failed)?;
    let bytes = file.map().map_err(failed)?;
    Piece::open(bytes, fields).map_err(|e| e.with("file", path.display()))
}

/// Bytes between two syncs of a file that grows: one large flush would stall the log's.
const SYNC_BYTES: usize = 4 << 20;

/// Writes a bundle so that it survives a crash, then opens it.
pub(super) fn store(
    place: &Place,
    id: u64,
    bytes: &Bytes,
    fields: &Fields,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Piece> {
    let path = place.dir.join(file_name(id));
    let failed = |e| Error::io(format!("writing {}", path.display()), e);
    let file = place.env.disk.create(&path).map_err(failed)?;
    for (at, part) in bytes.chunks(SYNC_BYTES).enumerate() {
        file.write_at(&[std::io::IoSlice::new(part)], (at * SYNC_BYTES) as u64).map_err(failed)?;
        file.sync().map_err(failed)?;
        tick(part.len() as u64)?;
    }
    place.env.disk.sync_dir(&place.dir).map_err(failed)?;
    let mapped = file.map().map_err(failed)?;
    debug_assert_eq!(bundle::crc(&mapped), bundle::crc(bytes));
    Piece::open(mapped, fields).map_err(|e| e.with("file", path.display()))
}

fn file_name(id: u64) -> String {
    format!("{id}{EXTENSION}")
}

/// The pieces in a directory. Only names that this module gives: whatever else is there belongs to somebody.
pub(super) fn list(place: &Place) -> Result<Vec<u64>> {
    let entries = place.env.disk.list(&place.dir).map_err(|e| failed_listing(&place.dir, e))?;
    let id = |name: &str| name.strip_suffix(EXTENSION)?.parse().ok().filter(|id| file_name(*id) == name);
    Ok(entries.iter().filter(|entry| !entry.is_dir).filter_map(|entry| id(&entry.name)).collect())
}

pub(super) fn remove(place: &Place, id: u64) -> Result<()> {
    let path = place.dir.join(file_name(id));
    place.env.disk.remove(&path).map_err(|e| Error::io(format!("removing {}", path.display()), e))
}

fn failed_listing(dir: &Path, error: std::io::Error) -> Error {
    Error::io(format!("listing {}", dir.display()), error)
}
