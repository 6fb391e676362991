//! Loads the rows of a file into a table: in one commit up to [`PIECE_BYTES`], else in pieces of about that size.

use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use engine::{Committed, Engine, Mode, Transaction};
use types::{Error, Kind, Lsn, Principal, Result, TableDef, name};

use super::rows::{Batches, LineRange};

/// Bytes of one piece; a larger file becomes several commits.
pub const PIECE_BYTES: usize = 64 << 20;
/// Commits that one piece may become. A piece is split if the table adds so many bytes to its rows that they exceed one commit;
/// without a bound a few bytes of a file could become any number of commits.
pub const COMMITS_OF_PIECE_MAX: usize = 64;
/// Time that a piece waits while writers are refused because there is too much to do.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Attempts at a piece while others change the table's columns.
const ATTEMPTS_MAX: u32 = 8;

/// The result of loading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Rows that were inserted.
    pub count: u64,
    pub commits: u64,
    /// The lsn of the last commit.
    pub lsn: Option<Lsn>,
}

/// Commits the rows of a file. `commit` inserts one batch and waits until it is durable. An error after the first commit tells
/// how many rows were inserted.
pub fn load(rows: Batches, mut commit: impl FnMut(RecordBatch) -> Result<Committed>) -> Result<LoadSummary> {
    let mut loaded = LoadSummary::default();
    let mut piece = PendingCommit::default();
    for batch in rows {
        let (batch, lines) = batch.map_err(|error| with_rows_committed(error, loaded))?;
        piece.push(batch, lines);
        if piece.bytes > PIECE_BYTES {
            piece.commit(&mut commit, &mut loaded).map_err(|error| with_rows_committed(error, loaded))?;
        }
    }
    piece.commit(&mut commit, &mut loaded).map_err(|error| with_rows_committed(error, loaded))?;
    Ok(loaded)
}

/// Returns the error of a piece that was split into [`COMMITS_OF_PIECE_MAX`] commits and is not done. `bytes`: the size of
/// pieces.
pub fn too_many_commits(bytes: usize) -> Error {
    let message = format!(
        "{} MiB of rows or less become more than {COMMITS_OF_PIECE_MAX} commits in this table",
        bytes >> 20
    );
    Error::new(Kind::TooLarge, message).hint("send fewer rows at once")
}

fn with_rows_committed(error: Error, loaded: LoadSummary) -> Error {
    if loaded.count == 0 {
        return error;
    }
    let next = "those before are there: copy the rest";
    // The hint of a conflict says to copy again, but only the rest must be.
    let hint = match error.hint_text() {
        Some(hint) if error.kind() != Kind::Conflict => format!("{hint}; {next}"),
        _ => next.to_owned(),
    };
    error.with("rows committed before", loaded.count).hint(hint)
}

/// Inserts rows that were read for the columns of `def`. Returns [`Kind::Conflict`] if the table was replaced, or a column of the
/// rows was. Sleeps first as long as the engine's back-pressure demands.
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
    if !def.schema.resolves_alike(&now.def().schema, &batch.schema()) {
        return Err(Error::conflict(format!("table `{table}` was altered while the file was read"))
            .hint("copy the file again"));
    }
    engine.commit_read(&view, principal, Transaction::insert(&def.name, batch, Mode::Append))
}

/// Rows that are committed together.
#[derive(Default)]
struct PendingCommit {
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// The lines of each batch.
    lines: Vec<LineRange>,
}

impl PendingCommit {
    fn push(&mut self, batch: RecordBatch, lines: LineRange) {
        self.bytes += batch.get_array_memory_size();
        self.batches.push(batch);
        self.lines.push(lines);
    }

    fn commit(
        &mut self,
        commit: &mut impl FnMut(RecordBatch) -> Result<Committed>,
        loaded: &mut LoadSummary,
    ) -> Result<()> {
        let PendingCommit { batches, lines, .. } = std::mem::take(self);
        let Some(first) = batches.first() else { return Ok(()) };
        let whole = concat_batches(&first.schema(), &batches)
            .map_err(|e| Error::internal(format!("the rows of a file make no batch: {e}")))?;
        let counts: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
        drop(batches);
        if whole.num_rows() == 0 {
            return Ok(());
        }
        let (mut parts, mut commits, mut done) = (vec![whole], 0, 0);
        while let Some(part) = parts.pop() {
            if commits == COMMITS_OF_PIECE_MAX {
                return Err(too_many_commits(PIECE_BYTES));
            }
            match commit_with_retry(&part, commit) {
                Ok(committed) => {
                    loaded.count += committed.count;
                    loaded.commits += 1;
                    loaded.lsn = Some(committed.lsn);
                    commits += 1;
                    done += part.num_rows();
                }
                // The table adds bytes that the file does not have. Nothing was inserted, so half of the rows are tried.
                Err(error) if error.kind() == Kind::TooLarge && part.num_rows() > 1 => {
                    let half = part.num_rows() / 2;
                    parts.push(part.slice(half, part.num_rows() - half));
                    parts.push(part.slice(0, half));
                }
                Err(error) => {
                    return Err(match lines_of(&counts, &lines, done, part.num_rows()) {
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

/// Returns the lines of the batches that contain some of `rows` rows after the first `first`.
fn lines_of(counts: &[usize], lines: &[LineRange], first: usize, rows: usize) -> Option<LineRange> {
    let mut before = 0;
    let mut found = counts.iter().zip(lines).filter(|(count, _)| {
        let begin = before;
        before += **count;
        begin < first + rows && first < before
    });
    let (_, begin) = found.next()?;
    let (_, end) = found.last().unwrap_or((&0, begin));
    Some(LineRange { first: begin.first, last: end.last })
}

/// Commits rows once. Retries while the table is being altered, and while the engine is busy.
fn commit_with_retry(
    rows: &RecordBatch,
    commit: &mut impl FnMut(RecordBatch) -> Result<Committed>,
) -> Result<Committed> {
    let started = Instant::now();
    let mut changes = 0;
    loop {
        match commit(rows.clone()) {
            // The table was just altered: the next attempt shows whether that concerns these rows.
            Err(error)
                if changes < ATTEMPTS_MAX
                    && error.kind() == Kind::Conflict
                    && error.context().iter().any(|(key, _)| *key == "schema") =>
            {
                // The alteration is visible once it is durable.
                thread::sleep(Duration::from_millis(1 << changes));
                changes += 1;
            }
            Err(error) if error.kind() == Kind::Busy && started.elapsed() < BUSY_TIMEOUT => {
                thread::sleep(BUSY_PAUSE);
            }
            settled => return settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    /// Loads a file of batches of 10 rows, one line each, into a table where a commit takes at most `rows_max` rows and refuses
    /// the row `bad`.
    fn loaded(batches: u64, rows_max: usize, bad: Option<i64>) -> Result<LoadSummary> {
        let rows = (0..batches as i64).map(|at| {
            let numbers = Arc::new(Int64Array::from_iter_values(at * 10..at * 10 + 10)) as ArrayRef;
            let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
            Ok((batch, LineRange { first: at as u64 * 10 + 1, last: at as u64 * 10 + 10 }))
        });
        load(Box::new(rows.collect::<Vec<_>>().into_iter()), |batch| {
            let count = batch.num_rows();
            if count > rows_max {
                return Err(Error::new(Kind::TooLarge, "too many rows"));
            }
            let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            if bad.is_some_and(|bad| numbers.values().contains(&bad)) {
                return Err(Error::new(Kind::Exists, "a row with this key is there"));
            }
            let (count, row) = (count as u64, None);
            Ok(Committed { lsn: Lsn(1), time: 0, first_row: row, last_row: row, count, deleted: 0 })
        })
    }

    #[test]
    fn a_piece_becomes_so_many_commits_and_no_more() {
        let found = loaded(10, 2, None).unwrap();
        assert_eq!((found.count, found.commits), (100, 64));
        let error = loaded(10, 1, None).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge);
        assert!(error.to_string().contains("become more than 64 commits"), "{error}");
        assert_eq!(error.context(), [("rows committed before", "64".to_owned())]);
    }

    #[test]
    fn an_error_names_the_lines_of_the_rows_that_were_not_taken() {
        let lines = |rows_max, bad| {
            let error = loaded(4, rows_max, Some(bad)).unwrap_err();
            error.context().iter().find(|(key, _)| *key == "lines").map(|(_, lines)| lines.clone())
        };
        assert_eq!(lines(40, 25).as_deref(), Some("1 to 40"));
        assert_eq!(lines(20, 25).as_deref(), Some("21 to 40"));
        assert_eq!(lines(10, 25).as_deref(), Some("21 to 30"));
        assert_eq!(lines(5, 7).as_deref(), Some("1 to 10"));
    }
}
