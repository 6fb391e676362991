//! Where the files of the repository lie.

use std::env;
use std::path::PathBuf;

/// The folder of the package whose test (or program, under `cargo run`) this is.
///
/// Asked when it runs, not when it is compiled as `env!` is: checkouts may share a target directory, and a test that was
/// compiled in one of them would read the files of that one, which may be gone.
pub fn package() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for what it runs").into()
}
