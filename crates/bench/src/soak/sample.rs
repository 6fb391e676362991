//! Samples the resources of a process that must not grow: memory, file handles, mappings, threads, and its directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

/// The resources of the server and the counters of the soak at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SoakSample {
    pub at_s: f64,
    pub anonymous_bytes: u64,
    pub resident_bytes: u64,
    pub handles: u64,
    pub mappings: u64,
    pub threads: u64,
    pub files: u64,
    /// Allocated bytes on disk.
    pub bytes: u64,
    /// Files and bytes of each part of the directory.
    pub parts: BTreeMap<String, DirectoryPart>,
    /// CPU seconds since the process started.
    pub cpu_seconds: f64,
    /// Rows of all tables.
    pub rows: u64,
    pub lsn: u64,
    /// Statements since the start of the soak.
    pub statements: u64,
    pub refused: u64,
    pub wrong: u64,
    /// Milliseconds of the longest read since the previous sample.
    pub longest_ms: f64,
    pub longest: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryPart {
    pub files: u64,
    pub bytes: u64,
}

/// Samples the figures from `/proc` and the file system. The caller adds the figures of the database.
pub(crate) fn take(pid: u32, directory: &Path) -> Result<SoakSample> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let gone = |error| Error::io(format_args!("looking at process {pid}"), error);
    let status = fs::read_to_string(root.join("status")).map_err(gone)?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    let stat = fs::read_to_string(root.join("stat")).map_err(gone)?;
    let ticks = crate::process::parse_ticks(&stat, rustix::param::clock_ticks_per_second());
    let mut sample = SoakSample {
        anonymous_bytes: number("RssAnon:") * 1024,
        resident_bytes: number("VmRSS:") * 1024,
        threads: number("Threads:"),
        handles: fs::read_dir(root.join("fd")).map_err(gone)?.count() as u64,
        mappings: fs::read_to_string(root.join("maps")).map_err(gone)?.lines().count() as u64,
        cpu_seconds: ticks.as_secs_f64(),
        ..SoakSample::default()
    };
    let mut parts = BTreeMap::new();
    walk(directory, None, &mut parts)?;
    sample.files = parts.values().map(|part: &DirectoryPart| part.files).sum();
    sample.bytes = parts.values().map(|part| part.bytes).sum();
    sample.parts = parts;
    Ok(sample)
}

/// Counts files and bytes by the directories right below the first one.
fn walk(directory: &Path, part: Option<&str>, parts: &mut BTreeMap<String, DirectoryPart>) -> Result<()> {
    // Files may appear and disappear during the walk.
    let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let what = |error| Error::io(format_args!("measuring {}", directory.display()), error);
    let entries = match fs::read_dir(directory) {
        Err(error) if gone(&error) => return Ok(()),
        other => other.map_err(what)?,
    };
    for entry in entries {
        let entry = entry.map_err(what)?;
        let meta = match entry.metadata() {
            Err(error) if gone(&error) => continue,
            other => other.map_err(what)?,
        };
        if meta.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            walk(&entry.path(), Some(part.unwrap_or(&name)), parts)?;
        } else {
            let found = parts.entry(part.unwrap_or(".").to_owned()).or_default();
            found.files += 1;
            found.bytes += meta.blocks() * 512;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_holds_is_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(directory.path().join("tables/1")).expect("folders");
        for name in ["tables/1/a", "tables/b", "c"] {
            fs::write(directory.path().join(name), [1; 5000]).expect("a file");
        }
        let before = take(std::process::id(), directory.path()).expect("/proc is there");
        let held: Vec<_> =
            (0..50).map(|_| fs::File::open(directory.path().join("c")).expect("it is there")).collect();
        let after = take(std::process::id(), directory.path()).expect("/proc is there");
        assert!(before.threads >= 1 && before.mappings > 10 && before.anonymous_bytes > 0, "{before:?}");
        assert!(before.resident_bytes >= before.anonymous_bytes, "{before:?}");
        // Other tests of this process open files too.
        assert!(after.handles >= before.handles + 25, "{} and {}", before.handles, after.handles);
        drop(held);
        assert_eq!((after.files, after.parts["tables"].files, after.parts["."].files), (3, 2, 1));
        assert_eq!(after.parts["tables"].bytes, 2 * after.parts["."].bytes);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(take(u32::MAX, Path::new("/")).is_err());
    }
}
