//! Directories for tests on the real disk.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::thread;

/// Makes an empty directory for one test. `name` is part of the path, so that a directory left behind can be
/// identified.
///
/// Declare it before the values that use it: values are dropped in the reverse order.
pub fn temp_dir(name: &str) -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix(&format!("polynya-{name}-"))
        .tempdir()
        .unwrap_or_else(|error| panic!("no temporary directory for {name}: {error}"));
    TempDir(Some(dir))
}

/// A directory that is removed when this is dropped. If the test panics, it is kept and its path is printed.
#[derive(Debug)]
pub struct TempDir(Option<tempfile::TempDir>);

impl TempDir {
    pub fn path(&self) -> &Path {
        self.0.as_ref().expect("there until dropped").path()
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.path()
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let Some(dir) = self.0.take() else { return };
        if thread::panicking() {
            let path: PathBuf = dir.keep();
            eprintln!("kept for inspection: {}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_of_one_name_are_apart_and_go_with_their_values() {
        let (a, b) = (temp_dir("same"), temp_dir("same"));
        assert_ne!(a.path(), b.path());
        std::fs::write(a.join("file"), "x").unwrap();
        let path = a.path().to_owned();
        drop(a);
        assert!(!path.exists());
        assert!(b.exists());
    }

    #[test]
    fn the_directory_of_a_failed_test_is_kept() {
        let _limit = crate::limit(30);
        let failed = thread::spawn(|| {
            let dir = temp_dir("failed");
            std::panic::panic_any(dir.path().to_owned());
        });
        let path = *failed.join().unwrap_err().downcast::<PathBuf>().unwrap();
        assert!(path.exists());
        std::fs::remove_dir_all(path).unwrap();
    }
}
