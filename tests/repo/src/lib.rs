//! Rules for every file of this repository. The checks are in `tests/rules.rs`; this module reads the files.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    testkit::package().ancestors().nth(2).unwrap().to_owned()
}

/// A file of the repository.
#[derive(Debug)]
pub struct File {
    /// The path relative to the root.
    pub path: PathBuf,
    pub text: String,
}

impl File {
    pub fn has_extension(&self, wanted: &str) -> bool {
        self.path.extension().is_some_and(|extension| extension == wanted)
    }

    /// Returns the number of the line that contains a byte.
    pub fn line_of(&self, byte: usize) -> usize {
        self.text[..byte].matches('\n').count() + 1
    }
}

/// Returns all text files that git tracks or would track; ignored files are left out.
pub fn files() -> Vec<File> {
    let root = root();
    let paths = tracked(&root).unwrap_or_else(|| {
        let mut found = Vec::new();
        walk(&root, Path::new(""), &mut found);
        found
    });
    let read = |path: PathBuf| Some(File { text: std::fs::read_to_string(root.join(&path)).ok()?, path });
    paths.into_iter().filter_map(read).collect()
}

fn tracked(root: &Path) -> Option<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let names = String::from_utf8(listed.stdout).ok()?;
    let found: Vec<PathBuf> = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    (listed.status.success() && !found.is_empty()).then_some(found)
}

/// Lists the files of a copy without a `.git`, such as an unpacked archive.
fn walk(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    const IGNORED: [&str; 4] = [".git", "target", "node_modules", "polynya-data"];
    let Ok(entries) = std::fs::read_dir(root.join(below)) else { return };
    for entry in entries.flatten() {
        let path = below.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !IGNORED.iter().any(|name| path.ends_with(name)) => {
                walk(root, &path, found)
            }
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}
