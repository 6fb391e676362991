//! Examines a data directory without changing anything: every checksum, every reference, every count.
//!
//! It reads the directory as recovery does, but with code of its own ([`replay`]). Its findings therefore do not depend on
//! the code that opens a directory, which may refuse or repair something first. A finding names the file or table and the
//! remedy, if there is one. [`examine_running`] makes the same examination inside a running server. A backup is recognised
//! and examined as a backup.

mod lake;
mod replay;
mod running;
mod table;

use std::path::{Path, PathBuf};

use ::table::segment;
use commitlog::FileState;
use engine::{backup, manifest};
use serde::{Deserialize, Serialize};
use types::{Error, Kind, Lsn, Result};
use vfs::Env;

use replay::Replay;
pub use running::examine_running;

/// The end of the finding for a manifest of which one of its two files is damaged.
const OTHER_IS_INTACT: &str =
    "the other one of the manifest and its copy is intact: opening writes both again";

/// One problem that an examination found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A remark, or a state that is expected after a crash and that the next opening repairs.
    Note,
    /// Data that is lost, unreadable or inconsistent.
    Damage,
}

/// The result of an examination: counts of the examined data, and the findings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Examination {
    /// True if the directory is a backup and not a data directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    pub lsn: u64,
    pub tables: Vec<TableReport>,
    pub log_files: usize,
    pub log_frames: u64,
    pub log_bytes: u64,
    pub keys: usize,
    pub findings: Vec<Finding>,
}

/// Counts of one table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TableReport {
    pub name: String,
    pub rows: u64,
    pub deleted: u64,
    pub segments: usize,
    pub segment_bytes: u64,
    pub head_rows: u64,
    /// Live rows that are only in the lake. The table's check does not read them.
    pub lake_rows: u64,
    /// The first row id of the rows on this machine; live rows below it are only in the lake.
    #[serde(default)]
    pub hot_from: u64,
}

impl Examination {
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Damage)
    }

    fn damage(&mut self, what: impl Into<String>) {
        self.findings.push(Finding { severity: Severity::Damage, what: what.into() });
    }

    fn note(&mut self, what: impl Into<String>) {
        self.findings.push(Finding { severity: Severity::Note, what: what.into() });
    }
}

/// Returns a hint that proposes another directory than `dir`, which holds no data.
fn other_directory_hint(dir: &Path) -> String {
    const USUAL: &str = "polynya-data";
    let is_usual = dir.file_name().is_some_and(|name| name == USUAL);
    if is_usual {
        "name the directory that the server was started on (`--data`)".to_owned()
    } else {
        format!("name one: `polynya doctor {}`", dir.join(USUAL).display())
    }
}

/// Examines `dir` and holds its lock meanwhile. `warehouse` is the directory of its lakes; `None` if they are not on a disk
/// of this machine, or in a catalog. `progress` is called with the name of each part before it is examined.
/// An error means that the directory could not be examined: `in_use` if a process has it open, `not_found` if it is not a
/// data directory. Damage is in the examination.
pub fn examine(
    env: &Env,
    dir: &Path,
    warehouse: Option<&Path>,
    progress: &mut dyn FnMut(&str),
) -> Result<Examination> {
    let listed = |error| Error::io(format!("reading {}", dir.display()), error);
    let exists = |name: &str| env.disk.exists(&dir.join(name)).map_err(listed);
    if backup::is_backup(env, dir)? {
        return examine_backup(env, dir, progress);
    }
    let has_log = exists("log")?;
    if !has_log && !exists("tables")? && !manifest::exists(env, dir) {
        return Err(Error::not_found(format!("{} is not a data directory of Polynya", dir.display()))
            .hint(other_directory_hint(dir)));
    }
    let _lock = env.disk.lock(&dir.join("LOCK")).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            Error::new(Kind::InUse, format!("{} is open in another process", dir.display()))
                .hint("stop it first, or examine a copy")
        }
        _ => Error::io(format!("locking {}", dir.display()), error),
    })?;
    let mut examination = Examination::default();
    progress("manifest");
    let manifest = match manifest::read(env, dir) {
        Ok(Some(manifest)) => manifest,
        Ok(None) if !has_log && exists("manifest")? => {
            examination.damage(
                "this is a backup that was interrupted: `BACKUP` is missing, which is written last, so it cannot be restored; use another one",
            );
            return Ok(examination);
        }
        Ok(None) => {
            examination.damage(
                "the manifest and its copy are missing, and nothing can be read without them: restore a backup",
            );
            return Ok(examination);
        }
        Err(error) if error.kind() == Kind::Damaged => {
            examination.damage(format!(
                "{error}; its copy cannot be read either, and nothing can be read without them: restore a backup"
            ));
            return Ok(examination);
        }
        Err(error) => return Err(error),
    };
    if let Some(error) = manifest::check(env, dir)? {
        examination.damage(format!("{error}; {OTHER_IS_INTACT}"));
    }
    examination.lsn = manifest.lsn.0;
    for state in &manifest.tables {
        table::check_state(state, manifest.next_segment, &mut examination);
    }

    progress("log");
    let mut replay = Replay::new(env, dir, &manifest, &mut examination);
    let log = dir.join("log");
    let report = has_log.then(|| {
        commitlog::verify(env, &log, manifest.replay_from, manifest.lsn, &mut |frame| replay.frame(frame))
    });
    let report = report.transpose()?;
    let Replay { tips, keys, problems, .. } = replay;
    examination.keys = keys;
    for problem in problems {
        examination.damage(problem);
    }
    match report {
        Some(report) => report_log(report, &manifest, &mut examination),
        None => examination.damage(format!(
            "the folder `log` is missing, and with it every commit from lsn {} on whose rows are not in a segment: put it back, \
             or restore a backup",
            manifest.replay_from
        )),
    }

    let tips = tips.into_values().collect();
    let known = check_tables(tips, progress, &mut examination);
    lake::check(env, dir, warehouse, progress, &mut examination);
    check_files(env, dir, &known, &mut examination)?;
    Ok(examination)
}

/// Examines a backup: its files, which a restore also checks, and its rows, which otherwise only the next server would check.
fn examine_backup(env: &Env, dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<Examination> {
    let mut examination = Examination { backup: true, ..Examination::default() };
    let verified = match backup::verify(env, dir, progress) {
        Ok(verified) => verified,
        Err(error) if error.kind() == Kind::Damaged => {
            examination.damage(format!("{error}; it cannot be restored: use another backup"));
            return Ok(examination);
        }
        Err(error) => return Err(error),
    };
    examination.lsn = verified.backup.lsn.0;
    for error in verified.wrong {
        examination.damage(error.to_string());
    }
    let Some(manifest) = verified.manifest else { return Ok(examination) };
    for state in &manifest.tables {
        table::check_state(state, manifest.next_segment, &mut examination);
    }
    if verified.is_named_by_content {
        examination.note(
            "its files are stored as in an object store, and were compared with their checksums; restore it, and the \
             restored directory can be examined row by row",
        );
        return Ok(examination);
    }
    let Replay { tips, keys, .. } = Replay::new(env, dir, &manifest, &mut examination);
    examination.keys = keys;
    check_tables(tips.into_values().collect(), progress, &mut examination);
    Ok(examination)
}

/// Copies the counts of the log's check into the examination, and reports damage and a torn tail.
fn report_log(report: commitlog::Report, manifest: &manifest::Manifest, examination: &mut Examination) {
    examination.log_frames = report.frames;
    examination.log_files = report.files.iter().filter(|file| file.state == FileState::Read).count();
    examination.log_bytes = report.files.iter().map(|file| file.bytes).sum();
    if let Some(damage) = report.damage {
        examination.damage(format!("{damage}; commits after lsn {} cannot be read", report.last_lsn));
    } else if report.last_lsn < manifest.lsn {
        examination.damage(format!(
            "the log ends at lsn {}, the manifest was written at {}",
            report.last_lsn, manifest.lsn
        ));
    } else if report.torn_bytes > 0 {
        examination.note(format!(
            "the log ends in {} bytes that are not a whole commit, as after a crash; the next opening cuts them off. If \
             nothing crashed, they were a commit: restore it from a backup before this database is opened",
            report.torn_bytes
        ));
    }
    examination.lsn = examination.lsn.max(report.last_lsn.0);
}

/// Checks every table, and returns the paths, relative to the directory, of all files that belong to their segments.
fn check_tables(
    mut tips: Vec<::table::Tip>,
    progress: &mut dyn FnMut(&str),
    examination: &mut Examination,
) -> Vec<PathBuf> {
    let lsn = Lsn(examination.lsn);
    let mut known = Vec::new();
    tips.sort_by(|a, b| a.def().name.cmp(&b.def().name));
    for tip in tips {
        let snapshot = tip.snapshot(lsn);
        progress(&snapshot.def().name);
        let table_dir = segment::table_dir(Path::new(""), snapshot.def().id);
        known.extend(
            snapshot
                .segments()
                .chain(snapshot.past_segments().map(|(segment, _)| segment))
                .flat_map(|s| segment::file_names(s.id()))
                .map(|name| table_dir.join(name)),
        );
        let report = table::check(&snapshot, &|segment| segment.verify(), examination);
        examination.tables.push(report);
    }
    known
}

/// Notes the files of segments that no table refers to. An interrupted seal leaves them, or a compaction whose inputs were
/// still read.
fn check_files(env: &Env, dir: &Path, known: &[PathBuf], examination: &mut Examination) -> Result<()> {
    let list = |path: &Path| {
        env.disk.list(path).map_err(|error| Error::io(format!("listing {}", path.display()), error))
    };
    let tables = dir.join("tables");
    if !env.disk.exists(&tables).map_err(|error| Error::io("looking for tables", error))? {
        return Ok(());
    }
    for entry in list(&tables)?.into_iter().filter(|entry| entry.is_dir) {
        for file in list(&tables.join(&entry.name))? {
            let relative = Path::new("tables").join(&entry.name).join(&file.name);
            if !known.contains(&relative) {
                examination.note(format!(
                    "nothing names {} any more; the next opening removes it",
                    relative.display()
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
