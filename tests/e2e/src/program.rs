//! Finds the built binary and runs it in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the path of the `polynya` binary: `POLYNYA_BIN`, or else the one that Cargo built beside this test.
///
/// Cargo does not tell a crate the binary of another one. `cargo test --workspace` and `make test` build it before any test
/// starts; `cargo test -p polynya-e2e` alone does not.
pub fn polynya() -> PathBuf {
    if let Some(named) = std::env::var_os("POLYNYA_BIN") {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "POLYNYA_BIN is {}, where there is no file", named.display());
        // The path must be absolute, because tests run the binary in other directories.
        return named.canonicalize().unwrap();
    }
    let test = std::env::current_exe().unwrap();
    // The test's own path is like target/debug/deps/e2e-0123456789abcdef.
    let beside = test.parent().and_then(Path::parent).unwrap().join("polynya");
    assert!(
        beside.is_file(),
        "there is no binary at {}; build it with `cargo build -p polynya-app`, or run `make test`",
        beside.display()
    );
    beside
}

/// Returns a command whose environment has none of the tester's own settings.
pub fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(polynya());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POLYNYA_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(directory).env("HOME", directory).stdin(Stdio::null());
    command
}

/// Runs a command that must fail, and returns its one error sentence.
pub fn complaint(directory: &Path, args: &[&str]) -> String {
    let output = command(directory, args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?} should have failed: {}\n{said}", text(&output));
    let sentences: Vec<&str> = said.lines().filter(|line| line.starts_with("polynya: ")).collect();
    assert_eq!(sentences.len(), 1, "{args:?} should have said one sentence: {said}");
    sentences[0].to_owned()
}

/// Runs a command that must succeed, and returns its standard output.
pub fn succeed(directory: &Path, args: &[&str]) -> String {
    let output = command(directory, args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} ended with {}: {}\n{said}", output.status, text(&output));
    text(&output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
