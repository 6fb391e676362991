//! Generates the list of the files of `ui/`, so that a new file there is served without a change to any Rust source.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=ui");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let ui = Path::new(&root).join("ui");
    let mut names: Vec<String> = fs::read_dir(&ui)
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok())
                .filter(|entry| entry.path().is_file())
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| !name.starts_with('.') && !name.ends_with(".md"))
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    let mut code = String::from("pub const FILES: &[(&str, &[u8])] = &[\n");
    for name in names {
        // The path is not the directory of this run, because a build directory may serve several checkouts and outlive some of
        // them.
        let path = format!("/ui/{name}");
        let _ = writeln!(
            code,
            "    ({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),"
        );
    }
    code.push_str("];\n");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("ui.rs"), code).expect("the build directory takes files");
}
