//! Writes the golden directory of the current format: `cargo run -p polynya-e2e --bin make-golden`.
//!
//! Use it only for a format that is not released yet. The directory of a released format is never rewritten.

use std::process::ExitCode;

use polynya_e2e::golden::{self, DATA, EXPECTED};

fn main() -> ExitCode {
    let directory = golden::home().join("v1");
    let data = directory.join(DATA);
    let made = std::fs::remove_dir_all(&data)
        .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
        .and_then(|()| std::fs::create_dir_all(&directory))
        .map_err(|error| error.to_string())
        .and_then(|()| golden::make(&data).map_err(|error| error.to_string()))
        .and_then(|text| std::fs::write(directory.join(EXPECTED), text).map_err(|error| error.to_string()));
    match made {
        Ok(()) => {
            println!("wrote {}", directory.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("make-golden: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
