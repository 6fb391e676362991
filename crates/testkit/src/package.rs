//! The place of the repository's files.

use std::env;
use std::path::PathBuf;

/// Returns the folder of the package whose test (or program, under `cargo run`) is running.
///
/// The variable is read at run time, not at compile time as by `env!`. Checkouts may share a target directory, and a
/// test compiled in one checkout would otherwise read the files of that one, which may be gone.
pub fn package() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for what it runs").into()
}
