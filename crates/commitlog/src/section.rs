//! Encoding and decoding of sections.

use arrow::buffer::Buffer;
use types::codec::{Decoder, Encoder};
use types::{Error, Kind, Result, RowId, SchemaVersion, TableId};

use crate::batch::{SchemaReader, SchemaWriter, decode_at, encode_into};
use crate::edit::Edit;
use crate::frame::{Builder, FRAME_BYTES_MAX};
use crate::gather::Gather;
use crate::layout::{ALIGN, FRAME_HEADER_BYTES, FrameHeader};
use crate::record::{CommitRun, Cursor, Deletes, Idempotency, InsertedRows, Section};

const ROWS: u32 = 1;
const DELETES: u32 = 2;
const IDEMPOTENCY: u32 = 3;
const CURSOR: u32 = 4;
const EDIT: u32 = 5;

/// Encodes a whole frame into `gather`, with space for its header at the start. A failure changes only `gather`.
pub(crate) fn encode_frame(gather: &mut Gather, frame: &Builder, schemas: &mut SchemaWriter) -> Result<()> {
    gather.clear();
    gather.bytes(&[0; FRAME_HEADER_BYTES]);
    for section in frame.sections() {
        check(section, frame.commits())?;
        encode(gather, section, schemas)?;
        if gather.len() > FRAME_BYTES_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!("a commit group of more than {} MiB", FRAME_BYTES_MAX >> 20),
            )
            .hint("send less at once"));
        }
    }
    Ok(())
}

/// Decodes the sections of a frame. `frame` includes the header.
pub(crate) fn decode_frame(
    frame: &Buffer,
    header: &FrameHeader,
    schemas: &mut SchemaReader,
) -> Result<Vec<Section>> {
    let mut sections = Vec::with_capacity(header.sections.min(4096) as usize);
    let mut position = FRAME_HEADER_BYTES;
    while position < frame.len() {
        let mut d = Decoder::new(&frame[position..]);
        let (tag, len) = (d.u32()?, d.u32()? as usize);
        let start = position + d.position();
        let end = start.checked_add(len).filter(|end| *end <= frame.len());
        let end = end.ok_or_else(|| d.damaged("a section beyond the end of its frame"))?;
        let section = decode(frame, tag, start, end, schemas)
            .and_then(|section| match check(&section, header.commits) {
                Ok(()) => Ok(section),
                Err(error) => Err(Error::damaged(error.message())),
            })
            .map_err(|error| error.with("section at", position))?;
        sections.push(section);
        position = end.next_multiple_of(ALIGN as usize);
    }
    if sections.len() != header.sections as usize {
        return Err(Error::damaged(format!(
            "{} sections expected, {} found",
            header.sections,
            sections.len()
        )));
    }
    Ok(sections)
}

fn encode(gather: &mut Gather, section: &Section, schemas: &mut SchemaWriter) -> Result<()> {
    let tag = match section {
        Section::Rows(_) => ROWS,
        Section::Deletes(_) => DELETES,
        Section::Idempotency(_) => IDEMPOTENCY,
        Section::Cursor(_) => CURSOR,
        Section::Edit { .. } => EDIT,
    };
    gather.bytes(&tag.to_le_bytes());
    let len = gather.slot();
    let start = gather.len();
    let mut e = Encoder::new();
    match section {
        Section::Rows(rows) => {
            e.varint(rows.table.0.into());
            e.varint(rows.schema_version.0.into());
            e.varint(rows.first_row.0);
            encode_runs(&mut e, &rows.runs);
            gather.bytes(&e.bytes);
            let schema = schemas
                .encoded(rows.table, rows.schema_version, rows.batch.schema_ref())
                .map_err(|error| error.with("table id", rows.table))?;
            encode_into(gather, &rows.batch, &schema)?;
        }
        Section::Deletes(deletes) => {
            e.varint(deletes.table.0.into());
            encode_runs(&mut e, &deletes.runs);
            e.varint(deletes.rows.len() as u64);
            let mut previous = 0u64;
            for row in &deletes.rows {
                let delta = row.0.wrapping_sub(previous) as i64;
                e.varint(((delta << 1) ^ (delta >> 63)) as u64);
                previous = row.0;
            }
            gather.bytes(&e.bytes);
        }
        Section::Idempotency(i) => {
            e.varint(i.lsn_offset.into());
            e.str(&i.scope);
            e.str(&i.key);
            e.blob(&i.answer);
            gather.bytes(&e.bytes);
        }
        Section::Cursor(cursor) => {
            e.varint(cursor.lsn_offset.into());
            e.str(&cursor.name);
            e.blob(&cursor.value);
            gather.bytes(&e.bytes);
        }
        Section::Edit { lsn_offset, edit } => {
            e.varint((*lsn_offset).into());
            edit.encode(&mut e);
            gather.bytes(&e.bytes);
        }
    }
    let body = u32::try_from(gather.len() - start);
    gather.fill(len, body.map_err(|_| Error::new(Kind::TooLarge, "a commit group of more than 4 GiB"))?);
    gather.pad(ALIGN);
    Ok(())
}

fn decode(frame: &Buffer, tag: u32, start: usize, end: usize, schemas: &mut SchemaReader) -> Result<Section> {
    let mut d = Decoder::new(&frame[start..end]);
    let section = match tag {
        ROWS => {
            let table = TableId(d.varint32()?);
            let schema_version = SchemaVersion(d.varint32()?);
            let first_row = RowId(d.varint()?);
            let runs = decode_runs(&mut d)?;
            let at = start + d.position();
            let (batch, batch_end) = decode_at(frame, at, end, &mut |bytes| schemas.decoded(table, bytes))?;
            if batch_end != end {
                return Err(Error::damaged(format!("{} bytes follow a batch", end - batch_end)));
            }
            return Ok(Section::Rows(InsertedRows { table, schema_version, first_row, runs, batch }));
        }
        DELETES => {
            let table = TableId(d.varint32()?);
            let runs = decode_runs(&mut d)?;
            let mut previous = 0u64;
            let rows = d.list(|d| {
                let zigzag = d.varint()?;
                let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
                previous = previous.wrapping_add(delta as u64);
                Ok(RowId(previous))
            })?;
            Section::Deletes(Deletes { table, runs, rows })
        }
        IDEMPOTENCY => Section::Idempotency(Idempotency {
            lsn_offset: d.varint32()?,
            scope: d.str()?.to_owned(),
            key: d.str()?.to_owned(),
            answer: d.blob()?.to_vec(),
        }),
        CURSOR => Section::Cursor(Cursor {
            lsn_offset: d.varint32()?,
            name: d.str()?.to_owned(),
            value: d.blob()?.to_vec(),
        }),
        EDIT => Section::Edit { lsn_offset: d.varint32()?, edit: Edit::decode(&mut d)? },
        tag => {
            return Err(Error::new(Kind::Newer, format!("a section of unknown kind {tag}"))
                .hint("open this directory with the newer Polynya that wrote it"));
        }
    };
    d.finish()?;
    Ok(section)
}

fn encode_runs(e: &mut Encoder, runs: &[CommitRun]) {
    e.list(runs, |e, run| {
        e.varint(run.lsn_offset.into());
        e.varint(run.count.into());
    });
}

fn decode_runs(d: &mut Decoder<'_>) -> Result<Vec<CommitRun>> {
    d.list(|d| Ok(CommitRun { lsn_offset: d.varint32()?, count: d.varint32()? }))
}

/// Checks the invariants of a section. They are checked before writing, where a breach is a bug, and after reading.
fn check(section: &Section, commits: u32) -> Result<()> {
    let breach = |what: String| Error::internal(what);
    let runs_fit = |runs: &[CommitRun], count: usize| {
        let total: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if total != count as u64 {
            return Err(breach(format!("runs of {total} rows in a section of {count}")));
        }
        if runs.windows(2).any(|pair| pair[0].lsn_offset >= pair[1].lsn_offset) {
            return Err(breach("runs that do not ascend".into()));
        }
        Ok(runs.last().map_or(0, |run| run.lsn_offset))
    };
    let last_offset = match section {
        Section::Rows(rows) => {
            let count = rows.batch.num_rows();
            if rows.first_row.0 == 0
                || rows.first_row.0.checked_add(count as u64).is_none_or(|end| end > 1 << 63)
            {
                return Err(breach(format!("{count} rows cannot begin with row id {}", rows.first_row)));
            }
            runs_fit(&rows.runs, count)?
        }
        Section::Deletes(deletes) => runs_fit(&deletes.runs, deletes.rows.len())?,
        Section::Idempotency(idempotency) => idempotency.lsn_offset,
        Section::Cursor(cursor) => cursor.lsn_offset,
        Section::Edit { lsn_offset, .. } => *lsn_offset,
    };
    if last_offset >= commits {
        return Err(breach(format!("a section of commit {last_offset} in a frame of {commits}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
