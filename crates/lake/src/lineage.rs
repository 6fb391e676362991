//! The lineage of a data directory. It distinguishes lakes of this state of the database from those of a later state that
//! was lost, or of a copy.
//!
//! A data directory that is restored to an earlier state goes on from there, while its lakes elsewhere stay at their
//! positions. Their row ids and lsns then belong to another history, and the table assigns the same numbers again, so
//! numbers alone cannot tell the difference. Therefore each opening of the directory is a *run* with an id of its own,
//! which every commit of a lake names ([`iceberg::metadata::RUN`]). The directory keeps its runs with the lsn at which each
//! ended. A lake belongs to this state if it names a run that is known here, and stands no further than the end of that
//! run. A lake of an unknown run belongs to it if it stands no further than the directory did when it began to keep runs
//! (decision 27).
//!
//! ```text
//! crc32c 8a9136aa                           of all lines below
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

/// Name of the file in the data directory.
const FILE: &str = "lake-runs";
/// Prefix of the line with the checksum of all other lines.
const CHECKSUM: &str = "crc32c ";
/// Number of recent runs with commits to a lake that are kept. Older ones count as older than all of these.
const RUNS_MAX: usize = 10_000;

const OWN_LAKE_HINT: &str = "if it is this database's own, because an older version of the program landed since, stop the server, remove `lake-runs` in the data directory and start it again";
const OTHER_STATE_HINT: &str = "it belongs to another state of this database, or of a copy; if that is gone for good, move its directory away and the table lands anew";

/// The runs of a data directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lineage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    env: Env,
    path: PathBuf,
    /// Id of this run.
    id: String,
    /// The lsn at which this run began, if it is known.
    lsn: Option<Lsn>,
    /// The runs in the file; `None` until it could be read.
    log: Mutex<Option<RunLog>>,
}

#[derive(Debug)]
struct RunLog {
    before: Lsn,
    runs: Vec<DatabaseRun>,
    /// True if the file does not have this state yet.
    is_new: bool,
}

#[derive(Debug, PartialEq)]
struct DatabaseRun {
    id: String,
    /// Lsn at which the run ended; `None` for the present run, and for runs before a damaged log was opened.
    end: Option<Lsn>,
}

impl Lineage {
    /// Opens the lineage of a directory at `lsn`, or at `None` if the lsn is uncertain: then no run ends. A failed read or
    /// write is retried when a lake is checked, and before a commit to one.
    pub fn open(env: &Env, dir: &Path, lsn: Option<Lsn>) -> Lineage {
        let log = Mutex::new(Rank::new(79, "lake runs"), None);
        let (env, path, id) = (env.clone(), dir.join(FILE), create::uuid(env));
        let lineage = Lineage(Arc::new(Inner { env, path, id, lsn, log }));
        if let Err(error) = lineage.with_log(|log| lineage.write(log)) {
            tracing::warn!("{error}: nothing lands until that is repaired");
        }
        lineage
    }

    /// Returns the id of this run after recording it in the directory.
    pub(crate) fn register_run(&self) -> Result<&str> {
        if self.0.lsn.is_none() {
            return Err(Error::damaged("the log is damaged: nothing lands meanwhile"));
        }
        self.with_log(|log| {
            if !log.runs.iter().any(|run| run.id == self.0.id) {
                log.runs.push(DatabaseRun { id: self.0.id.clone(), end: None });
                let excess = log.runs.len().saturating_sub(RUNS_MAX);
                let oldest = log.runs.drain(..excess).filter_map(|run| run.end).max();
                log.before = log.before.max(oldest.unwrap_or_default());
                log.is_new = true;
            }
            self.write(log)
        })?;
        Ok(&self.0.id)
    }

    /// Returns true if a lake at `lsn`, committed by `run`, belongs to this state of the database.
    fn includes(&self, run: Option<&str>, lsn: Lsn) -> Result<bool> {
        self.with_log(|log| {
            // The ends of runs stay known until the next commit, so a full disk need not keep lakes from being read.
            let _ = self.write(log);
            Ok(match log.runs.iter().find(|known| Some(&*known.id) == run) {
                Some(run) => run.end.is_none_or(|end| lsn <= end),
                None => lsn <= log.before,
            })
        })
    }

    fn with_log<T>(&self, what: impl FnOnce(&mut RunLog) -> Result<T>) -> Result<T> {
        let mut log = self.0.log.lock();
        if log.is_none() {
            *log = Some(read(&self.0.env, &self.0.path, self.0.lsn)?);
        }
        what(log.as_mut().expect("it was just read"))
    }

    fn write(&self, log: &mut RunLog) -> Result<()> {
        if !log.is_new {
            return Ok(());
        }
        let Inner { env, path, .. } = &*self.0;
        files::replace(env, path, log.text().as_bytes())?;
        files::sync_dir(env, path.parent().unwrap_or(Path::new(".")))?;
        log.is_new = false;
        Ok(())
    }
}

impl RunLog {
    fn text(&self) -> String {
        let runs = self.runs.iter().map(|run| match run.end {
            Some(end) => format!("{} {end}\n", run.id),
            None => format!("{}\n", run.id),
        });
        let lines: String = std::iter::once(format!("before {}\n", self.before)).chain(runs).collect();
        format!("{CHECKSUM}{:08x}\n{lines}", crc32c::crc32c(lines.as_bytes()))
    }
}

/// Fails with [`types::Kind::Damaged`] if a directory has a file of runs that cannot be read.
pub fn check_file(env: &Env, dir: &Path) -> Result<()> {
    read(env, &dir.join(FILE), None).map(drop)
}

/// Reads the runs of a directory. Unfinished ones end at `lsn`, at which the directory was opened.
fn read(env: &Env, path: &Path, lsn: Option<Lsn>) -> Result<RunLog> {
    if !files::exists(env, path)? {
        let before = lsn.unwrap_or(Lsn(u64::MAX));
        return Ok(RunLog { before, runs: Vec::new(), is_new: lsn.is_some() });
    }
    let mut log = parse(&files::read(env, path)?).ok_or_else(|| {
        Error::damaged(format!("{} cannot be read", path.display())).hint(
            "put it back as it was; without it lakes are trusted that stand no further than this directory",
        )
    })?;
    for run in log.runs.iter_mut().filter(|run| run.end.is_none() && lsn.is_some()) {
        (run.end, log.is_new) = (lsn, true);
    }
    Ok(log)
}

fn parse(bytes: &[u8]) -> Option<RunLog> {
    let mut text = std::str::from_utf8(bytes).ok()?;
    // Earlier versions wrote no checksum.
    if let Some(rest) = text.strip_prefix(CHECKSUM) {
        let (sum, lines) = rest.split_once('\n')?;
        text = lines;
        if sum != format!("{:08x}", crc32c::crc32c(lines.as_bytes())) {
            return None;
        }
    }
    let mut lines = text.lines();
    let before = Lsn(lines.next()?.strip_prefix("before ")?.parse().ok()?);
    let run = |line: &str| match line.split_once(' ') {
        Some((id, end)) => Some(DatabaseRun { id: id.to_owned(), end: Some(Lsn(end.parse().ok()?)) }),
        None => Some(DatabaseRun { id: line.to_owned(), end: None }),
    };
    Some(RunLog { before, runs: lines.map(run).collect::<Option<_>>()?, is_new: false })
}

/// Refuses a lake that is of another state of the table, or that lacks rows which only the lake should have.
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
                (Some(lake), _) => format!("the one there ends at row {}", lake.row),
            }
        ))
        .hint("put the warehouse back as it was: nothing is landed there meanwhile, and rows above are read as usual"));
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
        .hint(OTHER_STATE_HINT));
    }
    // A database that was restored to an earlier state may have reached higher lsns since.
    if let Some((lake, lineage)) = lake.zip(options.lineage.as_ref())
        && !lineage.includes(lake.metadata.run(), lake.lsn)?
    {
        return Err(Error::damaged(format!(
            "the lake of {} stands at row {} and lsn {} of a history that this database has not had",
            def.name, lake.row, lake.lsn
        ))
        // A lake that alone has some rows must not be moved away.
        .hint(if table.has_evicted() {
            OWN_LAKE_HINT.to_owned()
        } else {
            format!("{OTHER_STATE_HINT}; {OWN_LAKE_HINT}")
        }));
    }
    // The lake may also be of a database that was created anew. Row ids cannot show that, but times do: a row that arrived
    // after the lake's last row must have a higher id.
    if let Some(newest) = lake.and_then(|lake| lake.data.iter().max_by_key(|live| live.last))
        && let Some(time) = newest.last_time()
        && table.row_at_time(time.saturating_add(1))? <= newest.last
    {
        return Err(Error::damaged(format!(
            "the lake of {} has another row {} than the table, which gave that id to one that came later",
            def.name, newest.last
        ))
        .hint(OTHER_STATE_HINT));
    }
    Ok(())
}
