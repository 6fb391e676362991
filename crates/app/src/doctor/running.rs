//! The examination of a running process: inside the process that has the directory open, beside its readers and writers.
//!
//! It examines one root. The root's segments are opened again and read from the disk, because the process's own memory may
//! differ from the disk. The log is read as recovery would, while the writer goes on. A place that cannot be read is
//! reported as damage only if a second pass finds it too, because the writer may have been writing it.

use std::path::Path;
use std::sync::Arc;

use ::table::{Segment, segment};
use commitlog::FileState;
use engine::{Engine, manifest};
use types::{Kind, Lsn, Result, SegmentId};
use vfs::Env;

use super::{Examination, OTHER_IS_INTACT, table};

/// Passes over the log while each pass ends at another lsn.
const PASSES: usize = 6;

/// Examines the newest root of a running engine. `progress` is called with the name of each part before it is examined; an
/// error from it ends the examination.
pub fn examine_running(engine: &Engine, progress: &mut dyn FnMut(&str) -> Result<()>) -> Result<Examination> {
    let (env, dir) = (engine.env(), engine.dir());
    let root = engine.root();
    let mut examination =
        Examination { lsn: root.lsn().0, keys: root.keys().len(), ..Examination::default() };
    if let Some(error) = engine.status().write_error {
        examination.damage(format!("writes are refused: {error}"));
    }
    progress("log")?;
    check_log(env, dir, root.lsn(), &mut examination)?;
    // Each snapshot is dropped after its check, so that the examination does not keep all old segments for its whole time.
    let mut tables: Vec<_> = root.tables().cloned().collect();
    tables.reverse();
    drop(root);
    while let Some(snapshot) = tables.pop() {
        let def = snapshot.def();
        progress(&def.name)?;
        // The next segment id is not part of a root, so the check of ids is skipped.
        table::check_state(&snapshot.state(), SegmentId(u64::MAX), &mut examination);
        let table_dir = segment::table_dir(dir, def.id);
        let verify = |open: &Arc<Segment>| Segment::open(env, &table_dir, def, open.meta().clone()).verify();
        let report = table::check(&snapshot, &verify, &mut examination);
        examination.tables.push(report);
    }
    Ok(examination)
}

/// Reads the log, which must reach at least `lsn`, and reports damage.
fn check_log(env: &Env, dir: &Path, lsn: Lsn, examination: &mut Examination) -> Result<()> {
    let mut seen: Option<(Lsn, String)> = None;
    let mut is_reported = false;
    for pass in 0..PASSES {
        let mut damaged = None;
        let report = manifest::read(env, dir).and_then(|manifest| {
            let manifest = manifest.unwrap_or_default();
            damaged = manifest::check(env, dir)?;
            commitlog::verify(env, &dir.join("log"), manifest.replay_from, manifest.lsn, &mut |_| Ok(()))
        });
        let report = match report {
            Ok(report) => report,
            // A file was renamed or removed between listing and opening it.
            Err(error) if error.kind() == Kind::Io && pass + 1 < PASSES => continue,
            Err(error) if error.kind() == Kind::Damaged => {
                examination.damage(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // The manifest was replaced during this pass: the next pass finds its successor.
        if damaged.as_ref().is_some_and(|error| error.kind() == Kind::Io) && pass + 1 < PASSES {
            continue;
        }
        if let Some(error) = damaged.filter(|_| !is_reported) {
            is_reported = true;
            examination.damage(format!("{error}; {OTHER_IS_INTACT}"));
        }
        examination.log_frames = report.frames;
        examination.log_files = report.files.iter().filter(|file| file.state == FileState::Read).count();
        examination.log_bytes = report.files.iter().map(|file| file.bytes).sum();
        let wrong = match report.damage {
            Some(damage) => format!("{damage}; commits after lsn {} cannot be read", report.last_lsn),
            None if report.last_lsn < lsn => {
                format!("the log ends at lsn {}, lsn {lsn} was acknowledged", report.last_lsn)
            }
            None => return Ok(()),
        };
        if seen.as_ref().is_some_and(|(last, _)| *last == report.last_lsn) {
            examination.damage(wrong);
            return Ok(());
        }
        seen = Some((report.last_lsn, wrong));
    }
    examination.note("the log changed at every attempt; examine it again when less is written");
    Ok(())
}
