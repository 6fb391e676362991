//! Which lakes are of this state of the database, and not of a later one that was lost, or of a copy.
//!
//! A data directory that is put back to an earlier state goes on from there, while its lakes elsewhere stand where they stood.
//! Their row ids and lsns then belong to another history, and the table comes to have such ids and lsns too: numbers alone do
//! not tell. So each time that the directory is opened is a *run*, with an id of its own that every commit of a lake names
//! ([`crate::metadata::RUN`]), and the directory keeps its runs with the lsn at which each ended. A lake is of this state if it
//! names a run that is known here and stands no further than where that ended here; or, if its run is not known, no further
//! than where the directory was when it began to keep them (decision 27).
//!
//! ```text
//! before 17                                 where the directory was when it began to keep runs
//! 8d5c1c9e-… 40                             a run, and the lsn at which the next one began
//! 1f0e77aa-…                                one that has not ended, as far as is known
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use table::Snapshot;
use types::{Error, Lsn, Result, RowId};
use vfs::{Env, Mutex, Rank};

use crate::materializer::table_dir;
use crate::options::Options;
use crate::state::Lake;
use crate::{create, files};

/// In a data directory.
const FILE: &str = "lake-runs";
/// So many runs that committed to a lake are kept; older ones count as before all of them.
const RUNS_MAX: usize = 10_000;

const OTHER_STATE: &str = "it belongs to another state of this database, or of a copy; if that is gone for good, move its directory away and the table lands anew";

/// The runs of a data directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lineage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    env: Env,
    path: PathBuf,
    /// Of this run.
    id: String,
    kept: Mutex<Result<Kept>>,
}

#[derive(Debug)]
struct Kept {
    before: Lsn,
    runs: Vec<Run>,
    /// Whether the file does not say so yet.
    is_new: bool,
}

#[derive(Debug, PartialEq)]
struct Run {
    id: String,
    /// `None` of this one.
    end: Option<Lsn>,
}

impl Lineage {
    /// Of a directory whose newest commit is `lsn`, before anything is committed to it. What cannot be read is said when a lake
    /// is looked at, and what cannot be written down yet is tried once more before one is committed to.
    pub fn open(env: &Env, dir: &Path, lsn: Lsn) -> Lineage {
        let path = dir.join(FILE);
        let mut kept = read(env, &path, lsn);
        if let Ok(kept) = &mut kept {
            for run in kept.runs.iter_mut().filter(|run| run.end.is_none()) {
                run.end = Some(lsn);
                kept.is_new = true;
            }
        }
        let written = kept.as_mut().map_err(|error| error.clone()).and_then(|kept| kept.write(env, &path));
        if let Err(error) = written {
            tracing::warn!("{error}: nothing lands until that is mended");
        }
        let kept = Mutex::new(Rank::new(79, "lake runs"), kept);
        Lineage(Arc::new(Inner { env: env.clone(), path, id: create::uuid(env), kept }))
    }

    /// The id of this run, known to the directory from now on.
    pub(crate) fn begin(&self) -> Result<&str> {
        let mut kept = self.0.kept.lock();
        let kept = kept.as_mut().map_err(|error| error.clone())?;
        if !kept.runs.iter().any(|run| run.end.is_none()) {
            kept.runs.push(Run { id: self.0.id.clone(), end: None });
            let excess = kept.runs.len().saturating_sub(RUNS_MAX);
            let oldest = kept.runs.drain(..excess).filter_map(|run| run.end).max();
            kept.before = kept.before.max(oldest.unwrap_or_default());
            kept.is_new = true;
        }
        kept.write(&self.0.env, &self.0.path)?;
        Ok(&self.0.id)
    }

    /// Whether a lake that stands at `lsn`, by a commit of `run`, is of this state of the database.
    fn has(&self, run: Option<&str>, lsn: Lsn) -> Result<bool> {
        let kept = self.0.kept.lock();
        let kept = kept.as_ref().map_err(|error| error.clone())?;
        Ok(match kept.runs.iter().find(|known| Some(&*known.id) == run) {
            Some(run) => run.end.is_none_or(|end| lsn <= end),
            None => lsn <= kept.before,
        })
    }
}

impl Kept {
    fn write(&mut self, env: &Env, path: &Path) -> Result<()> {
        if !self.is_new {
            return Ok(());
        }
        files::replace(env, path, self.text().as_bytes())?;
        files::sync_dir(env, path.parent().unwrap_or(Path::new(".")))?;
        self.is_new = false;
        Ok(())
    }

    fn text(&self) -> String {
        let runs = self.runs.iter().map(|run| match run.end {
            Some(end) => format!("{} {end}\n", run.id),
            None => format!("{}\n", run.id),
        });
        std::iter::once(format!("before {}\n", self.before)).chain(runs).collect()
    }
}

fn read(env: &Env, path: &Path, lsn: Lsn) -> Result<Kept> {
    if !files::exists(env, path)? {
        return Ok(Kept { before: lsn, runs: Vec::new(), is_new: true });
    }
    parse(&files::read(env, path)?).ok_or_else(|| {
        Error::damaged(format!("{} cannot be read", path.display())).hint(
            "put it back as it was; without it lakes are trusted that stand no further than this directory",
        )
    })
}

fn parse(bytes: &[u8]) -> Option<Kept> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    let before = Lsn(lines.next()?.strip_prefix("before ")?.parse().ok()?);
    let run = |line: &str| match line.split_once(' ') {
        Some((id, end)) => Some(Run { id: id.to_owned(), end: Some(Lsn(end.parse().ok()?)) }),
        None => Some(Run { id: line.to_owned(), end: None }),
    };
    Some(Kept { before, runs: lines.map(run).collect::<Option<_>>()?, is_new: false })
}

/// Refuses a lake that is not of this state of the table, or has not what it alone should have.
pub(crate) fn check(options: &Options, table: &Snapshot, lake: Option<&Lake>) -> Result<()> {
    let def = table.def();
    let lacks = |lake: &Lake| lake.row.next() < table.hot_from();
    if table.has_evicted() && lake.is_none_or(lacks) {
        return Err(Error::damaged(format!(
            "the lake of {} alone has its rows up to {}, and {}",
            def.name,
            RowId(table.hot_from().0 - 1),
            match (lake, &options.catalog) {
                (None, None) => format!("there is none in {}", table_dir(&options.warehouse, &def.name).display()),
                (None, Some(catalog)) => format!("there is none in the catalog at {}", catalog.uri()),
                (Some(lake), _) => format!("what is there ends at row {}", lake.row),
            }
        ))
        .hint("put the warehouse back as it was: nothing is landed there meanwhile, and rows above are read as ever"));
    }
    if let Some(lake) = lake
        && (lake.lsn > table.lsn() || lake.row >= table.next_row())
    {
        return Err(Error::damaged(format!(
            "the lake of {} stands at row {} and lsn {}, ahead of the table, which ends before row {} at lsn {}",
            def.name,
            lake.row,
            lake.lsn,
            table.next_row(),
            table.lsn()
        ))
        .hint(OTHER_STATE));
    }
    // A database that was put back to an earlier state may have come further since.
    if let Some((lake, lineage)) = lake.zip(options.lineage.as_ref())
        && !lineage.has(lake.metadata.run(), lake.lsn)?
    {
        return Err(Error::damaged(format!(
            "the lake of {} stands at row {} and lsn {} of a history that this database has not had",
            def.name, lake.row, lake.lsn
        ))
        .hint(OTHER_STATE));
    }
    // One that was made anew, too: then row ids say nothing, but times do. What came later than the lake's last row must
    // have a higher id.
    if let Some(newest) = lake.and_then(|lake| lake.data.iter().max_by_key(|live| live.last))
        && let Some(time) = newest.last_time()
        && table.row_at_time(time.saturating_add(1))? <= newest.last
    {
        return Err(Error::damaged(format!(
            "the lake of {} has another row {} than the table, which gave that id to one that came later",
            def.name, newest.last
        ))
        .hint(OTHER_STATE));
    }
    Ok(())
}
