//! Rows of a file into a table: in one commit up to [`PIECE_BYTES`], beyond that in pieces of about as much.

use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use engine::{Committed, Engine, Mode, Transaction};
use types::{Error, Kind, Lsn, Principal, Result, TableDef, name};

use super::rows::{Batches, Lines};

/// A larger file becomes several commits.
pub const PIECE_BYTES: usize = 64 << 20;
/// How long a piece waits where writers are refused because there is too much at once.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How often a piece is tried where others change the table's columns.
const ATTEMPTS_MAX: u32 = 8;

/// What a file came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows that were inserted.
    pub count: u64,
    pub commits: u64,
    /// The last of the commits.
    pub lsn: Option<Lsn>,
}

/// Commits the rows of a file. `commit` inserts one batch and waits until it is durable. An error after the first commit says
/// how many rows are there.
pub fn load(rows: Batches, mut commit: impl FnMut(RecordBatch) -> Result<Committed>) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut piece = Piece::default();
    for batch in rows {
        let (batch, lines) = batch.map_err(|error| told(error, loaded))?;
        piece.push(batch, lines);
        if piece.bytes > PIECE_BYTES {
            piece.commit(&mut commit, &mut loaded).map_err(|error| told(error, loaded))?;
        }
    }
    piece.commit(&mut commit, &mut loaded).map_err(|error| told(error, loaded))?;
    Ok(loaded)
}

fn told(error: Error, loaded: Loaded) -> Error {
    if loaded.count == 0 {
        return error;
    }
    let next = "those before are there: copy the rest";
    // What would be tried again is the rest alone.
    let hint = match error.hint_text() {
        Some(hint) if error.kind() != Kind::Conflict => format!("{hint}; {next}"),
        _ => next.to_owned(),
    };
    error.with("rows committed before", loaded.count).hint(hint)
}

/// Inserts rows that were read for the columns of `def`: [`Kind::Conflict`] once its table is another one, or a column of
/// the rows is. Waits as writers are asked to.
pub fn commit(
    engine: &Engine,
    principal: &Principal,
    def: &TableDef,
    batch: RecordBatch,
) -> Result<Committed> {
    thread::sleep(engine.pace_of(&def.name));
    let view = engine.view(principal)?;
    let table = name::short_table_name(&def.name);
    let now = view.find(&def.name).filter(|now| now.def().id == def.id).ok_or_else(|| {
        Error::conflict(format!("table `{table}` was dropped or renamed while the file was read"))
    })?;
    if !def.schema.names_the_same(&now.def().schema, &batch.schema()) {
        return Err(Error::conflict(format!("table `{table}` was altered while the file was read"))
            .hint("copy the file again"));
    }
    engine.commit_read(&view, principal, Transaction::insert(&def.name, batch, Mode::Append))
}

/// Rows that are to be committed at once.
#[derive(Default)]
struct Piece {
    batches: Vec<RecordBatch>,
    bytes: usize,
    lines: Option<Lines>,
}

impl Piece {
    fn push(&mut self, batch: RecordBatch, lines: Lines) {
        self.bytes += batch.get_array_memory_size();
        self.batches.push(batch);
        let first = self.lines.map_or(lines.first, |before| before.first);
        self.lines = Some(Lines { first, last: lines.last });
    }

    fn commit(
        &mut self,
        commit: &mut impl FnMut(RecordBatch) -> Result<Committed>,
        loaded: &mut Loaded,
    ) -> Result<()> {
        let Piece { batches, lines, .. } = std::mem::take(self);
        let Some(first) = batches.first() else { return Ok(()) };
        let whole = concat_batches(&first.schema(), &batches)
            .map_err(|e| Error::internal(format!("the rows of a file make no batch: {e}")))?;
        drop(batches);
        if whole.num_rows() == 0 {
            return Ok(());
        }
        let mut parts = vec![whole];
        while let Some(part) = parts.pop() {
            match written(&part, commit) {
                Ok(committed) => {
                    loaded.count += committed.count;
                    loaded.commits += 1;
                    loaded.lsn = Some(committed.lsn);
                }
                // What the table adds to the rows is not in the file: less of them at once, of which nothing is there.
                Err(error) if error.kind() == Kind::TooLarge && part.num_rows() > 1 => {
                    let half = part.num_rows() / 2;
                    parts.push(part.slice(half, part.num_rows() - half));
                    parts.push(part.slice(0, half));
                }
                Err(error) => {
                    return Err(match lines {
                        Some(lines) if lines.first < lines.last => {
                            error.with("lines", format_args!("{} to {}", lines.first, lines.last))
                        }
                        _ => error,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Commits rows, once. Waits as writers are asked to.
fn written(
    rows: &RecordBatch,
    commit: &mut impl FnMut(RecordBatch) -> Result<Committed>,
) -> Result<Committed> {
    let started = Instant::now();
    let mut changes = 0;
    loop {
        match commit(rows.clone()) {
            // The table was altered just now: whether that concerns these rows is seen by another try.
            Err(error)
                if changes < ATTEMPTS_MAX
                    && error.kind() == Kind::Conflict
                    && error.context().iter().any(|(key, _)| *key == "schema") =>
            {
                // What others changed is there once it is durable.
                thread::sleep(Duration::from_millis(1 << changes));
                changes += 1;
            }
            Err(error) if error.kind() == Kind::Busy && started.elapsed() < BUSY_PATIENCE => {
                thread::sleep(BUSY_PAUSE);
            }
            settled => return settled,
        }
    }
}
