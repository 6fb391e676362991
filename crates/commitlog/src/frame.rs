//! The builder of frames: one commit group each, written with one gathered write.

use types::{Lsn, Micros};

use crate::edit::Edit;
use crate::record::{Cursor, Deletes, Idempotency, InsertedRows, Section};

/// Bytes that a frame can have, so that recovery knows how much memory one frame can take. The caller splits a group that would
/// exceed it; [`Builder::bytes`] tells in time.
pub const FRAME_BYTES_MAX: u64 = 256 << 20;

/// Collects the sections of one commit group. Cheap: nothing is copied or encoded before [`crate::Writer::append`].
#[derive(Debug)]
pub struct Builder {
    first_lsn: Lsn,
    time: Micros,
    commits: u32,
    sections: Vec<Section>,
    bytes: u64,
}

impl Builder {
    /// Starts a group whose first commit gets `first_lsn` (see [`crate::Writer::next_lsn`]) and whose rows get `time`.
    pub fn new(first_lsn: Lsn, time: Micros) -> Self {
        Builder { first_lsn, time, commits: 0, sections: Vec::new(), bytes: 64 }
    }

    /// Adds a commit to the group and returns its offset from the group's first lsn. A commit may be empty.
    pub fn commit(&mut self) -> u32 {
        self.commits += 1;
        self.commits - 1
    }

    pub fn rows(&mut self, rows: InsertedRows) {
        self.push(Section::Rows(rows));
    }

    pub fn deletes(&mut self, deletes: Deletes) {
        self.push(Section::Deletes(deletes));
    }

    pub fn idempotency(&mut self, idempotency: Idempotency) {
        self.push(Section::Idempotency(idempotency));
    }

    pub fn cursor(&mut self, cursor: Cursor) {
        self.push(Section::Cursor(cursor));
    }

    pub fn edit(&mut self, lsn_offset: u32, edit: Edit) {
        self.push(Section::Edit { lsn_offset, edit });
    }

    pub fn push(&mut self, section: Section) {
        self.bytes += estimate(&section);
        self.sections.push(section);
    }

    pub fn first_lsn(&self) -> Lsn {
        self.first_lsn
    }

    pub fn time(&self) -> Micros {
        self.time
    }

    /// Number of commits so far.
    pub fn commits(&self) -> u32 {
        self.commits
    }

    pub fn is_empty(&self) -> bool {
        self.commits == 0
    }

    /// Estimated length of the frame.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn sections(&self) -> &[Section] {
        &self.sections
    }
}

fn estimate(section: &Section) -> u64 {
    let inner = match section {
        Section::Rows(rows) => {
            let columns = rows.batch.columns();
            let data: usize = columns.iter().map(|column| types::memory::slice_bytes(column)).sum();
            data + columns.len() * 48 + rows.runs.len() * 4
        }
        Section::Deletes(deletes) => deletes.rows.len() * 3 + deletes.runs.len() * 4,
        Section::Idempotency(i) => i.scope.len() + i.key.len() + i.answer.len(),
        Section::Cursor(cursor) => cursor.name.len() + cursor.value.len(),
        Section::Edit { edit, .. } => {
            let mut e = types::codec::Encoder::new();
            edit.encode(&mut e);
            e.bytes.len()
        }
    };
    inner as u64 + 32
}
