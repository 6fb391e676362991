//! Describes the machine on which the figures were measured.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine as a report describes it, without host or user name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    pub cpu: String,
    pub memory_bytes: u64,
    pub kernel: String,
    pub architecture: String,
    /// True if the measuring code was compiled with optimisation.
    pub optimised: bool,
}

impl Machine {
    pub fn here() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kilobytes: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            memory_bytes: kilobytes * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            architecture: std::env::consts::ARCH.into(),
            optimised: !cfg!(debug_assertions),
        }
    }
}

/// Returns the type of the file system that holds `path`: `ext4`, `tmpfs` (on which an fsync means nothing), …
pub fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    find_file_system(&mounts, &path).unwrap_or("unknown").to_owned()
}

/// Finds the deepest mount above `path`. A line reads `id parent major:minor root mount-point options [tags] - type source
/// options`. The last of several mounts at one point counts.
fn find_file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let (left, right) = line.split_once(" - ")?;
        let point = Path::new(left.split(' ').nth(4)?);
        let depth = point.components().count();
        if path.starts_with(point) && best.is_none_or(|(deepest, _)| depth >= deepest) {
            best = Some((depth, right.split(' ').next()?));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_names_the_file_system() {
        let mounts = "\
            22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            23 22 0:20 / /data rw - tmpfs tmpfs rw\n\
            24 22 0:21 / /data/fast rw shared:7 - xfs /dev/vdb rw\n";
        assert_eq!(find_file_system(mounts, Path::new("/home/a")), Some("ext4"));
        assert_eq!(find_file_system(mounts, Path::new("/data/b")), Some("tmpfs"));
        assert_eq!(find_file_system(mounts, Path::new("/data/fast/c")), Some("xfs"));
        assert_eq!(find_file_system(mounts, Path::new("/database")), Some("ext4"));
    }

    #[test]
    fn the_machine_has_cores_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && machine.memory_bytes > 0, "{machine:?}");
    }
}
