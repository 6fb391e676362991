//! Edits of the manifest: changes of definitions, segments, keys and views, as opposed to rows.
//!
//! An edit is a log record like any other, so a change of definition, a sealed segment and a materializer's
//! checkpoint each have an lsn and share the log's durability. The manifest is the sum of all edits.

use types::codec::{Decoder, Encoder};
use types::{
    Error, Kind, Lsn, Micros, Result, RowId, SchemaVersion, Scope, SegmentId, TableDef, TableId, TableSet,
    ViewDef,
};

/// One change of the manifest.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// A new table.
    CreateTable(TableDef),
    /// The whole new definition of a table.
    AlterTable(TableDef),
    DropTable(TableId),
    /// Rows of the head were written into a segment.
    Seal {
        table: TableId,
        segment: SegmentMeta,
        kept: Option<RetainedRowsMeta>,
    },
    /// Neighbouring segments were merged into one, or dropped if none of their rows was live.
    Compact {
        table: TableId,
        inputs: Vec<SegmentId>,
        output: Option<SegmentMeta>,
        kept: Option<RetainedRowsMeta>,
    },
    /// Past segments were removed: the past can be read from `floor` on.
    Forget {
        table: TableId,
        segments: Vec<SegmentId>,
        floor: Lsn,
    },
    /// The progress of a materializer in a table's change feed.
    Checkpoint {
        materializer: String,
        table: TableId,
        /// The last row id that it has consumed.
        row: RowId,
        /// The last lsn whose deletes it has consumed.
        lsn: Lsn,
        /// The materializer's own state; opaque to the log.
        state: Vec<u8>,
    },
    PutKey(ApiKey),
    RemoveKey {
        name: String,
    },
    /// Makes a view, or replaces the view of that name.
    PutView(ViewDef),
    DropView {
        name: String,
    },
}

/// The fate of ended (deleted or replaced) rows in a seal or a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedRowsMeta {
    /// The lsn from which on all ended rows can still be read, considering what was dropped before and now.
    pub floor: Lsn,
    /// The last commit that ended a row of `segment`.
    pub last_end: Lsn,
    /// The past segment with the kept rows; `None` if there are none.
    pub segment: Option<SegmentMeta>,
}

/// The manifest's description of a segment: enough to plan without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    pub id: SegmentId,
    /// The first row id of its range; segments of a table hold disjoint ascending ranges.
    pub first_row: RowId,
    /// The last row id of its range, inclusive. Ids in between may be missing: their rows were deleted.
    pub last_row: RowId,
    /// Number of stored rows.
    pub rows: u64,
    /// Bytes of the Arrow file and its sidecar.
    pub bytes: u64,
    /// The version of the schema under which its batches were written.
    pub schema_version: SchemaVersion,
    /// `_time` of its first row.
    pub first_time: Micros,
    /// `_time` of its last row.
    pub last_time: Micros,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
    /// CRC32C of the sidecar's directory. The directory holds the checksum of each section, and one section holds that of each
    /// block.
    pub crc: u32,
}

/// An API key. The secret itself is not stored anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub name: String,
    /// BLAKE3 of the secret.
    pub hash: [u8; 32],
    pub scope: Scope,
    pub tables: TableSet,
    pub created: Micros,
}

const CREATE_TABLE: u8 = 1;
const ALTER_TABLE: u8 = 2;
const DROP_TABLE: u8 = 3;
const SEAL: u8 = 4;
const COMPACT: u8 = 5;
const CHECKPOINT: u8 = 6;
const PUT_KEY: u8 = 7;
const REMOVE_KEY: u8 = 8;
/// [`SEAL`] with [`RetainedRowsMeta`]. [`COMPACT`] with [`RetainedRowsMeta`].
const SEAL_KEEPING: u8 = 24;
const COMPACT_KEEPING: u8 = 25;
const FORGET: u8 = 26;
const PUT_VIEW: u8 = 16;
const DROP_VIEW: u8 = 17;
/// [`PUT_VIEW`] of a view with the list of tables that it reads.
const PUT_VIEW_READING: u8 = 18;
/// [`CREATE_TABLE`] of a table with a unique index. A program that does not know unique indexes would write equal rows, so it
/// must refuse to go on. [`ALTER_TABLE`] of a table with a unique index.
const CREATE_UNIQUE: u8 = 32;
const ALTER_UNIQUE: u8 = 33;

impl Edit {
    pub fn encode(&self, e: &mut Encoder) {
        match self {
            Edit::CreateTable(def) => {
                e.u8(if def.has_unique() { CREATE_UNIQUE } else { CREATE_TABLE });
                def.encode(e);
            }
            Edit::AlterTable(def) => {
                e.u8(if def.has_unique() { ALTER_UNIQUE } else { ALTER_TABLE });
                def.encode(e);
            }
            Edit::DropTable(table) => {
                e.u8(DROP_TABLE);
                e.varint(table.0.into());
            }
            Edit::Seal { table, segment, kept } => {
                e.u8(if kept.is_some() { SEAL_KEEPING } else { SEAL });
                e.varint(table.0.into());
                segment.encode(e);
                kept.iter().for_each(|kept| kept.encode(e));
            }
            Edit::Compact { table, inputs, output, kept } => {
                e.u8(if kept.is_some() { COMPACT_KEEPING } else { COMPACT });
                e.varint(table.0.into());
                e.list(inputs, |e, id| e.varint(id.0));
                e.option(output.as_ref(), |e, segment| segment.encode(e));
                kept.iter().for_each(|kept| kept.encode(e));
            }
            Edit::Forget { table, segments, floor } => {
                e.u8(FORGET);
                e.varint(table.0.into());
                e.list(segments, |e, id| e.varint(id.0));
                e.varint(floor.0);
            }
            Edit::Checkpoint { materializer, table, row, lsn, state } => {
                e.u8(CHECKPOINT);
                e.str(materializer);
                e.varint(table.0.into());
                e.varint(row.0);
                e.varint(lsn.0);
                e.blob(state);
            }
            Edit::PutKey(key) => {
                e.u8(PUT_KEY);
                key.encode(e);
            }
            Edit::RemoveKey { name } => {
                e.u8(REMOVE_KEY);
                e.str(name);
            }
            Edit::PutView(view) if view.reads.is_empty() => {
                e.u8(PUT_VIEW);
                view.encode(e);
            }
            Edit::PutView(view) => {
                e.u8(PUT_VIEW_READING);
                view.encode(e);
                view.encode_reads(e);
            }
            Edit::DropView { name } => {
                e.u8(DROP_VIEW);
                e.str(name);
            }
        }
    }

    /// Decodes an edit. Fails with [`Kind::Damaged`] if the bytes are not an edit, with [`Kind::Newer`] if this version does not
    /// know its kind.
    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let tag = d.u8()?;
        Ok(match tag {
            CREATE_TABLE | CREATE_UNIQUE => Edit::CreateTable(TableDef::decode(d)?),
            ALTER_TABLE | ALTER_UNIQUE => Edit::AlterTable(TableDef::decode(d)?),
            DROP_TABLE => Edit::DropTable(TableId(d.varint32()?)),
            SEAL | SEAL_KEEPING => Edit::Seal {
                table: TableId(d.varint32()?),
                segment: SegmentMeta::decode(d)?,
                kept: (tag == SEAL_KEEPING).then(|| RetainedRowsMeta::decode(d)).transpose()?,
            },
            FORGET => Edit::Forget {
                table: TableId(d.varint32()?),
                segments: d.list(|d| d.varint().map(SegmentId))?,
                floor: Lsn(d.varint()?),
            },
            COMPACT | COMPACT_KEEPING => Edit::Compact {
                table: TableId(d.varint32()?),
                inputs: d.list(|d| d.varint().map(SegmentId))?,
                output: d.option(SegmentMeta::decode)?,
                kept: (tag == COMPACT_KEEPING).then(|| RetainedRowsMeta::decode(d)).transpose()?,
            },
            CHECKPOINT => Edit::Checkpoint {
                materializer: d.str()?.to_owned(),
                table: TableId(d.varint32()?),
                row: RowId(d.varint()?),
                lsn: Lsn(d.varint()?),
                state: d.blob()?.to_vec(),
            },
            PUT_KEY => Edit::PutKey(ApiKey::decode(d)?),
            REMOVE_KEY => Edit::RemoveKey { name: d.str()?.to_owned() },
            PUT_VIEW => Edit::PutView(ViewDef::decode(d)?),
            PUT_VIEW_READING => Edit::PutView(ViewDef::decode_with_reads(d)?),
            DROP_VIEW => Edit::DropView { name: d.str()?.to_owned() },
            tag => {
                return Err(Error::new(Kind::Newer, format!("an edit of unknown kind {tag}"))
                    .hint("open this directory with the newer Polynya that wrote it"));
            }
        })
    }
}

impl RetainedRowsMeta {
    fn encode(&self, e: &mut Encoder) {
        e.varint(self.floor.0);
        e.varint(self.last_end.0);
        e.option(self.segment.as_ref(), |e, segment| segment.encode(e));
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        Ok(RetainedRowsMeta {
            floor: Lsn(d.varint()?),
            last_end: Lsn(d.varint()?),
            segment: d.option(SegmentMeta::decode)?,
        })
    }
}

impl SegmentMeta {
    pub fn encode(&self, e: &mut Encoder) {
        e.varint(self.id.0);
        e.varint(self.first_row.0);
        e.varint(self.last_row.0);
        e.varint(self.rows);
        e.varint(self.bytes);
        e.varint(self.schema_version.0.into());
        e.i64(self.first_time);
        e.i64(self.last_time);
        e.varint(self.first_lsn.0);
        e.varint(self.last_lsn.0);
        e.u32(self.crc);
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let meta = SegmentMeta {
            id: SegmentId(d.varint()?),
            first_row: RowId(d.varint()?),
            last_row: RowId(d.varint()?),
            rows: d.varint()?,
            bytes: d.varint()?,
            schema_version: SchemaVersion(d.varint32()?),
            first_time: d.i64()?,
            last_time: d.i64()?,
            first_lsn: Lsn(d.varint()?),
            last_lsn: Lsn(d.varint()?),
            crc: d.u32()?,
        };
        if meta.first_row > meta.last_row || meta.rows.saturating_sub(1) > meta.last_row.0 - meta.first_row.0
        {
            return Err(d.damaged("a segment with more rows than row ids"));
        }
        Ok(meta)
    }
}

impl ApiKey {
    pub fn encode(&self, e: &mut Encoder) {
        e.str(&self.name);
        e.bytes.extend_from_slice(&self.hash);
        e.u8(match self.scope {
            Scope::Read => 1,
            Scope::Write => 2,
            Scope::Admin => 3,
        });
        let only = match &self.tables {
            TableSet::All => None,
            TableSet::Only(names) => Some(names),
        };
        e.option(only, |e, names| e.list(names, |e, name| e.str(name)));
        e.i64(self.created);
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let name = d.str()?.to_owned();
        let mut hash = [0; 32];
        hash.copy_from_slice(d.take(32)?);
        let scope = match d.u8()? {
            1 => Scope::Read,
            2 => Scope::Write,
            3 => Scope::Admin,
            other => return Err(d.damaged(format!("{other} is not a scope"))),
        };
        let only = d.option(|d| d.list(|d| d.str().map(str::to_owned)))?;
        let tables = only.map_or(TableSet::All, TableSet::Only);
        Ok(ApiKey { name, hash, scope, tables, created: d.i64()? })
    }
}

#[cfg(test)]
mod tests;
