//! Finds the memory that the process may take: the limit of its control group, or the memory of the machine.

use std::path::{Path, PathBuf};

/// A limit of the process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub bytes: u64,
    /// The file that states the limit.
    pub from: PathBuf,
}

impl Limit {
    /// Returns the smallest limit of this process; `None` if no file states one.
    pub fn of_process() -> Option<Limit> {
        Self::below(Path::new("/"))
    }

    /// Returns the smallest limit, with `/proc` and `/sys` below `root`.
    fn below(root: &Path) -> Option<Limit> {
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut limits: Vec<Limit> = groups.lines().flat_map(|line| of_group(root, line)).collect();
        limits.extend(of_machine(root));
        limits.into_iter().min_by_key(|limit| limit.bytes)
    }
}

/// Returns the limits of a control group and of its ancestors. `line` is the group's line in `/proc/self/cgroup`: `0::/a/b`,
/// or `5:memory:/a/b` of version 1.
fn of_group(root: &Path, line: &str) -> Vec<Limit> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        some if some.split(',').any(|one| one == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    // In a container the path may be the one outside of it, while only the root of that path is visible.
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().filter_map(|group| read(root.join(mount).join(group).join(file))).collect()
}

fn read(file: PathBuf) -> Option<Limit> {
    /// Bytes from which a value means "no limit": version 1 has no word for it and states the largest number of pages.
    const NONE: u64 = 1 << 60;
    let text = std::fs::read_to_string(&file).ok()?;
    let bytes = text.trim().parse().ok().filter(|bytes| (1..NONE).contains(bytes))?;
    Some(Limit { bytes, from: file })
}

fn of_machine(root: &Path) -> Option<Limit> {
    let file = root.join("proc/meminfo");
    let text = std::fs::read_to_string(&file).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Limit { bytes: kib << 10, from: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn the_least_bound_of_all_groups_around_a_process_counts() {
        let dir = testkit::temp_dir("memory");
        let root: &Path = &dir;
        assert_eq!(Limit::below(root), None);
        write(root, "proc/meminfo", "MemTotal:        4096000 kB\nMemFree:  1 kB\n");
        assert_eq!(Limit::below(root).unwrap().bytes, 4_096_000 << 10);
        write(root, "proc/self/cgroup", "0::/system.slice/polynya.service\n");
        write(root, "sys/fs/cgroup/system.slice/polynya.service/memory.max", "max\n");
        assert_eq!(Limit::below(root).unwrap().bytes, 4_096_000 << 10);
        write(root, "sys/fs/cgroup/system.slice/memory.max", "536870912\n");
        let limit = Limit::below(root).unwrap();
        assert_eq!(limit.bytes, 512 << 20);
        assert_eq!(limit.from, root.join("sys/fs/cgroup/system.slice/memory.max"));
    }

    #[test]
    fn groups_of_version_1_count_too_and_a_container_sees_its_own_as_the_root() {
        let dir = testkit::temp_dir("memory");
        let root: &Path = &dir;
        write(
            root,
            "proc/self/cgroup",
            "12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n1:name=systemd:/\n",
        );
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(Limit::below(root), None);
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
        assert_eq!(Limit::below(root).unwrap().bytes, 256 << 20);
    }
}
