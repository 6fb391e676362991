//! The content of a frame: sections, which are applied in order.

use arrow::array::RecordBatch;
use types::{Lsn, Micros, RowId, SchemaVersion, TableId};

use crate::edit::Edit;

/// The share of one commit in a section's rows or row ids, in order: `count` of them belong to the commit at
/// `first_lsn + lsn_offset` of the frame. Within a section, offsets ascend strictly and counts add up to the section's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRun {
    pub lsn_offset: u32,
    pub count: u32,
}

/// New row versions of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertedRows {
    pub table: TableId,
    /// The version of the schema under which `batch` was written.
    pub schema_version: SchemaVersion,
    /// Row id of the first row; the others follow without gaps.
    pub first_row: RowId,
    pub runs: Vec<CommitRun>,
    /// The user columns (`_row_id` and `_time` follow from `first_row` and the frame's time). Each field has its
    /// column id in the metadata, as [`types::Schema::to_arrow`] sets it.
    pub batch: RecordBatch,
}

/// Row versions that are deleted or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletes {
    pub table: TableId,
    pub runs: Vec<CommitRun>,
    pub rows: Vec<RowId>,
}

/// The answer to a request with an idempotency key, so that a repeated request gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub lsn_offset: u32,
    /// The scope in which `key` is unique: principal and route, as the engine chooses.
    pub scope: String,
    pub key: String,
    pub answer: Vec<u8>,
}

/// The position of a feed in its source. It moves in the same commit as the rows that it brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub lsn_offset: u32,
    pub name: String,
    pub value: Vec<u8>,
}

/// One part of a frame.
#[allow(clippy::large_enum_variant, reason = "a frame has few edits, and rows are behind pointers")]
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    Rows(InsertedRows),
    Deletes(Deletes),
    Idempotency(Idempotency),
    Cursor(Cursor),
    Edit { lsn_offset: u32, edit: Edit },
}

/// A commit group as recovery reads it back.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Lsn of the first commit; those of the others follow without gaps.
    pub first_lsn: Lsn,
    /// Number of commits; at least 1.
    pub commits: u32,
    /// `_time` of all rows of the frame.
    pub time: Micros,
    /// The highest lsn known to be durable when the frame was written.
    pub durable_lsn: Lsn,
    pub sections: Vec<Section>,
    /// Epoch of the frame's file.
    pub epoch: u64,
    /// Offset of the frame in that file.
    pub offset: u64,
    /// Length of the frame there, padding included.
    pub bytes: u64,
}

impl Frame {
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0 + u64::from(self.commits) - 1)
    }

    /// Returns the part of the frame that the commits up to `last` did, for a replay that ends in the middle of a group. `None`
    /// if all came later.
    pub fn up_to(mut self, last: Lsn) -> Option<Frame> {
        if last >= self.last_lsn() {
            return Some(self);
        }
        let commits = last.next().0.checked_sub(self.first_lsn.0).filter(|commits| *commits > 0)? as u32;
        self.commits = commits;
        self.sections = self.sections.into_iter().filter_map(|section| section.below(commits)).collect();
        Some(self)
    }
}

impl Section {
    /// Returns the part of the section that commits with a smaller offset did, if any.
    fn below(self, offset: u32) -> Option<Section> {
        // Offsets of a section ascend.
        let cut = |runs: &mut Vec<CommitRun>| {
            runs.truncate(runs.partition_point(|run| run.lsn_offset < offset));
            runs.iter().map(|run| run.count as usize).sum::<usize>()
        };
        match self {
            Section::Rows(mut rows) => {
                let count = cut(&mut rows.runs);
                rows.batch = rows.batch.slice(0, count);
                (count > 0).then_some(Section::Rows(rows))
            }
            Section::Deletes(mut deletes) => {
                let count = cut(&mut deletes.runs);
                deletes.rows.truncate(count);
                (count > 0).then_some(Section::Deletes(deletes))
            }
            Section::Idempotency(i) => (i.lsn_offset < offset).then_some(Section::Idempotency(i)),
            Section::Cursor(cursor) => (cursor.lsn_offset < offset).then_some(Section::Cursor(cursor)),
            Section::Edit { lsn_offset, edit } => {
                (lsn_offset < offset).then_some(Section::Edit { lsn_offset, edit })
            }
        }
    }
}
