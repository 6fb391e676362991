//! `polynya backup DEST`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use types::{Error, Result};

use crate::cli::Reach;
use crate::config::Config;
use crate::door::Door;
use crate::job;
use crate::output;
use crate::units::{ByteSize, counted, grouped};

#[derive(Debug, Args)]
#[command(
    long_about = "Take a backup of the data directory into a folder, with or without its server running: everything as of \
                  one commit, while reads and writes go on. The folder must be empty or not there yet, and lies on the \
                  server's machine. It is a backup once `BACKUP` is in it, which is written last; a backup that is \
                  interrupted leaves nothing.\n\nIndexes, the site and the lake are not in it: they are made anew.",
    after_help = "Examples:\n  polynya backup /mnt/backups/monday\n  polynya restore /mnt/backups/monday ./restored"
)]
pub struct Options {
    /// An empty folder, or one that does not exist yet
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let dest = std::path::absolute(&options.dest)
        .map_err(|error| Error::io(format!("finding {}", options.dest.display()), error))?;
    let Some(path) = dest.to_str() else {
        return Err(Error::invalid(format!("the path {} is not UTF-8", dest.display()))
            .hint("name a folder whose path is"));
    };
    let started = Instant::now();
    let bar = bar();
    let body = json!({ "dest": path });
    let taken = super::block_on(async {
        let door = Door::open(config, &Reach::default()).await?;
        door.with(async |door: &mut Door| {
            job::run(super::control(door)?, Method::POST, "/backups", &body, &mut |told| show(&bar, told))
                .await
        })
        .await
    });
    bar.finish_and_clear();
    let taken = taken?;
    if options.json {
        output::print(&format!("{taken}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let number = |name: &str| taken[name].as_u64().unwrap_or_default();
    output::print(&format!(
        "Backed up lsn {} of {}: {} in {}, {} in {}, in {:.1} s\nRestore it with: polynya restore {} NEW_DIRECTORY\n",
        grouped(number("lsn")),
        taken["time"].as_str().unwrap_or_default(),
        counted(number("rows"), "row"),
        counted(number("tables"), "table"),
        ByteSize(number("bytes")),
        counted(number("files"), "file"),
        started.elapsed().as_secs_f64(),
        options.dest.display(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// A bar of bytes; none where nobody watches.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Shows `{done, total}`.
fn show(bar: &ProgressBar, told: &Value) {
    let number = |name: &str| told[name].as_u64().unwrap_or_default();
    // The total is a guess: rows take another number of bytes in files than in memory.
    bar.set_length(number("total").max(number("done")));
    bar.set_position(number("done"));
}
