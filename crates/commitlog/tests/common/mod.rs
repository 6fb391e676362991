//! Helpers of the log's tests: frames with random content, and a model to compare with.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use polynya_commitlog::edit::Edit;
use polynya_commitlog::record::{CommitRun, Cursor, Deletes, Frame, Idempotency, InsertedRows, Section};
use polynya_commitlog::{Log, Options, Recovery, Writer, frame};
use testkit::Rng;
use types::{Lsn, Result, RowId, SchemaVersion, TableId};
use vfs::Env;

pub const DIR: &str = "log";

pub fn dir() -> &'static Path {
    Path::new(DIR)
}

pub fn small_files() -> Options {
    Options { file_bytes: 16 << 10, spare_files: 1, ..Options::default() }
}

/// A frame as it was appended.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenFrame {
    pub first_lsn: Lsn,
    pub commits: u32,
    pub time: i64,
    pub sections: Vec<Section>,
}

impl WrittenFrame {
    pub fn last_lsn(&self) -> u64 {
        self.first_lsn.0 + u64::from(self.commits) - 1
    }
}

impl From<Frame> for WrittenFrame {
    fn from(frame: Frame) -> Self {
        WrittenFrame {
            first_lsn: frame.first_lsn,
            commits: frame.commits,
            time: frame.time,
            sections: frame.sections,
        }
    }
}

/// Makes a frame whose content depends on `rng`: a few commits, sections of every kind, `bytes` of text or more.
pub fn random_frame(rng: &mut Rng, first_lsn: Lsn, bytes: usize) -> (frame::Builder, WrittenFrame) {
    let time = rng.below(1 << 50) as i64;
    let mut builder = frame::Builder::new(first_lsn, time);
    let commits = rng.range(1..4) as u32;
    for _ in 0..commits {
        builder.commit();
    }
    let rows = rng.range(1..5) as u32;
    let texts = (0..rows).map(|_| rng.word(bytes / rows as usize)).collect::<Vec<_>>();
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| rng.next_u64() as i64)));
    builder.rows(InsertedRows {
        table: TableId(1),
        schema_version: SchemaVersion(1),
        first_row: RowId(rng.range(1..1000)),
        runs: vec![CommitRun { lsn_offset: commits - 1, count: rows }],
        batch: RecordBatch::try_from_iter([("t", texts), ("n", numbers)]).unwrap(),
    });
    let lsn_offset = rng.below(commits.into()) as u32;
    match rng.below(5) {
        0 => builder.deletes(Deletes {
            table: TableId(1),
            runs: vec![CommitRun { lsn_offset, count: 1 }],
            rows: vec![RowId(rng.below(100))],
        }),
        1 => builder.idempotency(Idempotency {
            lsn_offset,
            scope: rng.word(3),
            key: rng.word(8),
            answer: rng.bytes(20),
        }),
        2 => builder.cursor(Cursor { lsn_offset, name: rng.word(5), value: rng.bytes(7) }),
        3 => builder.edit(lsn_offset, Edit::RemoveKey { name: rng.word(4) }),
        _ => {}
    }
    let written = WrittenFrame { first_lsn, commits, time, sections: builder.sections().to_vec() };
    (builder, written)
}

/// Appends a random frame and returns it.
pub fn append(writer: &mut Writer, rng: &mut Rng, bytes: usize) -> Result<WrittenFrame> {
    let (builder, written) = random_frame(rng, writer.next_lsn(), bytes);
    let appended = writer.append(builder)?;
    assert_eq!(appended.last_lsn.0, written.last_lsn());
    Ok(written)
}

/// Opens the log and collects the frames that are replayed.
pub fn open_with(env: &Env, options: Options, from: u64) -> Result<(Writer, Recovery, Vec<WrittenFrame>)> {
    let mut frames = Vec::new();
    let (writer, recovery) = Log::open(env, dir(), options, Lsn(from), &mut |frame| {
        frames.push(WrittenFrame::from(frame));
        Ok(())
    })?;
    Ok((writer, recovery, frames))
}

pub fn open(env: &Env, from: u64) -> Result<(Writer, Recovery, Vec<WrittenFrame>)> {
    open_with(env, small_files(), from)
}

/// Returns the names in the log's directory with this suffix.
pub fn names(env: &Env, suffix: &str) -> Vec<String> {
    let entries = env.disk.list(dir()).unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(suffix)).collect()
}

pub fn path(name: &str) -> PathBuf {
    dir().join(name)
}

/// Returns damage as text, for comparison in tests.
pub fn damage_text(damage: Option<types::Error>) -> Option<String> {
    damage.map(|error| error.to_string())
}
